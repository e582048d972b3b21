"""Reinforcement learning on one's own hardware: the papers, rewards and folder of ``rl``, in TRL's GRPO loop.

Answers and rewards are the cookbook's environments', advantages, loss and update are TRL's. First comes the run
(``train_locally``). Then come TRL's settings, chosen so that a step does what the cookbook's does. Where TRL computes
otherwise, ``benchmarks/notes/local.md`` says it.
"""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import chz
import torch
from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.rl.metric_util import compute_trajectory_metrics
from tinker_cookbook.rl.rollout_logging import serialize_rollout_summaries
from tinker_cookbook.rl.rollout_strategy import FailFast, RolloutStrategy
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, TrajectoryGroup
from transformers import PrinterCallback, TrainerState

from sciscidata.terminal.progress import begin_step
from sciscirl.envs.dataset import LabelDatasetBuilder
from sciscirl.envs.tokenizer import load_tokenizer
from sciscirl.errors import CollapseError, SciSciRLError
from sciscirl.lab.hardware_options import LocalTrainOptions
from sciscirl.lab.models.local_completer import LocalCompleter
from sciscirl.lab.models.local_model import refuse_pickles, require_packages
from sciscirl.lab.models.processes import count_processes, do_once, is_first, of_first, settle_processes
from sciscirl.lab.objectives.dataset import BegunRun
from sciscirl.lab.objectives.dynamic_sampling import DynamicSampling
from sciscirl.lab.sft.checkpoints import find_damage, recover_checkpoint
from sciscirl.lab.sft.peft_backend import (
    OF_STEP,
    Judge,
    Recorder,
    keep_adapter,
    list_arguments,
    make_model,
    settle_threads,
)
from sciscirl.lab.training.console import READ, follow_run
from sciscirl.lab.training.rl import (
    check_preset,
    enter_collapse,
    list_settings,
    make_alarm,
    make_evaluator,
    make_run_builder,
)
from sciscirl.lab.training.step_watch import KL
from sciscirl.options import Run, TrainOptions
from sciscirl.runs.chat_format import warn_of_renderer
from sciscirl.runs.checkpoints import find_checkpoint, find_weights, is_judged, list_weights
from sciscirl.runs.folder import disk_errors, expand_home, locked_folder
from sciscirl.runs.lineage import warn_of_other_release
from sciscirl.runs.logs import open_store
from sciscirl.runs.record import Course, begin_run
from sciscirl.task.experiment import Preset

if TYPE_CHECKING:
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

_SEEDS_APART = 1_000_003  # steps of runs with neighbouring seeds draw other numbers


def train_locally(run: Run[LocalTrainOptions]) -> Path:
    """Train an adapter, with evaluations on the way and one after the last step. Return the folder of the run.

    It holds what that of a run on a server holds, with the checkpoints themselves, and at the end ``adapter``. After a
    CollapseError it is complete; after a StorageError the run can be resumed.
    """
    options, preset, folder, begun_from = run.options, run.preset, run.folder, run.begun_from
    check_run(run)
    check_start(run)
    begin_step(READ)
    builder = make_run_builder(run)
    evaluator = make_evaluator(run, builder)  # what is wrong with the held-out papers is said first
    warn_of_renderer(preset.model, options.renderer)
    batches, _ = asyncio.run(builder())
    n_steps = run.count_steps(len(batches))
    arguments = make_arguments(run, n_steps)
    with disk_errors(folder), of_first(locked_folder(folder)):
        if begun_from is not None:
            warn_of_other_release(begun_from.get("manifest_sha256"), Path(options.release), begun_from.get("folder"))
        settings, release = list_own_settings(run, builder), Path(options.release)
        start = expand_home(str(options.load_checkpoint)) / begun_from["path"] if begun_from else None
        load = cache(partial(make_model, run, arguments, start))
        course = Course(n_steps, begun_from, find=recover_checkpoint, load=load)
        begin = partial(begin_run, folder, release, settings, options.behavior_if_log_dir_exists, course)
        step = do_once(begin)
        if step is None:
            return folder
        begun = BegunRun(folder=str(folder), first_step=step, action=options.collapse)
        dataset, _ = asyncio.run(chz.replace(builder, begun=begun)())
        checkpoint = find_checkpoint(folder)
        evaluator.alarm = make_alarm(run)
        player = Player(dataset, folder, preset, options.eval_batch_size, builder.renderer().tokenizer)
        trainer = make_trainer(load(), arguments, player)
        size = options.eval_batch_size
        completer = LocalCompleter.of_evaluator(evaluator, trainer.model, seed=preset.order.seed, batch_size=size)
        judge = Judge(evaluator, completer, folder, options.eval_every)
        trainer.add_callback(judge)
        trained_on = {"quantize": options.quantize, "dtype": options.dtype}
        trainer.add_callback(Recorder(folder, trained_on, player.describe_step))
        settle_threads(options, arguments, folder)
        stopped = None
        with of_first(follow_run(folder, preset.model, options.wandb_project, options.wandb_name)):
            try:
                with refuse_pickles(folder):
                    trainer.train(resume_from_checkpoint=str(find_weights(folder, checkpoint)) if checkpoint else None)
            except CollapseError as collapse:
                stopped = collapse
                do_once(partial(enter_collapse, folder, collapse, evaluator))
                evaluator.alarm = make_alarm(run, is_over=True)
            last = trainer.state.global_step
            if not do_once(partial(is_judged, folder, last)):
                judge.judge(last)
        if kept := [one for one in list_weights(folder) if one is not None]:
            do_once(partial(keep_adapter, folder, kept[-1], trained_on))
    if stopped is not None:
        raise stopped
    return folder


