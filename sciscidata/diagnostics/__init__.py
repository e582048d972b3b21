"""Diagnostics: what in works and citations would make scores wrong in silence.

Read first: ``diagnose.py``, which counts. ``picture.py`` draws what it has found. ``of_release.py`` is what a build
says of its works: checks, entries of the manifest, and the pictures of the release.
"""
