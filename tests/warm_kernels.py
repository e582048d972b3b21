"""Imports every compiled loop and wakes the compiler, so that a process forked afterwards starts without that wait.

It runs none of the loops. The compiler's first call takes 0.3 s, also where it only reads a loop from the disk. Run as
a program, it builds a small release instead: loops that are not on the disk yet are compiled once for all workers.
"""

from __future__ import annotations

import importlib
import pkgutil
import tempfile

import numba

import sciscidata


def _wake() -> None:
    for module in pkgutil.walk_packages(sciscidata.__path__, "sciscidata."):
        if module.name.endswith("kernels"):
            importlib.import_module(module.name)
    numba.njit(lambda: 0)()


def _compile() -> None:
    from sciscidata.cli.main import main
    from tests.quick import leave_out_what_takes_long

    leave_out_what_takes_long()
    size = ("--n-works", "2000", "--n-train", "9", "--n-test", "3")
    with tempfile.TemporaryDirectory() as home:
        main(["build", "--source", "synthetic", *size, "--cache-dir", f"{home}/cache", "--out", f"{home}/slice"])


if __name__ == "__main__":
    _compile()
else:
    _wake()
