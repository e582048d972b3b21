"""The source "synthetic": a seeded world of science whose works, citations and texts look real.

Read first: ``source.py``, then ``graph.py``.
"""
