"""What a referee looks at: texts stay inside, the edges are explained, and small groups leave others room."""

from __future__ import annotations

import re
import warnings
from functools import partial

import numpy as np
import polars as pl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.text import Text

import sciscidata as ssd
from benchmarks import engines, pictures
from sciscidata import plots
from sciscidata.errors import ConfigError
from sciscidata.indicators import compute_cd_trajectory, compute_null_cd_index
from sciscidata.own_label import OwnLabel
from sciscidata.plots.figure import fit

WIDE = "MMMM WWWWW " * 18
TEXTS = {
    "long": WIDE,
    "one word": "x" * 200,
    "arabic": "تصنيف الأبحاث العلمية " * 9,
    "hebrew": "מדע מפריע או מאחד " * 11,
    "chinese": "科学是否变得不那么具有颠覆性" * 14,
    "dollars": "costs $5 and $6_x^2$ of all_fields " * 6,
    "underscore": "_hidden_" + "field " * 30,
}
CORPUS = ssd.scan_example()


@pytest.fixture(scope="module")
def labelled() -> pl.DataFrame:
    works, citations, _ = CORPUS
    scores = ssd.compute_cd_index(works, citations, ssd.CDConfig(windows=(10,), family=True))
    novelty = ssd.compute_atypicality(works, citations)
    facts = works.select("work_id", "publication_year", "primary_field", "cited_by_count")
    rows = ssd.compute_labels(scores.join(novelty, on="work_id")).join(facts, on="work_id")
    return rows.sort("work_id").collect()


@pytest.fixture(scope="module")
def draws(labelled):
    """Every function of the set, as its arguments without the looks."""
    works, citations, _ = CORPUS
    counts = {"novel": 5, "balanced": 6, "conventional": 7}
    trajectory = compute_cd_trajectory(works, citations, ages=(1, 5)).collect()
    chosen = trajectory.drop_nulls("cd_index")["work_id"].unique().sort()[:10].to_list()
    label = OwnLabel(name="impact_label", classes=("top", "rest"), column="impact_label")
    sweep = labelled.select("publication_year", "cd_index", convention=pl.lit("default"), window=pl.lit("5"))
    changes = ssd.compare(labelled.head(900), labelled).changes
    own = labelled.select("work_id", "cd_index", "n_i", "n_j", "window_complete")
    return {
        "by": partial(plots.plot_by, labelled, "publication_year", by="primary_field"),
        "by_year": partial(plots.plot_by_year, labelled),
        "by_field": partial(plots.plot_by_field, labelled),
        "works": partial(plots.plot_works, labelled),
        "drawn": partial(plots.plot_drawn, labelled, labelled.head(99)),
        "disruption": partial(plots.plot_disruption, labelled),
        "windows": partial(plots.plot_windows, labelled, labelled, windows=(5, 10)),
        "comparison": partial(plots.plot_comparison, own, own),
        "trajectory": partial(plots.plot_cd_trajectory, trajectory),
        "trajectories": partial(plots.plot_cd_trajectory, trajectory, chosen, data=CORPUS),
        "sweep": partial(plots.plot_cd_sweep, sweep, population="all"),
        "changes": partial(plots.plot_changes, changes),
        "null": partial(plots.plot_null_cd_index, compute_null_cd_index(works, citations, n_draws=5)),
        "novelty": partial(
            *(plots.plot_novelty, labelled, labelled, ssd.LabelThresholds()),
            **{"eligible_counts": counts, "drawn_counts": counts},
        ),
        "novelty_by_year": partial(plots.plot_novelty_by_year, labelled),
        "uzzi": partial(plots.plot_uzzi_cells, labelled),
        "label": partial(plots.plot_label, label, {"top": 5, "rest": 95}, {"top": 5, "rest": 5}),
        "work": partial(plots.plot_work, ssd.explain("W2013970299", works, citations)),
    }


def ticks_of(axis) -> list:
    """The labels of the ticks that can be seen."""
    low, high = sorted(axis.get_view_interval())
    return [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]


