"""Supervised fine-tuning on a Tinker server, with the cookbook's loop."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import chz
import tinker
from tinker_cookbook.checkpoint_utils import save_checkpoint_async
from tinker_cookbook.eval.evaluators import SamplingClientEvaluator, TrainingClientEvaluator
from tinker_cookbook.stores.training_store import TrainingRunStore
from tinker_cookbook.supervised import train
from tinker_cookbook.supervised.types import SupervisedDataset, SupervisedDatasetBuilder
from tinker_cookbook.tokenizer_utils import Tokenizer
from tinker_cookbook.utils import ml_log

from sciscidata.terminal.progress import begin_step
from sciscirl.envs.dataset import LabelDatasetBuilder
from sciscirl.errors import with_own_names
from sciscirl.lab.evaluator import LabelEvaluator
from sciscirl.lab.label_scoring import find_label_tokens
from sciscirl.lab.sft.examples import GoldExamples, list_settings, make_examples, make_papers_builder, to_datum
from sciscirl.lab.training.console import ASK_SERVER, READ
from sciscirl.lab.training.rl import evaluate_last, guarded_run, make_evaluator
from sciscirl.options import LossOn, Run, SftOptions, TinkerSftOptions, resolve_run
from sciscirl.runs.chat_format import warn_of_renderer
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.logs import open_store
from sciscirl.runs.record import Course, begin_run
from sciscirl.runs.server_checks import check_server
from sciscirl.task.papers import list_labels


@dataclass(eq=False)
class GoldDataset(SupervisedDataset):
    """Batches of gold answers. Our epochs are one of the cookbook's, which numbers batches from 0 in every epoch."""

    examples: GoldExamples
    batch_size: int

    def get_batch(self, index: int) -> list[tinker.Datum]:
        """Return the batch of one step."""
        size = self.batch_size * self.examples.n_each
        return [to_datum(example) for example in self.examples[index * size : (index + 1) * size]]

    def __len__(self) -> int:
        return len(self.examples.papers) // self.batch_size

    def set_epoch(self, seed: int = 0) -> None:
        """Do nothing: the order of all epochs is decided when the examples are made."""


@chz.chz
class GoldDatasetBuilder(SupervisedDatasetBuilder):
    """Builds the batches of gold answers from the papers of a release."""

    papers: LabelDatasetBuilder
    options: SftOptions

    def __call__(self) -> tuple[GoldDataset, None]:
        """Build the training batches."""
        return GoldDataset(make_examples(self.papers, self.options), self.papers.order.batch_size), None


def make_gold_builder(name: str, release: str, model: str, **options: Any) -> GoldDatasetBuilder:  # noqa: ANN401 (checked)
    """Return the builder with which ``sciscirl sft`` trains on gold answers, for the cookbook's supervised loop.

    Its batches hold the papers of all epochs in training order, so let the loop take one epoch.

    Args:
        name: the preset.
        release: the folder of the release.
        model: the base model, by name or folder.
        options: others of ``sciscirl sft``, such as ``n_epochs``, ``batch_size``, ``confidence``, ``loss_on``; by our
            names or the cookbook's.

    Raises:
        ReleaseError: the release is missing or was altered.
        SciSciRLError: no preset has that name, or an option is impossible or has no effect.
    """
    options = with_own_names(options)
    run = resolve_run(TinkerSftOptions(preset=name, release=release, model=model, **options))
    return GoldDatasetBuilder(papers=make_papers_builder(run), options=run.options)


