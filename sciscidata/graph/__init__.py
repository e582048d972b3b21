"""The citation graph in flat arrays, built on disk in bounded memory, mapped into memory afterwards.

Disruption and novelty both read it. Read first: ``graph.py``.
"""
