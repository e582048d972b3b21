"""Which works are judged, against plain sets on random graphs, and what is said of those that are not."""

from __future__ import annotations

import datetime
import logging

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import cache_cd_index, compute_cd_index, score_graph, shard_range
from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.graph.graph import build_graph
from sciscidata.judged import LeftOut, choose_population, choose_works, is_judged, window_of
from sciscidata.label_thresholds import LabelThresholds, compute_labels
from sciscidata.records.last_year_of_data import find_last_year
from sciscidata.schemas import CD_SCORES
from tests import oracles
from tests.disruption.test_index import citing_graph as citing_graph
from tests.disruption.test_index import edge_lists, frames, years_of_works

WINDOWS = (1, 3, None)


def expected_of(times, last_year, window, fields=None, ends=None):
    """Whether each window is over, by the definition: its last year or day lies before 1 January of the last year."""
    found = {}
    for work, time in times.items():
        end = (ends or {}).get((fields or {}).get(work), last_year)
        if time is None or window is None or end is None:
            found[work] = None
        elif isinstance(time, int):
            found[work] = oracles.end_of(time, window) < end
        else:
            found[work] = oracles.end_of(time, window) < datetime.date(end, 1, 1)
    return found


def last_year_of(times):
    years = [time if isinstance(time, int) else time.year for time in times.values() if time is not None]
    return find_last_year({year: years.count(year) for year in years})


def by_work(scores, column):
    return dict(scores.select("work_id", column).rows())


@given(years_of_works, edge_lists, st.sampled_from(["focal", "cited"]))
@settings(max_examples=60)
def test_a_window_is_over_if_its_last_year_lies_before_the_last_year_of_the_data(years, edges, window_from):
    windows = WINDOWS if window_from == "focal" else WINDOWS[:-1]
    config = CDConfig(window_years=2, windows=windows, window_from=window_from, same_year=True)
    works, citations = frames(years, edges)
    scores = compute_cd_index(works, citations, config, n_threads=1).collect()
    last_year = last_year_of(years)
    for ending, window in config.all_windows.items():
        expected = expected_of(years, last_year, window)
        assert by_work(scores, f"window_complete{ending}") == expected
        counts = oracles.cd_family(years, edges, config, window)
        judged = {
            work: years[work] is not None
            and expected[work] is not False
            and counts[work]["n_i"] + counts[work]["n_j"] > 0
            for work in years
        }
        assert by_work(scores.with_columns(judged=is_judged(ending)), "judged") == judged


dates = st.dates(datetime.date(1999, 10, 1), datetime.date(2002, 3, 31))


@given(st.dictionaries(st.integers(1, 14), st.none() | dates, min_size=1), edge_lists)
@settings(max_examples=60)
def test_by_dates_the_last_day_of_the_window_lies_before_1_january_of_the_last_year(days, edges):
    works, citations = frames({work: day and day.year for work, day in days.items()}, edges)
    works = works.with_columns(publication_date=pl.Series([*days.values()], dtype=pl.Date))
    config = CDConfig(window_years=1, windows=("90d", "3mo", "13mo", 0, None), time="publication_date", same_year=True)
    scores = compute_cd_index(works, citations, config, n_threads=1).collect()
    for ending, window in config.all_windows.items():
        assert by_work(scores, f"window_complete{ending}") == expected_of(days, last_year_of(days), window)


