"""The whole sweep: the reference, then one setting at a time, each kept as soon as it is measured; then the table."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl
from tinker.lib.base_url import resolve_base_url
from tinker_cookbook.renderers import Renderer

from sciscidata._support.progress import Advance, progress_bar
from sciscidata.storage import atomic_file
from sciscirl.envs.dataset import check_fit
from sciscirl.errors import SciSciRLError
from sciscirl.evaluation.evaluate import fit_rules
from sciscirl.presets import find_preset
from sciscirl.runs.chat_format import choose_renderer, make_renderer
from sciscirl.runs.folder import describe_run, locked_folder
from sciscirl.runs.server import check_server, open_sampling
from sciscirl.studies.repro.cells import hash_prompts, read_cell, run_cell, write_cell
from sciscirl.studies.repro.local_runner import describe_machine, hash_weights, open_local
from sciscirl.studies.repro.server_runner import ServerRunner
from sciscirl.studies.repro.settings import ELSEWHERE, Cell, ReproConfig, plan_cells
from sciscirl.studies.repro.sweep_folder import begin_sweep, check_comparable
from sciscirl.studies.repro.table import make_table, render_table
from sciscirl.task.papers import TARGETS, Paper, read_split
from sciscirl.task.rules import TaskRules

_log = logging.getLogger(__name__)


class Sweep:
    """A sweep about to run: everything that each of its runs shares.

    Args:
        config: what to do.

    Raises:
        ReleaseError: if the slice is missing or was altered.
        SciSciRLError: if the model is not to be had.
    """

    def __init__(self, config: ReproConfig) -> None:
        self.config = config
        preset = find_preset(config.preset)
        self.max_tokens = config.max_tokens or preset.max_tokens
        self.modes = {"greedy": 0.0, "sampled": config.temperature}
        self.rules: TaskRules = fit_rules(preset.rules, config.release)
        needs = TARGETS[self.rules.target]
        self.papers: list[Paper] = read_split(config.release, config.split, needs=needs)[: config.n_papers]
        if not self.papers:
            msg = f"there is no paper on the {config.split} split. Choose the other one: --split."
            raise SciSciRLError(msg)
        if config.model is not None:
            check_server(config.model, config.base_url, needs_training=False)
        base = config.model or str(config.local_model)
        self.name = Path(base).name if Path(base).is_dir() else base  # a server of one's own names it by its folder
        self.renderer_name = config.renderer or choose_renderer(base)
        self.weights = hash_weights(Path(base)) if config.local_model or Path(base).is_dir() else None
        self.renderer: Renderer = make_renderer(base, self.renderer_name)
        check_fit(self.papers, self.rules, self.renderer)

    async def describe(self) -> dict[str, Any]:
        """Say in JSON types what every run of this sweep has in common."""
        config = self.config
        reference = plan_cells(config.axes, on_server=config.model is not None)[0]
        settings = {
            "where": "server" if config.model else "local",
            "model": self.name,
            "checkpoint": config.checkpoint,
            "weights_sha256": self.weights if config.checkpoint is None else None,
            "preset": config.preset,
            "renderer": self.renderer_name,
            "split": config.split,
            "n_papers": len(self.papers),
            "prompts_sha256": await hash_prompts(self.papers, self.rules, self.renderer),
            "max_tokens": self.max_tokens,
            "temperature": config.temperature,
            "seed": config.seed,
            "reference": asdict(reference.setting),
            "machine": describe_machine() if config.local_model else {"server": _host(config.base_url)},
        }
        return describe_run(config.release, settings)

    async def run(self, cell: Cell, reference: pl.DataFrame | None, advance: Advance) -> pl.DataFrame:
        """Ask about every paper under one setting.

        Raises:
            SciSciRLError: if it cannot be.
        """
        config, setting = self.config, cell.setting
        async with AsyncExitStack() as stack:
            if config.model is not None:
                client = await stack.enter_async_context(
                    open_sampling(config.model, config.checkpoint, config.base_url)
                )
                runner = ServerRunner(client, setting.batch_size, self.max_tokens, config.seed)
            else:
                runner = stack.enter_context(
                    open_local(
                        Path(str(config.local_model)),
                        self.renderer.tokenizer,
                        setting,
                        max_tokens=self.max_tokens,
                        seed=config.seed,
                    )
                )
            return await run_cell(
                runner, self.papers, self.rules, self.renderer, self.modes, reference=reference, advance=advance
            )


async def run_sweep(config: ReproConfig) -> pl.DataFrame:
    """Run what is not there yet, and write the table.

    The folder then holds ``sweep.json`` (what all runs have in common), ``cells`` (of each run its answers and
    log-probabilities, and a record), and ``sweep.parquet``, ``sweep.csv``, ``sweep.md`` and ``sweep.png``. A run that
    this machine cannot do is a row with the reason, and is tried again when the sweep goes on.

    Returns:
        The table (``table.make_table``).

    Raises:
        ReleaseError: if the slice is missing or was altered.
        SciSciRLError: if the model or server is not to be had, the folder is of another sweep or in use, the
            reference cannot be run, or a sweep to compare with is of other prompts or weights.
        StorageError: if the disk is full, or the folder cannot be written.
    """
    sweep = Sweep(config)
    facts = await sweep.describe()
    cells = plan_cells(config.axes, on_server=config.model is not None)
    others = {_name_of(folder): folder for folder in config.against}
    for folder in others.values():
        check_comparable(facts["settings"], folder)
    with locked_folder(config.out, user="sweep", option="folder: --out"):
        begin_sweep(config.out, facts)
        cells += [replace(cells[0], axis=ELSEWHERE, value=name) for name in others]
        total = len(cells) * len(sweep.papers) * len(sweep.modes)
        with progress_bar("ask under each setting", total=total, unit="prompts") as advance:
            for cell in cells:
                await _ensure(sweep, cell, others.get(cell.value) if cell.axis == ELSEWHERE else None, advance)
        table = make_table(config.out, cells, others)
        _write_results(config.out, table, facts)
    return table


def _host(base_url: str | None) -> str:
    return urlsplit(resolve_base_url(base_url)).hostname or ""


def _name_of(folder: Path) -> str:
    return folder.resolve().name


async def _ensure(sweep: Sweep, cell: Cell, other: Path | None, advance: Advance) -> None:
    """Run a cell unless it was measured before."""
    out = sweep.config.out
    record, answers = read_cell(out, cell.name)
    if answers is not None and record.get("setting") == asdict(cell.setting):
        advance(len(sweep.papers) * len(sweep.modes))
        return
    is_reference = cell.axis == "reference"
    reference = None if is_reference else read_cell(other or out, "reference")[1]
    record = {"axis": cell.axis, "value": cell.value, "setting": asdict(cell.setting), "reason": None}
    try:
        answers = await sweep.run(cell, reference, lambda amount, note="": advance(amount, note or cell.name))
    except (SciSciRLError, RuntimeError, NotImplementedError, ValueError, ImportError) as error:
        if is_reference or sweep.config.model is not None:
            raise _refusal(cell, error) from error
        record |= {"status": "unsupported", "reason": _one_line(error.__cause__ or error)}
        _log.warning("%s is not supported here: %s", cell.name, record["reason"])
        write_cell(out, cell.name, record, None)
        return
    write_cell(out, cell.name, record | {"status": "measured"}, answers)


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
    from sciscirl.studies.repro.figure import draw_sweep

    with atomic_file(folder / "sweep.parquet") as path:
        table.write_parquet(path)
    with atomic_file(folder / "sweep.csv") as path:
        table.write_csv(path)
    with atomic_file(folder / "sweep.md") as path:
        path.write_text(render_table(table, facts["settings"]), "utf-8")
    with atomic_file(folder / "sweep.png") as path:
        draw_sweep(table, path, title=_title(facts["settings"]))
