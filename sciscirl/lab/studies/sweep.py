"""Train several presets, in several ways, with several seeds, and compare them on the same papers.

From top to bottom: which runs there are (``plan_sweep``), the runs (``run_sweep``), and the table.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from multiprocessing import get_context, parent_process
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple, cast, get_args

import msgspec
import polars as pl

from sciscidata.errors import SciSciDataError
from sciscidata.options.checks import field_hints
from sciscidata.options.did_you_mean import suggest
from sciscidata.terminal.messages import align_columns, counted, open_terminal, printable
from sciscirl.envs.tokenizer import load_tokenizer
from sciscirl.errors import CollapseError, FullServerError, SciSciRLError
from sciscirl.lab import dry_run
from sciscirl.lab.analysis.compare import Comparison, compare_predictions, list_asked
from sciscirl.lab.answer_length import check_max_tokens
from sciscirl.lab.hardware_options import LocalTrainOptions, PeftSftOptions
from sciscirl.lab.report.comparison import render_comparison
from sciscirl.lab.report.runs import RecordedRun, judge_baselines, read_run
from sciscirl.lab.sft.tinker_backend import train_on_tinker
from sciscirl.lab.studies.sweep_options import LocalSweepOptions, SweepOptions, Way
from sciscirl.lab.sweep_folder import SWEEP_FILE, begin_sweep, check_sweep, write_table
from sciscirl.lab.training.console import show_start
from sciscirl.lab.training.rl import train_preset
from sciscirl.options import (
    GONE,
    SftOptions,
    TinkerSftOptions,
    TrainOptions,
    list_given,
    resolve_preset,
    resolve_run,
)
from sciscirl.presets import find_preset
from sciscirl.runs.checkpoints import is_over
from sciscirl.runs.folder import expand_home, locked_folder, refuse_release
from sciscirl.runs.record import describe_run
from sciscirl.runs.server_checks import check_server
from sciscirl.task.release import PaperChoice, read_split, settle_choice, size_held_out

_log = logging.getLogger(__name__)

#: Between two tries to get a place on a full server.
_PAUSE_S: Final = 20.0
#: How long a run waits while others than its sweep hold all places: as long as the SDK waits for a lost server.
_PATIENCE_S: Final = 7200.0
#: Means of reinforcement learning over all steps of all seeds, from the logs.
_LOGGED: Final = (
    "reward_tie_group_rate", "reward_uniform_group_rate", "reward_tie_pair_rate", "reward_unique_fraction_mean",
    "reward/total", "label_match",
)  # fmt: skip
_AXES: Final = ("preset", "seeds", "way")
_DECIDED: Final = ("seed", "log_path", "behavior_if_log_dir_exists")
#: Options that name the runs or their papers, and so are the same for all of them.
_NOT_VARIED: Final = (
    *_DECIDED, *_AXES, "vary", "jobs", "out", "dry_run", "release", "eval_split", "n_test", "eval_group_size",
    "base_url", "load_checkpoint", "plugin",
)  # fmt: skip
#: What may change when a sweep goes on.
_FREE: Final = (
    "seeds", "jobs", "base_url", "ttl_seconds", "wandb_project", "wandb_name", "out", "dry_run",
    "release", "behavior_if_log_dir_exists",
)  # fmt: skip
_BY_REWARD, _ON_SERVER, _IN_SWEEP, _HERE = ({field.name for field in fields(kind)} for kind in (
    LocalTrainOptions, TinkerSftOptions, SweepOptions, PeftSftOptions
))  # fmt: skip
_ON_GOLD: Final = _ON_SERVER | _HERE
#: Options of both kinds of training, and what the sweep calls those of supervised runs.
_OF_SFT: Final = {name: f"sft_{name}" for name in _ON_GOLD if f"sft_{name}" in _IN_SWEEP}
_ONLY_SFT: Final = {*_OF_SFT.values()} | (_ON_GOLD - _BY_REWARD)
_ONLY_RL: Final = {"rollouts_per_step", *_OF_SFT} | (_BY_REWARD - _ON_GOLD)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """A run of a sweep."""

    name: str  # of its recipe: preset, varied options, way
    way: Way
    seed: int
    folder: Path
    options: TrainOptions | SftOptions
    begins_from: Path | None = None  # the supervised run of the same seed

    @property
    def is_local(self) -> bool:
        """Whether this machine trains, and no server."""
        return isinstance(self.options, LocalTrainOptions | PeftSftOptions)


def plan_sweep(options: SweepOptions) -> list[PlannedRun]:
    """Return the runs of a sweep in the order of training: all of a seed, before the next seed.

    Example:
        >>> runs = plan_sweep(SweepOptions(preset="exp4", vary=("group_size:4,8",), rollouts_per_step=32, seeds=(0, 1)))
        >>> [(run.name, run.folder.as_posix(), run.options.batch_size) for run in runs[:2]]
        [('exp4 group_size=4', 'runs/sweep/exp4-group_size-4/seed_0', 8), ('exp4 group_size=8',
        'runs/sweep/exp4-group_size-8/seed_0', 4)]
    """
    _refuse_decided(options)
    _refuse_twice("preset", [find_preset(name.strip()).name for name in options.preset.split(",")])
    axes: dict[str, dict[str, Any]] = {"preset": {name: name for name in map(str.strip, options.preset.split(","))}}
    axes |= read_vary(options.vary, type(options))
    # A supervised run belongs to each that begins from it.
    needed = {*options.way, *(("sft",) if "sft_rl" in options.way else ())}
    ways: list[Way] = [way for way in get_args(Way) if way in needed]
    _refuse_without_effect(options, axes, ways)
    out, runs = expand_home(options.out), list[PlannedRun]()
    for seed in options.seeds:
        planned: dict[str, PlannedRun] = {}
        for words in product(*axes.values()):
            chosen = dict(zip(axes, words, strict=True))
            values = {name: axes[name][word] for name, word in chosen.items()}
            for way in ways:
                name = _name_way(chosen, way, only=len(ways) == 1)
                run = _plan_run(replace(options, **values), name, way, seed, out)
                if way == "sft_rl":
                    start = _place(out, _name_way(chosen, "sft", only=False), seed)
                    begun = replace(run.options, load_checkpoint=str(start))
                    run = replace(run, options=begun, begins_from=start)
                planned.setdefault(name, run)  # supervised runs are the same whatever of training by reward is varied
        runs += planned.values()
    _check_runs(runs)
    return runs


def read_vary(vary: Sequence[str], kind: type[SweepOptions] = SweepOptions) -> dict[str, dict[str, Any]]:
    """Read ``vary``: by option, its values by the words for them; a plus sign joins several words of a value.

    Example:
        >>> read_vary(["group_size:4,8", "class_weights:disruptive:2,disruptive:3+neutral:2"])
        {'group_size': {'4': 4, '8': 8}, 'class_weights': {'disruptive:2': ('disruptive:2',),
        'disruptive:3+neutral:2': ('disruptive:3', 'neutral:2')}}
    """
    hints = {name: hint for name, hint in field_hints(kind).items() if name not in _NOT_VARIED}
    axes: dict[str, dict[str, Any]] = {}
    for word in filter(None, ",".join(vary).split(",")):  # a command line splits at commas, too
        name, colon, rest = word.partition(":")
        if colon and name in hints and name not in axes:
            axes[name], value = {}, rest
        elif axes and (name := [*axes][-1]):
            value = word
        else:
            why = "which is no option"
            if name in _NOT_VARIED:
                why = "which has an option of its own" if name in _AXES else "which is the same for all runs"
            near = f" {GONE[name]}" if name in GONE else suggest(name, hints)
            raise SciSciRLError(
                f"SweepOptions.vary begins with {word!r}, {why}. Write OPTION:VALUE,VALUE: group_size:4,8.{near}"
            )
        try:
            said = {"yes": "true", "no": "false"}.get(value, value) if bool in hints[name].kinds else value
            raw: Any = tuple(value.split("+")) if hints[name].is_list else said
            converted: Any = msgspec.convert(raw, hints[name].whole, strict=False)
        except msgspec.ValidationError:
            near = suggest(value, hints[name].choices)
            raise SciSciRLError(
                f"SweepOptions.vary gives {name} the value {value!r}, needs {hints[name]}.{near}"
            ) from None
        if value in axes[name]:
            raise SciSciRLError(f"SweepOptions.vary gives {name} the value {value!r} twice. Give each once.")
        axes[name][value] = converted
    return axes


def _refuse_decided(options: SweepOptions) -> None:
    decided = [f"SweepOptions.{name}" for name in _DECIDED if getattr(options, name) not in (None, "raise")]
    if decided:
        raise SciSciRLError(
            f"{', '.join(decided)} cannot be set: the sweep decides. Set seeds=... and out=...; a sweep that is there "
            "goes on by itself."
        )
    for name in ("seeds", "way"):
        _refuse_twice(name, getattr(options, name))
    if "sft_rl" in options.way and options.load_checkpoint is not None:
        raise SciSciRLError(
            "load_checkpoint cannot be set with way=sft_rl, which begins from its supervised run. Leave it out."
        )


def _refuse_twice(name: str, values: Sequence[object]) -> None:
    if len(set(values)) < len(values):
        raise SciSciRLError(f"SweepOptions.{name} is {', '.join(map(str, values))}, needs each once.")


def _refuse_without_effect(options: SweepOptions, axes: Mapping[str, object], ways: Sequence[Way]) -> None:
    chosen = {field.name for field in fields(options) if getattr(options, field.name) != field.default} | {*axes}
    for has_effect, names, only in (
        (any(way != "sft" for way in ways), _ONLY_RL, "reinforcement learning"),
        ("sft" in ways, _ONLY_SFT, "supervised runs"),
    ):
        if not has_effect and (lost := sorted(chosen & names)):
            other = f" Supervised runs read {_OF_SFT[lost[0]]}." if lost[0] in _OF_SFT else ""
            raise SciSciRLError(
                f"{lost[0]} has no effect with way={','.join(options.way)}: it is of {only}. Leave it out.{other}"
            )


def _name_way(chosen: Mapping[str, str], way: Way, *, only: bool) -> str:
    unread = _ONLY_RL if way == "sft" else _ONLY_SFT if way == "rl" else set[str]()
    varied = [f"{name}={word}" for name, word in chosen.items() if name != "preset" and name not in unread]
    return " ".join([find_preset(chosen["preset"]).name, *varied, *([] if only else [way])])


def _place(out: Path, name: str, seed: int) -> Path:
    return out / re.sub(r"[^A-Za-z0-9_.+-]+", "-", name) / f"seed_{seed}"


def _plan_run(options: SweepOptions, name: str, way: Way, seed: int, out: Path) -> PlannedRun:
    folder = _place(out, name, seed)
    is_local = isinstance(options, LocalSweepOptions)
    of_sft, of_rl = (PeftSftOptions, LocalTrainOptions) if is_local else (TinkerSftOptions, TrainOptions)
    kind = of_sft if way == "sft" else of_rl
    values = {field.name: getattr(options, field.name) for field in fields(kind)}
    values |= {"seed": seed, "log_path": folder.as_posix(), "behavior_if_log_dir_exists": "resume", "dry_run": False}
    if options.wandb_project is not None:
        values["wandb_name"] = " ".join(filter(None, (options.wandb_name, name, f"seed {seed}")))
    if way == "sft":
        values |= {own: getattr(options, stated) for own, stated in _OF_SFT.items()}
    elif options.rollouts_per_step is not None:
        size = resolve_preset(kind(**values)).sampling.group_size
        stated = list_given(options).get("batch_size")
        if options.rollouts_per_step % size or stated is not None:
            raise SciSciRLError(
                f"rollouts_per_step is {options.rollouts_per_step} with group_size {size} and batch_size {stated}. "
                "Needs a multiple of every group size, and no batch_size: rollouts_per_step=128"
            )
        values["batch_size"] = options.rollouts_per_step // size
    return PlannedRun(name=name, way=way, seed=seed, folder=folder, options=kind(**values))


def _check_runs(runs: Sequence[PlannedRun]) -> None:
    """Refuse runs whose answers could not be compared."""
    for run in runs:
        if getattr(run.options, "loss_on", "answer") != "label":  # else no answer is sampled
            check_max_tokens((preset := resolve_preset(run.options)).max_tokens, preset.rules)
    presets = {run.name: resolve_preset(run.options) for run in runs}
    first, one = next(iter(presets.items()))
    for name, other in presets.items():
        if one.rules.target != other.rules.target:
            raise SciSciRLError(
                f"{first} is of the task {one.rules.target}, {name} of {other.rules.target}: their answers cannot be "
                "compared. Sweep over presets of one task."
            )


def check_papers(runs: Sequence[PlannedRun]) -> None:
    """Make sure that all runs are judged by the same papers (SciSciRLError): larger batches keep more out."""
    first = runs[0].options
    if first.eval_split != "held_out":
        return
    n_papers = len(read_split(first.release, "train", needs=()))
    kept = {run.name: size_held_out(n_papers, resolve_preset(run.options).order.batch_size) for run in runs}
    if len(set(kept.values())) > 1:
        said = ", ".join(f"{name} {n:,}" for name, n in kept.items())
        raise SciSciRLError(
            f"batches are so large that the runs would keep out unlike numbers of papers to be judged by: {said}. "
            f"Lower the largest batch_size to {n_papers // 10:,}, or build a release with a development split (n_dev)."
        )


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What ``run_sweep`` found; its tables lie in the folder, too."""

    comparison: Comparison
    table: pl.DataFrame
    split: str  # whose papers judged
    problems: Mapping[str, str]  # why a run is missing, or ended early
    n_runs: int  # that were planned
    n_missing: int  # of these, which failed or were not finished


