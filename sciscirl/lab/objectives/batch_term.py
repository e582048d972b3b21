"""The batch term of a reward: an answer pays for a label that was said too often in recent batches."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from sciscirl.task.contracts import Answer
from sciscirl.task.papers import VOCABULARIES, OwnTarget, Target, list_labels
from sciscirl.task.rewards import RewardTable

_UNIT: Final = 10**6  # shares are added up as whole millionths, so the order of answers cannot change a sum


def batch_term(answer: Answer, excess: Mapping[str, float], table: RewardTable) -> float:
    """Return ``-share_penalty * excess`` of an answer's label; of several, or a forecast, the mean; 0 if it is invalid.

    It is the policy gradient of ``-share_penalty / 2 * sum((said share - due share)**2)``: it pulls the predictions as
    a whole to the shares of the labels. The excess of a label is its share among recent valid answers, minus its share
    in the training split.
    """
    said = shares_said(answer)
    if not said:
        return 0.0
    too_much = math.fsum(excess[label] * share for label, share in said.items()) / len(answer.labels)
    return round(-table.share_penalty * too_much, 9)  # rounded as every reward, so that equal cases tie


def shares_said(answer: Answer) -> dict[str, float]:
    """Return how much of each label an answer says: its forecast, or 1 for each of its labels."""
    return dict(answer.forecast) or dict.fromkeys(answer.labels.values(), 1.0)


def shares_in_row(row: Mapping[str, Any]) -> dict[str, float]:
    """Return ``shares_said`` for a row of predictions, whose nulls may be missing; nothing for an invalid answer.

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


#: Valid answers over which the excess of a label is taken.
SHARE_WINDOW: Final = 256


class ShareTracker:
    """Counts which labels the answers of each batch say, and by how much each label is in excess.

    A batch is judged only by the batches before it: the last with ``window`` valid answers together. Its groups get
    their excess as plain numbers when it is made. So the order of answers does not matter, and groups can be sampled
    elsewhere. A pickled tracker loses its memory: then the excess stays 0 (``count_answers`` shows it). ``target`` of
    None: labels of disruption, novelty or both.
    """

    def __init__(
        self, class_counts: Iterable[tuple[str, int]], window: int = SHARE_WINDOW, target: Target | None = None
    ) -> None:
        self.target = target
        is_own = isinstance(target, OwnTarget)
        self._vocabularies = (list_labels(target) if is_own else VOCABULARIES).values()
        self.class_counts = tuple(class_counts)
        self.window = window
        self._said: dict[int, Counter[str]] = {}
        self._n_answers: Counter[int] = Counter()

    def record(self, batch: int, answer: Answer) -> None:
        """Count one answer of a batch, if it is valid."""
        self._count(batch, shares_said(answer))

    def recall(self, batch: int, read_rows: Callable[[int], Iterable[Mapping[str, Any]]]) -> None:
        """Count the answers of batches before ``batch`` again, as many as the window needs, for a resumed run."""
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
        """Return the share of each label in earlier batches, minus its due share; 0 if nothing was counted."""
        recent = Counter[str]()
        for earlier in self._find_recent(batch):
            recent.update(self._said[earlier])
        due = dict(self.class_counts)
        excess: dict[str, float] = {}
        for vocabulary in self._vocabularies:
            labels = [label for label in vocabulary if label in due]
            n_said, n_due = sum(recent[label] for label in labels), sum(due[label] for label in labels)
            excess |= {
                label: float(Fraction(recent[label], n_said) - Fraction(due[label], n_due)) if n_said else 0.0
                for label in labels
            }
        return excess

    def count_answers(self, batch: int) -> int:
        """Return the number of answers that the excess of a batch is taken over."""
        return sum(self._n_answers[earlier] for earlier in self._find_recent(batch))

    def _find_recent(self, batch: int) -> list[int]:
        recent: list[int] = []
        for earlier in sorted((number for number in self._said if number < batch), reverse=True):
            if sum(self._n_answers[number] for number in recent) >= self.window:
                break
            recent.append(earlier)
        return recent

    def __getstate__(self) -> Mapping[str, Any]:
        return {"class_counts": self.class_counts, "window": self.window, "target": self.target}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)
