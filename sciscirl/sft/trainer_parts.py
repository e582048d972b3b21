"""Parts for Transformers' training loop: batches, the run's record, and evaluations on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from tinker_cookbook.rl.rollout_logging import RolloutSummaryExportConfig
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from sciscirl.evaluation.evaluator import LabelEvaluator
from sciscirl.runs.folder import open_store
from sciscirl.runs.local_completer import LocalCompleter, pad_left
from sciscirl.sft.checkpoints import enter_checkpoint
from sciscirl.sft.examples import Example

_IGNORED: Final = -100  # what Transformers' loss leaves out


def collate(examples: Sequence[Example]) -> dict[str, Any]:
    """Put examples into one batch, padded on the left, so that all answers end together.

    Logits and labels cover only the longest answer and the token before it: those of a whole prompt over 150,000 tokens
    of vocabulary would take more memory than the model. Tensors are int64, (examples, longest), ``labels`` (examples,
    ``logits_to_keep``) with -100 where nothing is trained on.

    Example:
        >>> batch = collate(
        ...     [
        ...         Example(openalex_id="W1", tokens=(5, 6, 7, 8), n_prompt=2),
        ...         Example(openalex_id="W2", tokens=(5, 9), n_prompt=1),
        ...     ]
        ... )
        >>> batch["input_ids"].tolist(), batch["position_ids"].tolist()
        ([[5, 6, 7, 8], [0, 0, 5, 9]], [[0, 1, 2, 3], [0, 0, 0, 1]])
        >>> batch["logits_to_keep"], batch["labels"].tolist()
        (3, [[-100, 7, 8], [-100, -100, 9]])
    """
    answers = [example.tokens[example.n_prompt :] for example in examples]
    kept = max(map(len, answers)) + 1
    tokens, mask, positions = pad_left([example.tokens for example in examples])
    return {
        "input_ids": tokens,
        "attention_mask": mask,
        "position_ids": positions,
        "labels": torch.tensor([[_IGNORED] * (kept - len(answer)) + [*answer] for answer in answers]),
        "logits_to_keep": kept,
    }


@dataclass(eq=False)
class Recorder(TrainerCallback):
    """Writes metrics and checkpoints as the cookbook's loops do, with their names and step numbers."""

    folder: Path
    trained_on: Mapping[str, str]

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: object,
    ) -> None:
        """Write the metrics of a step; the loop's summary of the whole run has no loss."""
        if state.is_world_process_zero and logs and "loss" in logs:
            metrics = {
                "train_mean_nll": logs["loss"],
                "learning_rate": logs["learning_rate"],
                "grad_norm": logs["grad_norm"],
                "progress": state.global_step / state.max_steps,
            }
            taken = state.global_step - 1
            open_store(self.folder).write_metrics(metrics, step=taken)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Record a checkpoint, once every process has written its part."""
        wait_for_all(args)
        if state.is_world_process_zero:
            enter_checkpoint(self.folder, state.global_step, self.trained_on)


@dataclass(eq=False)
class Judge(TrainerCallback):
    """Evaluates the model before every ``every``-th step."""

    evaluator: LabelEvaluator
    completer: LocalCompleter
    folder: Path
    every: int

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Evaluate if it is time to."""
        if state.global_step % self.every == 0:
            self.judge(state.global_step)

    def judge(self, step: int) -> None:
        """Evaluate the model as it is, and write it down under ``step``."""
        model = self.completer.model
        was_training = model.training
        model.eval()
        export = RolloutSummaryExportConfig(split="eval/test", iteration=step, base_name="eval_test")
        store = open_store(self.folder)
        answers = self.evaluator.eval_token_completer(self.completer, rollout_summary_export=export, store=store)
        store.write_metrics(asyncio.run(answers), step=step)
        model.train(was_training)


def wait_for_all(arguments: TrainingArguments) -> None:
    """Wait until every process of the run is here."""
    if arguments.distributed_state is not None:
        arguments.distributed_state.wait_for_everyone()
