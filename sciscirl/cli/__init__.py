"""The ``sciscirl`` command: one subcommand per act, options as ``preset=exp4`` or ``--preset exp4``.

Read first: ``commands.py``.
"""
