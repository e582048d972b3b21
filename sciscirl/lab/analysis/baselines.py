"""Baselines: six predictors without a language model, to compare every result with. Each says what it saw."""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

import numpy as np
import polars as pl
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from sciscidata.storage.sums import check_ours
from sciscirl.errors import ReleaseError, SciSciRLError
from sciscirl.lab.analysis.features import (
    OF_REFERENCES,
    Coded,
    Counts,
    Known,
    Scaled,
    Sides,
    join_text,
    know,
    list_known,
    read_counts,
)
from sciscirl.lab.analysis.seen import CITERS, Judged, list_later, say_seen
from sciscirl.lab.evaluation.config import EvaluationConfig
from sciscirl.lab.evaluation.results import METRICS_FILE, OUT_OPTION, PREDICTIONS_FILE, save_evaluation
from sciscirl.lab.evaluation.subject import find_subject, read_asked
from sciscirl.metrics.predictions import find_target, read_predictions
from sciscirl.presets import describe_rules, recall_rules
from sciscirl.runs.folder import locked_folder
from sciscirl.runs.record import RUN_FILE
from sciscirl.task.contracts import Answer, most_probable
from sciscirl.task.papers import Paper, list_labels
from sciscirl.task.predictions import make_prediction, prediction_schema
from sciscirl.task.release import Part, PartName
from sciscirl.task.rules import TaskRules

_log = logging.getLogger(__name__)
_warn_once = cache(_log.warning)
_MOST_FIELDS: Final = 255  # that the trees take; OpenAlex has 26
#: Chosen on the dev papers of benchmarks/judgement, over its three slices: 0.1 to 10 of the strengths, five trees.
_STRENGTH_OF_WORDS: Final = 3.0
_STRENGTH: Final = 1.0
_TREES: Final = MappingProxyType({"learning_rate": 0.05, "max_leaf_nodes": 8, "random_state": 0})
_TEXT: Final = ("title", "abstract", "references")


class _UnknownError(SciSciRLError):
    """Nothing is known of these papers that a baseline could see."""


#: The label and the forecast (label names to probabilities) for each held-out paper.
Verdicts = list[tuple[str, dict[str, float]]]


class Lesson(NamedTuple):
    """What a baseline learns from, and what it judges.

    Attributes:
        train: training papers, as baselines know them; of pairs the first ones and the second ones.
        golds: their labels.
        labels: every label, in order.
        asked: the papers to judge, as ``train``.
        ids: of these.
        seen: the columns that the baseline sees.
        stream: of random numbers.
    """

    train: Sides
    golds: Sequence[str]
    labels: Sequence[str]
    asked: Sides
    ids: Sequence[str]
    seen: Sequence[str] = ()
    stream: str = ""


def predict_majority(lesson: Lesson) -> Verdicts:
    """Always give the most common label of the training split (the first of several). The forecast is its shares."""
    share = _shares(lesson)
    return [(most_probable(share, [*share]), share)] * len(lesson.ids)


def predict_prior(lesson: Lesson) -> Verdicts:
    """Draw labels by SHA-256 of seed and id, in the shares of the training split. The forecast is these shares."""
    share = _shares(lesson)
    words = [*share]
    verdicts: Verdicts = []
    for name in lesson.ids:
        digest = hashlib.sha256(f"{lesson.stream}:{name}".encode()).digest()
        place = int.from_bytes(digest[:6]) / 2**48
        ends = np.cumsum([share[label] for label in words])
        label = words[min(int(np.searchsorted(ends, place, side="right")), len(words) - 1)]
        verdicts.append((label, share))
    return verdicts


@threadpool_limits.wrap(limits=1)  # on a busy machine, two threads wait for each other: 60 times as long
def predict_by_regression(lesson: Lesson) -> Verdicts:
    """Logistic regression on TF-IDF of the words, and on numbers scaled by train, each as far as it is seen.

    A pair of papers is the difference of the two, without an intercept.
    """
    every = [paper for side in lesson.train for paper in side]
    text = [name for name in lesson.seen if name in _TEXT]
    numbers = [name for name in lesson.seen if name not in _TEXT]
    n = len(lesson.golds)
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2 if n > 50 else 1, sublinear_tf=True, dtype=np.float64)
    scaled = Scaled(every, numbers)
    strength = _STRENGTH if numbers else _STRENGTH_OF_WORDS
    model = LogisticRegression(C=strength, max_iter=1000, fit_intercept=len(lesson.train) == 1)

    def see(papers: Sequence[Known]) -> Any:  # noqa: ANN401 (a sparse matrix)
        shown = [words.transform(join_text(paper, text) for paper in papers)] if text else []
        return sparse.hstack([*shown, *([scaled(papers)] if numbers else [])]).tocsr()

    with _teach_errors():
        if text:
            words.fit(join_text(paper, text) for paper in every)
        model.fit(_subtract(lesson.train, see), lesson.golds)
    return _list_verdicts(model, _subtract(lesson.asked, see), lesson.labels)


