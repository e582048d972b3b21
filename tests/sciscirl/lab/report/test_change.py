"""Whether training helped, for weights from elsewhere: what is said, counted once more by hand."""

from __future__ import annotations

import json
import math
import random
import re

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm, t

from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import PredictionsError
from sciscirl.lab.analysis.compare import CompareConfig, compare_predictions, find_detectable
from sciscirl.lab.analysis.result_file import save_result
from sciscirl.lab.report.verdict import correct_prior
from sciscirl.metrics.predictions import write_predictions
from tests.sciscirl.made_runs import SLICE, make_evaluation, make_run
from tests.web_pages import Page

LABELS = ("disruptive", "consolidating", "neutral")
ASKED = {"style": "plain", "temperature": 0.0, "model": "Qwen/Qwen3-8B", "as_of": "publication"}


def answer(seed, skill, n=90, *, shares=(1, 1, 1, 0), **columns):
    """Return gold labels in turn and answers to them; None is an invalid one."""
    draws = random.Random(seed)
    golds = [LABELS[number % 3] for number in range(n)]
    said = [gold if draws.random() < skill else draws.choices((*LABELS, None), shares)[0] for gold in golds]
    rows = [
        {
            "openalex_id": f"W{number}", "gold": gold, "label": label, "confidence": None if label is None else 0.5,
            "is_json": label is not None, "is_valid": label is not None,
        }
        for number, (gold, label) in enumerate(zip(golds, said, strict=True))
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"label": pl.String, "confidence": pl.Float64}).with_columns(**columns)


def score(table):
    """Return label_match and macro-F1, by the definitions."""
    pairs = [*zip(table["gold"].to_list(), table["label"].to_list(), strict=True)]
    f1 = []
    for label in LABELS:
        right = sum(gold == said == label for gold, said in pairs)
        held, named = (sum(pair[side] == label for pair in pairs) for side in (0, 1))
        f1.append(2 * right / (held + named))
    return sum(gold == said for gold, said in pairs) / len(pairs), sum(f1) / 3


@pytest.fixture
def say(capsys):
    """Return what a comparison prints: the headline, and what it says of each change."""

    def compare(*words):
        PROGRAM.act(["compare", *map(str, words)])
        headline, _, rest = capsys.readouterr().out.partition("\n\n")
        rows = [re.split(r" {2,}", line, maxsplit=1) for line in rest.partition("\n\n")[0].splitlines()]
        return headline, dict(row for row in rows if len(row) == 2)

    return compare


@pytest.fixture
def home(tmp_path):
    make_evaluation(tmp_path / "base", answer(1, 0.2, shares=(4, 1, 1, 1)), ASKED)
    make_evaluation(tmp_path / "rl", answer(2, 0.7), {**ASKED, "local_model": "models/verl"})
    return tmp_path


def test_the_headline_equals_a_count_by_hand_in_either_order(home, say):
    words = [f"start={home / 'base'}", f"trained={home / 'rl'}"]
    headline, changes = say(*words)
    assert say(*reversed(words)) == (headline, changes)
    before, after = (answer(1, 0.2, shares=(4, 1, 1, 1)), answer(2, 0.7))
    (was, f1_was), (now, f1_now) = score(before), score(after)
    assert headline.startswith(f"Training helped rl. macro-F1 {f1_now:.3f} [")
    assert f"; trained minus start +{f1_now - f1_was:.3f} [+" in headline
    assert f"against base ({f1_was:.3f}); the same 90 papers of test, task disruption." in headline
    assert changes["macro-F1"].startswith(f"+{f1_now - f1_was:.3f} [+")
    assert f"], {was:.3f} to {now:.3f}, p " in changes["accuracy"]
    shares = ", ".join(
        f"{label or 'invalid'} "
        + " to ".join(f"{sum(said == label for said in table['label']) / 90:.2f}" for table in (before, after))
        for label in (*LABELS, None)
    )
    assert changes["shares said"] == shares
    assert "(sciscirl evaluate --answers logprobs)" in changes["accuracy, prior-corrected"]
    worse, _ = say(f"start={home / 'rl'}", f"trained={home / 'base'}")
    assert worse.startswith("Training hurt base. ")
    assert f"trained minus start -{f1_now - f1_was:.3f} [-" in worse


