"""Training on a Tinker server by reinforcement, and what every run shows while it trains.

Read first: ``rl.py``.
"""