async def run_sweep(options: SweepOptions) -> SweepResult:
    """Train every run of a sweep that has not ended, then compare the recipes by their last evaluations.

    A run that fails or collapses does not keep the others from being trained. The table is ``sweep.csv`` and
    ``sweep.parquet``.
    """
    options, runs = _settle(options)
    out = expand_home(options.out)
    check_papers(runs)
    for model in dict.fromkeys(resolve_preset(run.options).model for run in runs if not is_over(run.folder)):
        load_tokenizer(model) if isinstance(options, LocalSweepOptions) else check_server(model, options.base_url)
    facts = _describe(options)
    with locked_folder(out, user="sweep", option="folder: out="):
        places = [run.folder.relative_to(out).as_posix() for run in runs]
        begin_sweep(out, facts | {"runs": places}, free=_FREE)
        problems = await _train_all(runs, options.jobs)
        read = {_name_run(run): (run, read_run(run.folder, _name_run(run))) for run in runs if is_over(run.folder)}
        read = {name: pair for name, pair in read.items() if pair[1].last and pair[1].last.predictions is not None}
        if not read:
            raise SciSciRLError(
                f"no run of the sweep has ended. {next(iter(problems.items()))[1] if problems else ''}".strip()
            )
        problems |= {name: one.state for name, (_, one) in read.items() if one.is_stopped}
        return _write_results(out, options, [*read.values()], problems, n_runs=len(runs))


