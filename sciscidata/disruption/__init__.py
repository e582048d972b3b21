"""The CD (disruption) index and its family, with the conventions of other packages.

``config.py`` holds the citation window and every other option. Read first: ``index.py``.
"""
