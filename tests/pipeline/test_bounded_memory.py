"""What can be said of a work only beside all others, found without all of them in memory: it is the same."""

from __future__ import annotations

import math
import tempfile

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.make_sciscinet import make
from sciscidata._support import quantiles
from sciscidata.config import BuildConfig
from sciscidata.errors import NotEnoughWorksError
from sciscidata.label_thresholds import (
    LabelThresholds,
    compute_novelty_labels,
    conventionality_cut,
    find_conventionality_cut,
)
from sciscidata.novelty.atypicality import rank_on_disk, rescore
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.pipeline import build
from sciscidata.sampling.config import SplitConfig
from sciscidata.sources.sciscinet.source import SciSciNetConfig
from sciscidata.storage.spill import RowSpool

UZZI = LabelThresholds(novelty_rule="uzzi")
#: Numbers close together, far apart, equal, and the two zeros.
numbers = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, 1.0, math.nextafter(1.0, 2.0), -1.0, 5e-324, -5e-324, math.inf, -math.inf, math.nan]),
    st.floats(),
)


@example(few=0, values=[None, 0.0, 1.0], share=math.nextafter(1.0, 0.0))  # Polars rounds with a null among them
@given(
    few=st.sampled_from([1 << 20, 2, 0]),
    values=st.lists(numbers, max_size=40),
    share=st.one_of(st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.floats(0, 1)),
)
def test_a_quantile_that_is_counted_is_that_of_polars_whatever_fits_into_memory(few, values, share):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantiles, "_FEW", few)
        found = quantiles.lower_quantile(pl.LazyFrame({"z": values}, schema={"z": pl.Float64}), share)
    known = pl.Series(values, dtype=pl.Float64).fill_nan(None).drop_nulls()
    assert found == known.quantile(share, interpolation="lower")
    assert found != 0 or math.copysign(1, found) == 1


