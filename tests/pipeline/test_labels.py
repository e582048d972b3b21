"""The cut-offs, to the last representable number in both splits."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.label_thresholds import (
    NOVELTY_LABELS,
    LabelThresholds,
    compute_disruption_labels,
    compute_labels,
    compute_novelty_labels,
    compute_uzzi_cells,
    count_labels,
)
from sciscidata.release.verify import _check_labels
from sciscidata.sources.labelled import judge_labels

cuts = st.floats(min_value=-1, max_value=1)
scores = st.floats(min_value=-1, max_value=1)


def labels(values: list[float | None], thresholds: LabelThresholds) -> list[str | None]:
    frame = pl.DataFrame({"cd_index": values}, schema={"cd_index": pl.Float64})
    return compute_disruption_labels(frame, thresholds).collect()["disruption_label"].to_list()


def novelty(pairs: list[tuple[float | None, float | None]], thresholds: LabelThresholds) -> list[str | None]:
    schema = {"novelty_score": pl.Float64, "conventionality_score": pl.Float64}
    frame = pl.DataFrame(pairs, schema=schema, orient="row")
    return compute_novelty_labels(frame, thresholds).collect()["novelty_label"].to_list()


def around(cut: float) -> list[float]:
    return [math.nextafter(cut, -math.inf), cut, math.nextafter(cut, math.inf)]


def test_the_default_cut_offs_are_one_thousandth_inclusive() -> None:
    cut = LabelThresholds()
    assert labels(around(-0.001), cut) == ["consolidating", "consolidating", "neutral"]
    assert labels(around(0.001), cut) == ["neutral", "disruptive", "disruptive"]
    assert labels([-1.0, 0.0, -0.0, 1.0], cut) == ["consolidating", "neutral", "neutral", "disruptive"]


def test_the_wide_cut_offs_are_one_tenth_strict() -> None:
    cut = LabelThresholds.preset("wide")
    assert labels(around(-0.1), cut) == ["consolidating", "neutral", "neutral"]
    assert labels(around(0.1), cut) == ["neutral", "neutral", "disruptive"]


@given(st.lists(scores, min_size=1), cuts, cuts, st.booleans())
def test_labels_equal_a_plain_reading_of_the_rule(
    values: list[float], low: float, high: float, inclusive: bool
) -> None:
    assume(low < high)

    def rule(cd: float) -> str:
        if cd > high or (inclusive and cd == high):
            return "disruptive"
        if cd < low or (inclusive and cd == low):
            return "consolidating"
        return "neutral"

    cut = LabelThresholds(consolidating_max=low, disruptive_min=high, inclusive=inclusive)
    asked = [*values, *around(low), *around(high)]
    assert labels(asked, cut) == [rule(cd) for cd in asked]


def test_an_undefined_score_has_no_label() -> None:
    assert labels([None, math.nan], LabelThresholds()) == [None, None]
    pairs = [(None, 0.5), (0.5, None), (math.nan, 0.5), (None, None), (math.inf, math.inf)]
    assert novelty(pairs, LabelThresholds()) == [None] * 5


@given(st.lists(st.tuples(scores, scores), min_size=1), st.floats(min_value=0, max_value=1))
def test_novelty_equals_a_plain_reading_of_the_rule(pairs: list[tuple[float, float]], margin: float) -> None:
    def rule(novelty: float, conventionality: float) -> str:
        apart, least = as_printed(novelty) - as_printed(conventionality), as_printed(margin)
        return "novel" if apart > least else "conventional" if apart < -least else "balanced"

    # Against 0 the difference is the score itself, so nextafter reaches both sides of the margin exactly.
    asked = [*pairs, *((sign * score, 0.0) for score in around(margin) for sign in (1, -1))]
    got = novelty(asked, LabelThresholds(novelty_margin=margin))
    assert got == [rule(*pair) for pair in asked]
    assert set(got) <= set(NOVELTY_LABELS)


def as_printed(number: float) -> Fraction:
    return Fraction(repr(number))


@pytest.mark.parametrize("digits", [2, 3, 16])
@pytest.mark.parametrize("margin", [0.15, 0.1, 0.3, 0.0])
def test_scores_that_differ_by_exactly_the_margin_are_balanced(margin: float, digits: int) -> None:
    step = Fraction(1, 10**digits)
    apart = as_printed(margin)
    lows = [apart + step * number for number in range(7, min(10**digits, 700), 7)]
    pairs = [(float(low + apart + beyond), float(low)) for low in lows for beyond in (-step, Fraction(0), step)]
    # Only where a double prints as the decimal that was meant.
    pairs = [pair for pair in pairs if (as_printed(pair[0]) - as_printed(pair[1]) - apart) in (-step, 0, step)]
    assert len(pairs) > 30

    def rule(novelty: float, conventionality: float) -> str:
        apart_by = as_printed(novelty) - as_printed(conventionality)
        return "novel" if apart_by > apart else "conventional" if apart_by < -apart else "balanced"

    cut = LabelThresholds(novelty_margin=margin)
    assert novelty(list(pairs), cut) == [rule(*pair) for pair in pairs]
    turned = {"novel": "conventional", "conventional": "novel", "balanced": "balanced"}
    assert novelty([(low, high) for high, low in pairs], cut) == [turned[rule(*pair)] for pair in pairs]


def test_the_margin_of_an_example_is_decided_alike_when_labelled_verified_and_read_back() -> None:
    scores = {"novelty_score": [0.5, 0.35, 0.51], "conventionality_score": [0.35, 0.5, 0.35]}
    rows = pl.DataFrame({"work_id": [1, 2, 3], "openalex_id": ["W1", "W2", "W3"], "cd_index": [0.0] * 3, **scores})
    labelled = compute_labels(rows).collect()
    assert labelled["novelty_label"].to_list() == ["balanced", "balanced", "novel"]
    assert list(_check_labels("train", labelled, LabelThresholds(), None)) == []
    assert judge_labels(labelled.lazy(), "check", LabelThresholds())[1] == {}
    wrong = labelled.with_columns(novelty_label=pl.lit("novel"))
    assert "novelty_label of 2 rows" in next(_check_labels("train", wrong, LabelThresholds(), None))


def uzzi(pairs: list[tuple[float | None, float | None]], **options: float) -> list[str | None]:
    frame = pl.DataFrame(pairs, schema={"z_p10": pl.Float64, "z_median": pl.Float64}, orient="row")
    thresholds = LabelThresholds(novelty_rule="uzzi", **options)
    return compute_novelty_labels(frame, thresholds).collect()["novelty_label"].to_list()


z = st.floats(min_value=-100, max_value=100)


@given(st.just(0.0) | z)
def test_tail_novelty_begins_just_below_its_cut(tail_max: float) -> None:
    # All z_median are equal, and none of them lies above the median: that leaves novel and neither.
    pairs = [(z_p10, 5.0) for z_p10 in around(tail_max)]
    assert uzzi(pairs, uzzi_tail_max=tail_max) == ["novel", "balanced", "balanced"]


@given(st.lists(st.tuples(z, z), min_size=1))
def test_uzzis_rule_equals_a_plain_reading_of_the_paper(pairs: list[tuple[float, float]]) -> None:
    median = statistics.median(z_median for _, z_median in pairs)

    def rule(z_p10: float, z_median: float) -> str:
        tail, high = z_p10 < 0, z_median > median
        return "novel" if tail and not high else "conventional" if high and not tail else "balanced"

    asked = [*pairs, *((1.0, z_median) for z_median in around(median))]  # which leave the median where it was
    assert uzzi(asked) == [rule(*pair) for pair in asked]


@given(st.lists(z, min_size=1), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_another_share_than_the_median_cuts_at_its_place_in_order(values: list[float], share: float) -> None:
    cut = sorted(values)[math.floor(share * (len(values) - 1))]
    expected = ["conventional" if value > cut else "balanced" for value in values]
    assert uzzi([(1.0, value) for value in values], uzzi_median_share=share) == expected


@given(st.lists(st.tuples(z, z), min_size=1), st.lists(st.sampled_from([(None, None), (math.nan, math.nan)])))
def test_works_without_z_get_no_label_and_do_not_move_the_median(
    pairs: list[tuple[float, float]], unknown: list[tuple[None, None]]
) -> None:
    assert uzzi([*unknown, *pairs]) == [None] * len(unknown) + uzzi(list(pairs))


@given(st.lists(st.tuples(z, z)))
def test_the_four_cells_say_more_than_the_label_and_never_something_else(pairs: list[tuple[float, float]]) -> None:
    frame = pl.DataFrame(pairs, schema={"z_p10": pl.Float64, "z_median": pl.Float64}, orient="row")
    cells = compute_uzzi_cells(frame).select("has_tail_novelty", "has_high_conventionality").collect().rows()
    label = {(True, False): "novel", (False, True): "conventional"}
    assert [label.get(cell, "balanced") for cell in cells] == uzzi(list(pairs))
    assert compute_uzzi_cells(frame, LabelThresholds(uzzi_tail_max=1000)).collect()["has_tail_novelty"].all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"consolidating_max": 0.5}, "must lie below LabelThresholds.disruptive_min"),
        ({"consolidating_max": 0.0, "disruptive_min": 0.0}, "must lie below LabelThresholds.disruptive_min"),
    ],
)
def test_impossible_thresholds_are_refused_by_name(options: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        LabelThresholds(**options)


def test_equal_strict_cut_offs_are_the_sign_of_the_score() -> None:
    cut = LabelThresholds(consolidating_max=0, disruptive_min=0, inclusive=False)
    assert labels([-1e-300, 0.0, 1e-300], cut) == ["consolidating", "neutral", "disruptive"]
    assert cut.disruptive_min == 0.0
    assert isinstance(cut.disruptive_min, float)


def test_an_unknown_preset_names_the_known_ones() -> None:
    for name in ("narrow", {"a": 1}, None):
        with pytest.raises(ConfigError, match="default, wide"):
            LabelThresholds.preset(name)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", [pl.DataFrame, pl.LazyFrame])
def test_labelling_checks_its_input_before_it_runs(kind: type) -> None:
    with pytest.raises(SchemaMismatchError, match="cd_index"):
        compute_disruption_labels(kind({"cd_index": ["0.1"]}))
    with pytest.raises(SchemaMismatchError, match="conventionality_score"):
        compute_novelty_labels(kind({"novelty_score": [0.1]}))
    with pytest.raises(SchemaMismatchError, match="z_median"):
        compute_novelty_labels(kind({"z_p10": [0.1]}), LabelThresholds(novelty_rule="uzzi"))
    with pytest.raises(SchemaMismatchError, match="disruption_label"):
        count_labels(kind({"cd_index": [0.1]}))


@given(st.lists(st.sampled_from([*NOVELTY_LABELS, None])))
def test_counts_come_in_label_order_and_leave_out_nulls(column: list[str | None]) -> None:
    frame = pl.DataFrame({"novelty_label": column}, schema={"novelty_label": pl.String})
    assert list(count_labels(frame, "novelty_label").items()) == [(n, column.count(n)) for n in NOVELTY_LABELS]
