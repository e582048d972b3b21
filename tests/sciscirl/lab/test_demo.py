"""The demonstration on a real model: fine-tuning teaches the form of an answer."""

from __future__ import annotations

import json
import os
import statistics

import pytest

import sciscidata as ssd
from sciscirl.cli.main import main
from sciscirl.errors import SciSciRLError
from sciscirl.lab.demo import Step, run_demo
from sciscirl.lab.models.fetch_model import fetch_model
from sciscirl.metrics.predictions import read_predictions


@pytest.fixture(scope="module")
def real_model() -> str:
    """SmolLM2, which is brought here once. In CI it has to be there, elsewhere it needs the network."""
    try:
        return str(fetch_model("smollm2"))
    except SciSciRLError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no real model: {error}")


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> list[str]:
    """120 and 15 papers of systematic reviews."""
    home = tmp_path_factory.mktemp("real")
    source, split = ssd.ExampleConfig(), ssd.SplitConfig(n_train=120, n_test=15)
    config = ssd.BuildConfig(source=source, out=home / "slice", cache_dir=home / "cache", split=split, novelty=None)
    return ["--release", str(ssd.build(config).folder)]


def test_the_commands_are_shown_before_they_are_run(capsys, tmp_path):
    assert main(["demo", "--dry-run", "--out", str(tmp_path / "demo")]) == 0
    told = capsys.readouterr().out
    assert told.count("\n#") + 1 == told.count("\nscisci") == 10
    assert "--max-steps 15 " in told
    assert not (tmp_path / "demo").exists()
    assert main(["demo", "--short", "--dry-run", "--out", str(tmp_path / "demo")]) == 0
    assert "--save-every 4 --eval-every 14 " in capsys.readouterr().out


def test_a_stopped_demonstration_says_how_to_go_on(tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    shown = []
    with pytest.raises(KeyboardInterrupt):
        run_demo([Step("draw", ("sciscidata",), tmp_path / "one")], tmp_path, {"sciscidata": stop}, shown.append)
    assert shown[-1].endswith("Repeat the command to go on.")


@pytest.mark.slow
def test_a_real_model_learns_the_form_of_an_answer(real_model, release, tmp_path, capsys):
    # Fifteen papers cannot tell how well it judges. So no accuracy is asserted.
    out = tmp_path / "demo"
    words = ["demo", "--short", *release, "--model", real_model, "--out", str(out)]
    assert main(words) == 0, capsys.readouterr().err
    before, after = (read_predictions(out / name / "predictions.parquet") for name in ("zero_shot", "sft_test"))
    assert len(before) == len(after) == 15
    assert after["is_valid"].mean() >= 0.9
    assert before["is_valid"].mean() < after["is_valid"].mean()
    rows = [json.loads(line) for line in (out / "sft" / "metrics.jsonl").read_text().splitlines()]
    losses = [row["train_mean_nll"] for row in rows if "train_mean_nll" in row]
    assert len(losses) == 14
    assert statistics.fmean(losses[-5:]) < statistics.fmean(losses[:5]) / 3
    n_steps = 5 if release else 6
    assert f"step {n_steps} of {n_steps}" in capsys.readouterr().out
    page = out / "report.html"
    written = page.read_bytes()
    assert main(words) == 0
    assert capsys.readouterr().out.count("(done before)") == n_steps
    assert page.read_bytes() == written