@threadpool_limits.wrap(limits=1)
def predict_by_trees(lesson: Lesson) -> Verdicts:
    """Gradient-boosted trees on numbers and field. A pair of papers is the difference of its numbers."""
    # Imported here, because it takes as long as all else.
    from sklearn.ensemble import HistGradientBoostingClassifier

    every = [paper for side in lesson.train for paper in side]
    see = Coded(every, lesson.seen, _MOST_FIELDS if len(lesson.train) == 1 else 0)
    categorical: Any = see.categorical
    model = HistGradientBoostingClassifier(categorical_features=categorical, **cast("Any", _TREES))
    with _teach_errors():
        if len({*lesson.golds}) < 2:
            raise ValueError("one class only")
        model.fit(_subtract(lesson.train, see), lesson.golds)
    return _list_verdicts(model, _subtract(lesson.asked, see), lesson.labels)


def _list_verdicts(model: Any, asked: Any, labels: Sequence[str]) -> Verdicts:  # noqa: ANN401 (scikit-learn)
    chances = cast("np.ndarray[Any, np.dtype[np.float64]]", model.predict_proba(asked))
    known = [{str(label): min(float(chance), 1.0) for label, chance in zip(model.classes_, row, strict=True)}
             for row in chances]  # fmt: skip
    forecasts = [{label: chance.get(label, 0.0) for label in labels} for chance in known]
    return [(str(model.classes_[row.argmax()]), forecast) for row, forecast in zip(chances, forecasts, strict=True)]


class Group(NamedTuple):
    """Columns that baselines see together, and what is said if no training paper has any."""

    columns: tuple[str, ...]
    unknown: str


_WORDS: Final = Group(_TEXT, "neither title nor abstract is known.")
_AT_PUBLICATION: Final = Group(
    ("publication_year", "primary_field", *OF_REFERENCES), "neither year, field nor references are known."
)
_LATER: Final = Group(("cited_by_count", CITERS), "later citations are not known, or hidden.")


class Baseline(NamedTuple):
    """How a baseline predicts, and what it sees. It is left out if nothing of a group that it ``needs`` is known."""

    predict: Callable[[Lesson], Verdicts]
    sees: tuple[Group, ...] = ()
    needs: tuple[Group, ...] = ()


_BOTH: Final = (_WORDS, _AT_PUBLICATION)
#: Every baseline by name.
BASELINES: Final[Mapping[str, Baseline]] = MappingProxyType(
    {
        "majority": Baseline(predict_majority),
        "prior_random": Baseline(predict_prior),
        "words": Baseline(predict_by_regression, (_WORDS,), (_WORDS,)),
        "at_publication": Baseline(predict_by_regression, (_AT_PUBLICATION,), (_AT_PUBLICATION,)),
        "words_at_publication": Baseline(predict_by_regression, _BOTH, _BOTH),
        "later_counts": Baseline(predict_by_trees, (_AT_PUBLICATION, _LATER), (_LATER,)),
    }
)


def _list_seen(name: str, train: Sides, rules: TaskRules) -> tuple[str, ...]:
    """List the columns that a baseline sees: those that a training paper has (SciSciRLError: it sees too little)."""
    seen: list[str] = []
    shows_references = "references" not in rules.unseen
    for group in BASELINES[name].sees:
        known = list_known(train, [name for name in group.columns if name != "references" or shows_references])
        if not known and group in BASELINES[name].needs:
            raise _UnknownError(group.unknown)
        seen += known[:1] if group is _LATER else known  # the citers only where no other count is
    return tuple(seen)


def run_baseline(
    name: str,
    train: Sequence[Paper],
    test: Sequence[Paper],
    *,
    seed: int = 0,
    rules: TaskRules = TaskRules(),  # noqa: B008 (frozen)
    counts: Mapping[str, Counts] = MappingProxyType({}),
) -> Judged:
    """Let a baseline judge the held-out papers, each label column on its own, under the ``rules`` of a model.

    ``hide`` binds it. ``as_of`` does not: only later_counts sees what came later, and it always does. ``counts`` are
    those of the release (``read_counts``). Confidence is the forecast of the label; for two labels the product. The
    reward is of the forecast under ``probabilities``, else of the label. The settings say what it saw.
    """
    if not train:
        raise SciSciRLError("the release has no training papers to learn from. Build one with n_train > 0.")
    rules = rules.fitted(train)
    rules.see(train[0].view)  # an error where the release lacks what is to be shown
    known, asked = (know(papers, counts, rules) for papers in (train, test))
    seen, ids = _list_seen(name, known, rules), [paper.openalex_id for paper in test]
    columns = list_labels(rules.target)
    verdicts: list[Verdicts] = []
    for column, labels in columns.items():
        golds = [cast("str", paper.gold.of(column)) for paper in train]
        # Each label column has its own stream, so the two labels of one paper are independent.
        stream = f"{seed}:prior" if column == "disruption_label" else f"{seed}:prior:{column}"
        verdicts.append(BASELINES[name].predict(Lesson(known, golds, labels, asked, ids, seen, stream)))
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
    described = describe_rules(rules)
    # The preset or the predictions tell the other tasks.
    of_task = {name: described[name] for name in ("target", "own_label") if "own_label" in described}
    # What it knows is its own, whatever the model knows.
    as_of = "release" if list_later(seen) else "publication"
    # Where the release has context, a number of it is in ``seen`` beside n_references, which scores.parquet has, too.
    saw_context = {"references": "references" in seen, "at_publication": not {*seen}.isdisjoint(OF_REFERENCES[1:])}
    show = [one for one, is_seen in saw_context.items() if is_seen]
    settings = {"baseline": name, "saw": [*seen], "hide": described["hide"], "show": show, "as_of": as_of, **of_task}
    return Judged(pl.DataFrame(rows, schema=prediction_schema(rules.target)), settings)


