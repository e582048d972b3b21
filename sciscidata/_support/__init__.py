"""Small tools that any part may use: argument checks, threads, progress bars, quantiles, text for a terminal.

They know nothing about works or citations. Read first: ``validate.py``.
"""
