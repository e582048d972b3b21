"""Novelty by the distances between references (Shibayama et al. 2021), given a vector for each cited work."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated

import msgspec
import numpy as np
import polars as pl

from sciscidata._kernels.arrays import AnyArray, Float64Array, Int64Array
from sciscidata._support.vectors import matrix_of, require_vectors, to_length_1
from sciscidata.frames import AnyFrame
from sciscidata.options.checks import check_value
from sciscidata.records.ids import require_one_row_each, with_original_ids
from sciscidata.schemas import CITATIONS, WORKS, require_columns
from sciscidata.terminal.progress import progress_bar

_STAGE = "compute_shibayama_novelty"
_NUMBERS_AT_ONCE = 1 << 22
_Percentiles = Annotated[tuple[Annotated[float, msgspec.Meta(ge=0, le=100)], ...], msgspec.Meta(min_length=1)]
_Most = Annotated[int, msgspec.Meta(ge=2)] | None


def compute_shibayama_novelty(
    works: AnyFrame,
    citations: AnyFrame,
    *,
    vector: str = "vector",
    percentiles: Iterable[float] = (50, 80, 90, 95, 99, 100),
    max_references: int | None = 1_000,
) -> pl.LazyFrame:
    """Score every work by how far apart in meaning its references lie (Shibayama, Yin & Matsumoto 2021).

    Every two references of a work that have a vector form a pair. Its distance is 1 - cosine of both vectors, 0 .. 2.
    The authors use mean word vectors of titles; any vector of a text will do.

    Limits: distances depend on the model that made the vectors, so compare works by one model only. High percentiles
    rise with the number of references. References without a vector are missing.

    Args:
        works: ``work_id`` and a column of vectors, Array or List of numbers, all of one length.
        citations: CITATIONS, in any order; repeats, and works that cite themselves, are ignored.
        vector: the column with the vectors.
        percentiles: which percentiles of the distances, 0 to 100, interpolated linearly. 100 is the largest distance.
        max_references: most references with a vector of a work; with more it is not scored. None: no limit.

    Returns:
        One row per work, unordered. distance_n_pairs: Int64, pairs of references with a vector; null with more than
        ``max_references``. distance_mean and distance_p50, distance_p80, ...: Float64, high is novel; null with less
        than two references that have a vector. A vector that is all 0, or holds a null, NaN or infinity, is none.

    Raises:
        ConfigError: when called, if ``percentiles`` or ``max_references`` do not fit.
        SchemaMismatchError: when called, if a column is missing or has another dtype; at collect, if vectors differ in
            length.
        WorkIdError: at collect, if a work_id is null or repeated.

    Memory: all vectors, and all citations of works with a vector.

    Source: Shibayama, Yin & Matsumoto 2021, doi:10.1371/journal.pone.0254034. The percentiles are those of novelpy 1.4.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4], "vector": [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], None]})
        >>> citations = pl.LazyFrame({"citing_id": [4, 4, 4], "cited_id": [1, 2, 3]})
        >>> scores = compute_shibayama_novelty(works, citations, percentiles=[50, 100])
        >>> scores.filter(pl.col("work_id") == 4).collect().row(0)
        (4, 3, 0.6666666666666666, 1.0, 1.0)
    """
    works = require_columns(works, WORKS, frame_name="WORKS", stage=_STAGE, columns=["work_id"])
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=_STAGE)
    vectors = require_vectors(works, vector, stage=_STAGE)
    wanted: tuple[float, ...] = check_value("percentiles", [*percentiles], _Percentiles)
    most: int | None = check_value("max_references", max_references, _Most)
    names = ["distance_mean", *(f"distance_p{percentile:g}" for percentile in wanted)]
    schema = pl.Schema({"work_id": pl.Int64(), "distance_n_pairs": pl.Int64(), **dict.fromkeys(names, pl.Float64())})

    def score() -> pl.DataFrame:
        rows = vectors.collect(engine="streaming")
        work_ids, matrix = rows["work_id"], matrix_of(rows[vector], stage=_STAGE)
        del rows
        require_one_row_each(work_ids, _STAGE)
        n_refs, refs = _references(work_ids, _has_direction(matrix), citations)
        scores = _score(matrix, n_refs, refs, wanted, most)
        n_pairs = pl.Series(n_refs * (n_refs - 1) // 2)
        too_many = pl.Series(n_refs > most) if most is not None else pl.repeat(False, n_refs.size, eager=True)
        columns = {name: pl.Series(scores[:, i], nan_to_null=True) for i, name in enumerate(names)}
        counted = pl.select(pl.when(~too_many).then(n_pairs)).to_series()
        return pl.DataFrame({"work_id": work_ids, "distance_n_pairs": counted, **columns}, schema=schema)

    return with_original_ids(pl.defer(score, schema=schema), works)


def _has_direction(matrix: AnyArray) -> pl.Series:
    return pl.Series(np.isfinite(matrix).all(axis=1) & (matrix != 0).any(axis=1))


def _references(work_ids: pl.Series, known: pl.Series, citations: pl.LazyFrame) -> tuple[Int64Array, Int64Array]:
    """Return how many references with a vector each work has, and these one work after the other, as places."""
    places = pl.DataFrame({"id": work_ids, "place": pl.int_range(len(work_ids), eager=True)}).lazy()
    cited = places.filter(known).rename({"id": "cited_id", "place": "cited"})
    citing = places.rename({"id": "citing_id", "place": "citing"})
    found = citations.select("citing_id", "cited_id").filter(pl.col("citing_id") != pl.col("cited_id")).unique()
    joined = found.join(cited, on="cited_id").join(citing, on="citing_id").sort("citing", "cited_id")
    rows = joined.select("citing", "cited").collect(engine="streaming")
    return np.bincount(rows["citing"].to_numpy(), minlength=len(work_ids)), rows["cited"].to_numpy()


def _score(
    matrix: AnyArray, n_refs: Int64Array, refs: Int64Array, percentiles: tuple[float, ...], most: int | None
) -> Float64Array:
    """Return mean and percentiles of each work, NaN where undefined; works with equally many references together."""
    scores = np.full((n_refs.size, 1 + len(percentiles)), np.nan)
    offsets = np.concatenate([[0], np.cumsum(n_refs)])
    by_size = np.argsort(n_refs, kind="stable")
    sizes, starts = np.unique(n_refs[by_size], return_index=True)
    with progress_bar("distances of references", float(refs.size), unit="references") as advance:
        for size, (start, end) in zip(sizes.tolist(), pairwise([*starts.tolist(), n_refs.size]), strict=True):
            works = by_size[start:end]
            if size >= 2 and (most is None or size <= most):
                n_at_once = max(1, _NUMBERS_AT_ONCE // (size * max(size, matrix.shape[1])))
                for first in range(0, works.size, n_at_once):
                    some = works[first : first + n_at_once]
                    vectors = to_length_1(matrix[refs[offsets[some, None] + np.arange(size)]])
                    scores[some] = _summarise(vectors, percentiles)
            advance(float(size * works.size))
    return scores


def _summarise(vectors: Float64Array, percentiles: tuple[float, ...]) -> Float64Array:
    """Return mean and percentiles of the distances, from vectors of length 1 (works, references, numbers)."""
    first, second = np.triu_indices(vectors.shape[1], 1)
    cosines = np.ascontiguousarray((vectors @ vectors.transpose(0, 2, 1))[:, first, second])  # sums have one order
    distances = np.clip(1 - cosines, 0, 2)
    mean = distances.mean(axis=1)
    return np.column_stack([mean, *np.percentile(distances, percentiles, axis=1, overwrite_input=True)])