def texts_outside(figure) -> list[str]:
    """Every text that leaves its picture, on a screen, where letters are widest."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.draw_without_rendering()
        ticks = [tick for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for tick in axis.get_major_ticks()]
        of_ticks = {label for tick in ticks for label in (tick.label1, tick.label2)}
        texts = [one for one in figure.findobj(Text) if one not in of_ticks]
        texts += [label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in ticks_of(axis)]
        boxes = [(one.get_text(), one.get_window_extent()) for one in texts if one.get_visible() and one.get_text()]
    whole, slack = figure.bbox, 3.0  # pixels of some 700
    return [
        text
        for text, box in boxes
        if box.x0 < -slack or box.x1 > whole.x1 + slack or box.y0 < -slack or box.y1 > whole.y1 + slack
    ]


SHOWN_PX = {"two": 748, "one": 358}  # how wide a page of 1280 pixels and a phone of 390 show a picture
LEAST_PX = 9.5


def luminance(colour) -> float:
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in colour]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(one, other) -> float:
    """As WCAG 2.2 has it."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def texts_of(figure) -> list[Text]:
    """Every text that can be seen, of ticks only those on the axis."""
    ticks = [tick for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for tick in axis.get_major_ticks()]
    of_ticks = {label for tick in ticks for label in (tick.label1, tick.label2)}
    texts = [one for one in figure.findobj(Text) if one not in of_ticks]
    texts += [label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in ticks_of(axis)]
    return [one for one in texts if one.get_visible() and one.get_text().strip()]


def behind(figure) -> dict[Text, list[tuple[float, ...]]]:
    """The colours behind each text that fill a tenth of its box; its own outline or plate, if it has one."""
    FigureCanvasAgg(figure)
    figure.canvas.draw()
    figure.set_layout_engine("none")  # else places move without the texts
    boxes = {text: text.get_window_extent() for text in texts_of(figure)}
    for text in figure.findobj(Text):
        text.set_visible(False)
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[::-1, :, :3]
    found = {}
    for text, box in boxes.items():
        strokes = [one._gc["foreground"] for one in text.get_path_effects() if hasattr(one, "_gc")]
        plate = text.get_bbox_patch()
        if strokes or plate is not None:
            found[text] = [to_rgb(strokes[0] if strokes else plate.get_facecolor())]
            continue
        rows, columns = (slice(max(int(low), 0), int(high) + 1) for low, high in ((box.y0, box.y1), (box.x0, box.x1)))
        colours, counts = np.unique(pixels[rows, columns].reshape(-1, 3), axis=0, return_counts=True)
        found[text] = [tuple(colour / 255) for colour in colours[counts >= 0.1 * counts.sum()]]
    return found


def pale_texts(figure) -> list[tuple[str, float]]:
    """Every text that has less than the contrast that it needs, with what it has."""
    least = {
        text.get_text(): min((contrast(to_rgb(text.get_color()), one) for one in colours), default=21.0)
        for text, colours in behind(figure).items()
    }
    return [(text, round(value, 1)) for text, value in least.items() if value < 4.5]


def small_texts(figure, shown_px: int) -> list[tuple[str, float]]:
    """Every text whose letters are small where the picture is shown, with their size in pixels."""
    scale = shown_px / figure.get_figwidth() / 72
    sizes = {text.get_text(): round(text.get_fontsize() * scale, 1) for text in texts_of(figure)}
    return [(text, size) for text, size in sizes.items() if size < LEAST_PX]


KEPT = ("collapse", "label_confidence", "label_stability", "missing_data", "real_model_learning", "real_model_labels")


@pytest.mark.parametrize("width", ["one", "two"])
def test_every_text_can_be_read_against_what_is_behind_it_and_at_the_size_it_is_shown(draws, width):
    work = {f"kept_{name}": getattr(pictures, name) for name in KEPT}
    work["engines"] = partial(pictures.engines, list(engines.WORKERS), engines.simulate_all())
    work["diagnostics"] = lambda width: plots_diagnostics()
    faults = {}
    for name, draw in {**draws, **work}.items():
        figure = draw(width=width)
        small = small_texts(figure, SHOWN_PX["two" if name == "diagnostics" else width])
        faults[name] = [*small, *pale_texts(figure)]
    assert not {name: texts for name, texts in faults.items() if texts}


def plots_diagnostics():
    works, citations, _ = CORPUS
    return ssd.plot_diagnostics(ssd.diagnose(works, citations))


@pytest.mark.parametrize(("width", "title"), [("one", None), ("one", WIDE), ("two", WIDE)])
def test_every_picture_keeps_its_texts_and_a_long_title_inside(draws, width, title):
    outside = {name: texts_outside(draw(width=width, title=title)) for name, draw in draws.items()}
    assert not {name: texts for name, texts in outside.items() if texts}


