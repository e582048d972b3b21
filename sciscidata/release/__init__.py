"""A release on disk: written once, described by a manifest, verified and exported.

The learning half reads nothing else. Read first: ``release.py``.
"""
