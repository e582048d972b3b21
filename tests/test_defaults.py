"""A default that moves is noticed: those of all configurations, and what their named starting points change."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from sciscidata.disruption.config import COMPAT as CD_COMPAT
from sciscidata.label_thresholds import PRESETS as THRESHOLDS
from sciscidata.novelty.config import COMPAT as NOVELTY_COMPAT
from tests.conftest import REPOSITORY
from tests.test_house_rules import modules

_GOLDEN = REPOSITORY / "tests" / "golden" / "defaults.txt"
# Of a preset and its options.
_PARTS = "Task|Length|PaperChoice|ListedPapers|Order|Sampling|Adapter|Loss|Adam|Judging|Resampled"
_CONFIGURATIONS = re.compile(rf"[A-Z]\w*(Config|Options|Label|Thresholds|Rules)|Preset|RewardTable|{_PARTS}")


def default_of(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def write_defaults() -> Iterator[str]:
    for module, tree in modules().items():
        for name in [node.name for node in tree.body if isinstance(node, ast.ClassDef)]:
            kind = getattr(import_module(module), name) if _CONFIGURATIONS.fullmatch(name) else None
            for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
                default = default_of(field)
                if default is dataclasses.MISSING or field.name not in inspect.get_annotations(kind):  # inherited
                    continue
                of_user = isinstance(default, Path) and default.is_absolute()
                yield f"{name}.{field.name} = {'a folder of the user' if of_user else repr(default)}"


def list_values(named: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and default of each field, and in place of a part of a preset those of its own fields."""
    for field in dataclasses.fields(named):
        value = getattr(named, field.name)
        if re.fullmatch("Order|Sampling|Optimiser|Judging", type(value).__name__):
            yield from list_values(value)
        else:
            yield field.name, value, default_of(field)


def write_changes(title: str, named: dict[str, Any]) -> Iterator[str]:
    for name, value in named.items():
        values = [(key, one, ...) for key, one in value.items()] if isinstance(value, dict) else list_values(value)
        yield from (f"{title} {name}: {key} = {one!r}" for key, one, usual in values if one != usual)


def test_defaults_and_named_settings_are_those_that_results_were_made_with():
    # UPDATE_GOLDEN=1 writes them anew. A changed default is another result: say so in the CHANGELOG.
    named = {
        "cd compat": CD_COMPAT,
        "novelty compat": NOVELTY_COMPAT,
        "thresholds": THRESHOLDS,
        "reward": import_module("sciscirl.task.rewards").REWARDS,
        "preset": import_module("sciscirl.presets").PRESETS,
    }
    lines = [*write_defaults(), *(line for title, one in named.items() for line in write_changes(title, {**one}))]
    if os.environ.get("UPDATE_GOLDEN"):
        _GOLDEN.write_text("\n".join(lines) + "\n", "utf-8")
    assert lines == _GOLDEN.read_text("utf-8").splitlines()
