"""Small tools inside this package: threads, quantiles, vectors.

They know nothing about works or citations. Read first: ``parallel.py``.
"""
