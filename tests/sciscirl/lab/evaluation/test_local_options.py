"""How a local model is asked: batch size, number format, threads and seed, which run.json states."""

from __future__ import annotations

import asyncio
import json

import pytest
import torch

from sciscirl.cli.main import main
from sciscirl.errors import SciSciRLError
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.evaluate import evaluate_model
from sciscirl.lab.local_server.tiny_model import TINY_RENDERER
from sciscirl.metrics.predictions import read_predictions


def test_a_local_model_is_asked_as_the_options_say_and_the_record_states_it(random_model, toy_slice, tmp_path, capsys):
    words = ["evaluate", f"release={toy_slice}", f"local_model={random_model}", "n_papers=3", "max_tokens=40"]
    words += [f"renderer={TINY_RENDERER}", "temperature=1", "max_paper_tokens=150"]
    chosen = {"batch_size": 2, "dtype": "bfloat16", "n_threads": 1, "seed": 7}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in chosen.items()]
    before = torch.get_num_threads()
    assert main([*words, *flags, "--out", str(tmp_path / "one")]) == 0
    assert main([*words, *flags, "--out", str(tmp_path / "two")]) == 0
    assert main([*words, *flags[:-1], "--out", str(tmp_path / "other")]) == 0
    assert torch.get_num_threads() == before
    texts = {}
    for name, seed in (("one", 7), ("two", 7), ("other", 0)):
        settings = json.loads((tmp_path / name / "run.json").read_text("utf-8"))["settings"]
        assert {key: settings[key] for key in chosen} == chosen | {"seed": seed}
        assert (settings["max_paper_tokens"], settings["device"]) == (150, "cpu")
        texts[name] = read_predictions(tmp_path / name / "predictions.parquet")["text"].to_list()
    assert texts["one"] == texts["two"] != texts["other"]
    capsys.readouterr()


@pytest.mark.parametrize("given", [{"batch_size": 2}, {"dtype": "float32"}, {"n_threads": 1}])
def test_a_server_decides_these_itself(toy_slice, toy_model, tmp_path, given):
    config = EvaluationConfig(release=toy_slice, out=tmp_path / "out", model=toy_model, **given)
    with pytest.raises(SciSciRLError, match=f"{next(iter(given))} has no effect: the model is on a server"):
        asyncio.run(evaluate_model(config))
