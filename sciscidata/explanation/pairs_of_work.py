"""The venue pairs of one work, with how often each is expected: what its atypicality follows from."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from sciscidata.errors import ConfigError
from sciscidata.explanation.neighbourhood import Neighbourhood
from sciscidata.novelty.atypicality import compute_atypicality
from sciscidata.novelty.background import VenuePairs, read_background
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.venue_pairs import require_corpus
from sciscidata.schemas import ATYPICALITY

#: One row per venue pair of a work.
PAIRS_OF_WORK: Final = pl.Schema(
    {
        "source_id_a": pl.Int64(),
        "source_name_a": pl.String(),
        "source_id_b": pl.Int64(),
        "source_name_b": pl.String(),
        "n_reference_pairs": pl.Int64(),
        "n_observed": pl.Int64(),
        "mean": pl.Float64(),
        "std": pl.Float64(),
        "z": pl.Float64(),
        "role": pl.String(),
    }
)
_ROLES: Final = {"10th percentile": "z_p10", "median": "z_median"}


def explain_pairs(
    around: Neighbourhood,
    works: pl.LazyFrame,
    citations: pl.LazyFrame,
    config: NoveltyConfig,
    background: str | Path | None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the row of ATYPICALITY of a work, and its venue pairs with a z (PAIRS_OF_WORK), the lowest z first.

    A null model needs all works of the same year and what they cite; of a background, only the work and its references
    are read.
    """
    works, citations, _ = require_corpus(works, citations, "explain")
    if background is not None and config.score == "rank":
        raise ConfigError("NoveltyConfig.score='rank' needs all works of the year. Leave background out.")
    year = around.fact("publication_year")
    unscored = pl.DataFrame([{"work_id": around.work_id}], ATYPICALITY)
    if year is None:
        return unscored, PAIRS_OF_WORK.to_frame()
    columns = ["work_id", "publication_year", "source_id"]
    if background is None:
        citing = works.filter(pl.col("publication_year") == year).select(citing_id="work_id")
        citations = citations.join(citing, on="citing_id", how="semi")
        cited = citations.select(work_id="cited_id").unique()
        some = pl.concat([citing.rename({"citing_id": "work_id"}), cited]).unique()
        rows = works.select(columns).join(some, on="work_id", how="semi").collect(engine="streaming").lazy()
        citations = citations.collect(engine="streaming").lazy()
    else:
        rows = around.facts.lazy().select(columns)
        citations = pl.LazyFrame({"citing_id": around.work_id, "cited_id": around.references})
    scores = compute_atypicality(rows, citations, config, background=background)
    row = scores.filter(pl.col("work_id") == around.work_id).select(ATYPICALITY.names()).collect()
    if row.is_empty() or row["z_median"].item() is None:
        return row, PAIRS_OF_WORK.to_frame()
    if background is None:
        made = VenuePairs.of(rows, citations, config)
        statistics = made.of_year(int(np.searchsorted(made.graph.years, year)))[1].lazy()
    else:
        statistics = read_background(background, config).scan().filter(pl.col("publication_year") == year)
    pairs = _count_pairs(around, config).lazy().join(statistics, on=["source_id_a", "source_id_b"], how="inner")
    z = (pl.col("n_observed") - pl.col("mean")) / pl.col("std")
    found = pairs.with_columns(z=z).filter(pl.col("z").is_finite()).collect()
    names = around.facts.filter(pl.col("source_id").is_not_null())
    has_names = "source_name" in names.columns
    known = names.group_by("source_id").agg(pl.col("source_name").min()) if has_names else None
    for end in "ab":
        if known is None:
            found = found.with_columns(pl.lit(None, pl.String).alias(f"source_name_{end}"))
        else:
            found = found.join(known.select(pl.all().name.suffix(f"_{end}")), on=f"source_id_{end}", how="left")
    found = found.sort("z", "source_id_a", "source_id_b")
    roles = pl.concat_str(
        [_near(found, row[z].item(), role) for role, z in _ROLES.items()], ignore_nulls=True, separator=", "
    )
    found = found.with_columns(role=pl.when(roles != "").then(roles))
    return row, found.select(PAIRS_OF_WORK.names()).cast(PAIRS_OF_WORK)


def _near(pairs: pl.DataFrame, value: float, role: str) -> pl.Expr:
    """Name the role of the pair whose z is nearest to a value; of two, the lower one."""
    distance = (pairs["z"] - value).abs()
    at = distance.arg_min()
    return pl.when(pl.int_range(pl.len()) == at).then(pl.lit(role))


def _count_pairs(around: Neighbourhood, config: NoveltyConfig) -> pl.DataFrame:
    """Count the pairs of references of a work by their venues, as the measure does."""
    cited = around.facts.filter(pl.col("work_id").is_in(around.references.implode()))
    venues = cited.drop_nulls(["publication_year", "source_id"])["source_id"]
    counts = Counter(venues.to_list())
    if config.unique_venues:
        counts = Counter(dict.fromkeys(counts, 1))
    pairs = {(a, b): counts[a] * counts[b] for a, b in combinations(sorted(counts), 2)}
    if config.same_venue_pairs:
        pairs |= {(a, a): n * (n - 1) // 2 for a, n in counts.items() if n > 1}
    rows = [(a, b, 1 if config.unique_pairs else n) for (a, b), n in pairs.items()]
    schema = {"source_id_a": pl.Int64, "source_id_b": pl.Int64, "n_reference_pairs": pl.Int64}
    return pl.DataFrame(rows, schema, orient="row")
