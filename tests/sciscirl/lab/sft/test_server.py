"""The Tinker backend against a real server."""

from __future__ import annotations

import json

import polars as pl
import pytest


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
    sums = run / "SHA256SUMS"  # a killed run has not listed its logs here
    listed = sums.read_text("utf-8").splitlines(keepends=True)
    sums.write_text("".join(line for line in listed if "checkpoints.jsonl" not in line and "metrics.jsonl" not in line))
    tinker_server.run("train_sft.py", *words, "behavior_if_log_dir_exists=resume")
    again = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [row["step"] for row in again if "train_mean_nll" in row] == list(range(n_steps))
    assert [row for row in again if row["step"] < 10] == [row for row in rows if row["step"] < 10]
    assert [row["step"] for row in again if "test/macro_f1" in row] == [0, 6, n_steps]

    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    ended = tinker_server.run("train_sft.py", *words, "behavior_if_log_dir_exists=resume")
    assert "nothing is left to do" in ended.stdout + ended.stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

    out = tmp_path / "evaluation"
    words = ["--run", str(run), "--release", str(tinker_server.release), "--out", str(out), "--n-papers", "6"]
    assert "accuracy, %" in tinker_server.run("evaluate.py", *words).stdout
    assert (out / "predictions.parquet").is_file()
