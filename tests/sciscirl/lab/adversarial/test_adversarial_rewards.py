from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscirl.errors import RewardError
from sciscirl.lab.adversarial.rewards import N_STEPS, Episode, Reasoning, judge_by_rubric, score_episode
from sciscirl.metrics.metrics import flip_metrics, measure_flips, measure_predictions
from sciscirl.task.contracts import Reasons, parse_answer, render_answer
from sciscirl.task.experiment import AdversarialRules
from sciscirl.task.papers import TARGETS, VOCABULARIES, PaperView
from tests.sciscirl.papers import hostile_texts, views

VIEW = PaperView(
    "Sleep loss in mice",
    "Mice kept awake for a night forget a learned maze. Sleeping controls remember the platform.",
    2001,
    3,
    "Neuroscience",
)
CHALLENGE = "Memory deficits after deprivation were reported earlier, so this strengthens that literature."
FIRST_REASON = "Others could use the maze task without reading older studies."
REASON = (
    "Earlier deprivation reports concern rats and other tasks; the maze protocol here stands alone, so I keep my view."
)
SIGNALS = ("forget a learned maze", "Sleeping controls remember")
JOINT = TARGETS["joint"]
GOLDS = [dict(zip(JOINT, labels, strict=True)) for labels in product(*(VOCABULARIES[column] for column in JOINT))]
golds = st.sampled_from(GOLDS)


def write(labels, reason=REASON, signals=SIGNALS, target="joint"):
    return render_answer(labels, "four_keys", target, reasons=Reasons(reason, signals))


def play(first, final, *, challenge=CHALLENGE, view=VIEW, target="joint"):
    answers = [parse_answer(text, "four_keys", target) for text in (first, final)]
    return Episode(
        view=view, first=answers[0], first_text=first, challenge=challenge, final=answers[1], final_text=final
    )


def judge(reason=REASON, signals=SIGNALS, **options):
    return judge_by_rubric(play(write(GOLDS[0], FIRST_REASON), write(GOLDS[0], reason, signals), **options))


# --- the rubric ---------------------------------------------------------------------------------------------------


def test_quoting_the_paper_answering_the_challenge_and_own_words_meet_the_rubric():
    assert judge() == Reasoning(grounded=True, responsive=True, own_words=True)
    assert judge().n_steps == N_STEPS


@pytest.mark.parametrize(
    "signals",
    [
        ("citation record",),  # in neither title nor abstract
        ("forget a learned maze", "a lost platform"),  # one of them is
        ("forget learned maze",),  # not in a row
        ("maze Sleeping controls", "in mice Mice kept awake"),  # the second runs from the title into the abstract
        ("maze",),  # no quotation
        ("for a",),  # says nothing
        ("a learned maze", "A learned, maze!"),  # the same twice
        ("Mice kept awake for a night forget a learned maze Sleeping controls remember",),  # too much
        ("a night", "kept awake", "a learned", "learned maze", "maze Sleeping"),  # too many
        ("!?",),
    ],
)
def test_signals_that_are_no_quotations_are_not_grounded(signals):
    assert judge(signals=signals) == Reasoning(grounded=False, responsive=True, own_words=True)


@pytest.mark.parametrize(
    "signals",
    [
        ("sleep LOSS in Mice",),
        ("a night",),
        ("kept awake for a night forget a learned maze. Sleeping, controls remember",),
    ],
)
def test_quotations_are_read_without_case_and_marks_from_title_and_abstract(signals):
    assert judge(signals=signals).grounded


@pytest.mark.parametrize(
    ("reason", "responsive"),
    [
        ("The protocol deprivation used could spread far beyond these animals entirely.", False),  # one word of it
        ("The deprivation protocol and its deficits could spread far beyond these animals.", True),
        ("After that were so this: nothing here but little words that anyone might say.", False),
    ],
)
def test_two_telling_words_of_the_challenge_have_to_be_taken_up(reason, responsive):
    assert judge(reason).responsive is responsive


