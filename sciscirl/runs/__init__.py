"""What every run needs: its folder, the Tinker server, chat formats, prices.

Read first: ``folder.py``, then ``server_checks.py``.
"""
