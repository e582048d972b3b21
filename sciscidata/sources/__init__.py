"""Where works and citations come from. Every source returns the same ``Corpus``: works, citations, provenance.

A new source is a module here, with a line in ``sciscidata/config.py`` and one in ``sciscidata/open_source.py``. Read first: ``records.py``.
"""