def _settle(options: SweepOptions) -> tuple[SweepOptions, list[PlannedRun]]:
    plan_sweep(options)  # what is wrong with the options is said before the release is read
    judged = settle_choice(PaperChoice(eval_split=options.eval_split), options.release)
    options = replace(options, eval_split=judged.eval_split)
    runs = plan_sweep(options)
    if isinstance(options, LocalSweepOptions):
        _refuse_local(options, runs)
    return options, runs


def _refuse_local(options: LocalSweepOptions, runs: Sequence[PlannedRun]) -> None:
    """Refuse what this machine cannot train, as each run by itself would (SciSciRLError)."""
    import torch

    from sciscirl.lab import grpo
    from sciscirl.lab.models.processes import count_processes
    from sciscirl.lab.sft import peft_backend

    if torch.cuda.device_count() > 1 or count_processes() > 1:
        raise SciSciRLError(
            "a sweep trains on one GPU. Choose it, without accelerate launch: CUDA_VISIBLE_DEVICES=0 sciscirl sweep ..."
        )
    grpo.refuse_server_options(options)
    for run in {run.name: run for run in runs}.values():
        if isinstance(run.options, PeftSftOptions):
            peft_backend.check_run(resolve_run(run.options))
        elif isinstance(run.options, LocalTrainOptions) and run.begins_from:  # which is not there yet
            alone = resolve_run(replace(run.options, load_checkpoint=None))
            grpo.check_run(replace(alone, begun_from={"kind": "sft"}))
        elif isinstance(run.options, LocalTrainOptions):
            grpo.check_run(resolve_run(run.options))


