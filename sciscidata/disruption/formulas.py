"""From whole numbers to the CD index and its family: what is divided by what, and when it is undefined."""

from __future__ import annotations

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import AnyArray
from sciscidata.disruption.config import CDConfig
from sciscidata.graph.graph import CitationGraph
from sciscidata.schemas import CD_FAMILY, CD_SCORES

_COUNTS = {name: pl.UInt32() for name in ("n_i", "n_j", "n_k", "n_refs", "n_j5")} | {
    name: pl.Int64() for name in ("n_shared", "n_to_date", "n_ever")
}


def counted_rows(graph: CitationGraph, span: range, counts: dict[str, AnyArray]) -> pl.DataFrame:
    """Put works and counts side by side: what add_indices reads."""
    n_refs = np.diff(graph.ref_offsets[span.start : span.stop + 1]).astype(np.uint32)
    n_ever = np.diff(graph.citer_offsets[span.start : span.stop + 1])
    return pl.DataFrame(
        {"work_id": graph.work_ids[span.start : span.stop], **counts, "n_refs": n_refs, "n_ever": n_ever}
    )


def undated_rows(graph: CitationGraph, span: range) -> pl.DataFrame:
    """Return rows of null for works without a year."""
    rows = pl.DataFrame({"work_id": graph.work_ids[span.start : span.stop]})
    return rows.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in _COUNTS.items())


def score_schema(config: CDConfig) -> pl.Schema:
    """Return the columns of the scores."""
    return pl.Schema(CD_SCORES | CD_FAMILY) if config.family else CD_SCORES


def add_indices(counts: pl.DataFrame, config: CDConfig) -> pl.DataFrame:
    """Compute every index from whole numbers, so that one division is the only rounding; null counts give null.

    ``counts`` has work_id, n_i, n_j, n_k and n_refs; with ``config.family`` also n_j5, n_shared and n_to_date (citers
    up to the window's end); for ``uncited="null_if_never"`` also n_ever (citers of any time).

    Example:
        >>> counts = pl.DataFrame({"work_id": [7], "n_i": [3], "n_j": [1], "n_k": [4], "n_refs": [20]})
        >>> add_indices(counts, CDConfig())["cd_index"].to_list()
        [0.25]
    """
    n_i, n_j, n_k = (pl.col(name).cast(pl.Int64) for name in ("n_i", "n_j", "n_k"))
    usable = pl.lit(value=True)
    if config.zero_references == "null":
        usable &= pl.col("n_refs") > 0
    if config.uncited != "keep":
        usable &= (n_i + n_j if config.uncited == "null" else pl.col("n_ever")) > 0

    def ratio(above: pl.Expr, below: pl.Expr) -> pl.Expr:
        return pl.when(usable & (below > 0)).then(above / below)

    cd = ratio(n_i - n_j, n_i + n_j + n_k)
    indices = {"cd_index": cd}
    if config.undefined == "zero":
        indices["cd_index"] = pl.when(n_i.is_not_null()).then(cd.fill_null(0.0))
    if config.family:
        n_j5 = pl.col("n_j5").cast(pl.Int64)
        indices |= {
            "mcd_index": cd * pl.col("n_to_date"),
            "di5_index": ratio(n_i - n_j5, n_i + n_j5 + n_k),
            "di_nok_index": ratio(n_i - n_j, n_i + n_j),
            "dependence": ratio(pl.col("n_shared"), n_i + n_j),
        }
    schema = score_schema(config)
    return counts.with_columns(**indices).select(schema.names()).cast(schema)
