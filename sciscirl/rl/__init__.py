"""Reinforcement learning: options, the training loop, a dry run that shows prompts and cost.

Read first: ``config.py``, then ``train.py``.
"""
