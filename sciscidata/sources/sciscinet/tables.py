"""Find, scan and check the tables of SciSciNet: published names and types in, the project's names and types out."""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata._kernels.arrays import Int64Array
from sciscidata._support.parallel import read_ahead
from sciscidata.errors import ConfigError, InputNotFoundError, SchemaMismatchError, SciSciDataError, WorkIdError
from sciscidata.remote.object_store import check_store, is_url, store_remedy
from sciscidata.sources.sciscinet.config import LAYOUTS, NEEDED, Kind, Version, convert_column, fits, is_text
from sciscidata.storage.paths import list_visible, refuse_undecodable
from sciscidata.storage.small_files import is_special

logger = logging.getLogger(__name__)

#: Errors of reading a damaged file. A panic of Polars is no Exception.
UNREADABLE: Final = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException)
_PROBED_ROWS: Final = 8_192
_STORE_ERROR: Final = "object-store error"  # in messages of Polars
#: Polars' error for a file that the Hugging Face hub does not have, which it takes for a folder.
_NO_ENTRY: Final = re.compile(r"^error decoding response: .*does not exist on", re.S)


@dataclass(frozen=True)
class Table:
    """One table of SciSciNet: its raw scan, and its columns by our names."""

    name: str  # a key of LAYOUTS
    location: str  # its file, pattern or URL
    raw: pl.LazyFrame  # with the published columns
    columns: Mapping[str, tuple[str, Kind]]  # published name and kind by our name, without missing columns

    @property
    def files(self) -> list[Path]:
        """The local files, in order; empty for a table in an object store."""
        return _files(self.location)

    def scan(self, *names: str) -> pl.LazyFrame:
        """Return columns (all without ``names``) under our names and in our types; null if the table lacks one."""
        types = self.raw.collect_schema()
        wanted = names or tuple(self.columns)
        return self.raw.select(
            convert_column(self.columns[name], types[self.columns[name][0]]).alias(name)
            if name in self.columns
            else pl.lit(None).alias(name)
            for name in wanted
        )

    def batches(self, size: int, *names: str) -> Iterator[pl.DataFrame]:
        """Read columns in the table's order, at most ``size`` rows at a time; of local Parquet page by page."""
        files = self.files if self.location.endswith(".parquet") else []
        if not files:  # in an object store, or text
            yield from self.scan(*names).collect_batches(chunk_size=size, maintain_order=True)
        columns = [self.columns[name][0] for name in names]
        for path in files:
            with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
                for batch in read_ahead(file.iter_batches(size, columns=columns, use_threads=False)):
                    rows = pl.DataFrame(pl.from_arrow(batch))
                    yield Table(self.name, self.location, rows.lazy(), self.columns).scan(*names).collect()

    def find_damage(self) -> tuple[Path, str] | None:
        """Read the used columns of each local file; return the first file that fails, with the reason."""
        names = list(dict.fromkeys(name for name, _ in self.columns.values()))
        for path in self.files:
            raw = _scan([path], "v2" if self.location.endswith(".parquet") else "v1", low_memory=True)
            alone = replace(self, location=str(path), raw=raw)
            try:
                for _ in raw.select(names).collect_batches(chunk_size=_PROBED_ROWS):
                    pass
                for _ in alone.batches(_PROBED_ROWS, *self.columns):  # texts use the other reader, which may find more
                    pass
            except UNREADABLE as error:
                return path, short_reason(error)
        return None

    def holding(self, work_ids: pl.Series) -> Table:
        """Keep only the rows of some works. Row groups and pages without these works are not decoded."""
        name = self.columns["work_id"][0]
        dtype = self.raw.collect_schema()[name]
        if is_text(dtype):
            wanted = work_ids.cast(pl.String)
            spelt = pl.concat([wanted, "W" + wanted, "https://openalex.org/W" + wanted])
        else:
            spelt = work_ids.cast(dtype)
        value = pl.col(name) if dtype == spelt.dtype else pl.col(name).cast(spelt.dtype)
        return replace(self, raw=self.raw.filter(value.is_in(spelt.implode())))


