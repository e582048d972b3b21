"""In which order papers are shown, epoch after epoch."""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from typing import overload

from sciscirl.task import TARGETS, VOCABULARIES, Paper, TargetName

_N_KEPT = 3  # epochs: a batch may straddle two, and find its spares in a third


def order_papers(
    papers: Iterable[Paper],
    seed: int,
    epoch: int = 0,
    *,
    interleave: bool = False,
    target: TargetName = "disruption",
) -> list[Paper]:
    """Put papers in the order in which an epoch shows them.

    By SHA-256 of seed, epoch and id, so that the order is the same with every version of every library, and a paper
    more or less moves no other past a third.

    Args:
        papers: in any order.
        seed: another seed, another order.
        epoch: likewise.
        interleave: spread each class evenly, so that any stretch has the classes in about the proportions of the
            whole. Of balanced classes every batch then has equally many, give or take one.
        target: whose labels are the classes; of a joint task every pair of labels is one.

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
    classes: dict[tuple[str, ...], list[Paper]] = defaultdict(list)
    for paper in ordered:
        classes[class_of(paper, target)].append(paper)
    placed = [
        ((rank + 0.5) / len(classes[labels]), order, paper)
        for order, labels in enumerate(product(*(VOCABULARIES[column] for column in TARGETS[target])))
        for rank, paper in enumerate(classes[labels])
    ]
    return [paper for *_, paper in sorted(placed, key=lambda place: place[:2])]


def class_of(paper: Paper, target: TargetName) -> tuple[str, ...]:
    """Return the labels of a paper that a task asks for: papers that share them are of one class."""
    return tuple(paper.labels(target).values())


def _key(seed: int, epoch: int, openalex_id: str) -> bytes:
    return hashlib.sha256(f"{seed}:{epoch}:{openalex_id}".encode()).digest()


class Epochs(Sequence[Paper]):
    """The same papers epoch after epoch, each time in another order, which is found when it is asked for.

    Args:
        papers: of one epoch, in any order.
        n_shown: how many papers are shown in all, each as often as any other or once more.
        seed: see ``order_papers``, like the next two.
        interleave: spread each class evenly.
        target: whose labels are the classes.

    Attributes:
        papers: of one epoch, as they were given.

    Example:
        >>> from sciscirl.task import Gold, PaperView
        >>> view = PaperView("On sleep", "We sleep.", 2001, 3, "Neuroscience")
        >>> shown = Epochs([Paper(f"W{n}", view, Gold("neutral", None)) for n in range(3)], 3 * 10**12, seed=0)
        >>> len(shown), [paper.openalex_id for paper in shown[3 * 10**9 - 1 : 3 * 10**9 + 3]]
        (3000000000000, ['W2', 'W0', 'W1', 'W2'])
    """

    def __init__(
        self,
        papers: Sequence[Paper],
        n_shown: int,
        seed: int,
        *,
        interleave: bool = False,
        target: TargetName = "disruption",
    ) -> None:
        self.papers = tuple(papers)
        self._n_shown = min(n_shown, sys.maxsize)  # len() can say no more
        self._order = partial(order_papers, self.papers, seed, interleave=interleave, target=target)
        self._kept: dict[int, list[Paper]] = {}

    def first(self, n_shown: int) -> Epochs:
        """Return the first so many papers, or all, without going through them."""
        return Epochs(self.papers, min(n_shown, len(self)), *self._order.args[1:], **self._order.keywords)

    def __len__(self) -> int:
        """Return how many papers are shown."""
        return self._n_shown

    @overload
    def __getitem__(self, index: int) -> Paper: ...
    @overload
    def __getitem__(self, index: slice) -> list[Paper]: ...
    def __getitem__(self, index: int | slice) -> Paper | list[Paper]:
        """Return the paper at a place, or those of a slice, in order."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        epoch, place = divmod(range(len(self))[index], len(self.papers))
        if epoch not in self._kept:
            self._kept = dict([*self._kept.items(), (epoch, self._order(epoch))][-_N_KEPT:])
        return self._kept[epoch][place]
