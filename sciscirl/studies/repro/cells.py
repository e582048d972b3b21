"""One run of all prompts, and its place on disk: kept once it is measured, so that a killed sweep goes on."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, cast

import polars as pl
from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.renderers import Renderer

from sciscidata._support.progress import Advance
from sciscidata.storage import atomic_file, path_inside
from sciscidata.storage.small_files import is_special, read_json
from sciscirl.envs.env import LabelEnv
from sciscirl.errors import SciSciRLError
from sciscirl.metrics.predictions import INVALID
from sciscirl.studies.repro.divergence import ANSWERS
from sciscirl.task.papers import Paper
from sciscirl.task.rules import TaskRules

CELLS: Final = "cells"


class Runner(Protocol):
    """A model under one setting."""

    batch_size: int

    def completer(self, temperature: float) -> TokenCompleter:
        """Return what samples; 0 is greedy."""
        ...

    async def score(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[list[float]] | None:
        """Return the log-probability of each token of an answer after its prompt; None if it is not to be had."""
        ...


async def hash_prompts(papers: Sequence[Paper], rules: TaskRules, renderer: Renderer) -> str:
    """Return the SHA-256 of all prompts as tokens: two runs compare if they have it in common."""
    total = hashlib.sha256()
    for paper in papers:
        prompt, stop = await LabelEnv(paper, rules, renderer).initial_observation()
        total.update(json.dumps([prompt.to_ints(), stop]).encode())
    return total.hexdigest()


async def run_cell(
    runner: Runner,
    papers: Sequence[Paper],
    rules: TaskRules,
    renderer: Renderer,
    modes: Mapping[str, float],
    *,
    reference: pl.DataFrame | None,
    advance: Advance = lambda amount, note="": None,
) -> pl.DataFrame:
    """Ask about every paper, ``runner.batch_size`` at a time, and score what the reference said.

    Args:
        runner: the model.
        papers: in the order in which they are asked about; which ones share a batch follows from it.
        rules: prompt and contract.
        renderer: chat format.
        modes: temperature by name.
        reference: ANSWERS whose tokens are scored; None: the run's own.
        advance: called with the number of prompts that are done.

    Returns:
        ANSWERS, one row for each mode and paper.

    Raises:
        SciSciRLError: if a log-probability is no number, as where a number format overflows.
    """
    frames: list[pl.DataFrame] = []
    for mode, temperature in modes.items():
        completer = runner.completer(temperature)
        rows: list[dict[str, Any]] = []
        said = reference.filter(mode=mode)["tokens"].to_list() if reference is not None else None
        for start in range(0, len(papers), runner.batch_size):
            chunk = papers[start : start + runner.batch_size]
            prompts, answers = await _ask(completer, chunk, rules, renderer, mode)
            targets = said[start : start + len(chunk)] if said is not None else [row["tokens"] for row in answers]
            scores = await runner.score(list(zip(prompts, targets, strict=True)))
            for number, row in enumerate(answers):
                rows.append(row | {"reference_logprobs": scores[number] if scores else None})
            advance(len(chunk))
        frames.append(pl.DataFrame(rows, schema=ANSWERS))
    answers = pl.concat(frames)
    for column in ("logprobs", "reference_logprobs"):
        if not answers[column].drop_nulls().explode().is_finite().all():
            msg = "log-probabilities are not finite: the number format overflows in this model"
            raise SciSciRLError(msg)
    return answers


async def _ask(
    completer: TokenCompleter, papers: Sequence[Paper], rules: TaskRules, renderer: Renderer, mode: str
) -> tuple[list[list[int]], list[dict[str, Any]]]:
    envs = [LabelEnv(paper, rules, renderer) for paper in papers]
    asked = [await env.initial_observation() for env in envs]
    replies = await asyncio.gather(*(completer(prompt, stop) for prompt, stop in asked))
    rows: list[dict[str, Any]] = []
    for env, reply in zip(envs, replies, strict=True):
        step = await env.step(reply.tokens, extra={"stop_reason": reply.stop_reason})
        labels = env.answer.labels if env.answer else {}
        rows.append(
            {
                "mode": mode,
                "openalex_id": env.paper.openalex_id,
                "text": step.logs.get("text", ""),
                "label": ", ".join(labels.values()) or INVALID,
                "tokens": reply.tokens,
                "logprobs": reply.maybe_logprobs,
            }
        )
    return [prompt.to_ints() for prompt, _ in asked], rows


def read_cell(folder: Path, name: str) -> tuple[dict[str, Any], pl.DataFrame | None]:
    """Read what a sweep wrote about one run: its record, and ANSWERS where it was measured.

    Returns:
        An empty record and None, where nothing whole is there.
    """
    try:
        record = read_json(_place(folder, f"{name}.json"))
        if not isinstance(record, dict) or record["status"] not in ("measured", "unsupported"):
            return {}, None
        known = cast("dict[str, Any]", record)
        if not isinstance(known["reason"], str | None):
            return {}, None
        is_measured = known["status"] == "measured"
        path = _place(folder, f"{name}.parquet")
        if is_measured and is_special(path):
            return {}, None
        answers = pl.read_parquet(path, glob=False) if is_measured else None
    except (OSError, ValueError, LookupError, TypeError, pl.exceptions.PolarsError):
        return {}, None
    return (known, answers) if answers is None or answers.schema == ANSWERS else ({}, None)


def _place(folder: Path, name: str) -> Path:
    # A device may be cuda:1, which names in general may not hold.
    path_inside(folder / CELLS, name.replace(":", "-"), stated_by="an option of the sweep")
    return folder / CELLS / name


def write_cell(folder: Path, name: str, record: Mapping[str, Any], answers: pl.DataFrame | None) -> None:
    """Write a run; its record comes last, and says that all of it is there.

    Raises:
        StorageError: if the disk is full, or the folder cannot be written.
    """
    if answers is not None:
        with atomic_file(_place(folder, f"{name}.parquet")) as path:
            answers.write_parquet(path)
    with atomic_file(_place(folder, f"{name}.json")) as path:
        path.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
