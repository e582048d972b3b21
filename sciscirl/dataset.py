"""Which papers a run sees, in which order: the cookbook's ``RLDataset`` and its builder."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import chz
from tinker_cookbook.renderers import Renderer
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder

from sciscirl.chat_format import make_renderer
from sciscirl.contracts import ContractName
from sciscirl.envs import DisruptionGroupBuilder, build_messages
from sciscirl.errors import SciSciRLError
from sciscirl.experiments import TaskRules, check_positive
from sciscirl.prompts import PromptStyle, render_record
from sciscirl.task import VOCABULARIES, Paper, read_split


def order_papers(papers: Iterable[Paper], seed: int, epoch: int = 0, *, interleave: bool = False) -> list[Paper]:
    """Put papers in the order in which an epoch shows them.

    By SHA-256 of seed, epoch and id, so that the order is the same with every version of every library, and a paper
    more or less moves no other past a third.

    Args:
        papers: in any order.
        seed: another seed, another order.
        epoch: likewise.
        interleave: spread each class evenly, so that any stretch has the classes in about the proportions of the
            whole. Of balanced classes every batch then has equally many, give or take one.

    Example:
        >>> from sciscirl.task import Gold, PaperView
        >>> view = PaperView("On sleep", "We sleep.", 2001, 3, "Neuroscience")
        >>> papers = [Paper(f"W{n}", view, Gold("neutral" if n < 4 else "disruptive", None)) for n in range(8)]
        >>> [paper.gold.disruption_label[0] for paper in order_papers(papers, seed=0, interleave=True)]
        ['d', 'n', 'd', 'n', 'd', 'n', 'd', 'n']
    """
    ordered = sorted(papers, key=lambda paper: _key(seed, epoch, paper.openalex_id))
    if not interleave:
        return ordered
    classes: dict[str | None, list[Paper]] = defaultdict(list)
    for paper in ordered:
        classes[paper.gold.disruption_label].append(paper)
    placed = [
        ((rank + 0.5) / len(classes[label]), order, paper)
        for order, label in enumerate(VOCABULARIES["disruption_label"])
        for rank, paper in enumerate(classes[label])
    ]
    return [paper for *_, paper in sorted(placed, key=lambda place: place[:2])]


def _key(seed: int, epoch: int, openalex_id: str) -> bytes:
    return hashlib.sha256(f"{seed}:{epoch}:{openalex_id}".encode()).digest()


def check_fit(papers: Iterable[Paper], rules: TaskRules, renderer: Renderer) -> None:
    """Make sure before a run that no paper will stop it.

    Raises:
        PromptError: if a paper does not fit under ``rules.max_paper_tokens`` even without its abstract.
    """
    for paper in papers:
        # A token has a byte at least: of most papers no token has to be counted.
        if len(render_record(replace(paper.view, abstract=None)).encode()) > rules.max_paper_tokens:
            build_messages(paper, rules, renderer)


class DisruptionDataset(RLDataset):
    """Batches of groups over a list of papers.

    Args:
        papers: in the order in which they are shown.
        rules: prompt, contract and reward.
        renderer: from ``get_renderer``.
        batch_size: groups a batch.
        group_size: answers a group.
        keep_rest: whether a last, smaller batch is one: yes where every paper counts, no in training, where all
            steps are to be alike.
    """

    def __init__(
        self,
        papers: Sequence[Paper],
        rules: TaskRules,
        renderer: Renderer,
        *,
        batch_size: int,
        group_size: int,
        keep_rest: bool = False,
    ) -> None:
        check_positive(batch_size=batch_size, group_size=group_size)
        self.papers = papers
        self.rules = rules
        self.renderer = renderer
        self.batch_size = batch_size
        self.group_size = group_size
        self.keep_rest = keep_rest

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """Return the groups of one step.

        Raises:
            IndexError: if there is no batch of that number.
        """
        if not 0 <= index < len(self):
            msg = f"batch {index} of {len(self)}"
            raise IndexError(msg)
        start = index * self.batch_size
        return [
            DisruptionGroupBuilder(paper, self.rules, self.renderer, self.group_size)
            for paper in self.papers[start : start + self.batch_size]
        ]

    def __len__(self) -> int:
        """Return the number of batches."""
        return (len(self.papers) + (self.batch_size - 1 if self.keep_rest else 0)) // self.batch_size


@chz.chz
class DisruptionDatasetBuilder(RLDatasetBuilder):
    """From a released slice to the training batches, and the held-out ones.

    Attributes:
        release: the folder of the slice.
        model_name: whose tokenizer is used: a name on the Hugging Face hub or a folder.
        renderer_name: the chat format.
        style: see TaskRules, like the next three.
        batch_size: papers a step.
        group_size: answers to a paper in training.
        eval_group_size: answers to a held-out paper.
        seed: of the order.
        n_epochs: how often every training paper is shown, each time in another order; a batch may straddle two.
        interleave: see ``order_papers``.
        n_train: use the first so many papers of the training side only.
        n_test: likewise of the test side.
        has_test: whether to return the held-out batches, for the cookbook's own evaluator. ``launch`` has another.
    """

    release: str
    model_name: str
    renderer_name: str
    style: PromptStyle = "plain"
    contract: ContractName = "four_keys"
    reward: str = "soft"
    max_paper_tokens: int = 1024
    batch_size: int = 16
    group_size: int = 2
    eval_group_size: int = 1
    seed: int = 0
    n_epochs: int = 1
    interleave: bool = False
    n_train: int | None = None
    n_test: int | None = None
    has_test: bool = True

    def rules(self) -> TaskRules:
        """Return prompt, contract and reward as one."""
        return TaskRules(
            style=self.style, contract=self.contract, reward=self.reward, max_paper_tokens=self.max_paper_tokens
        )

    def renderer(self) -> Renderer:
        """Return the renderer, of a kind that pickles."""
        return make_renderer(self.model_name, self.renderer_name)

    def train_papers(self) -> list[Paper]:
        """Return the training papers in the order in which they are shown, epoch after epoch.

        Raises:
            SliceError: if the slice is missing or was altered.
            SciSciRLError: if it has too few papers for one batch.
        """
        check_positive(n_epochs=self.n_epochs)
        papers = read_split(self.release, "train")[: self.n_train]
        if len(papers) * self.n_epochs < self.batch_size:
            msg = (
                f"{self.release} has {len(papers):,} training papers, too few for one batch of {self.batch_size}. "
                "Lower batch_size, or build a larger slice."
            )
            raise SciSciRLError(msg)
        return list(self._epochs(papers))

    def _epochs(self, papers: Sequence[Paper]) -> Iterator[Paper]:
        for epoch in range(self.n_epochs):
            yield from order_papers(papers, self.seed, epoch, interleave=self.interleave)

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        """Build the training batches, and the held-out ones in the order of the release.

        Raises:
            SliceError: if the slice is missing or was altered.
            PromptError: if a paper does not fit under ``max_paper_tokens`` even without its abstract.
            SciSciRLError: if the slice has too few papers for one batch, or the tokenizer is not to be had.
        """
        rules, renderer = self.rules(), self.renderer()
        papers = self.train_papers()
        check_fit(papers, rules, renderer)
        train = DisruptionDataset(papers, rules, renderer, batch_size=self.batch_size, group_size=self.group_size)
        if not self.has_test:
            return train, None
        held_out = read_split(self.release, "test")[: self.n_test]
        check_fit(held_out, rules, renderer)
        test = DisruptionDataset(
            held_out,
            rules,
            renderer,
            batch_size=self.batch_size,
            group_size=self.eval_group_size,
            keep_rest=True,
        )
        return train, test