def evaluate_baselines(config: EvaluationConfig) -> dict[str, dict[str, float]]:
    """Judge the same papers by each baseline, and write one folder each. Return metrics by name."""
    subject = find_subject(config)
    split, rules = config.split or subject.eval_split, subject.preset.rules
    train = _read_train(config.release, split, rules, subject.n_held_out)
    asked = read_asked(config, subject)
    # All baselines run before any result is written: if one cannot learn, nothing is left half done.
    every = _run_all(config.release, train, asked, rules, config.seed)
    settings = {"split": split, "n_papers": config.n_papers, "seed": config.seed}
    with locked_folder(config.baselines_out, user="evaluation", option=OUT_OPTION):
        for name, judged in every.items():
            folder = config.baselines_out / name
            check_ours(*(folder / file for file in (PREDICTIONS_FILE, RUN_FILE, METRICS_FILE)))
            earlier = folder / PREDICTIONS_FILE
            if earlier.exists() and not read_predictions(earlier).equals(judged.predictions):
                raise SciSciRLError(
                    f"{earlier.parent} holds this baseline of another release or other settings. Choose another "
                    f"{OUT_OPTION}."
                )
        return {
            name: save_evaluation(
                judged.predictions, replace(config, out=config.baselines_out / name), {**judged.settings, **settings}
            )
            for name, judged in every.items()
        }


def run_baselines(release: Path, asked: pl.DataFrame, settings: Mapping[str, Any]) -> dict[str, Judged]:
    """Let every baseline judge the papers of predictions, ``asked``, by the ``settings`` of their ``run.json``."""
    part: PartName = settings.get("eval_split" if "learning_rate" in settings else "split") or "test"
    is_stated = settings.get("name") or settings.get("preset")
    other = TaskRules(target=find_target(asked), hide=tuple(settings.get("hide") or ()))
    rules = recall_rules(settings) if is_stated else other
    n_held_out = settings.get("n_held_out", 0)
    train = _read_train(release, part, rules, n_held_out)
    known = Part(release, part, n_held_out).read(rules.target, with_chances=rules.is_weighed)
    papers = {paper.openalex_id: paper for paper in known}
    ids = dict.fromkeys(asked["openalex_id"])
    if n_others := len(ids.keys() - papers.keys()):
        raise ReleaseError(
            f"{release} lacks {n_others:,} of {len(ids):,} papers in {part}. Give the release that they are of."
        )
    return _run_all(release, train, [papers[paper] for paper in ids], rules)


def _run_all(
    release: Path, train: Sequence[Paper], asked: Sequence[Paper], rules: TaskRules, seed: int = 0
) -> dict[str, Judged]:
    """Let every baseline judge the papers; those that could see nothing are left out, and a line says why."""
    judged: dict[str, Judged] = {}
    counts, left_out = read_counts(release, rules.target), dict[str, list[str]]()
    for name in BASELINES:
        try:
            judged[name] = run_baseline(name, train, asked, seed=seed, rules=rules, counts=counts)
        except _UnknownError as error:
            left_out.setdefault(str(error), []).append(name)
    for why, names in left_out.items():
        _log.warning("%s: left out, %s", ", ".join(names), why)
    if "at_publication" in judged and not {*OF_REFERENCES[1:]} & {*judged["at_publication"].settings["saw"]}:
        _warn_once(
            f"{release} has no facts on what its papers cite, so at_publication saw only "
            f"{say_seen(judged['at_publication'].settings)}. To add them, build the release with --context."
        )
    return judged


def _read_train(release: Path, judged_by: PartName, rules: TaskRules, n_held_out: int) -> list[Paper]:
    """Read the training papers, without those that are held out to judge."""
    if judged_by == "train":
        raise SciSciRLError(
            "the baselines learn from train, so judging them by it says nothing. Judge by test, dev or held_out."
        )
    n_left_out = n_held_out if judged_by == "held_out" else 0
    return Part(release, "train", n_left_out).read(rules.target, with_chances=rules.is_weighed)


def _subtract(sides: Sides, see: Callable[[Sequence[Known]], Any]) -> Any:  # noqa: ANN401
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


def _shares(lesson: Lesson) -> dict[str, float]:
    counts = Counter(lesson.golds)
    return {label: counts[label] / len(lesson.golds) for label in lesson.labels}
