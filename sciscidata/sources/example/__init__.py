"""The source "example": 4,381 real works of OpenAlex, which come with the package.

SOURCE.md says where they are from, and scripts/make_example.py made them.
"""
