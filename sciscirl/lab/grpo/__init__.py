"""Reinforcement learning on one's own hardware: the papers, rewards and folder of ``rl``, in TRL's GRPO loop.

Read first: ``train.py``. ``docs/rl/local.md`` says what TRL computes otherwise than the cookbook.
"""
