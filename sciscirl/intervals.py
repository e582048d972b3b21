"""How far the metrics of one evaluation may be off, by drawing its papers anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscirl.errors import PredictionsError
from sciscirl.metrics import AVERAGED
from sciscirl.predictions import INVALID, check_predictions, split_by_label
from sciscirl.task import VOCABULARIES

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


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
        predictions: as for :func:`metrics.compute_metrics`; one row per paper.
        n_resamples: more make the ends of the intervals steadier.
        level: share of resamples inside.
        seed: from 0.

    Returns:
        ``NAME/low`` and ``NAME/high``, for ``label_match``, ``macro_f1``, ``balanced_accuracy``, ``min_class_recall``,
        ``format_strict_ok`` and each ``recall/C`` that is defined; of a joint task under the names that
        ``compute_metrics`` gives them, both labels being those of the same papers in every resample.

    Raises:
        PredictionsError: as :func:`metrics.compute_metrics`; or if an option is out of its range.

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
    parts = split_by_label(check_predictions(predictions))
    resamples = {
        name: _resample(part, VOCABULARIES[f"{name}_label"], n_resamples, seed) for name, part in parts.items()
    }
    drawn = next(iter(resamples.values())) if len(resamples) == 1 else _merge(resamples)
    tail = (1 - level) / 2
    intervals: dict[str, float] = {}
    for name, values in drawn.items():
        defined = values[~np.isnan(values)]
        if len(defined):
            # Values that occurred, not ones between: no arithmetic that could round differently elsewhere.
            low, high = np.quantile(defined, [tail, 1 - tail], method="inverted_cdf")
            intervals |= {f"{name}/low": float(low), f"{name}/high": float(high)}
    return intervals


def _resample(frame: pl.DataFrame, labels: tuple[str, ...], n_resamples: int, seed: int) -> dict[str, Floats]:
    every = (*labels, INVALID)
    cells = _cells(frame["gold"].to_list(), frame["label"].fill_null(INVALID).to_list(), every)
    stream = np.random.Philox(key=seed)
    n, n_cells = len(cells), len(labels) * len(every)
    counts = np.stack([np.bincount(cells[_draw(stream, n)], minlength=n_cells) for _ in range(n_resamples)])
    return _summarise(counts.reshape(-1, len(labels), len(every)), labels)


def _merge(resamples: Mapping[str, dict[str, Floats]]) -> dict[str, Floats]:
    """As ``metrics.merge_labels``: the same stream drew the same papers for each label."""
    first = next(iter(resamples.values()))
    merged = {
        f"{label}/{name}": values
        for label, part in resamples.items()
        for name, values in part.items()
        if name != "format_strict_ok"  # of the whole answer
    }
    for name in AVERAGED:
        if name in first:
            merged[name] = np.mean([part[name] for part in resamples.values()], axis=0)
    merged["min_class_recall"] = np.min([part["min_class_recall"] for part in resamples.values()], axis=0)
    return merged | {"format_strict_ok": first["format_strict_ok"]}


def _cells(gold: list[str], predicted: list[str], every: tuple[str, ...]) -> Counts:
    """Number the cell of the confusion matrix that each answer falls into, row by row."""
    place = {name: index for index, name in enumerate(every)}
    return np.array([place[g] * len(every) + place[p] for g, p in zip(gold, predicted, strict=True)], np.int64)


def _draw(stream: np.random.Philox, n: int) -> Counts:
    # The upper 32 bits scaled to 0 .. n-1: whole numbers only, and biased by less than n in 4 billion.
    return ((stream.random_raw(n) >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64)


def _summarise(counts: Counts, labels: tuple[str, ...]) -> dict[str, Floats]:
    """Derive the metrics of many confusion matrices at once: ``counts`` is (resamples, gold, predicted)."""
    hits = np.diagonal(counts, axis1=1, axis2=2).astype(np.float64)
    held, said = counts.sum(axis=2), counts.sum(axis=1)[:, : len(labels)]
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
        **{f"recall/{label}": recall[:, index] for index, label in enumerate(labels)},
    }
