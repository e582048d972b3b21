"""Which papers a run sees, and in which order: the cookbook's ``RLDataset`` and its builder."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, Final, overload

import chz
from tinker_cookbook.renderers import Renderer
from tinker_cookbook.rl.types import RLDataset, RLDatasetBuilder

from sciscidata.options.checks import PositiveInt, check_value
from sciscidata.storage import hash_file
from sciscidata.terminal.messages import counted
from sciscirl.envs.class_share_penalty import ShareTracker
from sciscirl.envs.collapse_watch import TrainingWatch
from sciscirl.envs.env import LabelGroupBuilder, build_messages, count_tokens
from sciscirl.errors import RewardError, SciSciRLError, with_own_names
from sciscirl.lab_parts import load_part
from sciscirl.metrics.collapse import CollapseAction
from sciscirl.options import Run, RunOptions, TrainOptions, resolve_run
from sciscirl.presets import PUBLISHED
from sciscirl.runs.chat_format import choose_renderer, make_renderer
from sciscirl.runs.folder import read_answers
from sciscirl.task.experiment import Order
from sciscirl.task.papers import (
    HELD_OUT_SEED,
    EvalSplit,
    Paper,
    PaperChoice,
    PartName,
    SplitName,
    Target,
    choose_eval_split,
    class_of,
    list_labels,
    read_part,
    read_split,
    size_held_out,
)
from sciscirl.task.prompts import count_least
from sciscirl.task.rules import TaskRules

_N_KEPT: Final = 3  # epochs: a batch may straddle two, and find its spares in a third


def order_papers(
    papers: Iterable[Paper], seed: int, epoch: int = 0, *, interleave: bool = False, target: Target = "disruption"
) -> list[Paper]:
    """Sort papers into the order in which an epoch shows them: by SHA-256 of seed, epoch and id.

    Adding or removing a paper keeps the order of all others. ``interleave`` spreads each class (in the joint task every
    pair of labels) evenly: with equal class counts, the counts in a batch differ by at most one.
    """
    ordered = sorted(papers, key=lambda paper: hashlib.sha256(f"{seed}:{epoch}:{paper.openalex_id}".encode()).digest())
    if not interleave:
        return ordered
    classes: dict[tuple[str, ...], list[Paper]] = defaultdict(list)
    for paper in ordered:
        classes[class_of(paper, target)].append(paper)
    placed = [
        ((rank + 0.5) / len(classes[labels]), order, paper)
        for order, labels in enumerate(product(*list_labels(target).values()))
        for rank, paper in enumerate(classes[labels])
    ]
    return [paper for *_, paper in sorted(placed, key=lambda place: place[:2])]


class Epochs(Sequence[Paper]):
    """The same papers epoch after epoch, each in another order; ``n_shown`` in all. An order is made when needed."""

    def __init__(
        self,
        papers: Sequence[Paper],
        n_shown: int,
        seed: int,
        *,
        interleave: bool = False,
        target: Target = "disruption",
    ) -> None:
        self.papers = tuple(papers)
        self._n_shown = min(n_shown, sys.maxsize)  # len() can say no more
        self._order = partial(order_papers, self.papers, seed, interleave=interleave, target=target)
        self._kept: dict[int, list[Paper]] = {}

    def first(self, n_shown: int) -> Epochs:
        """Return the first ``n_shown`` papers, or all, without going through them."""
        return Epochs(self.papers, min(n_shown, len(self)), *self._order.args[1:], **self._order.keywords)

    def __len__(self) -> int:
        return self._n_shown

    @overload
    def __getitem__(self, index: int) -> Paper: ...
    @overload
    def __getitem__(self, index: slice) -> list[Paper]: ...
    def __getitem__(self, index: int | slice) -> Paper | list[Paper]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        epoch, place = divmod(range(len(self))[index], len(self.papers))
        if epoch not in self._kept:
            self._kept = dict([*self._kept.items(), (epoch, self._order(epoch))][-_N_KEPT:])
        return self._kept[epoch][place]


def check_fit(papers: Iterable[Paper], rules: TaskRules, renderer: Renderer) -> None:
    """Check before a run that every paper fits into its prompt, at least without its abstract.

    PromptError if not: it names the cap under which all of them fit.
    """
    every = papers.papers if isinstance(papers, Epochs) else papers
    # A token has at least one byte, so for most papers no token has to be counted.
    long = [
        paper for paper in every if count_least(paper.view, lambda text: len(text.encode())) > rules.max_paper_tokens
    ]
    if long:
        count = partial(count_tokens, renderer)
        build_messages(max(long, key=lambda paper: count_least(rules.see(paper.view), count)), rules, renderer)


@dataclass(eq=False)
class LabelDataset(RLDataset):
    """Batches of groups over papers, in the order in which they are shown."""

    papers: Sequence[Paper]
    rules: TaskRules
    renderer: Renderer
    _: KW_ONLY
    batch_size: int
    group_size: int
    n_spares: int = 0  # of each group, for dynamic sampling: the next ones of its class outside its batch
    tracker: ShareTracker | None = None  # counts what was said recently, for a reward with a batch term
    watch: TrainingWatch | None = None  # called before each batch is made
    keep_rest: bool = False  # keep a last, smaller batch: yes for evaluation, no for training with equal steps
    make_group: Callable[..., LabelGroupBuilder] = LabelGroupBuilder  # or another with its arguments

    def __post_init__(self) -> None:
        for name in ("batch_size", "group_size"):
            check_value(name, getattr(self, name), PositiveInt, SciSciRLError)

    def get_batch(self, index: int) -> Sequence[LabelGroupBuilder]:
        """Return the groups of one step; the watch may raise CollapseError because of the batches before it."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        if self.watch is not None:
            self.watch(index)
        start = index * self.batch_size
        papers = self.papers[start : start + self.batch_size]
        excess = {} if self.tracker is None else self.tracker.find_excess(index)
        return [
            self.make_group(paper, self.rules, self.renderer, self.group_size, spares, excess, self.tracker, index)
            for paper, spares in zip(papers, self._find_spares(start, papers), strict=True)
        ]

    def _find_spares(self, start: int, papers: Sequence[Paper]) -> list[tuple[Paper, ...]]:
        """Give each paper the next ones of its class, from the batch's end on and round to its start."""
        if not self.n_spares:
            return [()] * len(papers)
        # Any two epochs' stretch holds every paper: further on there is no other spare.
        n_all = len(self.papers)
        reach = min(n_all, 2 * len(self.papers.papers)) if isinstance(self.papers, Epochs) else n_all
        shown = {paper.openalex_id for paper in papers}
        wanted = Counter(class_of(paper, self.rules.target) for paper in papers)
        found: dict[tuple[str, ...], dict[str, Paper]] = defaultdict(dict)
        for place in range(len(papers), reach):
            paper = self.papers[(start + place) % n_all]
            own = class_of(paper, self.rules.target)
            if paper.openalex_id not in shown and len(found[own]) < wanted[own] * self.n_spares:
                found[own].setdefault(paper.openalex_id, paper)
            if all(len(found[own]) == count * self.n_spares for own, count in wanted.items()):
                break
        # Dealt out in turn, so that if there are too few, no paper of the batch gets them all.
        dealt = {own: list(spares.values()) for own, spares in found.items()}
        turn = Counter[tuple[str, ...]]()
        spares: list[tuple[Paper, ...]] = []
        for paper in papers:
            own = class_of(paper, self.rules.target)
            spares.append(tuple(dealt.get(own, [])[turn[own] :: wanted[own]]))
            turn[own] += 1
        return spares

    def __len__(self) -> int:
        return (len(self.papers) + (self.batch_size - 1 if self.keep_rest else 0)) // self.batch_size


