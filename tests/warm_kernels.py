"""Imports every compiled loop and wakes the compiler, so that a process forked afterwards starts without that wait.

It runs none of the loops. The compiler's first call takes 0.3 s, also where it only reads a loop from the disk.
"""

from __future__ import annotations

import importlib
import pkgutil

import numba

import sciscidata

for module in pkgutil.walk_packages(sciscidata.__path__, "sciscidata."):
    if module.name.endswith("kernels"):
        importlib.import_module(module.name)
numba.njit(lambda: 0)()
