"""A background: a saved null model, to score a small pull of works against a large corpus.

One Parquet file, a row per citing year and venue pair (PAIR_STATISTICS), sorted. No row group spans two years, and
every page has a checksum. The metadata hold the null model, works and references of each year, and the SHA-256 of the
file. Venues are known by their source_id, so any corpus with the same ids can be scored.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata._kernels.arrays import Float64Array, Int32Array, Int64Array
from sciscidata._support.parallel import map_in_order
from sciscidata.engines.engine import Engine
from sciscidata.engines.task import hash_array, shared, task
from sciscidata.errors import BackgroundError, ConfigError, InputNotFoundError, ReleaseExistsError
from sciscidata.graph.graph import CitationGraph, build_graph, content_hash, graph_folder, open_in_task
from sciscidata.graph.year_files import YearFiles, YearWork, take_years
from sciscidata.novelty import venue_pairs as pairs
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.null_model import pair_moments
from sciscidata.novelty.shapes import References
from sciscidata.options.checks import check_threads, checked_config, require_parquet_name
from sciscidata.schemas import PAIR_STATISTICS
from sciscidata.storage import BLANK_SEAL, atomic_file, is_sealed, refuse_special, seal, storage_error
from sciscidata.storage.lock import own_work
from sciscidata.storage.parquet import CHECKED, ROWS_PER_GROUP, read_parquet, write_parquet
from sciscidata.storage.small_files import parse_json
from sciscidata.terminal.progress import Advance, progress_bar

FORMAT_VERSION = 2  # 1 did not hold the file's own SHA-256
METADATA_KEY = b"sciscidata_background"
_PAIR = ["source_id_a", "source_id_b"]
_COUNTS = {"publication_year": pl.Int32, "n_works": pl.Int64, "n_references": pl.Int64, "n_pairs": pl.Int64}


@dataclass(frozen=True, eq=False)
class Background:
    """A background on disk, checked, and ready to be looked up.

    ``null_model`` is ``NoveltyConfig.null_model()`` of its corpus. ``counts`` has publication_year, n_works,
    n_references and n_pairs. ``source_ids``, by venue number, is empty until ``for_venues_of``.
    """

    path: Path
    null_model: dict[str, Any]
    counts: pl.DataFrame
    source_ids: Int64Array

    def __repr__(self) -> str:
        """Name the file, its years and pairs, and its null model."""
        years, n_pairs = self.counts["publication_year"], int(self.counts["n_pairs"].sum())
        span = f"{years.min()} to {years.max()}" if years.len() else "no years"
        return f"Background({self.path}: {span}, {n_pairs:,} venue pairs, null={self.null_model.get('null')!r})"

    @property
    def years(self) -> frozenset[int]:
        """The citing years it holds."""
        return frozenset(self.counts["publication_year"].to_list())

    def scan(self) -> pl.LazyFrame:
        """Return PAIR_STATISTICS, lazy."""
        return pl.scan_parquet(self.path, glob=False)

    def for_venues_of(self, works: pl.LazyFrame) -> Background:
        """Return this background for the venue numbers that ``venue_numbers(graph, works)`` gives."""
        return replace(self, source_ids=pairs.venue_ids(works))

    def check_null_model(self, config: NoveltyConfig) -> None:
        """Raise a ConfigError if ``config`` names another null model."""
        asked = config.null_model()
        differ = [name for name, value in self.null_model.items() if asked.get(name) != value]
        differ += [name for name in asked if name not in self.null_model]
        if differ:
            options = ", ".join(f"{name}={self.null_model[name]!r}" for name in differ if name in self.null_model)
            raise ConfigError(
                f"{self.path} was made under another null model: NoveltyConfig says "
                f"{', '.join(f'{name}={asked.get(name)!r}' for name in differ)}. Set {options}, or write it anew."
            )

    def moments(self, year: int, a: Int32Array, b: Int32Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Look up pairs by venue number, ``a`` of lower source_id: observed, mean, deviation; NaN where unknown."""
        asked = pl.DataFrame({"source_id_a": self.source_ids[a], "source_id_b": self.source_ids[b]})
        parts = [part.join(asked, on=_PAIR, how="semi") for part in self._parts(year)]
        rows = asked.join(
            pl.concat([pl.DataFrame(schema=PAIR_STATISTICS), *parts]), on=_PAIR, how="left", maintain_order="left"
        )
        observed, mean, deviation = (
            rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in ("n_observed", "mean", "std")
        )
        return observed, mean, deviation

    def _parts(self, year: int) -> Iterator[pl.DataFrame]:
        """Read the row groups of a year one after the other."""
        try:
            with pq.ParquetFile(self.path, page_checksum_verification=True) as file:
                for i in range(file.metadata.num_row_groups):
                    if file.metadata.row_group(i).column(0).statistics.min == year:  # of one year each
                        yield pl.DataFrame(file.read_row_group(i)).cast(PAIR_STATISTICS)
        except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
            raise _damaged(self.path, error) from error