def test_a_long_title_makes_a_picture_higher_and_leaves_its_panels_their_height(labelled):
    figures = [plots.plot_by_year(labelled, width="one", title=title) for title in ("", WIDE)]
    short, long = (figure.axes[0].get_window_extent().height for figure in figures if not texts_outside(figure))
    assert long > 0.75 * short


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("width", ["one", "two"])
def test_long_names_in_any_script_stay_inside_beside_panels_above_them_and_in_legends(labelled, text, width):
    names = [f"{number} {text}" if text[0] != "_" else f"{text} {number}" for number in range(3)]
    works = labelled.with_columns(name=pl.Series(np.array(names)[np.arange(labelled.height) % 3]))
    beside = plots.plot_by_field(works, by="name", width=width, data=text)
    assert not texts_outside(beside)
    assert all(re.search(r" \(4\d\d\)$", label.get_text()) for label in beside.axes[0].get_yticklabels())
    rows = [label.get_window_extent() for label in beside.axes[0].get_yticklabels()]
    assert not any(one.overlaps(other) for number, one in enumerate(rows) for other in rows[:number])
    above = plots.plot_by(works, "publication_year", by="name", width=width)
    assert len(above.axes) == 3
    assert not texts_outside(above)
    titles = [axes.title.get_window_extent() for axes in above.axes]
    assert not any(one.overlaps(other) for number, one in enumerate(titles) for other in titles[:number])
    few = works.with_columns(pl.col("publication_year") // 10 * 10)
    legend = plots.plot_by(few, "publication_year", by="name", width=width)
    assert len(legend.axes) == 1
    listed = [*legend.legends, *filter(None, [legend.axes[0].get_legend()])]
    assert [len(one.get_texts()) for one in listed] == [3]
    assert not texts_outside(legend)


@pytest.mark.parametrize("name", ["label", "score", "n", "value", "n_label", "label_counts", "mean_score"])
def test_a_column_that_is_called_like_one_of_the_picture_is_refused(labelled, name):
    with pytest.raises(ConfigError, match=f"a column '{name}' of its own. Rename yours"):
        plots.plot_by_field(labelled.with_columns(pl.col("primary_field").alias(name)), by=name)


def test_text_is_broken_at_blanks_or_anywhere_and_cut_where_lines_are_few():
    lines = fit(WIDE, 60).split("\n")
    assert [word for line in lines for word in line.split()] == WIDE.split()
    assert "".join(fit("科" * 60, 40).split("\n")) == "科" * 60
    assert fit(WIDE, 60, n_lines=2).endswith("…")
    assert fit(WIDE, 60, n_lines=2).count("\n") == 1
    assert fit("short", 60, n_lines=2) == "short"
    assert fit("", 60) == ""


def five_groups(n_small: int = 3) -> pl.DataFrame:
    """Five groups over 55 years; in the first 25 years there are few works, with wild values."""
    random = np.random.default_rng(5)
    years = np.repeat(np.arange(1965, 2020), 5)
    sizes = np.where(years < 1990, n_small, 80)
    values = random.normal(0, np.where(years < 1990, 0.8, 0.05).repeat(sizes)).clip(-1, 1)
    groups = np.tile([f"field {number}" for number in range(5)], 55)
    columns = {"year": years.repeat(sizes), "field": groups.repeat(sizes), "cd_index": values}
    return pl.DataFrame({"work_id": np.arange(values.size), **columns})


def test_five_groups_over_55_years_have_a_panel_each_and_small_ones_widen_no_axis():
    figure = plots.plot_by(five_groups(), "year", by="field", population="all")
    assert [axes.get_title() for axes in figure.axes] == [f"field {number} (2,475)" for number in range(5)]
    assert len({axes.get_ylim() for axes in figure.axes}) == len({axes.get_xlim() for axes in figure.axes}) == 1
    low, high = figure.axes[0].get_ylim()
    assert -0.1 < low < high < 0.1
    for axes in figure.axes:
        (bars,) = (one for one in axes.collections if len(one.get_segments()))
        assert len(bars.get_segments()) == 30  # no interval of a year with few works
        grey = [line for line in axes.lines if line.get_color() == plots.palette.PALE]
        assert len(grey) == 4
    marks = [line for axes in figure.axes for line in axes.lines if line.get_marker() in ("v", "^")]
    n_beyond = sum(len(line.get_xdata()) for line in marks)
    assert n_beyond > 90
    said = figure.get_label()
    assert f"Grey: the other groups. Hollow: fewer than 30 works. These have no interval. Triangles: {n_beyond}" in said


def test_a_wide_interval_of_few_works_leaves_the_axis_and_is_counted():
    rows = five_groups(n_small=30)  # sure, but wide
    figure = plots.plot_by(rows, "year", by="field", population="all", few=30)
    measured = plots.measure_by(rows, "year", by="field", population="all")
    low, high = figure.axes[0].get_ylim()
    assert low <= measured["value"].min()
    assert high >= measured["value"].max()
    n_cut = measured.filter((pl.col("low") < low) | (pl.col("high") > high)).height
    assert n_cut > 0
    assert f"{n_cut} intervals reach beyond the axis." in figure.get_label()


def test_few_groups_few_points_and_axes_of_ones_own_share_a_panel():
    import matplotlib.pyplot as plt

    rows = five_groups().filter(pl.col("year") >= 1990)
    assert len(plots.plot_by(rows.filter(pl.col("year") < 2000), "year", by="field").axes) == 1
    assert len(plots.plot_by(rows.filter(pl.col("field") < "field 2"), "year", by="field").axes) == 1
    figure, ours = plt.subplots()
    assert plots.plot_by(rows, "year", by="field", ax=ours).axes == [ours]
    assert len(ours.get_legend().get_texts()) == 5
    plt.close(figure)


def test_rows_of_names_are_higher_where_each_has_several_estimates():
    rows = five_groups().with_columns(decade=(pl.col("year") // 10 * 10).cast(pl.String))
    one = plots.plot_by(rows, "field", population="all")
    many = plots.plot_by(rows, "field", by="decade", population="all")
    assert many.get_figheight() > 1.5 * one.get_figheight()


def test_groups_that_are_labels_have_the_colours_of_labels(labelled):
    rows = labelled.with_columns(pl.col("publication_year") // 10 * 10).drop_nulls("disruption_label")
    figure = plots.plot_by(rows, "publication_year", "cited_by_count", by="disruption_label")
    handles, names = figure.axes[0].get_legend_handles_labels()
    assert {name: one.get_color() for name, one in zip(names, handles, strict=True)} == {
        name: plots.COLOURS[name] for name in ("consolidating", "disruptive", "neutral")
    }


def test_the_axis_of_values_has_three_ticks_at_least(labelled):
    for axes in plots.plot_by_year(labelled).axes:
        low, high = axes.get_ylim()
        assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 3


def test_chosen_works_have_names_colours_and_marks_of_their_own(labelled):
    works, citations, _ = CORPUS
    trajectory = compute_cd_trajectory(works, citations).collect()
    chosen = labelled.filter(pl.col("n_i") + pl.col("n_j") > 8).sort("cited_by_count")["work_id"].tail(10).to_list()
    titles = dict(works.select("work_id", "title").collect().rows())
    years = dict(works.select("work_id", "publication_year").collect().rows())
    figure = plots.plot_cd_trajectory(trajectory, chosen, data=CORPUS)
    names = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    for work, name in zip(chosen, names, strict=True):
        head, _, year = name.partition("… (")
        assert titles[work].startswith(head)
        assert year == f"{years[work]})"
    lines = figure.axes[0].lines[1:]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 10
    assert len({line.get_marker() for line in lines}) == 10
    joined = trajectory.join(labelled.select("work_id", "publication_year"), on="work_id")
    joined = joined.with_columns(title=pl.lit("One word"))
    one = plots.plot_cd_trajectory(joined, chosen[:1])
    assert one.get_label() == f"CD index of One word ({years[chosen[0]]}) by its age."
    named = plots.plot_cd_trajectory(trajectory, {chosen[0]: "Smith 2001", chosen[1]: "Li 2002"}, data=CORPUS)
    assert [text.get_text() for text in named.axes[0].get_legend().get_texts()] == ["Smith 2001", "Li 2002"]
    numbers = plots.plot_cd_trajectory(trajectory, chosen[:2])
    assert numbers.axes[0].get_legend().get_texts()[0].get_text() == f"work {chosen[0]}"


def test_means_by_age_and_shares_with_missing_data_have_intervals(labelled):
    works, citations, _ = CORPUS
    axes = plots.plot_cd_trajectory(compute_cd_trajectory(works, citations, ages=(1, 5))).axes[0]
    assert [len(one.get_segments()) for one in axes.collections if hasattr(one, "get_segments")] == [2]
    effect = ssd.indicators.find_effect_of_missing_data(works, citations, citations_missing=[0.2])
    for axes, n in zip(plots.plot_missing_data(effect).axes, (4, 3, 0), strict=True):
        bars = [one for one in axes.collections if hasattr(one, "get_segments")]
        assert len(bars) == n
        for bar, line in zip(bars, axes.lines[:n], strict=True):
            ends = np.array([segment[:, 1] for segment in bar.get_segments()])
            assert (ends[:, 0] <= line.get_ydata() + 1e-9).all()
            assert (ends[:, 1] >= line.get_ydata() - 1e-9).all()
