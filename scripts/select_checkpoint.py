"""The same as ``sciscirl select``."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["select", *sys.argv[1:]]))
