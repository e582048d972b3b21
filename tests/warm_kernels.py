"""Imports every compiled loop, so that a process forked afterwards starts without that wait; runs none of them."""

from __future__ import annotations

import importlib
import pkgutil

import sciscidata

for module in pkgutil.walk_packages(sciscidata.__path__, "sciscidata."):
    if module.name.endswith("kernels"):
        importlib.import_module(module.name)
