"""The same as ``sciscirl evaluate``."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