def find_table(
    folder: str, version: Version, name: str, storage_options: Mapping[str, Any] | None = None
) -> Table | None:
    """Find one table in a folder or object store, check its schema, and scan it; None if it is not there.

    In a folder it is one file or a folder of parts, by any of its stems, for example ``papers.parquet`` or
    ``sciscinet_papers/*.parquet``. An object store is not listed: only the first name is tried.
    """
    layout = LAYOUTS[version][name]
    check_store(folder, storage_options or {}, name="SciSciNetConfig.folder")
    location = _locate(folder, layout.stems, version)
    if location is None:
        return None
    try:
        # Listed one by one, because a folder's name may look like a pattern: "data [v2]".
        files = _files(location)
        raw = _scan(files or location, version, storage_options, low_memory=name == "texts")
        there = raw.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        if is_url(folder) and (isinstance(error, FileNotFoundError) or _NO_ENTRY.search(str(error))):
            return None
        remedy = store_remedy(str(error)) if is_url(folder) else "Check the file, or download it again."
        opened = next(iter(_files(location)), location)  # a scan opens the first of several parts
        raise InputNotFoundError(
            f"SciSciNet table {name}: {opened} cannot be opened: {short_reason(error)}. {remedy}"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"SciSciNetConfig.storage_options: {error}. Use the names that Polars documents for this store."
        ) from error
    missing = [layout.columns[column][0] for column in layout.required if layout.columns[column][0] not in there]
    if missing:
        raise SchemaMismatchError(
            f"SciSciNet table {name} ({location}) lacks {', '.join(missing)}; it has {', '.join(there)}. "
            f"Use the published file, or rename the columns as in SciSciNet {version}."
        )
    for column, kind in layout.columns.values():
        if column in there and not fits(there[column], kind):
            raise SchemaMismatchError(
                f"SciSciNet table {name} ({location}) holds {column} as {there[column]}, needs {NEEDED[kind]}. "
                "Use the published file, or cast the column."
            )
    read = {ours: column for ours, column in layout.columns.items() if column[0] in there}
    return Table(name, location, raw, read)


def _files(location: str) -> list[Path]:
    path = Path(re.sub("^file://", "", location, flags=re.I))
    found = path.parent.glob(path.name) if path.parent.is_dir() else ()
    files = list_visible(found)
    for file in files:
        refuse_undecodable(file)
        if is_special(file):
            raise InputNotFoundError(
                f"SciSciNet table {file} is a pipe or a device, not a file. Save its content in a file first."
            )
    return files


def _scan(
    files: list[Path] | str, version: Version, storage_options: Mapping[str, Any] | None = None, *, low_memory: bool
) -> pl.LazyFrame:
    if version == "v2":
        options, glob = dict(storage_options) if storage_options else None, isinstance(files, str)
        return pl.scan_parquet(files, storage_options=options, low_memory=low_memory, glob=glob, extra_columns="ignore")
    # As text, because pandas wrote whole numbers as 13.0 where a value was missing.
    return pl.scan_csv(files, separator="\t", quote_char=None, infer_schema=False, glob=isinstance(files, str))


def _locate(folder: str, stems: tuple[str, ...], version: Version) -> str | None:
    suffixes = (".parquet",) if version == "v2" else (".tsv", ".tsv.gz", ".tsv.zst")
    if is_url(folder) and not folder.lower().startswith("file://"):
        return f"{folder.rstrip('/')}/{stems[0]}{suffixes[0]}"
    home = Path(re.sub("^file://", "", folder, flags=re.I))
    for stem in stems:
        for suffix in suffixes:
            for pattern in (f"{stem}{suffix}", f"{stem}/*{suffix}", f"{stem}[-_.][0-9]*{suffix}"):
                if _files(location := str(home / pattern)):
                    return location
    return None


