"""Commonness (Lee et al. 2015): how often two venues are cited together, against how often each is cited with any.

``compute_commonness`` has the formula. Nothing is drawn by chance, and the ages of references play no part.

How pairs are counted shifts the value. As published, a pair has no direction, so N_a + N_b + ... is nearly 2 N. Where
venues are independent, commonness is then about 1/2 for two venues, and about 1/4 for a venue with itself. With
``counting="ordered"`` each pair counts from both ends, and independence is 1 for both. Without same-venue pairs this
doubles every value and lowers novelty by ln 2. With them, same-venue pairs shift against the others.

Source: Lee, Walsh & Wang 2015, Research Policy 44(3):684-697, doi:10.1016/j.respol.2014.10.007. The formula, the
counting and the step to the work are those that novelpy 1.4 ascribes to the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Int32Array
from sciscidata._kernels.portable_math import natural_log
from sciscidata.frames import AnyFrame
from sciscidata.graph.graph import CitationGraph
from sciscidata.novelty import venue_pairs as pairs
from sciscidata.options.checks import Configuration, PositiveInt, check_threads, checked_config
from sciscidata.schemas import COMMONNESS


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class CommonnessConfig(Configuration):
    """Which pairs count, and how.

    Attributes:
        counting: how a pair counts. ``"unordered"``: once for each of its venues, as published. ``"ordered"``: from
            both ends, so that independence is 1; see the head of this module.
        unique_venues: count a venue once per work, however many references lead there.
        same_venue_pairs: two references to one venue are a pair, as in the published counting.
        min_pairs: fewest pairs of a work; with fewer it is undefined.
        max_references: most references of known year and venue of a work. With more it is left out of the counts too.
            None: no limit, as published.

    Raises:
        ConfigError: on construction, if a value does not fit its type.

    Example:
        >>> CommonnessConfig(counting="ordered").same_venue_pairs
        True
    """

    counting: Literal["unordered", "ordered"] = "unordered"
    unique_venues: bool = False
    same_venue_pairs: bool = True
    min_pairs: PositiveInt = 1
    max_references: Annotated[int, msgspec.Meta(ge=2)] | None = 1_000


def compute_commonness(
    works: AnyFrame,
    citations: AnyFrame,
    config: CommonnessConfig | None = None,
    *,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Score every work by how common its venue pairs are among the works of its year.

    Every two references of a work whose cited works have a year and a venue form a pair. Commonness of a venue pair =
    N_ab N / (N_a N_b): N_ab pairs lead to venues a and b, N_a have an end in a, N are all pairs.

    Limits: a pair of two rare venues is common here even if it occurs once, because N_a is small. A large field fills
    N, which makes pairs inside a small field common. References without a venue are missing, so works and years of poor
    coverage look different. Earlier years play no part. Compare works within a year, and fields with caution.

    Args:
        works: WORKS; only work_id, publication_year and source_id are read.
        citations: CITATIONS, in any order; repeats, and works that cite themselves, are ignored.
        config: which pairs count; ``CommonnessConfig()`` when None.
        cache_dir: keep the graph here for later runs.
        n_threads: as many as Polars uses (POLARS_MAX_THREADS) when None. The result does not depend on it.

    Returns:
        COMMONNESS, one row per work, unordered. commonness_n_pairs: null if the work has no year, or too many
        references. commonness_p10 and commonness_median: Float64, linear quantiles over the pairs, above 0, without a
        unit. commonness_novelty = -ln(commonness_p10): Float64, high is novel. Null where undefined.

    Raises:
        ConfigError, SchemaMismatchError, WorkIdError, EmptyInputError: as ``compute_cd_index``.

    Source: Lee, Walsh & Wang 2015, doi:10.1016/j.respol.2014.10.007.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4, 5, 6], "source_id": [7, 7, 8, 9, None, None],
        ...     "publication_year": [1990, 1990, 1990, 1990, 2000, 2000]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [5, 5, 5, 6, 6], "cited_id": [1, 2, 3, 3, 4]})
        >>> scores = compute_commonness(works, citations).filter(pl.col("work_id") > 4).sort("work_id").collect()
        >>> columns = ("commonness_n_pairs", "commonness_median", "commonness_novelty")
        >>> scores.select("work_id", pl.col(columns).round(4)).rows()
        [(5, 3, 0.8889, 0.6286), (6, 1, 1.3333, -0.2877)]
    """
    check_threads(n_threads)
    score = partial(_score, config=checked_config(config, CommonnessConfig), n_threads=n_threads)
    corpus = pairs.require_corpus(works, citations, "compute_commonness")
    return pairs.defer_scores(score, COMMONNESS, corpus, cache_dir)


def _score(graph: CitationGraph, venues: Int32Array, config: CommonnessConfig, n_threads: int | None) -> pl.DataFrame:
    from sciscidata.novelty._per_work_kernels import commonness_of_cells

    lists = pairs.references_of(graph, venues)
    n_pairs, left_out = np.zeros(graph.n_dated, np.int64), np.zeros(graph.n_dated, np.bool_)
    p10, median = np.full((2, graph.n_dated), np.nan)

    def score(j: int) -> None:
        """Score the works of the j-th year: slots, pairs, their commonness, and back to the works."""
        rows = slice(int(graph.year_offsets[j]), int(graph.year_offsets[j + 1]))
        slots = pairs.year_slots(graph, lists, j, config.max_references, left_out)
        if slots.venues.size:
            groups = pairs.group(slots.offsets, slots.venues, slots.n_venues, unique_venues=config.unique_venues)
            cells = pairs.observe(groups, same_venue_pairs=config.same_venue_pairs)
            commonness = commonness_of_cells(cells, config.counting == "ordered")
            pairs.write_quantiles(groups, [(cells, commonness)], (n_pairs[rows], p10[rows], median[rows]))

    pairs.score_years(graph, score, "commonness", n_threads)
    undefined = n_pairs < config.min_pairs
    p10[undefined] = np.nan
    median[undefined] = np.nan
    columns = {
        "commonness_n_pairs": pl.select(pl.when(~pl.Series(left_out)).then(pl.Series(n_pairs))).to_series(),
        "commonness_p10": p10,
        "commonness_median": median,
        "commonness_novelty": -natural_log(p10),
    }
    return pairs.one_row_per_work(graph, columns, COMMONNESS)
