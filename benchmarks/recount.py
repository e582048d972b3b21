"""n_i, n_j and n_k of some works by joins over the citations, which share nothing with the graph or the kernels."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

SEED = 20_260_101
WINDOW_YEARS = 5


class Neighbourhood(NamedTuple):
    """All that CD_5 of some works depends on."""

    focal: pl.DataFrame  # focal, y
    refs: pl.DataFrame  # focal, paper
    cites: pl.DataFrame  # citer, cited_id, publication_year: who cites a focal work or a reference


def read_neighbourhood(works: pl.LazyFrame, citations: pl.LazyFrame, n: int) -> Neighbourhood:
    """Choose ``n`` random works, and read what they depend on without holding the graph."""
    citations = citations.filter(pl.col("citing_id") != pl.col("cited_id"))
    ids = works.select("work_id").collect(engine="streaming")["work_id"]
    chosen = pl.LazyFrame({"focal": ids.sample(n, seed=SEED)})
    del ids
    focal = works.join(chosen, left_on="work_id", right_on="focal", how="semi").collect(engine="streaming")
    focal = focal.rename({"work_id": "focal", "publication_year": "y"})
    refs = citations.join(focal.lazy(), left_on="citing_id", right_on="focal", how="semi").collect(engine="streaming")
    refs = refs.unique().rename({"citing_id": "focal", "cited_id": "paper"})
    papers = pl.concat([focal.select(paper="focal"), refs.select("paper")]).unique()
    cites = citations.join(papers.lazy(), left_on="cited_id", right_on="paper", how="semi").collect(engine="streaming")
    citers = cites.select(work_id="citing_id").unique()
    years = works.join(citers.lazy(), on="work_id", how="semi").collect(engine="streaming")
    cites = cites.unique().join(years, left_on="citing_id", right_on="work_id").rename({"citing_id": "citer"})
    return Neighbourhood(focal, refs, cites)


def count_differences(near: Neighbourhood, scores: pl.DataFrame) -> int:
    """Count the focal works whose n_i, n_j or n_k in CD_SCORES is another one than that of the joins."""

    def citers_of(pairs: pl.DataFrame) -> pl.DataFrame:
        age = pl.col("publication_year") - pl.col("y")
        found = pairs.join(near.cites, left_on="paper", right_on="cited_id").filter(age.is_between(1, WINDOW_YEARS))
        return found.select("focal", "citer").unique()

    n_same = 0
    for some in near.focal.iter_slices(1_000):
        of_focal = citers_of(some.with_columns(paper="focal"))
        of_refs = citers_of(near.refs.join(some, on="focal"))
        both = of_focal.join(of_refs, on=["focal", "citer"])
        counted = some.select("focal")
        for name, pairs in (("f", of_focal), ("r", of_refs), ("j", both)):
            counted = counted.join(pairs.group_by("focal").len(name), on="focal", how="left")
        rows = counted.fill_null(0).join(scores, left_on="focal", right_on="work_id", validate="1:1")
        same = (pl.col("n_i") + pl.col("n_j") == pl.col("f"), pl.col("n_k") + pl.col("n_j") == pl.col("r"))
        n_same += rows.filter(pl.col("n_j") == pl.col("j"), *same).height
    return near.focal.height - n_same
