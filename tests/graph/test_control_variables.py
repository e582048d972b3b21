"""Control variables count what a reader would count by hand; percentiles are ranks within a group."""

from __future__ import annotations

import logging

import polars as pl
import pytest

import sciscidata as ssd
from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.indicators import compute_control_variables, compute_percentile
from sciscidata.judged import is_judged


def test_references_and_citers_are_counted_once():
    works = pl.DataFrame(
        {
            "work_id": [1, 2, 3, 4],
            "publication_year": [2000, 2000, 2000, None],
            "primary_field": ["Law", "Law", "Law", "Law"],
            "cited_by_count": [2, 4, None, 9],
            "n_authors": [1, 5, None, 70_000],
        },
        schema_overrides={"publication_year": pl.Int32},
    )
    edges = [(2, 1), (2, 1), (2, 2), (2, 77), (3, 1), (3, 2), (99, 1), (None, 2)]
    citations = pl.DataFrame(edges, schema={"citing_id": pl.Int64, "cited_id": pl.Int64}, orient="row")
    found = compute_control_variables(works.to_pandas(), citations).sort("work_id").collect()
    assert found.rows() == [
        (1, 0, 3, None, pytest.approx(2 / 3), 1),
        (2, 2, 1, 0.5, pytest.approx(4 / 3), 5),
        (3, 2, 0, 1.0, None, None),
        (4, 0, 0, None, None, 70_000),
    ]
    without = compute_control_variables(works.drop("n_authors"), citations).sort("work_id").collect()
    assert without.drop("n_authors").equals(found.drop("n_authors"))
    assert (without.schema["n_authors"], without["n_authors"].null_count()) == (pl.Int32, 4)


def test_a_percentile_is_a_rank_within_field_and_year(caplog):
    corpus = ssd.scan_example()
    scored = ssd.compute_cd_index(corpus.works, corpus.citations).join(corpus.works, on="work_id")
    found = compute_percentile(scored, population="all", least=1).collect()
    for _, group in found.drop_nulls(["cd_index", "primary_field"]).group_by("primary_field", "publication_year"):
        expected = group["cd_index"].to_pandas().rank(pct=False).sub(0.5).div(group.height).mul(100)
        assert group["cd_index_percentile"].to_list() == pytest.approx(expected.to_list())
    is_placed = pl.col("cd_index").is_not_null() & pl.col("primary_field").is_not_null()
    assert found.filter(~is_placed)["cd_index_percentile"].null_count() == found.filter(~is_placed).height
    every = compute_percentile(scored, within=[]).collect()
    judged = every.filter(is_judged())
    assert judged["cd_index_percentile"].mean() == pytest.approx(50)
    assert every.filter(~is_judged())["cd_index_percentile"].null_count() == every.height - judged.height
    with pytest.raises(SchemaMismatchError, match=r"the scores lack column 'primary_field'.*within="):
        compute_percentile(scored.drop("primary_field"))
    compute_percentile(scored.with_columns(primary_field=pl.lit(None, pl.String))).collect()
    (message,) = caplog.messages
    assert "'primary_field' is null in all 4,381 rows, and so is cd_index_percentile" in message
    with pytest.raises(SchemaMismatchError, match="column 'title' is String, needs numbers"):
        compute_percentile(scored, "title")


def test_a_percentile_counts_judged_works_in_cells_of_ten_and_says_so(caplog):
    corpus = ssd.scan_example()
    scored = ssd.compute_cd_index(corpus.works, corpus.citations).join(corpus.works, on="work_id").collect()
    with caplog.at_level(logging.INFO):
        lazy = compute_percentile(scored)
        assert not caplog.messages
        found = lazy.collect()
    judged = scored.filter(is_judged(), pl.col("cd_index").is_not_null(), pl.col("primary_field").is_not_null())
    sizes = judged.group_by("primary_field", "publication_year").len()
    n_placed = int(sizes.filter(pl.col("len") >= 10)["len"].sum())
    assert 0 < found["cd_index_percentile"].count() == n_placed < judged.height
    assert f"{judged.height:,} judged works count. Left out: " in caplog.text
    assert (
        f"{judged.height - n_placed:,} works are in a cell of fewer than 10 works, and have no percentile"
        in caplog.text
    )
    assert found.columns == [*scored.columns, "cd_index_percentile"]
    alone = compute_percentile(scored, least=1).collect()["cd_index_percentile"]
    assert alone.count() == judged.height
    with pytest.raises(ConfigError, match="least"):
        compute_percentile(scored, least=0)
    other = scored.with_columns(z_median="cd_index")
    assert compute_percentile(other, "z_median", least=1).collect()["z_median_percentile"].count() > judged.height


def test_control_variables_carry_the_ids_of_the_source():
    corpus = ssd.scan_example()
    works = corpus.works.with_columns(original_id=pl.format("p{}", "work_id"))
    found = compute_control_variables(works, corpus.citations).collect()
    assert found.columns[:2] == ["work_id", "original_id"]
    assert (found["original_id"] == found.select(pl.format("p{}", "work_id")).to_series()).all()
    plain = compute_control_variables(corpus.works, corpus.citations).collect()
    assert found.drop("original_id").sort("work_id").equals(plain.sort("work_id"))
