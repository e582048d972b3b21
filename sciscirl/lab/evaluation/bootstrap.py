"""Intervals: how far the metrics of one evaluation may be off, by Wilson's formula or by drawing its papers again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata.intervals import wilson_interval
from sciscidata.options.checks import PositiveInt
from sciscirl.errors import PredictionsError
from sciscirl.metrics.metrics import Counts, Floats
from sciscirl.metrics.own_metrics import resample_own
from sciscirl.metrics.predictions import check_predictions, find_target, split_by_label
from sciscirl.task.papers import list_labels
from sciscirl.task.predictions import INVALID, merge_labels

#: Resamples for the intervals of one evaluation.
N_RESAMPLES: Final = 1000
#: Resamples for paired differences, which decide between models and between checkpoints.
N_PAIRED_RESAMPLES: Final = 2000


@dataclass(frozen=True, kw_only=True)
class Resampled:
    """How often papers are drawn again.

    Attributes:
        n_resamples: of papers, for the intervals, and of the permutations, for p.
    """

    n_resamples: PositiveInt = N_PAIRED_RESAMPLES


_ENDS: Final = ("low", "high")
_SEED_MAX: Final = 2**128  # the width of Philox's key
_RESAMPLES_MAX: Final = 1_000_000
_BLOCK: Final = 1_000  # resamples at a time: memory does not grow with papers times resamples
Table = pl.DataFrame | Iterable[Mapping[str, Any]]


def bootstrap_intervals(
    predictions: Table, *, n_resamples: int = N_RESAMPLES, level: float = 0.95, seed: int = 0
) -> dict[str, float]:
    """Compute intervals for the metrics that a model is chosen by, as ``NAME/low`` and ``NAME/high``."""
    if not 0 < level < 1:
        raise PredictionsError(f"level is {level}, needs a share between 0 and 1.")
    frame = check_predictions(predictions)
    drawn = resample_metrics([frame], n_resamples=n_resamples, seed=seed)
    found = find_intervals(frame, {name: values for name, (values,) in drawn.items()}, level)
    return {f"{name}/{end}": value for name, ends in found.items() for end, value in zip(_ENDS, ends, strict=True)}


def find_intervals(frame: pl.DataFrame, drawn: Mapping[str, Floats], level: float) -> dict[str, tuple[float, float]]:
    """Return an interval for each resampled metric (``drawn``) of one evaluation.

    A share of papers gets Wilson's score interval, which has a width even where every paper is right. Several answers
    to a paper count as one. ``min_class_recall`` gets the least ends of the recalls, all else percentiles. Where all
    resamples agree there is none: they say nothing about other papers. Source: Wilson 1927,
    doi:10.1080/01621459.1927.10502953; Efron & Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.
    """
    shares = _find_shares(frame, level)
    found: dict[str, tuple[float, float]] = {}
    for name, values in drawn.items():
        ends = shares.get(name) or percentile_interval(values, level)
        if ends is not None and ends[0] < ends[1]:
            found[name] = ends
    return found


def _find_shares(frame: pl.DataFrame, level: float) -> dict[str, tuple[float, float]]:
    papers = pl.Series(_papers(frame))

    def find(flags: pl.Series, among: pl.Series | None = None) -> tuple[float, float]:
        asked = papers if among is None else papers.filter(among)
        right, n = flags if among is None else flags.filter(among), asked.n_unique()
        low, high = wilson_interval(int(right.sum()) / len(right), n, NormalDist().inv_cdf((1 + level) / 2))
        return float(low), float(high)

    shares = {"format_strict_ok": find(frame["is_valid"])}
    every: list[tuple[float, float]] = []
    parts = split_by_label(frame)
    for (label, part), words in zip(parts.items(), list_labels(find_target(frame)).values(), strict=True):
        start = f"{label}/" if len(parts) > 1 else ""
        right, gold = (part["gold"] == part["label"]).fill_null(value=False), part["gold"]
        recalls = {f"{start}recall/{word}": find(right, gold == word) for word in words if (gold == word).any()}
        shares |= recalls | {f"{start}label_match": find(right), f"{start}min_class_recall": _least(recalls.values())}
        every += recalls.values()
    return shares | {"min_class_recall": _least(every)}


def _least(intervals: Iterable[tuple[float, float]]) -> tuple[float, float]:
    lows, highs = zip(*intervals, strict=True)
    return min(lows), min(highs)


def percentile_interval(values: Floats, level: float) -> tuple[float, float] | None:
    """Return the interval that holds a share ``level`` of resampled values; None if all are undefined (NaN)."""
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None
    tail = (1 - level) / 2
    # Values that occurred, not ones between: no arithmetic that could round differently elsewhere.
    low, high = np.quantile(defined, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


def resample_metrics(tables: Sequence[Table], *, n_resamples: int = N_RESAMPLES, seed: int = 0) -> dict[str, Floats]:
    """Compute metrics of several evaluations of the same papers in the same order, all on the same resamples of papers.

    Papers are drawn with replacement, each with all its answers, from the raw numbers of Philox. NumPy guarantees that
    this stream never changes. Returns arrays (tables, resamples), NaN where a resample leaves the metric undefined.
    """
    if not 1 <= n_resamples <= _RESAMPLES_MAX or not 0 <= seed < _SEED_MAX:
        needed = f"1 to {_RESAMPLES_MAX:,}, 0 or more and less than 2**128"
        raise PredictionsError(f"n_resamples is {n_resamples:,}, seed {seed}: needs {needed}.")
    frames = [check_predictions(table) for table in tables]
    papers = list(dict.fromkeys(_papers(frames[0])))
    if any(list(dict.fromkeys(_papers(frame))) != papers for frame in frames):
        raise PredictionsError(
            "the tables are not of the same papers in the same order. Take evaluations of one split of one release."
        )
    stream, n = np.random.Philox(key=seed), len(papers)
    blocks: list[list[dict[str, Floats]]] = []
    for start in range(0, n_resamples, _BLOCK):
        size = min(_BLOCK, n_resamples - start)
        often = np.stack([np.bincount(draw_below(stream, n, n), minlength=n) for _ in range(size)])
        blocks.append([_resample(frame, often) for frame in frames])
    return {
        name: np.stack([np.concatenate([block[row][name] for block in blocks]) for row in range(len(frames))])
        for name in blocks[0][0]
    }


def _papers(frame: pl.DataFrame) -> list[object]:
    return frame["openalex_id"].to_list() if "openalex_id" in frame.columns else list(range(len(frame)))


def _number_papers(frame: pl.DataFrame) -> Counts:
    """Number the papers of the answers, from 0, in the order of the table."""
    papers = _papers(frame)
    row_of = {paper: row for row, paper in enumerate(dict.fromkeys(papers))}
    return np.array([row_of[paper] for paper in papers], dtype=np.int64)


def draw_below(stream: np.random.Philox, n: int, size: int) -> Counts:
    """Draw whole numbers from 0 to n - 1: upper 32 bits, scaled. The bias is below n in 4 billion."""
    return ((stream.random_raw(size) >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64)


class Cells(NamedTuple):
    """Confusion counts of one label: ``counts`` is (papers or resamples, gold times said); said may be *invalid*."""

    counts: Counts
    labels: tuple[str, ...]


def count_cells(frame: pl.DataFrame) -> dict[str, Cells]:
    """Count the answers to each paper, papers in the order of the table, by name of the label."""
    rows = _number_papers(frame)
    n_papers = int(rows.max()) + 1
    found: dict[str, Cells] = {}
    words = list_labels(find_target(frame)).values()
    for (name, part), labels in zip(split_by_label(frame).items(), words, strict=True):
        every = pl.Enum([*labels, INVALID])
        gold, said = (part[column].fill_null(INVALID).cast(every).to_physical() for column in ("gold", "label"))
        cells = gold.cast(pl.Int64).to_numpy() * (len(labels) + 1) + said.to_numpy()  # of the confusion matrix
        n_cells = len(labels) * (len(labels) + 1)
        counts = np.bincount(rows * n_cells + cells, minlength=n_papers * n_cells).reshape(-1, n_cells)
        found[name] = Cells(counts, labels)
    return found


def measure_cells(cells: Mapping[str, Cells]) -> dict[str, Floats]:
    """Compute the metrics of :func:`bootstrap_intervals` for every row of confusion counts."""
    measured = {
        name: _summarise(counts.reshape(-1, len(labels), len(labels) + 1), labels)
        for name, (counts, labels) in cells.items()
    }
    if len(measured) == 1:
        return next(iter(measured.values()))
    of_the_answer = [part.pop("format_strict_ok") for part in measured.values()]
    return merge_labels(measured) | {"format_strict_ok": of_the_answer[0]}


def _resample(frame: pl.DataFrame, often: Counts) -> dict[str, Floats]:
    """Compute metrics for resamples: ``often`` is (resamples, papers), how often each holds each paper."""
    cells = {name: Cells(often @ counts, labels) for name, (counts, labels) in count_cells(frame).items()}
    return measure_cells(cells) | resample_own(frame, _number_papers(frame), often)


def _summarise(counts: Counts, labels: tuple[str, ...]) -> dict[str, Floats]:
    """Compute the metrics of many confusion matrices: ``counts`` is (resamples, gold, predicted)."""
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
