"""The Tinker backend against a real server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys

import polars as pl
import pytest
import torch
from tinker_cookbook.tokenizer_utils import get_tokenizer

from sciscirl.evaluation.evaluate import EvaluationConfig, evaluate_model
from sciscirl.options import TinkerSftOptions
from sciscirl.report.runs import read_run
from sciscirl.runs.folder import list_weights
from sciscirl.runs.local_model import load_base_model
from sciscirl.sft.config import make_examples


@pytest.mark.slow
def test_the_tinker_backend_trains_resumes_and_is_evaluated_on_a_real_server(tinker_server, tmp_path):
    run, n_steps = tmp_path / "run", 12
    words = [
        "--backend", "tinker", "preset=exp4", f"release={tinker_server.release}", f"model={tinker_server.model}",
        f"renderer={tinker_server.renderer}", f"log_path={run}", "batch_size=8", "lora_rank=8", "max_tokens=64",
        "max_paper_tokens=96", "learning_rate=0.003", "n_epochs=1", "save_every=5", "eval_every=6", "n_test=6",
        "eval_split=test",
    ]  # fmt: skip
    tinker_server.run("train_sft.py", *words)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    nll = {row["step"]: row["train_mean_nll"] for row in rows if "train_mean_nll" in row}
    assert sorted(nll) == list(range(n_steps))
    assert nll[n_steps - 1] < nll[0] - 0.1
    assert [row["step"] for row in rows if "test/macro_f1" in row] == [0, 6, n_steps]
    written = sorted(path.name for path in (run / "predictions").iterdir())
    assert written == ["test_000000.parquet", "test_000006.parquet", "test_000012.parquet"]
    assert pl.read_parquet(run / "predictions" / written[-1]).height == 6
    recorded = json.loads((run / "run.json").read_text("utf-8"))
    assert recorded["settings"]["backend"] == "tinker"

    # As a run is found that was killed after its checkpoint at step 10, with steps after it on record.
    file = run / "checkpoints.jsonl"
    kept = [line for line in file.read_text("utf-8").splitlines() if json.loads(line)["name"] != "final"]
    assert [json.loads(line)["batch"] for line in kept] == [5, 10]
    file.write_text("".join(f"{line}\n" for line in kept), "utf-8")
    tinker_server.run("train_sft.py", *words, "resume=True")
    again = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [row["step"] for row in again if "train_mean_nll" in row] == list(range(n_steps))
    assert [row for row in again if row["step"] < 10] == [row for row in rows if row["step"] < 10]
    assert [row["step"] for row in again if "test/macro_f1" in row] == [0, 6, n_steps]

    out = tmp_path / "evaluation"
    words = ["--run", str(run), "--release", str(tinker_server.release), "--out", str(out), "--n-papers", "6"]
    assert "label_match" in tinker_server.run("evaluate.py", *words).stdout
    assert (out / "predictions.parquet").is_file()


#: Prints the log-probabilities that a server gives to tokens, in a process of its own: the SDK leaves connections open.
ASK = """
import asyncio, json, sys
import tinker
from sciscirl.runs.server_checks import open_sampling

async def ask(model, checkpoint, tokens):
    async with open_sampling(model, checkpoint) as client:
        return await client.compute_logprobs(tinker.ModelInput.from_ints(json.loads(tokens)))

