"""The pictures of how far labels can be trusted show what their frames hold."""

from __future__ import annotations

import polars as pl

from sciscidata.disruption.label_stability import LABEL_STABILITY
from sciscidata.disruption.missing_data import MISSING_DATA
from sciscidata.plots import plot_label_stability, plot_missing_data


def test_every_share_stands_above_its_group_with_its_age():
    rows = [(1, "all", 50, 0.5), (1, "0 citers", 20, 0.1), (1, "30+ references", 30, 0.7)]
    rows += [(10, "all", 40, 0.9), (10, "31+ citers", 8, 1.0), (10, "3-5 citers", 32, 0.8)]
    figure = plot_label_stability(pl.DataFrame(rows, LABEL_STABILITY, orient="row").reverse())
    found = []
    for panel, kind in zip(figure.axes, ("citers", "references"), strict=True):
        names = [text.get_text() for text in panel.get_yticklabels()]
        colours = [line.get_color() for line in figure.axes[1].get_legend().get_lines()]
        for line in panel.lines:
            for share, y in zip(*line.get_data(), strict=True):
                group = names[round(y)] if names[round(y)] == "all" else f"{names[round(y)]} {kind}"
                age = (1, 10)[colours.index(line.get_markeredgecolor())]
                works = next(row[2] for row in rows if row[:2] == (age, group))
                assert (line.get_markerfacecolor() == "white") == (works < 30)
                found.append((age, group, works, share))
    assert set(found) == set(rows)
    assert len(found) == len(rows) + 2  # "all" stands in both panels


def test_missing_data_show_the_shares_of_each_label_and_the_ceiling():
    gaps = {("nothing", 0.0): 1.0, ("citations", 0.1): 0.9, ("references", 0.1): 0.8}
    labels = {"all": 1.0, "consolidating": 0.5, "neutral": 0.2, "disruptive": 0.3}
    rows = [
        (*gap, label, 9, share, same * share, 0.1, 0.7 * same if label == "all" else None, None)
        for gap, same in gaps.items()
        for label, share in labels.items()
    ]
    figure = plot_missing_data(pl.DataFrame(rows, MISSING_DATA, orient="row"))
    marks = [[line for line in panel.lines if line.get_marker() != "None"] for panel in figure.axes]
    kept, shares, ceiling = ([line.get_ydata().tolist() for line in panel] for panel in marks)
    assert kept == [[same * share for same in gaps.values()] for share in labels.values()]
    assert shares == [[share] * 3 for share in [*labels.values()][1:]]
    assert ceiling == [[0.7 * same for same in gaps.values()]]
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["nothing", "10 %", "10 %\nlists"]
