"""Pictures by year and by field show what Polars and scipy compute, say what they leave out, and end in any format."""

from __future__ import annotations

import re
from contextlib import nullcontext
from functools import partial

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image

import sciscidata as ssd
from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError, WorkIdError
from sciscidata.judged import is_judged
from sciscidata.label_thresholds import VOCABULARIES, compute_disruption_labels
from sciscidata.plots import (
    plot_by_field,
    plot_by_year,
    plot_disruption,
    plot_drawn,
    plot_novelty_by_year,
    plot_uzzi_cells,
    plot_windows,
    plot_works,
)
from sciscidata.records.ids import require_one_row_per_work
from tests.real_graphs import scan_real


@pytest.fixture(scope="module")
def reviews() -> pl.DataFrame:
    """The labelled papers that come with the package."""
    works, citations = scan_real()
    scores = ssd.compute_cd_index(works, citations).drop_nulls("cd_index")
    labelled = compute_disruption_labels(scores.join(works.drop("source_id"), on="work_id"))
    return labelled.sort("work_id").collect()


def sizes(path) -> tuple[int, ...]:
    with Image.open(path) as picture:
        return tuple(round(size / dpi * 25.4) for size, dpi in zip(picture.size, picture.info["dpi"], strict=True))


ARROWS = (4, 5, 6, 7)


def values_of(axes, upright=True) -> dict[float, float]:
    """What the dots of a panel say, by place; hollow ones too."""
    dots = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_marker() not in ARROWS]
    points = [point for line in dots for point in zip(line.get_xdata(), line.get_ydata(), strict=True)]
    return {float(x): float(y) for x, y in points} if upright else {float(y): float(x) for x, y in points}


def hollow_of(axes) -> set[float]:
    return {float(x) for line in axes.lines if line.get_markerfacecolor() == "white" for x in line.get_xdata()}


def test_a_year_shows_the_share_and_the_mean_of_its_works(reviews):
    figure = plot_by_year(reviews, population="all", complete_until=2021, data="reviews")
    by_year = reviews.group_by("publication_year").agg(
        share=(pl.col("disruption_label") == "disruptive").mean(), mean=pl.col("cd_index").mean()
    )
    for axes, name in zip(figure.axes, ("share", "mean"), strict=True):
        shown = values_of(axes)
        expected = dict(by_year.select("publication_year", name).rows())
        assert shown == pytest.approx({year: value for year, value in expected.items() if year in shown})
        assert shown.keys() == set(range(1994, 2022))
        assert not hollow_of(axes)
    assert figure.get_label().startswith("2,972 works by year of publication: (a) share disruptive with 95 % Wilson")
    assert figure.get_label().endswith("Data: reviews.")


def test_unsure_years_are_hollow_and_the_title_says_why(reviews):
    figure = plot_by_year(reviews, population="all")  # the data end in 2021
    assert hollow_of(figure.axes[0]) == {2017.0, 2018.0, 2019.0, 2020.0, 2021.0}
    figure = plot_by_year(reviews, population="all", complete_until=2016)
    assert "Hollow: no complete citation window (after 2016). Not shown: 31 works before 1994." in figure.get_label()
    of_2010 = pl.col("publication_year") == 2010
    some = pl.concat([reviews.filter(of_2010).head(5), reviews.filter(~of_2010)])
    figure = plot_by_year(some, population="all", complete_until=2021)
    assert hollow_of(figure.axes[1]) == {2010.0}
    assert "Hollow: fewer than 30 works." in figure.get_label()


def test_a_mistaken_year_leaves_the_others_their_room(reviews):
    odd = reviews.head(2).with_columns(publication_year=pl.Series([-(2**31), 2**31 - 1], dtype=pl.Int32))
    for figure in (plot_by_year(pl.concat([reviews, odd])), plot_works(pl.concat([reviews, odd]))):
        low, high = figure.axes[0].get_xlim()
        assert 1955 < low < high < 2025


