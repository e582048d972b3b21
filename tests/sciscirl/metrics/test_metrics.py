"""Metrics beside definitions written out in plain Python, scikit-learn on what it has, and the published table."""

from __future__ import annotations

import json
import math
from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.label_thresholds import DISRUPTION_LABELS
from sciscirl.errors import PredictionsError
from sciscirl.lab.evaluation.bootstrap import bootstrap_intervals, resample_metrics
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.task.contracts import parse_answer, render_answer
from sciscirl.task.predictions import INVALID, PREDICTIONS, make_prediction, tie_metrics
from sciscirl.task.rewards import REWARDS, score_answer
from tests.conftest import REPOSITORY

PUBLISHED = json.loads((REPOSITORY / "tests" / "golden" / "published.json").read_text("utf-8"))
PREDICTED = (*DISRUPTION_LABELS, INVALID)
labels = st.sampled_from(DISRUPTION_LABELS)


PHILOX = [213000021201967259, 4455796210202625458]
BASELINE_INTERVALS = {
    "macro_f1/low": 0.2474178707963455,
    "macro_f1/high": 0.3288864476265037,
    "balanced_accuracy/low": 0.2658006008679203,
    "balanced_accuracy/high": 0.3378744884306275,
}


def row(gold: str, label: str | None, confidence: float = 0.5, *, is_json: bool | None = None) -> dict:
    is_valid = label is not None
    return {
        "gold": gold,
        "label": label,
        "confidence": confidence if is_valid else None,
        "is_json": is_valid if is_json is None else is_json,
        "is_valid": is_valid,
    }


rows = st.builds(row, labels, st.none() | labels, st.floats(0, 1))
many_rows = st.lists(rows, min_size=1, max_size=40)


def expand(run: dict) -> list[dict]:
    """One row per answer out of a confusion matrix: rows gold, columns predicted and invalid."""
    table = [
        row(gold, None if name == INVALID else name, is_json=True)
        for gold, counts in zip(DISRUPTION_LABELS, run["confusion"], strict=True)
        for name, count in zip(PREDICTED, counts, strict=True)
        for _ in range(count)
    ]
    invalid = [line for line in table if not line["is_valid"]]
    for line in invalid[: run["not_json"]]:
        line["is_json"] = False
    return table


@pytest.mark.parametrize("run", [*PUBLISHED["runs"], *PUBLISHED["exp5"]], ids=lambda run: run["name"])
def test_the_published_table_is_recomputed_to_the_printed_digit(run):
    metrics = measure_predictions(expand(run))
    for name, printed in run["printed"].items():
        digits = len(printed.partition(".")[2])
        assert f"{metrics[name]:.{digits}f}" == printed, name
    assert metrics["n"] == (500 if run in PUBLISHED["runs"] else 2000)


def oracle(table: list[dict]) -> dict[str, float]:
    """The definitions, in fractions."""
    n = len(table)
    pairs = [(line["gold"], line["label"] or INVALID) for line in table]
    cells = Counter(pairs)
    metrics: dict[str, float | Fraction] = {
        "n": n,
        "label_match": Fraction(sum(gold == said for gold, said in pairs), n),
        "parse_ok": Fraction(sum(line["is_json"] for line in table), n),
        "format_strict_ok": Fraction(sum(said != INVALID for _, said in pairs), n),
        "invalid": Fraction(sum(said == INVALID for _, said in pairs), n),
    }
    recalls, f1s = [], []
    for label in DISRUPTION_LABELS:
        held = sum(gold == label for gold, _ in pairs)
        said = sum(guess == label for _, guess in pairs)
        hits = cells[label, label]
        if said:
            metrics[f"precision/{label}"] = Fraction(hits, said)
        if held:
            recalls.append(Fraction(hits, held))
            f1s.append(Fraction(2 * hits, held + said))
            metrics |= {f"recall/{label}": recalls[-1], f"f1/{label}": f1s[-1]}
    metrics["macro_f1"] = sum(f1s) / len(f1s)
    metrics["balanced_accuracy"] = sum(recalls) / len(recalls)
    metrics["min_class_recall"] = min(recalls)
    held, said = (Counter(pair[split] for pair in pairs) for split in (0, 1))
    cov = sum(cells[label, label] for label in PREDICTED) * n - sum(held[label] * said[label] for label in PREDICTED)
    spread = (n * n - sum(v * v for v in said.values())) * (n * n - sum(v * v for v in held.values()))
    metrics["mcc"] = cov / math.sqrt(spread) if spread else 0
    for name in PREDICTED:
        metrics[f"predicted_share/{name}"] = Fraction(said[name], n)
        metrics |= {f"confusion/{label}/{name}": cells[label, name] for label in DISRUPTION_LABELS}
    sure = [1.0 if line["label"] is None else line["confidence"] for line in table]
    right = [gold == said for gold, said in pairs]
    metrics["brier"] = sum((c - r) ** 2 for c, r in zip(sure, right, strict=True)) / n
    bins = Counter()
    for c, r in zip(sure, right, strict=True):
        bins[max(1, math.ceil(c * 10))] += c - r
    metrics["ece"] = sum(abs(gap) for gap in bins.values()) / n
    stated = [line["confidence"] for line in table if line["label"]]
    if stated:
        metrics["mean_confidence"] = sum(stated) / len(stated)
    return {name: float(value) for name, value in metrics.items()}


