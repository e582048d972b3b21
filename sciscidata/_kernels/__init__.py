"""Compiled loops are built from these parts: compilation, LLVM intrinsics, seeded random numbers, exact exp and log.

Numba loads slowly, so every ``*_kernels`` module is imported on first use. Read first: ``compile.py``.
"""
