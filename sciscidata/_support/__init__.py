"""Small tools that any part may use: argument checks, threads, progress bars, text for a terminal.

They know nothing of works or citations. Read first: ``validate.py``.
"""
