"""Run a reproducibility sweep: the reference, then one setting at a time, each stored when measured; then the table."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import polars as pl
from tinker.lib.base_url import resolve_base_url
from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.renderers import Renderer

from sciscidata.storage import atomic_file
from sciscidata.terminal.progress import Advance, progress_bar
from sciscirl.envs.dataset import check_fit
from sciscirl.envs.env import LabelEnv
from sciscirl.errors import SciSciRLError
from sciscirl.evaluation.evaluate import fit_rules
from sciscirl.lab.studies.repro.answers import ANSWERS, read_answers, write_answers
from sciscirl.lab.studies.repro.runners import ServerRunner, describe_machine, hash_weights, open_local
from sciscirl.lab.studies.repro.settings import ELSEWHERE, Cell, ReproConfig, plan_cells
from sciscirl.lab.studies.repro.table import make_table, plot_sweep, render_table
from sciscirl.lab.sweep_folder import begin_sweep, read_sweep, write_table
from sciscirl.metrics.predictions import INVALID
from sciscirl.presets import find_preset, lay_over
from sciscirl.runs.chat_format import choose_renderer, make_renderer
from sciscirl.runs.folder import describe_run, locked_folder
from sciscirl.runs.server_checks import check_server, open_sampling
from sciscirl.task.papers import Paper, choose_target, read_part
from sciscirl.task.rules import TaskRules, check_max_tokens

_log = logging.getLogger(__name__)

#: What two sweeps need in common to be compared; weights only where both know theirs.
_COMPARED: Final = ("prompts_sha256", "max_tokens", "temperature")
_ELSEWHERE: Final = " Sweeps on several machines are compared by --against."


class Sweep:
    """A sweep about to run: what all its runs share. Raises if release or model cannot be used."""

    def __init__(self, config: ReproConfig) -> None:
        self.config = config
        target = {"target": choose_target(config.target, config.release)} if config.target is not None else {}
        preset = lay_over(find_preset(config.preset), self.list_asked() | target)
        self.max_tokens = config.max_tokens or preset.max_tokens
        self.modes = {"greedy": 0.0, "sampled": config.temperature}
        self.rules: TaskRules = fit_rules(preset.rules, config.release)
        self.papers: list[Paper] = read_part(
            config.release, config.split, target=self.rules.target, n_papers=config.n_papers
        )
        if not self.papers:
            msg = f"there is no paper on the {config.split} split. Choose the other one: ReproConfig.split."
            raise SciSciRLError(msg)
        if config.model is not None:
            check_server(config.model, config.base_url, needs_training=False)
        base = config.model or str(config.local_model)
        self.name = Path(base).name if Path(base).is_dir() else base  # a server of one's own names it by its folder
        self.renderer_name = config.renderer or choose_renderer(base)
        self.weights = hash_weights(Path(base)) if config.local_model or Path(base).is_dir() else None
        self.renderer: Renderer = make_renderer(base, self.renderer_name)
        check_fit(self.papers, self.rules, self.renderer)
        check_max_tokens(self.max_tokens, self.rules, self.renderer)

    async def describe(self) -> dict[str, Any]:
        """Describe in JSON types what all runs of this sweep share."""
        config = self.config
        reference = plan_cells(config.axes, on_server=config.model is not None)[0]
        host = None if config.local_model else urlsplit(resolve_base_url(config.base_url)).hostname or ""
        settings = {
            "where": "server" if config.model else "local",
            "model": self.name,
            "checkpoint": config.checkpoint,
            "weights_sha256": self.weights if config.checkpoint is None else None,
            "preset": config.preset,
            "renderer": self.renderer_name,
            "split": config.split,
            "n_papers": len(self.papers),
            "prompts_sha256": await self._hash_prompts(),
            "max_tokens": self.max_tokens,
            "temperature": config.temperature,
            "seed": config.seed,
            "reference": asdict(reference.setting),
            "machine": describe_machine() if host is None else {"server": host},
        }
        asked = {name: [*value] if name == "hide" else value for name, value in self.list_asked().items()}
        return describe_run(config.release, asked | settings)  # a refusal names options before what follows from them

    def list_asked(self) -> dict[str, Any]:
        """List what is asked in another way than the preset does; sweeps that were begun without an option go on."""
        names = ("target", "style", "hide", "max_paper_tokens")
        return {name: value for name in names if (value := getattr(self.config, name)) is not None}

    async def run(self, cell: Cell, reference: pl.DataFrame | None, advance: Advance) -> pl.DataFrame:
        """Ask about every paper under one setting, and score the answers of the reference.

        ``reference`` is None for the reference itself, which scores its own answers. Returns ANSWERS, one row for each
        mode and paper, in their order.
        """
        config, setting = self.config, cell.setting
        async with AsyncExitStack() as stack:
            if config.model is not None:
                opened = open_sampling(config.model, config.checkpoint, config.base_url)
                client = await stack.enter_async_context(opened)
                runner = ServerRunner(client, setting.batch_size, self.max_tokens, config.seed)
            else:
                folder, tokenizer = Path(str(config.local_model)), self.renderer.tokenizer
                opened = open_local(folder, tokenizer, setting, max_tokens=self.max_tokens, seed=config.seed)
                runner = stack.enter_context(opened)
            rows: list[dict[str, Any]] = []
            for mode, temperature in self.modes.items():
                completer = runner.completer(temperature)
                said = reference.filter(mode=mode)["tokens"].to_list() if reference is not None else None
                for start in range(0, len(self.papers), runner.batch_size):
                    chunk = self.papers[start : start + runner.batch_size]
                    prompts, answers = await self._ask(completer, chunk, mode)
                    own = [row["tokens"] for row in answers]
                    targets = own if said is None else said[start : start + len(chunk)]
                    scores = await runner.score(list(zip(prompts, targets, strict=True)))
                    for number, row in enumerate(answers):
                        rows.append(row | {"reference_logprobs": scores[number] if scores else None})
                    advance(len(chunk))
        answers = pl.DataFrame(rows, schema=ANSWERS)
        for column in ("logprobs", "reference_logprobs"):
            if not answers[column].drop_nulls().explode().is_finite().all():
                msg = "log-probabilities are not finite: the number format overflows in this model"
                raise SciSciRLError(msg)
        return answers

    async def _ask(
        self, completer: TokenCompleter, papers: Sequence[Paper], mode: str
    ) -> tuple[list[list[int]], list[dict[str, Any]]]:
        envs = [LabelEnv(paper, self.rules, self.renderer) for paper in papers]
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

    async def _hash_prompts(self) -> str:
        """Return the SHA-256 of all prompts as tokens: only runs with the same one are comparable."""
        total = hashlib.sha256()
        for paper in self.papers:
            prompt, stop = await LabelEnv(paper, self.rules, self.renderer).initial_observation()
            total.update(json.dumps([prompt.to_ints(), stop]).encode())
        return total.hexdigest()


async def run_sweep(config: ReproConfig) -> pl.DataFrame:
    """Run what is not there yet, write the table (``make_table``), and return it.

    The folder then holds ``sweep.json``, what all runs have in common. ``cells`` has a record, answers and
    log-probabilities of each run. The table is ``sweep.parquet``, ``sweep.csv``, ``sweep.md`` and ``sweep.png``. A run
    that this machine cannot do is a row with the reason. It is tried again when the sweep goes on.

    SciSciRLError if the model or server is not to be had, the folder is of another sweep or in use, or the reference
    cannot be run. It is also raised if a sweep to compare with is of other prompts or weights.
    """
    sweep = Sweep(config)
    facts = await sweep.describe()
    cells = plan_cells(config.axes, on_server=config.model is not None)
    others = {folder.resolve().name: folder for folder in config.against}
    for folder in others.values():
        check_comparable(facts["settings"], folder)
    with locked_folder(config.out, user="sweep", option="folder: ReproConfig.out"):
        begin_sweep(config.out, facts, more=_ELSEWHERE)
        cells += [replace(cells[0], axis=ELSEWHERE, value=name) for name in others]
        total = len(cells) * len(sweep.papers) * len(sweep.modes)
        with progress_bar("ask under each setting", total=total, unit="prompts") as advance:
            for cell in cells:
                await _ensure(sweep, cell, others.get(cell.value) if cell.axis == ELSEWHERE else None, advance)
        table = make_table(config.out, cells, others)
        _write_results(config.out, table, facts)
    return table


async def _ensure(sweep: Sweep, cell: Cell, other: Path | None, advance: Advance) -> None:
    """Run a cell unless it was measured before."""
    out = sweep.config.out
    record, answers = read_answers(out, cell.name)
    if answers is not None and record.get("setting") == asdict(cell.setting):
        advance(len(sweep.papers) * len(sweep.modes))
        return
    is_reference = cell.axis == "reference"
    reference = None if is_reference else read_answers(other or out, "reference")[1]
    record = {"axis": cell.axis, "value": cell.value, "setting": asdict(cell.setting), "reason": None}
    try:
        answers = await sweep.run(cell, reference, lambda amount, note="": advance(amount, note or cell.name))
    except (SciSciRLError, RuntimeError, NotImplementedError, ValueError, ImportError) as error:
        if is_reference or sweep.config.model is not None:
            raise _refusal(cell, error) from error
        record |= {"status": "unsupported", "reason": _one_line(error.__cause__ or error)}
        _log.warning("%s is not supported here: %s", cell.name, record["reason"])
        write_answers(out, cell.name, record, None)
        return
    write_answers(out, cell.name, record | {"status": "measured"}, answers)


def _refusal(cell: Cell, error: Exception) -> SciSciRLError:
    if isinstance(error, SciSciRLError):
        return error
    return SciSciRLError(
        f"the {cell.name} could not be run ({_one_line(error)}). The first value of each option makes up the "
        "reference: put one first that this machine can do."
    )


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, SciSciRLError) else f"{type(error).__name__}: {text}"


def _title(settings: Mapping[str, Any]) -> str:
    reference = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings["reference"].items() if value)
    return f"{settings['model']}, {settings['n_papers']} prompts, against {reference}"


def _write_results(folder: Path, table: pl.DataFrame, facts: Mapping[str, Any]) -> None:
    write_table(folder, "sweep", table)
    with atomic_file(folder / "sweep.md") as path:
        path.write_text(render_table(table, facts["settings"]), "utf-8")
    with atomic_file(folder / "sweep.png") as path:
        plot_sweep(table, path, title=_title(facts["settings"]))


def check_comparable(settings: Mapping[str, Any], folder: Path) -> None:
    """Refuse another sweep with other prompts or weights, or without a reference yet."""
    theirs = read_sweep(folder)
    known = ("weights_sha256",) if settings["weights_sha256"] and theirs.get("weights_sha256") else ()
    for name in (*_COMPARED, *known):
        if theirs.get(name) != settings[name]:
            msg = (
                f"{folder} cannot be compared with: its {name} is {theirs.get(name)!r}, here it is {settings[name]!r}. "
                "Run both sweeps on the same release, preset, chat format and weights."
            )
            raise SciSciRLError(msg)
    if read_answers(folder, "reference")[1] is None:
        msg = f"{folder} has no reference yet. Let that sweep run first."
        raise SciSciRLError(msg)
