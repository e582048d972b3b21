"""The source "tables": works and citations of anybody, in frames or in files, with ids of any kind.

Read first: ``frames.py`` (frames in memory), then ``source.py`` (files of any size). ``columns.py`` is what they share.
"""