def _describe(options: SweepOptions) -> dict[str, Any]:
    settings = json.loads(json.dumps({"backend": options.backend} | asdict(options)))
    facts = describe_run(Path(options.release), settings)
    facts["settings"] |= facts["release"]
    return facts


def _name_run(run: PlannedRun) -> str:
    return f"{run.name}, seed {run.seed}"


class _End(NamedTuple):
    """How a run ended: ``problem`` is None if it was trained; ``may_wait``: the server had no place for it."""

    problem: str | None = None
    may_wait: bool = False


async def _train_all(runs: Sequence[PlannedRun], n_jobs: int) -> dict[str, str]:
    """Train the runs that have not ended, in their order, some at once; return why a run did not end, by name.

    A run for which the server has no place waits for one, and goes on from its last checkpoint.
    """
    problems, slots, begun = dict[str, str](), asyncio.Semaphore(n_jobs), dict[Path, asyncio.Task[None]]()
    # A loop of the cookbook sets up logging for its process. The end of a process frees all memory, that of a GPU too.
    is_apart = n_jobs > 1 or any(run.is_local for run in runs)
    busy = dict[Path, float]()  # since when

    async def train_once(run: PlannedRun, pool: ProcessPoolExecutor | None) -> _End:
        busy[run.folder] = time.monotonic()
        try:
            if pool is None:
                return await _train(run)
            return await asyncio.get_running_loop().run_in_executor(pool, _train_apart, run, n_jobs == 1)
        except BrokenProcessPool:
            return _End("its process was killed, often because memory was short. The same command goes on with it")
        finally:
            del busy[run.folder]

    async def train_in_place(run: PlannedRun, pool: ProcessPoolExecutor | None) -> str | None:
        since: float | None = None
        while (end := await train_once(run, pool)).may_wait:
            now = time.monotonic()
            if since is None:
                _log.warning("%s waits for a free place: %s", _name_run(run), end.problem)
            elif now - since > _PATIENCE_S:
                break
            is_shared = any(now - begun > _PAUSE_S for begun in busy.values())  # a refusal comes sooner
            since = now if since is None or is_shared else since
            await asyncio.sleep(_PAUSE_S)
        return end.problem

    async def train(number: int, run: PlannedRun) -> None:
        async with slots:
            if run.begins_from in begun:  # it stands before this one, so it has had its slot
                await begun[run.begins_from]
            was_over = is_over(run.folder)
            _log.info("run %d of %d, %s%s", number, len(runs), _name_run(run), ": has ended before" if was_over else "")
            if was_over:
                return
            with _open_process(run) if is_apart else nullcontext() as pool:
                problem = await train_in_place(run, pool)
            if problem:
                problems[_name_run(run)] = problem
                _log.warning("%s: %s", _name_run(run), problem)

    for number, run in enumerate(runs, 1):
        begun[run.folder] = asyncio.create_task(train(number, run))
    await asyncio.gather(*begun.values())
    return problems