def check_run(run: Run[LocalTrainOptions]) -> None:
    """Refuse a run that cannot be trained here, before anything is loaded (SciSciRLError)."""
    four_bits = ["bitsandbytes"] if run.options.quantize == "nf4" else []
    require_packages("trl", "peft", "accelerate", *four_bits, extras="local")
    refuse_options(run)


def make_trainer(model: Any, arguments: GRPOConfig, player: Player) -> GRPOTrainer:  # noqa: ANN401 (PeftModel)
    """Put TRL's loop together: our papers and answers, its advantages, loss and update."""
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

    class Loop(GRPOTrainer):
        """TRL's loop, which also compares the probabilities of the sampled tokens in sampling and in training."""

        sampled: torch.Tensor
        is_answer: torch.Tensor

        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:  # noqa: ANN401
            self.sampled, self.is_answer = inputs["sampling_per_token_logps"], inputs["completion_mask"].bool()
            return super()._compute_loss(model, inputs)

        def _get_per_token_logps_and_entropies(self, *passed: Any, **options: Any) -> Any:  # noqa: ANN401
            found = super()._get_per_token_logps_and_entropies(*passed, **options)
            # At temperature 1 the sampler states its own.
            if options.get("compute_entropy") and player.preset.sampling.temperature == 1:
                player.differences.append((self.sampled - found[0].detach())[self.is_answer].float())
            return found

    n_shown = arguments.max_steps * player.preset.order.batch_size
    adapter = {name: weight.data for name, weight in model.named_parameters() if weight.requires_grad}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You are using 'rollout_func'")
        trainer = Loop(
            model=model,
            reward_funcs=read_rewards,
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": [str(number) for number in range(n_shown)]}),
            processing_class=load_tokenizer(player.preset.model),
            rollout_func=player,
        )
    # TRL rounds an adapter on four bits to bfloat16, and PEFT loads it as float32: a resumed run would differ.
    for name, weight in model.named_parameters():
        if name in adapter:
            weight.data = adapter[name]
    trainer.remove_callback(PrinterCallback)
    return trainer


def check_start(run: Run[LocalTrainOptions]) -> None:
    """Make sure that the adapter that a run goes on from is whole."""
    start = run.begun_from
    if start is not None:
        source = expand_home(str(run.options.load_checkpoint))
        record = find_checkpoint(source)
        damage = find_damage(source / start["path"], record.get("sha256", {}) if record else {})
        if damage is not None:
            raise SciSciRLError(
                f"load_checkpoint is {source}, whose {start['path']} is damaged: {damage}. Put the files back."
            )


def list_own_settings(run: Run[LocalTrainOptions], builder: LabelDatasetBuilder) -> dict[str, Any]:
    """List what decides how a step goes, with what is trained here alone."""
    own = {
        "backend": "local",
        **{name: getattr(run.options, name) for name in OF_STEP},
        "n_processes": count_processes(),
    }
    return list_settings(run, builder) | own


def read_rewards(prompts: Sequence[str], *, reward: list[float | None], **_: object) -> list[float | None]:
    """Return the rewards that the environments gave."""
    return reward


