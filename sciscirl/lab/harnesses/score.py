"""Score an answer that another harness has sampled, by the exported task's contract and reward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from sciscidata.storage.small_files import read_json
from sciscirl.errors import SciSciRLError
from sciscirl.presets import recall_rules
from sciscirl.task.rewards import score_answer
from sciscirl.task.rules import TaskRules

#: In the folder of an exported task: its rules, and where they come from.
FACTS: Final = "task.json"


class Score(NamedTuple):
    """What an answer is worth. ``correct`` and ``valid`` are 0 or 1; an answer that is not valid is wrong."""

    reward: float
    correct: float
    valid: float


@cache
def read_rules(folder: Path) -> TaskRules:
    """Read the rules of the exported task in a folder, with the class counts of its training papers (SciSciRLError)."""
    try:
        facts: Any = read_json(folder / FACTS)
        counts = tuple((str(label), int(n)) for label, n in facts["class_counts"])
        return replace(recall_rules(facts["rules"]), class_counts=counts)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise SciSciRLError(
            f"{folder / FACTS} cannot be read ({error}). Export the task again: sciscirl export-task."
        ) from error


def score(text: str, labels: Mapping[str, str], rules: TaskRules) -> Score:
    """Score one whole answer, as it was sampled; ``labels`` has the gold label of each label column.

    Example:
        >>> from sciscirl.presets import PRESETS
        >>> rules, labels = PRESETS["exp4"].rules, {"disruption_label": "neutral"}
        >>> score('{"disruption_label": "neutral", "confidence": 0.6}', labels, rules)
        Score(reward=1.05, correct=1.0, valid=1.0)
        >>> score("neutral", labels, rules)
        Score(reward=-1.0, correct=0.0, valid=0.0)
    """
    answer = rules.parse(text)
    total = score_answer(answer, labels, rules.table).total
    return Score(total, float(answer.is_valid and answer.labels == dict(labels)), float(answer.is_valid))
