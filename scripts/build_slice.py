"""Build a labelled, balanced, frozen slice: python scripts/build_slice.py --help."""

from __future__ import annotations

import sys

from sciscidata.cli.main import build_main

if __name__ == "__main__":
    sys.exit(build_main())
