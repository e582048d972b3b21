"""One HTML report of many runs, and comparisons of models paper by paper.

Read first: ``report.py``.
"""
