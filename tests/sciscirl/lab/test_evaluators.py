"""Benchmarks of the cookbook beside a run's evaluations, as ``evaluators=...`` names them."""

import pytest

from sciscirl.cli.commands import PROGRAM
from sciscirl.errors import SciSciRLError
from sciscirl.lab.guards import make_guards


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("evals", "evals is no benchmark of the cookbook. Choose among .*gsm8k.*ifeval"),
        ("mbpp", "mbpp needs a judge or a sandbox"),
        ("ifeval,gsm8k:0", "gsm8k:0 needs a whole number from 1"),
    ],
)
def test_a_name_that_is_no_evaluator_is_refused_in_a_dry_run_too(options, value, said):
    with pytest.raises(SciSciRLError, match=rf"^evaluators: {said}"):
        PROGRAM.call(
            "train", [*(f"{name}={one}" for name, one in options.items()), f"evaluators={value}", "--dry-run"], set()
        )


def test_a_dry_run_says_what_they_ask(options, capsys):
    words = [*(f"{name}={one}" for name, one in options.items()), "evaluators=ifeval,gsm8k:7", "--dry-run"]
    PROGRAM.call("train", words, set())
    assert "and by ifeval: 100 questions at each evaluation" in (shown := capsys.readouterr().out)
    assert "and by gsm8k: 7 questions at each evaluation" in shown


def test_questions_that_are_not_on_this_machine_are_one_error(toy_renderer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SciSciRLError, match=r"^evaluators: the questions of gsm8k cannot be loaded .*HF_HOME"):
        make_guards(["gsm8k"], toy_renderer)
