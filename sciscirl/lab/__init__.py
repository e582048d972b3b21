"""What a trainer's author does not need: own hardware, small models, sweeps, comparisons, reports, other harnesses.

It puts parts of the core together, and the core never imports it. Read first: ``training/rl.py``, then ``commands.py``.
"""
