"""Where works come from. A source is one of three: Citations, Scores, or somebody to Ask.

A new source is a module or folder here, and a row of ``registry.py``. Read first: ``kinds.py``, then ``records.py``.
"""
