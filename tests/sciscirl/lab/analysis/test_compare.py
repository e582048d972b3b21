from __future__ import annotations

import hashlib
import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import PredictionsError, SciSciRLError
from sciscirl.lab.analysis.baselines import BASELINES
from sciscirl.lab.analysis.compare import CompareConfig, adjust_holm, compare_predictions, mcnemar_exact
from sciscirl.lab.evaluation.bootstrap import bootstrap_intervals
from sciscirl.lab.report.comparison import compare_files, render_comparison
from sciscirl.lab.report.judged_files import find_predictions
from sciscirl.metrics.metrics import COMPARED, measure_predictions
from sciscirl.presets import find_preset
from tests.sciscirl.made_runs import make_evaluation, make_predictions, make_run

LABELS = ("disruptive", "consolidating", "neutral")
QUICK = CompareConfig(n_resamples=50)
pairs_of_answers = st.lists(
    st.tuples(st.sampled_from(LABELS), *[st.sampled_from((*LABELS, None))] * 2), min_size=1, max_size=30
)


def table(golds, labels):
    rows = [
        {
            "openalex_id": f"W{number}", "gold": gold, "label": label, "confidence": None if label is None else 0.5,
            "is_json": label is not None, "is_valid": label is not None,
        }
        for number, (gold, label) in enumerate(zip(golds, labels, strict=True))
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"label": pl.String, "confidence": pl.Float64})


def two(answers):
    golds, one, other = zip(*answers, strict=True)
    return {"one": table(golds, one), "other": table(golds, other)}


def skilled(skill, preset="exp4", n=150, **options):
    return make_predictions(find_preset(preset), n, skill=skill, **options)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_exact_binomial_test_of_scipy(left, right):
    n = left + right
    expected = binomtest(left, n, 0.5).pvalue if n else 1.0
    assert mcnemar_exact(left, right) == pytest.approx(expected, rel=1e-12)
    assert mcnemar_exact(right, left) == mcnemar_exact(left, right)


def test_mcnemar_stays_exact_where_floats_would_not():
    assert mcnemar_exact(0, 1000) == 2.0**-999
    assert mcnemar_exact(0, 5000) == 0.0  # below the smallest number there is
    assert mcnemar_exact(4000, 4000) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_its_definition(p_values):
    adjusted = adjust_holm(p_values)
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    for rank, place in enumerate(order):
        steps = [min(1.0, (len(p_values) - earlier) * p_values[order[earlier]]) for earlier in range(rank + 1)]
        assert adjusted[place] == max(steps)


@given(pairs_of_answers)
@settings(max_examples=40)
def test_counts_and_scores_are_those_of_a_count_by_hand(answers):
    comparison = compare_predictions(two(answers), QUICK)
    (pair,) = comparison.pairs
    assert pair.only_left == sum(one == gold != other for gold, one, other in answers)
    assert pair.only_right == sum(other == gold != one for gold, one, other in answers)
    for name, of in (("one", 1), ("other", 2)):
        right = sum(answer[of] == answer[0] for answer in answers)
        assert comparison.scores[name]["label_match"].value == right / len(answers)
    difference = pair.differences["label_match"]
    assert difference.value == pytest.approx((pair.only_left - pair.only_right) / len(answers))


@given(pairs_of_answers, st.randoms())
@settings(max_examples=25)
def test_neither_order_of_rows_nor_of_models_changes_what_is_found(answers, random):
    tables = two(answers)
    shuffled = {
        name: frame.sample(fraction=1, shuffle=True, seed=random.randrange(9)) for name, frame in tables.items()
    }
    found = compare_predictions(tables, QUICK)
    assert compare_predictions(shuffled, QUICK).to_json() == found.to_json()
    (there,), (back,) = found.pairs, compare_predictions(dict(reversed(tables.items())), QUICK).pairs
    assert (back.left, back.only_left, back.p) == (there.right, there.only_right, there.p)
    assert back.differences["label_match"].value == -there.differences["label_match"].value


def test_an_invalid_answer_is_a_wrong_one():
    golds = ["neutral"] * 4
    tables = {"valid": table(golds, ["neutral"] * 4), "broken": table(golds, [None] * 4)}
    comparison = compare_predictions(tables, QUICK)
    assert comparison.pairs[0].only_left == 4
    assert comparison.scores["broken"]["label_match"].value == 0.0
    assert comparison.pairs[0].differences["macro_f1"].value == 1.0


def test_intervals_are_paired_so_that_a_constant_lead_has_none():
    golds = [LABELS[number % 3] for number in range(90)]
    half = [gold if number % 2 else "neutral" for number, gold in enumerate(golds)]
    same = compare_predictions({"a": table(golds, half), "b": table(golds, half)}, QUICK).pairs[0]
    for metric in COMPARED:
        assert (same.differences[metric].value, same.differences[metric].low, same.differences[metric].high) == (
            0,
            0,
            0,
        )
    assert same.p["label_match"] == 1.0