def _open_process(run: PlannedRun) -> ProcessPoolExecutor:
    context = get_context("spawn")
    if sys.platform == "linux" and not run.is_local:  # a GPU that its libraries have looked for cannot be forked
        context = get_context("forkserver")
        # Load them once: each process would take seconds and 400 MB.
        context.set_forkserver_preload([__name__, "transformers.models.auto.tokenization_auto"])
    return ProcessPoolExecutor(1, context, _begin_process, (warnings.filters, dict(os.environ)))


def _begin_process(filters: Sequence[Any], environment: Mapping[str, str]) -> None:
    """Print as the process of the sweep does, and end when that is gone, however it ended."""
    os.environ.clear()  # a fork has that of the first sweep
    os.environ.update(environment)
    open_terminal()
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)  # as for the process of a command
    warnings.filters[:] = filters  # pyright: ignore[reportIndexIssue] (it is a list)

    def watch() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _train_apart(run: PlannedRun, is_shown: bool) -> _End:
    """Train a run in its own process, and show all that it says, or only its warnings."""
    if not is_shown:
        logging.getLogger("sciscirl.lab.training.console").addFilter(lambda _: False)
    run = replace(run, options=replace(run.options))  # made anew, options load their plugin
    return _train_here(run, is_shown=is_shown) if run.is_local else asyncio.run(_train(run))


