"""Who does the work of a stage: processes of this machine, a Dask cluster, Slurm jobs, or whoever runs the commands.

A stage cuts itself into tasks (``task.py``), an engine runs them (``engine.py``, and one file for each kind), and the
stage puts their files together. Read first: ``task.py``.
"""
