from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from sciscirl.errors import SciSciRLError
from sciscirl.lab.local_server.tiny_model import TINY_RENDERER
from sciscirl.lab.studies.repro import ANSWERS, compare_answers, first_divergence, run_repro
from sciscirl.lab.studies.repro_options import Axes, ReproConfig, plan_cells

tokens = st.lists(st.integers(0, 3), max_size=6)
FEW = Axes(
    batch_sizes=(1, 3), dtypes=("float32", "bfloat16", "int8"), thread_counts=(1,), attentions=("eager", "sdpa"),
    devices=("cpu", "cuda:7"), n_repeats=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def config(random_model, toy_slice, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep") / "here"
    return ReproConfig(
        release=toy_slice, out=out, local_model=random_model, renderer=TINY_RENDERER, n_papers=4, max_tokens=40,
        axes=FEW,
    )  # fmt: skip


@pytest.fixture(scope="module")
def table(config):
    return asyncio.run(run_repro(config))


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
    names = ("tokens", "label", "logprobs")
    return pl.DataFrame(
        [{"mode": mode, "openalex_id": f"W{n}", **dict(zip(names, row, strict=True))} for n, row in enumerate(rows)],
        schema=ANSWERS,
    )


def test_a_comparison_counts_answers_places_and_flips():
    reference = answers(
        ([1, 2, 3], "neutral", [-1.0, -1.0, -1.0]), ([1, 2], "novel", [-2.0, -2.0]), ([7], "invalid", [0.0])
    )
    run = answers(([1, 2, 4], "neutral", [-1.0, -1.5, -9.0]), ([1, 2], "novel", [-2.0, -2.0]), ([], "novel", []))
    (row,) = compare_answers(run, reference)
    assert row == {
        "mode": "greedy",
        "n": 3,
        "identical_share": 1 / 3,
        "first_divergence_median": 1.0,  # of places 2 and 0
        "first_divergence_min": 0,
        "logprob_difference_mean": pytest.approx(0.5 / 4),  # of the tokens that both begin with
        "logprob_difference_max": 0.5,
        "label_flip_share": 1 / 3,
    }
    (unscored,) = compare_answers(answers(([1], "a", None)), answers(([1], "a", None)))
    assert (unscored["logprob_difference_max"], unscored["first_divergence_min"]) == (None, None)  # and no zero
    with pytest.raises(SciSciRLError, match="other prompts"):
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


def test_a_sweep_reports_every_setting_and_why_one_is_missing(table, config):
    done = table.filter(pl.col("reason").is_null())
    named = {("repeat", "1"), ("batch_size", "3"), ("dtype", "bfloat16"), ("dtype", "int8"), ("attention", "sdpa")}
    assert set(done.select("axis", "value").rows()) == named
    assert done.group_by("axis", "value").len()["len"].unique().to_list() == [2]  # greedy and sampled
    if not torch.cuda.is_available():
        (refused,) = table.filter(pl.col("reason").is_not_null()).select("axis", "value", "reason").rows()
        assert refused == ("device", "cuda:7", "PyTorch sees no CUDA device here, so not cuda:7: choose another")
    shown = (config.out / "sweep.md").read_text("utf-8")
    assert all(text in shown for text in ("PyTorch sees no CUDA", "| dtype | int8 | greedy |", "dtype float32"))
    assert pl.read_parquet(config.out / "sweep.parquet").equals(table)
    facts = json.loads((config.out / "sweep.json").read_text("utf-8"))["settings"]
    assert facts["reference"] == {
        "batch_size": 1, "dtype": "float32", "n_threads": 1, "attention": "eager", "device": "cpu"
    }  # fmt: skip


def test_the_same_setting_repeats_to_the_bit_and_coarser_formats_move_the_odds(table):
    worst = {
        (axis, value): part["logprob_difference_max"].max()
        for (axis, value), part in table.filter(pl.col("reason").is_null()).group_by("axis", "value")
    }
    assert table.filter(axis="repeat")["identical_share"].to_list() == [1.0, 1.0]
    assert worst["repeat", "1"] == 0
    assert worst["batch_size", "3"] < 1e-4  # another order of sums, nothing more
    assert worst["attention", "sdpa"] < 1e-4
    assert worst["dtype", "bfloat16"] > 1e-4
    assert worst["dtype", "int8"] > 1e-4


def test_what_was_measured_is_kept_and_what_is_damaged_is_asked_again(table, config, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(config.out, out)
    (out / "cells" / "repeat-1.parquet").unlink()
    (out / "cells" / "dtype-int8.parquet").write_bytes(b"half a file")
    kept = out / "cells" / "reference.parquet"
    before = kept.stat().st_mtime_ns
    assert asyncio.run(run_repro(replace(config, out=out))).equals(table)
    assert kept.stat().st_mtime_ns == before
    with pytest.raises(SciSciRLError, match=r"was begun with seed=0, not seed=1"):
        asyncio.run(run_repro(replace(config, seed=1)))
    with pytest.raises(SciSciRLError, match="was begun without style='ontology'"):
        asyncio.run(run_repro(replace(config, style="ontology")))


def test_sweeps_made_apart_are_compared_where_their_prompts_are_the_same(table, config, tmp_path):
    only = Axes(
        batch_sizes=(1,), dtypes=("float32",), thread_counts=(1,), attentions=("sdpa",), devices=("cpu",), n_repeats=0
    )
    there = replace(config, out=tmp_path / "there", axes=only, against=(config.out,))
    row = asyncio.run(run_repro(there))
    assert row.select("axis", "value").rows() == [("elsewhere", "here")] * 2
    assert 0 < row["logprob_difference_max"].max() < 1e-4
    with pytest.raises(SciSciRLError, match="other prompts"):
        asyncio.run(run_repro(replace(there, out=tmp_path / "fewer", n_papers=3)))
    with pytest.raises(SciSciRLError, match="no reference yet"):
        asyncio.run(run_repro(replace(there, out=tmp_path / "none", against=(tmp_path,))))


def test_a_reference_that_cannot_be_run_and_odds_that_are_no_numbers_are_reasons(config, random_model, tmp_path):
    if not torch.cuda.is_available():
        with pytest.raises(SciSciRLError, match="no CUDA device"):
            asyncio.run(run_repro(replace(config, out=tmp_path / "new", axes=replace(FEW, devices=("cuda:7",)))))
    broken = tmp_path / "broken"
    shutil.copytree(random_model, broken)
    weights = AutoModelForCausalLM.from_pretrained(random_model)
    weights.model.embed_tokens.weight.data *= 1e6  # beyond float16, whose largest number is 65504
    weights.save_pretrained(broken)
    axes = replace(
        FEW, dtypes=("float32", "float16"), batch_sizes=(1,), attentions=("eager",), devices=("cpu",), n_repeats=0
    )
    found = asyncio.run(run_repro(replace(config, out=tmp_path / "out", local_model=broken, axes=axes)))
    (row,) = found.filter(axis="dtype").to_dicts()
    assert "not finite" in row["reason"]
    assert row["identical_share"] is None
