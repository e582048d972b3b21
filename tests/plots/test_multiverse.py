"""The specification curve: what is drawn, in which colours, and what its title says."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from sciscidata.errors import EmptyInputError, SchemaMismatchError
from sciscidata.plots import COLOURS, plot_multiverse


def a_table(n: int) -> pl.DataFrame:
    """Specifications whose estimates go from -1 to 1 by index, with intervals of half that width."""
    estimate = np.linspace(-1, 1, n)
    return pl.DataFrame(
        {
            "convention": ["default"] * n,
            "window": ["5" if i % 2 else "all" for i in range(n)],
            "index": ["cd_index" if i < n / 2 else "di5_index" for i in range(n)],
            "missing": [[0.0, 0.05, 0.2][i % 3] for i in range(n)],
            "min_citers": [0, 5] * (n // 2),
            "works": [100] * n,
            "estimate": estimate,
            "low": estimate - 0.25,
            "high": estimate + 0.25,
            "problem": [None] * n,
        }
    )


def test_estimates_stand_in_order_in_the_colour_of_their_side():
    curve, _ = plot_multiverse(a_table(12).sample(fraction=1, shuffle=True, seed=1)).axes
    dots = curve.collections[-1]
    x, y = np.asarray(dots.get_offsets()).T
    assert (x.tolist(), y.tolist()) == ([*range(12)], sorted(y))
    colours = [to_hex(colour).upper() for colour in dots.get_facecolors()]
    assert colours == [
        COLOURS["consolidating" if one < -0.25 else "disruptive" if one > 0.25 else "neutral"] for one in y
    ]


def test_choices_are_rows_the_one_that_matters_most_on_top():
    _, choices = plot_multiverse(a_table(12)).axes
    names = [tick.get_text() for tick in choices.get_yticklabels()]
    assert names[:2] == ["CD index", "DI5 index"]
    assert {*names[2:]} == {"5 years", "all years", "0 %", "5 %", "20 %", "any", "at least 5"}
    heads = [text.get_text() for text in choices.texts]
    assert heads[0] == "index\n76 % of variance"
    assert len(heads) == 4  # one convention is no choice


@pytest.mark.parametrize("n", [12, 600])
@pytest.mark.parametrize("width", ["one", "two"])
def test_marks_of_neighbours_do_not_touch_and_names_lie_inside(n, width):
    figure = plot_multiverse(a_table(n), width=width, data="a table")
    figure.draw_without_rendering()
    curve, choices = figure.axes
    apart = curve.transData.transform([[1, 0]])[0][0] - curve.transData.transform([[0, 0]])[0][0]
    widths = [width for marks in choices.collections[::1] for width in np.atleast_1d(marks.get_linewidths())]
    points = apart * 72 / figure.dpi
    assert max(widths) < points
    assert curve.get_xlim() == choices.get_xlim()
    box = figure.bbox
    for text in [*choices.texts, *choices.get_yticklabels()]:
        extent = text.get_window_extent()
        assert box.x0 <= extent.x0 < extent.x1 <= box.x1


def test_the_title_says_what_came_out_and_what_is_not_shown():
    table = a_table(12)
    label = plot_multiverse(table.with_columns(estimate=pl.col("estimate").replace(-1.0, None))).get_label()
    assert label.startswith("11 specifications in order of their estimates, with their intervals: 55 % lie above 0")
    assert label.endswith("Not shown: 1 specification without estimate.")
    assert "interval" not in plot_multiverse(table.with_columns(low=None, high=None)).get_label()
    even = plot_multiverse(table).get_label()
    assert "as many lie above 0 as below; intervals off 0 (coloured): 42 % above, 42 % below." in even
    alone = plot_multiverse(table.head(1))
    assert "Below" not in alone.get_label()
    assert [text.get_text() for text in alone.axes[1].texts] == []


def test_both_panels_of_ones_own_lie_under_each_other():
    own = Figure().subplots(2, 1)
    assert plot_multiverse(a_table(12), ax=own) is own[0].figure
    assert own[0].get_xlim() == own[1].get_xlim()


def test_nothing_to_draw_is_refused():
    with pytest.raises(EmptyInputError, match="no specification has an estimate"):
        plot_multiverse(a_table(2).with_columns(estimate=None))
    with pytest.raises(SchemaMismatchError, match="lack column 'works'"):
        plot_multiverse(a_table(2).drop("works"))
