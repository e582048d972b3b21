"""Imported before everything else of the tests: how many threads they compute with."""

import os

# One worker of three, and what it starts, has a thread of Polars per core; the others have one, as a small machine has.
if int(os.environ.get("PYTEST_XDIST_WORKER", "gw1")[2:]) % 3 != 1:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # its threads spin for a while after each import, and would be lost in a fork
