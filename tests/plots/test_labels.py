"""The pictures of how far labels can be trusted show what their frames hold."""

from __future__ import annotations

import polars as pl

from sciscidata.disruption.label_stability import LABEL_STABILITY
from sciscidata.plots import plot_label_stability


def test_every_share_stands_above_its_group_with_its_age():
    rows = [(1, "all", 50, 0.5), (1, "0 citers", 20, 0.1), (1, "30+ references", 30, 0.7)]
    rows += [(10, "all", 40, 0.9), (10, "31+ citers", 8, 1.0), (10, "3-5 citers", 32, 0.8)]
    figure = plot_label_stability(pl.DataFrame(rows, LABEL_STABILITY, orient="row").reverse())
    found = []
    for panel, kind in zip(figure.axes, ("citers", "references"), strict=True):
        names = [text.get_text() for text in panel.get_xticklabels()]
        for bars in panel.containers:
            age = int(bars.get_label().split()[0])
            for x, share in zip(*bars.lines[0].get_data(), strict=True):
                name = names[round(x)]
                group = name if name == "all" else f"{name} {kind}"
                found.append((age, group, next(row[2] for row in rows if row[:2] == (age, group)), share))
    assert set(found) == set(rows)
    assert len(found) == len(rows) + 2  # "all" stands in both panels
