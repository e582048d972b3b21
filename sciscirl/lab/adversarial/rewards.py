"""The rewards of the adversarial task: a challenged answer earns R_correctness + R_reasoning + R_adaptation.

Predictions follow below. The episode is in ``env.py``, the challenger (Agent B) in ``challenger.py``.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Final, cast

import polars as pl

from sciscirl.task.contracts import Answer, read_json
from sciscirl.task.experiment import AdversarialRules
from sciscirl.task.papers import VOCABULARIES, PaperView, Target
from sciscirl.task.predictions import column_ends, make_prediction, prediction_schema
from sciscirl.task.rewards import RewardParts

#: R_reasoning is awarded in this many equal steps, by the criteria of the rubric.
N_STEPS: Final = 3

_WORD: Final = re.compile(r"[^\W_]+")
_QUOTE: Final = range(2, 13)  # words
_MAX_SIGNALS: Final = 4
_ARGUMENT: Final = range(8, 121)  # words
_RUN: Final = 4  # this many words in a row that also stand elsewhere are copied
_N_TAKEN_UP: Final = 2
# Words of five letters or more say something about a paper, except for these and the names of the labels.
_COMMON_WORDS: Final = """\
about above after again against answer because before being below between challenge could during every first further
having label labels later never objection other others paper rather record reviewer shall should since still their
theirs there these they thing things those though through under until where whether which while whose within without
would yours"""
_COMMON: Final = {*_COMMON_WORDS.split(), *(label for vocabulary in VOCABULARIES.values() for label in vocabulary)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """One episode: paper, first answer, challenge and final answer. There is no field for a gold label."""

    view: PaperView  # the paper as the model saw it
    first: Answer
    first_text: str
    challenge: str  # "" if the first answer was not valid and met none
    final: Answer  # the first answer, if that was cut off and there was no second turn
    final_text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The three criteria of the rubric; each is worth a third of R_reasoning.

    - ``grounded``: the evidence signals are one to four different quotations from title or abstract. Each has 2 to 12
      words in a row, with at least one telling word.
    - ``responsive``: the justification takes up two telling words of the challenge, or more, that the first one lacked.
    - ``own_words``: the justification has 8 to 120 words. At least half of its runs of four words occur in it only
      once. They do not occur in the first justification, the challenge, the title or the abstract.
    """

    grounded: bool = False
    responsive: bool = False
    own_words: bool = False

    @property
    def n_steps(self) -> int:
        """How many of the criteria are met."""
        return self.grounded + self.responsive + self.own_words


@dataclass(frozen=True, slots=True)
class AdversarialParts:
    """The three parts of the reward of one episode, and their sum."""

    correctness: float
    reasoning: float
    adaptation: float
    total: float

    def named(self) -> dict[str, float]:
        """Return the parts and their total by name, for a log."""
        return asdict(self)


def judge_by_rubric(episode: Episode) -> Reasoning:
    """Check the reasoning of a final answer against the rubric, from the texts alone: it knows no gold label.

    A telling word has five letters or more. It is neither a label nor one of a few dozen common words.
    """
    if not episode.final.is_valid:
        return Reasoning()
    justification, signals = _read_reasons(episode.final_text)
    before = _words(_read_reasons(episode.first_text)[0]) if episode.first.is_valid else []
    paper = [_words(episode.view.title or ""), _words(episode.view.abstract or "")]
    said, objected = _words(justification), _words(episode.challenge)
    taken_up = (set(filter(_is_telling, objected)) & set(said)) - set(before)
    return Reasoning(
        grounded=_are_quotations(signals, paper),
        responsive=len(taken_up) >= _N_TAKEN_UP,
        own_words=_is_own(said, [before, objected, *paper]),
    )


def score_episode(
    episode: Episode, gold: Mapping[str, str], rules: AdversarialRules, n_steps: int | None = None
) -> AdversarialParts:
    """Reward one episode; ``n_steps`` are the criteria of the rubric that are met, None: as ``judge_by_rubric`` says.

    R_correctness is from -1 to +1, R_reasoning ``n_steps`` thirds of ``rules.reasoning``. R_adaptation is the mean over
    the labels of ``revision`` (wrong, then right), ``defence`` (right both times) or 0. An invalid final answer earns
    -1 in all.
    """
    awarded = judge_by_rubric(episode).n_steps if n_steps is None else n_steps
    if not episode.final.is_valid:
        return AdversarialParts(-1.0, 0.0, 0.0, -1.0)
    hits = {column: episode.final.labels[column] == label for column, label in gold.items()}
    right = float(all(hits.values())) if rules.credit == "both" else fmean(map(float, hits.values()))
    correctness = 2 * right - 1
    reasoning = rules.reasoning * awarded / N_STEPS
    adaptation = 0.0
    if episode.first.is_valid:
        adaptation = fmean(
            hit * (rules.defence if episode.first.labels[column] == gold[column] else rules.revision)
            for column, hit in hits.items()
        )
    # Rounded, so that equal cases tie.
    correctness, reasoning, adaptation = (round(part, 9) for part in (correctness, reasoning, adaptation))
    total = round(math.fsum((correctness, reasoning, adaptation)), 9)
    return AdversarialParts(correctness, reasoning, adaptation, total)


def _read_reasons(text: str) -> tuple[str, list[str]]:
    """Read justification and signals of a valid answer; not every contract has them."""
    fields = cast("dict[str, Any]", read_json(text)[0])
    return fields.get("label_justification", ""), fields.get("evidence_signals", [])


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _is_telling(word: str) -> bool:
    return len(word) >= 5 and word.isalpha() and word not in _COMMON


def _runs(words: list[str], length: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + length]) for start in range(len(words) - length + 1)]


def _are_quotations(signals: list[str], paper: list[list[str]]) -> bool:
    quotes = [tuple(_words(signal)) for signal in signals]
    if not quotes or len(quotes) > _MAX_SIGNALS or len(set(quotes)) < len(quotes):
        return False
    return all(
        len(quote) in _QUOTE
        and any(map(_is_telling, quote))
        and any(quote in _runs(source, len(quote)) for source in paper)
        for quote in quotes
    )


def _is_own(said: list[str], sources: list[list[str]]) -> bool:
    runs = _runs(said, _RUN)
    copied = {run for source in sources for run in _runs(source, _RUN)}
    return len(said) in _ARGUMENT and 2 * sum(runs.count(run) == 1 and run not in copied for run in runs) >= len(runs)


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
