"""The pictures say about bands and regions what the thresholds say."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.path import Path

from sciscidata.disruption.compare import compare_scores
from sciscidata.errors import EmptyInputError
from sciscidata.label_thresholds import (
    DISRUPTION_LABELS,
    NOVELTY_LABELS,
    PRESETS,
    LabelThresholds,
    compute_disruption_labels,
    compute_novelty_labels,
)
from sciscidata.plots import (
    plot_cd_sweep,
    plot_cd_trajectory,
    plot_comparison,
    plot_disruption,
    plot_novelty,
    plot_novelty_by_year,
    plot_windows,
)
from sciscidata.plots.disruption import _draw_labels, describe_two
from sciscidata.plots.novelty import _draw_band
from sciscidata.plots.palette import COLOURS


def draw(thresholds: LabelThresholds):
    return plot_disruption(pl.Series([-0.5, 0.0, 0.5]), thresholds).axes[0]


def names_by_score(axes) -> dict[str, float]:
    """Where each band's name stands, as the score that lies under its middle."""
    to_score = (axes.transScale + axes.transLimits).inverted()
    return {text.get_text().split()[0]: to_score.transform(text.get_position())[0] for text in axes.texts}


@pytest.mark.parametrize(
    "thresholds",
    [
        *PRESETS.values(),
        LabelThresholds(consolidating_max=0.2, disruptive_min=0.5),
        LabelThresholds(consolidating_max=-0.9, disruptive_min=-0.5),
        LabelThresholds(consolidating_max=-0.001, disruptive_min=0.9),
        LabelThresholds(consolidating_max=0, disruptive_min=0, inclusive=False),
        LabelThresholds(consolidating_max=-5, disruptive_min=5),
        LabelThresholds(disruptive_min=5),
    ],
)
def test_every_name_stands_in_its_own_band(thresholds: LabelThresholds) -> None:
    names = names_by_score(draw(thresholds))
    scores = pl.DataFrame({"cd_index": list(names.values())}, schema={"cd_index": pl.Float64})
    assert compute_disruption_labels(scores, thresholds).collect()["disruption_label"].to_list() == list(names)


cuts = st.floats(-2, 2)


@given(cuts, cuts)
@settings(max_examples=40)
def test_a_band_is_named_and_shaded_exactly_if_it_can_be_seen(low: float, high: float) -> None:
    assume(low < high)
    axes = draw(LabelThresholds(consolidating_max=low, disruptive_min=high))
    names = names_by_score(axes)
    assert ("consolidating" in names) == (low > -1.3)
    assert ("disruptive" in names) == (high < 1.3)
    shaded = [patch for patch in axes.patches if patch.get_alpha() == 0.13]
    assert len(shaded) == len(names)


def test_the_same_numbers_give_the_same_picture(tmp_path) -> None:
    counts = dict.fromkeys(DISRUPTION_LABELS, 1)
    cd = pl.Series("cd_index", [None, -0.2, 0.0, 0.4])
    for name, values in (("a", cd), ("b", cd), ("c", cd.reverse().to_frame().lazy())):
        plot_disruption(values, LabelThresholds(), eligible=counts, drawn=counts, path=str(tmp_path / f"{name}.png"))
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def plane():
    figure = Figure(figsize=(6, 5))
    FigureCanvasAgg(figure)
    return figure.subplots()