print(json.dumps(asyncio.run(ask(*sys.argv[1:]))))
"""


def list_logprobs(model: str, tokens: list[int]) -> list[float]:
    """The log-probability of every token after the first, computed here."""
    with torch.no_grad():
        said = load_base_model(model, dtype="float32", device="cpu")(torch.tensor([tokens])).logits[0].log_softmax(-1)
    return said[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()


@pytest.mark.slow
def test_training_by_reward_starts_from_a_supervised_run_and_is_merged(tinker_server, tmp_path):
    sft, rl, merged = tmp_path / "sft", tmp_path / "rl", tmp_path / "merged"
    words = [
        "preset=baseline", f"release={tinker_server.release}", f"model={tinker_server.model}",
        f"renderer={tinker_server.renderer}", "lora_rank=8", "max_tokens=48", "max_paper_tokens=96",
        "learning_rate=0.01", "eval_every=10", "eval_temperature=0", "eval_split=test", "n_test=6",
    ]  # fmt: skip
    tinker_server.run(
        "train_sft.py", "--backend", "tinker", *words, f"log_path={sft}", "batch_size=8", "n_train=16", "n_epochs=1"
    )
    logged = [json.loads(line) for line in (sft / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert read_run(sft, "sft").usage.train == sum(row.get("num_tokens", 0) for row in logged) > 0
    # The loss on the label of the first step is that of the base model.
    options = dict(word.split("=") for word in words)
    examples = make_examples(
        TinkerSftOptions(
            **{name: options[name] for name in ("preset", "release", "model", "renderer", "eval_split")},
            max_paper_tokens=96, batch_size=8, n_train=16, n_epochs=1,
        )
    )  # fmt: skip
    said = [list_logprobs(tinker_server.model, list(example.tokens)) for example in examples[:8]]
    losses = [-sum(one[place - 1] for place in example.labels) for one, example in zip(said, examples[:8], strict=True)]
    assert next(row["label_nll"] for row in logged if "label_nll" in row) == pytest.approx(sum(losses) / 8, rel=0.01)
    tinker_server.run("train_rl.py", *words, f"log_path={rl}", "batch_size=2", "max_steps=1", f"load_checkpoint={sft}")
    facts = json.loads((rl / "run.json").read_text("utf-8"))
    begun_from = facts["begun_from"]
    assert (begun_from["folder"], begun_from["kind"], begun_from["step"]) == ("sft", "sft", 2)
    assert begun_from["run_sha256"] == hashlib.sha256((sft / "run.json").read_bytes()).hexdigest()
    assert facts["settings"]["load_checkpoint"] == begun_from["path"]
    # Greedy answers: before its first step, the model says what the supervised one says at its end.
    before, after, started = (
        pl.read_parquet(path / "predictions" / f"test_{step:06d}.parquet")["text"].to_list()
        for path, step in ((sft, 0), (sft, 2), (rl, 0))
    )
    assert started == after != before

    done = tinker_server.run("merge_adapter.py", str(rl), "--out", str(merged), "--dtype", "float32")
    assert f"model: {merged}" in done.stdout
    card = (merged / "README.md").read_text("utf-8")
    assert "| begun from | sft, step 2 |" in card
    assert "| step | 1 |" in card
    assert "| label_match |" in card
    tokens = get_tokenizer(tinker_server.model).encode(after[0] + " Which label fits this paper?")
    words = [sys.executable, "-c", ASK, tinker_server.model, list_weights(rl)[1], json.dumps(tokens)]
    asked = subprocess.run(words, env=tinker_server.environment, capture_output=True, text=True, check=True)
    served = json.loads(asked.stdout)[1:]
    assert list_logprobs(str(merged), tokens) == pytest.approx(served, abs=0.01)
    assert list_logprobs(tinker_server.model, tokens) != pytest.approx(served, abs=0.1)

    # Label probabilities of the server are those of the merged model here.
    scored = {"answers": "logprobs", "prior_correction": "content_free", "n_papers": 3}
    words = [f"{name}={value}" for name, value in scored.items()]
    tinker_server.run(
        "evaluate.py", f"run={rl}", f"release={tinker_server.release}", f"out={tmp_path / 'there'}", *words
    )
    here = EvaluationConfig(
        release=tinker_server.release, out=tmp_path / "here", local_model=merged, preset="baseline",
        renderer=tinker_server.renderer, max_paper_tokens=96, **scored,
    )  # fmt: skip
    asyncio.run(evaluate_model(here))
    there, here = (pl.read_parquet(tmp_path / name / "predictions.parquet") for name in ("there", "here"))
    assert here["openalex_id"].equals(there["openalex_id"])
    for ours, theirs in zip(map(json.loads, here["forecast"]), map(json.loads, there["forecast"]), strict=True):
        assert ours == pytest.approx(theirs, abs=0.01)
