"""The task: papers with hidden labels, prompts, answer contracts and rewards.

The words of every prompt are in ``prompts.py``, every reward in ``rewards.py``. Read first: ``papers.py``.
"""
