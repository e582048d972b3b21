"""Supervised fine-tuning on gold answers, on a Tinker server; with PEFT it is in the lab.

Read first: ``examples.py``.
"""
