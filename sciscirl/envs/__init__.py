"""The task as environments of the Tinker cookbook: one paper, one answer, one reward.

Papers are ordered, resampled and challenged here. Read first: ``env.py``.
"""
