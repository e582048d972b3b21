"""Several windows in one pass: each has the scores of a run of its own, and trajectories hold the same numbers."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings

from sciscidata import indicators
from sciscidata.config import BuildConfig
from sciscidata.disruption.config import COMPAT, CDConfig
from sciscidata.disruption.index import cache_cd_index, compute_cd_index, score_graph
from sciscidata.errors import ConfigError
from sciscidata.graph.graph import build_graph
from sciscidata.pipeline import build, export_labelled
from sciscidata.plots import plot_cd_trajectory
from sciscidata.sources.synthetic.source import SyntheticConfig
from tests.disruption.test_index import citing_graph as citing_graph
from tests.disruption.test_index import configs, edge_lists, frames, of_window, years_of_works
from tests.real_graphs import scan_real

WINDOWS = (1, 3, 5, 10, None)


def assert_equals_runs_of_one_window(graph, config: CDConfig) -> None:
    together = score_graph(graph, config)
    assert together.select(score_graph(graph, replace(config, windows=())).columns).equals(
        score_graph(graph, replace(config, windows=()))
    )
    for window in config.windows:
        alone = score_graph(graph, replace(config, window_years=window, windows=()))
        assert of_window(together, window).equals(alone), window


@pytest.mark.parametrize("name", COMPAT)
def test_every_convention_has_in_one_pass_the_scores_of_single_runs_on_a_real_graph(name):
    windows = tuple(w for w in WINDOWS if w is not None or name != "pyscisci")
    assert_equals_runs_of_one_window(build_graph(*scan_real()), CDConfig.compat(name, windows=windows))


def test_threads_shares_and_files_change_nothing(citing_graph, tmp_path):
    for config in (CDConfig(windows=WINDOWS), CDConfig.compat("pyscisci", family=True, windows=(1, 2))):
        whole = score_graph(citing_graph, config, n_threads=1)
        assert score_graph(citing_graph, config, n_threads=3).equals(whole)
        shares = [range(0, 1_000), range(1_000, 1_700), range(1_700, 3_300)]
        assert pl.concat(score_graph(citing_graph, config, focal=share) for share in shares).equals(whole)
        folder = cache_cd_index(citing_graph, tmp_path, config)
        assert pl.scan_parquet(folder / "*.parquet").collect().equals(whole)
        assert folder != cache_cd_index(citing_graph, tmp_path, replace(config, windows=(1,)))


def test_without_further_windows_nothing_is_stated_of_them():
    assert "windows" not in CDConfig().stated()
    assert "time" not in CDConfig().stated()
    config = CDConfig(windows=(5, None), time="publication_date")
    assert CDConfig(**json.loads(json.dumps(config.stated()))) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windows": (5, 5)}, "CDConfig.windows holds 5 twice, needs each window once. Leave one out."),
        ({"windows": (-1,)}, "CDConfig.windows is (-1,), needs a list of windows: years from 0 to 9999, days ('90d')"),
        ({"windows": ("until17",)}, "a last year ('until2017')"),
        (
            {"windows": ("until2017",), "window_from": "cited", "same_year": True},
            "holds 'until2017', which ends at once",
        ),
        ({"windows": ("5 years",)}, "needs a list of windows"),
        (
            {"windows": (0,)},
            "CDConfig.windows holds 0, in which no later work appears. Set CDConfig.same_year=True too.",
        ),
        ({"windows": ("90d",)}, "holds '90d', and years have no days or months. Set CDConfig.time='publication_date'"),
        ({"time": "month"}, "CDConfig.time is 'month', needs one of publication_year, publication_date."),
        ({"windows": (None,), "window_from": "cited", "same_year": True}, "no window without end"),
    ],
)
def test_wrong_windows_are_refused(options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        CDConfig(**options)


@pytest.mark.parametrize("run", [build, export_labelled])
def test_windows_that_no_release_has_a_place_for_are_refused(tmp_path, run):
    cd = CDConfig(windows=(10,), time="publication_date")
    config = BuildConfig(source=SyntheticConfig(n_works=500), out=tmp_path / "out", cd=cd)
    with pytest.raises(ConfigError, match=r"CDConfig.windows, CDConfig.time have no effect: works are labelled by one"):
        run(config)
    assert not (tmp_path / "out").exists()


@given(years_of_works, edge_lists, configs())
@settings(max_examples=30)
def test_a_trajectory_holds_the_index_of_every_age(years, edges, config):
    works, citations = frames(years, edges)
    found = indicators.compute_cd_trajectory(works, citations, config, ages=[4, 1, 2]).sort("work_id", "age").collect()
    parts = [
        compute_cd_index(works, citations, replace(config, window_years=age))
        .drop("n_refs")
        .with_columns(age=pl.lit(age, pl.Int32))
        for age in (1, 2, 4)
    ]
    assert found.equals(pl.concat(parts).select(found.columns).sort("work_id", "age").collect())


def test_an_age_that_the_data_do_not_reach_is_null():
    years: dict[int, int | None] = {1: 1990, 2: 2000, 3: 2001, 4: None}
    works, citations = frames(years, [(2, 1), (3, 2)])
    found = indicators.compute_cd_trajectory(works, citations, ages=[1, 2, 3], last_year=2003)
    assert found.filter(work_id=2).sort("age").collect()["cd_index"].to_list() == [1.0, 1.0, None]
    assert found.filter(work_id=4).collect()["n_i"].to_list() == [None] * 3
    assert found.collect().height == 12


def test_wrong_ages_are_refused_before_anything_runs():
    works, citations = frames({1: 2000}, [])
    for ages in ([], [-1], [1.5], ["90d"], [None]):
        with pytest.raises(ConfigError, match="ages is"):
            indicators.compute_cd_trajectory(works, citations, ages=ages)
    with pytest.raises(ConfigError, match=r"CDConfig.windows has no effect: the ages are the windows"):
        indicators.compute_cd_trajectory(works, citations, CDConfig(windows=(3,)))


def test_the_picture_shows_mean_and_quartiles_of_each_age_or_chosen_works():
    values = {1: [1.0, 0.5, 0.0, None], 2: [0.5, -0.5, 0.0, 0.25]}
    rows = [(work, age, value) for age, column in values.items() for work, value in enumerate(column)]
    schema = {"work_id": pl.Int64, "age": pl.Int32, "cd_index": pl.Float64}
    trajectory = pl.LazyFrame(rows, schema=schema, orient="row")
    figure = plot_cd_trajectory(trajectory, data="four works")
    _, median, line, hollow = figure.axes[0].lines
    assert median.get_ydata().tolist() == [0.5, 0.125]
    assert hollow.get_ydata().tolist() == [0.5, 0.0625]  # the mean: each age has fewer than 30 works
    assert hollow.get_markerfacecolor() == "white"
    assert str(line.get_ydata().tolist()) == "[nan, nan]"
    title = "CD index of 4 works by age, with 3 to 4 at each age. Hollow: fewer than 30 works."
    said = "Works that are uncited, or whose window is not over, may be among them. Data: four works."
    assert figure.get_label() == f"{title} {said}"
    counts = {"n_i": pl.lit(1), "n_j": pl.lit(0), "window_complete": pl.col("age") < 2}
    judged = plot_cd_trajectory(trajectory.with_columns(**counts)).get_label()
    assert judged == (
        "CD index of 3 works by age, with 3 at each age. Hollow: fewer than 30 works. Left out: 4 works and ages whose "
        "window is not over."
    )
    chosen = plot_cd_trajectory(trajectory, works=[1, 3]).axes[0].lines
    assert [line.get_ydata().tolist() for line in chosen[1:]] == [[0.5, -0.5], [0.25]]
    named = trajectory.with_columns(work_id=pl.col("work_id") + 2**62, original_id=pl.format("p{}", "work_id"))
    for works in ([2**62 + 1], ["p1"]):
        assert plot_cd_trajectory(named, works=works).get_label() == "CD index of work p1 by its age."
    with pytest.raises(ConfigError, match="work 9 has no CD index at any age"):
        plot_cd_trajectory(trajectory, works=[9])
    with pytest.raises(ConfigError, match="works holds 11 works, needs at most 10"):
        plot_cd_trajectory(trajectory, works=range(11))


def test_a_window_until_a_year_ends_with_it_for_every_work_and_is_over_if_the_data_go_on():
    """As CD_2017 of others: a work of 2010 has seven years of citers, one of 2018 has none."""
    years = {1: 1990, 2: 2010, 3: 2017, 4: 2018, 5: 2018, 6: 2019}
    edges = [(2, 1), (3, 2), (4, 2), (4, 1), (5, 1), (6, 5)]
    works, citations = frames(years, edges)
    scores = compute_cd_index(works, citations, CDConfig(windows=("until2017", "until2019"))).collect()
    row = scores.row(by_predicate=pl.col("work_id") == 2, named=True)
    assert [row[f"{name}_until2017"] for name in ("n_i", "n_j", "n_k", "cd_index")] == [1, 0, 0, 1.0]
    assert [row[f"{name}_until2019"] for name in ("n_i", "n_j", "n_k", "cd_index")] == [1, 1, 1, 0.0]
    assert (row["window_complete_until2017"], row["window_complete_until2019"]) == (True, False)
    later = scores.row(by_predicate=pl.col("work_id") == 5, named=True)
    assert (later["n_i"], later["n_i_until2017"], later["cd_index_until2017"]) == (1, 0, None)
    assert not later["window_complete_until2017"]  # it came out after the end: it was never judged


def test_one_window_cannot_replace_the_labelled_one_by_a_calendar_year():
    with pytest.raises(ConfigError, match=r"CDConfig.window_years is 'until2017'"):
        CDConfig(window_years="until2017")
