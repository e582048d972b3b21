"""The same as ``sciscirl train``."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
