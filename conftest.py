"""For tests and for the examples of docstrings, which know no other ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sciscirl import presets
from sciscirl.metrics import own_metrics
from sciscirl.task import plugins, prompts, rewards


@contextmanager
def kept_registries() -> Iterator[None]:
    """Let presets, rewards, prompts and metrics that a test registers be gone at its end."""
    registries = (presets._PRESETS, rewards._REWARDS, prompts._PROMPTS, own_metrics._METRICS)
    before, loaded = [dict(one) for one in registries], plugins.PLUGINS.copy()
    try:
        yield
    finally:
        for one, entries in zip(registries, before, strict=True):
            one.clear()
            one.update(entries)
        plugins.PLUGINS[:] = loaded


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Keep the registries for each test and example."""
    with kept_registries():
        yield
