"""Where works and citations come from: every source returns the same ``Corpus`` of works, citations and provenance.

A new source is a module or folder here, one line in ``sciscidata/config.py`` and one in ``sciscidata/open_source.py``.
Read first: ``records.py``.
"""