def _train_here(run: PlannedRun, *, is_shown: bool) -> _End:
    """Train a run on this machine."""
    try:
        _refuse_unbegun(run)
        with show_start(is_local=True) if is_shown else nullcontext():
            from sciscirl.lab.grpo import train_locally
            from sciscirl.lab.sft.peft_backend import train_with_peft

            if isinstance(run.options, LocalTrainOptions):
                train_locally(resolve_run(run.options))
            else:
                train_with_peft(resolve_run(cast("PeftSftOptions", run.options)))
    except Exception as error:
        return _end_by(run, error)
    return _End()


async def _train(run: PlannedRun) -> _End:
    """Train a run on a server."""
    try:
        _refuse_unbegun(run)
        if isinstance(run.options, TrainOptions):
            await train_preset(run.options)
        else:
            await train_on_tinker(resolve_run(cast("TinkerSftOptions", run.options)))
    except Exception as error:
        return _end_by(run, error)
    return _End()


def _refuse_unbegun(run: PlannedRun) -> None:
    if run.begins_from is not None and not is_over(run.begins_from):
        raise SciSciRLError(f"its supervised run, {run.begins_from}, has not ended")


def _end_by(run: PlannedRun, error: Exception) -> _End:
    """Say how a run ended: a defect in one recipe must not cost the night of the others."""
    if isinstance(error, CollapseError):
        return _End()  # the run is over, and is compared as it is
    if isinstance(error, SciSciDataError):
        return _End(str(error), may_wait=isinstance(error, FullServerError))  # not the error: it holds clients
    _log.error("%s failed", _name_run(run), exc_info=error)
    return _End(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _write_results(
    out: Path,
    options: SweepOptions,
    read: Sequence[tuple[PlannedRun, RecordedRun]],
    problems: Mapping[str, str],
    *,
    n_runs: int,
) -> SweepResult:
    ways: dict[str, dict[int, pl.DataFrame]] = {}
    asked: dict[str, Mapping[str, Any]] = {}
    for planned, run in read:
        if run.last is not None and run.last.predictions is not None:
            ways.setdefault(planned.name, {})[planned.seed] = run.last.predictions
            asked.setdefault(planned.name, list_asked(run.settings))
    untrained = find_untrained(read)
    baselines = judge_baselines(Path(options.release), read[0][1])
    asked |= {name: list_asked(one.settings) for name, one in baselines.items()}
    beside = untrained | {name: one.predictions for name, one in baselines.items()}
    comparison = compare_predictions(ways, asked=asked, beside=beside)
    kinds = dict.fromkeys(baselines, "baseline") | dict.fromkeys(untrained, "untrained")
    table = make_table(comparison, kinds | {planned.name: planned.way for planned, _ in read}, read)
    write_table(out, "sweep", table)
    return SweepResult(comparison, table, read[0][1].split, problems, n_runs, n_runs - len(read))


def find_untrained(read: Sequence[tuple[PlannedRun, RecordedRun]]) -> dict[str, pl.DataFrame]:
    """Return what the base model answered before training, once for each way in which it was asked."""
    tables: dict[str, tuple[str, pl.DataFrame]] = {}
    for planned, run in read:
        first = run.evaluations[0]
        if first.step == 0 and first.predictions is not None and run.settings.get("load_checkpoint") is None:
            asked = {name: value for name, value in list_asked(run.settings).items() if name != "reward"}
            name = f"{planned.name.removesuffix(f' {planned.way}')} untrained"
            tables.setdefault(json.dumps(asked, sort_keys=True), (name, first.predictions))
    return dict(tables.values())


def make_table(
    comparison: Comparison, kinds: Mapping[str, str], read: Sequence[tuple[PlannedRun, RecordedRun]]
) -> pl.DataFrame:
    """Make one row for each recipe, the untrained model and each baseline: means over seeds, with intervals.

    Reinforcement learning also has means over its steps: ties, reward, right answers, and rollouts per second.
    """
    rows: list[dict[str, Any]] = []
    for name, scores in comparison.scores.items():
        row: dict[str, Any] = {"name": name, "way": kinds[name], "n_papers": comparison.n_papers}
        row["saw"] = comparison.saw.get(name)  # known of baselines
        row["n_seeds"] = len(comparison.seeds[name]) if name in comparison.names else None
        for metric, one in scores.items():
            row |= {metric: one.value, f"{metric}_low": one.low, f"{metric}_high": one.high}
        steps = [step for planned, run in read if planned.name == name for step in run.rows]
        logged = [step for step in steps if "env/all/reward/total" in step]
        for one in _LOGGED:
            known = [step[f"env/all/{one}"] for step in logged if f"env/all/{one}" in step]
            row[f"train/{one}"] = fmean(known) if known else None
        took = math.fsum(one.get("time/total", 0.0) - one.get("time/run_evaluations_parallel", 0.0) for one in logged)
        n_rollouts = math.fsum(step["env/all/total_episodes"] for step in logged)
        rows.append({**row, "train/rollouts_per_second": n_rollouts / took if took > 0 else None})
    return pl.DataFrame(rows, infer_schema_length=None)


def render_plan(options: SweepOptions) -> str:
    """List the runs of a sweep and their cost for a terminal (SciSciRLError: the folder holds another sweep)."""
    options, runs = _settle(options)
    out = expand_home(options.out)
    refuse_release(out, "folder: out=")
    if (out / SWEEP_FILE).exists():
        check_sweep(out, _describe(options)["settings"], free=_FREE)
    rows = [[run.name, str(run.seed), run.folder.as_posix(), "ended" if is_over(run.folder) else ""] for run in runs]
    shown = align_columns([[printable(cell) for cell in row] for row in [["run", "seed", "folder", ""], *rows]])
    to_train = {run.name: run for run in runs if not is_over(run.folder)}
    costs = [f"{_say_cost(run)}, for each run of {printable(name)}" for name, run in to_train.items()]
    return "\n".join([*shown, counted(len(rows), "run"), *costs])


def _say_cost(run: PlannedRun) -> str:
    """Say what a run costs, here its steps, as its own dry run does: in a new folder, and from the base model."""
    alone: dict[str, Any] = {"log_path": f"{run.folder}-planned", "dry_run": True}
    alone |= {"load_checkpoint": None} if isinstance(run.options, TrainOptions) else {}
    plan = dry_run.describe_run(resolve_run(replace(run.options, **alone)))
    return next(line for line in plan.splitlines() if line.startswith("steps: " if run.is_local else "cost: "))


def render_sweep(result: SweepResult) -> str:
    """Write the tables of a sweep for a terminal, and why runs are missing."""
    problems = [f"{name}: {problem}" for name, problem in result.problems.items()]
    return "\n".join([render_comparison(result.comparison, result.split), *([""] if problems else []), *problems])
