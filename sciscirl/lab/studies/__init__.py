"""Studies that repeat a run under other conditions: presets, options and seeds, or number formats and batches.

Read first: ``sweep.py``, or ``repro.py``.
"""
