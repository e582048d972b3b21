"""Into which work another one was merged, as snapshots before August 2026 list it in ``merged_ids/works``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from sciscidata.remote.object_store import is_url
from sciscidata.sources.snapshot.layout import find_layout
from sciscidata.sources.snapshot.source import SnapshotConfig
from sciscidata.sources.tables.files import TableFile
from sciscidata.storage import expand_home

_FROM, _INTO = "id", "merge_into_id"
_MOST_STEPS: Final = 5


def find_merges(config: SnapshotConfig, numbers: pl.Series) -> dict[int, int]:
    """Find what became of some works, by number; one that was merged twice leads to the last.

    Later snapshots list deleted works without saying into which they were merged, and lists in a store are not read.
    """
    if is_url(config.folder):
        return {}
    folder = Path(expand_home(config.folder))
    layout = find_layout(folder, config.edition, allow_missing_manifest=config.allow_missing_manifest)
    files = [file for file in layout.deleted if isinstance(file, Path)]
    steps: dict[int, int] = {}
    sought = numbers
    for _ in range(_MOST_STEPS):
        new = {old: now for old, now in _read_merges(files, sought) if old not in steps}
        if not new:
            break
        steps |= new
        sought = pl.Series(sorted({*new.values()}), dtype=pl.Int64)
    found: dict[int, int] = {}
    for old in numbers.to_list():
        now, seen = old, {old}
        while now in steps and steps[now] not in seen:
            now = steps[now]
            seen.add(now)
        if now != old:
            found[old] = now
    return found


def _read_merges(files: Sequence[Path], numbers: pl.Series) -> Iterator[tuple[int, int]]:
    for path in files:
        table = TableFile(path)
        if {_FROM, _INTO} <= {*table.columns}:
            for batch in table.read([_FROM, _INTO]):
                rows = batch.select(pl.all().str.extract(r"(?i)^(?:.*/)?W([0-9]{1,18})$").cast(pl.Int64)).drop_nulls()
                yield from rows.filter(pl.col(_FROM).is_in(numbers.implode())).rows()
