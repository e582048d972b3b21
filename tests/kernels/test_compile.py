"""Compiled loops run wherever Python does, and stay on disk where that can be."""

from __future__ import annotations

import pytest
from numba import njit

from sciscidata._kernels.compile import kernel
from tests.conftest import REPOSITORY


def function_without_a_file():
    """numba keeps machine code by source file, so that of such a function has no place anywhere."""
    names: dict[str, object] = {}
    exec("def double(x):\n    return 2 * x", names)
    return names["double"]


def test_a_kernel_runs_where_numba_finds_no_place_to_keep_it():
    with pytest.raises(RuntimeError, match="no locator available"):
        njit(cache=True)(function_without_a_file())
    assert kernel(function_without_a_file())(21) == 42


def test_a_kernel_is_kept_where_it_can_be():
    from sciscidata.disruption._kernels import slide

    assert slide.stats.cache_path


def test_no_module_asks_numba_for_a_cache_of_its_own():
    sources = (path for path in (REPOSITORY / "sciscidata").rglob("*.py") if path.name != "compile.py")
    assert not [path.name for path in sources if "cache=True" in path.read_text("utf-8")]
