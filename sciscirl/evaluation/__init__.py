"""Judge a model, a checkpoint or a baseline on held-out papers, and choose among checkpoints.

Read first: ``evaluate.py``. ``evaluator.py`` is the cookbook's evaluator that asks the model.
"""
