"""The demonstration on a real model: fine-tuning teaches the form of an answer."""

from __future__ import annotations

import json
import os
import statistics

import pytest

import sciscidata as ssd
from sciscirl.cli.main import main
from sciscirl.metrics.predictions import read_predictions


@pytest.fixture(scope="module")
def real_release(shared_data, tmp_path_factory):
    """120 and 30 papers of systematic reviews."""
    home = tmp_path_factory.mktemp("real")
    source = ssd.RecordsConfig(inputs=(str(shared_data / "openalex" / "synergy_A.works.jsonl.gz"),))
    split = ssd.SplitConfig(n_train=120, n_test=30)
    config = ssd.BuildConfig(source=source, out=home / "slice", cache_dir=home / "cache", split=split, novelty=None)
    return ssd.build(config).folder


def test_the_commands_are_shown_before_they_are_run(capsys, tmp_path):
    assert main(["demo", "--dry-run", "--out", str(tmp_path / "demo"), "--rl-steps", "7"]) == 0
    told = capsys.readouterr().out
    assert told.count("\n#") + 1 == told.count("\nscisci") == 10
    assert "--max-steps 7 " in told
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
@pytest.mark.skipif("SCISCI_REAL_MODEL" not in os.environ, reason="takes minutes; SCISCI_REAL_MODEL=1 runs it")
def test_a_real_model_learns_the_form_of_an_answer_on_real_papers(real_release, tmp_path, capsys):
    out = tmp_path / "demo"
    words = ["demo", "--short", "--release", str(real_release), "--out", str(out)]
    assert main(words) == 0, capsys.readouterr().err
    before, after = (read_predictions(out / name / "predictions.parquet") for name in ("zero_shot", "sft_test"))
    assert len(before) == len(after) == 30
    assert after["is_valid"].mean() >= 0.9
    assert before["is_valid"].mean() < after["is_valid"].mean()
    rows = [json.loads(line) for line in (out / "sft" / "metrics.jsonl").read_text().splitlines()]
    losses = [row["train_mean_nll"] for row in rows if "train_mean_nll" in row]
    assert len(losses) == 24
    assert statistics.fmean(losses[-5:]) < statistics.fmean(losses[:5]) / 3
    assert "step 5 of 5" in capsys.readouterr().out
    page = out / "report.html"
    written = page.read_bytes()
    assert main(words) == 0
    assert capsys.readouterr().out.count("(done before)") == 5
    assert page.read_bytes() == written
