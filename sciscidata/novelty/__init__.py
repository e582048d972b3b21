"""Novelty of reference combinations: atypicality (Uzzi), commonness (Lee) and first-time venue pairs (Wang).

``config.py`` holds the options, ``null_model.py`` the null model. Read first: ``atypicality.py``.
"""
