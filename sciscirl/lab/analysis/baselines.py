"""Baselines: four predictors without a language model, to compare every result with."""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import numpy as np
import polars as pl
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from sciscidata.storage.sums import check_ours
from sciscirl.errors import ReleaseError, SciSciRLError
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.results import METRICS_FILE, OUT_OPTION, PREDICTIONS_FILE, save_evaluation
from sciscirl.lab.evaluation.subject import find_subject, read_asked
from sciscirl.metrics.predictions import find_target, read_predictions
from sciscirl.presets import describe_rules, recall_rules
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.record import RUN_FILE
from sciscirl.task.contracts import Answer, most_probable
from sciscirl.task.papers import VOCABULARIES, PairView, Paper, PaperView, list_labels
from sciscirl.task.predictions import make_prediction, prediction_schema
from sciscirl.task.release import Part, PartName
from sciscirl.task.rules import TaskRules

_log = logging.getLogger(__name__)
_FIELD: Final = 2  # its column among the metadata
_MOST_FIELDS: Final = 255  # that the trees take; OpenAlex has 26


class _UnknownError(SciSciRLError):
    """Nothing is known of these papers that a baseline could see."""


#: The label and the forecast (label names to probabilities) for each held-out paper.
Verdicts = list[tuple[str, dict[str, float]]]
#: The classes of an own label; None for disruption and novelty.
Labels = tuple[str, ...] | None


def predict_majority(
    train: Sequence[Paper], test: Sequence[Paper], column: str, seed: int = 0, labels: Labels = None
) -> Verdicts:
    """Always give the most common label of the training split (the first of several). The forecast is its shares."""
    share = _shares(train, column, labels)
    return [(most_probable(share, [*share]), share)] * len(test)


def predict_prior(
    train: Sequence[Paper], test: Sequence[Paper], column: str, seed: int = 0, labels: Labels = None
) -> Verdicts:
    """Draw labels by SHA-256 of seed and id, in the shares of the training split. The forecast is these shares."""
    share = _shares(train, column, labels)
    words = [*share]
    # Each label column has its own stream, so the two labels of one paper are independent.
    stream = "prior" if column == "disruption_label" else f"prior:{column}"
    verdicts: Verdicts = []
    for paper in test:
        digest = hashlib.sha256(f"{seed}:{stream}:{paper.openalex_id}".encode()).digest()
        place = int.from_bytes(digest[:6]) / 2**48
        ends = np.cumsum([share[label] for label in words])
        label = words[min(int(np.searchsorted(ends, place, side="right")), len(words) - 1)]
        verdicts.append((label, share))
    return verdicts


def predict_tfidf(
    train: Sequence[Paper], test: Sequence[Paper], column: str, seed: int = 0, labels: Labels = None
) -> Verdicts:
    """Logistic regression on what a prompt shows: TF-IDF of title and abstract, field, year, log(1 + citations).

    Nothing is tuned. A pair of papers is the difference of the two, without an intercept.
    """
    sides, asked_sides = _sides(train), _sides(test)
    every = [view for side in sides for view in side]
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2 if len(train) > 50 else 1, sublinear_tf=True, dtype=np.float64)
    facts, model = _Facts(every), LogisticRegression(max_iter=1000, fit_intercept=len(sides) == 1)

    def see(views: Sequence[PaperView]) -> Any:  # noqa: ANN401 (a sparse matrix)
        return sparse.hstack([words.transform(map(_text, views)), facts(views)]).tocsr()

    with _teach_errors():
        words.fit(map(_text, every))
        model.fit(_subtract(sides, see), [paper.gold.of(column) for paper in train])
    return _list_verdicts(model, _subtract(asked_sides, see), column, labels)


@threadpool_limits.wrap(limits=1)  # on a busy machine, two threads wait for each other: 60 times as long
def predict_metadata(
    train: Sequence[Paper], test: Sequence[Paper], column: str, seed: int = 0, labels: Labels = None
) -> Verdicts:
    """Gradient-boosted trees on what a prompt shows beside the text: year, citations as log(1 + n), field.

    The defaults of scikit-learn. A pair of papers is the difference in year and citations; their fields are the same.
    """
    # Imported here, because it takes as long as all else.
    from sklearn.ensemble import HistGradientBoostingClassifier

    sides = _sides(train)
    fields = sorted({view.primary_field for side in sides for view in side if view.primary_field is not None})
    fields = fields[:_MOST_FIELDS] if len(sides) == 1 else []

    def see(views: Sequence[PaperView]) -> Any:  # noqa: ANN401 (an array)
        codes = [fields.index(view.primary_field) if view.primary_field in fields else np.nan for view in views]
        return np.column_stack([_Facts.numbers(views), codes])

    seen, asked = _subtract(sides, see), _subtract(_sides(test), see)
    known = ~np.isnan(seen).all(axis=0)
    categorical: Any = [place for place, number in enumerate(np.flatnonzero(known)) if number == _FIELD]
    model = HistGradientBoostingClassifier(categorical_features=categorical, random_state=0)
    golds = [paper.gold.of(column) for paper in train]
    if not known.any():
        raise _UnknownError("neither year, citations nor field is known.")
    with _teach_errors():
        if len({*golds}) < 2:
            raise ValueError("one class only")
        model.fit(seen[:, known], golds)
    return _list_verdicts(model, asked[:, known], column, labels)