@dataclass(eq=False)
class Player:
    """Plays the papers of a step: what TRL calls a rollout function. TRL's prompts are places of papers in order.

    With several processes, each plays the papers that TRL gives it.

    Answers depend on seed, step, prompt, place and weights: a resumed run samples the same ones.
    """

    dataset: RLDataset
    folder: Path
    preset: Preset
    batch_size: int  # answers in one pass
    tokenizer: Any
    metrics: dict[str, float] = field(default_factory=dict[str, float])  # of the last step
    begun: float = 0.0  # the last step
    #: Log-probabilities of sampled tokens of the last step: sampler minus trainer.
    differences: list[torch.Tensor] = field(default_factory=list["torch.Tensor"])

    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        """Sample and score the answers of a step, in the order of its papers."""
        from accelerate.utils import gather_object

        self.begun = time.monotonic()
        step, first = divmod(int(prompts[0]), self.preset.order.batch_size)
        builders = self.dataset.get_batch(step)
        own = builders[first : first + len(prompts) // self.preset.sampling.group_size]
        model: Any = trainer.model
        model.eval()  # else checkpointing of gradients would forbid a cache of keys and values
        sampling: dict[str, Any] = {"max_tokens": self.preset.max_tokens}
        sampling |= {name: getattr(self.preset.sampling, name) for name in ("temperature", "top_p")}
        sampling |= {"seed": self.preset.order.seed * _SEEDS_APART + step, "batch_size": self.batch_size}
        groups = asyncio.run(self._play(own, LocalCompleter(model, self.tokenizer, **sampling)))
        model.train()
        tags, every = [builder.logging_tags() for builder in builders], gather_object(groups)
        if is_first():
            summaries = serialize_rollout_summaries(
                split="train", iteration=step, trajectory_groups_P=every, taglist_P=tags
            )
            open_store(self.folder).write_rollouts(step, summaries)
        turns = [trajectory.transitions[0] for group in groups for trajectory in group.trajectories_G]
        self.metrics = compute_trajectory_metrics(every, tags) | {"time/sampling": time.monotonic() - self.begun}
        return {
            "prompt_ids": [turn.ob.to_ints() for turn in turns],
            "completion_ids": [list(turn.ac.tokens) for turn in turns],
            "logprobs": [list(turn.ac.logprobs) for turn in turns],
            "reward": [reward for group in groups for reward in group.get_total_rewards()],
        }

    def describe_step(self, state: TrainerState, logs: Mapping[str, float]) -> dict[str, Any]:
        """Name the metrics of a step as the cookbook's loop does."""
        from accelerate.utils import gather_object

        differences = gather_object([one.cpu() for one in self.differences])
        apart = torch.cat(differences) if differences else torch.zeros(0)
        self.differences.clear()
        kl = dict(zip(KL, (apart.mean().item(), apart.square().mean().item() / 2), strict=True)) if len(apart) else {}
        named = {"loss": "loss", "grad_norm": "grad_norm", "entropy": "entropy", "learning_rate": "lr", "kl": "kl"}
        return {
            "progress/batch": state.global_step - 1,
            "progress/done_frac": state.global_step / state.max_steps,
            **self.metrics,
            **kl,
            **{f"optim/{ours}": logs[theirs] for theirs, ours in named.items() if theirs in logs},
            "time/total": time.monotonic() - self.begun,
        }

    async def _play(self, builders: Sequence[EnvGroupBuilder], completer: TokenCompleter) -> list[TrajectoryGroup]:
        strategy: RolloutStrategy = DynamicSampling() if self.preset.sampling.dynamic_sampling else FailFast()
        return await asyncio.gather(*(do_group_rollout(one, completer, strategy=strategy) for one in builders))


#: Options of a server, and why they have no effect here.
NOT_HERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "base_url": "the model is trained in this process",
        "ttl_seconds": "checkpoints lie in the folder of the run until you delete them",
        "evaluators": "the benchmarks of the cookbook ask a Tinker server",
        "max_steps_off_policy": "TRL samples and trains in turn",
        "stream_minibatch_config": "micro_batch_size divides a step",
        "compute_post_kl": "TRL logs its own KL",
        "rolling_save_every": "checkpoints lie in the folder of the run until you delete them",
    }
)
#: No ratio of probabilities reaches these ends, so nothing is clipped.
_NO_CLIP: Final = 1e9
#: Gradients of this norm are clipped: none. TRL logs the norm only if there is a limit.
_NO_LIMIT: Final = 1e9


def refuse_server_options(options: TrainOptions) -> None:
    """Refuse options of a server (SciSciRLError)."""
    for one in fields(options):
        if one.name in NOT_HERE and getattr(options, one.name) != one.default:
            raise SciSciRLError(f"{one.name} has no effect with backend=local: {NOT_HERE[one.name]}. Leave it out.")


