"""The subcommands of ``sciscirl``: their parameters are their options, their docstrings their help."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from sciscidata import __version__
from sciscidata.errors import how_to_install
from sciscidata.options.commands import Command, InFile, Program
from sciscidata.terminal.messages import printable
from sciscirl.errors import COOKBOOK, SciSciRLError
from sciscirl.lab_parts import LAB_COMMANDS, SHORT_NAMES, load_part

if TYPE_CHECKING:
    import sciscirl.evaluation.evaluate
    import sciscirl.lab_parts
    import sciscirl.options


def show(text: str, *, flush: bool = False) -> None:
    """Print for a terminal; what a model, run or server said stays text."""
    print(printable(text, lines=True), flush=flush)  # noqa: T201


def show_run(folder: Path, release: str) -> None:
    """Show where a run is, its last metrics, and the next command."""
    from sciscirl.evaluation.evaluate import render_end
    from sciscirl.runs.folder import find_eval_split

    show(f"run: {folder}\n{render_end(folder)}; next: {name_report(folder, release, find_eval_split(folder))}")


def name_report(folder: Path, release: str, split: str) -> str:
    """Write the command that reports a run."""
    words = ["sciscirl", "report", str(folder), "--release", release, "--out", f"{folder.name}.html"]
    return shlex.join(words + (["--final"] if split != "test" else []))  # test has not chosen the checkpoint


def _refuse_strange(backend: str, given: Mapping[str, partial[Any]]) -> None:
    """Refuse options that only another backend has."""
    for options in given.values():
        if strange := [name for name in options.keywords if name not in given[backend].keywords]:
            raise SciSciRLError(f"--backend {backend} has no option --{strange[0].replace('_', '-')}.")


def train(
    tinker: partial[sciscirl.options.TrainOptions],
    local: partial[sciscirl.lab_parts.LocalTrainOptions],
    code: sciscirl.options.ModelCodeOptions,
    *,
    backend: Literal["tinker", "local"] = "tinker",
) -> None:
    """Train by reinforcement learning.

    Args:
        backend: where to train: a Tinker server, or your own hardware with TRL.

    Shown:
        --preset --release --model --log-path --max-steps --n-train --batch-size --learning-rate
        --eval-every --resume --dry-run --group-size --backend

    Example:
        sciscirl train --preset exp4 --release slices/synthetic --model Qwen/Qwen3-8B --dry-run
    """
    _refuse_strange(backend, {"tinker": tinker, "local": local})
    from sciscirl.options import resolve_run

    if backend == "tinker":
        run = resolve_run(tinker())  # what is wrong with it is said before seconds of imports
        if run.options.dry_run:
            show(load_part("describe_server_training")(run))
            return
        from sciscirl.rl.train import train_on_server

        folder = asyncio.run(train_on_server(run))
    else:
        run = resolve_run(local())
        if run.options.dry_run:
            show(load_part("describe_local_training")(run))
            return
        folder = load_part("train_locally")(run)
    show_run(folder, run.options.release)


def sft(
    tinker: partial[sciscirl.options.TinkerSftOptions],
    peft: partial[sciscirl.lab_parts.PeftSftOptions],
    code: sciscirl.options.ModelCodeOptions,
    *,
    backend: Literal["tinker", "peft"],
) -> None:
    """Train on the gold answers (supervised fine-tuning).

    Args:
        backend: where to train: a Tinker server, or your own GPUs with PEFT.

    Shown:
        --preset --release --model --log-path --max-steps --n-train --batch-size --learning-rate
        --eval-every --resume --dry-run --backend --n-epochs

    Example:
        sciscirl sft --backend peft --preset exp4 --release slices/synthetic --model Qwen/Qwen3-8B
    """
    _refuse_strange(backend, {"tinker": tinker, "peft": peft})
    from sciscirl.options import resolve_run

    if backend == "tinker":
        run = resolve_run(tinker())
        if run.options.dry_run:
            show(load_part("describe_server_sft")(run))
            return
        from sciscirl.sft.tinker_backend import train_on_tinker

        folder = asyncio.run(train_on_tinker(run))
    else:
        run = resolve_run(peft())
        if run.options.dry_run:
            show(load_part("describe_peft_training")(run))
            return
        folder = load_part("train_with_peft")(run)
    show_run(folder, run.options.release)


def evaluate(
    config: partial[sciscirl.evaluation.evaluate.EvaluationConfig],
    code: sciscirl.options.ModelCodeOptions,
    *,
    baselines: bool = False,
    from_predictions: Path | None = None,
) -> None:
    """Judge a model, a checkpoint, a run or baselines on held-out papers.

    Args:
        baselines: judge four baselines too: majority, random by prior, regression on TF-IDF, trees on metadata.
        from_predictions: compute the metrics of this predictions file again; takes no other option.

    Shown:
        --run --release --model --local-model --split --preset --temperature --answers --n-papers
        --baselines --out --from-predictions

    Example:
        sciscirl evaluate --run runs/exp4 --release slices/synthetic --baselines
    """
    from sciscirl.evaluation.evaluate import evaluate_model, evaluate_predictions, render_metrics

    given = set(config.keywords)
    if from_predictions is not None:
        if given or baselines:
            others = ", ".join(f"{name}=..." for name in sorted(given) or ["baselines"])
            raise SciSciRLError(f"from_predictions=... takes no other option. Leave out {others}.")
        show(render_metrics({from_predictions.stem: evaluate_predictions(from_predictions)}))
        return
    has_model = bool({"model", "checkpoint", "local_model", "run"} & given)
    if "release" not in given or not (has_model or baselines):
        raise SciSciRLError(
            "nothing to do. Give --release with --model, --checkpoint, --local-model, --run or --baselines; or give "
            "--from-predictions."
        )
    options = config()
    # Baselines first: an error there costs nothing yet.
    judged = load_part("evaluate_baselines")(options) if baselines else {}
    results = {"model": asyncio.run(evaluate_model(options))} if has_model else {}
    show(render_metrics(results | judged))
    places = ([options.out] if has_model else []) + ([options.baselines_out] if baselines else [])
    show("\n".join(f"result: {place}" for place in dict.fromkeys(places)))


def presets(*, plugin: str | None = None) -> None:
    """List the presets: every experiment by name.

    Args:
        plugin: run this Python file first, which registers presets of your own.
    """
    from sciscirl.presets import render_presets
    from sciscirl.task.registry import load_plugin

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


def _find_models(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put folders in the place of short names of models and of GGUF files; a dry run fetches nothing."""
    named = {name: str(values[name]) for name in ("model", "local_model") if values.get(name) is not None}
    named = {name: source for name, source in named.items() if source in SHORT_NAMES or source.endswith(".gguf")}
    is_dry = bool(values.get("dry_run"))
    return {**values, **{name: load_part("find_model")(source, is_dry=is_dry) for name, source in named.items()}}


