"""The adversarial task as a table: challenged answers, and how often the challenge made them right or wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from sciscirl.lab.adversarial.rewards import AdversarialParts, Episode
from sciscirl.task.papers import Target
from sciscirl.task.predictions import column_ends, make_prediction, prediction_schema
from sciscirl.task.rewards import RewardParts

#: Of the reward.
PARTS: Final = ("correctness", "reasoning", "adaptation")


def adversarial_schema(target: Target) -> pl.Schema:
    """Return the columns of predictions of challenged answers; those of the task are about the final answer."""
    kept = {name: dtype for name, dtype in prediction_schema(target).items() if not name.startswith("reward_")}
    text = kept.pop("text")
    return pl.Schema(
        {
            **kept,
            **{f"reward_{part}": pl.Float64() for part in PARTS},
            "text": text,
            **{f"first_label{end}": pl.String() for end in column_ends(target).values()},
            "first_is_valid": pl.Boolean(),
            "first_problem": pl.String(),
            "first_text": pl.String(),
            "challenge": pl.String(),
        }
    )


def make_adversarial_prediction(
    openalex_id: str, gold: Mapping[str, str], episode: Episode, reward: AdversarialParts
) -> dict[str, str | float | bool | None]:
    """Make the row of one episode (``adversarial_schema``); ``gold`` has the label of each label column."""
    total = RewardParts(0.0, 0.0, 0.0, 0.0, reward.total)  # an episode has parts of its own
    target = episode.final.target
    row = make_prediction(openalex_id, gold, episode.final, total, episode.final_text)
    row |= {f"reward_{part}": getattr(reward, part) for part in PARTS}
    row |= {f"first_label{end}": episode.first.labels.get(column) for column, end in column_ends(target).items()}
    row["first_is_valid"], row["first_problem"] = episode.first.is_valid, episode.first.problem
    row["first_text"], row["challenge"] = episode.first_text, episode.challenge or None
    return {name: row[name] for name in adversarial_schema(target)}
