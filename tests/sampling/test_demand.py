"""What a draw still needs: quotas are full exactly when the draw itself succeeds, whatever it balances."""

from __future__ import annotations

import itertools

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.eligibility import EligibilityConfig
from sciscidata.errors import NotEnoughWorksError
from sciscidata.label_thresholds import NOVELTY_LABELS, LabelThresholds, compute_labels
from sciscidata.sampling.balance import BALANCED
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.demand import Demand
from sciscidata.sampling.split import draw_split
from sciscidata.schemas import ATYPICALITY, CD_SCORES, WORKS
from sciscidata.sources.quotas import Quotas

#: cd_index, z_p10 and z_median, with a novelty and a conventionality score that say the same.
SCORES = st.tuples(
    st.sampled_from([-0.5, 0.0, 0.5, None]), st.sampled_from([(-2.0, -1.0), (-1.0, 3.0), (1.0, 4.0), (None, None)])
)
RULES = st.sampled_from([LabelThresholds(), LabelThresholds(novelty_rule="uzzi")])


def quotas_of(
    balance: str, *, n_train: int = 9, n_test: int = 9, n_dev: int = 0, thresholds: LabelThresholds | None = None
) -> Quotas:
    split = SplitConfig(n_train=n_train, n_test=n_test, n_dev=n_dev, balance=balance)
    return Demand(thresholds or LabelThresholds(), EligibilityConfig(last_year=2020), split, 5).quotas


def frames(scores: list[tuple[float | None, tuple[float | None, float | None]]]) -> list[pl.DataFrame]:
    """WORKS and scores of works that only their scores tell apart."""
    works = [
        {"work_id": i, "title": f"On {i}", "abstract": "We ask.", "publication_year": 2000, "is_retracted": False}
        for i in range(len(scores))
    ]
    rows = [
        {
            "work_id": i,
            "n_i": 1,
            "n_j": 1,
            "cd_index": cd,
            "z_p10": low,
            "z_median": middle,
            "novelty_score": None if low is None else float(low < 0),
            "conventionality_score": None if middle is None else float(middle > 0),
        }
        for i, (cd, (low, middle)) in enumerate(scores)
    ]
    scored = pl.DataFrame(rows, schema={**CD_SCORES, **ATYPICALITY}).with_columns(n_references=pl.lit(1, pl.UInt32))
    return [pl.DataFrame(works, schema=WORKS), scored]


@settings(max_examples=50)
@given(
    st.sampled_from(list(BALANCED)),
    st.lists(SCORES, max_size=60),
    st.tuples(st.integers(0, 9), st.integers(1, 9), st.sampled_from([0, 0, 3, 9])),
    RULES,
)
def test_quotas_are_full_exactly_when_the_draw_succeeds(balance, scores, sizes, thresholds):
    quotas = quotas_of(balance, **dict(zip(("n_train", "n_test", "n_dev"), sizes, strict=True)), thresholds=thresholds)
    tables = frames(scores)
    quotas.update(*tables)
    assert quotas.filled + sum(quotas.still_missing.values()) == sum(sizes)
    labelled = compute_labels(tables[1], thresholds).filter(pl.col("cd_index").is_not_null())
    try:
        drawn = draw_split(labelled, SplitConfig(n_train=sizes[0], n_test=sizes[1], n_dev=sizes[2], balance=balance))
    except NotEnoughWorksError:
        assert not quotas.is_met
    else:
        assert quotas.is_met
        assert quotas.filled == drawn.height == sum(sizes)
        cells = [tuple(row) for row in drawn.select(quotas.columns).rows()]
        assert [quotas.cell_of[work_id] for work_id in drawn["work_id"]] == cells


def test_possible_cells_follow_the_sign_and_leave_novelty_open():
    of_disruption, of_novelty, joint = (quotas_of(balance) for balance in ("disruption", "novelty", "joint"))
    for (n_i, n_j), labels in {
        (3, 1): {"disruptive", "neutral"},
        (1, 3): {"consolidating", "neutral"},
        (2, 2): {"neutral"},
        (0, 0): {"neutral"},
    }.items():
        assert of_disruption.possible_cells(n_i, n_j) == {(label,) for label in labels}
        assert of_novelty.possible_cells(n_i, n_j) == {(label,) for label in NOVELTY_LABELS}
        assert joint.possible_cells(n_i, n_j) == set(itertools.product(labels, NOVELTY_LABELS))


def test_a_cell_is_open_on_a_side_until_its_own_quota_is_full():
    quotas = quotas_of("joint", n_train=9, n_test=0)
    assert quotas.open_cells == {"train": frozenset(quotas.cells), "test": frozenset()}
    quotas.update(*frames([(0.5, (-2.0, -1.0)), (0.5, (-2.0, -1.0)), (0.0, (1.0, 4.0)), (None, (1.0, 4.0))]))
    full = {("disruptive", "novel"), ("neutral", "conventional")}
    assert quotas.open_cells["train"] == frozenset(quotas.cells) - full
    assert quotas.filled == 2
    assert not quotas.is_met
