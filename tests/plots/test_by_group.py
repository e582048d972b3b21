"""A statistic by group is what Polars computes; its interval holds, also where a work has several rows."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal

from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError
from sciscidata.intervals import student, wilson_interval
from sciscidata.plots import measure_by, plot_by

RNG = np.random.default_rng(7)
PAPERS = pl.DataFrame(
    {
        "work_id": np.arange(4_000),
        "team_size": RNG.geometric(0.3, 4_000),
        "primary_field": RNG.choice(["Law", "Medicine", "Physics"], 4_000),
        "cd_index": RNG.normal(size=4_000).round(1),
    }
).with_columns(is_top=pl.col("cd_index") > 1)


def test_without_repeated_works_values_and_intervals_are_the_usual_ones():
    mean = measure_by(PAPERS.sample(fraction=1, shuffle=True, seed=1), "team_size")
    expected = PAPERS.group_by("team_size").agg(
        n=pl.len().cast(pl.Int64), value=pl.col("cd_index").mean(), sd=pl.col("cd_index").std()
    )
    expected = expected.sort("team_size")
    assert mean.select("team_size", "n", "n_works").equals(expected.select("team_size", "n", n_works="n"))
    half = student(expected["n"].to_numpy() - 1.0) * expected["sd"].to_numpy() / np.sqrt(expected["n"].to_numpy())
    low, high = expected["value"].to_numpy() - half, expected["value"].to_numpy() + half
    for name, numbers in (("value", expected["value"].to_numpy()), ("low", low), ("high", high)):
        np.testing.assert_allclose(mean[name].fill_null(np.nan), numbers, rtol=1e-9, atol=1e-12)
    share = measure_by(PAPERS, "team_size", "is_top", stat="share")
    top = PAPERS.group_by("team_size").agg(pl.col("is_top").sum()).sort("team_size")["is_top"]
    low, high = wilson_interval(top / expected["n"], expected["n"])
    np.testing.assert_allclose(np.c_[share["low"], share["high"]], np.c_[low, high], atol=1e-12)
    median = measure_by(PAPERS, "primary_field", by="team_size", stat="median")
    wanted = PAPERS.group_by("primary_field", "team_size").agg(value=pl.col("cd_index").median())
    wanted = wanted.sort("primary_field", "team_size")
    assert median.select("primary_field", "team_size").equals(wanted.drop("value"))
    assert median["value"].to_list() == pytest.approx(wanted["value"].to_list())


def test_a_percentile_is_the_place_of_the_median_among_all_works():
    percentile = measure_by(PAPERS, "primary_field", stat="percentile")
    rank = (pl.col("cd_index").rank("average") - 0.5) / pl.len() * 100
    wanted = PAPERS.with_columns(rank=rank).group_by("primary_field").agg(pl.col("rank").median()).sort("primary_field")
    assert percentile["value"].to_list() == pytest.approx(wanted["rank"].to_list())


@pytest.mark.parametrize(("stat", "truth"), [("mean", 0.0), ("median", 0.0), ("share", 0.5)])
@pytest.mark.parametrize("most_rows", [1, 6])
def test_in_95_of_100_worlds_the_interval_holds_the_truth(stat, truth, most_rows):
    n_worlds, n_works = 1_500, 80
    rows = np.repeat(np.arange(n_worlds * n_works), RNG.integers(1, most_rows, n_worlds * n_works, endpoint=True))
    effect = RNG.normal(size=n_worlds * n_works)
    score = 0.8 * effect[rows] + 0.6 * RNG.normal(size=rows.size)
    frame = pl.DataFrame({"work_id": rows, "world": rows // n_works, "cd_index": score, "up": score > 0})

    def cover(frame: pl.DataFrame) -> float:
        found = measure_by(frame, "world", "up" if stat == "share" else "cd_index", stat=stat)
        return float(((found["low"] <= truth) & (truth <= found["high"])).mean())

    assert 0.935 <= cover(frame) <= 0.975
    if most_rows > 1:
        assert cover(frame.drop("work_id")) < 0.9  # rows taken as if each were a work


def test_groups_of_few_works_are_hollow_and_have_no_end_that_is_not_known():
    few = PAPERS.filter(pl.col("team_size") <= 3).vstack(PAPERS.filter(team_size=4).head(6))
    assert measure_by(few, "team_size", stat="median")["low"].is_null().to_list() == [False, False, False, True]
    assert measure_by(few.head(1), "team_size")["high"].to_list() == [None]
    (axes,) = plot_by(few, "team_size").axes
    hollow = [float(x) for line in axes.lines if line.get_markerfacecolor() == "white" for x in line.get_xdata()]
    assert hollow == [4.0]
    assert "Hollow: fewer than 30 works." in axes.figure.get_label()


def test_years_whose_citation_window_is_not_over_are_hollow_in_each_group():
    years = PAPERS.filter(pl.col("team_size") <= 3).with_columns(year=2014 + pl.col("team_size"))
    (axes,) = plot_by(years, "year", by="is_top", complete_until=2016).axes
    hollow = [float(x) for line in axes.lines if line.get_markerfacecolor() == "white" for x in line.get_xdata()]
    assert hollow == [2017.0, 2017.0]
    assert "Hollow: no complete citation window (after 2016)." in axes.figure.get_label()
    with pytest.raises(ConfigError, match="complete_until=2016 needs years, x='primary_field' has names"):
        plot_by(years, "primary_field", complete_until=2016)


def test_names_stand_by_value_and_each_group_of_the_second_column_has_a_colour():
    figure = plot_by(PAPERS.to_pandas(), "primary_field", stat="median", by="is_top", data="papers")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["False", "True"]
    value = dict(
        measure_by(PAPERS, "primary_field", stat="median", by="is_top")
        .group_by("primary_field")
        .agg(pl.col("value").mean())
        .rows()
    )
    names = [tick.get_text().partition(" (")[0] for tick in axes.get_yticklabels()]
    assert [value[name] for name in names] == sorted(value.values(), reverse=True)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_names_with_an_order_keep_it_in_rows_pictures_and_legends(library):
    names = ["2", "3-5", "10+"]
    team = pl.Series(RNG.choice(names, PAPERS.height))
    frame = PAPERS.with_columns(team=team.cast(pl.Enum(names)))
    if library == "pandas":
        frame = PAPERS.to_pandas().assign(team=pd.Categorical(team.to_list(), names, ordered=True))
    assert measure_by(frame, "team")["team"].to_list() == names
    (axes,) = plot_by(frame, "team").axes
    assert [tick.get_text().partition(" (")[0] for tick in axes.get_yticklabels()] == names
    legend = plot_by(frame, "primary_field", by="team").axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == names
    if library == "pandas":
        cut = frame.assign(team=pd.cut(frame.team_size, [0, 1, 9, 99]))
        assert measure_by(cut, "team")["team"].to_list() == ["(0, 1]", "(1, 9]", "(9, 99]"]


def test_a_second_call_on_the_same_axes_has_its_own_colour_and_hides_nothing_of_the_first():
    ours = Figure().subplots()
    figure = plot_by(PAPERS.filter(pl.col("team_size") < 9), "team_size", ax=ours, data="small")
    assert figure is ours.figure
    assert figure.get_label().endswith("Data: small.")
    limits = ours.get_xlim(), ours.get_ylim()
    plot_by(PAPERS.filter(pl.col("team_size").is_between(2, 3)), "team_size", ax=ours, data="middle")
    for (low, high), (first, last) in zip((ours.get_xlim(), ours.get_ylim()), limits, strict=True):
        assert low <= first
        assert high >= last
    assert ours.get_title() == ""
    handles, labels = ours.get_legend_handles_labels()
    assert labels == ["small", "middle"]
    assert handles[0].get_color() != handles[1].get_color()
    names = Figure().subplots()
    plot_by(PAPERS, "primary_field", ax=names)
    with pytest.raises(ConfigError, match="ax has the names of an earlier picture"):
        plot_by(PAPERS.head(9), "primary_field", ax=names)


def test_the_picture_of_an_index_ends_where_the_index_ends():
    works = pl.DataFrame({"year": [1, 1, 2, 2], "cd_index": [-1.0, 1.0, 1.0, -0.5]})
    assert measure_by(works, "year")["high"].max() > 9
    low, high = plot_by(works, "year").axes[0].get_ylim()
    assert -1.05 < low < -1
    assert 1 < high < 1.05


def test_percentiles_of_values_that_are_mostly_one_tie_warn_with_the_remedy(caplog):
    measure_by(PAPERS, "team_size", stat="percentile")
    assert not caplog.messages
    measure_by(PAPERS.with_columns(cd_index=pl.lit(0.0)), "team_size", stat="percentile")
    (message,) = caplog.messages
    assert message.startswith("measure_by: 4,000 of 4,000 works have cd_index 0")
    assert "population='judged' leaves uncited works out" in message


def test_the_example_by_label_and_year_is_what_plot_by_year_draws():
    labelled = pl.DataFrame(
        {
            "publication_year": [2000] * 3 + [2001] * 2,
            "disruption_label": ["disruptive", "neutral", None, "disruptive", "disruptive"],
        }
    )
    share = measure_by(pd.DataFrame(labelled.to_dict(as_series=False)), "publication_year", "disruptive", stat="share")
    assert share.select("n", "value").rows() == [(2, 0.5), (2, 1.0)]


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        (
            {"x": "team_sise"},
            SchemaMismatchError,
            "plot_by: the frame lacks column 'team_sise'. Did you mean team_size",
        ),
        ({"x": "team_size", "y": "primary_field"}, SchemaMismatchError, "is a column of String, mean needs numbers"),
        ({"x": "team_size", "stat": "avg"}, ConfigError, "stat is 'avg', needs one of mean, median, percentile, share"),
        ({"x": "team_size", "y": "disruptve", "stat": "share"}, ConfigError, "Did you mean disruptive"),
        ({"x": "team_size", "stat": "share"}, ConfigError, "y is 'cd_index', needs one of"),
        ({"x": "work_id"}, ConfigError, "x='work_id' has 4,000 groups, a picture has room for 500. Make classes"),
        ({"x": "team_size", "by": "team_size"}, ConfigError, "by is 'team_size', and so is x"),
        ({"x": "team_size", "by": "cd_index"}, ConfigError, "groups, a picture has 7 colours. Keep fewer"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, error, told):
    with pytest.raises(error, match=told):
        plot_by(PAPERS, **options)


def test_rows_that_lack_a_group_are_counted_and_a_column_of_nulls_is_refused():
    noted = PAPERS.with_columns(
        note=pl.when(pl.int_range(pl.len()) % 4 == 0).then("team_size"), none=pl.lit(None, pl.Int64)
    )
    assert " Not shown: 3,000 works without note." in plot_by(noted, "note").get_label()
    labels = noted.with_columns(disruption_label=pl.when(pl.col("note").is_not_null()).then(pl.lit("disruptive")))
    caption = plot_by(labels, "team_size", "disruptive", stat="share").get_label()
    assert " Not shown: 3,000 works without a label." in caption
    with pytest.raises(
        EmptyInputError, match="plot_by: there is nothing to draw: column 'none' is null in all 4,000 rows"
    ):
        plot_by(noted, "none")


def test_groups_are_refused_that_are_named_twice_or_like_a_column_of_the_result():
    with pytest.raises(ConfigError, match="by is 'team_size', and so is x"):
        measure_by(PAPERS, "team_size", by="team_size")
    for name in ("n", "value"):
        with pytest.raises(ConfigError, match=f"a column '{name}' of its own"):
            measure_by(PAPERS.rename({"team_size": name}), name)


def test_a_picture_of_a_column_over_itself_without_a_value_is_refused():
    with pytest.raises(EmptyInputError, match="column 'none' is null in all 4,000 rows"):
        plot_by(PAPERS.with_columns(none=pl.lit(None, pl.Int64)), "none", "none")


def scored(n: int = 60) -> pl.DataFrame:
    """Works of two years; in each, a third is uncited, and the windows of the second are open."""
    at = pl.int_range(n, eager=True)
    return pl.DataFrame({"work_id": at, "publication_year": (2000 + at // (n // 2)).cast(pl.Int32)}).with_columns(
        n_i=pl.when(at % 3 > 0).then(2).otherwise(0).cast(pl.UInt32),
        n_j=pl.lit(0, pl.UInt32),
        cd_index=pl.when(at % 3 > 0).then(0.5).otherwise(0.0),
        disruption_label=pl.when(at % 3 > 0).then(pl.lit("disruptive")).otherwise(pl.lit("neutral")),
        window_complete=at < n // 2,
    )


@pytest.mark.parametrize(("y", "stat", "value"), [("cd_index", "mean", 0.5), ("disruptive", "share", 1.0)])
def test_judged_works_count_and_all_on_request(y, stat, value, caplog):
    with caplog.at_level(logging.INFO):
        judged = measure_by(scored(), "publication_year", y, stat=stat)
    assert judged.select("publication_year", "n", "value").rows() == [(2000, 20, value)]
    (message,) = caplog.messages
    assert message.startswith(
        "measure_by: 20 judged works count. Left out: 10 works uncited in the window and 30 works"
    )
    caplog.clear()
    every = measure_by(scored(), "publication_year", y, stat=stat, population="all")
    assert every.select("n", "value").rows() == [(30, pytest.approx(value * 2 / 3))] * 2
    assert not caplog.messages
    caption = plot_by(scored(), "publication_year", y, stat=stat).get_label()
    assert caption.endswith(" Left out: 10 works uncited in the window and 30 works whose window is not over.")
    caption = plot_by(scored(), "publication_year", y, stat=stat, population="all").get_label()
    assert caption.endswith(
        "Hollow: no complete citation window (after 2000). Counted too: 10 works uncited in the window and 30 works "
        "whose window is not over."
    )


def test_without_citers_all_works_count_and_the_caption_says_so():
    caption = plot_by(scored().drop("n_i"), "publication_year").get_label()
    assert caption.endswith(" Works that are uncited, or whose window is not over, may be among them.")
    assert "(" not in caption.partition("Hollow")[2].replace("(after 2000)", "")


def test_rows_of_one_work_are_told_by_the_first_column_of_ids_or_by_the_one_that_is_named(caplog):
    twice = pl.concat([PAPERS, PAPERS])
    once, by_id = measure_by(PAPERS, "team_size"), measure_by(twice, "team_size")
    text = twice.with_columns(original_id=pl.format("p{}", "work_id"))
    for frame, unit in (
        (text.drop("work_id"), ""),
        (text.rename({"original_id": "openalex_id"}).drop("work_id"), ""),
        (twice.rename({"work_id": "paper"}), "paper"),
    ):
        assert_frame_equal(measure_by(frame, "team_size", unit=unit), by_id)
    assert once["n_works"].equals(by_id["n_works"])
    assert not caplog.messages
    rows = measure_by(twice.drop("work_id"), "team_size")
    assert (rows["n_works"] == 2 * once["n_works"]).all()
    assert "every row counts as a work of its own" in caplog.text
    assert "unit=None" in caplog.text
    caplog.clear()
    assert_frame_equal(measure_by(twice.drop("work_id"), "team_size", unit=None), rows)
    assert_frame_equal(measure_by(twice, "team_size", unit=None), rows)
    assert not caplog.messages
    with pytest.raises(ConfigError, match="unit is 'work', needs a column of the frame"):
        measure_by(twice, "team_size", unit="work")


def test_no_row_that_counts_is_an_empty_table_and_no_picture():
    empty = pl.DataFrame(schema={"work_id": pl.Int64, "group": pl.String, "value": pl.Float64})
    table = measure_by(empty, "group", "value")
    assert table.is_empty()
    assert (
        table.schema == measure_by(pl.DataFrame([[1, "a", 0.5]], empty.schema, orient="row"), "group", "value").schema
    )
    with pytest.raises(EmptyInputError, match="nothing to draw"):
        plot_by(empty, "group", "value")
