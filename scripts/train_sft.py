"""The same as ``sciscirl sft``."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["sft", *sys.argv[1:]]))
