"""What a command needs of the terminal and the machine: messages, progress bars, memory, processes of Python.

Read first: ``messages.py``.
"""
