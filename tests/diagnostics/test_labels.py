"""The ceiling of novelty labels, in worlds whose chances are known."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sciscidata.diagnostics.labels import find_novelty_ceiling
from sciscidata.disruption.label_confidence import best_expected
from sciscidata.errors import ConfigError, EmptyInputError
from sciscidata.label_thresholds import NOVELTY_LABELS
from sciscidata.novelty.label_confidence import NOVELTY_CONFIDENCE

COLUMNS = [f"p_{label}" for label in NOVELTY_LABELS]


@pytest.mark.parametrize(
    ("concentration", "usual"), [(0.5, (1 / 3, 1 / 3, 1 / 3)), (3, (0.05, 0.1, 0.85)), (20, (0.1, 0.2, 0.7))]
)
def test_the_ceiling_is_what_a_predictor_that_knows_the_chances_reaches(concentration, usual):
    rng, n = np.random.default_rng(2), 4_000
    chances = rng.dirichlet(concentration * np.array(usual), n)
    own = (rng.random(n)[:, None] > chances[:, :2].cumsum(axis=1)).sum(axis=1)
    told = (concentration * np.array(usual) + np.eye(3)[own]) / (concentration + 1)  # what a work's own label tells
    frame = pl.DataFrame(told, COLUMNS, orient="row").with_columns(label_confidence=told[np.arange(n), own])
    for shares in (None, dict.fromkeys(NOVELTY_LABELS, 1 / 3)):
        weight = np.ones(3) if shares is None else 1 / chances.mean(axis=0)
        found, known = find_novelty_ceiling(frame, shares=shares), best_expected(chances * weight)
        assert (found.accuracy, found.macro_f1) == pytest.approx(known, abs=0.025)
        assert found.works == n


def test_a_ceiling_needs_labels_and_their_names():
    empty = pl.DataFrame(schema=NOVELTY_CONFIDENCE)
    with pytest.raises(EmptyInputError, match="no work has a novelty label"):
        find_novelty_ceiling(empty)
    one = pl.DataFrame({"label_confidence": [1.0], "p_novel": [1.0], "p_balanced": [0.0], "p_conventional": [0.0]})
    assert find_novelty_ceiling(one).accuracy == pytest.approx(1, abs=1e-3)
    with pytest.raises(ConfigError, match=r"shares holds .*neutral.*needs shares of novel, balanced, conventional"):
        find_novelty_ceiling(one, shares={"neutral": 1})
