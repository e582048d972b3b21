"""What every run needs: its folder, the Tinker server, chat formats, prices, and a line for each step.

Read first: ``folder.py``, then ``server_checks.py``.
"""
