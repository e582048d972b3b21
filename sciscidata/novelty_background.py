"""A saved table of venue pairs: score a small pull of works against a large corpus.

One Parquet file, a row per citing year and venue pair (PAIR_STATISTICS), sorted; no row group spans two years, and
every page has a checksum. Its metadata hold the null model, per year how many works and references it was made of, and
the SHA-256 of the file. Venues are known by their source_id, so that any corpus with the same ids can be scored.
"""

from __future__ import annotations

import errno
import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow.parquet as pq

from sciscidata.background_table import FORMAT_VERSION, METADATA_KEY, Background, read_background
from sciscidata.checks import check_threads, checked_config, require_parquet_name
from sciscidata.graph import CitationGraph, build_graph
from sciscidata.novelty_config import NoveltyConfig
from sciscidata.novelty_nulls import pair_moments
from sciscidata.progress import progress_bar
from sciscidata.schemas import PAIR_STATISTICS
from sciscidata.storage import BLANK_SEAL, atomic_file, seal, storage_error
from sciscidata.storage.parquet import CHECKED
from sciscidata.venue_pair_scores import require_corpus
from sciscidata.venue_pairs import Cells, group, observe, venue_ids, venue_numbers, year_places, year_slots

__all__ = ["Background", "read_background", "write_background"]

_ROWS_PER_GROUP = 1 << 20

Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


def write_background(
    citations: pl.LazyFrame,
    works: pl.LazyFrame,
    path: str | Path,
    config: NoveltyConfig | None = None,
    *,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
    overwrite: bool = True,
) -> Path:
    """Save mean and standard deviation of every venue pair of a corpus, for ``compute_atypicality(background=...)``.

    Executes. Memory: the graph, and the pairs of one year per thread.

    Args:
        citations: CITATIONS, as in compute_atypicality.
        works: WORKS; only work_id, publication_year and source_id are read.
        path: the file to write; one that is there is replaced in one step, when the new one is whole.
        config: the null model, and ``years``; the other options say how works are scored, and are not read.
        cache_dir: keep the graph here for later runs; see build_graph.
        n_threads: as many as Polars uses (POLARS_MAX_THREADS) when None. The rows do not depend on it.
        overwrite: False keeps a file that another run makes meanwhile, instead of replacing it.

    Returns:
        ``path``: PAIR_STATISTICS in Parquet, sorted by publication_year, source_id_a, source_id_b. n_observed: how
        often two references of one work lead to the two venues; mean and std: of this count under the null model.

    Raises:
        ConfigError: if ``config`` is no NoveltyConfig or ``n_threads`` no number of threads.
        SchemaMismatchError: before any row is read.
        WorkIdError, EmptyInputError: as build_graph.
        ConfigError: at once, if ``path`` is named like another kind of file than Parquet.
        StorageError: the disk is full, or the file cannot be written; at once, if ``path`` is a folder; at the
            end, if without ``overwrite`` another run has made ``path``.

    Source: Uzzi et al. 2013, doi:10.1126/science.1240474.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4, 5, 6], "source_id": [7, 7, 8, 8, None, None],
        ...     "publication_year": [1990, 1990, 1990, 1990, 2000, 2000]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [5, 5, 6, 6], "cited_id": [1, 2, 3, 4]})
        >>> with TemporaryDirectory() as home:
        ...     table = read_background(write_background(citations, works, f"{home}/pairs.parquet"))
        ...     rows = table.scan().select(pl.all().exclude("publication_year").round(3)).collect().rows()
        >>> rows
        [(7, 7, 1, 0.333, 0.471), (8, 8, 1, 0.333, 0.471)]
    """
    stage = "write_background"
    citations, works = require_corpus(citations, works, stage)
    config = checked_config(config, NoveltyConfig, "years=(1990, 1999)")
    check_threads(n_threads)
    path = Path(path)
    require_parquet_name(path, "a background is")
    if path.is_dir():
        raise storage_error(IsADirectoryError(errno.EISDIR, "a folder"), path)
    graph = build_graph(citations, works, cache_dir=cache_dir)
    corpus = _Corpus(graph, venue_numbers(graph, works), venue_ids(works), year_places(graph), config)
    schema = pl.DataFrame(schema=PAIR_STATISTICS).to_arrow().schema
    years: list[dict[str, int]] = []
    with (
        atomic_file(path, overwrite=overwrite) as file,
        progress_bar("venue pairs", float(graph.n_citations), unit="references") as advance,
        pq.ParquetWriter(file, schema, **CHECKED) as writer,
    ):
        for counts, rows in _in_order(corpus, n_threads or pl.thread_pool_size()):
            years.append(counts)
            if rows.height:  # an empty row group knows no year
                writer.write_table(rows.to_arrow().cast(schema), row_group_size=_ROWS_PER_GROUP)
            advance(counts["n_references"])
        facts = {"format_version": FORMAT_VERSION, "null_model": config.null_model(), "years": years}
        writer.add_key_value_metadata({METADATA_KEY: json.dumps({**facts, **BLANK_SEAL})})
        writer.close()
        seal(file)
    return path


