"""The same as ``sciscirl serve``."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["serve", *sys.argv[1:]]))
