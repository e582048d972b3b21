"""The options of a sweep."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from sciscidata.options.checks import Folder, PositiveInt
from sciscirl.lab.hardware_options import HardwareOptions
from sciscirl.options import GoldOptions, TrainOptions, partial_of_preset
from sciscirl.task.experiment import LearningRate

#: How a run of a sweep is trained: by reward, on gold answers, or by reward after gold answers.
Way = Literal["rl", "sft", "sft_rl"]


@partial_of_preset()
class SweepOptions(TrainOptions, GoldOptions):
    """Options of a sweep.

    Attributes:
        preset: the experiments, separated by commas: exp4,exp6.
        seeds: train each of them with these seeds.
        way: how to train: rl (reinforcement learning), sft (supervised), or sft_rl (rl from the supervised run of the
            same seed, which is trained, too).
        vary: options and their values, of which every combination is trained:
            group_size:4,8,16 learning_rate:1e-5,4e-5.
        rollouts_per_step: answers in a step of reinforcement learning, whatever the group size: larger groups then have
            fewer papers; None: batch_size counts.
        eval_split: papers that all runs are judged by: dev, held_out (training papers that are kept out) or test;
            None: dev, or held_out if the release has no dev.
        learning_rate: of reinforcement learning; None: the preset's.
        batch_size: papers in a step of reinforcement learning; None: the preset's.
        sft_learning_rate: at the first step of supervised runs; it falls linearly to 0.
        sft_batch_size: papers in a step of supervised runs; None: the preset's.
        sft_n_epochs: how often supervised runs show each paper.
        sft_max_steps: stop supervised runs after this many steps; None: after the last epoch.
        jobs: how many runs train at once, each in its own process; one that begins from a supervised run waits for it.
        out: the folder of the sweep; a sweep that is there goes on.
    """

    seeds: Annotated[tuple[int, ...], Meta(min_length=1)] = (0,)
    way: Annotated[tuple[Way, ...], Meta(min_length=1)] = ("rl",)
    vary: tuple[str, ...] = ()
    rollouts_per_step: PositiveInt | None = None
    sft_learning_rate: LearningRate = 1e-4
    sft_batch_size: PositiveInt | None = None
    sft_n_epochs: PositiveInt = 3
    sft_max_steps: PositiveInt | None = None
    backend: ClassVar[Literal["tinker", "local"]] = "tinker"
    jobs: PositiveInt = 1
    out: Folder = "runs/sweep"


@partial_of_preset(eval_batch_size=32)
class LocalSweepOptions(SweepOptions, HardwareOptions):
    """Options of a sweep on your own hardware, whose runs have a process each.

    Attributes:
        micro_batch_size: answers, in supervised runs papers, in one pass of training; must divide those of a step.
        eval_batch_size: answers in one pass of sampling, in training and evaluations.
        jobs: how many runs train at once, on the same GPU and processors.
    """

    backend = "local"
