"""The batch term: what an answer pays for saying what has been said too often, and the memory of that."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from sciscirl.task.contracts import Answer
from sciscirl.task.papers import VOCABULARIES
from sciscirl.task.rewards import RewardTable
from sciscirl.task.rules import check_positive

_UNIT = 10**6  # shares are added up as whole numbers of it: then the order of answers cannot change a sum


def batch_term(answer: Answer, excess: Mapping[str, float], table: RewardTable) -> float:
    """Return what an answer pays for saying what has been said too often of late.

    ``-share_penalty * (how much more often its label was said than it should be)``, of a forecast the mean over its
    probabilities, of two labels the mean of both. This is the policy gradient of ``-share_penalty / 2 * sum((said
    share - due share)**2)``, so that it pulls the predictions as a whole, and no answer on its own, to the shares of
    the labels. An invalid answer has no label, and 0.

    Args:
        answer: a judged one.
        excess: of each label, its share among recent valid answers less its share in the training split.
        table: whose ``share_penalty`` applies.

    Example:
        >>> from sciscirl.task.contracts import parse_answer
        >>> from sciscirl.task.rewards import REWARDS
        >>> answer = parse_answer('{"disruption_label": "neutral", "confidence": 0.9}', "two_keys")
        >>> batch_term(answer, {"disruptive": -0.2, "consolidating": -0.2, "neutral": 0.4}, REWARDS["balanced_shares"])
        -0.2
    """
    said = shares_said(answer)
    if not said:
        return 0.0
    too_much = math.fsum(excess[label] * share for label, share in said.items()) / len(answer.labels)
    return round(-table.share_penalty * too_much, 9)  # rounded as every reward, so that equal cases tie


def shares_said(answer: Answer) -> dict[str, float]:
    """Return how much of each label an answer says: its forecast, or 1 for each of its labels.

    Example:
        >>> from sciscirl.task.contracts import parse_answer
        >>> shares_said(parse_answer('{"novelty_label": "novel", "confidence": 1}', "two_keys", "novelty"))
        {'novel': 1.0}
    """
    return dict(answer.forecast) or dict.fromkeys(answer.labels.values(), 1.0)


def shares_in_row(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the same of an answer that was put into a row of predictions; nothing of one that is not valid.

    Args:
        row: of ``predictions.make_prediction``; what is null may be missing, as in a rollout's logs.

    Example:
        >>> shares_in_row({"is_valid": True, "label_disruption": "neutral", "label_novelty": "novel"})
        {'neutral': 1.0, 'novel': 1.0}
        >>> shares_in_row({"is_valid": True, "label": "novel", "forecast": '{"novel": 0.75, "balanced": 0.25}'})
        {'novel': 0.75, 'balanced': 0.25}
    """
    if not row.get("is_valid"):
        return {}
    forecasts = [json.loads(text) for name, text in row.items() if name.partition("_")[0] == "forecast" and text]
    labels = [label for name, label in row.items() if name.partition("_")[0] == "label" and label]
    return {label: p for forecast in forecasts for label, p in forecast.items()} or dict.fromkeys(labels, 1.0)


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
        >>> from sciscirl.task.contracts import parse_answer
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