def large_fields(n: int, *, old_until: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Works of two fields, n a year from 1990: one ends in 2009, one in ``old_until``."""
    parts = [(field, year) for field, last in (("new", 2009), ("old", old_until)) for year in range(1990, last + 1)]
    rows = [part for part in parts for _ in range(n)]
    works = pl.DataFrame(rows, {"primary_field": pl.String, "publication_year": pl.Int32}, orient="row")
    works = works.with_columns(work_id=pl.int_range(1, pl.len() + 1)).sample(fraction=1.0, shuffle=True, seed=1)
    return works, pl.DataFrame({"citing_id": [5], "cited_id": [1]})


@pytest.mark.parametrize("n", [99, 100])
@pytest.mark.parametrize("time", ["publication_year", "publication_date"])
def test_a_field_that_ends_earlier_has_windows_of_its_own_if_it_is_large(n, time):
    works, citations = large_fields(n, old_until=2004)
    works = works.with_columns(publication_date=pl.date(pl.col("publication_year"), 7, 1))
    config = CDConfig(window_years=5, windows=(10, None), time=time)
    scores = compute_cd_index(works, citations, config).collect()
    years = dict(works.select("work_id", "publication_year").rows())
    fields = dict(works.select("work_id", "primary_field").rows())
    ends = {"old": 2004} if n == 100 else {}
    for ending, window in config.all_windows.items():
        assert by_work(scores, f"window_complete{ending}") == expected_of(years, 2009, window, fields, ends)


def test_fields_are_a_category_or_missing_as_well():
    works, citations = large_fields(100, old_until=2004)
    config = CDConfig()
    of_text = compute_cd_index(works, citations, config).sort("work_id").collect()
    of_category = works.with_columns(pl.col("primary_field").cast(pl.Categorical))
    assert compute_cd_index(of_category, citations, config).sort("work_id").collect().equals(of_text)
    without = compute_cd_index(works.drop("primary_field"), citations, config).collect()
    assert without["window_complete"].sum() == of_text["window_complete"].sum() + 5 * 100


def test_files_of_years_and_shares_of_works_have_the_same_columns(citing_graph, tmp_path):
    config = CDConfig(windows=(2, None))
    whole = score_graph(citing_graph, config)
    assert whole.columns[-3:] == ["window_complete", "window_complete_2", "window_complete_all"]
    assert 0 < whole["window_complete"].sum() < whole["window_complete"].count() <= whole.height
    assert pl.read_parquet(cache_cd_index(citing_graph, tmp_path, config) / "*.parquet").equals(whole)
    shares = [shard_range(citing_graph, i, 3) for i in range(3)]
    assert pl.concat(score_graph(citing_graph, config, focal=share) for share in shares).equals(whole)


def test_scores_that_are_given_need_no_such_column():
    assert "window_complete" not in CD_SCORES


def test_compute_cd_index_says_once_how_many_works_are_judged(caplog):
    works, citations = large_fields(3, old_until=2009)
    citations = works.select(citing_id="work_id").join(works.select(cited_id="work_id"), how="cross")
    with caplog.at_level(logging.INFO):
        scores = compute_cd_index(works, citations)
        assert not [text for text in caplog.messages if "judged" in text]
        found = scores.collect()
    index = found.filter(pl.col("cd_index").is_not_null())
    n_open = index.filter(~pl.col("window_complete")).height
    assert [text for text in caplog.messages if "judged" in text] == [
        f"compute_cd_index: of {index.height} works with an index {index.height - n_open} are judged. In the window 0 "
        f"are uncited; of {n_open} the window is not over."
    ]


SCORES = pl.DataFrame(
    {
        "cd_index": [0.5, 0.0, 0.1, None, 0.0],
        "n_i": [1, 0, 1, 3, 0],
        "n_j": [0, 0, 1, 1, 0],
        "window_complete": [True, True, False, True, None],
    },
    schema_overrides={"n_i": pl.UInt32, "n_j": pl.UInt32},
)


def test_works_that_do_not_count_are_counted_once_and_only_with_a_value():
    rows, left_out = choose_population(SCORES.lazy(), "cd_index", "judged", "demo")
    assert rows.collect()["cd_index"].to_list() == [0.5, None]
    assert left_out == LeftOut(judged=1, open=1, uncited=2)
    assert left_out.describe() == (" Left out: 2 works uncited in the window and 1 work whose window is not over.")
    rows, left_out = choose_population(SCORES.lazy(), "cd_index", "all", "demo")
    assert (rows.collect().height, left_out.judged, left_out.is_any) == (5, 4, False)
    said = " Counted too: 2 works uncited in the window and 1 work whose window is not over."
    assert left_out.describe() == said


@pytest.mark.parametrize(
    ("missing", "kept", "said"),
    [
        (["window_complete"], 3, "Works whose window is not over may be among them."),
        (["n_i"], 5, "Works that are uncited, or whose window is not over, may be among them."),
        (["n_i", "n_j"], 5, "Works that are uncited, or whose window is not over, may be among them."),
    ],
)
def test_what_is_not_known_is_said(missing, kept, said, caplog):
    with caplog.at_level(logging.INFO):
        rows, left_out = choose_population(SCORES.drop(missing).lazy(), "cd_index", "judged", "demo")
    assert rows.collect().height == kept
    assert left_out.describe().endswith(said)
    assert f"lacks {missing[0]}" in caplog.text
    assert "Join the scores of compute_cd_index" in caplog.text


def test_no_other_column_leaves_works_out_and_no_other_word_is_taken():
    assert choose_works(SCORES.columns, "z_p10", "judged").counts is None
    assert choose_works(SCORES.columns, "z_p10", "judged").lacks == ()
    with pytest.raises(ConfigError, match="population"):
        choose_works(SCORES.columns, "cd_index", "cited")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("column", "window"),
    [
        ("cd_index", ""),
        ("cd_index_10", "_10"),
        ("mcd_index_all", "_all"),
        ("di3_index_18mo", "_18mo"),
        ("di_nok_index", ""),
        ("dependence_90d", "_90d"),
        ("label_confidence", ""),
        ("disruption_label_10", "_10"),
        ("p_neutral", ""),
        ("cd_index_percentile", ""),
        ("cd_index_10_percentile", "_10"),
        ("novelty_label", None),
        ("n_i", None),
        ("cd_index_of_mine", None),
    ],
)
def test_the_name_of_a_measure_says_its_window(column, window):
    assert window_of(column) == window


def test_index_order_is_time_order_also_by_day():
    years, day = {1: 2000, 2: 2000, 3: 2001}, datetime.date
    works, citations = frames(years, [(3, 1), (3, 2), (1, 9)])
    works = works.with_columns(publication_date=pl.Series([day(2000, 9, 30), day(2000, 10, 1), day(2001, 5, 5)]))
    graph = build_graph(works, citations, time="publication_date")
    scores = score_graph(graph, CDConfig(windows=("3mo",), time="publication_date"))
    assert scores.select("work_id", "window_complete_3mo").rows() == [(1, True), (2, False), (3, False)]


def labelled_scores():
    return SCORES.with_columns(cd_index_10=pl.Series([0.5, -0.5, None, 0.0, 0.0]))


@pytest.mark.parametrize("kind", ["eager", "lazy"])
def test_compute_labels_labels_every_window_and_says_once_how_many_are_not_judged(kind, caplog):
    scores = labelled_scores()
    with caplog.at_level(logging.INFO):
        labelled = compute_labels(scores if kind == "eager" else scores.lazy())
        assert len(caplog.messages) == (kind == "eager")
        found = labelled.collect()
    assert caplog.messages == [
        "compute_labels: 3 of 4 labels are of works that are not judged: 2 uncited in the window, and of 1 the window "
        "is not over."
    ]
    assert found["disruption_label"].to_list() == ["disruptive", "neutral", "disruptive", None, "neutral"]
    assert found["disruption_label_10"].to_list() == ["disruptive", "consolidating", None, "neutral", "neutral"]
    assert found.drop("disruption_label", "disruption_label_10").equals(scores)


@pytest.mark.parametrize("kind", ["eager", "lazy"])
def test_an_index_that_no_work_can_have_is_warned_of(kind, caplog):
    rows = pl.DataFrame({"cd_index": [5.0, -1.0, None, 1.0], "cd_index_10": [0.5, -47.0, float("nan"), -2.0]})
    for scores in (rows, labelled_scores().head(4).with_columns(rows)):
        caplog.clear()
        found = compute_labels(scores if kind == "eager" else scores.lazy()).collect()
        assert found["disruption_label"].to_list() == ["disruptive", "consolidating", None, "disruptive"]
        one, two = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
        assert "1 value lies beyond -1 to 1 in cd_index, up to 5." in one
        assert "2 values lie beyond -1 to 1 in cd_index_10, up to 47." in two
    caplog.clear()
    compute_labels(pl.DataFrame({"cd_index": [1.0, -1.0, 0.0, None]})).collect()
    assert not caplog.messages


def test_ranks_are_those_of_judged_works_and_of_one_index():
    years = pl.Series([1993] * 200, dtype=pl.Int32)
    scores = pl.DataFrame({"cd_index": [i / 200 for i in range(200)], "n_i": 1, "n_j": 0}).with_columns(
        primary_field=pl.lit("Art"), publication_year=years, window_complete=pl.int_range(pl.len()) < 100
    )
    rule = LabelThresholds.fit(scores.cast({"n_i": pl.UInt32, "n_j": pl.UInt32}))
    assert rule.cells["Art 1990"][3] == 0.45
    assert LabelThresholds.fit(scores.drop("window_complete").cast({"n_i": pl.UInt32, "n_j": pl.UInt32})) != rule
    both = compute_labels(scores.with_columns(cd_index_10=pl.lit(0.9)), rule).collect()
    assert "disruption_label_10" not in both.columns
    with pytest.raises(SchemaMismatchError, match="primary_field"):
        compute_labels(scores.drop("primary_field"), rule)
