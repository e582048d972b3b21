"""A batch is judged by what the batches before it said, in whatever order their answers came in."""

from __future__ import annotations

import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscirl.lab.objectives.batch_term import ShareTracker
from sciscirl.task.contracts import parse_answer, render_answer
from sciscirl.task.papers import VOCABULARIES

LABELS = VOCABULARIES["disruption_label"]
COUNTS = tuple(zip(LABELS, (1, 2, 5), strict=True))
said = st.lists(st.tuples(st.integers(0, 6), st.sampled_from([*LABELS, "?"])), max_size=30)


def say(label: str, confidence: float = 1.0, contract: str = "two_keys"):
    text = "?" if label == "?" else render_answer(label, contract, confidence=confidence)
    return parse_answer(text, contract)


def track(answers, window=10**6) -> ShareTracker:
    tracker = ShareTracker(COUNTS, window)
    for batch, label in answers:
        tracker.record(batch, say(label))
    return tracker


@given(said, st.integers(0, 8), st.integers(1, 12), st.randoms(use_true_random=False))
def test_the_excess_is_share_said_less_share_due_over_the_batches_before_in_any_order(answers, batch, window, random):
    tracker = track(answers, window)
    recent: list[str] = []
    for earlier in range(batch - 1, -1, -1):
        if len(recent) >= window:
            break
        recent += [label for place, label in answers if place == earlier and label != "?"]
    excess = tracker.find_excess(batch)
    assert tracker.count_answers(batch) == len(recent)
    for label, count in COUNTS:
        share = Fraction(recent.count(label), len(recent)) - Fraction(count, 8) if recent else 0
        assert excess[label] == float(share)
    shuffled = random.sample(answers, len(answers))
    assert track(shuffled, window).find_excess(batch) == excess


@given(said, st.integers(0, 6))
def test_what_a_batch_and_later_ones_say_does_not_touch_it(answers, batch):
    before = [(place, label) for place, label in answers if place < batch]
    assert track(answers).find_excess(batch) == track(before).find_excess(batch)


@given(st.lists(st.tuples(st.sampled_from(LABELS), st.integers(34, 100)), min_size=1, max_size=20), st.randoms())
def test_forecasts_are_added_up_whatever_their_order_and_the_excess_adds_up_to_nothing(forecasts, random):
    shuffled = random.sample(forecasts, len(forecasts))
    found = []
    for order in (forecasts, shuffled):
        tracker = ShareTracker(COUNTS)
        for label, hundredths in order:
            tracker.record(0, say(label, hundredths / 100, "probabilities"))
        found.append(tracker.find_excess(1))
    assert found[0] == found[1]
    assert sum(found[0].values()) == pytest.approx(0, abs=1e-12)
    mean = sum(h / 100 if label == "neutral" else (1 - h / 100) / 2 for label, h in forecasts) / len(forecasts)
    assert found[0]["neutral"] == pytest.approx(mean - 5 / 8, abs=1e-4)


def test_the_shares_of_two_vocabularies_are_counted_apart():
    counts = [*COUNTS, *zip(VOCABULARIES["novelty_label"], (1, 1, 2), strict=True)]
    tracker = ShareTracker(counts)
    text = render_answer({"disruption_label": "neutral", "novelty_label": "novel"}, "two_keys", "joint")
    tracker.record(0, parse_answer(text, "two_keys", "joint"))
    excess = tracker.find_excess(1)
    assert (excess["neutral"], excess["novel"], excess["conventional"]) == (3 / 8, 0.75, -0.5)


def test_a_tracker_that_was_sent_elsewhere_knows_nothing():
    tracker = track([(0, "neutral")], window=7)
    copy = pickle.loads(pickle.dumps(tracker))
    assert (copy.class_counts, copy.window, copy.count_answers(1)) == (COUNTS, 7, 0)
    assert set(copy.find_excess(1).values()) == {0.0}
