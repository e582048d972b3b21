"""The source "exports": files that Web of Science and Scopus export, with cited references.

Read first: ``formats.py`` and ``bibtex.py`` (files to records), then ``references.py`` (references to works), then
``source.py``.
"""