def test_the_least_gain_that_would_be_seen_comes_from_the_paired_differences(home, say):
    before, after = (answer(1, 0.2, 400), answer(2, 0.4, 400))
    (pair,) = compare_predictions({"after": after, "before": before}).pairs
    apart = [
        (one == gold) - (other == gold)
        for gold, one, other in zip(before["gold"], after["label"], before["label"], strict=True)
    ]
    mean = sum(apart) / len(apart)
    error = math.sqrt(sum((one - mean) ** 2 for one in apart)) / len(apart)
    by_hand = (1.959964 + 0.841621) * error
    assert pair.detectable["label_match"] == pytest.approx(by_hand, rel=0.05)  # 2,000 resamples are 1.6 % off
    assert norm.sf(1.959964 - by_hand / error) == pytest.approx(0.8, abs=1e-5)
    headline, changes = say(f"start={home / 'base'}", f"trained={home / 'rl'}")
    said = re.search(r"A gain in macro-F1 below (\S+) could not be seen here with 80 % power\.", headline)[1]
    assert f"macro-F1 {said}," in changes["least gain that 80 % of such tests see"]


def test_seeds_widen_the_least_gain_by_students_t():
    apart = np.array([-0.02, 0.02] * 50)
    of_seeds = [0.01, 0.05, 0.03]
    error = np.std(of_seeds, ddof=1) / math.sqrt(3)
    papers = (norm.ppf(0.975) + norm.ppf(0.8)) * 0.02
    seeds = (t.ppf(0.975, 2) + t.ppf(0.8, 2)) * error
    assert find_detectable(apart, [of_seeds], 0.95) == pytest.approx(math.hypot(papers, seeds))
    assert find_detectable(apart, [[0.1]], 0.95) == pytest.approx(papers)
    assert find_detectable(np.zeros(9), [of_seeds], 0.95) is None


def test_labels_after_prior_correction_are_those_by_chance_over_mean(tmp_path, say):
    tables = []
    for seed in (1, 2):
        draws = random.Random(seed)
        chances = [[draws.random() + (0.5 if place == 2 else 0) for place in range(3)] for _ in range(90)]
        chances = [[one / sum(row) for one in row] for row in chances]
        forecast = [json.dumps(dict(zip(LABELS, row, strict=True))) for row in chances]
        said = [LABELS[row.index(max(row))] for row in chances]
        means = [sum(column) / 90 for column in zip(*chances, strict=True)]
        over = [[one / mean for one, mean in zip(row, means, strict=True)] for row in chances]
        table = answer(0, 1.0).with_columns(label=pl.Series(said), forecast=pl.Series(forecast))
        expected = [LABELS[row.index(max(row))] for row in over]
        assert correct_prior(table)["label"].to_list() == expected
        assert expected != said
        tables.append((table, sum(one == gold for one, gold in zip(expected, table["gold"], strict=True)) / 90))
    lost = tables[0][0].with_columns(
        **{name: pl.when(pl.col("openalex_id") != "W0").then(name) for name in ("label", "forecast", "confidence")},
        is_valid=pl.col("openalex_id") != "W0",
    )
    assert correct_prior(lost)["label"][0] is None
    assert correct_prior(answer(0, 0.5)) is None
    for name, (table, _) in zip(("base", "rl"), tables, strict=True):
        make_evaluation(tmp_path / name, table, {**ASKED, "answers": "logprobs"})
    _, changes = say(f"start={tmp_path / 'base'}", f"trained={tmp_path / 'rl'}")
    (_, was), (_, now) = tables
    assert changes["accuracy, prior-corrected"].startswith(f"{now - was:+.3f} [")
    assert changes["accuracy, prior-corrected"].endswith(f"], {was:.3f} to {now:.3f}")


def test_several_trained_are_seeds_of_one_way_beside_one_start_or_their_own(home, say, tmp_path):
    seeds = [make_evaluation(tmp_path / f"grpo/seed_{seed}", answer(seed, 0.5 + seed / 10), ASKED) for seed in range(3)]
    trained = f"trained={','.join(map(str, seeds))}"
    headline, _ = say(f"start={home / 'base'}", trained, "--out", tmp_path / "out")
    scores = [score(answer(seed, 0.5 + seed / 10))[1] for seed in range(3)]
    start = score(answer(1, 0.2, shares=(4, 1, 1, 1)))[1]
    assert f" grpo. macro-F1 {sum(scores) / 3:.3f} [" in headline.replace(" is open", "")
    assert f"trained minus start {sum(scores) / 3 - start:+.3f} [" in headline
    assert "Intervals are over 3 seeds and the papers." in headline
    assert "Looks at test: base at least 1; grpo at least 3 each." in headline
    kept = json.loads((tmp_path / "out" / "comparison.json").read_text("utf-8"))
    assert kept["headline"] == headline
    assert kept["seeds"] == {"grpo": [0, 1, 2], "base": [0]}
    assert [(pair["left"], pair["right"]) for pair in kept["pairs"]] == [("grpo", "base")]
    assert len([*(tmp_path / "out" / "results").glob("*.result.json")]) == 4
    starts = [make_evaluation(tmp_path / f"sft/seed_{seed}", answer(9 + seed, 0.4), ASKED) for seed in range(3)]
    own, _ = say(f"start={','.join(map(str, starts))}", trained)
    gains = [one - score(answer(9 + seed, 0.4))[1] for seed, one in enumerate(scores)]
    assert f"trained minus start {sum(gains) / 3:+.3f} [" in own
    assert "against sft (" in own


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (
            answer(1, 0.2, shares=(4, 1, 1, 1)),
            "is open. macro-F1 0.473 [0.365, 0.568]; trained minus start +0.000 [+0.000",
        ),
        (answer(2, 0.0, shares=(0, 0, 0, 1)), "Training hurt it. macro-F1 0.000; trained minus start -0.473 [-0.5"),
    ],
    ids=["the same", "nothing valid"],
)
def test_a_pair_at_the_edge_is_judged(home, say, after, said):
    make_evaluation(home / "it", after, ASKED)
    headline, changes = say(f"start={home / 'base'}", f"trained={home / 'it'}")
    assert said in headline
    is_same = "+0.000" in said
    assert ("could not be seen" in headline) is not is_same
    assert (changes["least gain that 80 % of such tests see"] == "unknown") is is_same


