"""A release on disk: written once, described by a manifest, verified and exported.

Read first: ``release.py`` (write and read), then ``manifest.py`` (what it says of itself), ``verify.py`` (recompute
it). The learning half reads nothing else of this package.
"""
