"""The task: papers with hidden labels, the prompts, the answer contracts and the rewards.

The words of every prompt are in ``prompts.toml``, every reward is in ``rewards.py``. Read first: ``papers.py``.
"""
