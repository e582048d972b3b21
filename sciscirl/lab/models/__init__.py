"""Models in this process: bring one here, load it, and sample from it.

Read first: ``local_model.py``, then ``local_completer.py``.
"""
