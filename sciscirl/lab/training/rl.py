"""Train with reinforcement learning: what a run is put together of, the cookbook's config and loop, the run's folder.

From top to bottom: the public functions, the parts of a run, which supervised runs use too, and what surrounds a loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import chz
import httpx
from tinker.lib.base_url import resolve_base_url
from tinker_cookbook.rl import train
from tinker_cookbook.rl.rollout_limits import TerminationRewardPolicy
from tinker_cookbook.rl.rollout_presets import default_rollout_strategy_for_model
from tinker_cookbook.rl.rollout_strategy import RolloutStrategy

from sciscidata.options.did_you_mean import find_unknown
from sciscidata.terminal.progress import begin_step
from sciscirl.envs.dataset import LabelDatasetBuilder, check_fit
from sciscirl.errors import CollapseError, SciSciRLError, with_own_names
from sciscirl.lab.adversarial.env import challenge_by
from sciscirl.lab.evaluator import AnswerSampling, LabelEvaluator
from sciscirl.lab.label_scoring import LabelScoring
from sciscirl.lab.objectives.dataset import BegunRun, RunDatasetBuilder
from sciscirl.lab.objectives.dynamic_sampling import DynamicSampling
from sciscirl.lab.training.console import ASK_SERVER, READ, follow_run
from sciscirl.metrics.collapse import CollapseAlarm
from sciscirl.options import (
    Run,
    RunOptions,
    SftOptions,
    TinkerSftOptions,
    TrainingServerOptions,
    TrainOptions,
    list_recorded,
    read_pair,
    refuse_without_effect,
    resolve_run,
)
from sciscirl.presets import PUBLISHED, describe
from sciscirl.runs.chat_format import choose_renderer, warn_of_renderer
from sciscirl.runs.checkpoints import find_checkpoint, is_judged
from sciscirl.runs.folder import RESUME_HINT, disk_errors, locked_folder
from sciscirl.runs.lineage import warn_of_other_release
from sciscirl.runs.logs import METRICS_FILE, open_store, read_rows
from sciscirl.runs.record import Course, begin_run
from sciscirl.runs.server_checks import check_server, clear_errors, closed_sessions, open_service
from sciscirl.task.experiment import Adam, Preset
from sciscirl.task.release import EVAL_SPLITS, EvalSplit, PaperChoice, open_release, settle_choice

if TYPE_CHECKING:
    from tinker_cookbook.eval.benchmark_evaluator import BenchmarkEvaluator
    from tinker_cookbook.renderers import Renderer

#: Between two checks that the server answers.
PERIOD_SECONDS: Final = 30.0
#: A busy server may take its time to answer.
_TIMEOUT_SECONDS: Final = 30.0
_log = logging.getLogger(__name__)


async def train_preset(options: TrainOptions | Run[TrainOptions]) -> Path:
    """Train, with evaluations on the way and one after the last step.

    With ``collapse="stop"``, the run ends when evaluations or training answers show a collapsed model. Its last
    checkpoint stays the last that was saved, and ``metrics.jsonl`` says ``collapse_stop``.

    The folder holds ``run.json`` (settings, commit, the release's SHA-256, versions), ``config.json`` (the cookbook's),
    ``metrics.jsonl`` and ``checkpoints.jsonl``. It also has a folder for each step with every rollout, and in
    ``predictions`` a Parquet file for each evaluation.

    Returns:
        That folder.

    Raises:
        ReleaseError: the release is missing or was altered.
        SciSciRLError: an option is impossible, or the folder is in use or holds another run. Or the server is down,
            refuses the key or does not offer the model.
        CollapseError: the model has collapsed and ``collapse="stop"``; the folder is complete.
        StorageError: the disk failed. The run can be resumed.
    """
    run = options if isinstance(options, Run) else resolve_run(options)
    options, preset, folder, start = run.options, run.preset, run.folder, run.begun_from
    begin_step(READ)
    config = make_config(run)
    builder = cast("RunDatasetBuilder", config.dataset_builder)
    builder.eval_papers()  # an altered release fails before a server is asked
    begin_step(ASK_SERVER)
    check_server(preset.model, options.base_url)
    if (reference := config.kl_reference_config) is not None and reference.base_model != preset.model:
        check_server(reference.base_model, options.base_url)
    evaluator = make_evaluator(run, builder)
    batches, _ = await builder()
    evaluator.end_step = run.count_steps(len(batches))
    warn_of_renderer(preset.model, options.renderer)
    with locked_folder(folder):
        release = Path(options.release)
        if start is not None:
            warn_of_other_release(start.get("manifest_sha256"), release, start.get("folder"))
        course = Course(evaluator.end_step, start)
        settings, behavior = list_settings(run, builder), options.behavior_if_log_dir_exists
        step = begin_run(folder, release, settings, behavior, course)
        if step is None:
            return folder
        evaluator.alarm = make_alarm(run)
        begun = BegunRun(folder=str(folder), first_step=step, action=options.collapse)
        of_run = chz.replace(builder, begun=begun)
        config = chz.replace(config, dataset_builder=of_run, evaluator_builders=[lambda: evaluator])
        stopped: CollapseError | None = None
        async with guarded_run(run):
            try:
                await train.main(config)
            except CollapseError as collapse:
                stopped = collapse
                enter_collapse(folder, collapse, evaluator)
            evaluator.alarm, evaluator.end_step = make_alarm(run, is_over=True), None
            await evaluate_last(folder, evaluator, base_url=options.base_url)
    if stopped is not None:
        raise stopped
    return folder


def make_config(options: TrainOptions | Run[TrainOptions]) -> train.Config:
    """Build the configuration of the cookbook's loop, ``tinker_cookbook.rl.train.main``, for options of a run.

    ``train_preset`` runs that loop too, and keeps the record, the lock and the alarms of a run. Reads the training
    split, asks no server.

    Raises:
        ReleaseError: the release is missing or was altered.
        SciSciRLError: an option is impossible or has no effect.
    """
    run = options if isinstance(options, Run) else resolve_run(options)
    check_preset(run.preset)
    builder = make_run_builder(run)
    options, preset, size = run.options, run.preset, run.preset.order.batch_size
    reference = dict(preset.optimiser.kl_reference_config)
    off_policy, n_parts = options.max_steps_off_policy, count_minibatches(run)
    if off_policy is not None and (n_parts is not None or preset.rules.table.share_penalty):
        other = f"share_penalty {preset.rules.table.share_penalty}" if n_parts is None else "stream_minibatch_config"
        raise SciSciRLError(
            f"max_steps_off_policy is {off_policy}, beside {other}, which needs the answers of a step before the next "
            "begins. Leave one of them out."
        )
    if n_parts is not None and size % (n_parts * preset.optimiser.num_substeps):
        raise SciSciRLError(
            f"batch_size is {size}, needs a multiple of stream_minibatch_config.num_minibatches {n_parts} times "
            f"num_substeps {preset.optimiser.num_substeps}."
        )
    # Version 0.6.1 trains a run with max_steps_off_policy by another loss, if it is not told here, too.
    told = {"loss_fn": preset.optimiser.loss_fn} if "loss_fn" in chz.chz_fields(train.AsyncConfig) else {}
    return train.Config(
        learning_rate=preset.optimiser.learning_rate,
        dataset_builder=builder,
        model_name=preset.model,
        renderer_name=builder.renderer_name,
        recipe_name=f"sciscirl_{preset.rules.target}",
        max_tokens=preset.max_tokens,
        temperature=preset.sampling.temperature,
        loss_fn=preset.optimiser.loss_fn,
        loss_fn_config=dict(preset.optimiser.loss_fn_config) or None,
        num_substeps=preset.optimiser.num_substeps,
        kl_penalty_coef=preset.optimiser.kl_penalty_coef,
        kl_discount_factor=preset.optimiser.kl_discount_factor,
        kl_reference_config=train.KLReferenceConfig(**{"base_model": preset.model, **reference})
        if preset.optimiser.kl_penalty_coef
        else None,
        lora_rank=preset.optimiser.lora_rank,
        max_steps=options.max_steps,
        eval_every=options.eval_every,
        save_every=options.save_every,
        ttl_seconds=options.ttl_seconds,
        log_path=str(run.folder),
        base_url=options.base_url,
        load_checkpoint_path=run.begun_from["path"] if run.begun_from else None,
        remove_constant_reward_groups=preset.sampling.remove_constant_reward_groups,
        rollout_error_tolerance=_make_strategy(preset),
        # For some models the cookbook would set the reward of a cut-off answer to 0; our reward table decides.
        termination=TerminationRewardPolicy(zero_reward_on_limit=False),
        async_config=None
        if off_policy is None
        else train.AsyncConfig(max_steps_off_policy=off_policy, groups_per_batch=size, **told),
        stream_minibatch_config=None
        if n_parts is None
        else train.StreamMinibatchConfig(groups_per_batch=size, num_minibatches=n_parts),
        compute_post_kl=options.compute_post_kl,
        rolling_save_every=options.rolling_save_every,
        evaluator_builders=[lambda: make_evaluator(run, builder, make_alarm(run))],
    )


def make_builder(name: str, release: str, model: str, **options: Any) -> LabelDatasetBuilder:  # noqa: ANN401 (checked)
    """Return the builder with which ``sciscirl train`` trains a preset, for a loop of your own.

    It has no held-out batches, because ``train_preset`` brings its evaluator: ``chz.replace(..., has_test=True)``.

    Args:
        name: the preset.
        release: the folder of the release.
        model: the base model, by name or folder.
        options: others of TrainOptions, by our names or the cookbook's. Papers are shown as often as ``max_steps``
            takes.

    Raises:
        ReleaseError: the release is missing or was altered.
        SciSciRLError: no preset has that name, or an option is impossible or has no effect.
    """
    options = with_own_names(options)
    return make_run_builder(resolve_run(TrainOptions(preset=name, release=release, model=model, **options)))


def count_minibatches(run: Run[TrainOptions]) -> int | None:
    """Return in how many parts the answers of a step are trained on; None: as a whole (SciSciRLError)."""
    option, batch_size = "stream_minibatch_config", run.preset.order.batch_size
    if run.options.stream_minibatch_config is None:
        return None
    named = dict(read_pair(option, pair) for pair in run.options.stream_minibatch_config)
    if problem := find_unknown(named, ("groups_per_batch", "num_minibatches"), where=option):
        raise SciSciRLError(problem)
    n_parts, size = named.get("num_minibatches", 0.0), named.get("groups_per_batch", batch_size)
    if n_parts < 1 or n_parts % 1:
        raise SciSciRLError(f"{option} needs num_minibatches, a whole number from 1: {option}.num_minibatches=4.")
    if size != batch_size:
        raise SciSciRLError(
            f"{option}.groups_per_batch is {size:g}, but a step has batch_size {batch_size}. Set batch_size={size:g}, "
            "or leave groups_per_batch out."
        )
    return int(n_parts)


def check_preset(preset: Preset) -> None:
    """Make sure that a preset can be trained by reinforcement learning (SciSciRLError)."""
    if preset.sampling.group_size < 2:
        raise SciSciRLError(
            "group_size is 1, needs at least 2: rewards are centred within the answers to a paper, so that one alone "
            "teaches nothing."
        )
    for one in fields(Adam):
        if getattr(preset.optimiser, one.name) != one.default:
            refuse_without_effect("train", {one.name: getattr(preset.optimiser, one.name)})


def _make_strategy(preset: Preset) -> RolloutStrategy | None:
    """Return how a group is sampled, where the preset asks for more than the cookbook's way."""
    sampling = preset.sampling
    if sampling.top_p == 1 and not sampling.dynamic_sampling:
        return None
    return DynamicSampling(default_rollout_strategy_for_model(preset.model), sampling.top_p)


