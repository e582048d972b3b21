"""The source "OpenAlex API": works with scores from the API's own counts, in as few calls as the draw needs.

The HTTP client is ``sciscidata/openalex_api/``. Read first: ``source.py``.
"""
