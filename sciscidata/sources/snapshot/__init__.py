"""The source "OpenAlex snapshot": read part by part in several processes into a corpus on disk.

A second run reads only the parts that have changed. Read first: ``source.py``; then ``layout.py`` (find the parts),
``reading.py`` (parse one part) and ``parts.py`` (write one part, in worker processes).
"""
