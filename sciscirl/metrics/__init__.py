"""Answers as a table, and everything computed from it: metrics, intervals, collapse.

Pure functions that ask no model. Read first: ``predictions.py``, then ``metrics.py``.
"""
