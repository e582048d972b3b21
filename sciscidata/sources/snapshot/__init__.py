"""The OpenAlex snapshot, read part by part in several processes into a corpus on disk.

A second run reads only the parts that have changed. Read first: ``source.py``.
"""
