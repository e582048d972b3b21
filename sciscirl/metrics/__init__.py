"""Answers as a table, and everything that is computed from it: metrics, intervals, comparisons, collapse.

Pure functions; no model is asked here. Read first: ``predictions.py``.
"""
