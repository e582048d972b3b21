"""Reinforcement learning on a Tinker server; what a dry run says is in the lab.

Read first: ``train.py``.
"""
