"""What a model has been saying of late: the batch term's memory, which no single group of answers could have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from sciscirl.batch_term import shares_in_row, shares_said
from sciscirl.contracts import Answer
from sciscirl.experiments import check_positive
from sciscirl.task import VOCABULARIES

_UNIT = 10**6  # shares are added up as whole numbers of it: then the order of answers cannot change a sum


class ShareTracker:
    """Counts which labels the answers of each batch say, and by how much each label is in excess.

    A batch is judged by the batches before it only. Its groups get their excess when the batch is made, as plain
    numbers, so that a reward depends neither on the order in which the answers of a batch come in nor on anything
    that a group, once sent elsewhere, could not know. Pickled, a tracker leaves its memory behind: answers that were
    sampled by another process are not counted here, and then the excess stays 0 (``n_answers`` tells).

    Args:
        class_counts: training papers of each label; each label is due the share that it has among them.
        window: the excess is taken over the last batches that have so many valid answers together, or all there are.

    Example:
        >>> from sciscirl.contracts import parse_answer
        >>> tracker = ShareTracker([("disruptive", 1), ("consolidating", 1), ("neutral", 2)], window=2)
        >>> tracker.record(0, parse_answer('{"disruption_label": "neutral", "confidence": 1}', "two_keys"))
        >>> tracker.find_excess(batch=0)["neutral"], tracker.find_excess(batch=1)["neutral"]
        (0.0, 0.5)
    """

    def __init__(self, class_counts: Iterable[tuple[str, int]], window: int = 256) -> None:
        check_positive(window=window)
        self.class_counts = tuple(class_counts)
        self.window = window
        self._said: dict[int, Counter[str]] = {}
        self._n_answers: Counter[int] = Counter()

    def record(self, batch: int, answer: Answer) -> None:
        """Count one answer of a batch, if it is valid."""
        self._count(batch, shares_said(answer))

    def recall(self, batch: int, read_rows: Callable[[int], Iterable[Mapping[str, Any]]]) -> None:
        """Count the answers of earlier batches, as many as the excess of a batch is taken over: what a resumed run had.

        Args:
            batch: at which the run goes on.
            read_rows: gives the rows of predictions that the answers of an earlier batch were put into.
        """
        for earlier in range(batch - 1, -1, -1):
            if self.count_answers(batch) >= self.window:
                break
            for row in read_rows(earlier):
                self._count(earlier, shares_in_row(row))

    def _count(self, batch: int, said: Mapping[str, float]) -> None:
        if said:
            self._said.setdefault(batch, Counter()).update({label: round(p * _UNIT) for label, p in said.items()})
            self._n_answers[batch] += 1

    def find_excess(self, batch: int) -> dict[str, float]:
        """Return how much more of each label was said in the batches before this one than it is due.

        Returns:
            For each label, share said less share due, -1 to 1; over a vocabulary they add up to 0. All 0 where
            nothing was counted.
        """
        recent = Counter[str]()
        for earlier in self._find_recent(batch):
            recent.update(self._said[earlier])
        due = dict(self.class_counts)
        excess: dict[str, float] = {}
        for vocabulary in VOCABULARIES.values():
            labels = [label for label in vocabulary if label in due]
            n_said, n_due = sum(recent[label] for label in labels), sum(due[label] for label in labels)
            excess |= {
                label: float(Fraction(recent[label], n_said) - Fraction(due[label], n_due)) if n_said else 0.0
                for label in labels
            }
        return excess

    def count_answers(self, batch: int) -> int:
        """Return over how many answers the excess of a batch is taken."""
        return sum(self._n_answers[earlier] for earlier in self._find_recent(batch))

    def _find_recent(self, batch: int) -> list[int]:
        recent: list[int] = []
        for earlier in sorted((number for number in self._said if number < batch), reverse=True):
            if sum(self._n_answers[number] for number in recent) >= self.window:
                break
            recent.append(earlier)
        return recent

    def __getstate__(self) -> Mapping[str, Any]:
        return {"class_counts": self.class_counts, "window": self.window}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["class_counts"], state["window"])