def test_fields_stand_in_the_order_of_their_share():
    rows = [("Law", "disruptive", 0.5)] * 3 + [("Medicine", "neutral", 0.0)] * 40 + [(None, "neutral", 0.0)] * 2
    rows += [("Medicine", "disruptive", 0.2)] * 40
    works = pl.DataFrame(rows, schema=["primary_field", "disruption_label", "cd_index"], orient="row")
    few_last = plot_by_field(works)
    assert [tick.get_text() for tick in few_last.axes[0].get_yticklabels()] == ["Medicine (80)", "Law (3)"]
    assert "Hollow: fewer than 30 works." in few_last.get_label()
    figure = plot_by_field(works, few=3)
    assert "Triangle" not in figure.get_label()
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["Law (3)", "Medicine (80)"]
    share, mean = figure.axes
    assert values_of(share, upright=False)[1.0] == 0.5
    assert values_of(mean, upright=False) == pytest.approx({0.0: 0.5, 1.0: 0.1})
    assert "Not shown: 2 works without a field." in figure.get_label()
    many = pl.DataFrame({"primary_field": [f"f{i:02}" for i in range(40) for _ in range(i + 1)]})
    many = many.with_columns(disruption_label=pl.lit("neutral"), cd_index=pl.lit(0.0))
    figure = plot_by_field(many)
    assert len(figure.axes[0].get_yticklabels()) == 26
    assert f"Not shown: {sum(range(1, 15))} works in smaller fields." in figure.get_label()


def test_a_panel_is_left_out_on_request(reviews):
    assert len(plot_by_year(reviews, score="").axes) == len(plot_by_year(reviews, label="").axes) == 1
    ours = Figure().subplots(2)
    assert plot_by_year(reviews, ax=ours).axes == [*ours]
    assert plot_by_year(reviews, label="", ax=ours[0]) is ours[0].figure
    assert ours[0].get_title() == ""
    assert ours[0].figure.get_label().startswith("1,205 works by year of publication: mean CD index")


def test_years_and_fields_count_judged_works_and_take_any_column(reviews):
    caption = plot_by_year(reviews).get_label()
    assert caption.endswith("Left out: 1,194 works uncited in the window and 570 works whose window is not over.")
    reviews = reviews.with_columns(
        primary_field=pl.when(pl.col("work_id") % 2 == 0).then(pl.lit("Law")).otherwise(pl.lit("Art"))
    )
    judged = reviews.filter(is_judged())
    assert plot_by_field(judged).get_label().startswith(f"{judged.height:,} works by field")
    assert plot_by_field(reviews).get_label().startswith(f"{judged.height:,} works by field")
    assert plot_by_field(reviews, population="all").get_label().startswith("3,003 works by field")
    mixed = plot_by_year(reviews.with_columns(z_p10="cd_index"), score="z_p10").get_label()
    assert "(b) mean z (10th percentile)" in mixed
    assert "(a) Not shown: 10 works before 1994. Left out: 1,194 works uncited" in mixed
    assert mixed.endswith("whose window is not over. (b) Not shown: 31 works before 1994.")
    renamed = reviews.rename({"publication_year": "year", "primary_field": "area"})
    assert plot_by_year(renamed, by="year").axes[0].get_xlabel() == "year"
    ticks = [tick.get_text() for tick in plot_by_field(renamed, by="area").axes[0].get_yticklabels()]
    assert ticks == [tick.get_text() for tick in plot_by_field(reviews).axes[0].get_yticklabels()]
    with pytest.raises(SchemaMismatchError, match="area"):
        plot_by_field(reviews, by="area")


@pytest.fixture(scope="module")
def two_windows(reviews) -> pl.DataFrame:
    """The same papers with the index of three years beside."""
    works, citations = scan_real()
    three = ssd.compute_cd_index(works, citations, ssd.CDConfig(windows=(3,))).collect()
    columns = ["work_id", "cd_index_3", "n_i_3", "n_j_3", "window_complete_3"]
    field = pl.when(pl.col("work_id") % 7 > 0).then(pl.lit("Law")).otherwise(pl.lit("Art"))
    return reviews.join(three.select(columns), on="work_id").with_columns(primary_field=field)


