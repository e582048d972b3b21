"""Studies that repeat a run under other conditions: group sizes, or number formats and batches.

Read first: ``group_sizes.py``, or ``repro/sweep.py``.
"""
