"""How far answers repeat under other number formats, batches, threads and kernels.

Read first: ``sweep.py``.
"""