@pytest.mark.parametrize("plot", [plot_by_year, plot_by_field])
def test_panels_of_two_windows_count_their_own_works(two_windows, plot):
    five, three = (
        two_windows.filter(is_judged(ending) & pl.col(f"cd_index{ending}").is_not_null()) for ending in ("", "_3")
    )
    assert five.height != three.height
    caption = plot(two_windows, score="cd_index_3").get_label()
    alone = plot(two_windows, score="cd_index_3", label="").get_label()
    n_shown = {}
    for name, rows in {"share disruptive": five, "mean CD index (3 years)": three}.items():
        n_early = rows.filter(pl.col("publication_year") < 1995).height if plot is plot_by_year else 0
        n_shown[name] = f"{rows.height - n_early:,} works"
        assert f"{name} of {n_shown[name]} with 95 %" in caption
    assert plot is plot_by_year or alone.startswith(n_shown["mean CD index (3 years)"])
    n_open = two_windows.filter(~pl.col("window_complete_3")).drop_nulls("cd_index_3").height
    n_uncited = two_windows.drop_nulls("cd_index_3").height - three.height - n_open
    said = f"Left out: {n_uncited:,} works uncited within 3 years and {n_open} works whose window is not over."
    assert caption.endswith(said)
    assert alone.endswith(said)
    assert "Left out: 1,194 works uncited in the window and 570 works whose window is not over. (b) " in caption


def test_each_panel_is_hollow_after_its_own_window(two_windows):
    figure = plot_by_year(two_windows, score="cd_index_3", population="all", few=1)
    assert [min(hollow_of(axes)) for axes in figure.axes] == [2017.0, 2019.0]
    assert "no complete citation window (after 2016 in (a) and 2018 in (b))" in figure.get_label()
    figure = plot_by_year(two_windows, score="cd_index_3")
    assert "citation window (" not in figure.get_label()
    fields = plot_by_field(two_windows, score="cd_index_3")
    assert ". In brackets: works in (a); in (b)." in fields.get_label()
    names = [tick.get_text() for tick in fields.axes[0].get_yticklabels()]
    five, three = (two_windows.filter(is_judged(ending), primary_field="Law").height for ending in ("", "_3"))
    assert f"Law ({five:,}; {three:,})" in names


def test_the_caption_counts_works_that_are_not_judged_where_all_are_asked_for(two_windows):
    said = "Counted too: 1,194 works uncited in the window and 570 works whose window is not over."
    for plot in (plot_by_year, plot_by_field):
        assert plot(two_windows, population="all").get_label().endswith(said)
    ten = two_windows.rename(lambda name: name.removesuffix("_3") + "_10" if name.endswith("_3") else name)
    caption = plot_by_field(ten, label="", score="cd_index_10", population="all").get_label()
    assert ": mean CD index (10 years) with 95 % t interval." in caption
    assert "uncited within 10 years" in caption


def test_a_share_of_zero_has_its_place_on_the_axis():
    rows = [("Law", 40, 20), ("Art", 40, 16), ("Biology", 5, 0), ("Music", 2, 2)]
    works = pl.DataFrame(
        [(field, "disruptive" if i < n_disruptive else "neutral") for field, n, n_disruptive in rows for i in range(n)],
        schema=["primary_field", "disruption_label"],
        orient="row",
    )
    figure = plot_by_field(works, score="")
    low, high = figure.axes[0].get_xlim()
    assert low < 0 < high < 1
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert names == ["Law (40)", "Art (40)", "Music (2)", "Biology (5)"]
    assert values_of(figure.axes[0], upright=False)[3.0] == 0
    assert [line.get_marker() for line in figure.axes[0].lines if line.get_marker() in "<>"] == [">"]
    assert "Hollow: fewer than 30 works. Triangles: 1 value beyond the axis." in figure.get_label()


def test_a_work_that_is_there_twice_is_named(reviews, caplog):
    works = reviews.with_columns(primary_field=pl.lit("Law"))
    twice = pl.concat([works, works.head(1)])
    for sum_up in (ssd.indicators.find_noise_effect, ssd.indicators.find_label_prior):
        sum_up(works)
        with pytest.raises(WorkIdError, match=r"work_id \d+ occurs more than once, needs one row per work"):
            sum_up(twice)
    of_a_release = twice.select("work_id", pl.exclude("work_id")).rename({"work_id": "openalex_id"})
    for draw in (plot_by_year, plot_by_field, plot_works, plot_disruption, partial(plot_drawn, works)):
        for frame, n in ((works, 0), (twice.drop("work_id"), 0), (twice, 1), (twice.lazy(), 1), (of_a_release, 1)):
            caplog.clear()
            draw(frame)
            said = [one for one in caplog.messages if re.search(r"_id \d+ occurs more than once", one)]
            assert len(said) == n
            assert all("Each row counts as a work." in one for one in said)
    caplog.clear()
    plot_by_field(pl.concat([works, works.with_columns(primary_field=pl.lit("Art"))]))  # each work in both fields
    assert "more than once" not in caplog.text