def names_in(axes) -> list[tuple[str, float, float]]:
    """Every name in the plane that can be seen, and where it stands."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    texts = [text for text in axes.texts if not text.get_text().startswith("no work can lie here")]
    places = [(text.get_text().split()[0], *text.get_position()) for text in texts]
    assert all(left < x < right and low < y < high for _, x, y in places)
    return places


@settings(max_examples=30)
@given(st.floats(0, 1.5))
def test_in_the_plane_of_scores_every_name_stands_in_its_own_region(margin: float) -> None:
    axes = plane()
    regions = _draw_band(axes, margin)
    names, x, y = zip(*names_in(axes), strict=True)
    scores = pl.DataFrame({"novelty_score": y, "conventionality_score": x})
    thresholds = LabelThresholds(novelty_margin=margin)
    labels = compute_novelty_labels(scores, thresholds).collect()["novelty_label"].to_list()
    if margin > 1e-6:  # else the balanced lie on the diagonal, and nowhere else
        assert labels == list(names)
        at = [
            [name for name, corners in regions if Path(corners).contains_point(place)]
            for place in zip(x, y, strict=True)
        ]
        assert at == [[name] for name in names]
    assert set(names) == (set(NOVELTY_LABELS) if margin < 1 else {"balanced"})


SCORED = pl.DataFrame(
    {
        "publication_year": [1990, 1990, 1991, 2001, None, 2001],
        "z_p10": [-3.0, 0.5, 2.0, None, 1.0, 7.0],
        "z_median": [-1.0, 0.5, 4.0, None, 2.0, 30.0],
        "novelty_score": [0.95, 0.4, 0.1, None, 0.3, 0.01],
        "conventionality_score": [0.3, 0.6, 0.98, None, 0.9, 0.99],
    }
)


ODD_CASES = [
    pytest.param(SCORED, id="some"),
    pytest.param(SCORED.head(1), id="one work"),
    pytest.param(SCORED[3:4], id="one without a score"),
    pytest.param(SCORED.clear(), id="none"),
    pytest.param(SCORED.filter(publication_year=1990), id="one year"),
]


@pytest.mark.parametrize("rule", ["margin", "uzzi"])
@pytest.mark.parametrize("works", ODD_CASES)
def test_odd_cases_can_be_drawn_and_lazy_frames_give_the_same_pictures(tmp_path, works, rule) -> None:
    counts = dict.fromkeys(NOVELTY_LABELS, works.height // 6)  # 0 but for the whole
    has_score = works["z_p10"].count() > 0
    for name, frame in (("a.png", works), ("b.png", works.lazy())):
        options = {"eligible_counts": counts, "drawn_counts": counts}
        thresholds = LabelThresholds(novelty_rule=rule)
        for draw in (partial(plot_novelty, frame, frame, thresholds, **options), partial(plot_novelty_by_year, frame)):
            path = tmp_path / ("years-" * (not draw.args[1:]) + name)
            with nullcontext() if has_score else pytest.raises(EmptyInputError, match=r"null in all 1 row|has no row"):
                draw(path=path)
    for name in ("", "years-") if has_score else ():
        assert (tmp_path / f"{name}a.png").read_bytes() == (tmp_path / f"{name}b.png").read_bytes()


def test_the_plane_of_z_shows_every_work_and_the_classes_say_which_have_no_label() -> None:
    counts = dict.fromkeys(NOVELTY_LABELS, 2)
    z = [*np.linspace(-2, 2, 998), 900.0, -900.0]
    works = pl.DataFrame({"z_median": z, "z_p10": z})
    options = {"eligible_counts": counts, "drawn_counts": counts}
    figure = plot_novelty(works, works, LabelThresholds(novelty_rule="uzzi"), n_unlabelled=17, **options)
    plane, classes, _ = figure.axes
    assert "of 1,000 works that may be drawn. " in figure.get_label()
    assert int(plane.collections[-1].get_array().sum()) == 1_000
    for axis in ("x", "y"):
        low, high = getattr(plane, f"get_{axis}lim")()
        assert low < -900 < 900 < high
        ticks = dict(zip(getattr(plane, f"get_{axis}ticks")(), getattr(plane, f"get_{axis}ticklabels")(), strict=True))
        assert {float(text.get_text().replace("−", "-").replace(",", "")) for text in ticks.values()} == {*ticks}
        assert {-300, -1, 0, 1, 300} <= {*ticks}
    assert "Both axes are linear near 0, and logarithmic far from it." in figure.get_label()
    shades = {layer.get_cmap().name: layer.get_cmap()(0.5) for layer in plane.collections}
    assert all(np.allclose(shades[name], to_rgba(COLOURS[name]), atol=0.02) for name in NOVELTY_LABELS)
    assert [text.get_text() for text in classes.get_legend().get_texts()] == [
        "may be drawn",
        "drawn (17 more have no label)",
    ]
    works = works.head(998)
    figure = plot_novelty(works, works, LabelThresholds(novelty_rule="uzzi"), **options)
    _, classes, _ = figure.axes
    assert "of 998 works that may be drawn. " in figure.get_label()
    assert [text.get_text() for text in classes.get_legend().get_texts()] == ["may be drawn", "drawn"]


def test_years_and_ages_of_few_works_are_hollow_and_no_line_goes_through_them() -> None:
    year = pl.Series([1990] * 40 + [1991] * 5 + [1992] * 40, dtype=pl.Int32)
    one = pl.DataFrame({"publication_year": year, "age": year - 1989, "cd_index": 0.5, "z_p10": 0.5, "z_median": 0.5})
    one = one.with_columns(convention=pl.lit("default"), window=pl.lit("5"), work_id=pl.int_range(pl.len()))
    assert "Hollow: fewer than 30 works." in plot_cd_sweep(one).get_label()
    for draw in (plot_novelty_by_year, plot_cd_trajectory):
        figure = draw(one)
        lines = [line for line in figure.axes[0].lines if line.get_marker() in ("o", "s")]
        hollow = [np.round(line.get_xdata()) % 100 % 89 for line in lines if line.get_markerfacecolor() == "white"]
        assert all(x.tolist() == [2] for x in hollow)
        assert 2 * len(hollow) == len(lines)
        joined = [line.get_ydata() for line in lines if line.get_markerfacecolor() != "white"]
        assert all(np.isnan(y).tolist() == [False, True, False] for y in joined)
        assert "Hollow: fewer than 30 works." in figure.get_label()


def test_the_years_show_the_quantiles_of_their_works() -> None:
    spread, number = plot_novelty_by_year(SCORED).axes
    names = {"median pair": "z_median", "10th percentile": "z_p10"}
    assert [names[label.split(":")[0]] for label in spread.get_legend_handles_labels()[1]] == ["z_median", "z_p10"]
    z_median, z_p10 = (line for line in spread.lines if line.get_markerfacecolor() == "white")  # few works: hollow
    assert z_p10.get_xydata().round().tolist() == [[1990, -1], [1991, 2], [2001, 7]]
    assert z_median.get_ydata().tolist() == [-0.25, 4.0, 30.0]
    assert not [len(one.get_segments()) for one in spread.collections if len(one.get_segments())]  # of few works
    assert [bar.get_height() for bar in number.patches] == [2, 1, 1]


# Published scores beside computed ones

NAMES = ("published", "computed")

THEIRS = pl.DataFrame({"work_id": range(1, 9), "cd_index": [0.5, 0.5, -0.1, 0.0, 0.0, -1.0, None, 0.3]})
OURS = pl.DataFrame({"work_id": range(1, 9), "cd_index": [0.4, -0.2, -0.1, 0.0, 0.2, -1.0, 0.1, None]})


def test_the_table_of_labels_stands_like_the_plane_and_counts_every_work_once():
    axes = plane()
    _draw_labels(axes, compare_scores(THEIRS, OURS), NAMES)
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    assert names == [tick.get_text() for tick in axes.get_yticklabels()] == ["consolidating", "neutral", "disruptive"]
    assert not axes.yaxis_inverted()
    found = {tuple(map(round, text.get_position())): text.get_text() for text in axes.texts}
    assert found[2, 2] == "1\n50.0 %"  # published disruptive, computed disruptive
    assert found[2, 0] == "1\n50.0 %"
    assert found[1, 2] == found[1, 1] == "1\n50.0 %"
    assert found[0, 0] == "2\n100.0 %"
    assert sum(int(text.split()[0]) for text in found.values()) == 6


def test_the_title_counts_what_is_undefined_and_never_says_none():
    told = describe_two(compare_scores(THEIRS, OURS), NAMES)
    assert told.startswith("Published against computed CD index of 6 works: Spearman 0.")
    assert "Not shown: 1 with published score only and 1 with computed score only." in told
    constant = describe_two(compare_scores(THEIRS[3:4], OURS[3:4]), NAMES)
    assert "Spearman undefined" in constant
    assert "None" not in told + constant


@pytest.mark.parametrize("thresholds", [*PRESETS.values(), LabelThresholds(consolidating_max=0, disruptive_min=0.5)])
@pytest.mark.parametrize("n", [1, 8])
def test_any_comparison_makes_a_picture(tmp_path, thresholds, n):
    compared = compare_scores(THEIRS.head(n), OURS, thresholds)
    path = tmp_path / "comparison.png"
    plot_comparison(THEIRS.head(n), OURS.lazy(), compared, thresholds, path=path, title="SciSciNet")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_scores_without_a_common_work_are_refused():
    with pytest.raises(EmptyInputError, match=r"plot_windows: .* column 'cd_index' is null in all 1 row\."):
        plot_windows(OURS, THEIRS[6:7])
    with pytest.raises(EmptyInputError, match="plot_comparison: there is nothing to draw: no work has both scores"):
        plot_comparison(THEIRS.head(1), OURS.tail(2))