@example(values=[None, 0.0, 1.0], share=math.nextafter(1.0, 0.0))
@settings(max_examples=40)
@given(values=st.lists(numbers, max_size=20), share=st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_the_cut_of_labels_is_the_same_in_one_query_and_counted(values, share):
    scores = pl.LazyFrame({"z_median": values}, schema={"z_median": pl.Float64})
    thresholds = LabelThresholds(novelty_rule="uzzi", uzzi_median_share=share)
    assert (
        find_conventionality_cut(scores, thresholds) == scores.select(conventionality_cut(thresholds)).collect().item()
    )


groups = st.tuples(st.sampled_from([1990, 1991, -10, 2**31 - 1]), numbers, st.one_of(st.none(), st.floats(-1e9, 1e9)))


@settings(max_examples=50)
@given(few=st.sampled_from([1 << 20, 3, 0]), rows=st.lists(groups, max_size=60), cut=st.integers(0, 60))
def test_quantiles_that_are_counted_by_group_are_those_of_polars_to_the_last_bit(few, rows, cut):
    shares = (0.1, 0.5, 0.9, 1.0)
    schema = {"year": pl.Int32, "a": pl.Float64, "b": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.col("a", "b").fill_nan(None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantiles, "_FEW", few)
        found = quantiles.counted_quantiles(pl.concat([frame[cut:], frame[:cut]]).lazy(), "year", shares)
    expected = [
        (year, name, share, values.len(), *(values.quantile(share, how) + 0.0 for how in ("lower", "linear")))
        for (year,), part in frame.sort("year").group_by("year", maintain_order=True)
        for name in ("a", "b")
        for share in shares
        if (values := part[name].drop_nulls()).len()  # nulls among them cost Polars some bits
    ]
    assert repr(found.select("year", "column", "share", "n", "lower", "quantile").rows()) == repr(expected)


@pytest.mark.parametrize("kind", [pl.Int64, pl.Float32])
def test_numbers_of_another_type_are_counted_as_doubles(kind):
    rows = pl.LazyFrame({"year": [1, 1, 1], "z": [-3, 1, 2]}, schema={"year": pl.Int32, "z": kind})
    assert quantiles.counted_quantiles(rows, "year", [0.0, 0.75]).select("lower", "upper").rows() == [(-3, -3), (1, 2)]


def test_a_million_and_more_numbers_are_passed_over_until_few_are_left():
    values = np.random.default_rng(1).normal(0, 1e-3, 3_000_000) + 1
    assert quantiles.lower_quantile(pl.LazyFrame({"z": values}), 0.3) == np.quantile(values, 0.3, method="lower")


z = st.one_of(st.none(), st.sampled_from([-2.0, 0.0, -0.0, 1.5]), st.floats(-1e9, 1e9))
works = st.tuples(st.one_of(st.none(), st.sampled_from([1990, 1991, 2054, -10, 0, 2**31 - 1])), z, z)


@settings(max_examples=40)
@given(rows=st.lists(works, max_size=60))
def test_ranks_made_on_disk_are_those_made_in_memory(rows, tmp_path_factory):
    schema = {"publication_year": pl.Int32, "z_p10": pl.Float64, "z_median": pl.Float64}
    frame = (
        pl.DataFrame(rows, schema=schema, orient="row").with_row_index("work_id").with_columns(language=pl.lit("de"))
    )
    stale = frame.lazy().with_columns(novelty_score=pl.lit(7.0))
    ranked = rank_on_disk(stale, tmp_path_factory.mktemp("ranks"))
    expected = rescore(frame.lazy(), "rank").collect()
    assert ranked.collect_schema() == expected.schema
    assert ranked.collect(engine="streaming").sort("work_id").equals(expected)


@settings(max_examples=40)
@given(numbers=st.lists(st.integers(0, 5), max_size=50), cut=st.integers(0, 50))
def test_what_is_put_apart_by_number_is_all_there_in_its_order(numbers, cut, tmp_path_factory):
    folder = tmp_path_factory.mktemp("spool")
    rows = pl.DataFrame(
        {"row": range(len(numbers)), "text": [f"On {n}" for n in numbers]}, schema_overrides={"row": pl.Int64}
    )
    with RowSpool(folder, "rows") as spool:
        for part in (slice(cut), slice(cut, None)):
            spool.add(rows[part], np.array(numbers[part], np.int64))
    assert {path.name for path in folder.iterdir()} == {spool.path(number).name for number in set(numbers)}
    for number in set(numbers):
        kept = [row for row, there in enumerate(numbers) if there == number]
        assert pl.read_ipc(spool.path(number)).equals(rows[kept])


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_labels_with_a_cut_found_beforehand_are_those_without(engine):
    rng = np.random.default_rng(3)
    middle = rng.choice([*rng.normal(0, 5, 40), math.nan], 500)  # many are equal
    frame = pl.LazyFrame({"work_id": range(500), "z_p10": middle - rng.gamma(1, 3, 500), "z_median": middle})
    cut = find_conventionality_cut(frame, UZZI)
    labelled = compute_novelty_labels(frame, UZZI, cut=cut)
    assert "quantile" not in labelled.explain()
    assert "quantile" in compute_novelty_labels(frame, UZZI).explain()
    expected = compute_novelty_labels(frame, UZZI).collect()
    assert labelled.collect(engine=engine).sort("work_id").equals(expected)
    assert expected["novelty_label"].n_unique() == 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("sciscinet")
    make(home, 3_000, n_bytes=300)
    return home


def ranked(folder, tmp_path, n_train=30):
    places = {"out": tmp_path / "slice", "cache_dir": tmp_path / "cache"}
    split, novelty = SplitConfig(n_train=n_train, n_test=3), NoveltyConfig(score="rank")
    return BuildConfig(source=SciSciNetConfig(folder=folder), split=split, novelty=novelty, **places)


def test_what_lies_on_disk_for_a_draw_is_gone_after_it_and_after_one_that_failed(folder, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    assert build(ranked(folder, tmp_path)).train["novelty_score"].count() > 0
    with pytest.raises(NotEnoughWorksError):
        build(ranked(folder, tmp_path / "more", n_train=30_000))
    assert list(scratch.iterdir()) == []
