"""Ways to train over several seeds: the bootstrap against one written out, the permutation test against all swaps."""

from __future__ import annotations

import math
from itertools import product
from statistics import fmean, stdev

import numpy as np
import polars as pl
import pytest

from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.compare import (
    MEASURED,
    CompareConfig,
    _permute,
    adjust_holm,
    compare_predictions,
    mcnemar_exact,
)
from sciscirl.lab.evaluation.bootstrap import percentile_interval
from sciscirl.metrics.metrics import COMPARED, measure_predictions
from sciscirl.presets import find_preset
from tests.sciscirl.made_runs import make_predictions

QUICK = CompareConfig(n_resamples=40)


def answers(skill, seed, n=45, preset="exp4", **more):
    return make_predictions(find_preset(preset), n, skill=skill, seed=seed, **more)


@pytest.fixture(scope="module")
def ways():
    return {
        "good": {seed: answers(skill, seed) for seed, skill in enumerate((0.5, 0.7, 0.9))},
        "poor": {seed: answers(0.2, 10 + seed) for seed in range(3)},
        "lone": {0: answers(0.5, 20)},
    }


def draw(stream, n, size):
    """Whole numbers from 0 to n - 1 by Python's integers."""
    return [int(word) // 2**32 * n // 2**32 for word in stream.random_raw(size)]


def test_intervals_are_those_of_a_loop_over_papers_and_of_students_t_over_seeds(ways):
    found = compare_predictions(ways, QUICK)
    n = found.n_papers
    papers = np.random.Philox(key=0)
    drawn = {name: {metric: [] for metric in MEASURED} for name in ways}
    for rows in [draw(papers, n, n) for _ in range(QUICK.n_resamples)]:
        for name, tables in ways.items():
            by_seed = [table.sort("openalex_id")[rows].drop("openalex_id") for table in tables.values()]
            measured = [measure_predictions(table) for table in by_seed]
            for metric in MEASURED:
                drawn[name][metric].append(fmean(one[metric] for one in measured))

    def expect(values, resampled):
        """An interval over papers, widened in squares by Student's t over three seeds."""
        ends, middle = percentile_interval(np.array(resampled), 0.95), fmean(values)
        off = 4.302652729911275 * stdev(values) / math.sqrt(len(values))
        return middle - math.hypot(middle - ends[0], off), middle + math.hypot(ends[1] - middle, off)

    for name in ("good", "poor"):
        for metric in MEASURED:
            one = found.scores[name][metric]
            values = [measure_predictions(table)[metric] for table in ways[name].values()]
            low, high = expect(values, drawn[name][metric])
            assert (one.low, one.high) == pytest.approx((max(0, low), min(1, high)))
            assert one.value == pytest.approx(fmean(values))
            assert found.by_seed[name][metric] == tuple(values)
    pair = found.pairs[0]
    for metric in COMPARED:
        resampled = np.array(drawn["good"][metric]) - np.array(drawn["poor"][metric])
        sides = (found.by_seed[name][metric] for name in ("good", "poor"))
        values = [left - right for left, right in zip(*sides, strict=True)]
        one = pair.differences[metric]
        assert (one.low, one.high) == pytest.approx(tuple(max(-1, min(1, end)) for end in expect(values, resampled)))
    assert [(pair.left, pair.right, pair.seeds) for pair in found.pairs] == [
        ("good", "poor", (0, 1, 2)), ("good", "lone", (0,)), ("poor", "lone", (0,))
    ]  # fmt: skip


def swap(left, right, swaps):
    """Exchange the answers of two tables to some papers."""
    mask = pl.Series(swaps)
    sides = ((left, right), (right, left))
    return [pl.concat([one.filter(~mask), other.filter(mask)]) for one, other in sides]


def test_p_is_the_share_of_all_swaps_that_differ_as_much():
    tables = {name: {seed: answers(skill, seed + start, n=6) for seed in (0, 4)}
              for name, skill, start in (("one", 0.9, 0), ("other", 0.1, 30))}  # fmt: skip

    def differences(swaps):
        sides = [swap(tables["one"][seed], tables["other"][seed], swaps) for seed in (0, 4)]
        measured = [(measure_predictions(one), measure_predictions(two)) for one, two in sides]
        return {metric: abs(fmean(one[metric] - two[metric] for one, two in measured)) for metric in COMPARED}

    (pair,) = compare_predictions(tables, CompareConfig(n_resamples=4000)).pairs
    found = differences([False] * 6)
    every = [differences(swaps) for swaps in product([False, True], repeat=6)]
    for metric in COMPARED:
        as_much = [differ[metric] >= found[metric] - 1e-9 for differ in every]
        assert pair.p[metric] == pytest.approx(fmean(as_much), abs=0.03)


def test_p_of_one_seed_is_mcnemars_and_near_that_of_all_permutations():
    tables = {"one": answers(0.6, 1, n=120), "other": answers(0.45, 2, n=120)}
    (pair,) = compare_predictions(tables, QUICK).pairs
    assert pair.p["label_match"] == mcnemar_exact(pair.only_left, pair.only_right)
    swapped = _permute(*({0: table.sort("openalex_id")} for table in tables.values()), CompareConfig(n_resamples=4000))
    assert pair.p["label_match"] == pytest.approx(swapped["label_match"], abs=0.02)
    (joint,) = compare_predictions({name: answers(0.5, n, preset="joint") for n, name in enumerate("ab")}, QUICK).pairs
    assert joint.p["label_match"] >= 1 / 41


def test_seeds_that_differ_make_an_interval_wider_than_papers_alone():
    near = {seed: answers(0.5, 3) for seed in range(4)}  # four times the same answers
    far = {seed: answers(skill, 3) for seed, skill in enumerate((0.05, 0.3, 0.7, 0.95))}
    found = compare_predictions({"near": near, "far": far})
    widths = {name: scores["label_match"].high - scores["label_match"].low for name, scores in found.scores.items()}
    assert widths["far"] > 1.3 * widths["near"]


def test_holm_is_over_the_pairs_of_each_metric_and_a_pair_without_a_common_seed_has_no_p(ways):
    found = compare_predictions({**ways, "apart": {5: answers(0.4, 5)}}, QUICK)
    for metric in COMPARED:
        tested = [pair for pair in found.pairs if pair.seeds]
        assert [pair.p_holm[metric] for pair in tested] == adjust_holm([pair.p[metric] for pair in tested])
        assert {pair.p[metric] for pair in found.pairs if not pair.seeds} == {None}
    assert [pair.right for pair in found.pairs if not pair.seeds] == ["apart"] * 3


def test_what_stands_beside_is_scored_and_in_no_pair(ways):
    beside = {"majority": answers(0.0, 0, bias=1.0, broken=0.0)}
    found = compare_predictions(ways, QUICK, beside=beside)
    assert found.pairs == compare_predictions(ways, QUICK).pairs
    assert found.scores["majority"]["invalid"].value == 0.0
    assert found.names == tuple(ways)
    first = compare_predictions(ways, CompareConfig(n_resamples=60, reference="poor"))
    assert [(pair.left, pair.right) for pair in first.pairs] == [("good", "poor"), ("lone", "poor")]
    assert first.to_json()["pairs"][0]["left"] == "good"


def test_both_labels_of_the_joint_task_change_sides_together():
    ways = {name: {0: answers(skill, seed, preset="joint")} for name, skill, seed in (("a", 0.9, 1), ("b", 0.1, 2))}
    (pair,) = compare_predictions(ways, QUICK).pairs
    assert pair.p["macro_f1"] == pytest.approx(1 / 41)
    same = compare_predictions({"a": ways["a"], "b": ways["a"]}, QUICK).pairs[0]
    assert set(same.p.values()) == {1.0}


@pytest.mark.parametrize(
    ("ways", "said"),
    [
        ({"a": {}}, "a has no predictions"),
        ({"a": {0: answers(0.5, 0, n=9)}, "b": {1: answers(0.5, 0, n=12)}}, "a, seed 0 and b, seed 1 are not of the"),
    ],
)
def test_what_cannot_be_compared_is_refused(ways, said):
    with pytest.raises(PredictionsError, match=said):
        compare_predictions(ways, QUICK)
    with pytest.raises(PredictionsError, match="reference is 'z', needs one of a"):
        compare_predictions(ways, CompareConfig(reference="z"))
