"""The ladder: its price, what it refuses, and that it goes on wherever it was stopped."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from sciscirl.cli.main import main
from sciscirl.errors import ReleaseError, SciSciRLError
from sciscirl.lab.analysis.baselines import BASELINES
from sciscirl.lab.analysis.compare import CompareConfig
from sciscirl.lab.evaluation import evaluate
from sciscirl.lab.guards import MAX_TOKENS
from sciscirl.lab.report.comparison import compare_files
from sciscirl.lab.report.runs import read_runs
from sciscirl.lab.studies import ladder
from sciscirl.lab.studies.ladder import run_ladder
from sciscirl.lab.studies.ladder_options import LadderOptions
from sciscirl.runs import server_checks
from sciscirl.runs.folder import locked_folder
from sciscirl.task.release import open_release
from tests.sciscirl.lab.studies import test_sweep
from tests.sciscirl.toy import Scripted

cookbook, release = test_sweep.cookbook, test_sweep.release
WAYS = ("exp4 rl", "exp4 sft", "exp4 sft_rl")


class Stop(BaseException):
    """Ends the process of a user, at a place that a test chooses."""


class Scoring(Scripted):
    async def score_endings(self, prompts, endings):
        return [[-float(len(prompt) % 7), -3.0, -2.0][: len(endings)] for prompt in prompts]


@pytest.fixture
def asked(cookbook, toy_renderer, monkeypatch):
    """The evaluations that a server was asked for; ``stops`` are numbers of those in which the process ends."""
    looks, stops = [], set()

    async def ask(evaluator, subject, base_url):
        looks.append((evaluator.name, subject.checkpoint))
        if len(looks) in stops:
            raise Stop
        await evaluator.eval_token_completer(
            Scoring(toy_renderer.tokenizer, lambda prompt: test_sweep.answer(prompt, 0.5, str(subject.checkpoint)))
        )

    monkeypatch.setattr(evaluate, "_ask_server", ask)
    for module in (ladder, server_checks):
        monkeypatch.setattr(module, "check_server", lambda *_, **__: None)
    return looks, stops


@pytest.fixture
def whole(cookbook, release, tmp_path):
    shared = {**cookbook.options, "sft_batch_size": 3, "sft_n_epochs": 1, "seeds": (0,), "style": "plain"}
    return LadderOptions(**shared, release=str(release), out=str(tmp_path / "ladder"))


def run(options, *, agrees=True):
    prices = []

    def confirm(price):
        prices.append(price)
        return agrees

    return asyncio.run(run_ladder(options, confirm)), prices


def test_a_ladder_goes_on_after_every_stop_and_looks_at_test_once(cookbook, asked, whole, release, tmp_path):
    looks, stops = asked
    out = tmp_path / "ladder"
    cookbook.fails["exp4-sft_rl/seed_0"] = Stop()
    with pytest.raises(Stop):
        run(whole)
    assert not looks  # test waits for the end of all training
    cookbook.fails["exp4-sft_rl/seed_0"] = SciSciRLError("the server is down")
    with pytest.raises(
        SciSciRLError, match=r"1 of 3 runs have not ended, so test was not looked at.*\n.*server is down"
    ):
        run(whole)
    cookbook.fails.clear()
    stops |= {2, 5}  # the last is a final evaluation
    for _ in stops:
        with pytest.raises(Stop):
            run(whole)
    for name in ("run.json", "metrics.json"):  # as if it had been killed while it wrote
        (out / "training/exp4-rl/seed_0/final" / name).unlink()
    result, (price,) = run(whole)
    left = {line[:11].strip(): line[11:].split()[:2] for line in price.splitlines()[1:6]}
    assert left == {name: ["0", "1" if name in WAYS else "0"] for name in (*WAYS, "zero_shot", "logprobs")}
    assert cookbook.calls.count("exp4-sft/seed_0") == cookbook.calls.count("exp4-rl/seed_0") == 1
    assert {name for name, _ in looks} == {"test"}
    assert result.n_looks == {"exp4 rl, seed 0": 2, "exp4 sft, seed 0": 1, "exp4 sft_rl, seed 0": 1}
    assert result.steps == {"exp4 rl": {0: 2}, "exp4 sft": {0: 8}, "exp4 sft_rl": {0: 2}}
    rows = [*BASELINES, "zero_shot", "logprobs", *WAYS]
    assert [*result.comparison.scores] == [name for name in rows if name in result.comparison.scores]
    assert {*WAYS, "at_publication", "zero_shot"} < {*result.comparison.scores}
    table = ladder.render_ladder(result)
    assert table.startswith("| | accuracy | minus `at_publication` | knows |\n|---|---|---|---|\n| majority | 0.333 [")
    assert "once for each row and seed, but for exp4 rl, seed 0 2 times" in table
    assert "exp4-rl" in result.page.read_text("utf-8")
    assert [one.name for one in read_runs([out])][:2] == ["exp4-rl/seed_0", "exp4-rl/seed_0, final, step 2"]

    files = {path.name: path.read_bytes() for path in (out / "results").iterdir()}
    again = compare_files([str(out / "results")], CompareConfig(reference="at_publication"), release=release)
    for name in WAYS:
        score = again.scores[f"{name.replace(' ', '-')}-seed0"]["label_match"].value
        assert score == result.comparison.scores[name]["label_match"].value
    settings = json.loads(files["exp4-sft_rl-seed0.result.json"])["settings"]
    assert (settings["row"], settings["seed"], settings["split"]) == ("exp4 sft_rl", 0, "test")
    n_looks = len(looks)
    assert run(whole)[1] == []  # nothing is left to pay
    assert len(looks) == n_looks
    assert {path.name: path.read_bytes() for path in (out / "results").iterdir()} == files
    for other, said in ({"seeds": (0, 1)}, "seeds"), ({"n_train": 20}, "n.train"):
        with pytest.raises(SciSciRLError, match=rf"ladder was begun .*{said}"):
            run(replace(whole, **other))


def test_a_ladder_says_its_price_without_a_key_and_begins_nothing_that_is_not_confirmed(
    cookbook, whole, release, toy_slice, tmp_path, monkeypatch, capsys
):
    words = [f"{name}={value}" for name, value in cookbook.options.items()]
    words += [f"release={release}", f"out={whole.out}", "sft_batch_size=3", "style=plain", "seeds=0,1"]
    monkeypatch.delenv("TINKER_API_KEY")
    assert main(["ladder", *words, "dry_run=yes"]) == 0
    plan = capsys.readouterr().out
    assert "rung 7 of 7: compare, and write" in plan

    def read_rows(plan):
        return {line[:11].strip(): line[11:].split() for line in plan.splitlines() if line[:11].strip() in WAYS}

    assert {name: row[:2] for name, row in read_rows(plan).items()} == {name: ["2", "2"] for name in WAYS}
    lines = [line.replace(",", "").split() for line in plan.splitlines() if line.startswith(("zero_shot", "logprobs"))]
    each = sum(map(int, lines[0][3:5])) // (n_test := open_release(release).test.height)
    assert int(lines[1][3]) == each * (n_test + 64) * 3  # each label, and training papers for the prior
    assert "cost: no list price known" in plan
    priced = [word for word in words if not word.startswith("model=")] + ["model=Qwen/Qwen3-8B", "seeds=0"]
    priced += ["evaluators=gsm8k:7"]  # which a dry run does not load
    assert main(["ladder", *[word for word in priced if word != "seeds=0,1"], "dry_run=yes"]) == 0
    printed = capsys.readouterr().out
    for name, row in read_rows(printed).items():  # each evaluation has answers to the benchmark, too
        n_more = int(row[3].replace(",", "")) - int(read_rows(plan)[name][3].replace(",", "")) // 2
        assert (n_more > 0, n_more % (7 * MAX_TOKENS)) == (True, 0)
    dollars = [float(line.split()[-1]) for line in printed.splitlines() if line.startswith(("exp4", "zero", "logp"))]
    assert float(printed.rpartition("cost: $")[2].split()[0]) == pytest.approx(sum(dollars), abs=0.03)
    forecasts = replace(whole, preset="exp8", dry_run=True)  # which say all labels, so none is scored
    plan = ladder.render_ladder_plan(forecasts)
    assert ("zero_shot" in plan, "logprobs" in plan) == (True, False)
    monkeypatch.setattr(ladder, "check_server", lambda *_, **__: None)
    assert main(["ladder", *words]) == 1  # no terminal, and no --yes
    assert "the price was not confirmed, so nothing was begun" in capsys.readouterr().err
    assert not [*(tmp_path / "ladder").glob("*.json")]
    assert cookbook.calls == []
    with pytest.raises(ReleaseError, match="has no dev split: dev makes the choices"):
        run(replace(whole, release=str(toy_slice)))
    with pytest.raises(SciSciRLError, match="eval_split is 'test' and cannot be set"):
        run(replace(whole, eval_split="test"))
    with locked_folder(tmp_path / "ladder"), pytest.raises(SciSciRLError, match="is in use by another ladder"):
        run(whole)
