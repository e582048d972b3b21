"""A client of the OpenAlex API that pays for no answer twice.

It knows nothing of works or scores; retry waits and pace are in ``limits.py``. Read first: ``client.py``.
"""
