"""Supervised fine-tuning on gold answers, on a Tinker server and on your own GPUs, and the merged model.

Read first: ``examples.py``, then ``tinker_backend.py`` or ``peft_backend.py``.
"""
