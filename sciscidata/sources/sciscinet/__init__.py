"""The source "SciSciNet", versions 1 and 2: its tables as works, citations, texts and published scores.

Column names of both versions are in ``config.py``. Read ``source.py`` first. Then come ``tables.py`` (find and scan
tables), ``works.py`` (join them), ``order.py`` (read all works in bounded memory) and ``published_scores.py``.
"""
