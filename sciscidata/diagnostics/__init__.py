"""Diagnostics: what in works and citations would make scores wrong in silence.

Read first: ``diagnose.py``, which counts. ``picture.py`` draws what it has found.
"""
