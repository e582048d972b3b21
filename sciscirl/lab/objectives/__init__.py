"""What a preset adds to the batches of a run: the batch term, spare papers, the watch for collapse, challenges.

Read first: ``dataset.py``.
"""
