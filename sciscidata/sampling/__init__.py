"""Which works are drawn: the demand, the hash split, and draws with late texts.

More data never moves a work from one split to another. Read first: ``split.py``, then ``draw.py``.
"""
