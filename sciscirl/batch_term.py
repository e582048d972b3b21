"""What answers say as a whole, and what each pays where that is too often the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from sciscirl.contracts import Answer
from sciscirl.rewards import RewardTable, round_total


def batch_term(answer: Answer, excess: Mapping[str, float], table: RewardTable) -> float:
    """Return what an answer pays for saying what has been said too often of late.

    ``-share_penalty * (how much more often its label was said than it should be)``, of a forecast the mean over its
    probabilities, of two labels the mean of both. This is the policy gradient of ``-share_penalty / 2 * sum((said
    share - due share)**2)``, so that it pulls the predictions as a whole, and no answer on its own, to the shares of
    the labels. An invalid answer has no label, and 0.

    Args:
        answer: a judged one.
        excess: of each label, its share among recent valid answers less its share on the training side.
        table: whose ``share_penalty`` applies.

    Example:
        >>> from sciscirl.contracts import parse_answer
        >>> from sciscirl.rewards import REWARDS
        >>> answer = parse_answer('{"disruption_label": "neutral", "confidence": 0.9}', "two_keys")
        >>> batch_term(answer, {"disruptive": -0.2, "consolidating": -0.2, "neutral": 0.4}, REWARDS["balanced_shares"])
        -0.2
    """
    said = shares_said(answer)
    if not said:
        return 0.0
    overdone = math.fsum(excess[label] * share for label, share in said.items()) / len(answer.labels)
    return round_total(-table.share_penalty * overdone)


def shares_said(answer: Answer) -> dict[str, float]:
    """Return how much of each label an answer says: its forecast, or 1 for each of its labels.

    Example:
        >>> from sciscirl.contracts import parse_answer
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
