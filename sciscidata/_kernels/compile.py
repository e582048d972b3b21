"""Compile a loop with numba, without the GIL, and keep the machine code on disk. Import late: numba loads slowly."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from numba import njit

logger = logging.getLogger(__name__)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function on its first call, and keep the machine code on disk for later runs.

    numba keeps it beside the source, or in the user's cache folder. Where it can write to neither (a read-only
    installation without a home), every run compiles again, which takes seconds.
    """
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError as error:
        logger.info("compiled for this run only: %s", error)
        return njit(nogil=True)(function)
