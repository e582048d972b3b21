"""Read all works of SciSciNet in one fixed order and in bounded memory, in blocks of a million works.

The order is that of the table of texts, or that of the ids. The ids alone give the place of every work. The other
tables are read once, in any order. Their rows go to one file per block of a million places. Then the blocks are joined
one after the other. Memory: 12 bytes a work, and one block.
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

from sciscidata._kernels.arrays import Int64Array
from sciscidata.schemas import WORKS
from sciscidata.sources.sciscinet.tables import Table, find_repeats, look_up, read_sorted_ids
from sciscidata.sources.sciscinet.works import TABLE_OF, join_works, text_batches
from sciscidata.storage import scratch_folder
from sciscidata.storage.spill import RowSpool

_BATCH_ROWS: Final = 8_192
_SPOOLED_ROWS: Final = 1 << 18
_BLOCK: Final = 1 << 20  # a whole number of batches
_OTHER_FILES: Final = 128  # more than this process has open in addition to the blocks
_TEXTS: Final = ("title", "abstract", "language")
_NO_PLACE: Final = np.iinfo(np.uint32).max  # the place of a work whose text was not found yet


@dataclass(frozen=True, eq=False)
class _Places:
    """The place of each work: first those with a text, in the order of texts, then others by id."""

    ids: Int64Array
    places: npt.NDArray[np.uint32]
    n_texts: int
    n_places: int

    @classmethod
    def of(cls, papers: Table, texts: Table | None) -> _Places:
        ids = read_sorted_ids(papers)
        if find_repeats(ids).size:
            ids = np.unique(ids)
        place_of = np.full(ids.size, _NO_PLACE, np.uint32)
        n_texts = 0
        for batch in [] if texts is None else texts.batches(_SPOOLED_ROWS, "work_id"):
            at, rows = look_up(ids, batch["work_id"])
            place_of[at] = n_texts + rows
            n_texts += batch.height
        n_places = n_texts
        for start in range(0, ids.size, _BLOCK):  # in blocks, because a mask of all works needs 9 bytes each
            block = place_of[start : start + _BLOCK]
            without = np.flatnonzero(block == _NO_PLACE)
            block[without] = np.arange(n_places, n_places + without.size)
            n_places += without.size
        return cls(ids, place_of, n_texts, n_places)

    def look_up(self, work_ids: pl.Series) -> tuple[Int64Array, npt.NDArray[np.uint32]]:
        """Return the rows with a known work, and their places."""
        at, rows = look_up(self.ids, work_ids)
        return rows, self.places[at]


def read_in_order(tables: Mapping[str, Table], columns: Iterable[str], *, by_text: bool) -> Iterator[pl.DataFrame]:
    """Yield WORKS in the order of the table of texts, or of the ids, in batches.

    With ``by_text``, works without a text come last, by their id, and a text without a work is left out. More than a
    million works need about 150 bytes each in TMPDIR.
    """
    wanted = list(columns)
    texts = tables.get("texts") if by_text else None
    places = _Places.of(tables["papers"], texts)
    rest = ["work_id", *(name for name in wanted if name != "work_id" and (texts is None or name not in _TEXTS))]
    needed = {"papers", *(TABLE_OF[name] for name in rest if name in TABLE_OF)}
    cut = {name: table for name, table in tables.items() if name in needed}
    whole = {name: table for name, table in tables.items() if name in ("fields", "sources")}
    numbered_texts = iter(()) if texts is None else _numbered(text_batches(texts, _BATCH_ROWS))
    with ExitStack() as stack:
        blocks: Iterable[Mapping[str, Table]] = [cut]
        if places.n_places > _BLOCK:
            folder = stack.enter_context(scratch_folder())
            blocks = _cut(cut, places, rest, folder)
        of_blocks = itertools.groupby(numbered_texts, lambda numbered: numbered[0] // _BLOCK)
        for block in blocks:
            _, batches = next(of_blocks, (0, ()))  # the last blocks may have no text
            yield from _read_block({**block, **whole}, batches, wanted, rest, places)


def _read_block(
    tables: Mapping[str, Table],
    batches: Iterable[tuple[int, pl.DataFrame]],
    wanted: list[str],
    rest: list[str],
    places: _Places,
) -> Iterator[pl.DataFrame]:
    """Yield the works of one block: first those with a text, which come in ``batches``, then the others."""
    typed = [pl.col(name).cast(WORKS[name]) for name in wanted]
    frame = join_works(tables, rest).collect(engine="streaming")
    rows, stands = places.look_up(frame["work_id"])
    order = np.argsort(stands, kind="stable")
    frame, stands = frame[rows[order]], stands[order]
    for first, batch in batches:
        yield _join_texts(batch, first, frame, stands).select(typed)
    without_text = frame[int(np.searchsorted(stands, places.n_texts)) :]
    absent = [pl.lit(None).alias(name) for name in wanted if name not in rest]
    for batch in without_text.iter_slices(_BATCH_ROWS):
        yield batch.with_columns(absent).select(typed)


def _join_texts(batch: pl.DataFrame, first: int, frame: pl.DataFrame, stands: npt.NDArray[np.uint32]) -> pl.DataFrame:
    """Join texts, the first at place ``first``, to the rest of their works; texts without a work are left out."""
    rows = np.arange(first, first + batch.height, dtype=np.uint32)
    at = np.minimum(np.searchsorted(stands, rows), max(stands.size - 1, 0))
    known = stands[at] == rows if stands.size else np.zeros(rows.size, bool)
    rest = frame[at[known]]
    texts = batch.filter(pl.Series(known)).drop("work_id")
    absent = [pl.lit(None).alias(name) for name in _TEXTS if name not in texts.columns]
    return rest.hstack(texts).with_columns(absent)


def _numbered(batches: Iterator[pl.DataFrame]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield batches with the place of their first row, cut so that each is in one block."""
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
    """Write each table into one file per block, and yield the tables of one block after the other."""
    n_blocks = -(-places.n_places // _BLOCK)
    _allow_open_files(n_blocks + _OTHER_FILES)
    # Of papers and texts only these columns, of links all.
    columns_of = {
        name: [column for column in table.columns if column in columns or name not in ("papers", "texts")]
        for name, table in tables.items()
    }
    spools = {name: RowSpool(folder, name) for name in tables}
    for name, table in tables.items():
        with spools[name] as spool:
            for batch in table.scan(*columns_of[name]).collect_batches(chunk_size=_SPOOLED_ROWS):
                rows, stands = places.look_up(batch["work_id"])
                spool.add(batch[rows], (stands // _BLOCK).astype(np.int64))
    for number in range(n_blocks):
        paths = {name: spool.path(number) for name, spool in spools.items()}
        yield {name: _spooled(tables[name], columns_of[name], path) for name, path in paths.items()}
        for path in paths.values():
            path.unlink(missing_ok=True)


def _allow_open_files(wanted: int) -> None:
    """Raise this process' limit of open files if allowed: the 239 blocks of all of SciSciNet are open together."""
    if sys.platform == "win32":  # its limit is high enough
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:  # 256 is the default of macOS
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _spooled(table: Table, names: list[str], path: Path) -> Table:
    # A DOI is converted already; the kind "text" does not change it.
    kinds = {name: (name, "text" if kind == "doi" else kind) for name, (_, kind) in table.columns.items()}
    columns: Any = {name: kinds[name] for name in names}
    empty = table.scan(*names).collect_schema().to_frame()
    return Table(table.name, str(path), pl.scan_ipc(path, glob=False) if path.exists() else empty.lazy(), columns)
