"""The same as ``sciscirl merge``."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["merge", *sys.argv[1:]]))
