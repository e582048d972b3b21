"""Who does the work of a stage: local processes, a Dask cluster, Slurm jobs, or listed commands.

A stage cuts itself into tasks (``task.py``). An engine runs them (``engine.py``, and one file for each kind). Then the
stage puts their files together. Read first: ``task.py``.
"""