@chz.chz
class LabelDatasetBuilder(RLDatasetBuilder):
    """From a release to the training batches and the held-out ones.

    Attributes:
        release: the folder of the release.
        model_name: whose tokenizer is used: a name on the Hugging Face hub, or a folder.
        renderer_name: the chat format.
        task: labels, prompt, contract and reward.
        order: which papers come in which step.
        choice: which papers. Its ``eval_split`` is by which papers the run is judged; ``held_out``: training papers
            that it does not train on. None: dev if the release has one, else held_out. ``n_train`` and ``n_test`` take
            a stratified head of the papers (``take_head``).
        group_size: answers to a paper in training.
        eval_group_size: answers to a held-out paper.
        n_epochs: how often every training paper is shown, each time in another order; a batch may straddle two epochs.
        n_spares: as in LabelDataset. Needs ``DynamicSampling`` in the loop (``answer_sampling.py``).
        run: the folder of the run; the answers of earlier steps are read back from its rollouts.
        first_step: the step at which the run begins or continues.
        collapse: what to do about a collapsed model, as in TrainingWatch. Needs ``run``.
        has_test: whether to return the held-out batches, for the cookbook's own evaluator.

    On the command line of a loop of your own, the parts are written with dots: ``dataset_builder.task.style=plain
    dataset_builder.order.batch_size=8``.
    """

    release: str
    model_name: str
    renderer_name: str
    task: TaskRules = TaskRules()
    order: Order = Order()
    choice: PaperChoice = chz.field(default=PaperChoice(), munger=lambda own, choice: _settle(choice, own.release))
    group_size: int = 2
    eval_group_size: int = 1
    n_epochs: int = 1
    n_spares: int = 0
    run: str | None = None
    first_step: int = 0
    collapse: CollapseAction = "off"
    has_test: bool = True

    @classmethod
    def from_preset(cls, name: str, release: str, model: str, **options: Any) -> LabelDatasetBuilder:  # noqa: ANN401
        """Return the builder with which ``sciscirl train`` trains this preset, for a loop of your own.

        It has no held-out batches, because ``train_preset`` brings its evaluator: ``chz.replace(..., has_test=True)``.

        Args:
            name: the preset; an adversarial one has its own kind of builder.
            release: the folder of the release.
            model: the base model, by name or folder.
            options: others of TrainOptions, by our names or the cookbook's. Papers are shown as often as ``max_steps``
                takes.

        Raises:
            ReleaseError: the release is missing or was altered.
            SciSciRLError: no preset has that name, or an option is impossible or has no effect.
        """
        options = with_own_names(options)
        return make_dataset_builder(resolve_run(TrainOptions(preset=name, release=release, model=model, **options)))

    def rules(self) -> TaskRules:
        """Return labels, prompt, contract and reward, fitted to the training papers (``TaskRules.fitted``).

        Raises:
            ReleaseError: the release is missing or was altered.
            RewardError: the reward does not suit the training papers.
        """
        try:
            return self.task.fitted(self.read("train"))
        except RewardError:
            self.train_papers()  # too few for a batch: the cause is said, not what follows from it
            raise

    @cached_property
    def _splits(self) -> dict[str, list[Paper]]:
        return {}

    def _read_split(self, split: SplitName) -> list[Paper]:
        """Read a split, once."""
        if split not in self._splits:
            task = self.task
            self._splits[split] = read_split(self.release, split, target=task.target, with_chances=task.is_weighed)
        return self._splits[split]

    @property
    def eval_split(self) -> EvalSplit:
        """By which papers the run is judged."""
        return self.choice.eval_split or choose_eval_split(self.release)

    def n_held_out(self) -> int:
        """Return how many training papers are kept out to judge the run (ReleaseError)."""
        size = self.order.batch_size
        return size_held_out(len(self._read_split("train")), size) if self.eval_split == "held_out" else 0

    def describe_papers(self) -> dict[str, Any]:
        """Say for the record of a run which papers it trains on and is judged by."""
        facts = {name: getattr(self.choice, name) for name in ("eval_split", "n_train", "n_test")}
        if n_kept := self.n_held_out():
            facts |= {"n_held_out": n_kept, "held_out_seed": HELD_OUT_SEED}
        if self.choice.ids is not None:
            facts["ids_sha256"] = hash_file(Path(self.choice.ids))
        return facts | ({"class_counts": dict(counts)} if (counts := self.rules().class_counts) else {})

    def read(self, part: PartName) -> list[Paper]:
        """Read this run's papers in a part of the release, in the order of the release."""
        return read_part(
            self.release,
            part,
            target=self.task.target,
            n_papers=self.choice.n_train if part == "train" else self.choice.n_test,
            n_held_out=self.n_held_out(),
            ids=self.choice.ids,
            papers=self._read_split("train" if part == "held_out" else part),
        )

    def renderer(self) -> Renderer:
        """Return the renderer; it pickles."""
        return make_renderer(self.model_name, self.renderer_name)

    def group_maker(self) -> Callable[..., LabelGroupBuilder]:
        """Return what makes a group, from the arguments of LabelGroupBuilder."""
        return LabelGroupBuilder

    def train_papers(self) -> Epochs:
        """Return the training papers in the order in which they are shown, epoch after epoch.

        Raises:
            ReleaseError: the release is missing or was altered.
            SciSciRLError: it has too few papers for one batch.
        """
        check_value("n_epochs", self.n_epochs, PositiveInt, SciSciRLError)
        papers = self.read("train")
        order = self.order
        if len(papers) < order.batch_size:
            n_every, n_kept = len(self._read_split("train")), self.n_held_out()
            kept = f", and {n_kept:,} of these are kept out to judge the run" if n_kept else ""
            raise SciSciRLError(
                f"the run has {counted(len(papers), 'training paper')}, too few for one batch of {order.batch_size} "
                f"different ones; {self.release} has {n_every:,}{kept}. Lower batch_size, or take more: a larger "
                "release, one with a development split (n_dev), n_train or ids."
            )
        n_shown = len(papers) * self.n_epochs
        return Epochs(papers, n_shown, order.seed, interleave=order.interleave, target=self.task.target)

    def eval_papers(self) -> list[Paper]:
        """Return the papers of ``eval_split`` in the order of the release.

        Raises:
            ReleaseError: the release is missing or was altered, or has no such split.
        """
        return self.read(self.eval_split)

    def _tracker(self, rules: TaskRules) -> ShareTracker:
        tracker = ShareTracker(rules.class_counts, target=rules.target)
        if self.run is not None:
            tracker.recall(self.first_step, partial(read_answers, Path(self.run)))
        return tracker

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        """Build the training batches, and the held-out ones in the order of the release.

        Raises:
            ReleaseError: the release is missing or was altered.
            PromptError: a paper does not fit under ``max_paper_tokens`` even without its abstract.
            SciSciRLError: the release has too few papers for one batch, the tokenizer cannot be loaded, or an option
                has no effect.
        """
        if self.collapse != "off" and self.run is None:
            raise SciSciRLError(
                f"collapse is {self.collapse!r}, and it reads the answers of a run. "
                "Set run to the folder that the loop writes to (its log_path), or collapse='off'."
            )
        rules, renderer, make_group = self.rules(), self.renderer(), self.group_maker()
        papers = self.train_papers()
        check_fit(papers, rules, renderer)
        watch = None
        if self.run is not None:
            watch = TrainingWatch(self.run, self.task.target, batch_size=self.order.batch_size, action=self.collapse)
        train = LabelDataset(
            papers,
            rules,
            renderer,
            batch_size=self.order.batch_size,
            group_size=self.group_size,
            n_spares=self.n_spares,
            tracker=self._tracker(rules) if rules.table.share_penalty else None,
            watch=watch,
            make_group=make_group,
        )
        if not self.has_test:
            return train, None
        held_out = self.eval_papers()
        check_fit(held_out, rules, renderer)
        size, n_answers = self.order.batch_size, self.eval_group_size
        return train, LabelDataset(
            held_out, rules, renderer, batch_size=size, group_size=n_answers, keep_rest=True, make_group=make_group
        )


