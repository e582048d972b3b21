"""The folder of a sweep: what it was begun with, which runs it has, and its tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, cast

import polars as pl

from sciscidata.storage import path_inside
from sciscidata.storage.parquet import write_parquet
from sciscidata.storage.sums import check_ours, read_json, sealed_file
from sciscirl.errors import SciSciRLError
from sciscirl.runs.logs import write_json
from sciscirl.runs.record import RUN_FILE, name_anew, say_changed

SWEEP_FILE: Final = "sweep.json"
_TABLES: Final = ("parquet", "csv")


def begin_sweep(folder: Path, facts: Mapping[str, Any], *, free: Collection[str] = ()) -> None:
    """Write the facts of a sweep, or make sure that the folder holds the same; ``free`` settings may change."""
    settings: Mapping[str, Any] = facts["settings"]
    if (folder / SWEEP_FILE).exists() and check_sweep(folder, settings, free=free) == settings:
        return
    check_ours(*(folder / f"sweep.{kind}" for kind in _TABLES))
    write_json(folder / SWEEP_FILE, facts)


def check_sweep(folder: Path, settings: Mapping[str, Any], *, free: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings of the sweep in a folder; SciSciRLError if they are those of another one."""
    older = read_sweep(folder)
    for name, value in settings.items():
        if name not in free and older.get(name) != value:
            raise SciSciRLError(
                f"{folder} was begun {say_changed(name, older.get(name), value)}. Go on with what it was begun "
                f"with, or choose another folder: --out."
            )
    return older


def read_sweep(folder: Path) -> dict[str, Any]:
    """Read the settings of a sweep by their names of today (SciSciRLError: the folder holds none)."""
    settings = {"backend": "tinker", "evaluators": []} | _read(folder)["settings"]  # earlier ones state neither
    name_anew(settings)
    for name in ("kl_reference_config", "stream_minibatch_config"):
        if isinstance(settings.get(name), dict):
            settings[name] = [f"{key}:{value}" for key, value in settings[name].items()]
    return settings


def _read(folder: Path) -> dict[str, Any]:
    path = folder / SWEEP_FILE
    try:
        facts: Any = read_json(path)
        if isinstance(facts["settings"], dict):
            return cast("dict[str, Any]", facts)
    except (OSError, ValueError, LookupError, TypeError):
        pass
    raise SciSciRLError(f"{folder} is not the folder of a sweep: {path.name} is missing or damaged. Choose another.")


def list_runs(folder: Path) -> list[Path]:
    """List the runs of a sweep that have begun. A folder without a sweep has none."""
    if (folder / RUN_FILE).exists() or not (folder / SWEEP_FILE).exists():
        return []
    stated: Any = _read(folder).get("runs")
    names: list[object] = cast("list[object]", stated) if isinstance(stated, list) else []
    places = [path_inside(folder, str(name), stated_by=folder / SWEEP_FILE) for name in names]
    return [place for place in places if (place / RUN_FILE).is_file()]


def write_table(folder: Path, name: str, table: pl.DataFrame) -> None:
    """Write a table as ``NAME.parquet`` and ``NAME.csv``, each whole or not at all, and seal it."""
    with sealed_file(folder / f"{name}.parquet") as path:
        write_parquet(table, path)
    with sealed_file(folder / f"{name}.csv") as path:
        table.write_csv(path)
