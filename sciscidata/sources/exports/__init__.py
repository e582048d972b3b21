"""The source "exports": files that Web of Science and Scopus export, with cited references.

Read first: ``formats.py`` (files to records; ``bibtex.py`` has the entries of BibTeX), then ``references.py`` (references
to works), then ``source.py``.
"""