def test_intervals_of_one_model_are_those_of_an_evaluation():
    one, other = skilled(0.5), skilled(0.3, seed=1)
    config = CompareConfig(n_resamples=1000)
    comparison = compare_predictions({"one": one, "other": other}, config)
    alone = bootstrap_intervals(one.sort("openalex_id"))
    for metric in COMPARED:
        score = comparison.scores["one"][metric]
        assert (score.low, score.high) == (alone[f"{metric}/low"], alone[f"{metric}/high"])
        assert score.value == pytest.approx(measure_predictions(one)[metric])


def test_several_answers_to_a_paper_are_one_paper_and_weigh_as_much_as_one_answer():
    one, other = skilled(0.5), skilled(0.3, seed=1)
    once = compare_predictions({"one": one, "other": other})
    repeated = compare_predictions({"one": pl.concat([one] * 3), "other": pl.concat([other] * 2)})
    assert repeated.n_papers == once.n_papers == len(one)
    (pair,), (alone,) = repeated.pairs, once.pairs
    assert (pair.only_left, pair.only_right) == (None, None)
    for metric in COMPARED:
        found, expected = pair.differences[metric], alone.differences[metric]
        assert (found.value, found.low, found.high) == pytest.approx((expected.value, expected.low, expected.high))
    assert pair.p["macro_f1"] == alone.p["macro_f1"]
    again = pl.concat([skilled(0.5, seed=seed) for seed in range(8)])
    narrow, wide = (compare_predictions({"x": table, "other": other}).scores["x"]["macro_f1"] for table in (again, one))
    assert narrow.high - narrow.low < 0.6 * (wide.high - wide.low)  # draws of a guesser cancel out


def test_a_real_lead_is_found_and_chance_is_not():
    tables = {"good": skilled(0.9, n=300), "poor": skilled(0.2, n=300, seed=1), "again": skilled(0.2, n=300, seed=2)}
    found = {(pair.left, pair.right): pair for pair in compare_predictions(tables).pairs}
    clear, chance = found["good", "poor"], found["poor", "again"]
    assert clear.p_holm["label_match"] < 1e-6
    assert all(clear.differences[metric].low > 0 for metric in COMPARED)
    assert chance.p_holm["label_match"] > 0.05
    assert chance.differences["label_match"].low < 0 < chance.differences["label_match"].high


@pytest.mark.parametrize("preset", ["exp8", "novelty", "joint", "joint_balanced"])
def test_every_task_and_contract_compares(preset):
    tables = {"a": skilled(0.7, preset), "b": skilled(0.3, preset, seed=1)}
    comparison = compare_predictions(tables, QUICK)
    assert comparison.target == find_preset(preset).rules.target
    assert comparison.pairs[0].differences["macro_f1"].value > 0
    if comparison.target == "joint":
        right = [
            set(
                frame.filter(
                    (pl.col("gold_disruption") == pl.col("label_disruption"))
                    & (pl.col("gold_novelty") == pl.col("label_novelty"))
                )["openalex_id"]
            )
            for frame in tables.values()
        ]
        assert comparison.pairs[0].only_left == len(right[0] - right[1])


def refuse(tables, match, **options):
    with pytest.raises(PredictionsError, match=match):
        compare_predictions(tables, CompareConfig(**options))


def test_what_does_not_compare_is_refused_with_numbers():
    one = skilled(0.5)
    refuse({"one": one}, "nothing to compare one with")
    refuse({"one": one, "less": one.head(149)}, "1 are only in one, 0 only in less")
    refuse(
        {"one": one, "twice": pl.concat([one, one.head(2)])}, "twice has 2 answers to some papers and fewer to others"
    )
    refuse({"one": one, "bare": one.drop("openalex_id")}, "bare does not say which papers")
    refuse({"one": one, "new": skilled(0.5, "novelty")}, "one is of the task disruption, new of novelty")
    other = one.with_columns(gold=pl.when(pl.int_range(pl.len()) < 3).then(pl.lit("neutral")).otherwise("gold"))
    refuse({"one": one, "relabelled": other}, "differ in the gold label of 2 papers")
    refuse({"one": one, "two": one}, "CompareConfig.reference is 'three', needs one of one, two", reference="three")


