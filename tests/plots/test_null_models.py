"""The picture of a null model counts what its frame holds."""

from __future__ import annotations

import polars as pl
import pytest

from sciscidata.errors import EmptyInputError, SchemaMismatchError
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.plots import plot_null_cd_index

SCORES = pl.DataFrame(
    {
        "cd_index": [0.5, 0.4, 0.3, 0.2, -0.2, -0.3, 0.0, None, 0.9],
        "null_mean": [0.1, 0.1, 0.5, 0.2, 0.1, -0.3, 0.0, 0.1, None],
        "z": [2.1, 2.0, -2.5, None, -9.0, float("nan"), None, None, None],
    },
    schema_overrides={"cd_index": pl.Float64},
)


def shares(figure) -> dict[str, list[float]]:
    """Of each band, in its order in the legend, the heights of the bars: consolidating, neutral, disruptive."""
    return {bars.get_label(): [round(bar.get_height(), 9) for bar in bars] for bars in figure.axes[1].containers}


def test_each_work_with_index_and_null_mean_is_in_one_bar():
    figure = plot_null_cd_index(SCORES.lazy(), data="nine works")
    assert [*shares(figure).values()] == [[0.5, 0, 0.25], [0, 0, 0.25], [0, 0, 0.25], [0.5, 1, 0.25]]
    assert [text.get_text().replace("\n", " ") for text in figure.axes[1].get_xticklabels()] == [
        "consolidating 2",
        "neutral 1",
        "disruptive 4",
    ]
    assert "CD index of 7 works" in figure.get_label()
    for stairs in figure.axes[0].patches:
        assert stairs.get_data().values.sum() == 7


def test_the_labels_are_those_of_the_thresholds():
    figure = plot_null_cd_index(SCORES, LabelThresholds(disruptive_min=0.45, consolidating_max=-0.25))
    assert [text.get_text().split("\n")[1] for text in figure.axes[1].get_xticklabels()] == ["1", "5", "1"]


def test_a_frame_without_z_is_refused():
    with pytest.raises(SchemaMismatchError, match="lacks column 'z'"):
        plot_null_cd_index(SCORES.drop("z"))


def test_scores_without_a_null_mean_are_refused():
    with pytest.raises(EmptyInputError, match=r"plot_null_cd_index: .* column 'null_mean' is null in all 1 row"):
        plot_null_cd_index(SCORES.tail(1))
