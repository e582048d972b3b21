"""The same as ``sciscirl sweep group-sizes``."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["sweep", "group-sizes", *sys.argv[1:]]))
