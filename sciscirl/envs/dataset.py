"""Which papers a run sees, and in which order: the cookbook's ``RLDataset`` and its builder."""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NoReturn, cast, overload

import chz
from tinker_cookbook.renderers import Renderer
from tinker_cookbook.rl.types import RLDataset, RLDatasetBuilder

from sciscidata.options.checks import PositiveInt, check_value
from sciscidata.storage import hash_file
from sciscidata.terminal.messages import counted
from sciscirl.envs.env import LabelGroupBuilder, build_messages, count_tokens
from sciscirl.envs.tokenizer import make_renderer
from sciscirl.errors import RewardError, SciSciRLError
from sciscirl.task.papers import Paper, Target, class_of, list_labels
from sciscirl.task.prompts import count_least
from sciscirl.task.release import (
    HELD_OUT_SEED,
    EvalSplit,
    Order,
    PaperChoice,
    Part,
    PartName,
    SplitName,
    read_split,
    settle_choice,
    size_held_out,
)
from sciscirl.task.rules import TaskRules

#: Makes a group, from the arguments of LabelGroupBuilder.
GroupMaker = Callable[[Paper, TaskRules, Renderer, int], LabelGroupBuilder]
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

    PromptError if not: it names the cap under which all of them fit. ReleaseError: as ``TaskRules.see``.
    """
    every = papers.papers if isinstance(papers, Epochs) else papers
    seen = ((paper, rules.see(paper.view)) for paper in every)
    # A token has at least one byte, so for most papers no token has to be counted.
    long = [one for one in seen if count_least(one[1], lambda text: len(text.encode())) > rules.max_paper_tokens]
    if long:
        count = partial(count_tokens, renderer)
        build_messages(max(long, key=lambda one: count_least(one[1], count))[0], rules, renderer)


@dataclass(eq=False)
class LabelDataset(RLDataset):
    """Batches of groups over papers, in the order in which they are shown."""

    papers: Sequence[Paper]
    rules: TaskRules
    renderer: Renderer
    _: KW_ONLY
    batch_size: int
    group_size: int
    keep_rest: bool = False  # keep a last, smaller batch: yes for evaluation, no for training with equal steps
    make_group: GroupMaker = LabelGroupBuilder  # or another with its arguments

    def __post_init__(self) -> None:
        for name in ("batch_size", "group_size"):
            check_value(name, getattr(self, name), PositiveInt, SciSciRLError)

    def get_batch(self, index: int) -> Sequence[LabelGroupBuilder]:
        """Return the groups of one step."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        return [self.make_group(paper, self.rules, self.renderer, self.group_size) for paper in self.batch(index)]

    def batch(self, index: int) -> Sequence[Paper]:
        """Return the papers of one step."""
        return self.papers[index * self.batch_size : (index + 1) * self.batch_size]

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
            a stratified head of the papers (``take_head``). A batch may straddle two epochs.
        group_size: answers to a paper in training.
        eval_group_size: answers to a held-out paper.
        min_steps: without ``choice.n_epochs``, papers are shown as often as so many steps need, and once at least.
        has_test: whether to return the held-out batches, for the cookbook's own evaluator.

    On the command line of a loop of your own, the parts are written with dots: ``dataset_builder.task.style=plain
    dataset_builder.order.batch_size=8``.
    """

    release: str
    model_name: str
    renderer_name: str
    task: TaskRules = TaskRules()
    order: Order = Order()
    choice: PaperChoice = chz.field(
        default=PaperChoice(), munger=lambda own, choice: settle_choice(choice, own.release)
    )
    group_size: int = 2
    eval_group_size: int = 1
    min_steps: int = 0
    has_test: bool = True

    @classmethod
    def from_preset(cls, *_: object, **__: object) -> NoReturn:
        """Point on: pages once taught this name."""
        raise AttributeError("LabelDatasetBuilder.from_preset is gone: sciscirl.make_builder makes a preset's builder.")

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
        return cast("EvalSplit", self.choice.eval_split)  # settled when the builder was made

    @property
    def n_epochs(self) -> int:
        """How often every training paper is shown, each time in another order."""
        if self.choice.n_epochs is not None:
            return self.choice.n_epochs
        n_shown = self.min_steps * self.order.batch_size
        return max(-(-n_shown // max(len(self.read("train")), 1)), 1)

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
        n_papers = self.choice.n_train if part == "train" else self.choice.n_test
        chosen = Part(self.release, part, self.n_held_out(), self.choice.ids, n_papers)
        return chosen.choose(self._read_split(chosen.split), self.task.target)

    def renderer(self) -> Renderer:
        """Return the renderer; it pickles."""
        return make_renderer(self.model_name, self.renderer_name)

    def group_maker(self) -> GroupMaker:
        """Return what makes a group, from the arguments of LabelGroupBuilder."""
        return LabelGroupBuilder

    def train_papers(self) -> Epochs:
        """Return the training papers in the order in which they are shown, epoch after epoch.

        Raises:
            ReleaseError: the release is missing or was altered.
            SciSciRLError: it has too few papers for one batch.
        """
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

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        """Build the training batches, and the held-out ones in the order of the release.

        Raises:
            ReleaseError: the release is missing or was altered.
            PromptError: a paper does not fit under ``max_paper_tokens`` even without its abstract.
            SciSciRLError: the release has too few papers for one batch, the tokenizer cannot be loaded, or the reward
                has a batch term, which the builder of ``make_builder`` charges.
        """
        train, test = self.build()
        if train.rules.table.share_penalty:
            raise SciSciRLError(
                f"reward {self.task.reward!r} has a share_penalty, which a LabelDatasetBuilder alone does not "
                "charge. Take the builder of sciscirl.make_builder, or another reward."
            )
        return train, test

    def build(self) -> tuple[LabelDataset, LabelDataset | None]:
        """Build the batches, without what a run adds to them; raises as the call does."""
        rules, renderer, make_group = self.rules(), self.renderer(), self.group_maker()
        papers = self.train_papers()
        check_fit(papers, rules, renderer)
        size, n_answers = self.order.batch_size, self.group_size
        train = LabelDataset(papers, rules, renderer, batch_size=size, group_size=n_answers, make_group=make_group)
        if not self.has_test:
            return train, None
        held_out = self.eval_papers()
        check_fit(held_out, rules, renderer)
        n_answers = self.eval_group_size
        return train, LabelDataset(
            held_out, rules, renderer, batch_size=size, group_size=n_answers, keep_rest=True, make_group=make_group
        )
