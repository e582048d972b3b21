"""What every run needs: its folder, the Tinker server, chat formats and prices.

Read first: ``record.py``, then ``logs.py`` and ``checkpoints.py``.
"""
