"""A folder of works, texts and citations in Parquet, as lazy frames: who reads no text opens no file of texts."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
from polars.io.plugins import register_io_source

from sciscidata.errors import ConfigError, InputNotFoundError, SciSciDataError, StorageError
from sciscidata.schemas import CITATIONS, WORKS
from sciscidata.sources import Corpus

TEXT = ("title", "abstract")
#: The three tables, as folders of Parquet files: text apart from structure, so that graph work never reads text.
TABLES: dict[str, pl.Schema] = {
    "works": pl.Schema({name: dtype for name, dtype in WORKS.items() if name not in TEXT}),
    "texts": pl.Schema({name: WORKS[name] for name in ("work_id", *TEXT)}),
    "citations": CITATIONS,
}
INDEX, REMOVED_FILE, MADE_OF, RECEIPTS = "corpus.json", "removed.parquet", "made_of.json", "receipts"
_KEY = "work_id"
_TOLD_PARTS = 20
_Reader = Callable[[list[str] | None, pl.Expr | None, int | None], Iterator[pl.DataFrame]]
_OWN_NAME = re.compile(r"part-([0-9]{6,}\.parquet|[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9]+\.(parquet|json))")


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusConfig:
    """A corpus that ``sciscidata ingest``, ``ingest_snapshot`` or ``write_corpus`` has made.

    Raises:
        ConfigError: on construction; ``folder`` is no path.

    Example:
        >>> CorpusConfig(folder="corpora/openalex").folder
        'corpora/openalex'
    """

    folder: str

    def __post_init__(self) -> None:
        folder: Any = self.folder
        if not isinstance(folder, (str, os.PathLike)) or not str(folder):
            msg = f"CorpusConfig.folder is {folder!r}, needs the path of a folder."
            raise ConfigError(msg)


def scan_corpus(out: str | Path) -> Corpus:
    """Describe a corpus on disk as lazy frames. Reads no row.

    Args:
        out: its folder: ``works/*.parquet`` (WORKS without title and abstract), ``texts/*.parquet`` (work_id, title,
            abstract: the same rows in the same order; or no such file), ``citations/*.parquet`` (CITATIONS),
            ``removed.parquet`` (rows that do not count) and ``corpus.json``, the report, which is written last.

    Returns:
        WORKS, each work once, and CITATIONS, in the order of the parts. A query on ``works`` that needs neither title
        nor abstract reads only the files of structure. One that filters by structure (ids, say) and asks for text
        reads of the texts only the row groups (4,096 works) in which something is left. The provenance is the
        report without the list of parts, and the SHA-256 of the whole report.

    Raises:
        InputNotFoundError: at once; there is no corpus, or the run that makes it has not ended.
        StorageError: at once; a file is missing or has another size, or ``removed.parquet`` another content. At
            collect; a file is damaged, and it says which.

    Example:
        >>> scan_corpus("no/such/folder")
        Traceback (most recent call last):
        ...
        sciscidata.errors.InputNotFoundError: no corpus in no/such/folder: there is no such folder. Make one with
        `sciscidata ingest`, or check the path.
    """
    out = Path(out)
    report, digest = read_report(out)
    parts: list[dict[str, Any]] = report.pop("parts")
    stems: dict[str, list[str]] = {name: [] for name in TABLES}
    for part in parts:
        for name, file in part["files"].items():
            _check_file(out / name, file["bytes"])
            stems[Path(name).parent.name].append(Path(name).stem)
    if REMOVED_FILE in find_damaged(out, {REMOVED_FILE: report.get("removed_sha256")}):
        raise _damage(out / REMOVED_FILE, "is missing or damaged")
    removed = pl.read_parquet(out / REMOVED_FILE, glob=False)
    by_part = {str(name[0]): frame[_KEY] for name, frame in removed.group_by("part", maintain_order=True)}
    works = _source(out, _works_reader(out, stems, by_part), WORKS)
    citations = _source(out, _citations_reader(out, stems["citations"], by_part), CITATIONS)
    return Corpus(works, citations, {**report, "n_parts": len(parts), "report_sha256": digest})


def read_report(out: Path) -> tuple[dict[str, Any], str]:
    """Read ``corpus.json`` and its SHA-256.

    Raises:
        InputNotFoundError: at once; there is none, or it is not one.
    """
    try:
        text = (out / INDEX).read_bytes()
        report: dict[str, Any] = json.loads(text)
        if not isinstance(report["parts"], list):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError) as error:
        if not out.is_dir():
            msg = f"no corpus in {out}: there is no such folder. Make one with `sciscidata ingest`, or check the path."
        elif any((out / name).is_dir() for name in TABLES):
            msg = f"the corpus in {out} is not finished: no readable {INDEX}. Run the same ingest again: it goes on."
        else:
            msg = f"no corpus in {out}: no readable {INDEX}. Make one with `sciscidata ingest`, or check the path."
        raise InputNotFoundError(msg) from error
    return report, hashlib.sha256(text).hexdigest()


def own_files(out: Path, folder: str) -> list[Path]:
    """List the files of one folder of a corpus that have a name which this package gives, in order.

    Example:
        >>> own_files(Path("no/such/folder"), "works")
        []
    """
    return [path for path in sorted((out / folder).glob("part-*")) if _OWN_NAME.fullmatch(path.name)]


def find_damaged(out: Path, sums: Mapping[str, str | None]) -> list[str]:
    """Read files of a corpus, and name those that are missing or have another SHA-256 than ``sums`` says.

    Args:
        out: the corpus.
        sums: by name; None where only a missing file is damage.

    Raises:
        PermissionError: one may not be read.

    Example:
        >>> find_damaged(Path("no/such/folder"), {"removed.parquet": None})
        ['removed.parquet']
    """

    def is_whole(item: tuple[str, str | None]) -> bool:
        try:
            with (out / item[0]).open("rb") as file:
                return item[1] is None or hashlib.file_digest(file, "sha256").hexdigest() == item[1]
        except PermissionError:  # to make it again would help nobody
            raise
        except OSError:
            return False

    with ThreadPoolExecutor(4) as pool:
        return [name for name, whole in zip(sums, pool.map(is_whole, sums.items()), strict=True) if not whole]


def recorded_sums(report: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the SHA-256 of every file of a corpus, as its report says.

    Example:
        >>> recorded_sums({"parts": [{"files": {"works/part-000000.parquet": {"bytes": 4, "sha256": "99"}}}]})
        {'works/part-000000.parquet': '99', 'removed.parquet': None}
    """
    sums = {name: facts["sha256"] for part in report["parts"] for name, facts in part["files"].items()}
    return sums | {REMOVED_FILE: report.get("removed_sha256")}


def list_left_out(parts: Mapping[str, str]) -> Iterator[str]:
    """Say of the parts that were left out which these are and why, and how many more where they are many.

    Example:
        >>> list(list_left_out({"part_0001": "is missing"}))
        ['part_0001: is missing']
    """
    for name, reason in islice(parts.items(), _TOLD_PARTS):
        yield f"{name}: {reason}"
    if len(parts) > _TOLD_PARTS:
        yield f"and {len(parts) - _TOLD_PARTS:,} more, all listed in {INDEX}"


@contextmanager
def naming_damage(out: Path) -> Generator[None]:
    """Look, when reading a corpus fails, whether one of its files is damaged or gone, which readers do not name.

    Raises:
        StorageError: a file is. Other errors of the block pass through unchanged.
    """
    try:
        yield
    except SciSciDataError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        damaged = find_damaged(out, recorded_sums(read_report(out)[0]))
        if damaged:
            first = out / damaged[0]
            what = "is damaged: its SHA-256 is not the recorded one" if first.exists() else "is missing"
            raise _damage(first, what) from error
        raise


def _check_file(path: Path, n_bytes: int) -> None:
    size = path.stat().st_size if path.is_file() else None
    if size != n_bytes:
        raise _damage(path, "is missing" if size is None else f"has {size:,} bytes instead of {n_bytes:,}")


def _damage(path: Path, what: str) -> StorageError:
    return StorageError(f"{path} {what}. Run the same ingest again: it mends what is damaged.")


def _scan(folder: Path, stems: Sequence[str], removed: dict[str, pl.Series], key: str) -> pl.LazyFrame:
    """Scan the files of one table, in order; parts of which nothing is removed, together."""
    runs: list[pl.LazyFrame] = []
    clean: list[Path] = []
    for stem in stems:
        if stem not in removed:
            clean.append(folder / f"{stem}.parquet")
            continue
        if clean:
            runs.append(pl.scan_parquet(clean, glob=False))
            clean = []
        rows = pl.scan_parquet(folder / f"{stem}.parquet", glob=False)
        runs.append(rows.filter(~pl.col(key).is_in(removed[stem].implode())))
    if clean:
        runs.append(pl.scan_parquet(clean, glob=False))
    return pl.concat(runs) if runs else pl.LazyFrame(schema=TABLES[folder.name])


def _source(out: Path, read: _Reader, schema: pl.Schema) -> pl.LazyFrame:
    """Make a lazy frame of a reader. Whoever collects it, at whatever stage, hears which file is damaged."""

    def rows(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        with naming_damage(out):
            yield from read(with_columns, predicate, n_rows)

    return register_io_source(rows, schema=schema, explain_name="corpus on disk")


def _citations_reader(out: Path, stems: Sequence[str], removed: dict[str, pl.Series]) -> _Reader:
    def read(columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None) -> Iterator[pl.DataFrame]:
        rows = _scan(out / "citations", stems, removed, "citing_id")
        yield from _batches(rows, columns or list(CITATIONS), predicate, n_rows)

    return read


def _works_reader(out: Path, stems: Mapping[str, Sequence[str]], removed: dict[str, pl.Series]) -> _Reader:
    def read(with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None) -> Iterator[pl.DataFrame]:
        columns = with_columns if with_columns is not None else list(WORKS)
        asked = set(columns) | set(predicate.meta.root_names() if predicate is not None else ())
        if asked.isdisjoint(TEXT) or not stems["texts"]:
            rows = _scan(out / "works", stems["works"], removed, _KEY)
            rows = rows.with_columns(pl.lit(None, dtype=pl.String()).alias(name) for name in TEXT)
            yield from _batches(rows, columns, predicate, n_rows)
            return
        left = n_rows
        for stem in stems["works"]:
            for rows in _with_text(out, stem, removed.get(stem), asked, predicate):
                rows = (rows if left is None else rows.head(left)).select(columns)
                yield rows
                if left is not None and (left := left - rows.height) <= 0:
                    return

    return read


def _batches(
    rows: pl.LazyFrame, columns: list[str], predicate: pl.Expr | None, n_rows: int | None
) -> Iterator[pl.DataFrame]:
    rows = rows if predicate is None else rows.filter(predicate)
    rows = rows if n_rows is None else rows.head(n_rows)
    yield from rows.select(columns).collect_batches(maintain_order=True)


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
