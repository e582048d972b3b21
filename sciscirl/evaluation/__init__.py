"""Judge a model or a checkpoint on held-out papers.

Read first: ``evaluate.py``. ``evaluator.py`` is the cookbook's evaluator that asks the model.
"""
