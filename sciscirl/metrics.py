"""How good a set of answers is. An answer that is not valid counts as wrong in every metric, and is never left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.metrics import confusion_matrix, matthews_corrcoef, precision_recall_fscore_support

from sciscirl.contracts import Answer
from sciscirl.errors import PredictionsError
from sciscirl.rewards import RewardParts
from sciscirl.task import VOCABULARIES

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

#: What is predicted where there is no valid answer: never right.
INVALID: Final = "invalid"
#: One row per answer; what an evaluation writes and what every metric can be recomputed from.
PREDICTIONS: Final = pl.Schema(
    {
        "openalex_id": pl.String(),
        "gold": pl.String(),
        "label": pl.String(),  # null unless is_valid
        "confidence": pl.Float64(),  # null unless is_valid
        "is_json": pl.Boolean(),
        "is_valid": pl.Boolean(),
        "has_think": pl.Boolean(),
        "problem": pl.String(),
        "tolerant_label": pl.String(),
        "tolerant_confidence": pl.Float64(),
        "reward": pl.Float64(),
        "reward_parse": pl.Float64(),
        "reward_contract": pl.Float64(),
        "reward_task": pl.Float64(),
        "reward_think": pl.Float64(),
        "text": pl.String(),
    }
)
#: What the metrics read; of the rest, reward columns are averaged where they are there.
_READ: Final = ("gold", "label", "confidence", "is_json", "is_valid")
_REWARDS: Final = tuple(name for name in PREDICTIONS if name.startswith("reward"))

_LABELS: Final = VOCABULARIES["disruption_label"]
_PREDICTED: Final = (*_LABELS, INVALID)
_N_BINS: Final = 10


def make_prediction(
    openalex_id: str, gold: str, answer: Answer, reward: RewardParts, text: str
) -> dict[str, str | float | bool | None]:
    """Put one answer into a row of PREDICTIONS.

    Example:
        >>> from sciscirl.contracts import parse_answer
        >>> from sciscirl.rewards import REWARDS, score_answer
        >>> text = '{"disruption_label": "neutral", "confidence": 0.5}'
        >>> answer = parse_answer(text, "two_keys")
        >>> row = make_prediction("W1", "neutral", answer, score_answer(answer, "neutral", REWARDS["soft"]), text)
        >>> row["label"], row["reward"]
        ('neutral', 0.75)
    """
    parts = {("reward" if name == "total" else f"reward_{name}"): value for name, value in asdict(reward).items()}
    row = {"openalex_id": openalex_id, "gold": gold, "text": text, **asdict(answer), **parts}
    return {name: row[name] for name in PREDICTIONS}


def compute_metrics(predictions: pl.DataFrame | Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Compute every metric of one evaluation.

    A metric that is undefined is not among the keys, for example the recall of a class that no paper has, or the
    precision of one that was never predicted. F1 is 0 for a class that was never predicted.

    Args:
        predictions: PREDICTIONS, at least ``gold``, ``label``, ``confidence``, ``is_json`` and ``is_valid``; one row
            per answer, as a frame or as rows of :func:`make_prediction`.

    Returns:
        All between 0 and 1 unless said otherwise, C being each label:

        - ``n``: answers.
        - ``label_match``: share with the right label, of all answers (accuracy).
        - ``parse_ok``, ``format_strict_ok``, ``invalid``: share that is JSON, that keeps the contract, that does not.
        - ``think``, ``tolerant_label_match``: share with ``<think>``; share that a lenient reader would call right.
        - ``recall/C``, ``precision/C``, ``f1/C``: an invalid answer is a miss of its class and a prediction of none.
        - ``macro_f1``, ``balanced_accuracy``, ``min_class_recall``: mean F1, mean recall and least recall of the
          classes that some paper has.
        - ``mcc``: Matthews' correlation for several classes (-1 to 1), with *invalid* as a fourth predicted class;
          by convention 0 for a constant prediction.
        - ``predicted_share/C``, ``predicted_share/invalid``: of all answers; they add up to 1.
        - ``confusion/GOLD/PREDICTED``: number of answers; predicted may be *invalid*.
        - ``mean_confidence``: of valid answers.
        - ``brier``: mean squared distance of confidence and being right (0 or 1); an invalid answer costs 1.
        - ``ece``: expected calibration error in ten bins of equal width, (0, 0.1] and so on, 0 in the first; an
          invalid answer counts as wrong with confidence 1.
        - ``reward``, ``reward_parse`` and so on: means, in units of reward, where the columns are there.

    Raises:
        PredictionsError: if there is no row, a column is missing, a gold label or a label is unknown, or ``label``
            and ``confidence`` are not there for exactly the valid answers.

    Source: MCC, Gorodkin 2004, doi:10.1016/j.compbiolchem.2004.09.006; its value for constant predictions, Chicco &
    Jurman 2020, doi:10.1186/s12864-019-6413-7; ECE, Guo et al. 2017, arXiv:1706.04599.

    Example:
        >>> said = {"confidence": 0.9, "is_json": True, "is_valid": True}
        >>> lost = {"gold": "neutral", "label": None, "confidence": None, "is_json": False, "is_valid": False}
        >>> metrics = compute_metrics([{"gold": "disruptive", "label": "disruptive", **said}, lost])
        >>> metrics["label_match"], metrics["recall/neutral"], metrics["confusion/neutral/invalid"]
        (0.5, 0.0, 1.0)
    """
    frame = check_predictions(predictions)
    gold, predicted = frame["gold"].to_list(), frame["label"].fill_null(INVALID).to_list()
    hits = (frame["gold"] == frame["label"]).fill_null(value=False)
    metrics = {
        "n": float(len(frame)),
        "label_match": _share(hits),
        "parse_ok": _share(frame["is_json"]),
        "format_strict_ok": _share(frame["is_valid"]),
        "invalid": _share(~frame["is_valid"]),
    }
    if "has_think" in frame.columns:
        metrics["think"] = _share(frame["has_think"])
    if "tolerant_label" in frame.columns:
        metrics["tolerant_label_match"] = _share((frame["gold"] == frame["tolerant_label"]).fill_null(value=False))
    metrics |= _class_metrics(gold, predicted)
    metrics |= _confidence_metrics(frame["confidence"], hits)
    return metrics | {name: _mean(frame[name]) for name in _REWARDS if name in frame.columns}


