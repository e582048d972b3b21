"""All of SciSciNet in one fixed order, in bounded memory: tables are cut up by where their works will stand.

The order is that of the table of texts, or that of the ids. From the ids alone it is known where every work stands.
The other tables are read once, in whatever order they are in, and their rows put into a file for each block of a
million places; then one block is joined after the other. In memory lie 12 bytes a work, and a block.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.schemas import WORKS
from sciscidata.sources.sciscinet.tables import Table, find_repeats, look_up, read_sorted_ids
from sciscidata.sources.sciscinet.works import TABLE_OF, join_works, text_batches
from sciscidata.storage import scratch_folder
from sciscidata.storage.spill import RowSpool

_BATCH_ROWS: Final = 8_192
_SPOOLED_ROWS: Final = 1 << 18
_BLOCK: Final = 1 << 20  # a whole number of batches
_OTHER_FILES: Final = 128  # more than this process has open beside the blocks
_TEXTS: Final = ("title", "abstract", "language")
_UNTOLD: Final = np.iinfo(np.uint32).max  # the place of a work whose text was not met yet


@dataclass(frozen=True, eq=False)
class _Places:
    """Where each work stands: those with a text by its place in the table of texts, then the others by their id."""

    ids: npt.NDArray[np.int64]
    places: npt.NDArray[np.uint32]
    n_texts: int
    n_places: int

    @classmethod
    def of(cls, papers: Table, texts: Table | None) -> _Places:
        ids = read_sorted_ids(papers)
        if find_repeats(ids).size:
            ids = np.unique(ids)
        places = np.full(ids.size, _UNTOLD, np.uint32)
        n_texts = 0
        for batch in [] if texts is None else texts.batches(_SPOOLED_ROWS, "work_id"):
            at, rows = look_up(ids, batch["work_id"])
            places[at] = n_texts + rows
            n_texts += batch.height
        n_places = n_texts
        for start in range(0, ids.size, _BLOCK):  # one by one: what all of them need on the way would take 9 bytes each
            block = places[start : start + _BLOCK]
            untold = np.flatnonzero(block == _UNTOLD)
            block[untold] = np.arange(n_places, n_places + untold.size)
            n_places += untold.size
        return cls(ids, places, n_texts, n_places)

    def look_up(self, work_ids: pl.Series) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """Give the rows whose work is known, and the places of these."""
        at, rows = look_up(self.ids, work_ids)
        return rows, self.places[at]


def read_in_order(tables: Mapping[str, Table], columns: Iterable[str], *, by_text: bool) -> Iterator[pl.DataFrame]:
    """Read WORKS in the order of the table of texts, or of the ids, some thousand rows at a time. Executes.

    Args:
        tables: by the names of LAYOUTS; papers and texts name a work once.
        columns: of WORKS.
        by_text: works stand as their texts do, and those without a text come last, by their id; a text without a work
            is left out. Else all works stand by their id.

    Raises:
        StorageError: TMPDIR is full; for more than a million works it takes some 150 bytes for each.

    Example:
        >>> papers = pl.LazyFrame({"paperid": ["W7", "W5"], "year": [1999, 2001]})
        >>> columns = {"work_id": ("paperid", "id"), "publication_year": ("year", "year")}
        >>> tables = {"papers": Table("papers", "", papers, columns)}
        >>> [frame.rows() for frame in read_in_order(tables, ["work_id", "publication_year"], by_text=False)]
        [[(5, 2001), (7, 1999)]]
    """
    wanted = list(columns)
    texts = tables.get("texts") if by_text else None
    places = _Places.of(tables["papers"], texts)
    rest = ["work_id", *(name for name in wanted if name != "work_id" and (texts is None or name not in _TEXTS))]
    needed = {"papers", *(TABLE_OF[name] for name in rest if name in TABLE_OF)}
    cut = {name: table for name, table in tables.items() if name in needed}
    whole = {name: table for name, table in tables.items() if name in ("fields", "sources")}
    told = iter(()) if texts is None else _numbered(text_batches(texts, _BATCH_ROWS))
    with ExitStack() as stack:
        blocks: Iterable[Mapping[str, Table]] = [cut]
        if places.n_places > _BLOCK:
            folder = stack.enter_context(scratch_folder())
            blocks = _cut(cut, places, rest, folder)
        of_blocks = itertools.groupby(told, lambda numbered: numbered[0] // _BLOCK)
        for block in blocks:
            _, batches = next(of_blocks, (0, ()))  # the last ones may hold no text
            yield from _read_block({**block, **whole}, batches, wanted, rest, places)


def _read_block(
    tables: Mapping[str, Table],
    batches: Iterable[tuple[int, pl.DataFrame]],
    wanted: list[str],
    rest: list[str],
    places: _Places,
) -> Iterator[pl.DataFrame]:
    """Give the works of one block: beside their texts, which come in ``batches``, then those without any."""
    frame = join_works(tables, rest).collect(engine="streaming")
    rows, stands = places.look_up(frame["work_id"])
    order = np.argsort(stands, kind="stable")
    frame, stands = frame[rows[order]], stands[order]
    for first, batch in batches:
        yield _beside(batch, first, frame, stands).select(_typed(wanted))
    untold = frame[int(np.searchsorted(stands, places.n_texts)) :]
    absent = [pl.lit(None).alias(name) for name in wanted if name not in rest]
    for batch in untold.iter_slices(_BATCH_ROWS):
        yield batch.with_columns(absent).select(_typed(wanted))


def _beside(batch: pl.DataFrame, first: int, frame: pl.DataFrame, stands: npt.NDArray[np.uint32]) -> pl.DataFrame:
    """Put beside some texts the rest of their works; texts without a work are left out."""
    rows = np.arange(first, first + batch.height, dtype=np.uint32)
    at = np.minimum(np.searchsorted(stands, rows), max(stands.size - 1, 0))
    known = stands[at] == rows if stands.size else np.zeros(rows.size, bool)
    rest = frame[at[known]]
    texts = batch.filter(pl.Series(known)).drop("work_id")
    absent = [pl.lit(None).alias(name) for name in _TEXTS if name not in texts.columns]
    return rest.hstack(texts).with_columns(absent)


def _typed(columns: Iterable[str]) -> list[pl.Expr]:
    return [pl.col(name).cast(WORKS[name]) for name in columns]


def _numbered(batches: Iterator[pl.DataFrame]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Give batches with the place of their first row, cut so that none lies in two blocks."""
    first = 0
    for batch in batches:
        last = first + batch.height
        edges = [first, *range(first - first % _BATCH_ROWS + _BATCH_ROWS, last, _BATCH_ROWS), last]
        for start, end in itertools.pairwise(edges):
            if start < end:
                yield start, batch[start - first : end - first]
        first = last