def test_a_repeated_work_is_found_among_many():
    many = pl.LazyFrame({"work_id": pl.int_range(3_000_000, eager=True)})
    require_one_row_per_work(many, "demo")
    for others in (many, many.with_columns(work_id=pl.lit(7, pl.Int64))):
        with pytest.raises(WorkIdError, match="demo: work_id"):
            require_one_row_per_work(pl.concat([many, others]), "demo")


def test_drawn_works_are_shown_as_shares_beside_eligible_ones(reviews):
    drawn = ssd.draw_split(reviews, ssd.SplitConfig(n_train=300, n_test=30)).join(reviews, on="work_id")
    figure = plot_drawn(reviews.lazy(), drawn)
    (axes,) = figure.axes
    heights = {bar.get_x() + bar.get_width() / 2: bar.get_height() for bar in axes.patches}
    for frame, shown in ((reviews, heights), (drawn, dict(zip(*axes.lines[0].get_data(), strict=True)))):
        counts = dict(frame["publication_year"].value_counts().rows())
        assert shown == pytest.approx({year: counts.get(round(year), 0) / frame.height for year in shown})
    assert figure.get_label().startswith("330 works drawn from 3,003 works, as shares of each by year of publication.")


def test_two_windows_of_one_graph_are_compared(reviews):
    figure = plot_windows(reviews, reviews.with_columns(-pl.col("cd_index")), windows=(5, 10), data="reviews")
    assert figure.get_label().startswith("CD₅ against CD₁₀ of 1,239 works: Spearman -1.000")
    left_out = "Left out: 1,194 works uncited in the window and 570 works whose window is not over. Data: reviews."
    assert figure.get_label().endswith(left_out)
    other = reviews.clone()
    every = plot_windows(reviews, other, windows=(5, None), population="all")
    assert every.axes[0].get_ylabel().startswith("CD of all years")
    assert every.get_label().startswith("CD₅ against CD of all years of 3,003 works: Spearman 1.000")


def test_windows_of_one_frame_are_read_by_name_or_refused(reviews):
    both = reviews.with_columns(
        cd_index_10=-pl.col("cd_index"), n_i_10="n_j", n_j_10="n_i", window_complete_10=pl.col("window_complete")
    )
    for options in ({}, {"windows": (5, 10)}):
        label = plot_windows(both, both, **options).get_label()
        assert "of 1,239 works: Spearman -1.000" in label
    for frame, options in ((reviews, {}), (reviews, {"windows": (5, 10)}), (both, {"windows": (3, 5)})):
        with pytest.raises(
            ConfigError, match=r"one frame, which has cd_index.*compared with itself.*windows=\(5, 10\)"
        ):
            plot_windows(frame, frame, **options)


def test_a_picture_names_no_window_and_no_cut_that_it_was_not_given(reviews):
    unnamed = plot_windows(reviews, reviews.clone())
    texts = [unnamed.get_label(), *(text for axes in unnamed.axes for text in (axes.get_xlabel(), axes.get_ylabel()))]
    assert not [text for text in texts if any(digit in text for digit in "₀₁₂₃₄₅₆₇₈₉")]
    assert unnamed.axes[0].get_xlabel().startswith("CD (shorter window)")
    scored = reviews.select("publication_year", z_p10=-pl.col("cd_index"), z_median=pl.col("cd_index"))
    axes, _ = plot_novelty_by_year(scored, ssd.LabelThresholds(uzzi_tail_max=-1.5)).axes
    assert "10th percentile: tail novelty where below -1.5" in axes.get_legend_handles_labels()[1]


