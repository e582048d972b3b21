"""Supervised fine-tuning on your own GPU: QDoRA with PEFT and bitsandbytes, in Transformers' training loop."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, cast

import torch
from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from sciscidata.storage import atomic_folder
from sciscidata.storage.sums import seal_file
from sciscidata.terminal.progress import begin_step
from sciscirl.envs.dataset import LabelDatasetBuilder
from sciscirl.envs.models import ADAPTER_FILES
from sciscirl.errors import CollapseError, SciSciRLError
from sciscirl.lab.evaluator import LabelEvaluator
from sciscirl.lab.hardware_options import OF_ADAPTER, LocalTrainOptions, PeftSftOptions
from sciscirl.lab.models.adapter_files import RUN_CONFIG, TRAINED_ON_FILE
from sciscirl.lab.models.local_completer import LocalCompleter, pad_left
from sciscirl.lab.models.local_model import load_adapter, load_base_model, refuse_pickles, require_packages, set_threads
from sciscirl.lab.models.processes import count_processes, do_once, is_first, of_first, settle_processes
from sciscirl.lab.models.shared_prompts import share_prompts
from sciscirl.lab.sft.checkpoints import CHECKPOINTS, enter_checkpoint, recover_checkpoint
from sciscirl.lab.sft.examples import (
    Example,
    GoldExamples,
    count_answers,
    list_settings,
    make_examples,
    make_papers_builder,
)
from sciscirl.lab.training.console import LOAD_MODEL, READ, follow_run
from sciscirl.lab.training.rl import make_evaluator
from sciscirl.options import Run
from sciscirl.runs.chat_format import warn_of_renderer
from sciscirl.runs.checkpoints import ADAPTER, find_checkpoint, find_weights
from sciscirl.runs.folder import disk_errors, locked_folder
from sciscirl.runs.logs import open_store, write_json
from sciscirl.runs.record import Course, begin_run

_IGNORED: Final = -100  # what Transformers' loss leaves out
#: Options of one's own hardware that decide how a step goes.
OF_STEP: Final = (*OF_ADAPTER, "dtype", "micro_batch_size", "gradient_checkpointing")


def train_with_peft(run: Run[PeftSftOptions]) -> Path:
    """Train an adapter, with evaluations on the way and after the last step. Return the folder of the run.

    It holds ``checkpoints.jsonl`` with the checkpoints, predictions of each evaluation, and at the end ``adapter``.
    After a StorageError the run can be resumed.
    """
    options, preset, folder = run.options, run.preset, run.folder
    check_run(run)
    begin_step(READ)
    builder = make_papers_builder(run)
    examples, evaluator = make_examples(builder, options), make_evaluator(run, builder)
    n_steps = len(examples.papers) // preset.order.batch_size
    arguments = make_arguments(run, n_steps)
    warn_of_renderer(preset.model, options.renderer)
    with disk_errors(folder), of_first(locked_folder(folder)):
        settings, behavior = list_own_settings(run, builder), options.behavior_if_log_dir_exists
        load = cache(partial(make_model, run, arguments))
        course = Course(n_steps, find=recover_checkpoint, load=load)
        if do_once(partial(begin_run, folder, Path(options.release), settings, behavior, course)) is None:
            return folder
        settle_threads(options, arguments, folder)
        checkpoint = find_checkpoint(folder)
        begun = find_weights(folder, checkpoint) if checkpoint else None
        model = load()
        trainer = GoldTrainer(examples, model=model, args=arguments)
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)  # a line for each step says more
        trained_on = {"quantize": options.quantize, "dtype": options.dtype}
        trainer.add_callback(Recorder(folder, trained_on, partial(_describe_step, examples, preset.order.batch_size)))
        size = options.eval_batch_size
        completer = LocalCompleter.of_evaluator(evaluator, model, seed=preset.order.seed, batch_size=size)
        judge = Judge(evaluator, completer, folder, every=options.eval_every)
        trainer.add_callback(judge)
        # Also after the last step: this loads the weights that are judged.
        with (
            of_first(follow_run(folder, preset.model, options.wandb_project, options.wandb_name)),
            refuse_pickles(folder),
        ):
            trainer.train(resume_from_checkpoint=str(begun) if begun else None)
            judge.judge(n_steps)
        do_once(partial(keep_adapter, folder, n_steps, trained_on))
    return folder


def check_run(run: Run[PeftSftOptions]) -> None:
    """Refuse a run that cannot be trained here, before anything is loaded (SciSciRLError)."""
    require_packages("peft", "accelerate", *(["bitsandbytes"] if run.options.quantize == "nf4" else []))
    refuse_options(run)


def refuse_options(run: Run[PeftSftOptions]) -> None:
    """Refuse batches that processes and passes cannot share (SciSciRLError)."""
    settle_processes()
    size, in_a_pass, n_processes = run.preset.order.batch_size, run.options.micro_batch_size, count_processes()
    if size % (in_a_pass * n_processes):
        times = f", times {n_processes} processes" if n_processes > 1 else ""
        raise SciSciRLError(f"batch_size is {size}, needs a multiple of micro_batch_size, {in_a_pass}{times}.")


def settle_threads(options: PeftSftOptions | LocalTrainOptions, arguments: TrainingArguments, folder: Path) -> None:
    """Choose the number of threads, and note it with all options."""
    n_threads = set_threads(folder, resume=options.behavior_if_log_dir_exists != "raise")
    if is_first():
        facts = {"n_threads": n_threads, "trainer": arguments.to_sanitized_dict()}
        write_json(folder / RUN_CONFIG, {**asdict(options), **facts})


def list_arguments(run: Run[PeftSftOptions] | Run[LocalTrainOptions], n_steps: int) -> dict[str, Any]:
    """List the settings of Transformers' loop that both ways to train share: a line and a checkpoint as ours are."""
    options, preset, has_cuda = run.options, run.preset, torch.cuda.is_available()
    return {
        "output_dir": str(run.folder / CHECKPOINTS),
        "max_steps": n_steps,
        "per_device_train_batch_size": options.micro_batch_size,
        "learning_rate": preset.optimiser.learning_rate,
        "optim": "adamw_torch",
        "adam_beta1": preset.optimiser.adam_beta1,
        "adam_beta2": preset.optimiser.adam_beta2,
        "weight_decay": 0.0,
        "bf16": options.dtype == "bfloat16",
        "fp16": options.dtype == "float16",
        "gradient_checkpointing": options.gradient_checkpointing,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "seed": preset.order.seed,
        "save_strategy": "steps",
        "save_steps": options.save_every,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "report_to": "none",
        "ddp_find_unused_parameters": False,
        "dataloader_pin_memory": has_cuda,
        "accelerator_config": {"use_configured_state": count_processes() > 1 and not has_cuda},
        "use_cpu": not has_cuda,
    }


