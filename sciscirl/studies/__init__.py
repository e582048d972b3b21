"""Sweeps that repeat a run under other conditions: number formats and batches, or group sizes.

Read first: ``group_sizes.py``, or ``repro/sweep.py``.
"""
