"""The same as ``sciscirl sweep``."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["sweep", *sys.argv[1:]]))
