"""Supervised fine-tuning on your own GPUs with PEFT, and the merged model with its card.

Read first: ``peft_backend.py``.
"""