def make_arguments(run: Run[PeftSftOptions], n_steps: int) -> TrainingArguments:
    """Configure Transformers' loop: our order of papers, our steps, and the optimiser of Tinker's loop."""
    options, preset = run.options, run.preset
    arguments = TrainingArguments(
        **list_arguments(run, n_steps),
        train_sampling_strategy="sequential",
        lr_scheduler_type="linear",
        adam_epsilon=preset.optimiser.adam_eps,
        remove_unused_columns=False,
        disable_tqdm=False,
    )
    n_passes = preset.order.batch_size // options.micro_batch_size // count_processes()
    arguments.gradient_accumulation_steps = n_passes * count_answers(preset.rules)
    return arguments


def make_model(
    run: Run[PeftSftOptions] | Run[LocalTrainOptions], arguments: TrainingArguments, start: Path | None = None
) -> Any:  # noqa: ANN401 (PeftModel)
    """Put a fresh adapter on every linear layer but the last, or go on with that of a folder, ``start``.

    Dropout would have DoRA compute the base twice. Source: Liu et al. 2024, DoRA, arXiv:2402.09353.
    """
    from peft import LoraConfig, get_peft_model

    begin_step(LOAD_MODEL)
    options, preset, device = run.options, run.preset, str(arguments.device)
    base = load_base_model(preset.model, quantize=options.quantize, dtype=options.dtype, device=device)
    base.config.use_cache = False
    if options.gradient_checkpointing:
        base.enable_input_require_grads()  # else nothing before the first adapter asks for a gradient
    share_prompts(base)
    if start is not None:
        return load_adapter(base, start, is_trainable=True)
    set_seed(preset.order.seed)
    adapter = LoraConfig(
        r=preset.optimiser.lora_rank,
        lora_alpha=options.lora_alpha,
        lora_dropout=0.0,
        use_dora=options.use_dora,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, adapter)


