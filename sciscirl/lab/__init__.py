"""What a trainer's author does not need: own hardware, small models, sweeps, comparisons, reports, other harnesses.

The core never imports it. Read first: ``commands.py``, the commands that it adds.
"""
