"""The HTTP client of the OpenAlex API: it stores every answer, so that each is paid for once.

It knows nothing of works or scores (that is ``sources/openalex/``). Retry waits, pace and spending limits are in
``retries_and_limits.py``. Read first: ``client.py``.
"""
