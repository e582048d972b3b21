"""``python -m sciscirl`` is the ``sciscirl`` command."""

import sys

from sciscirl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
