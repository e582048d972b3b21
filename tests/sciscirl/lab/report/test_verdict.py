"""When "training helped" is said: seldom where nothing was learned, and where something was."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sciscirl.lab.analysis.compare import compare_predictions
from sciscirl.lab.report.runs import Evaluation, RecordedRun, Repeated
from sciscirl.lab.report.verdict import Group, _turn, judge_training
from sciscirl.metrics.metrics import measure_predictions
from sciscirl.task.papers import VOCABULARIES

LABELS = np.array([*VOCABULARIES["disruption_label"], None])
N_PAPERS = 100
SHARES = (0.4, 0.35, 0.25)  # of gold labels
UNIFORM = (1 / 3, 1 / 3, 1 / 3, 0)


def answer(draws, said=UNIFORM, *, skill=0.0, n_draws=1) -> pl.DataFrame:
    """Know the label of a share of the papers; say the labels, or something invalid, in these shares about the rest."""
    gold = np.repeat(np.repeat([0, 1, 2], np.round(np.array(SHARES) * N_PAPERS).astype(int)), n_draws)
    guess = draws.choice(4, size=len(gold), p=said)
    label = LABELS[np.where(draws.random(len(gold)) < skill, gold, guess)]
    valid = pl.Series([one is not None for one in label])
    return pl.DataFrame(
        {
            "openalex_id": [f"W{number // n_draws}" for number in range(len(gold))],
            "gold": LABELS[gold].tolist(),
            "label": label.tolist(),
            "confidence": pl.select(pl.when(valid).then(0.9)).to_series(),
            "is_json": valid,
            "is_valid": valid,
        },
        schema_overrides={"label": pl.String},
    )


def judge(pairs, **settings):
    """Judge a way to train by what each seed answered before and after."""
    runs = {}
    for seed, tables in enumerate(pairs):
        evaluations = [
            Evaluation(step=step, metrics=measure_predictions(table), predictions=table)
            for step, table in zip((0, 4), tables, strict=True)
        ]
        facts = {"settings": {"learning_rate": 1e-4, "eval_temperature": 0.0} | settings, "release": {}}
        runs[seed] = RecordedRun(name="run", kind="rl", facts=facts, evaluations=tuple(evaluations))
    return judge_training(Repeated(name="run", runs=runs), Group())


def count_helped(n_times, before, after, *, n_seeds=1, spread=0.0, **settings) -> int:
    draws = np.random.default_rng(0)
    n_helped = 0
    for _ in range(n_times):
        skills = np.clip(after.get("skill", 0.0) + spread * draws.normal(size=n_seeds), 0, 1)
        pairs = [(answer(draws, **before), answer(draws, **after | {"skill": skill})) for skill in skills]
        n_helped += judge(pairs, **settings).line.startswith("Training helped")
    return n_helped


CONSTANT = {"said": (1, 0, 0, 0)}
LOST = {"said": (0, 0, 0.1, 0.9)}


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        ({}, {}, {}),
        ({"skill": 0.3}, {"skill": 0.3}, {}),
        ({"skill": 0.3, "n_draws": 4}, {"skill": 0.3, "n_draws": 4}, {"eval_temperature": 1.0}),
        (CONSTANT, CONSTANT, {}),
        ({"said": (0, 0, 1, 0)}, CONSTANT, {}),
        (CONSTANT, {}, {}),  # guesses have twice the macro-F1 of a constant answer
        (LOST, {}, {}),
        ({"skill": 0.4}, {"skill": 0.4}, {"n_seeds": 3, "spread": 0.2}),
    ],
    ids=["guesses", "skill", "draws", "constant", "constants", "constant_to_guesses", "form", "seeds"],
)
def test_where_nothing_was_learned_training_helped_in_no_more_than_the_nominal_share(before, after, more):
    assert count_helped(40, before, after, **more) <= 3  # of 40, 2.5 % are 1, and more than 3 come in 2 % of the cases


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        ({"skill": 0.2}, {"skill": 0.6}, {}),
        (LOST, {"skill": 0.6}, {}),
        ({"skill": 0.2, "n_draws": 4}, {"skill": 0.5, "n_draws": 4}, {"eval_temperature": 1.0}),
        ({"skill": 0.2}, {"skill": 0.6}, {"n_seeds": 3, "spread": 0.05}),
    ],
)
def test_what_was_learned_is_found(before, after, more):
    assert count_helped(20, before, after, **more) >= 12


def test_one_draw_of_each_answer_leaves_it_open_and_says_what_to_do():
    draws = np.random.default_rng(0)
    before, after = answer(draws, skill=0.1), answer(draws, skill=0.9)
    line = judge([(before, after)], eval_temperature=1.0).line
    assert line.startswith("Whether training helped run is open: a paper has one answer, drawn by chance")
    assert "--temperature 0" in line
    assert "--group-size 8" in line
    for settled in ({}, {"answers": "logprobs", "eval_temperature": 1.0}):
        assert judge([(before, after)], **settled).line.startswith("Training helped run. ")
    again = [answer(draws, skill=skill, n_draws=2) for skill in (0.1, 0.9)]
    assert judge([again], eval_temperature=1.0).line.startswith("Training helped run. ")
    assert judge([(again[0], after)], eval_temperature=1.0).line.startswith("Whether training helped run is open")


def test_a_few_papers_leave_it_open(monkeypatch):
    draws = np.random.default_rng(0)
    monkeypatch.setattr(f"{__name__}.N_PAPERS", 20)
    before, after = answer(draws, CONSTANT["said"]), answer(draws, skill=1.0)
    line = judge([(before, after)]).line
    assert line.startswith("Whether training helped run is open.")
    assert "20 papers are too few to tell." in line


def test_a_gain_that_needs_no_paper_to_be_read_is_not_called_help(monkeypatch):
    monkeypatch.setattr(f"{__name__}.N_PAPERS", 300)
    draws = np.random.default_rng(0)
    line = judge([(answer(draws, CONSTANT["said"]), answer(draws))]).line
    assert line.startswith("Whether training helped run is open: it gained macro-F1, but accuracy 0.")
    assert "is not surely above that of always the same label, 0.400" in line


def test_a_gain_is_split_into_fewer_invalid_answers_and_other_labels():
    draws = np.random.default_rng(0)
    before, after = answer(draws, (0.2, 0.2, 0.2, 0.4), skill=0.2), answer(draws, (0.3, 0.3, 0.3, 0.1), skill=0.7)
    gone = [~table["is_valid"] for table in (before, after)]
    void = [
        table.with_columns(
            label=pl.when(other).then(None).otherwise("label"),
            confidence=pl.when(other).then(None).otherwise("confidence"),
            is_json=pl.col("is_json") & ~other,
            is_valid=pl.col("is_valid") & ~other,
        )
        for table, other in ((before, gone[1]), (after, gone[0]))
    ]
    whole, of_labels = (
        measure_predictions(pair[1])["macro_f1"] - measure_predictions(pair[0])["macro_f1"]
        for pair in ((before, after), void)
    )
    was, left = (f"{100 * measure_predictions(table)['invalid']:.0f} %" for table in (before, after))
    line = judge([(before, after)]).line
    assert f"is the sum of {whole - of_labels:+.3f} from invalid answers ({was}, then {left})" in line
    assert f" and {of_labels:+.3f} from other labels." in line
    several = judge([(pl.concat([before] * 2), pl.concat([after] * 3))]).line
    assert several.partition("is the sum of")[2] == line.partition("is the sum of")[2]
    only_valid = judge([(answer(draws), answer(draws, skill=0.9))]).line
    assert "is the sum of" not in only_valid
    lost = answer(draws, (0, 0, 0, 1))
    assert "is the sum of" not in judge([(lost, lost)]).line  # nothing was gained, and as many are invalid
    line = judge([(answer(draws, skill=0.9), lost)]).line
    assert "Trained minus start is the sum of -0." in line
    assert " from invalid answers (0 %, then 100 %) and +0.000 from other labels." in line


def test_another_base_model_is_no_start():
    draws = np.random.default_rng(0)

    def record(kind, model, step, skill):
        table = answer(draws, skill=skill)
        evaluation = Evaluation(step=step, metrics=measure_predictions(table), predictions=table)
        facts = {"settings": {"model": model, "temperature": 0.0}, "release": {}}
        return Repeated(
            name=f"{kind} of {model}",
            runs={0: RecordedRun(name=kind, kind=kind, facts=facts, evaluations=(evaluation,))},
        )

    trained, other, own = (
        record("rl", "B", 4, 0.8),
        record("evaluation", "A", 0, 0.1),
        record("evaluation", "B", 0, 0.2),
    )
    line = judge_training(trained, Group(ways=[trained, other])).line
    assert line.startswith("What training did to rl of B is not known: nothing shows the model before.")
    assert "against evaluation of B (" in judge_training(trained, Group(ways=[trained, other, own])).line


def test_a_turned_pair_is_that_of_the_other_order():
    draws = np.random.default_rng(0)
    models = {"a": answer(draws, skill=0.8), "b": answer(draws, skill=0.2)}
    (there,), (back,) = (compare_predictions(dict(order)).pairs for order in (models.items(), reversed(models.items())))
    turned = _turn(there)
    assert there.only_left != there.only_right
    assert (turned.left, turned.only_left, turned.only_right) == (back.left, back.only_left, back.only_right)
    assert turned.differences["macro_f1"].value == pytest.approx(back.differences["macro_f1"].value)
