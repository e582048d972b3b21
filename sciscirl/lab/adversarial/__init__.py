"""The adversarial task: predict, be challenged, defend or revise.

Read first: ``env.py``. Rewards are in ``rewards.py``, the challenger in ``challenger.py``.
"""
