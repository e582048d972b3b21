"""The ``sciscidata`` command: flags and TOML files to one configuration, one call, a summary.

Flags follow from the fields of the configurations. Read first: ``main.py``.
"""