def test_words_of_the_first_justification_are_not_taken_up_anew():
    first = write(GOLDS[0], "Memory deficits after deprivation have long been known to everybody there.")
    final = write(GOLDS[0], "Memory deficits after deprivation were known, and the platform shows nothing new at all.")
    assert not judge_by_rubric(play(first, final)).responsive
    assert judge_by_rubric(play("no answer", final)).responsive


def test_label_names_in_a_challenge_are_nothing_to_take_up():
    reason = "I hold that disruptive and novel are right, neither consolidating nor conventional at all."
    assert not judge(reason, challenge="I would say consolidating and conventional rather than disruptive.").responsive


@pytest.mark.parametrize(
    "reason",
    [
        FIRST_REASON,
        CHALLENGE,
        VIEW.abstract,
        "I keep it as it is.",  # too short
        "word " * 121,
        "yes it is so " * 5,  # the same again and again
        f"Deprivation literature: {VIEW.abstract} I stand by that.",
    ],
)
def test_a_copy_is_not_in_own_words(reason):
    assert not judge(reason).own_words


def test_half_of_a_justification_may_be_quoted():
    reason = "Memory deficits after deprivation were reported, but with other animals and tasks than this one uses."
    assert judge(reason).own_words


def test_of_an_invalid_final_answer_nothing_is_read():
    final = write(GOLDS[0])[:-1]
    assert judge_by_rubric(play(write(GOLDS[0], FIRST_REASON), final)) == Reasoning()


def test_without_a_paper_or_a_challenge_there_is_nothing_to_quote_or_take_up():
    empty = replace(VIEW, title=None, abstract=None)
    assert judge(view=empty) == Reasoning(grounded=False, responsive=True, own_words=True)
    assert judge(challenge="") == Reasoning(grounded=True, responsive=False, own_words=True)


@given(views, hostile_texts, hostile_texts, st.lists(hostile_texts, max_size=5), golds)
def test_the_rubric_reads_any_texts_at_all(view, challenge, reason, signals, labels):
    found = judge_by_rubric(play("", write(labels, reason, signals), challenge=challenge, view=view))
    assert 0 <= found.n_steps <= N_STEPS


# --- the reward ---------------------------------------------------------------------------------------------------


def oracle(first, final, gold, rules, n_steps):
    """The table of docs/rl/adversarial.md, case by case; ``first`` and ``final`` are labels, None if invalid."""
    if final is None:
        return -1.0, 0.0, 0.0
    right = [final[column] == gold[column] for column in gold]
    correctness = sum(1 if hit else -1 for hit in right) / len(right)
    if rules.credit == "both":
        correctness = 1 if all(right) else -1
    adaptation = 0.0
    for column, hit in zip(gold, right, strict=True):
        if first is not None and hit:
            adaptation += (rules.defence if first[column] == gold[column] else rules.revision) / len(gold)
    return correctness, rules.reasoning * n_steps / 3, adaptation


RULES = [
    AdversarialRules(),
    AdversarialRules(credit="mean"),
    AdversarialRules(reasoning=0.15, revision=0.05, defence=0.1),
]


@pytest.mark.parametrize("rules", RULES)
@given(golds, st.none() | golds, st.none() | golds, st.integers(0, N_STEPS))
def test_every_case_earns_what_the_table_says(rules, gold, first, final, n_steps):
    episode = play(*("no" if labels is None else write(labels) for labels in (first, final)))
    parts = score_episode(episode, gold, rules, n_steps)
    expected = oracle(first, final, gold, rules, n_steps)
    assert (parts.correctness, parts.reasoning, parts.adaptation) == pytest.approx(expected)
    assert parts.total == pytest.approx(sum(expected))
    assert -1 <= parts.correctness <= 1
    assert 0 <= parts.reasoning <= 0.3
    assert 0 <= parts.adaptation <= 0.2


@pytest.mark.parametrize("rules", RULES)
@given(golds, golds, st.none() | golds, st.integers(0, N_STEPS))
def test_to_be_wrong_or_unreadable_at_first_never_pays(rules, gold, final, other, n_steps):
    honest = score_episode(play(write(gold), write(final)), gold, rules, n_steps).total
    other_text = "no" if other is None else write(other)
    assert score_episode(play(other_text, write(final)), gold, rules, n_steps).total <= honest