@given(many_rows)
def test_every_metric_is_what_its_definition_says(table):
    assert measure_predictions(table) == pytest.approx(oracle(table), abs=1e-12)


@given(many_rows, st.randoms(use_true_random=False))
def test_the_order_of_the_answers_does_not_matter_and_shares_add_up(table, random):
    metrics = measure_predictions(table)
    shuffled = table.copy()
    random.shuffle(shuffled)
    assert measure_predictions(shuffled) == metrics
    assert sum(metrics[f"predicted_share/{name}"] for name in PREDICTED) == pytest.approx(1)
    assert sum(value for name, value in metrics.items() if name.startswith("confusion/")) == len(table)
    assert all(math.isfinite(value) for value in metrics.values())
    assert all(
        0 <= value <= 1 for name, value in metrics.items() if name not in {"n", "mcc"} and "confusion" not in name
    )


@given(many_rows, st.integers(0, 39), st.booleans())
def test_an_answer_that_turns_invalid_improves_nothing(table, index, is_json):
    index %= len(table)
    spoiled = [*table[:index], row(table[index]["gold"], None, is_json=is_json), *table[index + 1 :]]
    before, after = measure_predictions(table), measure_predictions(spoiled)
    for name in ("label_match", "format_strict_ok", "balanced_accuracy", "min_class_recall"):
        assert after[name] <= before[name] + 1e-12
    assert after["invalid"] >= before["invalid"]
    assert after["brier"] >= before["brier"] - 1e-12
    if table[index]["gold"] == table[index]["label"]:
        assert after["macro_f1"] < before["macro_f1"]


@pytest.mark.parametrize(
    ("confidences", "ece"),
    [
        ((0.3, 0.3), 0.2),  # one bin: mean 0.3, half right
        ((0.3, 0.31), (0.7 + 0.31) / 2),  # 0.3 closes its bin, 0.31 is in the next
        ((0.0, 0.1), 0.45),  # 0 is in the first bin: |0 + 0.1 - 1| / 2
        ((1.0, 0.9), 0.45),  # 0.9 closes the ninth bin: (0 + 0.9) / 2
    ],
)
def test_the_bins_of_the_calibration_error_are_closed_above(confidences, ece):
    table = [row("neutral", "neutral", confidences[0]), row("neutral", "disruptive", confidences[1])]
    assert measure_predictions(table)["ece"] == pytest.approx(ece)


def predict(text: str, gold: str = "neutral", table: str = "strong") -> dict:
    answer = parse_answer(text, "two_keys")
    return make_prediction("W1", gold, answer, score_answer(answer, gold, REWARDS[table]), text)