def list_own_settings(run: Run[PeftSftOptions], builder: LabelDatasetBuilder) -> dict[str, Any]:
    """List the settings of a run, with those of the adapter."""
    own = {name: getattr(run.options, name) for name in OF_STEP}
    return list_settings(run, builder) | own | {"n_processes": count_processes()}


def keep_adapter(folder: Path, n_steps: int, trained_on: dict[str, str]) -> None:
    """Copy the adapter of the last checkpoint to ``adapter``, with what it was trained on."""
    with atomic_folder(folder / ADAPTER, overwrite=True) as kept:
        for name in ADAPTER_FILES:
            shutil.copyfile(folder / CHECKPOINTS / f"checkpoint-{n_steps}" / name, kept / name)
            seal_file(kept / name)
        write_json(kept / TRAINED_ON_FILE, trained_on)


def collate(examples: Sequence[Example]) -> dict[str, Any]:
    """Put examples into one batch, padded on the left, so that all answers end together.

    Logits and labels (-100: not trained on) cover only the longest answer and the token before it. Those of a whole
    prompt over 150,000 tokens of vocabulary would take more memory than the model.

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
    kept = _count_kept(examples)
    tokens, mask, positions = pad_left([example.tokens for example in examples])
    return {
        "input_ids": tokens,
        "attention_mask": mask,
        "position_ids": positions,
        "labels": tokens[:, -kept:].masked_fill(~_mark(examples, kept, lambda example: example.learned), _IGNORED),
        "logits_to_keep": kept,
    }


def collate_labels(examples: Sequence[Example]) -> dict[str, Any]:
    """Return the batch of ``collate``, as ``says_label`` which of the kept tokens say a label, and the weights."""
    says_label = _mark(examples, _count_kept(examples), lambda example: example.labels)
    weights = torch.tensor([example.weight for example in examples])
    return collate(examples) | {"says_label": says_label, "weights": weights}


def _count_kept(examples: Sequence[Example]) -> int:
    return max(len(example.tokens) - example.n_prompt for example in examples) + 1


def _mark(examples: Sequence[Example], kept: int, find: Callable[[Example], Sequence[int]]) -> torch.Tensor:
    """Mark places in the last ``kept`` tokens of each example."""
    marks = torch.zeros(len(examples), kept, dtype=torch.bool)
    for row, example in enumerate(examples):
        for place in find(example):
            marks[row, place - len(example.tokens) + kept] = True
    return marks


class GoldTrainer(Trainer):
    """Transformers' loop, which also measures ``label_nll``, and weighs the losses of weighed papers."""

    def __init__(self, examples: GoldExamples, **options: Any) -> None:  # noqa: ANN401
        super().__init__(train_dataset=examples, data_collator=collate_labels, **options)  # pyright: ignore[reportArgumentType] (any sequence is a dataset)
        self._label_nll = torch.zeros(2, dtype=torch.float64, device=self.args.device)  # sum, sum of weights
        self._weights = torch.ones(0)
        self._n_each = examples.n_each
        if examples.rules.is_weighed:
            self.compute_loss_func = self._weigh

    def _weigh(self, outputs: Any, labels: torch.Tensor, num_items_in_batch: Any) -> torch.Tensor:  # noqa: ANN401
        """Return the loss of weighed answers, by token and paper."""
        logits = outputs.logits[:, :-1].float().transpose(1, 2)
        losses = torch.nn.functional.cross_entropy(logits, labels[:, 1:], ignore_index=_IGNORED, reduction="none")
        return (losses.sum(dim=1) * self._weights).sum() * self._n_each / num_items_in_batch

    def compute_loss(
        self,
        model: Any,  # noqa: ANN401
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Compute the loss of one pass."""
        says_label, self._weights = inputs.pop("says_label")[:, 1:], inputs.pop("weights")
        computed: Any = super().compute_loss(model, inputs, True, num_items_in_batch)
        loss, outputs = computed
        with torch.no_grad():
            said = inputs["input_ids"][:, -says_label.shape[1] :][says_label]
            logits = outputs.logits[:, :-1][says_label].float()
            nll = torch.nn.functional.cross_entropy(logits, said, reduction="none")
            nll = (nll * self._weights[says_label.nonzero()[:, 0]]).double().sum()
            self._label_nll += torch.stack([nll, self._weights.double().sum()])
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log a step, with the mean over all its examples."""
        if "loss" in logs:
            total, n = cast("torch.Tensor", self.accelerator.reduce(self._label_nll, "sum")).tolist()
            self._label_nll.zero_()
            logs |= {"label_nll": total / n} if total else {}  # an answer without a label has none
        super().log(logs, start_time)


@dataclass(eq=False)
class Recorder(TrainerCallback):
    """Writes metrics and checkpoints as the cookbook's loops do, with their names and step numbers."""

    folder: Path
    trained_on: Mapping[str, str]
    describe_step: Callable[[TrainerState, Mapping[str, float]], dict[str, Any]]  # its metrics, from what the loop logs

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: object,
    ) -> None:
        """Write the metrics of a step; the loop's summary of the whole run has no loss."""
        if logs and "loss" in logs:
            metrics = self.describe_step(state, logs)  # of what all processes know
            if state.is_world_process_zero:
                open_store(self.folder).write_metrics(metrics, step=state.global_step - 1)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Record a checkpoint, when every process has written its part."""
        from accelerate import PartialState

        PartialState().wait_for_everyone()
        if state.is_world_process_zero:
            enter_checkpoint(self.folder, state.global_step, self.trained_on)


def _describe_step(
    examples: GoldExamples, batch_size: int, state: TrainerState, logs: Mapping[str, float]
) -> dict[str, Any]:
    size = batch_size * examples.n_each
    batch = examples[(state.global_step - 1) * size : state.global_step * size]
    return {
        "train_mean_nll": logs["loss"],
        "learning_rate": logs["learning_rate"],
        "grad_norm": logs["grad_norm"],
        "progress": state.global_step / state.max_steps,
        "num_tokens": sum(len(example.tokens) - 1 for example in batch),  # the last one is only a target
        "num_loss_tokens": sum(len(example.learned) for example in batch),
        **{name: value for name, value in logs.items() if name == "label_nll"},
    }


@dataclass(eq=False)
class Judge(TrainerCallback):
    """Evaluates the model before every ``every``-th step: in every process, because a sharded model needs them all."""

    evaluator: LabelEvaluator
    completer: LocalCompleter
    folder: Path
    every: int

    def __post_init__(self) -> None:
        self.is_writer = is_first()
        if not self.is_writer:
            self.evaluator.folder = self.evaluator.alarm = None

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: object
    ) -> None:
        """Evaluate if it is time to."""
        self.completer.model = more["model"]  # as the loop has wrapped it
        if state.global_step % self.every == 0:
            self.judge(state.global_step)

    def judge(self, step: int) -> None:
        """Evaluate the model as it is, and write it down under ``step``. A collapse ends every process."""
        export = self.evaluator.name_export(step)
        is_answered = do_once(lambda: self.evaluator.find_kept(export) is not None)
        collapse: tuple[str, dict[str, float], int | None] | None = None
        if self.is_writer or not is_answered:
            completer = replace(self.completer)  # it counts answers within an evaluation: a resumed run draws the same
            model = completer.model
            was_training = model.training
            model.eval()
            store = open_store(self.folder) if self.is_writer else None
            answers = self.evaluator.eval_token_completer(completer, rollout_summary_export=export, store=store)
            try:
                metrics = asyncio.run(answers)
                if store is not None:
                    store.write_metrics(metrics, step=step)
            except CollapseError as error:
                collapse = str(error), error.metrics, error.step
            model.train(was_training)
        if (ended := do_once(lambda: collapse)) is not None:
            raise CollapseError(ended[0], metrics=ended[1], step=ended[2])
