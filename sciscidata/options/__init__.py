"""Options of both packages: classes of options are checked, read from flags and TOML, and shown as help.

Read first: ``checks.py``, then ``parser.py``.
"""
