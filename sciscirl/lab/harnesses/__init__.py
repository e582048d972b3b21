"""The task for other harnesses: an export that Inspect runs, and a benchmark of the cookbook.

Read first: ``export.py`` writes a folder with the papers and the file of Inspect, which calls ``score.py``.
"""
