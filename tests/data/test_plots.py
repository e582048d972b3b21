"""The picture says about the bands what the thresholds say."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sciscidata.labels import DISRUPTION_LABELS, PRESETS, LabelThresholds, label_disruption
from sciscidata.plots import COLOURS, _draw_spread, draw_disruption


def draw(thresholds: LabelThresholds):
    figure = Figure(figsize=(7, 4))
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    _draw_spread(axes, np.array([-0.5, 0.0, 0.5]), thresholds)
    return axes


def names_by_score(axes) -> dict[str, float]:
    """Where each band's name stands, as the score that lies under its middle."""
    to_score = (axes.transScale + axes.transLimits).inverted()
    return {text.get_text(): to_score.transform(text.get_position())[0] for text in axes.texts}


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
    assert label_disruption(scores, thresholds).collect()["disruption_label"].to_list() == list(names)


cuts = st.floats(-2, 2)


@given(cuts, cuts)
def test_a_band_is_named_and_shaded_exactly_if_it_can_be_seen(low: float, high: float) -> None:
    assume(low < high)
    axes = draw(LabelThresholds(consolidating_max=low, disruptive_min=high))
    names = names_by_score(axes)
    assert ("consolidating" in names) == (low > -1.3)
    assert ("disruptive" in names) == (high < 1.3)
    shaded = [patch for patch in axes.patches if patch.get_alpha() == 0.13]
    assert len(shaded) == len(names)


def test_without_a_disruptive_band_its_name_is_not_written() -> None:
    assert set(names_by_score(draw(LabelThresholds(disruptive_min=5)))) == {"consolidating", "neutral"}


def test_every_label_has_its_own_colour() -> None:
    assert len({COLOURS[label] for label in DISRUPTION_LABELS}) == len(DISRUPTION_LABELS)


def test_the_same_numbers_give_the_same_picture(tmp_path) -> None:
    counts = dict.fromkeys(DISRUPTION_LABELS, 1)
    for name in ("a.png", "b.png"):
        cd = pl.Series([None, -0.2, 0.0, 0.4])
        draw_disruption(cd, LabelThresholds(), eligible=counts, drawn=counts, path=str(tmp_path / name))
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
