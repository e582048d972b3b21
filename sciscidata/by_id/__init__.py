"""Scores of works that are named by their ids, from what lies on disk or by the OpenAlex API.

Read first: ``score_ids.py``.
"""
