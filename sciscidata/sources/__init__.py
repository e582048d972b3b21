"""Where works and citations come from: every source opens to an ``OpenedSource`` of works, citations and provenance.

A new source is a module or folder here, and a row of ``registry.py``. Read first: ``opened.py``, then ``records.py``.
"""