def test_two_papers_tell_nothing(tmp_path, say):
    for name, skill in (("base", 0.0), ("rl", 1.0)):
        make_evaluation(tmp_path / name, answer(1, skill, 2), ASKED)
    headline, _ = say(f"start={tmp_path / 'base'}", f"trained={tmp_path / 'rl'}")
    assert headline.startswith("Whether training helped rl is open.")
    assert "2 papers are too few to tell." in headline
    assert "could not be seen" not in headline


def test_looks_at_test_are_those_on_record(home, say, tmp_path):
    make_evaluation(tmp_path / "again", answer(3, 0.5), {**ASKED, "local_model": "models/verl"})
    make_evaluation(tmp_path / "dev", answer(3, 0.5), {**ASKED, "split": "dev"})
    make_evaluation(tmp_path / "final", answer(3, 0.5), {**ASKED, "n_test_looks": 2, "checkpoint": "x"})
    write_predictions(answer(3, 0.5), tmp_path / "file.parquet")
    facts = {"settings": {"model": "mine", "saw": "title", "split": "test"}, "release": SLICE}
    save_result(tmp_path / "mine.result.json", answer(3, 0.5), facts)
    make_run(tmp_path / "run", evaluations={0: answer(3, 0.1), 4: answer(3, 0.5)}, n_steps=4)
    for trained, looks in {
        "rl": "rl at least 2", "dev": "dev none, judged by dev", "final": "final 2", "file.parquet": "file unknown",
        "mine.result.json": "mine unknown", "run": "run 2",
    }.items():  # fmt: skip
        headline, changes = say(f"start={home / 'base'}", f"trained={home / trained}")
        assert changes["looks at test"] == f"base at least 1; {looks}"
        assert f"Looks at test: base at least 1; {looks}." in headline
        unknown = trained in {"file.parquet", "mine.result.json"}
        assert ("It is not known whether answers were drawn by chance" in headline) is unknown


def test_looks_of_seeds_that_differ_are_said_one_by_one(home, say):
    looks = {1: 1, 2: 1, 3: 2}
    seeds = [
        make_evaluation(home / f"it/seed_{seed}", answer(seed, 0.5), {**ASKED, "n_test_looks": n, "checkpoint": "x"})
        for seed, n in looks.items()
    ]
    _, changes = say(f"start={home / 'base'}", f"trained={','.join(map(str, seeds))}")
    assert changes["looks at test"] == "base at least 1; it 1, 1, 2"


def test_sides_that_were_asked_otherwise_or_by_chance_are_marked(home, say):
    make_evaluation(home / "hot", answer(3, 0.9), {**ASKED, "temperature": 1.0})
    headline, _ = say(f"start={home / 'base'}", f"trained={home / 'hot'}")
    assert headline.startswith("Whether training helped hot is open: a paper has one answer, drawn by chance")
    assert "(sciscirl evaluate --temperature 0)" in headline
    assert "Start and trained were asked otherwise: temperature." in headline


def test_baselines_are_not_drawn_by_chance_and_are_told_apart(home, say):
    for name, skill in (("majority", 0.0), ("words", 0.9)):
        make_evaluation(home / "ev" / name, answer(4, skill), {"baseline": name, "saw": ["title"]})
    headline, changes = say(f"start={home / 'ev/majority'}", f"trained={home / 'ev/words'}")
    assert headline.startswith("Training helped words.")
    assert changes["looks at test"] == "majority at least 1; words at least 1"


