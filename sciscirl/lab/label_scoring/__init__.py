"""Ask a model for its probability of each label, instead of an answer.

Read first: ``probabilities.py``. ``endings.py`` asks a server.
"""