def _list_verdicts(model: Any, asked: Any, column: str, labels: Labels) -> Verdicts:  # noqa: ANN401 (scikit-learn)
    chances = cast("np.ndarray[Any, np.dtype[np.float64]]", model.predict_proba(asked))
    known = [{str(label): min(float(chance), 1.0) for label, chance in zip(model.classes_, row, strict=True)}
             for row in chances]  # fmt: skip
    forecasts = [{label: chance.get(label, 0.0) for label in labels or VOCABULARIES[column]} for chance in known]
    return [(str(model.classes_[row.argmax()]), forecast) for row, forecast in zip(chances, forecasts, strict=True)]


#: Every baseline by name.
BASELINES: Final[Mapping[str, Callable[[Sequence[Paper], Sequence[Paper], str, int, Labels], Verdicts]]] = (
    MappingProxyType(
        {
            "majority": predict_majority,
            "prior_random": predict_prior,
            "tfidf_logistic": predict_tfidf,
            "metadata_boosting": predict_metadata,
        }
    )
)


def run_baseline(
    name: str,
    train: Sequence[Paper],
    test: Sequence[Paper],
    *,
    seed: int = 0,
    rules: TaskRules = TaskRules(),  # noqa: B008 (frozen)
) -> pl.DataFrame:
    """Let a baseline judge the held-out papers, each label column on its own, under the ``rules`` of a model.

    Confidence is the forecast of the label; for two labels the product. The reward is of the forecast under
    ``probabilities``, else of the label.
    """
    if not train:
        raise SciSciRLError("the release has no training papers to learn from. Build one with n_train > 0.")
    rules = rules.fitted(train)
    train, test = ([replace(paper, view=rules.see(paper.view)) for paper in papers] for papers in (train, test))
    columns = list_labels(rules.target)
    verdicts = [BASELINES[name](train, test, column, seed, labels) for column, labels in columns.items()]
    rows = []
    for paper, said in zip(test, zip(*verdicts, strict=True), strict=True):
        labels = {column: label for column, (label, _) in zip(columns, said, strict=True)}
        forecast = {label: chance for _, chances in said for label, chance in chances.items()}
        confidence = math.prod(forecast[label] for label in labels.values())
        answer = Answer(
            target=rules.target, labels=labels, forecast=forecast,
            confidence=confidence, is_json=True, is_valid=True, tolerant_labels=labels,
            tolerant_confidence=confidence, has_think=False, problem="",
        )  # fmt: skip
        gold = paper.labels(rules.target)
        paid = answer if rules.contract == "probabilities" else replace(answer, forecast={})
        reward = rules.score(paid, paper)
        rows.append(make_prediction(paper.openalex_id, gold, answer, reward, ""))
    return pl.DataFrame(rows, schema=prediction_schema(rules.target))


def _state_target(rules: TaskRules) -> dict[str, object]:
    """State what was not seen, and an own label. The preset or the predictions tell the other tasks."""
    described = describe_rules(rules)
    own = ("target", "own_label") if "own_label" in described else ()
    return {name: described[name] for name in ("hide", "as_of", *own)}


def evaluate_baselines(config: EvaluationConfig) -> dict[str, dict[str, float]]:
    """Judge the same papers by each baseline, and write one folder each. Return metrics by name."""
    subject = find_subject(config)
    split, rules = config.split or subject.eval_split, subject.preset.rules
    train = _read_train(config.release, split, rules, subject.n_held_out)
    asked = read_asked(config, subject)
    # All baselines run before any result is written: if one cannot learn, nothing is left half done.
    predictions = _run_all(train, asked, rules, config.seed)
    settings = {"split": split, "n_papers": config.n_papers, "seed": config.seed, **_state_target(rules)}
    with locked_folder(config.baselines_out, user="evaluation", option=OUT_OPTION):
        for name, judged in predictions.items():
            folder = config.baselines_out / name
            check_ours(*(folder / file for file in (PREDICTIONS_FILE, RUN_FILE, METRICS_FILE)))
            earlier = folder / PREDICTIONS_FILE
            if earlier.exists() and not read_predictions(earlier).equals(judged):
                raise SciSciRLError(
                    f"{earlier.parent} holds this baseline of another release or other settings. Choose another "
                    f"{OUT_OPTION}."
                )
        return {
            name: save_evaluation(
                judged, replace(config, out=config.baselines_out / name), {"baseline": name, **settings}
            )
            for name, judged in predictions.items()
        }