def read_background(path: str | Path, config: NoveltyConfig | None = None) -> Background:
    """Open a background, and compare the file with the SHA-256 that it holds. Its rows are read when needed.

    A ConfigError says that it is one of another null model than that of ``config``.
    """
    if not isinstance(path, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"background is {path!r}, needs the path of a file of write_background.")
    path = Path(path)
    if not path.is_file():
        raise InputNotFoundError(
            f"no background at {path}. Write one with `sciscidata background` (write_background), or check the path."
        )
    try:
        metadata = pq.read_metadata(path).metadata or {}
        header: Any = parse_json(metadata.get(METADATA_KEY, b"null"))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _damaged(path, error) from error
    if not isinstance(header, dict):
        problem = "is a Parquet file, but no background: it lacks the metadata of write_background"
    elif header.get("format_version") != FORMAT_VERSION:
        version = header.get("format_version")
        problem = f"has format {version}, this version of sciscidata reads format {FORMAT_VERSION}"
    elif not is_sealed(path):
        problem = "is damaged, or was rewritten: it differs from the SHA-256 that it holds"
    else:
        years = pl.DataFrame(header["years"], _COUNTS)
        background = Background(path, header["null_model"], years, np.empty(0, np.int64))
        if config is not None:
            background.check_null_model(config)
        return background
    raise BackgroundError(f"{path} {problem}. Write it anew with write_background.")


def check_replaceable(path: Path, *, overwrite: bool) -> None:
    """Raise before any work unless a background may be written there: ``overwrite`` replaces backgrounds only."""
    refuse_special(path)
    if not path.exists():
        return
    if not overwrite:
        raise ReleaseExistsError(f"{path} already exists. Choose another file, or replace it: overwrite=True.")
    try:
        read_background(path)
    except (InputNotFoundError, BackgroundError) as error:  # a mistyped path must not cost anyone a file
        raise ReleaseExistsError(
            f"{path} is no background of this version, so it is not replaced. Choose another file, or remove it."
        ) from error


def _damaged(path: Path, error: Exception) -> BackgroundError:
    reason = str(error).strip().splitlines()[0].rstrip(".")
    return BackgroundError(f"{path} is no Parquet file, or damaged: {reason}. Write it anew with write_background.")


@dataclass(frozen=True, eq=False)
class VenuePairs:
    """What the venue pairs of any year of a corpus are made of: see ``of``."""

    graph: CitationGraph
    venues: Int32Array
    source_ids: Int64Array
    config: NoveltyConfig

    @classmethod
    def of(
        cls,
        works: pl.LazyFrame,
        citations: pl.LazyFrame,
        config: NoveltyConfig | None = None,
        *,
        cache_dir: str | Path | None = None,
    ) -> VenuePairs:
        """Build the graph of a corpus, and number its venues. Memory: the graph."""
        works, citations, _ = pairs.require_corpus(works, citations, "write_background")
        config = checked_config(config, NoveltyConfig, "years=(1990, 1999)")
        graph = build_graph(works, citations, cache_dir=cache_dir)
        return cls(graph, pairs.venue_numbers(graph, works), pairs.venue_ids(works), config)

    def arrays(self) -> dict[str, Int32Array | Int64Array]:
        """Return what a task gets as files."""
        return {"venues": self.venues, "source_ids": self.source_ids}

    @cached_property
    def _lists(self) -> References:
        return pairs.references_of(self.graph, self.venues)

    def of_year(self, j: int) -> tuple[dict[str, int], pl.DataFrame]:
        """Return the counts of the j-th year and its rows of PAIR_STATISTICS, sorted."""
        graph, config, year = self.graph, self.config, int(self.graph.years[j])
        left_out = pairs.first_left_out(self.venues, needed=config.venue_required)
        slots = pairs.year_slots(graph, self._lists, j, config.max_references, left_out)
        groups = pairs.group(slots.offsets, slots.venues, slots.n_venues, unique_venues=config.unique_venues)
        cells = pairs.observe(groups, same_venue_pairs=config.same_venue_pairs)
        mean, deviation = pair_moments(slots, year, config)(cells) if cells.observed.size else np.empty((2, 0))
        counts = {
            "publication_year": year,
            "n_works": int(np.count_nonzero(np.diff(slots.offsets))),
            "n_references": slots.venues.size,
            "n_pairs": mean.size,
        }
        a, b = cells.venues(slots.venue_numbers)
        order = np.argsort(a.astype(np.int64) * self.source_ids.size + b)  # numbers have the order of the ids
        columns = {
            "publication_year": np.full(order.size, year, np.int32),
            "source_id_a": self.source_ids[a[order]],
            "source_id_b": self.source_ids[b[order]],
            "n_observed": cells.observed[order].astype(np.int64),
            "mean": mean[order],
            "std": deviation[order],
        }
        return counts, pl.DataFrame(columns, schema=PAIR_STATISTICS).with_columns(pl.col("std").fill_nan(None))


