"""A Tinker server on your own machine: SkyRL in an environment of its own, and a tiny model.

Read first: ``server.py``.
"""