def _fetch_release(values: Mapping[str, Any]) -> dict[str, Any]:
    """Put the folder of a release in the place of its address on a hub (hf:OWNER/NAME@REVISION)."""
    address = values.get("release")
    if address is None or not str(address).startswith("hf:"):
        return {**values}
    from sciscidata.hubs.fetch import fetch

    return {**values, "release": str(fetch(str(address)))}


def completion(shell: Literal["bash", "zsh", "tcsh"]) -> None:
    """Print a script that completes commands and options in a shell.

    Args:
        shell: bash, zsh or tcsh.

    Example:
        eval "$(sciscirl completion bash)"
    """
    PROGRAM.complete(shell)


class _Commands(Mapping[str, Command]):
    """Commands by name; those of the lab are loaded when they are looked up."""

    def __init__(self, commands: Mapping[str, Command]) -> None:
        self._commands = commands

    def __getitem__(self, name: str) -> Command:
        return load_part(name) if name in LAB_COMMANDS else self._commands[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._commands
        yield from LAB_COMMANDS

    def __len__(self) -> int:
        return len(self._commands) + len(LAB_COMMANDS)


class _Program(Program):
    """The commands, which take the cookbook's names of options, short names of models and addresses of releases."""

    def read(self, name: str, words: Sequence[str]) -> dict[str, Any]:
        """Read the values of a command."""
        from sciscirl.options import refuse_without_effect  # loads what the other commands need not

        words = [_use_own_name(word) for word in words] if name in ("train", "sft") else words
        refuse_without_effect(
            name, {word.removeprefix("--").partition("=")[0].replace("-", "_"): word for word in words}
        )
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
PROGRAM: Final = _Program(
    "sciscirl",
    "Train language models to judge science, and judge them, on a release of sciscidata.",
    __version__,
    _Commands({"train": train, "sft": sft, "evaluate": evaluate, "presets": presets, "completion": completion}),
    takes_pairs=True,
)
