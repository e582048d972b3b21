"""What the lab adds to the core, by name: a part is loaded when it is first used. No other file names the lab."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

#: The commands of the lab, functions of ``lab/commands.py``.
LAB_COMMANDS: Final = (
    *("calibrate", "select", "compare", "report", "model", "serve"),
    *("merge", "sweep", "sweep repro", "export-task", "demo"),
)
#: Models that ``sciscirl model`` brings by a short name, and their chat format.
SHORT_NAMES: Final[Mapping[str, str]] = MappingProxyType({"smollm2": "qwen3_instruct"})
#: The variable that says whether code that a model brings may be run; the cookbook reads it, too.
MODEL_CODE: Final = "HF_TRUST_REMOTE_CODE"


def load_part(name: str) -> Any:  # noqa: ANN401
    """Load a part of the lab: a name of ``lab/__init__.pyi``, or one of LAB_COMMANDS."""
    if name in LAB_COMMANDS:
        return getattr(import_module("sciscirl.lab.commands"), name.replace(" ", "_").replace("-", "_"))
    return getattr(import_module("sciscirl.lab"), name)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name.startswith("_"):  # an import asks for __path__
        raise AttributeError(name)
    return load_part(name)  # for annotations of commands: sciscirl.lab_parts.LocalTrainOptions
