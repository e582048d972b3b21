"""What is learnable without a language model: three predictors that every result stands beside."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

import numpy as np
import polars as pl
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from sciscirl.contracts import Answer
from sciscirl.errors import SciSciRLError
from sciscirl.metrics import PREDICTIONS, make_prediction
from sciscirl.rewards import REWARDS, score_answer
from sciscirl.task import VOCABULARIES, Paper

_LABELS: Final = VOCABULARIES["disruption_label"]
#: Label and confidence for each held-out paper.
Verdicts = list[tuple[str, float]]


def predict_majority(train: Sequence[Paper], test: Sequence[Paper], seed: int = 0) -> Verdicts:
    """Always say the most common label of the training side (the first in label order if several are).

    Confidence is its share there.

    Example:
        >>> from sciscirl.task import Gold, PaperView
        >>> view = PaperView("On sleep", "We sleep.", 2001, 3, "Neuroscience")
        >>> train = [Paper("W1", view, Gold("neutral", None)), Paper("W2", view, Gold("disruptive", None))]
        >>> predict_majority(train, train[:1])
        [('disruptive', 0.5)]
    """
    share = _shares(train)
    label = max(_LABELS, key=lambda label: share[label])
    return [(label, share[label])] * len(test)


def predict_prior(train: Sequence[Paper], test: Sequence[Paper], seed: int = 0) -> Verdicts:
    """Say labels at random, in the proportions of the training side. Confidence is the label's share there.

    A paper's label depends on nothing but the seed, its id and those proportions (SHA-256).
    """
    share = _shares(train)
    verdicts: Verdicts = []
    for paper in test:
        digest = hashlib.sha256(f"{seed}:prior:{paper.openalex_id}".encode()).digest()
        place = int.from_bytes(digest[:6]) / 2**48
        ends = np.cumsum([share[label] for label in _LABELS])
        label = _LABELS[min(int(np.searchsorted(ends, place, side="right")), len(_LABELS) - 1)]
        verdicts.append((label, share[label]))
    return verdicts


def predict_tfidf(train: Sequence[Paper], test: Sequence[Paper], seed: int = 0) -> Verdicts:
    """Logistic regression on what a prompt shows: TF-IDF of title and abstract, field, year, citations.

    Words and pairs of words that at least two training papers have; year as it is and citations as log(1 + n), both
    standardised; field as indicator. Nothing is tuned. Confidence is the probability of the label.
    """
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2 if len(train) > 50 else 1, sublinear_tf=True, dtype=np.float64)
    facts, model = _Facts(train), LogisticRegression(max_iter=1000)
    try:
        seen = sparse.hstack([words.fit_transform(map(_text, train)), facts(train)])
        model.fit(seen, [paper.gold.disruption_label for paper in train])
    except ValueError as error:  # no word that two papers have, or one class only
        msg = f"the training papers cannot be learnt from ({error}). Build a larger slice, of two classes at least."
        raise SciSciRLError(msg) from error
    asked = sparse.hstack([words.transform(map(_text, test)), facts(test)])
    chances = cast("np.ndarray[Any, np.dtype[np.float64]]", model.predict_proba(asked))
    return [(str(model.classes_[row.argmax()]), min(float(row.max()), 1.0)) for row in chances]


#: Every baseline by name.
BASELINES: Final[Mapping[str, Callable[[Sequence[Paper], Sequence[Paper], int], Verdicts]]] = MappingProxyType(
    {"majority": predict_majority, "prior_random": predict_prior, "tfidf_logistic": predict_tfidf}
)


def run_baseline(
    name: str, train: Sequence[Paper], test: Sequence[Paper], *, seed: int = 0, reward: str = "soft"
) -> pl.DataFrame:
    """Let a baseline judge the held-out papers.

    Args:
        name: one of BASELINES.
        train: papers with labels.
        test: papers to judge.
        seed: of the random one.
        reward: the table by which its answers are paid, as a model's would be.

    Returns:
        PREDICTIONS, in the order of ``test``; every answer is valid.

    Raises:
        SciSciRLError: if there is no training paper, or the classifier finds no words or one class only.
    """
    if not train:
        msg = "the slice has no training papers, which a baseline learns from. Build one with n_train > 0."
        raise SciSciRLError(msg)
    rows = []
    for paper, (label, confidence) in zip(test, BASELINES[name](train, test, seed), strict=True):
        answer = Answer(
            label=label, confidence=confidence, is_json=True, is_valid=True, tolerant_label=label,
            tolerant_confidence=confidence, has_think=False, problem="",
        )  # fmt: skip
        gold = str(paper.gold.disruption_label)
        rows.append(make_prediction(paper.openalex_id, gold, answer, score_answer(answer, gold, REWARDS[reward]), ""))
    return pl.DataFrame(rows, schema=PREDICTIONS)


def _text(paper: Paper) -> str:
    return f"{paper.view.title or ''} {paper.view.abstract or ''}"


def _shares(papers: Sequence[Paper]) -> dict[str, float]:
    counts = Counter(paper.gold.disruption_label for paper in papers)
    return {label: counts[label] / len(papers) for label in _LABELS}


class _Facts:
    """Year, citations and field as columns, scaled by what training papers have."""

    def __init__(self, train: Sequence[Paper]) -> None:
        known = [column[~np.isnan(column)] for column in self._numbers(train).T]
        self.mean = np.array([column.mean() if len(column) else 0.0 for column in known])
        self.spread = np.array([column.std() if len(column) and column.std() > 0 else 1.0 for column in known])
        self.fields = sorted({paper.view.primary_field for paper in train if paper.view.primary_field is not None})

    def __call__(self, papers: Sequence[Paper]) -> sparse.csr_matrix:
        scaled = np.nan_to_num((self._numbers(papers) - self.mean) / self.spread)  # unknown: as the average paper
        fields = [[float(paper.view.primary_field == field) for field in self.fields] for paper in papers]
        return sparse.csr_matrix(np.hstack([scaled, np.array(fields).reshape(len(papers), len(self.fields))]))

    @staticmethod
    def _numbers(papers: Sequence[Paper]) -> np.ndarray[Any, np.dtype[np.float64]]:
        views = [paper.view for paper in papers]
        years = [np.nan if view.publication_year is None else float(view.publication_year) for view in views]
        cited = [np.nan if view.cited_by_count is None else np.log1p(view.cited_by_count) for view in views]
        return np.column_stack([years, cited])
