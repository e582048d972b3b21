"""What every run needs: its folder, the Tinker server, local models, chat formats, prices.

Read first: ``folder.py``, then ``server_checks.py``.
"""
