from __future__ import annotations

import asyncio
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from sciscirl.errors import SciSciRLError
from sciscirl.lab.local_server.tiny_model import TINY_RENDERER
from sciscirl.lab.studies.repro.answers import ANSWERS, compare_answers, first_divergence, read_answers
from sciscirl.lab.studies.repro.runners import LocalRunner, hash_weights
from sciscirl.lab.studies.repro.settings import Axes, plan_cells
from sciscirl.lab.studies.repro.sweep import ReproConfig, Sweep, run_sweep

tokens = st.lists(st.integers(0, 3), max_size=6)
FEW = Axes(
    batch_sizes=(1, 3), dtypes=("float32", "bfloat16", "int8"), thread_counts=(1,), attentions=("eager", "sdpa"),
    devices=("cpu", "cuda:7"), n_repeats=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def config(random_model, toy_slice, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep") / "here"
    return ReproConfig(
        release=toy_slice,
        out=out,
        local_model=random_model,
        renderer=TINY_RENDERER,
        n_papers=4,
        max_tokens=40,
        axes=FEW,
    )


@pytest.fixture(scope="module")
def table(config):
    return asyncio.run(run_sweep(config))


@given(tokens, tokens)
def test_the_first_divergence_is_where_the_common_beginning_ends(left, right):
    place = first_divergence(left, right)
    assert place == first_divergence(right, left)
    if place is None:
        assert left == right
    else:
        assert left[:place] == right[:place]
        assert left[place : place + 1] != right[place : place + 1]


def answers(*rows, mode="greedy"):
    names = ("tokens", "label", "reference_logprobs")
    return pl.DataFrame(
        [{"mode": mode, "openalex_id": f"W{n}", **dict(zip(names, row, strict=True))} for n, row in enumerate(rows)],
        schema=ANSWERS,
    )


def test_a_comparison_counts_answers_places_and_flips():
    reference = answers(
        ([1, 2, 3], "neutral", [-1.0, -1.0, -1.0]), ([1, 2], "novel", [-2.0, -2.0]), ([7], "invalid", [0.0])
    )
    run = answers(([1, 2, 4], "neutral", [-1.0, -1.5, -1.0]), ([1, 2], "novel", [-2.0, -2.0]), ([], "novel", [-0.25]))
    (row,) = compare_answers(run, reference).to_dicts()
    assert row == {
        "mode": "greedy",
        "n": 3,
        "identical_share": 1 / 3,
        "first_divergence_median": 1.0,  # of places 2 and 0
        "first_divergence_min": 0,
        "logprob_difference_mean": pytest.approx(0.75 / 6),
        "logprob_difference_max": 0.5,
        "label_flip_share": 1 / 3,
    }


def test_a_run_that_is_the_reference_differs_nowhere_and_no_scores_are_no_zeros():
    reference = answers(([1, 2], "neutral", [-1.0, -2.0]))
    (same,) = compare_answers(reference, reference).to_dicts()
    assert (same["identical_share"], same["first_divergence_min"], same["logprob_difference_max"]) == (1.0, None, 0.0)
    (unscored,) = compare_answers(answers(([1, 2], "neutral", None)), reference).to_dicts()
    assert (unscored["logprob_difference_mean"], unscored["logprob_difference_max"]) == (None, None)


def test_runs_of_other_prompts_are_not_compared():
    with pytest.raises(ValueError, match="other prompts"):
        compare_answers(answers(([1], "a", None)), answers(([1], "a", None), ([1], "a", None)))


def test_every_cell_but_repeats_differs_from_the_reference_in_one_setting():
    reference, *others = plan_cells(Axes())
    assert len({cell.name for cell in (reference, *others)}) == len(others) + 1
    for cell in others:
        changed = {
            name for name in ("batch_size", "dtype", "n_threads", "attention", "device")
            if getattr(cell.setting, name) != getattr(reference.setting, name)
        }  # fmt: skip
        assert changed == (set() if cell.axis == "repeat" else {cell.axis})


@pytest.mark.parametrize(
    "wrong", [{"batch_sizes": ()}, {"thread_counts": (0,)}, {"thread_counts": (10**5,)}, {"devices": ("cpu", "cpu")}]
)
def test_impossible_axes_are_refused(wrong):
    with pytest.raises(SciSciRLError, match=r"need"):
        Axes(**wrong)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_scores_are_those_of_each_answer_alone(random_model, batch_size):
    loaded = AutoModelForCausalLM.from_pretrained(random_model).eval()
    runner = LocalRunner(loaded, None, batch_size=batch_size, max_tokens=4, seed=0)
    pairs = [([5, 6, 7, 8, 9], [10]), ([11], [12, 13, 14]), ([15, 16], [17, 18])]
    found = [row for start in range(0, 3, batch_size) for row in asyncio.run(runner.score(pairs[start:][:batch_size]))]
    for (prompt, answer), scores in zip(pairs, found, strict=True):
        with torch.no_grad():
            odds = loaded(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
        expected = [odds[len(prompt) + n - 1, token].item() for n, token in enumerate(answer)]
        assert scores == pytest.approx(expected, abs=1e-5)


def test_a_sweep_reports_every_setting_and_why_one_is_missing(table, config):
    done = table.filter(status="measured")
    named = set(done.select("axis", "value").rows())
    assert named == {
        ("decoding", "token by token"), ("repeat", "1"), ("batch_size", "3"), ("dtype", "bfloat16"), ("dtype", "int8"),
        ("attention", "sdpa"),
    }  # fmt: skip
    assert done.group_by("axis", "value").len()["len"].unique().to_list() == [2]  # greedy and sampled
    refused = table.filter(pl.col("status") != "measured").select("axis", "value", "reason").rows()
    assert (
        refused == [("device", "cuda:7", "PyTorch sees no CUDA device here, so not cuda:7: choose another")]
        or torch.cuda.is_available()
    )
    shown = (config.out / "sweep.md").read_text("utf-8")
    assert all(text in shown for text in ("PyTorch sees no CUDA", "| dtype | int8 | greedy |", "dtype float32"))
    assert (config.out / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert pl.read_parquet(config.out / "sweep.parquet").equals(table)


def test_the_same_setting_repeats_to_the_bit_and_coarser_formats_move_the_odds(table):
    worst = {
        (axis, value): part["logprob_difference_max"].max()
        for (axis, value), part in table.filter(status="measured").group_by("axis", "value")
    }
    repeat = table.filter(axis="repeat")
    assert repeat["identical_share"].to_list() == [1.0, 1.0]
    assert worst["repeat", "1"] == 0
    assert worst["batch_size", "3"] < 1e-4  # another order of sums, nothing more
    assert worst["attention", "sdpa"] < 1e-4
    assert worst["decoding", "token by token"] < 1e-4
    assert worst["dtype", "bfloat16"] > 1e-4
    assert worst["dtype", "int8"] > 1e-4


def test_what_was_measured_is_kept_and_what_is_missing_is_made_up_for(table, config, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(config.out, out)
    (out / "cells" / "repeat-1.json").unlink()  # killed between the answers and the record
    (out / "cells" / "dtype-int8.parquet").write_bytes(b"half a file")
    kept = out / "cells" / "reference.parquet"
    before = kept.stat().st_mtime_ns
    again = asyncio.run(run_sweep(replace(config, out=out)))
    assert kept.stat().st_mtime_ns == before
    assert again.equals(table)
    assert read_answers(out, "repeat-1")[0]["status"] == "measured"


def test_a_folder_of_another_sweep_is_refused(table, config):
    with pytest.raises(SciSciRLError, match=r"was begun with seed=0, not seed=1"):
        asyncio.run(run_sweep(replace(config, seed=1)))


def test_a_reference_that_cannot_be_run_ends_the_sweep(config, tmp_path):
    axes = replace(FEW, devices=("cuda:7",))
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SciSciRLError, match="no CUDA device"):
        asyncio.run(run_sweep(replace(config, out=tmp_path / "new", axes=axes)))


def test_sweeps_made_apart_are_compared_only_where_prompts_and_weights_are_the_same(
    table, config, random_model, tmp_path
):
    only = Axes(
        batch_sizes=(1,), dtypes=("float32",), thread_counts=(1,), attentions=("sdpa",), devices=("cpu",), n_repeats=0
    )
    there = replace(config, out=tmp_path / "there", axes=only, against=(config.out,))
    row = asyncio.run(run_sweep(there)).filter(axis="elsewhere")
    assert row["value"].to_list() == ["here", "here"]
    assert 0 < row["logprob_difference_max"].max() < 1e-4
    with pytest.raises(SciSciRLError, match="its prompts_sha256 is"):
        asyncio.run(run_sweep(replace(there, out=tmp_path / "fewer", n_papers=3)))
    other = tmp_path / "model"
    shutil.copytree(random_model, other)
    tuned = AutoModelForCausalLM.from_pretrained(random_model)
    tuned.lm_head.weight.data *= 1.01
    tuned.save_pretrained(other)
    assert hash_weights(other) != hash_weights(random_model)
    with pytest.raises(SciSciRLError, match="its weights_sha256 is"):
        asyncio.run(run_sweep(replace(there, out=tmp_path / "tuned", local_model=other)))


def test_odds_that_are_no_numbers_are_a_reason_and_no_result(config, random_model, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(random_model, broken)
    weights = AutoModelForCausalLM.from_pretrained(random_model)
    weights.model.embed_tokens.weight.data *= 1e6  # beyond float16, whose largest number is 65504
    weights.save_pretrained(broken)
    axes = replace(FEW, dtypes=("float32", "float16"), batch_sizes=(1,), attentions=("eager",), devices=("cpu",))
    found = asyncio.run(run_sweep(replace(config, out=tmp_path / "out", local_model=broken, axes=axes)))
    (row,) = found.filter(axis="dtype").to_dicts()
    assert (row["status"], row["identical_share"]) == ("unsupported", None)
    assert "not finite" in row["reason"]


def test_a_folder_without_weights_is_said_before_anything_is_asked(config, toy_model, tmp_path):
    with pytest.raises(SciSciRLError, match="holds no model"):
        asyncio.run(run_sweep(replace(config, local_model=Path(toy_model), out=tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_records_say_under_what_each_cell_was_run(table, config):
    facts = json.loads((config.out / "sweep.json").read_text("utf-8"))["settings"]
    assert facts["machine"]["torch"] == torch.__version__
    assert facts["reference"] == {
        "batch_size": 1, "dtype": "float32", "n_threads": 1, "attention": "eager", "device": "cpu"
    }  # fmt: skip
    record, rows = read_answers(config.out, "dtype-bfloat16")
    assert record["setting"]["dtype"] == "bfloat16"
    assert len(rows) == 8
    assert all(math.isfinite(value) for value in rows["logprobs"].explode())


def test_a_sweep_may_cut_papers_shorter_and_says_so(config, tmp_path):
    whole, cut = (Sweep(replace(config, max_paper_tokens=cap)) for cap in (None, 72))
    facts = [asyncio.run(sweep.describe())["settings"] for sweep in (whole, cut)]
    assert "max_paper_tokens" not in facts[0]  # sweeps that were begun before it was an option go on
    assert facts[1]["max_paper_tokens"] == cut.rules.max_paper_tokens == 72
    assert facts[0]["prompts_sha256"] != facts[1]["prompts_sha256"]


def test_a_sweep_may_ask_in_another_way_and_goes_on_with_it(config, tmp_path):
    axes = replace(
        config.axes, dtypes=("float32",), batch_sizes=(1,), thread_counts=(1,), devices=("cpu",), n_repeats=0
    )
    asked = replace(
        config, out=tmp_path / "asked", style="plain", hide=("abstract",), n_papers=2, axes=axes, max_tokens=41
    )
    sweep = Sweep(asked)
    _, user = sweep.rules.render(sweep.papers[0].view)
    assert '"abstract": null' in user["content"]
    for _ in ("begun", "gone on with"):
        assert len(asyncio.run(run_sweep(asked))) == 4  # decoding and sdpa, each greedy and sampled
    with pytest.raises(SciSciRLError, match="was begun with style='plain'"):
        asyncio.run(run_sweep(replace(asked, style="ontology")))
