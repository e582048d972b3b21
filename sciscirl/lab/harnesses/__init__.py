"""The task for other harnesses: verifiers, Inspect and lm-evaluation-harness.

Read first: ``export.py`` writes a folder with the papers and a file for each tool. These files call ``score.py``.
"""
