"""The same as ``sciscirl report``."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