def make_run_builder(run: Run[TrainOptions]) -> RunDatasetBuilder:
    """Return the builder of the training batches."""
    options, preset = run.options, run.preset
    is_published = preset.name in PUBLISHED and preset.rules.target == "disruption"
    return RunDatasetBuilder(
        **name_fields(run, "test" if is_published else "held_out"),
        group_size=preset.sampling.group_size,
        eval_group_size=preset.judging.eval_group_size,
        min_steps=options.max_steps or 0,
        n_spares=preset.sampling.dynamic_sampling,
        adversarial=preset.adversarial,
    )


def name_fields(run: Run[RunOptions], without_dev: EvalSplit = "held_out") -> dict[str, Any]:
    """Return the fields of the builder of a run, for both ways to train; ``without_dev``: what judges it then."""
    options, preset = run.options, run.preset
    chosen = PaperChoice(**{one.name: getattr(options, one.name) for one in fields(PaperChoice)})
    return {
        "release": options.release,
        "model_name": preset.model,
        "renderer_name": options.renderer or choose_renderer(preset.model),
        "task": preset.rules,
        "order": preset.order,
        "choice": settle_choice(chosen, options.release, without_dev),
        "has_test": False,  # our own evaluator judges the same papers, by more measures
    }


def make_evaluator(
    run: Run[RunOptions], builder: LabelDatasetBuilder, alarm: CollapseAlarm | None = None
) -> LabelEvaluator:
    """Make the evaluator of a run (PromptError if a paper does not fit)."""
    options, preset = run.options, run.preset
    is_gold = isinstance(options, SftOptions)
    papers, rules, renderer = builder.eval_papers(), builder.rules(), builder.renderer()
    check_fit(papers, rules, renderer)
    return LabelEvaluator(
        papers,
        rules,
        renderer,
        AnswerSampling.of(preset),
        name=builder.eval_split,
        folder=run.folder / "predictions",
        alarm=alarm,
        challenge=challenge_by(preset.adversarial, rules.target),
        scoring=LabelScoring() if is_gold and options.loss_on == "label" else None,
        ceiling=open_release(builder.release).manifest.get("ceiling"),
        is_taught=is_gold or (run.begun_from or {}).get("kind") == "sft",
        guards=_make_guards(options, renderer),
    )


