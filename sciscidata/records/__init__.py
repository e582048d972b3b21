"""One OpenAlex record, in any shape, becomes one row of WORKS and its rows of CITATIONS.

Abstracts and titles become plain text here. Read first: ``work.py``.
"""
