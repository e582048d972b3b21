"""Runs of an evaluation under other settings: what is compared, and what happens to runs that cannot be made."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import polars as pl
import pytest

from sciscirl.errors import SciSciRLError
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.local_server.tiny_model import TINY_RENDERER
from sciscirl.lab.studies.repro import compare_answers, render_repro, run_repro


@pytest.fixture(scope="module")
def config(random_model, toy_slice, tmp_path_factory):
    return EvaluationConfig(
        release=toy_slice, out=tmp_path_factory.mktemp("sweep") / "here", local_model=random_model, dtype="float32",
        renderer=TINY_RENDERER, n_papers=4, max_tokens=40, n_threads=1,
    )  # fmt: skip


RUNS = {"repeat": {}, "few": {"batch_size": 1}, "coarse": {"dtype": "float16"}, "never": {"batch_size": 0}}


def answers(*rows):
    return pl.DataFrame(
        [{"openalex_id": f"W{n}", "text": text, "label": label} for n, (text, label) in enumerate(rows)]
    )


def test_a_comparison_counts_answers_places_and_flips():
    found = compare_answers(
        answers(("abd", "neutral"), ("ab", "novel"), ("", "novel")),
        answers(("abc", "neutral"), ("ab", "novel"), ("x", None)),
    )
    assert found == {
        "n": 3, "identical_share": pytest.approx(1 / 3), "first_divergence_median": 1.0, "label_flip_share": 1 / 3
    }  # fmt: skip
    scored = (answers((f'{{"novel": {odds}}}', "novel")) for odds in (-1.5, -1.25))
    assert compare_answers(*scored)["logprob_difference_max"] == 0.25
    with pytest.raises(SciSciRLError, match="other papers"):
        compare_answers(answers(("a", "novel")), answers(("a", "novel"), ("a", "novel")))


def test_a_sweep_goes_on_and_says_why_a_run_is_missing(config):
    table = asyncio.run(run_repro(config, runs=RUNS))
    assert table["run"].to_list() == ["repeat", "few", "coarse", "never"]
    assert table["identical_share"][0] == 1
    assert "batch_size is 0, needs a whole number from 1" in table["reason"][3]
    assert "never: EvaluationConfig.batch_size is 0" in render_repro(table)
    kept = config.out / "reference" / "predictions.parquet"
    before = kept.stat().st_mtime_ns
    again = asyncio.run(run_repro(config, runs=RUNS, against=(config.out / "reference",)))
    assert again[1:].equals(table)
    assert again["identical_share"][0] == 1
    assert kept.stat().st_mtime_ns == before
    with pytest.raises(SciSciRLError, match=r"was begun with seed=0, not seed=1"):
        asyncio.run(run_repro(replace(config, seed=1), runs=RUNS))
