"""The task for other harnesses: verifiers, Inspect, lm-evaluation-harness and OpenAI evals.

Read first: ``export.py`` writes a folder with the papers and a file for each tool. These files call ``score.py``.
"""
