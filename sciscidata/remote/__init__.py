"""Addresses and object stores: to whom a key may be sent, and how files at an address are read and written.

Read first: ``object_store.py``.
"""
