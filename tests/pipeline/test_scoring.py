"""Novelty joined onto other scores: the same rows, and exactly what compute_atypicality says of them."""

from __future__ import annotations

import polars as pl
import pytest

from sciscidata.disruption.index import compute_cd_index
from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.label_thresholds import compute_labels
from sciscidata.novelty.atypicality import compute_atypicality, join_atypicality
from sciscidata.novelty.background import VenuePairs, write_null_model
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.schemas import ATYPICALITY, CD_SCORES
from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic


@pytest.fixture(scope="module")
def world():
    corpus = scan_synthetic(SyntheticConfig(n_works=3_000))
    return corpus.works.collect().lazy(), corpus.citations.collect().lazy()


def test_scores_keep_their_rows_and_gain_the_columns_of_atypicality(world):
    works, citations = world
    scores = compute_cd_index(works, citations).collect().sample(fraction=0.5, shuffle=True, seed=1)
    joined = join_atypicality(scores, works, citations, NoveltyConfig())
    assert joined.collect_schema() == {**CD_SCORES, "window_complete": pl.Boolean(), **ATYPICALITY}
    got = joined.collect()
    assert got.select(scores.columns).equals(scores)
    expected = compute_atypicality(works, citations).collect()
    assert (
        got.select(ATYPICALITY.names())
        .sort("work_id")
        .equals(expected.join(scores, on="work_id", how="semi").sort("work_id"))
    )
    assert got["z_p10"].count() > 1_000


def test_a_work_that_has_no_row_in_works_is_null(world):
    works, citations = world
    got = join_atypicality(pl.LazyFrame({"work_id": [-1]}), works, citations, NoveltyConfig()).collect()
    assert got.row(0) == (-1, None, None, None, None, None)


def test_without_novelty_the_columns_are_there_and_null(world):
    works, citations = world
    scores = compute_cd_index(works, citations)
    with_novelty = join_atypicality(scores, works, citations, NoveltyConfig())
    assert with_novelty.collect_schema() == join_atypicality(scores, works, citations, None).collect_schema()
    again = join_atypicality(with_novelty, works, citations, None).collect()  # replaces what an earlier call has added
    assert again.height == 3_000
    assert all(again[name].null_count() == 3_000 for name in ATYPICALITY if name != "work_id")
    labelled = compute_labels(again).collect()
    assert labelled["novelty_label"].null_count() == 3_000
    assert labelled["disruption_label"].count() > 1_000


def test_nothing_runs_before_collect_and_mistakes_are_named_at_once(world):
    works, citations = world

    def fail() -> pl.DataFrame:
        raise AssertionError("it ran")

    broken = pl.defer(fail, schema=citations.collect_schema())
    join_atypicality(pl.LazyFrame({"work_id": [1]}), works, broken, NoveltyConfig())
    with pytest.raises(SchemaMismatchError, match="join_atypicality: scores lacks column 'work_id'"):
        join_atypicality(pl.LazyFrame({"id": [1]}), works, citations, NoveltyConfig())
    with pytest.raises(ConfigError, match="needs a NoveltyConfig"):
        join_atypicality(pl.LazyFrame({"work_id": [1]}), works, citations, "analytic")


def test_a_part_of_a_corpus_has_the_scores_of_the_whole_with_its_background(world, tmp_path):
    works, citations = world
    whole = compute_atypicality(works, citations).drop_nulls("z_p10").collect()
    some = whole["work_id"].sort().gather_every(50)
    table = write_null_model(VenuePairs.of(works, citations), tmp_path / "pairs.parquet")
    own = citations.filter(pl.col("citing_id").is_in(some.implode()))
    got = join_atypicality(some.to_frame(), works, own, NoveltyConfig(), background=table).collect()
    assert got.equals(some.to_frame().join(whole, on="work_id", how="left", maintain_order="left"))
    thin = join_atypicality(some.to_frame(), works, own, NoveltyConfig()).collect()
    assert not thin.equals(got)
