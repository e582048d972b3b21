"""Judge a model or a checkpoint alone on held-out papers; training judges on its way by ``lab/evaluator.py``.

Read first: ``evaluate.py``.
"""
