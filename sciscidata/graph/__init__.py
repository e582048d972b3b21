"""The citation graph in flat arrays: built on disk in bounded memory, then mapped into memory.

Disruption and novelty both read it. Read first: ``graph.py``.
"""