@pytest.mark.parametrize("options", [{"level": 1.0}, {"level": 0.0}, {"seed": -1}, {"n_resamples": 0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(SciSciRLError, match=next(iter(options))):
        CompareConfig(**options)


@pytest.fixture
def folders(tmp_path):
    run = make_run(tmp_path / "rl", evaluations={0: skilled(0.1), 20: skilled(0.8)})
    base = make_evaluation(tmp_path / "base", skilled(0.3, seed=1), {"baseline": "majority"})
    return run, base


def test_a_comparison_is_not_written_into_a_release(folders, tmp_path):
    (tmp_path / "slice").mkdir()
    (tmp_path / "slice" / "manifest.json").touch()
    with pytest.raises(PredictionsError, match="is a release, which nothing is added to"):
        compare_files([str(folders[0]), f"majority={folders[1]}"], QUICK, tmp_path / "slice")
    assert len(list((tmp_path / "slice").iterdir())) == 1


def test_a_run_stands_for_its_last_evaluation(folders, tmp_path):
    run, base = folders
    assert find_predictions(run).name == "test_000020.parquet"
    comparison = compare_files([str(run), f"majority={base}"], QUICK, tmp_path / "out")
    assert list(comparison.scores) == ["rl", "majority"]
    assert comparison.scores["rl"]["label_match"].value > 0.6
    written = json.loads((tmp_path / "out" / "comparison.json").read_text("utf-8"))
    assert written == json.loads(json.dumps(comparison.to_json()))
    assert written["pairs"][0]["differences"]["macro_f1"]["low"] > 0
    assert written["pairs"][0]["p"] == comparison.pairs[0].p
    pictures = sorted(path.name for path in (tmp_path / "out").iterdir() if path.suffix == ".png")
    assert pictures == [f"difference_{metric}.png" for metric in sorted(COMPARED)]
    text = render_comparison(comparison)
    assert "150 papers, task disruption; 95 % intervals" in text
    assert text.splitlines()[-3].startswith("rl \N{MINUS SIGN} majority  accuracy            +0.")


def test_files_of_different_releases_or_equal_names_are_refused(folders, tmp_path):
    run, base = folders
    other = make_evaluation(tmp_path / "other", skilled(0.3), {}, manifest_sha256="1b" * 32)
    with pytest.raises(PredictionsError, match="rl is of release 5a5a5a5a5a5a, other of 1b1b1b1b1b1b"):
        compare_files([str(run), str(other)], QUICK)
    with pytest.raises(PredictionsError, match="same name"):
        compare_files([f"x={run}", f"x={base}"], QUICK)
    file = base / "predictions.parquet"
    assert list(compare_files([str(file), str(run / "predictions" / "test_000000.parquet")], QUICK).scores) == [
        "base", "test_000000"
    ]  # fmt: skip
    (run / "predictions" / "test_000000.parquet").unlink()
    (run / "predictions" / "test_000020.parquet").unlink()
    with pytest.raises(PredictionsError, match="holds no predictions"):
        compare_files([str(run), str(base)], QUICK)


def test_a_tilde_that_the_shell_leaves_is_a_home(folders, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    PROGRAM.act(["compare", *map(str, folders), "--n-resamples", "30", "--out=~/found"])
    assert (tmp_path / "found" / "comparison.json").is_file()


def test_the_script_shows_a_mistake_as_one_line(folders, script_here):
    done = script_here("compare.py", folders[0])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: there is nothing to compare rl with. Give two predictions or more.\n"


def test_baselines_are_compared_on_the_same_papers_of_the_release(toy_slice, tmp_path):
    ids = pl.read_parquet(toy_slice / "test.parquet").rename({"disruption_label": "gold"}).select("openalex_id", "gold")
    said = {"label": "neutral", "confidence": 0.5, "is_json": True, "is_valid": True}
    answers = ids.sort("openalex_id").head(6).with_columns(**{name: pl.lit(value) for name, value in said.items()})
    digest = hashlib.sha256((toy_slice / "manifest.json").read_bytes()).hexdigest()
    asked = {"preset": "exp4", "style": "plain", "temperature": 0.0}  # greedy, as no training is
    own = make_evaluation(tmp_path / "own", answers, asked, manifest_sha256=digest)
    other = make_evaluation(tmp_path / "other", answers, {}, manifest_sha256=digest)
    found = compare_files([str(own), f"majority={other}"], QUICK, release=toy_slice)
    assert {*found.scores} == {"own", *BASELINES}
    assert [*found.scores][:2] == ["own", "majority"]  # what is given goes before
    assert found.scores["majority"]["label_match"].value == found.scores["own"]["label_match"].value
    assert found.n_papers == 6
    assert found.scores["words"]["label_match"].value == 1.0  # titles tell the class
    for name in ("majority", "words"):
        make_evaluation(tmp_path / "all" / name, answers, {"baseline": name}, manifest_sha256=digest)
    assert [*compare_files([str(own), str(tmp_path / "all")], QUICK).scores] == ["own", "majority", "words"]
    strange = make_evaluation(tmp_path / "strange", answers, {}, manifest_sha256="0f" * 32)
    with pytest.raises(PredictionsError, match="strange is of release 0f0f0f0f0f0f"):
        compare_files([str(strange), str(own)], QUICK, release=toy_slice)
