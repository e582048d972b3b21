"""What saved answers tell beyond their metrics: models compared, baselines, calibration, the choice of a checkpoint.

Read first: ``compare.py``.
"""
