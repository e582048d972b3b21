"""The batches of a run of ours: those of ``LabelDatasetBuilder``, with what a preset adds to them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import chz
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, Metrics, RLDataset, Trajectory

from sciscirl.envs.dataset import Epochs, GroupMaker, LabelDataset, LabelDatasetBuilder
from sciscirl.envs.env import LabelEnv, LabelGroupBuilder, measure_group
from sciscirl.errors import SciSciRLError
from sciscirl.lab.adversarial.env import AdversarialGroupBuilder
from sciscirl.lab.objectives.batch_term import ShareTracker, batch_term
from sciscirl.lab.objectives.collapse_watch import TrainingWatch
from sciscirl.metrics.collapse import CollapseAction
from sciscirl.runs.logs import read_answers
from sciscirl.task.experiment import AdversarialRules
from sciscirl.task.papers import Paper, class_of


@dataclass(frozen=True)
class RunGroupBuilder(EnvGroupBuilder):
    """A group with spare papers, a batch term, or both. Pickles.

    Attributes:
        group: the answers to one paper.
        spares: papers of the same class to ask about instead if the rewards are all equal
            (``dynamic_sampling.DynamicSampling``).
        excess: how much too often each label was said recently, for the batch term; empty: no batch term.
        tracker: counts the labels that the answers of this group say.
        batch: the number of the batch, for the tracker.
    """

    group: LabelGroupBuilder
    spares: tuple[Paper, ...] = ()
    excess: Mapping[str, float] = field(default_factory=dict[str, float])
    tracker: ShareTracker | None = None
    batch: int = 0

    async def make_envs(self) -> Sequence[Env]:
        """Make the environments of the group; a SciSciRLError where spares would never be asked about."""
        if self.spares:  # DynamicSampling asks the group itself
            raise SciSciRLError(
                "n_spares is set, and this loop never samples a group again. "
                "Give its configuration rollout_error_tolerance=DynamicSampling(), or leave n_spares out."
            )
        return await self.group.make_envs()

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[Env]
    ) -> list[tuple[float, Metrics]]:
        """Add the batch term, if there is one, and log it with the tie rates of the group and the spares used."""
        terms = [self._batch_term(env) for env in env_group]
        rewards = [
            sum(step.reward for step in trajectory.transitions) + term
            for trajectory, term in zip(trajectory_group, terms, strict=True)
        ]
        shared = measure_group(rewards)
        if self.spares:
            papers = [env.paper for env in env_group if isinstance(env, LabelEnv)]
            shared["spares_used"] = (self.group.paper, *self.spares).index(papers[0])
        if self.tracker is None:
            return [(0.0, shared) for _ in trajectory_group]
        shared["batch_term_answers"] = self.tracker.count_answers(self.batch)
        return [(term, {**shared, "reward/batch": term}) for term in terms]

    def _batch_term(self, env: Env) -> float:
        if self.tracker is None or not isinstance(env, LabelEnv) or env.answer is None:
            return 0.0
        self.tracker.record(self.batch, env.answer)
        return batch_term(env.answer, self.excess, self.group.rules.table)

    def logging_tags(self) -> list[str]:
        """Return the tags of the group."""
        return self.group.logging_tags()


@dataclass(eq=False)
class RunDataset(RLDataset):
    """The training batches of a run."""

    batches: LabelDataset
    n_spares: int = 0  # of each group, for dynamic sampling: the next ones of its class outside its batch
    tracker: ShareTracker | None = None  # counts what was said recently, for a reward with a batch term
    watch: TrainingWatch | None = None  # called before each batch is made

    def __len__(self) -> int:
        return len(self.batches)

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """Return the groups of one step; the watch may raise CollapseError because of the batches before it."""
        if self.watch is not None and 0 <= index < len(self):
            self.watch(index)
        groups = self.batches.get_batch(index)
        if not self.n_spares and self.tracker is None:
            return groups
        excess = {} if self.tracker is None else self.tracker.find_excess(index)
        return [
            RunGroupBuilder(group, spares, excess, self.tracker, index)
            for group, spares in zip(groups, self._find_spares(index), strict=True)
        ]

    def _find_spares(self, index: int) -> list[tuple[Paper, ...]]:
        """Give each paper the next ones of its class, from the batch's end on and round to its start."""
        batch, target, every = self.batches.batch(index), self.batches.rules.target, self.batches.papers
        if not self.n_spares:
            return [()] * len(batch)
        # Any two epochs' stretch holds every paper: further on there is no other spare.
        n_all, start = len(every), index * self.batches.batch_size
        reach = min(n_all, 2 * len(every.papers)) if isinstance(every, Epochs) else n_all
        shown = {paper.openalex_id for paper in batch}
        wanted = Counter(class_of(paper, target) for paper in batch)
        found: dict[tuple[str, ...], dict[str, Paper]] = defaultdict(dict)
        for place in range(len(batch), reach):
            paper = every[(start + place) % n_all]
            own = class_of(paper, target)
            if paper.openalex_id not in shown and len(found[own]) < wanted[own] * self.n_spares:
                found[own].setdefault(paper.openalex_id, paper)
            if all(len(found[own]) == count * self.n_spares for own, count in wanted.items()):
                break
        # Dealt out in turn, so that if there are too few, no paper of the batch gets them all.
        dealt = {own: list(spares.values()) for own, spares in found.items()}
        turn = Counter[tuple[str, ...]]()
        spares: list[tuple[Paper, ...]] = []
        for paper in batch:
            own = class_of(paper, target)
            spares.append(tuple(dealt.get(own, [])[turn[own] :: wanted[own]]))
            turn[own] += 1
        return spares


@dataclass(frozen=True, kw_only=True)
class BegunRun:
    """A run that has begun, for what its batches read back and watch.

    Attributes:
        folder: of the run; the answers of earlier steps are read back from its rollouts.
        first_step: the step at which the run begins or continues.
        action: what to do about a collapsed model, as in TrainingWatch.
    """

    folder: str
    first_step: int = 0
    action: CollapseAction = "off"


@chz.chz
class RunDatasetBuilder(LabelDatasetBuilder):
    """As LabelDatasetBuilder, with what a preset and a run add.

    Attributes:
        n_spares: as in RunDataset. Needs ``DynamicSampling`` in the loop (``dynamic_sampling.py``).
        adversarial: how answers are challenged; ``reward`` is then not used. None: no challenge.
        begun: where the run is and goes on. None: nothing is read back, and nobody watches for a collapse.
    """

    n_spares: int = 0
    adversarial: AdversarialRules | None = None
    begun: BegunRun | None = None

    def group_maker(self) -> GroupMaker:
        """Return what makes a group, of challenged episodes if the preset is adversarial."""
        if self.adversarial is None:
            return LabelGroupBuilder
        return partial(AdversarialGroupBuilder, adversarial=self.adversarial)

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        """Build the training batches, and the held-out ones in the order of the release.

        Raises:
            ReleaseError: the release is missing or was altered.
            PromptError: a paper does not fit under ``max_paper_tokens`` even without its abstract.
            SciSciRLError: the release has too few papers for one batch, the tokenizer cannot be loaded, or an option
                has no effect.
        """
        train, test = self.build()
        watch, tracker, run = None, None, self.begun
        if run is not None:
            watch = TrainingWatch(run.folder, self.task.target, batch_size=self.order.batch_size, action=run.action)
        if train.rules.table.share_penalty:
            tracker = ShareTracker(train.rules.class_counts, target=train.rules.target)
            if run is not None:
                tracker.recall(run.first_step, partial(read_answers, Path(run.folder)))
        return RunDataset(train, self.n_spares, tracker, watch), test