class NumberedEvaluator(SamplingClientEvaluator):
    """Numbers the evaluations of the supervised loop, which evaluates at multiples of ``every``."""

    def __init__(self, evaluator: LabelEvaluator, *, first_step: int, every: int, store: TrainingRunStore) -> None:
        self.evaluator = evaluator
        self.step = -(-first_step // every) * every
        self.every = every
        self.store = store

    async def __call__(self, sampling_client: tinker.SamplingClient) -> dict[str, float]:
        """Judge the model at the next step of this kind."""
        export = self.evaluator.name_export(self.step)
        self.step += self.every
        return await self.evaluator(sampling_client, rollout_summary_export=export, store=self.store)


class CheckpointSaver(TrainingClientEvaluator):
    """Saves a checkpoint before each step that is a multiple of ``every``, as an evaluator of the supervised loop.

    The loop's own checkpoints hold batches already sent ahead, which a resumed run would train on a second time.
    """

    def __init__(self, folder: Path, *, first_step: int, every: int, ttl_seconds: int | None) -> None:
        self.folder = folder
        self.first_step = first_step  # its checkpoint is there, or it is the base model
        self.step = -(-first_step // every) * every
        self.every = every
        self.ttl_seconds = ttl_seconds

    async def __call__(self, training_client: tinker.TrainingClient) -> dict[str, float]:
        """Save the weights before the next step of this kind; there are no metrics."""
        step, self.step = self.step, self.step + self.every
        if step > self.first_step:
            await save_checkpoint_async(
                training_client,
                f"{step:06d}",
                str(self.folder),
                {"epoch": 0, "batch": step},
                kind="both",
                ttl_seconds=self.ttl_seconds,
                store=open_store(self.folder),
            )
        return {}


def make_config(run: Run[TinkerSftOptions], builder: LabelDatasetBuilder, *, first_step: int = 0) -> train.Config:
    """Build the cookbook's config of a run, resumed at ``first_step``. Asks no server."""
    options, preset, folder = run.options, run.preset, run.folder

    def build_evaluator() -> NumberedEvaluator:
        store = open_store(folder)
        evaluator = make_evaluator(run, builder)
        return NumberedEvaluator(evaluator, first_step=first_step, every=options.eval_every, store=store)

    def build_saver() -> CheckpointSaver:
        return CheckpointSaver(folder, first_step=first_step, every=options.save_every, ttl_seconds=options.ttl_seconds)

    return train.Config(
        log_path=str(folder),
        model_name=preset.model,
        recipe_name="sciscirl_disruption_sft",
        renderer_name=builder.renderer_name,
        dataset_builder=GoldDatasetBuilder(papers=builder, options=options),
        learning_rate=preset.optimiser.learning_rate,
        lr_schedule="linear",
        adam_beta1=preset.optimiser.adam_beta1,
        adam_beta2=preset.optimiser.adam_beta2,
        adam_eps=preset.optimiser.adam_eps,
        num_epochs=1,
        lora_rank=preset.optimiser.lora_rank,
        base_url=options.base_url,
        evaluator_builders=[build_evaluator],
        eval_every=options.eval_every,
        infrequent_evaluator_builders=[build_saver],
        infrequent_eval_every=options.save_every,
        save_every=0,  # see CheckpointSaver
        ttl_seconds=options.ttl_seconds,
    )


@contextmanager
def measured_labels(columns: Sequence[str], loss_on: LossOn) -> Generator[None]:
    """Log ``label_nll`` beside the loss while the block runs: the cookbook's loop has no place for one's own metric.

    It is the negative log-probability of an answer's tokens that say the label, in nats, averaged by weight.
    """
    loop: Any = train
    measure, set_up = loop.compute_bpb, ml_log.setup_logging
    found: dict[str, float] = {}
    share = max if loss_on == "label" else sum  # of the weights of its tokens, that of an answer

    def compute_bpb(
        logprobs: list[tinker.TensorData],
        weights: list[tinker.TensorData],
        targets: list[tinker.TensorData],
        tokenizer: Tokenizer,
    ) -> float:
        found.clear()
        answers = zip(logprobs, weights, targets, strict=True)
        losses = [
            (-sum(chances.data[place] for place in places), share(weight.data))
            for chances, weight, target in answers
            if (places := find_places(weight.data, target.data, tokenizer))
        ]
        found.update({"label_nll": fmean(*zip(*losses, strict=True))} if losses else {})
        return measure(logprobs, weights, targets, tokenizer)

    def find_places(weights: Sequence[float], targets: Sequence[float], tokenizer: Tokenizer) -> list[int]:
        learned = [place for place, weight in enumerate(weights) if weight > 0]
        if loss_on == "label":
            return learned
        answer = [int(targets[place]) for place in learned]
        return [learned[place] for place in find_label_tokens(answer, columns, tokenizer)]

    def setup_logging(*args: Any, **options: Any) -> ml_log.Logger:  # noqa: ANN401
        logger = set_up(*args, **options)
        log = logger.log_metrics

        def log_metrics(metrics: dict[str, Any], step: int | None = None) -> None:
            log(metrics | found, step)
            found.clear()

        logger.log_metrics = log_metrics
        return logger

    loop.compute_bpb, ml_log.setup_logging = compute_bpb, setup_logging
    try:
        yield
    finally:
        loop.compute_bpb, ml_log.setup_logging = measure, set_up


async def train_on_tinker(run: Run[TinkerSftOptions]) -> Path:
    """Train, with evaluations on the way and one after the last step. Return the folder of the run.

    After a StorageError the run can be resumed.
    """
    options, preset, folder = run.options, run.preset, run.folder
    begin_step(READ)
    builder = make_papers_builder(run)
    builder.eval_papers()  # an altered release fails before a server is asked
    begin_step(ASK_SERVER)
    check_server(preset.model, options.base_url)
    n_steps = len(make_examples(builder, options).papers) // preset.order.batch_size
    make_evaluator(run, builder)
    warn_of_renderer(preset.model, options.renderer)
    with locked_folder(folder):
        settings, behavior = list_settings(run, builder), options.behavior_if_log_dir_exists
        course = Course(n_steps, steps_per_epoch=n_steps)
        first_step = begin_run(folder, Path(options.release), settings, behavior, course)
        if first_step is None:
            return folder
        async with guarded_run(run):
            with measured_labels([*list_labels(preset.rules.target)], options.loss_on):
                await train.main(make_config(run, builder, first_step=first_step))
            await evaluate_last(folder, make_evaluator(run, builder), step=n_steps, base_url=options.base_url)
    return folder