def refuse_options(run: Run[LocalTrainOptions]) -> None:
    """Refuse what TRL's loop does not do, by name (SciSciRLError)."""
    options, preset = run.options, run.preset
    refuse_server_options(options)
    settle_processes()
    check_preset(preset)
    n_processes = count_processes()
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        raise SciSciRLError(
            "accelerate would share the weights out (FSDP), but backend=local samples answers of unlike lengths, so "
            "processes would wait for each other. Leave --use_fsdp out: each GPU then holds a whole model."
        )
    if n_processes > 1 and preset.rules.table.share_penalty:
        raise SciSciRLError(
            f"preset {preset.name} pays by what all answers of a step say, and {n_processes} processes were started. "
            "Start one, or set share_penalty=0."
        )
    if preset.order.batch_size % n_processes:
        raise SciSciRLError(f"batch_size is {preset.order.batch_size}, needs a multiple of {n_processes} processes.")
    if preset.adversarial is not None:
        raise SciSciRLError(
            f"preset {preset.name} challenges answers, which backend=local cannot do: TRL's loop asks for one answer, "
            "without a second turn. Train on a server: backend=tinker."
        )
    no_other_reference = "TRL compares with the weights that the run begins with"
    refused = (
        ("num_substeps", 1, "a step of TRL is one update of the weights"),
        ("kl_reference_config", (), no_other_reference),
        ("kl_discount_factor", 0.0, "TRL's KL term is a loss of each token by itself"),
        *((("kl_penalty_coef", 0.0, f"{no_other_reference}, not with the base model"),) if run.begun_from else ()),
    )
    for name, only, why in refused:
        if (chosen := getattr(preset.optimiser, name)) != only:
            remedy = "Leave it out" if only == () else f"Set {name}={only}"
            raise SciSciRLError(
                f"{name} is {dict(chosen) if only == () else chosen}, which backend=local cannot do: {why}. {remedy}, "
                "or train on a server: backend=tinker."
            )
    if preset.optimiser.loss_fn == "dro":
        raise SciSciRLError(
            "loss_fn is dro, which TRL does not have. Set loss_fn=importance_sampling, or backend=tinker."
        )
    n_answers = preset.order.batch_size * preset.sampling.group_size // n_processes
    if n_answers % options.micro_batch_size:
        raise SciSciRLError(
            f"micro_batch_size is {options.micro_batch_size}, needs a divisor of {n_answers}: "
            f"{preset.order.batch_size // n_processes} papers (batch_size) with {preset.sampling.group_size} answers "
            "(group_size)."
        )


def name_losses(preset: Preset) -> dict[str, Any]:
    """Name TRL's loss for that of a preset, with its clip thresholds."""
    clips = dict(preset.optimiser.loss_fn_config)
    low, high = clips.get("clip_low_threshold", 0.8), clips.get("clip_high_threshold", 1.2)
    if preset.optimiser.loss_fn == "cispo":
        return {"loss_type": "cispo", "epsilon_high": high}
    if preset.optimiser.loss_fn == "ppo":
        return {"loss_type": "dr_grpo", "epsilon": round(1 - low, 9), "epsilon_high": round(high - 1, 9)}
    return {"loss_type": "dr_grpo", "epsilon": _NO_CLIP, "epsilon_high": _NO_CLIP}


def make_arguments(run: Run[LocalTrainOptions], n_steps: int) -> GRPOConfig:
    """Configure TRL's loop: our order of papers and steps, and advantages, loss and optimizer of the cookbook's.

    TRL divides the summed loss of a step by answers times ``max_tokens``, which only Adam's ``eps`` notices: it is
    divided likewise.
    """
    from trl.trainer.grpo_config import GRPOConfig

    options, preset = run.options, run.preset
    n_answers = preset.order.batch_size * preset.sampling.group_size
    return GRPOConfig(
        **list_arguments(run, n_steps),
        gradient_accumulation_steps=n_answers // options.micro_batch_size // count_processes(),
        num_generations=preset.sampling.group_size,
        max_completion_length=preset.max_tokens,
        shuffle_dataset=False,
        temperature=preset.sampling.temperature,
        **name_losses(preset),
        scale_rewards="none",
        beta=preset.optimiser.kl_penalty_coef,
        lr_scheduler_type="constant",
        adam_epsilon=preset.optimiser.adam_eps / (n_answers * preset.max_tokens),
        max_grad_norm=_NO_LIMIT,
        disable_tqdm=True,
    )
