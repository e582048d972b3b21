"""Which works may be drawn, and which are: eligibility filters, the hash split, and draws with late texts.

More data never moves a work from one split to another. Read first: ``split.py``.
"""
