"""Supervised fine-tuning on gold answers, on a Tinker server or with PEFT on your own GPU.

Read first: ``config.py``.
"""
