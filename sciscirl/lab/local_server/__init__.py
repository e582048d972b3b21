"""Run a Tinker server on your own machine: SkyRL in its own environment, and a tiny model.

Read first: ``server.py``.
"""
