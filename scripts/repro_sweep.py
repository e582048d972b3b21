"""The same as ``sciscirl sweep repro``."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["sweep", "repro", *sys.argv[1:]]))
