"""Embedding disruptiveness (Kim et al. 2026): how far a work's future lies from its past, given vectors of both."""

from __future__ import annotations

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Float64Array
from sciscidata._support.vectors import matrix_of, require_vectors, to_length_1
from sciscidata.errors import SchemaMismatchError
from sciscidata.frames import AnyFrame
from sciscidata.records.ids import with_original_ids
from sciscidata.schemas import WORKS, require_columns

_STAGE = "compute_embedding_disruptiveness"
_ROWS_AT_ONCE = 1 << 15


def compute_embedding_disruptiveness(works: AnyFrame, past: str = "past", future: str = "future") -> pl.LazyFrame:
    """Score every work by the cosine distance between two vectors: of what comes before it, and of what comes after.

    The vectors are those of an embedding of the citation graph that keeps its direction. In the package
    embedding-disruptiveness the rows of ``in.npy`` and ``out.npy`` are the two. The score does not depend on which is
    which.

    Args:
        works: ``work_id`` and two columns of vectors: Array or List of numbers, all of one length.
        past: the column with the vectors of what comes before.
        future: the column with the vectors of what comes after.

    Returns:
        One row per row of ``works``, in that order: work_id and embedding_disruptiveness (Float64), which is 1 - cosine
        of the two. It is 0 where they point the same way, 1 at a right angle, 2 if opposed; high is disruptive. Null if
        a vector is missing, all 0, or holds a null, NaN or infinity.

    Raises:
        SchemaMismatchError: when called, if a column is missing or of another dtype; at collect, if vectors differ in
            length.

    Memory: the vectors of 32,768 works, and 16 bytes per work.

    Source: Kim, Kojaku & Ahn 2026, Science Advances, "Uncovering simultaneous breakthroughs with a robust measure of
    disruptiveness", arXiv:2502.16845.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3], "past": [[1.0, 0.0], [1.0, 0.0], None],
        ...     "future": [[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]]})
        >>> compute_embedding_disruptiveness(works).collect()["embedding_disruptiveness"].to_list()
        [0.0, 1.0, None]
    """
    works = require_columns(works, WORKS, frame_name="WORKS", stage=_STAGE, columns=["work_id"])
    vectors = require_vectors(works, *dict.fromkeys((past, future)), stage=_STAGE)
    schema = pl.Schema({"work_id": pl.Int64(), "embedding_disruptiveness": pl.Float64()})

    def score() -> pl.DataFrame:
        parts = [schema.to_frame()]
        for rows in vectors.collect_batches(chunk_size=_ROWS_AT_ONCE, maintain_order=True):
            distance = pl.Series(_distances(rows[past], rows[future]), nan_to_null=True)
            parts.append(rows.select("work_id", embedding_disruptiveness=distance))
        return pl.concat(parts)

    return with_original_ids(pl.defer(score, schema=schema), works)


def _distances(past: pl.Series, future: pl.Series) -> Float64Array:
    """Return 1 - cosine, which for vectors of length 1 is half their squared distance; so equal ones have exactly 0."""
    a, b = (to_length_1(matrix_of(vectors, stage=_STAGE)) for vectors in (past, future))
    if np.isnan(a).all() or np.isnan(b).all():  # one side has no vector, and thus no length
        return np.full(len(a), np.nan)
    if a.shape != b.shape:
        raise SchemaMismatchError(
            f"{_STAGE}: vectors in {past.name!r} have {a.shape[1]:,} numbers, those in {future.name!r} "
            f"{b.shape[1]:,}. Use two vectors of one model."
        )
    gap = a - b
    return np.minimum(np.einsum("ij,ij->i", gap, gap) / 2, 2)