@given(golds, golds, golds, golds)
def test_words_never_outweigh_being_right(gold, first, wrong, other_first):
    if wrong == gold:
        return
    best = score_episode(play(write(first), write(wrong)), gold, AdversarialRules(), N_STEPS).total
    assert best < score_episode(play(write(other_first), write(gold)), gold, AdversarialRules(), 0).total


@pytest.mark.parametrize(
    "wrong",
    [
        {"credit": "most"}, {"reasoning": 0.31}, {"reasoning": -0.1}, {"revision": 0.3, "defence": 0.3},
        {"defence": 0.1}, {"reasoning": float("nan")},
    ],
)  # fmt: skip
def test_impossible_rules_are_refused(wrong):
    with pytest.raises(RewardError, match=r"needs|would pay"):
        AdversarialRules(**wrong)


# --- flips --------------------------------------------------------------------------------------------------------


@given(golds, st.none() | golds, st.none() | golds)
def test_every_episode_is_one_of_four_flips_of_both_labels_and_of_each(gold, first, final):
    metrics = flip_metrics(gold, first or {}, final or {})
    for name in ("", "disruption/", "novelty/"):
        flips = [value for key, value in metrics.items() if key.startswith(f"{name}flip/")]
        assert sorted(flips) == [0, 0, 0, 1]
    if metrics["flip/kept_right"]:
        assert metrics["disruption/flip/kept_right"] == metrics["novelty/flip/kept_right"] == 1
    assert metrics["flip/kept_right"] + metrics["flip/wrong_to_right"] == (final == gold)
    assert ("flip_rate/right_to_wrong" in metrics) == (first == gold)


def test_an_invalid_answer_counts_as_wrong_and_not_as_another_label():
    gold, wrong = GOLDS[0], GOLDS[-1]
    assert flip_metrics(gold, {}, gold)["flip/wrong_to_right"] == 1
    assert flip_metrics(gold, gold, {})["flip_rate/right_to_wrong"] == 1
    lost = flip_metrics(gold, wrong, {})
    assert lost["flip/kept_wrong"] == 1
    assert "flip_rate/changed_while_wrong" not in lost
    assert (lost["first/invalid"], flip_metrics(gold, {}, wrong)["first/invalid"]) == (0, 1)
    assert flip_metrics(gold, wrong, GOLDS[-2])["flip_rate/changed_while_wrong"] == 1
    assert flip_metrics(gold, wrong, wrong)["flip_rate/changed_while_wrong"] == 0


def row(gold, first, final):
    ends = {"disruption_label": "_disruption", "novelty_label": "_novelty"}
    labels = {
        f"{name}{end}": (said or {}).get(column)
        for name, said in (("gold", gold), ("first_label", first), ("label", final))
        for column, end in ends.items()
    }
    valid = final is not None
    return labels | {"confidence": 0.5 if valid else None, "is_json": valid, "is_valid": valid}


@given(st.lists(st.tuples(golds, st.none() | golds, st.none() | golds), min_size=1, max_size=12))
def test_the_metrics_of_a_table_are_the_means_of_its_episodes(episodes):
    import polars as pl

    frame = (
        pl.DataFrame([row(*episode) for episode in episodes], infer_schema_length=None)
        .with_columns(pl.col(pl.Null).cast(pl.String))
        .with_columns(pl.col("confidence").cast(pl.Float64))
    )
    metrics = measure_predictions(frame)
    singles = [flip_metrics(gold, first or {}, final or {}) for gold, first, final in episodes]
    for name in {name for single in singles for name in single}:
        values = [single[name] for single in singles if name in single]
        assert metrics[name] == pytest.approx(sum(values) / len(values))
    assert metrics["flip/kept_right"] + metrics["flip/wrong_to_right"] == pytest.approx(metrics["both_match"])
    assert metrics["first/label_match"] == pytest.approx(
        (metrics["first/disruption/label_match"] + metrics["first/novelty/label_match"]) / 2
    )


def test_a_table_without_first_answers_has_no_flips():
    import polars as pl

    assert measure_flips(pl.DataFrame({"gold": ["novel"], "label": ["novel"]}), "novelty") == {}
