"""A synthetic world of science: works, citations and texts that look real, grown from a seed.

Read first: ``source.py``, then ``graph.py``.
"""
