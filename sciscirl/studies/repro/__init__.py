"""How far answers repeat: the same prompts under other number formats, batches, threads and kernels.

Read first: ``sweep.py``.
"""
