"""Imported before everything else of the tests: how many threads they compute with."""

import os

# Half of the workers, and what they start, have one thread of Polars, as a small machine has; the others one per core.
if int(os.environ.get("PYTEST_XDIST_WORKER", "gw1")[2:]) % 2 == 0:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads spin for a while after each import, and would be lost in a fork
