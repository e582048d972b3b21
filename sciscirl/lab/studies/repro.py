"""Ask the same prompts under other number formats, batch sizes, threads, kernels and devices, and compare answers.

One setting is asked by ``ask``, compared by ``compare_answers``; ``run_repro`` does all of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import statistics
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import tinker
import torch
from tinker_cookbook.completers import StopCondition, TokenCompleter, TokensWithLogprobs
from tinker_cookbook.renderers import Renderer

from sciscidata.errors import ChangedFileError
from sciscidata.storage import atomic_file, path_inside
from sciscidata.storage.parquet import read_parquet, write_parquet
from sciscidata.storage.small_files import is_special
from sciscidata.storage.sums import check_sealed, sealed_file
from sciscidata.terminal.messages import printable
from sciscidata.terminal.progress import Advance, progress_bar
from sciscirl.envs.dataset import check_fit
from sciscirl.envs.env import LabelEnv
from sciscirl.errors import SciSciRLError
from sciscirl.evaluation.evaluate import fit_rules
from sciscirl.lab.models.local_completer import LocalCompleter
from sciscirl.lab.models.local_model import load_base_model
from sciscirl.lab.studies.repro_options import ELSEWHERE, Cell, ReproConfig, Setting, plan_cells
from sciscirl.lab.sweep_folder import begin_sweep, write_table
from sciscirl.metrics.predictions import INVALID
from sciscirl.presets import find_preset, lay_over
from sciscirl.runs.chat_format import choose_renderer, make_renderer
from sciscirl.runs.folder import describe_run, locked_folder
from sciscirl.runs.server_checks import check_server, open_sampling
from sciscirl.task.papers import Paper, choose_target, read_part
from sciscirl.task.rules import TaskRules, check_max_tokens

_log = logging.getLogger(__name__)

#: One row for each prompt and mode of a run.
ANSWERS: Final = pl.Schema(
    {
        "mode": pl.String(),  # greedy or sampled
        "openalex_id": pl.String(),
        "prompt_sha256": pl.String(),
        "text": pl.String(),
        "label": pl.String(),  # invalid, where the answer is; of two labels, both
        "tokens": pl.List(pl.Int64()),
        "logprobs": pl.List(pl.Float64()),  # of tokens; natural logarithms, temperature 1
    }
)


#: What a sweep reports: what differs from the reference, the columns of ``compare_answers``, or why there are none.
TABLE: Final = pl.Schema(
    {
        **dict.fromkeys(("axis", "value", "mode"), pl.String()),
        "n": pl.Int64(),
        "identical_share": pl.Float64(),
        "first_divergence_median": pl.Float64(),
        "first_divergence_min": pl.Int64(),
        **dict.fromkeys(("logprob_difference_mean", "logprob_difference_max", "label_flip_share"), pl.Float64()),
        "reason": pl.String(),
    }
)


@dataclass
class _SeededCompleter(TokenCompleter):
    """The cookbook's ``TinkerTokenCompleter``, with a seed."""

    client: tinker.SamplingClient
    max_tokens: int
    temperature: float
    seed: int

    async def __call__(
        self, model_input: tinker.ModelInput, stop: StopCondition, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        """Sample one answer to a prompt."""
        most = min(self.max_tokens, max_tokens or self.max_tokens)
        asked = tinker.SamplingParams(max_tokens=most, seed=self.seed, stop=stop, temperature=self.temperature)
        response = await self.client.sample(model_input, num_samples=1, sampling_params=asked)
        (one,) = response.sequences
        return TokensWithLogprobs(tokens=one.tokens, maybe_logprobs=one.logprobs, stop_reason=one.stop_reason)


@contextmanager
def open_model(folder: Path, setting: Setting) -> Generator[Any]:
    """Load a model under a setting; the number of threads is restored at the end."""
    threads = torch.get_num_threads()
    torch.set_num_threads(setting.n_threads or threads)
    device, dtype = setting.device or "cpu", setting.dtype or "float32"
    load = partial(load_base_model, str(folder), device=device, attention=setting.attention)
    try:
        if dtype != "int8":
            model = load(dtype=dtype)
        elif device == "cpu":
            with warnings.catch_warnings():
                # Deprecated for torchao, one more dependency with the same kernels; torch is pinned.
                warnings.simplefilter("ignore")
                whole, linear = load(dtype="float32"), {torch.nn.Linear}
                model = torch.ao.quantization.quantize_dynamic(whole, linear, dtype=torch.qint8)  # pyright: ignore[reportDeprecated]
        else:
            model = load(quantize="int8", dtype="float16")
        yield model.eval()
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What all runs of a sweep share."""

    config: ReproConfig
    papers: list[Paper]
    rules: TaskRules
    renderer: Renderer
    max_tokens: int


def _prepare(config: ReproConfig) -> tuple[_Asked, dict[str, Any]]:
    """Read release and chat format; return what is asked, and the facts of ``sweep.json``."""
    named = ("style", "hide", "max_paper_tokens")
    over = {name: value for name in named if (value := getattr(config, name)) is not None}
    over |= {} if config.target is None else {"target": choose_target(config.target, config.release)}
    preset = lay_over(find_preset(config.preset), over)
    rules = fit_rules(preset.rules, config.release)
    papers = read_part(config.release, config.split, target=rules.target, n_papers=config.n_papers)
    if config.model is not None:
        check_server(config.model, config.base_url, needs_training=False)
    base = config.model or str(config.local_model)
    renderer_name = config.renderer or choose_renderer(base)
    asked = _Asked(config, papers, rules, make_renderer(base, renderer_name), config.max_tokens or preset.max_tokens)
    check_fit(papers, rules, asked.renderer)
    check_max_tokens(asked.max_tokens, rules, asked.renderer)
    settings = {
        **over,
        "model": Path(base).name if Path(base).is_dir() else base,
        "checkpoint": config.checkpoint,
        "preset": config.preset,
        "renderer": renderer_name,
        "split": config.split,
        "n_papers": len(papers),
        "max_tokens": asked.max_tokens,
        "temperature": config.temperature,
        "seed": config.seed,
        "reference": asdict(plan_cells(config.axes, on_server=config.model is not None)[0].setting),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() and config.model is None else None,
    }
    return asked, describe_run(config.release, {**settings, **({"hide": [*config.hide]} if config.hide else {})})


async def ask(asked: _Asked, setting: Setting, advance: Advance) -> pl.DataFrame:
    """Ask about every paper under one setting, greedily and sampled. Return ANSWERS in the order of the papers."""
    config, rows = asked.config, list[dict[str, Any]]()
    async with AsyncExitStack() as stack:
        if config.model is not None:
            opened = open_sampling(config.model, config.checkpoint, config.base_url)
            make = partial(_SeededCompleter, await stack.enter_async_context(opened))
        else:
            model = stack.enter_context(open_model(Path(str(config.local_model)), setting))
            make = partial(LocalCompleter, model, asked.renderer.tokenizer, batch_size=setting.batch_size)
        for mode, temperature in (("greedy", 0.0), ("sampled", config.temperature)):
            completer = make(max_tokens=asked.max_tokens, temperature=temperature, seed=config.seed)
            for start in range(0, len(asked.papers), setting.batch_size):
                chunk = asked.papers[start : start + setting.batch_size]
                rows += await asyncio.gather(*(_ask_one(asked, completer, paper, mode) for paper in chunk))
                advance(len(chunk))
    answers = pl.DataFrame(rows, schema=ANSWERS)
    if not answers["logprobs"].drop_nulls().explode().is_finite().all():
        msg = "log-probabilities are not finite: the number format overflows in this model"
        raise SciSciRLError(msg)
    return answers


async def _ask_one(asked: _Asked, completer: TokenCompleter, paper: Paper, mode: str) -> dict[str, Any]:
    env = LabelEnv(paper, asked.rules, asked.renderer)
    prompt, stop = await env.initial_observation()
    reply = await completer(prompt, stop)
    step = await env.step(reply.tokens, extra={"stop_reason": reply.stop_reason})
    return {
        "mode": mode,
        "openalex_id": paper.openalex_id,
        "prompt_sha256": hashlib.sha256(repr(prompt.to_ints()).encode()).hexdigest(),
        "text": step.logs.get("text", ""),
        "label": ", ".join((env.answer.labels if env.answer else {}).values()) or INVALID,
        "tokens": reply.tokens,
        "logprobs": reply.maybe_logprobs,
    }


def first_divergence(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the place, from 0, of the first token that differs, or after the shorter answer; None if equal.

    Example:
        >>> first_divergence([5, 6, 7], [5, 9]), first_divergence([5], [5, 6]), first_divergence([5], [5])
        (1, 1, None)
    """
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return None if len(left) == len(right) else min(len(left), len(right))


def compare_answers(answers: pl.DataFrame, reference: pl.DataFrame) -> list[dict[str, Any]]:
    """Compare a run with the reference, ANSWERS of the same prompts in the same order (SciSciRLError), by mode.

    - ``n``: prompts; ``identical_share``: of these, with the same tokens.
    - ``first_divergence_median``, ``first_divergence_min``: place of the first token that differs, from 0, among
      answers that differ; null without any.
    - ``logprob_difference_mean``, ``logprob_difference_max``: absolute, in nats, on the tokens that both answers begin
      with. This is what moves before any token does. Null where a server returns none.
    - ``label_flip_share``: share of prompts with another label; an invalid answer counts as one more label.

    Example:
        >>> row = {"mode": "greedy", "openalex_id": "W1", "prompt_sha256": "0", "text": "", "label": "neutral"}
        >>> one = pl.DataFrame([row | {"tokens": [1, 2], "logprobs": [-0.5, -0.5]}], schema=ANSWERS)
        >>> other = pl.DataFrame([row | {"tokens": [1, 3], "logprobs": [-0.75, -0.5]}], schema=ANSWERS)
        >>> (compared,) = compare_answers(other, one)
        >>> compared["identical_share"], compared["first_divergence_min"], compared["logprob_difference_max"]
        (0.0, 1, 0.25)
    """
    keys = ["mode", "openalex_id", "prompt_sha256"]
    if not answers.select(keys).equals(reference.select(keys)):
        msg = "the two sweeps asked other prompts. Run both on the same release, preset and chat format."
        raise SciSciRLError(msg)
    found: list[dict[str, Any]] = []
    for mode in reference["mode"].unique(maintain_order=True):
        ours, theirs = answers.filter(mode=mode), reference.filter(mode=mode)
        tokens = zip(ours["tokens"].to_list(), theirs["tokens"].to_list(), strict=True)
        places = [first_divergence(left, right) for left, right in tokens]
        other = [place for place in places if place is not None]
        differences: list[float] = []
        for place, left, right in zip(places, ours["logprobs"].to_list(), theirs["logprobs"].to_list(), strict=True):
            differences += [abs(a - b) for a, b in zip((left or [])[:place], (right or [])[:place], strict=True)]
        found.append(
            {
                "mode": mode,
                "n": len(theirs),
                "identical_share": places.count(None) / len(theirs),
                "first_divergence_median": float(statistics.median(other)) if other else None,
                "first_divergence_min": min(other, default=None),
                "logprob_difference_mean": math.fsum(differences) / len(differences) if differences else None,
                "logprob_difference_max": max(differences, default=None),
                "label_flip_share": (ours["label"] != theirs["label"]).sum() / len(theirs),
            }
        )
    return found


async def run_repro(config: ReproConfig) -> pl.DataFrame:
    """Run what is not there yet, and compare every run with the reference. Return the table.

    The folder holds ``sweep.json`` (what all runs have in common), ``cells`` (answers and log-probabilities of each
    run), and the table as ``sweep.parquet``, ``sweep.csv`` and ``sweep.md`` (TABLE). A run that this machine cannot do
    is a row with the reason, and is tried again when the sweep goes on.

    SciSciRLError if the model or server is not to be had, the folder is of another sweep or in use, the reference
    cannot be run, or a sweep to compare with has none or is of other prompts.
    """
    asked, facts = _prepare(config)
    reference, *cells = plan_cells(config.axes, on_server=config.model is not None)
    elsewhere: dict[str, pl.DataFrame] = {}
    for folder in config.against:
        theirs = _read(folder, reference)
        if theirs is None:
            msg = f"{folder} has no reference yet. Let that sweep run first."
            raise SciSciRLError(msg)
        elsewhere[folder.resolve().name] = theirs
    total = (1 + len(cells)) * len(asked.papers) * 2
    rows: list[dict[str, Any]] = []
    with locked_folder(config.out, user="sweep", option="folder: ReproConfig.out"):
        begin_sweep(config.out, facts, more=" Sweeps on several machines are compared by --against.")
        with progress_bar("ask under each setting", total=total, unit="prompts") as advance:
            first = await _ensure(asked, reference, advance)
            for name, theirs in elsewhere.items():
                rows += [{"axis": ELSEWHERE, "value": name, **row} for row in compare_answers(first, theirs)]
            for cell in cells:
                head = {"axis": cell.axis, "value": cell.value}
                try:
                    rows += [head | row for row in compare_answers(await _ensure(asked, cell, advance), first)]
                except SciSciRLError as error:
                    if config.model is not None:
                        raise
                    _log.warning("%s is not supported here: %s", cell.name, error)
                    rows.append({**head, "reason": str(error)})
        table = pl.DataFrame(rows, schema=TABLE)
        write_table(config.out, "sweep", table)
        with atomic_file(config.out / "sweep.md") as path:
            path.write_text(render_table(table, facts["settings"]), "utf-8")
    return table


async def _ensure(asked: _Asked, cell: Cell, advance: Advance) -> pl.DataFrame:
    """Read the answers of a cell, or ask."""
    if (answers := _read(asked.config.out, cell)) is None:
        try:
            answers = await ask(asked, cell.setting, lambda amount, note="": advance(amount, note or cell.name))
        except (RuntimeError, NotImplementedError, ValueError, ImportError) as error:
            if isinstance(error, SciSciRLError):
                raise
            msg = f"{cell.name} cannot be run here ({type(error).__name__}: {' '.join(str(error).split())[:300]})."
            raise SciSciRLError(msg) from error
        with sealed_file(_place(asked.config.out, cell)) as path:
            write_parquet(answers, path)
    return answers


def _read(folder: Path, cell: Cell) -> pl.DataFrame | None:
    """Return None where a cell is not there, or damaged: it is asked again."""
    path = _place(folder, cell)
    if is_special(path):  # it would never end
        return None
    try:
        check_sealed(path)
        answers = read_parquet(path)
    except (ChangedFileError, OSError, ValueError, pa.ArrowException):
        return None
    return answers if answers.schema == ANSWERS else None


def _place(folder: Path, cell: Cell) -> Path:
    return path_inside(folder / "cells", f"{cell.name}.parquet".replace(":", "-"), stated_by="an option of the sweep")


_SHOWN: Final = {
    "axis": "varied",
    "value": "value",
    "mode": "mode",
    "identical_share": "identical",
    "first_divergence_median": "first divergence, median",
    "first_divergence_min": "min",
    "logprob_difference_mean": "log-prob difference, mean",
    "logprob_difference_max": "max",
    "label_flip_share": "labels flipped",
}


def render_table(table: pl.DataFrame, settings: Mapping[str, Any]) -> str:
    """Write the table as Markdown, then the runs that failed and why. ``settings`` are those of ``sweep.json``."""
    reference = ", ".join(f"{name} {value}" for name, value in settings["reference"].items() if value is not None)
    lines = [
        f"{settings['model']}: {settings['n_papers']} prompts of {settings['preset']}, {settings['max_tokens']} tokens "
        f"at most; sampled at temperature {settings['temperature']}, seed {settings['seed']}. Reference: {reference}.",
        "",
        f"| {' | '.join(_SHOWN.values())} |",
        f"|{'---|' * len(_SHOWN)}",
    ]
    for row in table.filter(pl.col("reason").is_null()).iter_rows(named=True):
        lines.append(f"| {' | '.join(_show(row[name]) for name in _SHOWN)} |")
    for row in table.filter(pl.col("reason").is_not_null()).iter_rows(named=True):
        lines += ["", printable(f"Not supported: {row['axis']} {row['value']}: {row['reason']}")]
    return "\n".join(lines) + "\n"


def _show(value: str | float | None) -> str:
    """Write a value as a reader wants it.

    Example:
        >>> _show(0.0000012345), _show(None), _show(1.0)
        ('1.2e-06', '-', '1')
    """
    if not isinstance(value, float):
        return "-" if value is None else printable(str(value))
    return f"{value:.2g}" if abs(value) < 0.01 else f"{value:.3f}".rstrip("0").rstrip(".")