@dataclass(frozen=True, eq=False)
class _Corpus:
    graph: CitationGraph
    venues: Int32Array
    source_ids: Int64Array
    year_of: Int32Array
    config: NoveltyConfig

    def pairs(self, j: int) -> tuple[dict[str, int], pl.DataFrame]:
        """Return the counts of the j-th year and its rows of PAIR_STATISTICS, sorted."""
        config, year = self.config, int(self.graph.years[j])
        left_out = np.zeros(self.graph.n_dated, np.bool_)
        given = (self.graph, self.venues, self.year_of, j, config.max_references, left_out)
        slots = year_slots(*given, venue_required=config.venue_required)
        groups = group(slots.offsets, slots.venues, slots.n_venues, unique_venues=config.unique_venues)
        cells = observe(groups, same_venue_pairs=config.same_venue_pairs)
        mean, deviation = np.empty((2, 0))
        if cells.observed.size:
            mean, deviation = pair_moments(slots, cells, year, config)
        counts = {
            "publication_year": year,
            "n_works": int(np.count_nonzero(np.diff(slots.offsets))),
            "n_references": slots.venues.size,
            "n_pairs": mean.size,
        }
        return counts, self._rows(year, cells, slots.venue_numbers, mean, deviation)

    def _rows(
        self, year: int, cells: Cells, numbers: Int32Array, mean: Float64Array, deviation: Float64Array
    ) -> pl.DataFrame:
        a, b = cells.venues(numbers)
        order = np.argsort(a.astype(np.int64) * self.source_ids.size + b)  # numbers have the order of the ids
        columns = {
            "publication_year": np.full(order.size, year, np.int32),
            "source_id_a": self.source_ids[a[order]],
            "source_id_b": self.source_ids[b[order]],
            "n_observed": cells.observed[order].astype(np.int64),
            "mean": mean[order],
            "std": deviation[order],
        }
        return pl.DataFrame(columns, schema=PAIR_STATISTICS).with_columns(pl.col("std").fill_nan(None))


def _in_order(corpus: _Corpus, n_threads: int) -> Iterator[tuple[dict[str, int], pl.DataFrame]]:
    """Compute years in threads and yield them in order; no more are held than there are threads."""
    years: list[int] = corpus.graph.years.tolist()
    first, last = corpus.config.years or (min(years, default=0), max(years, default=0))
    asked = [j for j, year in enumerate(years) if first <= year <= last]
    waiting: deque[Future[tuple[dict[str, int], pl.DataFrame]]] = deque()
    with ThreadPoolExecutor(n_threads) as pool:
        for j in asked:
            if len(waiting) == n_threads:
                yield waiting.popleft().result()
            waiting.append(pool.submit(corpus.pairs, j))
        while waiting:
            yield waiting.popleft().result()
