"""``python -m sciscidata`` is the ``sciscidata`` command."""

import sys

from sciscidata.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
