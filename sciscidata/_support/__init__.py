"""Small tools inside this package: threads, quantiles, vectors, and priors as JSON.

They know nothing about works or citations. Read first: ``parallel.py``.
"""
