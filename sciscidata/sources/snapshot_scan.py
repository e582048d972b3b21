"""What was made of a snapshot, as lazy frames: a query that reads no text opens no file of texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from sciscidata.errors import InputNotFoundError, StorageError
from sciscidata.schemas import WORKS
from sciscidata.sources import Corpus
from sciscidata.sources.snapshot_parts import TABLES, TEXT

INDEX, REMOVED_FILE = "snapshot.json", "removed.parquet"
_KEY = "work_id"


def scan_snapshot(out: str | Path) -> Corpus:
    """Describe what :func:`~sciscidata.sources.snapshot.ingest_snapshot` made as lazy frames. Reads no row.

    Args:
        out: its folder.

    Returns:
        WORKS, each work once, and CITATIONS, in the order of the parts. A query on ``works`` that needs neither title
        nor abstract reads only the files of structure. One that filters by structure (ids, say) and asks for text
        reads of the texts only the row groups (4,096 works) in which something is left. The provenance is the
        report without the list of parts, and the SHA-256 of the whole report.

    Raises:
        InputNotFoundError: at once; nothing was made there, or the last run has not ended.
        StorageError: at once; a file is missing or has another size.
    """
    out = Path(out)
    try:
        text = (out / INDEX).read_bytes()
        report: dict[str, Any] = json.loads(text)
        parts: list[dict[str, Any]] = report.pop("parts")
    except (OSError, ValueError, KeyError) as error:
        msg = f"{out} holds no finished snapshot: no readable {INDEX}. Run ingest_snapshot (again: it goes on)."
        raise InputNotFoundError(msg) from error
    stems: list[str] = []
    for part in parts:
        for name, file in part["files"].items():
            _check_file(out / name, file["bytes"])
        stems.append(Path(next(iter(part["files"]))).stem)
    removed = pl.read_parquet(out / REMOVED_FILE)
    by_part = {str(name[0]): frame[_KEY] for name, frame in removed.group_by("part", maintain_order=True)}
    works = register_io_source(_works_reader(out, stems, by_part), schema=WORKS, explain_name="OpenAlex snapshot")
    citations = _scan(out / "citations", stems, by_part, "citing_id")
    return Corpus(
        works, citations, {**report, "n_parts": len(parts), "report_sha256": hashlib.sha256(text).hexdigest()}
    )


def _check_file(path: Path, n_bytes: int) -> None:
    size = path.stat().st_size if path.is_file() else None
    if size != n_bytes:
        what = "is missing" if size is None else f"has {size:,} bytes instead of {n_bytes:,}"
        msg = f"{path} {what}. Run ingest_snapshot again: it mends what is damaged."
        raise StorageError(msg)


def _scan(folder: Path, stems: Sequence[str], removed: dict[str, pl.Series], key: str) -> pl.LazyFrame:
    """Scan the files of one table, in order; parts of which nothing is removed, together."""
    runs: list[pl.LazyFrame] = []
    clean: list[Path] = []
    for stem in stems:
        if stem not in removed:
            clean.append(folder / f"{stem}.parquet")
            continue
        if clean:
            runs.append(pl.scan_parquet(clean))
            clean = []
        rows = pl.scan_parquet(folder / f"{stem}.parquet")
        runs.append(rows.filter(~pl.col(key).is_in(removed[stem].implode())))
    if clean:
        runs.append(pl.scan_parquet(clean))
    return pl.concat(runs)


def _works_reader(
    out: Path, stems: Sequence[str], removed: dict[str, pl.Series]
) -> Callable[[list[str] | None, pl.Expr | None, int | None, int | None], Iterator[pl.DataFrame]]:
    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        columns = with_columns if with_columns is not None else list(WORKS)
        asked = set(columns) | set(predicate.meta.root_names() if predicate is not None else ())
        if asked.isdisjoint(TEXT):
            rows = _scan(out / "works", stems, removed, _KEY)
            rows = rows if predicate is None else rows.filter(predicate)
            rows = rows if n_rows is None else rows.head(n_rows)
            yield from rows.select(columns).collect_batches(maintain_order=True)
            return
        left = n_rows
        for stem in stems:
            for rows in _with_text(out, stem, removed.get(stem), asked, predicate):
                rows = (rows if left is None else rows.head(left)).select(columns)
                yield rows
                if left is not None and (left := left - rows.height) <= 0:
                    return

    return read


def _with_text(
    out: Path, stem: str, removed: pl.Series | None, asked: set[str], predicate: pl.Expr | None
) -> Iterator[pl.DataFrame]:
    """Read works and their texts side by side; no text where the structure alone leaves nothing."""
    structure = [name for name in TABLES["works"] if name in asked or name == _KEY]
    text = [name for name in TEXT if name in asked]
    first = predicate if predicate is not None and set(predicate.meta.root_names()).isdisjoint(TEXT) else None
    keep = pl.col(_KEY).is_not_null() if removed is None else ~pl.col(_KEY).is_in(removed.implode())
    keep = keep if first is None else keep & first
    with pq.ParquetFile(out / "works" / f"{stem}.parquet") as works:
        texts: pq.ParquetFile | None = None
        try:
            for group in range(works.metadata.num_row_groups):
                rows = _rows(works, group, structure)
                kept = rows.select(keep.alias("kept")).to_series()
                if not kept.any():
                    continue
                texts = texts or pq.ParquetFile(out / "texts" / f"{stem}.parquet")
                rows = rows.hstack(_rows(texts, group, text)).filter(kept)
                yield rows if predicate is None or first is not None else rows.filter(predicate)
        finally:
            if texts is not None:
                texts.close()


def _rows(file: pq.ParquetFile, group: int, columns: list[str]) -> pl.DataFrame:
    rows: Any = pl.from_arrow(file.read_row_group(group, columns=columns))
    return rows
