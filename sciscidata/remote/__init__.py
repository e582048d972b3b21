"""Addresses and object stores: who may get a key, and how files at an address are read.

Read first: ``object_store.py``.
"""
