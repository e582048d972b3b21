"""Works from the OpenAlex API, scored by the API's own counts, with no more calls than the draw needs.

Read first: ``source.py``, then ``pull.py``.
"""
