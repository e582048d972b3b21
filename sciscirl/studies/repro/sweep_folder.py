"""What a sweep's folder says of it: whether it is the same sweep, and whether two can be compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sciscidata.storage import atomic_file
from sciscidata.storage.small_files import read_json
from sciscirl.errors import SciSciRLError
from sciscirl.studies.repro.cells import read_cell

SWEEP_FILE: Final = "sweep.json"
#: What two sweeps need in common to be compared; weights only where both know theirs.
_COMPARED: Final = ("prompts_sha256", "max_tokens", "temperature")


def begin_sweep(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write what the sweep is, or make sure that what is there is the same one.

    Raises:
        SciSciRLError: if the folder is of another sweep.
    """
    path = folder / SWEEP_FILE
    if not path.exists():
        with atomic_file(path) as new:
            new.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", "utf-8")
        return
    older = _read_sweep(folder)
    for name, value in facts["settings"].items():
        if older.get(name) != value:
            msg = (
                f"{folder} was begun with {name}={older.get(name)!r}, now it is {value!r}. Go on with what it "
                "was begun with, or choose another folder: --out. Sweeps on several machines are compared by --against."
            )
            raise SciSciRLError(msg)


def _read_sweep(folder: Path) -> dict[str, Any]:
    path = folder / SWEEP_FILE
    try:
        return dict(read_json(path)["settings"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        msg = f"{folder} is not the folder of a sweep: {path.name} is missing or damaged. Choose another."
        raise SciSciRLError(msg) from error


def check_comparable(settings: Mapping[str, Any], folder: Path) -> None:
    """Refuse a sweep made elsewhere that asked other prompts, or of other weights, or that has no reference yet.

    Raises:
        SciSciRLError: if it is one.
    """
    theirs = _read_sweep(folder)
    known = ("weights_sha256",) if settings["weights_sha256"] and theirs.get("weights_sha256") else ()
    for name in (*_COMPARED, *known):
        if theirs.get(name) != settings[name]:
            msg = (
                f"{folder} cannot be compared with: its {name} is {theirs.get(name)!r}, here it is {settings[name]!r}. "
                "Run both sweeps on the same slice, preset, chat format and weights."
            )
            raise SciSciRLError(msg)
    if read_cell(folder, "reference")[1] is None:
        msg = f"{folder} has no reference yet. Let that sweep run first."
        raise SciSciRLError(msg)
