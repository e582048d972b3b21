"""What every run needs: its folder, the Tinker server, chat formats, prices, and a line for each step.

Read first: ``record.py``, then ``logs.py`` and ``checkpoints.py``.
"""
