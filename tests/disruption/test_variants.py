"""Variants of the disruption index: against plain sets, and against the numbers that CrossDI published."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import add_indices, compute_cd_variants, variants_of
from sciscidata.errors import ConfigError
from tests import oracles
from tests.disruption.test_index import configs, edge_lists, frames, years_of_works
from tests.real_graphs import scan_real


@given(years_of_works, edge_lists, configs(), st.integers(1, 3))
@settings(max_examples=40)
def test_variants_equal_plain_sets_whatever_the_options(years, edges, config, least):
    config = replace(config, di_l=least)
    expected = oracles.cd_family(years, edges, config)
    dependences = [row["dependence"] for row in expected.values() if row and row["dependence"] is not None]
    for row in compute_cd_variants(*frames(years, edges), config, n_threads=1).collect().rows(named=True):
        want = expected[row["work_id"]]
        variants = {name: row[name] for name in ("orig_base", "inverse_dependence", f"di{least}_nok_index")}
        if want is None or want["dependence"] is None:
            assert set(variants.values()) == {None}
            continue
        n_strong, n_citers = want[f"n_j{least}"], want["n_i"] + want["n_j"]
        assert (row[f"n_j{least}"], row[f"di{least}_index"]) == (n_strong, want[f"di{least}_index"])
        n_missing = n_citers * want["n_refs"] - want["n_shared"]
        if want["n_refs"]:
            assert variants["orig_base"] == pytest.approx(n_missing / (n_citers * want["n_refs"]), abs=1e-15)
        else:
            assert variants["orig_base"] is None
        assert variants["inverse_dependence"] == 1 + (max(dependences) - want["dependence"])
        strong = want["n_i"] + n_strong
        assert variants[f"di{least}_nok_index"] == ((want["n_i"] - n_strong) / strong if strong else None)


def test_the_largest_dependence_is_that_of_all_works_whichever_are_asked_for():
    works, citations = scan_real()
    scores = compute_cd_variants(works, citations, CDConfig(family=True, windows=(10,), di_l=2), n_threads=1)
    everything = scores.collect().sort("work_id")
    few = pl.col("work_id") < everything["work_id"].median()
    assert scores.filter(few).sort("work_id").collect().equals(everything.filter(few))
    assert everything["inverse_dependence_10"].min() == 1
    assert everything["orig_base_10"].is_between(0, 1).all()
    assert everything.filter(pl.col("orig_base") == 1)["n_shared"].max() == 0


def test_formulas_give_the_published_values_of_crossdi(shared_data):
    for path in (shared_data / "precomputed").glob("crossdi_*.parquet"):
        assert_formulas_give(pl.read_parquet(path))


def assert_formulas_give(published: pl.DataFrame) -> None:
    cited = published.filter(pl.col("DEP").is_not_null())
    n_citers = pl.col("N_F") + pl.col("N_B")
    # How many references a work has is not published. It follows from both columns, and is the same at every age.
    n_refs = (pl.col("DEP") / (1 - pl.col("Orig_base"))).filter(pl.col("DEP") > 0).round().median().over("DOI")
    counts = cited.with_columns(n_refs=n_refs).drop_nulls("n_refs")
    counts = counts.select(
        pl.col("Y", "Orig_base", "invDEP", "DI", "DI_5", "DI^noR"),
        pl.col("N_R").alias("n_k"),
        pl.col("n_refs").cast(pl.UInt32),
        n_i=pl.col("N_F").cast(pl.UInt32),
        n_j=pl.col("N_B").cast(pl.UInt32),
        n_j5=pl.col("N_B^5").cast(pl.UInt32),
        n_shared=(pl.col("DEP") * n_citers).round().cast(pl.Int64),
        dependence="DEP",
    )
    assert counts.height > 900
    variants = variants_of("", 5)
    made = counts.with_columns(
        orig_base=variants["orig_base"], inverse_dependence=variants["inverse_dependence"].over("Y")
    )
    assert (made["orig_base"] - made["Orig_base"]).abs().max() < 1e-15
    assert (made["inverse_dependence"] - made["invDEP"]).abs().max() < 2e-14  # of numbers up to 38
    indexed = counts.with_columns(work_id=pl.int_range(pl.len()), n_to_date=0, dependence=None)
    ours = add_indices(indexed, CDConfig(family=True, zero_references="keep"))
    for column, theirs in {"cd_index": "DI", "di5_index": "DI_5", "di_nok_index": "DI^noR"}.items():
        assert (ours[column] - counts[theirs]).abs().max() < 1e-15


def test_an_l_without_the_family_is_refused():
    with pytest.raises(ConfigError, match=r"di_l has no effect without the family\. Set CDConfig\.family=True too"):
        CDConfig(di_l=3)