def check_predictions(predictions: pl.DataFrame | Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Read rows into a frame and refuse what no evaluation can have made.

    Raises:
        PredictionsError: see :func:`compute_metrics`.

    Example:
        >>> check_predictions([])
        Traceback (most recent call last):
        ...
        sciscirl.errors.PredictionsError: there are no predictions. Evaluate at least one paper.
    """
    if not isinstance(predictions, pl.DataFrame):
        rows = [dict(row) for row in predictions]
        schema = {name: dtype for name, dtype in PREDICTIONS.items() if rows and name in rows[0]}
        predictions = pl.DataFrame(rows, schema=schema)
    if predictions.is_empty():
        msg = "there are no predictions. Evaluate at least one paper."
        raise PredictionsError(msg)
    wrong = [
        f"{name} {predictions.schema.get(name, 'missing')}, needs {PREDICTIONS[name]}"
        for name in PREDICTIONS
        if (name in _READ or name in predictions.columns) and predictions.schema.get(name) != PREDICTIONS[name]
    ]
    if wrong:
        msg = f"the predictions have {'; '.join(wrong)}. Use the table that an evaluation wrote."
        raise PredictionsError(msg)
    said, sure = pl.col("label"), pl.col("confidence")
    rewards = [name for name in _REWARDS if name in predictions.columns]
    problems = predictions.select(
        (~pl.col("gold").is_in(_LABELS)).fill_null(value=True).sum().alias("have an unknown gold label"),
        (~said.is_in(_LABELS)).sum().alias("have an unknown label"),
        (~sure.is_between(0, 1)).sum().alias("have a confidence outside 0 to 1"),
        pl.any_horizontal(pl.col("is_json", "is_valid").is_null()).sum().alias("do not say whether they are valid"),
        pl.any_horizontal(pl.col("label", "confidence").is_null() == pl.col("is_valid"))
        .sum()
        .alias("have a label or confidence without being valid, or are valid without"),
        (pl.col("is_valid") & ~pl.col("is_json")).sum().alias("are valid but not JSON"),
        pl.any_horizontal(pl.lit(value=False), *(~pl.col(name).is_finite().fill_null(value=False) for name in rewards))
        .sum()
        .alias("have no finite reward"),
    ).row(0, named=True)
    for problem, count in problems.items():
        if count:
            msg = f"{count:,} of {len(predictions):,} predictions {problem}. Use the table that an evaluation wrote."
            raise PredictionsError(msg)
    return predictions


def bootstrap_intervals(
    predictions: pl.DataFrame | Iterable[Mapping[str, Any]],
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, float]:
    """Give percentile intervals for the metrics that a model is chosen by.

    Papers are drawn with replacement, from the raw numbers of Philox: a stream that NumPy guarantees never to change,
    so that the same predictions in the same order give the same intervals on every machine and version. Resamples in
    which a metric is undefined are left out of its interval.

    Args:
        predictions: as for :func:`compute_metrics`; one row per paper.
        n_resamples: more make the ends of the intervals steadier.
        level: share of resamples inside.
        seed: from 0.

    Returns:
        ``NAME/low`` and ``NAME/high``, for ``label_match``, ``macro_f1``, ``balanced_accuracy``, ``min_class_recall``,
        ``format_strict_ok`` and each ``recall/C`` that is defined.

    Raises:
        PredictionsError: as :func:`compute_metrics`; or if an option is out of its range.

    Source: Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.

    Example:
        >>> said = {"confidence": 0.9, "is_json": True, "is_valid": True}
        >>> rows = [{"gold": "neutral", "label": label, **said} for label in ("neutral", "disruptive") * 50]
        >>> intervals = bootstrap_intervals(rows)
        >>> intervals["label_match/low"], intervals["label_match/high"]
        (0.41, 0.6)
    """
    if n_resamples < 1 or not 0 < level < 1 or seed < 0:
        msg = (
            f"n_resamples is {n_resamples}, level {level}, seed {seed}: needs 1 or more, a share between 0 and 1, 0 or "
            "more."
        )
        raise PredictionsError(msg)
    frame = check_predictions(predictions)
    cells = _cells(frame["gold"].to_list(), frame["label"].fill_null(INVALID).to_list())
    stream = np.random.Philox(key=seed)
    n, n_cells = len(cells), len(_LABELS) * len(_PREDICTED)
    counts = np.stack([np.bincount(cells[_draw(stream, n)], minlength=n_cells) for _ in range(n_resamples)])
    drawn = _summarise(counts.reshape(-1, len(_LABELS), len(_PREDICTED)))
    tail = (1 - level) / 2
    intervals: dict[str, float] = {}
    for name, values in drawn.items():
        defined = values[~np.isnan(values)]
        if len(defined):
            # Values that occurred, not ones between: no arithmetic that could round differently elsewhere.
            low, high = np.quantile(defined, [tail, 1 - tail], method="inverted_cdf")
            intervals |= {f"{name}/low": float(low), f"{name}/high": float(high)}
    return intervals


def tie_metrics(rewards_by_group: Iterable[Sequence[float]]) -> dict[str, float]:
    """Say how often the rewards of one prompt's answers tie, which leaves nothing to learn from.

    Args:
        rewards_by_group: the total rewards of each group, one per answer.

    Returns:
        Of the groups with two answers or more (empty if there is none):

        - ``reward_tie_group_rate``: share of groups in which a reward repeats.
        - ``reward_uniform_group_rate``: share in which all are equal.
        - ``reward_tie_pair_rate``: share of tied pairs among all pairs within groups.
        - ``reward_unique_fraction_mean``: mean over groups of distinct rewards divided by answers.

    Example:
        >>> tie_metrics([[1.05, 1.05], [1.05, -0.55]])["reward_uniform_group_rate"]
        0.5
    """
    groups = [list(group) for group in rewards_by_group if len(group) > 1]
    if not groups:
        return {}
    distinct = [len(set(group)) for group in groups]
    pairs = [left == right for group in groups for left, right in combinations(group, 2)]
    sizes = [len(group) for group in groups]
    return {
        "reward_tie_group_rate": sum(d < n for d, n in zip(distinct, sizes, strict=True)) / len(groups),
        "reward_uniform_group_rate": distinct.count(1) / len(groups),
        "reward_tie_pair_rate": sum(pairs) / len(pairs),
        "reward_unique_fraction_mean": math.fsum(d / n for d, n in zip(distinct, sizes, strict=True)) / len(groups),
    }


def _class_metrics(gold: list[str], predicted: list[str]) -> dict[str, float]:
    table = confusion_matrix(gold, predicted, labels=_PREDICTED)[: len(_LABELS)]
    scores = cast(
        "tuple[Floats, Floats, Floats, Counts]",
        precision_recall_fscore_support(gold, predicted, labels=_LABELS, zero_division=cast("Any", 0)),
    )
    metrics: dict[str, float] = {}
    held: dict[str, tuple[float, float]] = {}
    for label, precision, recall, f1, support in zip(_LABELS, *scores, strict=True):
        if label in predicted:
            metrics[f"precision/{label}"] = float(precision)
        if support:
            held[label] = float(recall), float(f1)
            metrics |= {f"recall/{label}": float(recall), f"f1/{label}": float(f1)}
    recalls, f1s = zip(*held.values(), strict=True)
    metrics |= {
        "macro_f1": math.fsum(f1s) / len(f1s),
        "balanced_accuracy": math.fsum(recalls) / len(recalls),
        "min_class_recall": min(recalls),
        # scikit-learn gives 0 for constant predictions too, but warns where gold is the same constant.
        "mcc": float(matthews_corrcoef(gold, predicted)) if len({*gold, *predicted}) > 1 else 0.0,
    }
    metrics |= {f"predicted_share/{name}": predicted.count(name) / len(gold) for name in _PREDICTED}
    return metrics | {
        f"confusion/{label}/{name}": float(count)
        for label, row in zip(_LABELS, table, strict=True)
        for name, count in zip(_PREDICTED, row, strict=True)
    }


def _confidence_metrics(confidence: pl.Series, hits: pl.Series) -> dict[str, float]:
    sure = cast("Floats", confidence.fill_null(1.0).to_numpy())
    right = cast("Floats", hits.cast(pl.Float64).to_numpy())
    # (0, 0.1] is bin 0, and so on; each of 0.1, 0.2, ... times ten is a whole number in binary too.
    bins = np.clip(np.ceil(sure * _N_BINS) - 1, 0, None).astype(np.int64)
    gaps = np.bincount(bins, weights=sure - right, minlength=_N_BINS)
    metrics = {"brier": math.fsum((sure - right) ** 2) / len(sure), "ece": math.fsum(np.abs(gaps)) / len(sure)}
    stated = confidence.drop_nulls()
    return metrics | ({"mean_confidence": _mean(stated)} if len(stated) else {})


def _cells(gold: list[str], predicted: list[str]) -> Counts:
    """Number the cell of the confusion matrix that each answer falls into, row by row."""
    place = {name: index for index, name in enumerate(_PREDICTED)}
    return np.array([place[g] * len(_PREDICTED) + place[p] for g, p in zip(gold, predicted, strict=True)], np.int64)


def _draw(stream: np.random.Philox, n: int) -> Counts:
    # The upper 32 bits scaled to 0 .. n-1: whole numbers only, and biased by less than n in 4 billion.
    return ((stream.random_raw(n) >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64)


def _summarise(counts: Counts) -> dict[str, Floats]:
    """Derive the metrics of many confusion matrices at once: ``counts`` is (resamples, gold, predicted)."""
    hits = np.diagonal(counts, axis1=1, axis2=2).astype(np.float64)
    held, said = counts.sum(axis=2), counts.sum(axis=1)[:, : len(_LABELS)]
    total = counts.sum(axis=(1, 2))
    absent = np.full(hits.shape, np.nan)
    recall = np.divide(hits, held, out=absent.copy(), where=held > 0)
    f1 = np.divide(2 * hits, held + said, out=absent.copy(), where=held > 0)
    return {
        "label_match": hits.sum(axis=1) / total,
        "macro_f1": np.nanmean(f1, axis=1),
        "balanced_accuracy": np.nanmean(recall, axis=1),
        "min_class_recall": np.nanmin(recall, axis=1),
        "format_strict_ok": counts[:, :, :-1].sum(axis=(1, 2)) / total,
        **{f"recall/{label}": recall[:, index] for index, label in enumerate(_LABELS)},
    }


def _share(flags: pl.Series) -> float:
    return int(flags.sum()) / len(flags)


def _mean(values: pl.Series) -> float:
    return math.fsum(values) / len(values)
