"""What a training run is started with: the options of each way to train, which the commands take too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from sciscidata._support.validate import Folder, PositiveInt, check_fields
from sciscirl.errors import SciSciRLError
from sciscirl.metrics.collapse import CollapseAction
from sciscirl.runs.local_model import Precision, Quantization
from sciscirl.task.contracts import ContractName
from sciscirl.task.prompts import PromptStyle

Temperature = Annotated[float, Meta(ge=0)]
#: Tinker keeps a checkpoint for ten years at most.
Days = Annotated[int, Meta(ge=1, le=3650)]
#: Enough to end a run, read its evaluations and choose a checkpoint.
DAYS_KEPT = 90


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """Options of every training run.

    Attributes:
        preset: the experiment, one of those that ``sciscirl presets`` lists.
        release: the folder of a release.
        target: the labels that are asked for: disruption, novelty, joint, or an own label of the release, by its name
            or as "label"; None: the preset's.
        model: the base model, by name or folder; None: the preset's.
        renderer: the chat format; None: the model's own, without thinking.
        log_path: the folder of the run; None: runs/PRESET, with sft-BACKEND before PRESET for supervised runs.
        resume: continue this run where it stopped.
        dry_run: show the settings and some prompts, and train nothing.
        max_steps: stop after this many steps; None: after the last epoch.
        n_epochs: how often each paper is shown, each time in another order.
        eval_every: steps between evaluations; one more follows the last step.
        save_every: steps between checkpoints.
        n_train: use only the first training papers, this many; None: all.
        n_test: use only the first test papers, this many; None: all.
        interleave: spread the classes evenly over the batches; None: as the preset does.
        seed: of the order of the papers, and of new weights; None: the preset's.
        batch_size: papers in a step; None: the preset's.
        learning_rate: of the optimizer; None: the preset's.
        lora_rank: of the adapter; None: the preset's.
        max_tokens: longest answer that is sampled; None: the preset's.
        max_paper_tokens: cut the text of a paper to this many tokens; None: the preset's.
        eval_temperature: of sampling in evaluations, 0 is greedy; None: that of training.

    Raises:
        SciSciRLError: on construction, if a value is impossible.
    """

    preset: str = "baseline"
    release: Folder = "slices/openalex"
    target: str | None = None
    model: str | None = None
    renderer: str | None = None
    log_path: Folder | None = None
    resume: bool = False
    dry_run: bool = False
    max_steps: PositiveInt | None = None
    n_epochs: PositiveInt | None = None
    eval_every: PositiveInt = 50
    save_every: PositiveInt = 50
    n_train: PositiveInt | None = None
    n_test: PositiveInt | None = None
    interleave: bool | None = None
    seed: int | None = None
    batch_size: PositiveInt | None = None
    learning_rate: float | None = None
    lora_rank: PositiveInt | None = None
    max_tokens: PositiveInt | None = None
    max_paper_tokens: PositiveInt | None = None
    eval_temperature: Temperature | None = None

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainOptions(RunOptions):
    """Options of reinforcement learning.

    Attributes:
        max_steps: training steps (the published tables show step 250).
        n_epochs: how often each paper may be shown; None: as often as the steps need.
        group_size: answers to each paper, within which rewards are centred; None: the preset's.
        temperature: of sampling in training; None: the preset's.
        base_url: a Tinker server; None: TINKER_BASE_URL, else Tinker.
        keep_days: Tinker deletes checkpoints after this many days, except the last one.
        eval_concurrently: train on during evaluations; None: on Tinker, without W&B.
        collapse: when all answers have one label, warn, stop with exit status 3, or do nothing.
        remove_constant_reward_groups: leave out groups whose rewards are all equal; None: as the preset does.
        dynamic_sampling: how often a group with equal rewards is first sampled again,
            with another paper (DAPO); None: the preset's.
        challenger: of an adversarial preset: rules, or a base model; None: the preset's.
        judge: of an adversarial preset: a base model that judges reasoning; None: the preset's rubric.
        load_checkpoint: start from these weights (tinker://...).
        wandb_project: log to this project of Weights & Biases too.
        wandb_name: of the run there; None: the folder's name.

    Example:
        >>> TrainOptions(preset="exp4", max_steps=0)
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: TrainOptions.max_steps is 0, needs a whole number from 1.
    """

    max_steps: PositiveInt = 250
    group_size: PositiveInt | None = None
    temperature: Annotated[float, Meta(gt=0)] | None = None
    base_url: str | None = None
    keep_days: Days = DAYS_KEPT
    eval_concurrently: bool | None = None
    collapse: CollapseAction = "warn"
    remove_constant_reward_groups: bool | None = None
    dynamic_sampling: Annotated[int, Meta(ge=0)] | None = None
    challenger: str | None = None
    judge: str | None = None
    load_checkpoint: str | None = None
    wandb_project: str | None = None
    wandb_name: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSizeOptions(TrainOptions):
    """Options of a sweep over group sizes.

    Attributes:
        sizes: the group sizes.
        rollouts_per_step: answers in a step, whatever the group size; larger groups then have fewer papers.
        out: the folder of the sweep; a sweep that is there goes on.
    """

    sizes: tuple[int, ...] = (4, 8, 16)
    rollouts_per_step: PositiveInt = 128
    out: Folder = "runs/group_sizes"


@dataclass(frozen=True, kw_only=True, slots=True)
class SftOptions(RunOptions):
    """Options of supervised fine-tuning.

    Attributes:
        preset: the experiment whose prompt and contract are used (see ``sciscirl presets``).
        n_epochs: how often each paper is shown, each time in another order.
        learning_rate: at the first step; it falls linearly to 0.
        style: the prompt; None: the preset's.
        contract: the keys of an answer; None: the preset's.
        confidence: in every target answer, because a release has no gold for it.
    """

    preset: str = "exp4"
    n_epochs: PositiveInt = 3
    learning_rate: float = 1e-4
    style: PromptStyle | None = None
    contract: ContractName | None = None
    confidence: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TinkerSftOptions(SftOptions):
    """Options of supervised fine-tuning on a Tinker server.

    Attributes:
        base_url: a Tinker server; None: TINKER_BASE_URL, else Tinker.
        keep_days: Tinker deletes checkpoints after this many days, except the last one.
    """

    base_url: str | None = None
    keep_days: Days = DAYS_KEPT


@dataclass(frozen=True, kw_only=True, slots=True)
class PeftSftOptions(SftOptions):
    """Options of supervised fine-tuning on your own GPUs.

    Attributes:
        quantize: the base model: nf4 has four bits, none leaves it as it is.
        use_dora: train magnitude and direction apart (DoRA); without it LoRA.
        lora_alpha: scale of the adapter times its rank; Tinker's is always 32.
        dtype: of computation, and of weights that are not quantized.
        micro_batch_size: papers in one pass of one device; must divide batch_size.
        eval_batch_size: papers in one pass in evaluations.
        gradient_checkpointing: use less memory and more time.
    """

    quantize: Quantization = "nf4"
    use_dora: bool = True
    lora_alpha: PositiveInt = 32
    dtype: Precision = "bfloat16"
    micro_batch_size: PositiveInt = 1
    eval_batch_size: PositiveInt = 16
    gradient_checkpointing: bool = True