def _make_guards(options: RunOptions, renderer: Renderer) -> Sequence[BenchmarkEvaluator]:
    if not (isinstance(options, TrainingServerOptions) and options.evaluators):
        return ()
    from sciscirl.lab.guards import make_guards  # few runs have any

    return make_guards(options.evaluators, renderer, is_dry=options.dry_run)


def list_settings(run: Run[TrainOptions], builder: LabelDatasetBuilder) -> dict[str, Any]:
    """List what decides how a step goes, not the number of steps or how often something is saved."""
    n_parts = count_minibatches(run)
    own = list_recorded(run.options) | {
        "stream_minibatch_config": n_parts and {"num_minibatches": n_parts},
        "load_checkpoint": run.begun_from and run.begun_from["path"],
        "renderer": builder.renderer_name,
    }
    return describe(run.preset) | own | builder.describe_papers()


def make_alarm(run: Run[TrainOptions], *, is_over: bool = False) -> CollapseAlarm:
    """Make the alarm of a run, with the evaluations already in the folder; it ends nothing that is over."""
    action = run.options.collapse
    rows = read_rows(run.folder / METRICS_FILE)
    history = [{name: value for name, value in row.items() if name.partition("/")[0] in EVAL_SPLITS} for row in rows]
    return CollapseAlarm(action="warn" if is_over and action == "stop" else action, history=filter(None, history))