def _cut(
    tables: Mapping[str, Table], places: _Places, columns: list[str], folder: Path
) -> Iterator[Mapping[str, Table]]:
    """Write each table into a file per block, and give the tables of one block after the other."""
    n_blocks = -(-places.n_places // _BLOCK)
    _allow_open_files(n_blocks + _OTHER_FILES)
    held = {name: _kept(table, columns) for name, table in tables.items()}
    spools = {name: RowSpool(folder, name) for name in tables}
    for name, table in tables.items():
        with spools[name] as spool:
            for batch in table.scan(*held[name]).collect_batches(chunk_size=_SPOOLED_ROWS):
                rows, stands = places.look_up(batch["work_id"])
                spool.add(batch[rows], (stands // _BLOCK).astype(np.int64))
    for number in range(n_blocks):
        paths = {name: spool.path(number) for name, spool in spools.items()}
        yield {name: _spooled(tables[name], held[name], path) for name, path in paths.items()}
        for path in paths.values():
            path.unlink(missing_ok=True)


def _allow_open_files(wanted: int) -> None:
    """Raise this process' limit of open files, as far as it may: 239 blocks of all of SciSciNet are written at once."""
    if sys.platform == "win32":  # knows none that matters here
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:  # 256 is the default of macOS
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _kept(table: Table, columns: list[str]) -> list[str]:
    """Name what is needed of a table: of papers and texts these columns, of links all."""
    if table.name in ("papers", "texts"):
        return [name for name in table.columns if name in columns]
    return list(table.columns)


def _spooled(table: Table, names: list[str], path: Path) -> Table:
    # What is converted already stays as it is: text is the kind that changes nothing.
    kinds = {name: (name, "text" if kind == "doi" else kind) for name, (_, kind) in table.columns.items()}
    columns: Any = {name: kinds[name] for name in names}
    empty = table.scan(*names).collect_schema().to_frame()
    return Table(table.name, str(path), pl.scan_ipc(path, glob=False) if path.exists() else empty.lazy(), columns)