def run_baselines(release: Path, asked: pl.DataFrame, settings: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """Let every baseline judge the papers of predictions, ``asked``, by the ``settings`` of their ``run.json``."""
    part: PartName = settings.get("eval_split" if "learning_rate" in settings else "split") or "test"
    is_stated = settings.get("name") or settings.get("preset")
    rules = recall_rules(settings) if is_stated else TaskRules(target=find_target(asked))
    n_held_out = settings.get("n_held_out", 0)
    train = _read_train(release, part, rules, n_held_out)
    known = Part(release, part, n_held_out).read(rules.target, with_chances=rules.is_weighed)
    papers = {paper.openalex_id: paper for paper in known}
    ids = dict.fromkeys(asked["openalex_id"])
    if n_others := len(ids.keys() - papers.keys()):
        raise ReleaseError(
            f"{release} lacks {n_others:,} of {len(ids):,} papers in {part}. Give the release that they are of."
        )
    return _run_all(train, [papers[paper] for paper in ids], rules)


def _run_all(
    train: Sequence[Paper], asked: Sequence[Paper], rules: TaskRules, seed: int = 0
) -> dict[str, pl.DataFrame]:
    """Let every baseline judge the papers; one that could see nothing is left out, and a line says so."""
    judged: dict[str, pl.DataFrame] = {}
    for name in BASELINES:
        try:
            judged[name] = run_baseline(name, train, asked, seed=seed, rules=rules)
        except _UnknownError as error:
            _log.warning("%s is left out: %s", name, error)
    return judged


def _read_train(release: Path, judged_by: PartName, rules: TaskRules, n_held_out: int) -> list[Paper]:
    """Read the training papers, without those that are held out to judge."""
    if judged_by == "train":
        raise SciSciRLError(
            "the baselines learn from train, so judging them by it says nothing. Judge by test, dev or held_out."
        )
    n_left_out = n_held_out if judged_by == "held_out" else 0
    return Part(release, "train", n_left_out).read(rules.target, with_chances=rules.is_weighed)


def _text(view: PaperView) -> str:
    return f"{view.title or ''} {view.abstract or ''}"


def _sides(papers: Sequence[Paper]) -> list[list[PaperView]]:
    """List the papers, or of pairs the first ones and the second ones."""
    pairs = [view for paper in papers if isinstance(view := paper.view, PairView)]
    if pairs:
        return [[pair.A for pair in pairs], [pair.B for pair in pairs]]
    return [[view for paper in papers if isinstance(view := paper.view, PaperView)]]


def _subtract(sides: Sequence[Sequence[PaperView]], see: Callable[[Sequence[PaperView]], Any]) -> Any:  # noqa: ANN401
    first, *others = map(see, sides)
    return first - others[0] if others else first


@contextmanager
def _teach_errors() -> Generator[None]:
    try:
        yield
    except ValueError as error:  # no word that two papers have, or one class only
        raise SciSciRLError(
            f"the training papers cannot be learnt from ({error}). Build a larger release, of two classes at least."
        ) from error


def _shares(papers: Sequence[Paper], column: str, labels: Labels) -> dict[str, float]:
    counts = Counter(paper.gold.of(column) for paper in papers)
    return {label: counts[label] / len(papers) for label in labels or VOCABULARIES[column]}


class _Facts:
    """Year, citations and field as columns, scaled by what training papers have."""

    def __init__(self, train: Sequence[PaperView]) -> None:
        known = [column[~np.isnan(column)] for column in self.numbers(train).T]
        self.mean = np.array([column.mean() if len(column) else 0.0 for column in known])
        self.spread = np.array([column.std() if len(column) and column.std() > 0 else 1.0 for column in known])
        self.fields = sorted({view.primary_field for view in train if view.primary_field is not None})

    def __call__(self, views: Sequence[PaperView]) -> sparse.csr_matrix:
        scaled = np.nan_to_num((self.numbers(views) - self.mean) / self.spread)  # unknown: as the average paper
        fields = [[float(view.primary_field == field) for field in self.fields] for view in views]
        return sparse.csr_matrix(np.hstack([scaled, np.array(fields).reshape(len(views), len(self.fields))]))

    @staticmethod
    def numbers(views: Sequence[PaperView]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return year, and citations as log(1 + n); NaN where unknown."""
        years = [np.nan if view.publication_year is None else float(view.publication_year) for view in views]
        cited = [np.nan if view.cited_by_count is None else np.log1p(view.cited_by_count) for view in views]
        return np.column_stack([years, cited])
