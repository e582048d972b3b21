"""Evaluate a model in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sciscirl.evaluation.evaluate import EvaluationConfig
from sciscirl.evaluation.evaluator import LabelEvaluator
from sciscirl.lab.models.local_completer import LocalCompleter
from sciscirl.lab.models.local_model import count_threads, load_local_model


async def ask_local_model(evaluator: LabelEvaluator, folder: Path, config: EvaluationConfig) -> dict[str, Any]:
    """Ask a model in this process. Return what decides its answers to the last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(config.n_threads or count_threads())
    try:
        model = load_local_model(folder, dtype=config.dtype)
        completer = LocalCompleter(
            model,
            evaluator.renderer.tokenizer,
            max_tokens=evaluator.max_tokens,
            temperature=evaluator.temperature,
            top_p=evaluator.top_p,
            seed=config.seed,
            **({} if config.batch_size is None else {"batch_size": config.batch_size}),
        )
        await evaluator.eval_token_completer(completer)
        return {
            "batch_size": completer.batch_size,
            "dtype": str(model.dtype).removeprefix("torch."),
            "device": str(model.device),
            "n_threads": torch.get_num_threads(),
            "seed": config.seed,
        }
    finally:
        torch.set_num_threads(before)
