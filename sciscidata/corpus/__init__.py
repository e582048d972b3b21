"""A corpus on disk: tables in Parquet, their citation graph, and score files that name their corpus.

Every stage of the command line reads and writes one. Read first: ``folder.py``.
"""
