"""Small tools inside this package: threads, quantiles, vectors, short text of values.

They know nothing about works or citations. Read first: ``parallel.py``.
"""