def test_too_few_seeds_see_no_gain(home, say):
    seeds = [make_evaluation(home / f"it/seed_{seed}", answer(seed, skill), ASKED) for seed, skill in ((1, 0), (2, 1))]
    headline, changes = say(f"start={home / 'base'}", f"trained={','.join(map(str, seeds))}")
    assert " With so few seeds, no gain in macro-F1 could be seen here with 80 % power." in headline
    assert "macro-F1 none" in changes["least gain that 80 % of such tests see"]


def test_of_predictions_files_neither_split_nor_release_is_known(tmp_path, caplog):
    for name, skill in (("base", 0.2), ("rl", 0.7)):
        write_predictions(answer(1, skill), tmp_path / f"{name}.parquet")
    words = [f"start={tmp_path / 'base.parquet'}", f"trained={tmp_path / 'rl.parquet'}", "--out"]
    PROGRAM.act(["report", *words, str(tmp_path / "r.html")])
    page = Page((tmp_path / "r.html").read_text("utf-8"))
    assert "Models, 90 papers, task disruption" in page.text
    assert "papers of test" not in page.text
    PROGRAM.act(["compare", *words, str(tmp_path / "out")])
    assert "base has no result file: nothing says of which release it is" in caplog.text


def test_a_report_says_the_same(home, say):
    headline, changes = say(f"start={home / 'base'}", f"trained={home / 'rl'}")
    words = [f"start={home / 'base'}", f"trained={home / 'rl'}", "--out", str(home / "r.html")]
    PROGRAM.act(["report", *words])
    page = Page((home / "r.html").read_text("utf-8"))
    assert headline in page.text
    assert all(text in page.text for text in changes.values())


def test_what_is_wrong_with_a_pair_is_one_clear_error(home, tmp_path):
    base, rl = home / "base", home / "rl"
    make_evaluation(tmp_path / "less", answer(1, 0.2, 60), ASKED)
    other = answer(1, 0.2).with_columns(gold=pl.lit("neutral"))
    make_evaluation(tmp_path / "relabelled", other, ASKED)
    make_evaluation(tmp_path / "elsewhere", answer(1, 0.2), ASKED, manifest_sha256="1b" * 32)
    write_predictions(answer(1, 0.2, openalex_id=pl.lit(None, pl.String)), tmp_path / "null.parquet")
    write_predictions(answer(1, 1.0).with_columns(pl.col("label").str.to_uppercase()), tmp_path / "loud.parquet")
    for words, match in (
        ([f"start={base}"], "--trained is missing: the evaluation after training. Give both"),
        ([f"trained={rl}", str(base)], "--start is missing: the evaluation before training"),
        ([f"start={base}", f"trained={base}"], "--start and --trained both name .*base. Give two"),
        ([f"start={base},{rl}", f"trained={tmp_path / 'less'}"], "--start names 2 evaluations, --trained 1"),
        ([f"start={base}", f"trained={tmp_path / 'less'}"], "less and base are not of the same papers: 0 .* 30 only"),
        ([f"start={base}", f"trained={tmp_path / 'relabelled'}"], "differ in the gold label of 60 papers"),
        ([f"start={base}", f"trained={tmp_path / 'elsewhere'}"], "elsewhere is of release 1b.*, base of 5a"),
        ([f"start={base}", f"trained={tmp_path / 'null.parquet'}"], "null does not say .* openalex_id without nulls"),
        ([f"start={base}", f"trained={tmp_path / 'loud.parquet'}"], "loud.parquet cannot .* label, needs disruptive, "),
        ([f"start={base}", f"trained={tmp_path / 'none'}"], "there is no .*none"),
    ):
        for command in (["compare"], ["report", "--out", str(tmp_path / "r.html")]):
            with pytest.raises(PredictionsError, match=match):
                PROGRAM.act([*command, *words])
    with pytest.raises(PredictionsError, match=r"no predictions\. Give two or more, or --start"):
        PROGRAM.act(["compare"])
    seeds = [make_evaluation(tmp_path / f"grpo/seed_{seed}", answer(seed, 0.5), ASKED) for seed in range(2)]
    with pytest.raises(PredictionsError, match="two models have the name grpo"):
        PROGRAM.act(["compare", f"start={base}", f"trained={seeds[0]},{seeds[1]}", f"grpo={rl}"])


def test_the_number_of_resamples_and_the_level_are_those_of_the_comparison(home, say):
    short, _ = say(f"start={home / 'base'}", f"trained={home / 'rl'}", "--level", "0.5", "--n-resamples", "50")
    low, high = map(float, re.search(r"start \S+ \[(\S+), (\S+)\]", short).groups())
    (pair,) = compare_predictions(
        {"rl": answer(2, 0.7), "base": answer(1, 0.2, shares=(4, 1, 1, 1))}, CompareConfig(level=0.5, n_resamples=50)
    ).pairs
    assert (low, high) == (round(pair.differences["macro_f1"].low, 3), round(pair.differences["macro_f1"].high, 3))
