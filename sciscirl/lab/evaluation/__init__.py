"""Judge a model or a checkpoint alone on held-out papers; training judges on its way by ``sciscirl/evaluation``.

Read first: ``evaluate.py``.
"""
