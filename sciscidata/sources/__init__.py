"""Where works and citations come from: every source returns the same ``Corpus`` of works, citations and provenance.

A new source is a module here, and a line each in ``sciscidata/config.py`` and ``sciscidata/choose_source.py``.
Read first: ``records.py``.
"""