def _settle(choice: PaperChoice, release: str, without_dev: EvalSplit = "held_out") -> PaperChoice:
    return replace(choice, eval_split=choice.eval_split or choose_eval_split(release, without_dev))


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
        "choice": _settle(chosen, options.release, without_dev),
        "has_test": False,  # our own evaluator judges the same papers, by more measures
    }


def make_dataset_builder(run: Run[TrainOptions]) -> LabelDatasetBuilder:
    """Return the builder of the training batches."""
    options, preset = run.options, run.preset
    make_builder = (
        LabelDatasetBuilder
        if preset.adversarial is None
        else partial(load_part("AdversarialDatasetBuilder"), adversarial=preset.adversarial)
    )
    is_published = preset.name in PUBLISHED and preset.rules.target == "disruption"
    builder = make_builder(
        **name_fields(run, "test" if is_published else "held_out"),
        group_size=preset.sampling.group_size,
        eval_group_size=preset.judging.eval_group_size,
        n_epochs=options.n_epochs or 1,
        n_spares=preset.sampling.dynamic_sampling,
    )
    if options.n_epochs is not None:
        return builder
    n_papers = len(builder.read("train"))
    n_epochs = -(-options.max_steps * preset.order.batch_size // max(n_papers, 1))
    return chz.replace(builder, n_epochs=max(n_epochs, 1))