def short_reason(error: BaseException) -> str:
    """Return the first line of an error, without the path that Polars adds."""
    return re.sub(r" \((?:set|path): [^()]*\)", "", str(error).split("\n", 1)[0]).rstrip(". ")


def describe_table(table: Table | None) -> dict[str, Any] | None:
    """Return a table's entry in the manifest: its file's name without the machine's folders, and its columns."""
    if table is None:
        return None
    parts = Path(table.location).parts
    shown = "/".join(parts[-2:]) if "*" in parts[-1] else parts[-1]
    return {"file": shown, "columns": [name for name, _ in table.columns.values()]}


def read_sorted_ids(table: Table) -> Int64Array:
    """Read the ids of a table (up to a quarter of a billion), sorted, with repeats, without nulls: 8 bytes each."""
    ids = np.empty(table.raw.select(pl.len()).collect(engine="streaming").item(), np.int64)
    n = 0
    for batch in table.scan("work_id").drop_nulls().collect_batches(chunk_size=1 << 18, maintain_order=False):
        ids[n : n + batch.height] = batch["work_id"].to_numpy()
        n += batch.height
    ids = ids[:n]
    ids.sort()
    return ids


def find_repeats(ids: Int64Array) -> Int64Array:
    """Return the repeats among sorted ids, each as often as it is repeated. Memory: a byte per id."""
    return ids[1:][ids[1:] == ids[:-1]]


def look_up(ids: Int64Array, work_ids: pl.Series) -> tuple[Int64Array, Int64Array]:
    """Find works among sorted unique ids; return their positions in ``ids`` and their rows in ``work_ids``, by id.

    The search runs in the order of the ids, for the processor's caches: a quarter of a million works among 120 million
    take 0.15 s, else 0.8 s.
    """
    values = work_ids.fill_null(np.iinfo(np.int64).min).to_numpy()
    order = np.argsort(values, kind="stable")
    values = values[order]
    at = np.minimum(np.searchsorted(ids, values), max(ids.size - 1, 0))
    known = np.flatnonzero(ids[at] == values) if ids.size else np.empty(0, np.int64)
    return at[known], order[known]


@contextmanager
def reading(tables: Mapping[str, Table]) -> Generator[None]:
    """Run a block that reads the tables: first refuse repeated works, then name a file that proves damaged."""
    try:
        for name in ("papers", "texts"):
            if name not in tables:
                continue
            repeated = find_repeats(read_sorted_ids(tables[name]))
            if repeated.size:
                raise WorkIdError(
                    f"SciSciNet table {name} repeats {np.unique(repeated).size:,} works, for example W{repeated[0]} "
                    f"({tables[name].location}). Download it again, or write it again with one row per work."
                )
        yield
    except UNREADABLE as error:
        # An error of the system has a number and explains itself; a decoding error has no number.
        if isinstance(error, SciSciDataError) or getattr(error, "errno", None) is not None:
            raise
        logger.info("reading failed; looking for the damaged file")
        for table in sorted(tables.values(), key=lambda table: sum(path.stat().st_size for path in table.files)):
            if (damage := table.find_damage()) is not None:
                path, reason = damage
                what, remedy = "is damaged", "Download it again."
                if "(os error 13)" in reason:
                    what, remedy = "may not be read", "Correct its permissions."
                raise InputNotFoundError(f"SciSciNet table {table.name}: {path} {what}: {reason}. {remedy}") from error
        if _STORE_ERROR in str(error):
            raise InputNotFoundError(f"SciSciNet: {short_reason(error)}. {store_remedy(str(error))}") from error
        if isinstance(error, pl.exceptions.SchemaError):  # of parts that differ
            raise SchemaMismatchError(
                f"SciSciNet: {short_reason(error)}. Take all parts of a table from one release."
            ) from error
        raise
