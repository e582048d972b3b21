"""The parts of a report before they become HTML, and how numbers are written in it."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sciscirl.lab.analysis.compare import Comparison, Estimate, Pair
from sciscirl.lab.analysis.seen import find_saw_later
from sciscirl.metrics.own_metrics import METRICS

ABSENT = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text; the first column names the rows."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG, and a text for readers who cannot see it."""

    png: bytes
    alt: str

    @property
    def data_uri(self) -> str:
        """The picture itself as an address."""
        return f"data:image/png;base64,{b64encode(self.png).decode('ascii')}"


@dataclass(frozen=True, slots=True)
class Example:
    """One answer of a model: ``"right"``, ``"wrong"`` or ``"invalid"``."""

    outcome: str
    title: str
    facts: Mapping[str, str]
    abstract: str
    answer: str


@dataclass(frozen=True, slots=True)
class Section:
    """One view of the runs."""

    id: str
    title: str
    text: str
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    examples: Mapping[str, Sequence[Example]] | None = None
    headline: Sequence[str] = ()


_TITLES: Final = {"label_match": "accuracy", "macro_f1": "macro-F1", "min_class_recall": "worst-class recall"}


def show_title(metric: str) -> str:
    """Write the name of a metric for readers; one of your own says whether a lower value is better."""
    return METRICS[metric].title if metric in METRICS else _TITLES.get(metric, metric)


def leave_out_empty(table: Table) -> Table:
    """Leave out columns in which no row says anything."""
    kept = [n for n, column in enumerate(zip(*table.rows, strict=True)) if n == 0 or {*column} - {"", ABSENT}]
    if not table.rows or len(kept) == len(table.head):
        return table
    return replace(table, head=[table.head[n] for n in kept], rows=[[row[n] for n in kept] for row in table.rows])


def show(value: float | None, digits: int = 3) -> str:
    """Write a number; undefined is a dash."""
    return ABSENT if value is None else f"{value:z.{digits}f}"  # z: no minus before a zero


def show_metric(metrics: Mapping[str, float | None], name: str, digits: int = 3) -> str:
    """Write a metric with its interval, if it has one."""
    text = show(metrics.get(name), digits)
    if f"{name}/low" not in metrics:
        return text
    return f"{text} [{show(metrics[f'{name}/low'], digits)}, {show(metrics[f'{name}/high'], digits)}]"


def show_estimate(estimate: Estimate, *, signed: bool = False, digits: int = 3) -> str:
    """Write an estimate with its interval.

    Example:
        >>> show_estimate(Estimate(0.25, 0.2, 0.3)), show_estimate(Estimate(0.25, None, None), signed=True)
        ('0.250 [0.200, 0.300]', '+0.250')
    """
    form = f"{'+' if signed else ''}z.{digits}f"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:{form}}"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def show_p(p: float) -> str:
    """Write a p-value: small ones as an order of magnitude.

    Example:
        >>> show_p(0.0421), show_p(3e-7)
        ('0.0421', '3e-07')
    """
    return f"{p:.4f}" if p >= 1e-4 or math.isclose(p, 0) else f"{p:.0e}"


#: The columns of ``show_pairs``.
PAIRS_HEAD: Final = ("pair", "metric", "difference", "p", "Holm", "right alone", "asked otherwise")


def show_pairs(comparison: Comparison) -> list[list[str]]:
    """Write each pair of models and each metric: difference, p before and after Holm, unlike settings."""
    saw_later = find_saw_later(comparison.saw)
    rows: list[list[str]] = []
    for pair in comparison.pairs:
        alone = ABSENT if pair.only_left is None else f"{pair.only_left} : {pair.only_right}"
        for metric, one in pair.differences.items():
            p = [ABSENT if value is None else show_p(value) for value in (pair.p[metric], pair.p_holm[metric])]
            rows.append(
                [
                    f"{pair.left} \u2212 {pair.right}",
                    show_title(metric),
                    show_estimate(one, signed=True),
                    *p,
                    alone if metric == "label_match" else "",
                    ", ".join(_list_unlike(pair, saw_later)),
                ]
            )
    return rows


def _list_unlike(pair: Pair, saw_later: Collection[str]) -> list[str]:
    """List what sets two apart: which of them saw what came later, and the settings that differ."""
    later = [name for name in (pair.left, pair.right) if name in saw_later]
    if len(later) != 1:
        return [*pair.asked_otherwise]
    return [f"{later[0]} saw what came later", *(name for name in pair.asked_otherwise if name != "as_of")]