def test_the_four_cells_count_every_work_with_two_z():
    rng = np.random.default_rng(0)
    z = pl.DataFrame({"z_median": rng.normal(2, 2, 500), "z_p10": rng.normal(0, 1, 500), "top": rng.random(500) < 0.2})
    z = z.with_columns(z_p10=pl.when(pl.int_range(pl.len()) > 0).then("z_p10"))
    texts = [text.get_text().split("\n") for text in plot_uzzi_cells(z).axes[1].texts]
    assert [lines[0] for lines in texts] == ["novel", "both", "conventional", "neither"]
    assert sum(int(lines[-1].split()[0]) for lines in texts) == 499
    texts = [text.get_text().split("\n") for text in plot_uzzi_cells(z, hit="top").axes[1].texts]
    shares = [float(lines[1].rstrip("%")) * int(lines[-1].split()[0]) / 100 for lines in texts]
    assert sum(shares) == pytest.approx(z[1:]["top"].sum(), abs=0.5)
    with pytest.raises(SchemaMismatchError, match="'tops' is no column of true and false"):
        plot_uzzi_cells(z, hit="tops")


EMPTY = pl.DataFrame(
    schema={"work_id": pl.Int64, "publication_year": pl.Int32, "primary_field": pl.String, "cd_index": pl.Float64}
    | dict.fromkeys(("z_p10", "z_median"), pl.Float64)
    | dict.fromkeys(VOCABULARIES, pl.String)
)


@pytest.mark.parametrize("width", ["one", "two"])
@pytest.mark.parametrize("n", [0, 1])
def test_one_work_can_be_drawn_and_none_is_an_error(tmp_path, width, n):
    one = {"work_id": [1], "publication_year": [2000], "primary_field": ["Law"], "cd_index": [0.5], "z_p10": [1.0]}
    row = pl.DataFrame(one | {"z_median": [2.0], "disruption_label": ["disruptive"], "novelty_label": ["novel"]})
    works = row.cast(dict(EMPTY.schema)).select(EMPTY.columns).head(n)
    draws = (
        plot_by_year,
        plot_by_field,
        plot_works,
        plot_uzzi_cells,
        partial(plot_drawn, works),
        partial(plot_windows, works.clone()),
    )
    for i, draw in enumerate(draws):
        with nullcontext() if n else pytest.raises(EmptyInputError, match="the frame has no row"):
            draw(works, width=width, path=tmp_path / f"{i}.png")
    assert {sizes(path)[0] for path in tmp_path.iterdir()} == ({85 if width == "one" else 180} if n else set())


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_equal_works_give_equal_bytes_in_every_format(tmp_path, reviews, suffix):
    for name in "ab":
        plot_by_year(reviews, score="", width="one", path=tmp_path / f"{name}.{suffix}", data="<reviews> $x$")
    first, second = (path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert first == second
    assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])
    if suffix == "png":
        with Image.open(tmp_path / "a.png") as picture:
            assert picture.text["Title"].endswith("Data: <reviews> $x$.")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"widht": "one"}, r"a picture has no option 'widht'. Did you mean width\?"),
        ({"width": 3}, "width is 3, needs 'one' \\(85 mm\\) or 'two'"),
        ({"path": "a.jpg"}, r"as PNG, SVG or PDF, got 'a\.jpg'"),
        ({"ax": Figure().subplots()}, "ax holds 1 Axes, this picture has 2 panels"),
        ({"data": 3}, "data is a int, needs a name, a Corpus or a Release"),
        ({"label": "disruptve"}, r"label is 'disruptve', needs one of .*Did you mean disruptive\?"),
        ({"score": "", "label": ""}, "there is nothing to show"),
    ],
)
def test_a_wrong_option_is_refused(tmp_path, monkeypatch, reviews, options, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=told):
        plot_by_year(reviews, **options)
    assert not list(tmp_path.iterdir())


def test_a_frame_without_its_columns_is_refused(reviews):
    with pytest.raises(SchemaMismatchError, match="plot_by_field: the frame lacks column 'primary_field'"):
        plot_by_field(reviews)


def test_a_picture_names_its_source(reviews):
    world = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=500))
    figure = plot_works(world.works, data=world, title="")
    assert figure.get_label().endswith("Data: a synthetic world of 500 works.")
    assert figure.get_suptitle() == ""


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1990, 1999), st.floats(-1, 1)), min_size=1, max_size=60))
def test_every_estimate_lies_in_the_picture(rows):
    works = pl.DataFrame(rows, schema={"publication_year": pl.Int32, "cd_index": pl.Float64}, orient="row")
    figure = plot_by_year(compute_disruption_labels(works).collect(), few=4)
    for axes in figure.axes:
        low, high = axes.get_ylim()
        assert all(low - 1e-12 <= value <= high + 1e-12 for value in values_of(axes).values())