def enter_collapse(folder: Path, collapse: CollapseError, evaluator: LabelEvaluator) -> None:
    """Write down that a collapse ended the run, with the last evaluation if the loop ended before it logged that."""
    step, judged = evaluator.judged
    rest = judged if step == collapse.step and not is_judged(folder, step) else {}
    open_store(folder).write_metrics({**rest, **collapse.metrics, "collapse_stop": 1.0}, step=collapse.step)


async def evaluate_last(
    folder: Path, evaluator: LabelEvaluator, *, step: int | None = None, base_url: str | None = None
) -> None:
    """Judge the trained model, which the cookbook's loops do not; ``step`` is for checkpoints that name none."""
    checkpoint = find_checkpoint(folder, "sampler_path")
    step = step if step is not None or checkpoint is None else checkpoint.batch
    if checkpoint is None or step is None or is_judged(folder, step):
        return
    store = open_store(folder)
    with open_service(base_url) as service:
        client = await service.create_sampling_client(model_path=checkpoint.sampler_path)
        metrics = await evaluator(client, rollout_summary_export=evaluator.name_export(step), store=store)
    store.write_metrics(metrics, step=step)


@asynccontextmanager
async def guarded_run(
    run: Run[TrainOptions] | Run[TinkerSftOptions], *, period_seconds: float = PERIOD_SECONDS
) -> AsyncGenerator[None]:
    """Show a line for each step, write errors in one, and warn of a lost server: the SDK retries silently for hours."""
    options, base_url = run.options, run.options.base_url
    watch = asyncio.create_task(_watch(resolve_base_url(base_url), period_seconds))
    try:
        with (
            disk_errors(run.folder),
            clear_errors(base_url, RESUME_HINT),
            closed_sessions(base_url),
            follow_run(run.folder, run.preset.model, options.wandb_project, options.wandb_name),
        ):
            yield
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)  # the run does not depend on the watch


async def _watch(url: str, period_seconds: float) -> None:
    """Warn once of each outage, at the second check without an answer, and say when it is over."""
    n_missed = 0
    async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as client:
        while True:
            await asyncio.sleep(period_seconds)
            try:
                await client.get(f"{url}/api/v1/healthz")
            except httpx.HTTPError as error:
                n_missed += 1
                if n_missed == 2:
                    _log.warning(
                        "no Tinker server answers at %s (%s). The SDK goes on asking, for up to two hours. To stop: "
                        "Ctrl-C; the run goes on from its last checkpoint with behavior_if_log_dir_exists=resume.",
                        url,
                        type(error).__name__,
                    )
            else:
                if n_missed >= 2:
                    _log.warning("the Tinker server at %s answers again.", url)
                n_missed = 0
