"""The task as environments of the Tinker cookbook: one paper, one answer, one reward.

Read first: ``env.py`` (LabelEnv), then ``dataset.py`` (which papers, in which order).
"""
