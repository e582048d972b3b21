"""What changed between two releases, corpora, files of scores or frames.

Read first: ``compare.py``.
"""
