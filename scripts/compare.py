"""The same as ``sciscirl compare``."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["compare", *sys.argv[1:]]))
