"""Metrics of your own: functions of predictions, each with a name, a range and a direction."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscirl.errors import SciSciRLError
from sciscirl.task.predictions import AVERAGED
from sciscirl.task.registry import add_entry
from sciscirl.task.rewards import name_source

Row = dict[str, Any]
#: Plain names that metrics, and columns beside them, have already.
TAKEN: Final = frozenset(
    {
        *AVERAGED, "n", "parse_ok", "format_strict_ok", "invalid", "think", "min_class_recall", "both_match",
        "mean_confidence", "brier", "ece", "forecast_tie_rate", "name", "way", "n_papers", "n_seeds", "saw", "step",
    }
)  # fmt: skip
#: What the names of other metrics, and of the columns of tables, begin or end with.
_TAKEN_START: Final = "reward"
_TAKEN_ENDS: Final = ("_low", "_high")
_ROUNDING: Final = 1e-9
_log = logging.getLogger(__name__)
_warn_once = cache(_log.warning)
_is_asking: Final = ContextVar("_is_asking", default=False)


@dataclass(frozen=True, slots=True)
class OwnMetric:
    """A metric of your own."""

    name: str
    call: Callable[[list[Row]], float | None] = field(compare=False, repr=False)
    function: str  # its name
    sha256: str  # of its source
    bounds: tuple[float, float]
    higher_is_better: bool

    @property
    def title(self) -> str:
        """Its name as tables show it."""
        return self.name if self.higher_is_better else f"{self.name} (less is better)"

    def ask(self, rows: list[Row]) -> tuple[float, str]:
        """Return its value, NaN where it is undefined, and what is wrong with it."""
        token = _is_asking.set(True)
        try:
            value: Any = self.call([{**row} for row in rows])  # which it may change
        except Exception as error:
            own = traceback.extract_tb(error.__traceback__)[1:]  # nothing where it cannot be called so
            where = f" in line {own[-1].lineno}" if own else ""
            return math.nan, f"failed{where} ({type(error).__name__}: {error})"
        finally:
            _is_asking.reset(token)
        if value is None:
            return math.nan, ""
        low, high = self.bounds
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float | np.floating | np.integer)
            or not low - _ROUNDING <= float(value) <= high + _ROUNDING
        ):
            return math.nan, f"returned {value!r}, needs a number from {low:g} to {high:g}, or None"
        return min(max(float(value), low), high), ""


_METRICS: Final = dict[str, OwnMetric]()
#: Every metric of ``register_metric`` by name.
METRICS: Final[Mapping[str, OwnMetric]] = MappingProxyType(_METRICS)


def register_metric(
    name: str,
    function: Callable[[list[Row]], float | None],
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    higher_is_better: bool = True,
) -> OwnMetric:
    """Add a metric of your own, for this process: evaluations, comparisons, sweeps and reports then have it.

    Its interval comes from resamples of the papers, as that of macro-F1 does. Runs record it by its source's SHA-256.

    Args:
        name: what tables call it.
        function: takes a list of predictions and returns the metric, or None where it is undefined. A prediction is a
            dict as of ``make_prediction``, one for each answer. It always has ``gold``, ``label`` (None: no valid
            answer), ``confidence``, ``is_json`` and ``is_valid``; tables without texts or rewards lack these. In a
            resample a paper may come several times. Where the function fails, or returns something else than a number
            from ``bounds``, the metric is undefined, and a warning says so.
        bounds: its least and its largest value.
        higher_is_better: False: the less, the better.

    Raises:
        SciSciRLError: the name is taken, or ``bounds`` are not two finite numbers, the least first.

    Example:
        >>> def missed_disruption(predictions):
        ...     asked = [row for row in predictions if row["gold"] == "disruptive"]
        ...     return sum(row["label"] != "disruptive" for row in asked) / len(asked) if asked else None
        >>> metric = register_metric("missed_disruption", missed_disruption, higher_is_better=False)
        >>> metric.ask([{"gold": "disruptive", "label": None}, {"gold": "neutral", "label": "neutral"}])
        (1.0, '')
    """
    if not callable(function):
        raise SciSciRLError(f"function is {function!r}, needs a function of a list of predictions.")
    if str(name) in TAKEN or str(name).startswith(_TAKEN_START) or str(name).endswith(_TAKEN_ENDS):
        raise SciSciRLError(f"the name of a metric is {name!r}, which another figure has. Choose another name.")
    try:
        low, high = (float(end) for end in bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise SciSciRLError(f"bounds of metric {name!r} are {bounds!r}, need two finite numbers, the least first.")
    metric = OwnMetric(name, function, *name_source(function, SciSciRLError), (low, high), higher_is_better)
    add_entry(_METRICS, name, metric, "metric", SciSciRLError)
    _warn_once.cache_clear()  # a notebook may have mended it
    return metric


def measure_own(frame: pl.DataFrame) -> dict[str, float]:
    """Compute every metric of one's own; one that is undefined has no key."""
    measured: dict[str, float] = {}
    if _is_asking.get() or not _METRICS:  # a metric may call measure_predictions
        return measured
    rows = frame.to_dicts()
    for name, metric in _METRICS.items():
        value, problem = metric.ask(rows)
        if problem:
            _warn_once(f"metric {name!r} {problem}. It is undefined here.")
        if not math.isnan(value):
            measured[name] = value
    return measured


def resample_own(frame: pl.DataFrame, papers: npt.NDArray[np.int64], often: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Compute every metric of one's own for resamples, NaN where it is undefined.

    ``papers`` is the paper of each row, by number, and ``often`` (resamples, papers) how often each resample has it.
    """
    drawn: dict[str, Any] = {}
    rows = frame.to_dicts() if _METRICS else []
    places = np.arange(len(rows))
    for name, metric in _METRICS.items():
        values, problems = np.full(len(often), math.nan), list[str]()
        for number, counts in enumerate(often if not math.isnan(metric.ask(rows)[0]) else ()):
            values[number], problem = metric.ask([rows[place] for place in np.repeat(places, counts[papers])])
            problems += [problem] if problem else []
        if problems:
            _warn_once(
                f"metric {name!r} {problems[0]}, in {len(problems):,} of {len(often):,} resamples. They are left out "
                "of its interval."
            )
        drawn[name] = values
    return drawn


def describe_metrics() -> list[dict[str, object]]:
    """Return every metric of one's own in JSON types, for the record of a run."""
    return [
        {
            "name": one.name,
            "bounds": [*one.bounds],
            "higher_is_better": one.higher_is_better,
            "function": {"name": one.function, "sha256": one.sha256},
        }
        for one in _METRICS.values()
    ]
