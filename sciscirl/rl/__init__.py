"""Reinforcement learning: the training loop, a dry run that shows prompts and cost.

Read first: ``train.py``.
"""
