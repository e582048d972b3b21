"""From z to two scores between 0 and 1, by a sigmoid or by rank within the year."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

from sciscidata._kernels.portable_math import sigmoid
from sciscidata.schemas import ATYPICALITY
from sciscidata.storage.spill import RowSpool


def add_scores(rows: pl.DataFrame, score: Literal["sigmoid", "rank"]) -> pl.DataFrame:
    """Add novelty_score, high where z_p10 is low, and conventionality_score, high where z_median is; null stays null.

    ``rows`` holds publication_year, and z_p10 and z_median (Float64, null where undefined).

    Example:
        >>> rows = pl.DataFrame({"publication_year": [2000, 2000], "z_p10": [-9.0, 1.0], "z_median": [0.0, None]},
        ...     schema_overrides={"z_median": pl.Float64})
        >>> add_scores(rows, "sigmoid").select("novelty_score", "conventionality_score").rows()
        [(0.9996646498695336, 0.5), (0.2689414213699951, None)]
        >>> add_scores(rows, "rank").select("novelty_score", "conventionality_score").rows()
        [(0.75, 0.5), (0.25, None)]
    """
    if score == "rank":

        def rank(z: pl.Expr) -> pl.Expr:
            return ((z.rank("average") - 0.5) / z.count()).over("publication_year")

        return rows.with_columns(novelty_score=rank(-pl.col("z_p10")), conventionality_score=rank(pl.col("z_median")))
    for name, z in {"novelty_score": -rows["z_p10"], "conventionality_score": rows["z_median"]}.items():
        values = sigmoid(z.fill_null(np.nan).to_numpy())
        rows = rows.with_columns(pl.Series(name, values).fill_nan(None))
    return rows


_SPOOLED_ROWS: Final = 1 << 18
_PARTS: Final = 64  # more than a year in each, for tables with strange years; neighbours are far apart
_SCORES: Final = ("novelty_score", "conventionality_score")


def rank_on_disk(rows: pl.LazyFrame, folder: Path) -> pl.LazyFrame:
    """Return what ``add_scores(rows, "rank")`` gives, unordered, without all rows in memory.

    Rows are put apart by year in ``folder`` (about 40 bytes of disk each), and ranked a few years at a time; the result
    reads them there. Further columns pass through.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> rows = {"publication_year": [1990, 1990, 1990], "z_p10": [-1.0, 3.0, None], "z_median": [2.0, 1.0, None]}
        >>> with TemporaryDirectory() as home:
        ...     ranked = rank_on_disk(pl.LazyFrame(rows), Path(home))
        ...     ranked.sort("z_p10", nulls_last=True).collect()["novelty_score"].to_list()
        [0.75, 0.25, None]
    """
    bare = rows.drop(_SCORES, strict=False)
    has_z = pl.any_horizontal(pl.col("z_p10", "z_median").is_not_null())
    # Works without a z have no rank, and are the most of SciSciNet.
    number = pl.when(has_z).then(pl.col("publication_year").cast(pl.Int64).fill_null(0) % _PARTS).otherwise(_PARTS)
    with RowSpool(folder, "unranked") as spool:
        for batch in bare.collect_batches(chunk_size=_SPOOLED_ROWS, maintain_order=False, engine="streaming"):
            spool.add(batch, batch.select(number.cast(pl.Int64)).to_series().to_numpy())
    absent = [pl.lit(None, dtype=ATYPICALITY[name]).alias(name) for name in _SCORES]
    parts = [bare.clear().with_columns(absent)]
    for part in filter(Path.exists, map(spool.path, range(_PARTS))):
        ranked = part.with_name(part.name.removeprefix("un"))
        unranked = pl.scan_ipc(part, glob=False).collect(engine="in-memory")
        add_scores(unranked, "rank").write_ipc(ranked, compression="lz4")
        part.unlink()
        parts.append(pl.scan_ipc(ranked, glob=False))
    if (rest := spool.path(_PARTS)).exists():
        parts.append(pl.scan_ipc(rest, glob=False).with_columns(absent))
    return pl.concat(parts)
