"""Presets, rewards and prompts that a test registers, gone at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sciscirl import presets
from sciscirl.task import prompts, rewards
from sciscirl.task import registry as plugins


@contextmanager
def kept_registries() -> Iterator[None]:
    registries = (presets._PRESETS, rewards._REWARDS, prompts._PROMPTS)
    before, loaded = [dict(registry) for registry in registries], plugins.PLUGINS.copy()
    try:
        yield
    finally:
        for registry, entries in zip(registries, before, strict=True):
            registry.clear()
            registry.update(entries)
        plugins.PLUGINS[:] = loaded
