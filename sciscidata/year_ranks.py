"""Ranks within the year, of more works than memory holds: put apart by year on disk, ranked a few years at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from sciscidata.novelty_scores import add_scores
from sciscidata.row_spool import RowSpool
from sciscidata.schemas import ATYPICALITY

_SPOOLED_ROWS: Final = 1 << 18
_PARTS: Final = 64  # more than a year in each, for tables with strange years; neighbours are far apart
_SCORES: Final = ("novelty_score", "conventionality_score")


def rank_on_disk(rows: pl.LazyFrame, folder: Path) -> pl.LazyFrame:
    """Give what ``rescore(rows, "rank")`` gives, without all rows of it in memory. Executes.

    Args:
        rows: publication_year, and z_p10 and z_median, Float64; further columns pass through. Run once.
        folder: where the rows are put, some 40 bytes of disk for each; the result reads them there.

    Returns:
        The rows, unordered, with novelty_score and conventionality_score added or replaced.

    Raises:
        OSError: the disk is full.

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