def write_null_model(
    corpus: VenuePairs,
    path: str | Path,
    *,
    overwrite: bool = True,
    n_threads: int | None = None,
    engine: Engine | None = None,
) -> Path:
    """Write the background of a corpus; ``pipeline.write_background`` describes the file. Returns ``path``.

    Memory: the pairs of one year per thread. The bytes do not depend on ``n_threads`` or ``engine``, which needs a
    graph on disk, for the files of its tasks beside it. Without ``overwrite``, a file that another run makes meanwhile
    stays.
    """
    check_threads(n_threads)
    path, graph, config = Path(path), corpus.graph, corpus.config
    require_parquet_name(path, "a background is")
    if path.is_dir():
        raise storage_error(IsADirectoryError(errno.EISDIR, "a folder"), path)
    check_replaceable(path, overwrite=overwrite)
    all_years: list[int] = graph.years.tolist()
    first, last = config.years or (min(all_years, default=0), max(all_years, default=0))
    asked = [j for j, year in enumerate(all_years) if first <= year <= last]
    home: Path | None = None
    if engine is not None:
        key = content_hash(graph, FORMAT_VERSION, config.null_model(), *map(hash_array, corpus.arrays().values()))
        home = (graph_folder(graph).parent / f"background-{key}.tasks").absolute()
        years_made = _by_tasks(corpus, asked, engine, home)
    else:
        years_made = _by_threads(corpus, asked, n_threads or pl.thread_pool_size())
    schema = pl.DataFrame(schema=PAIR_STATISTICS).to_arrow().schema
    years: list[dict[str, int]] = []
    with (
        own_work(home) if home is not None else nullcontext(),
        atomic_file(path, overwrite=overwrite, recheck=partial(check_replaceable, path, overwrite=overwrite)) as file,
        pq.ParquetWriter(file, schema, **CHECKED) as writer,
        closing(years_made),
    ):
        for counts, rows in years_made:
            years.append(counts)
            if rows.height:  # an empty row group knows no year
                writer.write_table(rows.to_arrow().cast(schema), row_group_size=ROWS_PER_GROUP["background"])
        facts = {"format_version": FORMAT_VERSION, "null_model": config.null_model(), "years": years}
        writer.add_key_value_metadata({METADATA_KEY: json.dumps({**facts, **BLANK_SEAL})})
        writer.close()
        seal(file)
    return path


_YearFound = Generator[tuple[dict[str, int], pl.DataFrame]]


def _by_threads(corpus: VenuePairs, years: list[int], n_threads: int) -> _YearFound:
    """Give counts and rows of each year; memory holds one year per thread."""
    with (
        progress_bar("venue pairs", float(corpus.graph.n_citations), unit="references") as advance,
        closing(map_in_order(corpus.of_year, years, n_threads, n_held=n_threads)) as years_made,
    ):
        for counts, rows in years_made:
            yield counts, rows
            advance(counts["n_references"])


def _by_tasks(corpus: VenuePairs, years: list[int], engine: Engine, home: Path) -> _YearFound:
    work = YearWork(save_one_year, "venue pairs", {"config": asdict(corpus.config)}, corpus.arrays())
    for _, path, counts in take_years(engine, YearFiles(corpus.graph, home), years, work):
        yield counts, read_parquet(path).rechunk()  # pages end where chunks do


@shared
def _pairs_in_task(of_all: str) -> VenuePairs:
    arguments = json.loads(of_all)
    graph = open_in_task(arguments["graph"], arguments["stage_dir"])
    return VenuePairs(
        graph, np.load(arguments["venues"]), np.load(arguments["source_ids"]), NoveltyConfig(**arguments["config"])
    )


@task
def save_one_year(_: Advance, *, j: int, out: Path, **of_all: Any) -> dict[str, Any]:  # noqa: ANN401
    """Write PAIR_STATISTICS of the j-th year of a graph on disk into one Parquet file, and return its counts."""
    counts, rows = _pairs_in_task(json.dumps(of_all, sort_keys=True)).of_year(j)
    write_parquet(rows, out)
    return counts
