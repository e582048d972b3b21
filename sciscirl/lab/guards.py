"""Benchmarks of the cookbook beside our own evaluation: does a model in training still do what it could?"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import tinker
from tinker_cookbook.eval import benchmarks
from tinker_cookbook.eval.benchmark_evaluator import BenchmarkEvaluator
from tinker_cookbook.renderers import Message, Renderer
from tinker_cookbook.rl.message_env import EnvFromMessageEnv

from sciscidata.terminal.messages import one_line
from sciscirl.envs.tokenizer import never_waiting
from sciscirl.errors import SciSciRLError

#: Of an answer to a benchmark's question. The cookbook's 32,768 would let a model that rambles cost dollars.
MAX_TOKENS: Final = 2_048
_N_QUESTIONS: Final = 100  # the cookbook's own number beside a training


def make_guards(names: Sequence[str], renderer: Renderer, *, is_dry: bool = False) -> tuple[BenchmarkEvaluator, ...]:
    """Make an evaluator of each benchmark, ``NAME`` or ``NAME:QUESTIONS``; a dry run does not load its data set.

    Raises:
        SciSciRLError: the cookbook has no such benchmark, or it needs a judge, a sandbox, or a data set that cannot be
            loaded.
    """
    for module in pkgutil.iter_modules(benchmarks.__path__):  # each registers its benchmarks
        with suppress(ImportError):
            importlib.import_module(f"{benchmarks.__name__}.{module.name}")
    guards = tuple(_make_guard(name, renderer) for name in names)
    for guard in guards if not is_dry else ():
        _load_questions(guard)
    return guards


async def ask_guards(
    guards: Sequence[BenchmarkEvaluator], client: tinker.SamplingClient, folder: Path | None
) -> dict[str, float]:
    """Ask all questions; answers are kept in ``folder``, and not asked for again."""
    metrics: dict[str, float] = {}
    with patch.object(EnvFromMessageEnv, "_render_in_thread", _render_here):
        for guard in guards:
            guard.config = replace(guard.config, save_dir=None if folder is None else str(folder))
            metrics |= await guard(client)
    return metrics


async def _render_here(env: EnvFromMessageEnv, messages: list[Message], **options: Any) -> tinker.ModelInput:  # noqa: ANN401
    """Render in this thread: the cookbook's threads share a tokenizer, which Qwen's renderers of 0.5.8 change."""
    return env.renderer.build_generation_prompt(messages, **options)


def _make_guard(word: str, renderer: Renderer) -> BenchmarkEvaluator:
    name, _, number = word.partition(":")
    benchmark = benchmarks.REGISTRY.get(name)
    usable = sorted(
        one.name for one in benchmarks.REGISTRY.values() if not (one.requires_judge or one.requires_sandbox)
    )
    if benchmark is None or name not in usable:
        why = "is no benchmark of the cookbook" if benchmark is None else "needs a judge or a sandbox"
        raise SciSciRLError(f"evaluators: {name} {why}. Choose among {', '.join(usable)}.")
    if number and not (number.isdecimal() and int(number)):
        raise SciSciRLError(f"evaluators: {word} needs a whole number from 1 after the colon, such as {name}:50.")
    return BenchmarkEvaluator(name, renderer, int(number or _N_QUESTIONS), MAX_TOKENS)


def _load_questions(guard: BenchmarkEvaluator) -> None:
    name = guard.benchmark_name
    try:
        with never_waiting():
            benchmarks.REGISTRY[name].make_envs(guard.renderer, guard.config)
    except Exception as error:  # whatever a data set's loader raises
        raise SciSciRLError(
            f"evaluators: the questions of {name} cannot be loaded ({type(error).__name__}: {one_line(error)}). With "
            "the network, their data set comes from the Hugging Face hub (behind a login: HF_TOKEN). Without it, "
            f"bring the folder HF_HOME of a machine that has it, or leave {name} out."
        ) from error