def test_a_prediction_holds_everything_that_was_judged():
    text = f"<think>{render_answer('neutral', 'two_keys', confidence=0.25)}"
    made = predict(text)
    assert tuple(made) == tuple(PREDICTIONS)
    assert made == {
        "openalex_id": "W1", "gold": "neutral", "label": None, "forecast": None, "confidence": None,
        "is_json": False, "is_valid": False, "has_think": True, "problem": "not_json", "tolerant_label": "neutral",
        "tolerant_confidence": 0.25, "reward": -2.0, "reward_parse": -1.0, "reward_contract": 0.0,
        "reward_task": 0.0, "reward_think": -1.0, "text": text,
    }  # fmt: skip


def test_whole_predictions_also_give_mean_rewards_and_what_a_lenient_reader_sees(tmp_path):
    good = render_answer("neutral", "two_keys")
    table = [predict(good), predict(good, "disruptive"), predict(f"```{good}```"), predict("<think>"), predict("{}")]
    metrics = measure_predictions(table)
    assert metrics["reward"] == pytest.approx((1.05 - 0.55 - 1 - 2 - 0.75) / 5)
    assert metrics["reward_parse"] == pytest.approx(-2 / 5)
    assert metrics["reward_contract"] == pytest.approx((0.05 + 0.05 - 0.75) / 5)
    assert metrics["reward_task"] == pytest.approx((1 - 0.6) / 5)
    assert metrics["reward_think"] == metrics["reward_parse"] / 2
    assert (metrics["label_match"], metrics["tolerant_label_match"], metrics["think"]) == (0.2, 0.4, 0.2)
    assert (metrics["parse_ok"], metrics["format_strict_ok"]) == (0.6, 0.4)
    frame = pl.DataFrame(table, schema=PREDICTIONS)
    frame.write_parquet(tmp_path / "predictions.parquet")
    assert measure_predictions(pl.read_parquet(tmp_path / "predictions.parquet")) == metrics


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gold": None}, "1 of 2 predictions have an unknown gold label"),
        ({"label": "novel"}, "have an unknown label"),
        ({"label": None}, "are valid without"),
        ({"is_valid": False}, "without being valid"),
        ({"is_valid": None}, "do not say whether"),
        ({"is_json": False}, "are valid but not JSON"),
        ({"confidence": 1.5}, "outside 0 to 1"),
        ({"confidence": float("nan")}, "outside 0 to 1"),
        ({"reward": float("nan")}, "have no finite reward"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(change, message):
    good = predict(render_answer("neutral", "two_keys"))
    measure_predictions([good, good])
    with pytest.raises(PredictionsError, match=message):
        measure_predictions([good, good | change])


def test_missing_columns_and_other_types_are_named():
    frame = pl.DataFrame([predict(render_answer("neutral", "two_keys"))], schema=PREDICTIONS)
    with pytest.raises(PredictionsError, match="gold missing, needs String; confidence String, needs Float64"):
        measure_predictions(frame.drop("gold").cast({"confidence": pl.String}))
    with pytest.raises(PredictionsError, match="no predictions"):
        bootstrap_intervals(frame.clear())
    with pytest.raises(PredictionsError, match="reward Int64, needs Float64"):
        measure_predictions(frame.cast({"reward": pl.Int64}))


def test_the_raw_numbers_behind_the_bootstrap_are_those_on_record():
    # Philox4x64-10 as NumPy and Random123 have it; its stream is guaranteed, those of Generator methods are not.
    assert np.random.Philox(key=0).random_raw(2).tolist() == PHILOX
    intervals = bootstrap_intervals(expand(PUBLISHED["runs"][0]))
    assert {name: intervals[name] for name in BASELINE_INTERVALS} == BASELINE_INTERVALS


def wilson(share: float, n: int) -> tuple[float, float]:
    """Where the normal test of Wilson 1927 just accepts: the roots of (share - p)^2 = z^2 p (1 - p) / n in p."""
    z = 1.959963984540054
    roots = np.roots([1 + z * z / n, -(2 * share + z * z / n), share * share])
    return tuple(sorted(float(root) for root in roots.real))


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_a_share_of_papers_has_wilsons_interval_which_is_never_a_point(right, wrong, broken):
    n = right + wrong + broken
    if n == 0:
        return
    table = [row("neutral", said) for said, times in
             (("neutral", right), ("disruptive", wrong), (None, broken)) for _ in range(times)]  # fmt: skip
    intervals = bootstrap_intervals(table, n_resamples=20)
    for name, share in (("label_match", right / n), ("recall/neutral", right / n), ("min_class_recall", right / n),
                        ("format_strict_ok", (n - broken) / n)):  # fmt: skip
        low, high = intervals[f"{name}/low"], intervals[f"{name}/high"]
        assert (low, high) == pytest.approx(wilson(share, n), abs=1e-9)
        assert high - low > 0.04  # of 90 papers of which none is right, the least
        assert low - 1e-12 <= share <= high + 1e-12


@given(many_rows, st.integers(0, 2**40))
def test_intervals_hold_values_that_metrics_can_have_in_order(table, seed):
    intervals = bootstrap_intervals(table, n_resamples=60, seed=seed)
    assert intervals == bootstrap_intervals(table, n_resamples=60, seed=seed)
    names = {name.removesuffix("/low") for name in intervals if name.endswith("/low")}
    metrics = measure_predictions(table)
    shares = {name for name in metrics if name.startswith("recall/")} | {"label_match", "format_strict_ok"}
    resampled = {"macro_f1", "balanced_accuracy"}
    assert shares | {"min_class_recall"} <= names <= shares | resampled | {"min_class_recall"}
    for name in names:
        assert 0 <= intervals[f"{name}/low"] < intervals[f"{name}/high"] <= 1


@given(rows, st.integers(1, 20))
def test_where_all_answers_are_alike_resamples_say_nothing(line, times):
    intervals = bootstrap_intervals([line] * times, n_resamples=20)
    assert not {"macro_f1/low", "balanced_accuracy/low"} & set(intervals)


@pytest.mark.parametrize(
    "options", [{"n_resamples": 0}, {"n_resamples": 10**11}, {"level": 1.0}, {"level": 0.0}, {"seed": -1}]
)
def test_an_impossible_interval_is_refused(options):
    with pytest.raises(PredictionsError, match=r"needs (1 to 1,000,000, 0 or more|a share between 0 and 1)"):
        bootstrap_intervals([row("neutral", "neutral")], **options)


@given(many_rows, st.data())
def test_resamples_of_two_evaluations_are_of_the_same_papers(table, data):
    later = [row(line["gold"], data.draw(st.sampled_from((*DISRUPTION_LABELS, None)))) for line in table]
    once = resample_metrics([table], n_resamples=7, seed=3)
    both = resample_metrics([table, later, table], n_resamples=7, seed=3)
    for name, values in both.items():
        assert values.shape == (3, 7)
        assert np.array_equal(values[0], once[name][0], equal_nan=True)
        assert np.array_equal(values[2], once[name][0], equal_nan=True)
        assert np.array_equal(np.isnan(values[0]), np.isnan(values[1]))  # undefined by gold labels, not by answers


def test_tables_of_other_papers_are_not_resampled_together():
    first, second = ([row("neutral", "neutral") | {"openalex_id": name}] for name in ("W1", "W2"))
    resample_metrics([first, first])
    with pytest.raises(PredictionsError, match="same papers in the same order"):
        resample_metrics([first, second])


@given(st.lists(st.lists(st.sampled_from([1.05, -0.55, -0.75, -1.0]), max_size=6), max_size=6), st.integers(-4, 4))
def test_ties_follow_their_definitions_and_do_not_see_a_shift(groups, shift):
    rates = tie_metrics(groups)
    real = [group for group in groups if len(group) > 1]
    if not real:
        assert rates == {}
        return
    pairs = [a == b for group in real for a, b in combinations(group, 2)]
    assert rates["reward_tie_group_rate"] == sum(any(a == b for a, b in combinations(g, 2)) for g in real) / len(real)
    assert rates["reward_uniform_group_rate"] == sum(min(g) == max(g) for g in real) / len(real)
    assert rates["reward_tie_pair_rate"] == sum(pairs) / len(pairs)
    assert rates["reward_unique_fraction_mean"] == pytest.approx(sum(len({*g}) / len(g) for g in real) / len(real))
    assert rates["reward_uniform_group_rate"] <= rates["reward_tie_group_rate"]
    assert tie_metrics([[8 * value + shift for value in group] for group in groups]) == rates
    assert all(0 <= rate <= 1 for rate in rates.values())
