"""The pictures of a report, as PNG: readable on a phone and without colour, the same bytes every time."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sciscidata.plots import COLOURS
from sciscidata.terminal.messages import printable
from sciscirl.lab.analysis.compare import Comparison, Estimate
from sciscirl.lab.seeds import SeededComparison
from sciscirl.metrics.metrics import COMPARED
from sciscirl.metrics.predictions import INVALID

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sciscirl.metrics.metrics import ConfidenceBin

#: Okabe & Ito 2008, without the yellow, which is too pale for a line on white.
_LINES: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
_DASHES: Final = ("-", "--", ":", "-.")
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_LABEL_MARKERS: Final = ("o", "s", "D", "X")
_WIDTH: Final = 4.4  # inches; of a phone's screen, it leaves letters of about eleven pixels
_DPI: Final = 160
#: The metrics of ways to train that are drawn.
SCORED: Final = (*COMPARED, INVALID)
_KEY: Final = "Source"
_MADE_BY: Final = "sciscirl report"
_HEAD: Final = 4096  # bytes, within which a picture says where it comes from
_MOST_BANDS: Final = 3  # more of them only blur
_LOOK: Final[dict[Any, Any]] = {
    "text.parse_math": False,  # names hold dollars
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine has it
    "font.size": 9.5,
    "text.color": "#111111",
    "axes.labelcolor": "#111111",
    "axes.edgecolor": "#444444",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 10.5,
    "grid.color": "#DDDDDD",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A line: steps, values, and where they are known the ends of their intervals (NaN: not known)."""

    steps: Sequence[float]
    values: Sequence[float]
    lows: Sequence[float] = ()
    highs: Sequence[float] = ()


def plot_lines(
    lines: Mapping[str, Series],
    *,
    title: str,
    y_label: str = "",
    is_share: bool = True,
    colours: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Plot values over steps, a line for each run or part, with intervals; ``is_share``: the axis is 0 to 1."""
    with _look():
        figure, axes = _canvas(2.5 + 0.19 * ((len(lines) + 1) // 2))
        for number, (name, line) in enumerate(lines.items()):
            colour = colours.get(name, _LINES[number % len(_LINES)])
            dash = _DASHES[(number if colours else number // len(_LINES)) % len(_DASHES)]
            marker = _MARKERS[number % len(_MARKERS)]
            every = max(1, len(line.steps) // 12)
            axes.plot(
                line.steps, line.values, dash, color=colour, marker=marker, markersize=4.5, markevery=every, lw=1.5,
                label=_short(name, 26),
            )  # fmt: skip
            if len(line.lows):
                if len(lines) <= _MOST_BANDS:
                    axes.fill_between(line.steps, line.lows, line.highs, color=colour, alpha=0.13, lw=0)
                axes.errorbar(
                    line.steps, line.values, _reach(line.values, line.lows, line.highs), fmt="none", ecolor=colour,
                    elinewidth=0.8, capsize=2,
                )  # fmt: skip
        if is_share:
            axes.set_ylim(-0.03, 1.03)
        ends = [step for line in lines.values() for step in line.steps]
        if len(set(ends)) == 1:
            axes.set_xlim(ends[0] - 1, ends[0] + 1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.set(title=_fit(title), xlabel="training step", ylabel=y_label)
        if len(lines) > 1:
            figure.legend(loc="outside lower center", ncols=2)
        return _to_png(figure)


def plot_shares(shares: Mapping[str, Mapping[str, float]], *, title: str) -> bytes:
    """Plot the share of each label (summing to 1), a bar for each run or for gold."""
    with _look(grid=False):
        figure, axes = _canvas(1.4 + 0.34 * len(shares))
        labels = list(dict.fromkeys(label for held in shares.values() for label in held))
        places, lefts = np.arange(len(shares)), np.zeros(len(shares))
        for number, label in enumerate(labels):
            widths = np.array([held.get(label, 0.0) for held in shares.values()])
            is_invalid = label == INVALID
            axes.barh(
                places, widths, left=lefts, height=0.72, color="white" if is_invalid else _colour_of(label, number),
                edgecolor="#111111" if is_invalid else "white", hatch="////" if is_invalid else None,
                linewidth=0.7, label=label,
            )  # fmt: skip
            for place, (left, width) in enumerate(zip(lefts, widths, strict=True)):
                if width >= 0.12:
                    axes.text(
                        left + width / 2, place, f"{width:.0%}", ha="center", va="center", fontsize=8,
                        color="#111111" if is_invalid else "white",
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1} if is_invalid else None,
                    )  # fmt: skip
            lefts += widths
        axes.set_yticks(places, [_short(name) for name in shares])
        axes.invert_yaxis()
        axes.set(xlim=(0, 1), xlabel="share of all answers", title=_fit(title))
        figure.legend(loc="outside lower center", ncols=2)
        return _to_png(figure)


def plot_rates(rates: Mapping[str, Mapping[str, float]], *, title: str) -> bytes:
    """Plot ``format_strict_ok`` and ``invalid`` of each run, two bars for each, with the numbers behind them."""
    with _look():
        figure, axes = _canvas(1.3 + 0.42 * len(rates))
        for number, (name, label) in enumerate((("format_strict_ok", "keep the contract"), ("invalid", "invalid"))):
            values = [metrics.get(name, 0.0) for metrics in rates.values()]
            places = np.arange(len(rates)) + (number - 0.5) * 0.38
            is_invalid = name == INVALID
            axes.barh(
                places, values, height=0.36, color="white" if is_invalid else _LINES[0], label=label,
                edgecolor="#111111", hatch="////" if is_invalid else None, linewidth=0.7,
            )  # fmt: skip
            for place, value in zip(places, values, strict=True):
                axes.text(value + 0.01, place, f"{value:.1%}", va="center", fontsize=7.5)
        axes.set_yticks(range(len(rates)), [_short(name, 20) for name in rates])
        axes.set(xlim=(0, 1.16), ylim=(len(rates) - 0.5, -0.5), xlabel="share of all answers", title=_fit(title))
        axes.set_xticks(np.arange(0, 1.01, 0.25))
        figure.legend(loc="outside lower center", ncols=2)
        return _to_png(figure)


def plot_recalls(recalls: Mapping[str, Mapping[str, Estimate]], *, title: str, chance: float) -> bytes:
    """Plot the recall of each class with its interval, a row for each run; the dashed line is blind guessing."""
    with _look():
        labels = list(dict.fromkeys(label for held in recalls.values() for label in held))
        figure, axes = _canvas(1.5 + max(0.5, 0.15 * len(labels)) * len(recalls))
        for number, label in enumerate(labels):
            rows = [(row, held[label]) for row, held in enumerate(recalls.values()) if label in held]
            offset = (number - (len(labels) - 1) / 2) * min(0.24, 0.8 / len(labels))
            axes.errorbar(
                [one.value for _, one in rows], [row + offset for row, _ in rows], xerr=_ends(one for _, one in rows),
                fmt=_LABEL_MARKERS[number % len(_LABEL_MARKERS)], color=_colour_of(label, number),
                markersize=6, elinewidth=1.2, capsize=2.5,
                label=label,
            )  # fmt: skip
        axes.axvline(chance, color="#444444", lw=1, ls="--")
        axes.set_yticks(range(len(recalls)), [_short(name) for name in recalls])
        axes.set(xlim=(-0.03, 1.03), ylim=(len(recalls) - 0.5, -0.5), xlabel="recall (dashed: guessing)", title=title)
        figure.legend(loc="outside lower center", ncols=3)
        return _to_png(figure)


def _colour_of(label: str, number: int) -> str:
    """Return the colour of a label of disruption or novelty, else that of its place."""
    return COLOURS.get(label, _LINES[number % len(_LINES)])


def plot_reliability(bins: Sequence[ConfidenceBin], *, title: str) -> bytes:
    """Plot how often answers of each confidence are right, and below how many there are (``bin_by_confidence``)."""
    with _look():
        figure = Figure(figsize=(_WIDTH, 3.7), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        held = [one for one in bins if one.n]
        sure = [one.confidence_sum / one.n for one in held]
        right = [one.n_right / one.n for one in held]
        upper.plot([0, 1], [0, 1], "--", color="#444444", lw=1)
        upper.vlines(sure, sure, right, color="#D55E00", lw=2)
        upper.plot(sure, right, "o", color="#0072B2", markersize=6)
        upper.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), ylabel="share right", title=_fit(title))
        middles = (np.arange(len(bins)) + 0.5) / len(bins)
        lower.bar(middles, [one.n for one in bins], width=0.9 / len(bins), color="#777777")
        lower.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
        lower.set(xlabel="stated confidence (dashed: as often right as said)", ylabel="answers")
        return _to_png(figure)


def plot_confusion(counts: Mapping[str, Mapping[str, int]], *, title: str) -> bytes:
    """Plot a confusion matrix: rows gold, columns predicted with *invalid* last; counts and shares of the row."""
    with _look(grid=False):
        n_most = 5  # classes that the letters have room for
        figure, axes = _canvas(max(3.1, 0.55 * len(counts)))
        table = np.array([list(row.values()) for row in counts.values()], dtype=float)
        sums = table.sum(axis=1, keepdims=True)
        shares = np.divide(table, sums, out=np.zeros_like(table), where=sums > 0)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (row, column), share in np.ndenumerate(shares):
            text = f"{int(table[row, column]):,}\n{share:.0%}"
            axes.text(column, row, text, ha="center", va="center", color="white" if share > 0.55 else "#111111",
                      fontsize=9.5 if len(counts) <= n_most else 47.5 / len(counts))  # fmt: skip
        predicted = list(next(iter(counts.values())))
        axes.axvline(len(predicted) - 1.5, color="#111111", lw=1.5)
        axes.set_xticks(range(len(predicted)), predicted, fontsize=8.5, rotation=0 if len(counts) < n_most else 45)
        axes.set_yticks(
            range(len(counts)), list(counts), rotation=90 if len(counts) < n_most else 0, va="center", fontsize=8.5
        )
        axes.tick_params(length=0)
        axes.set(xlabel="predicted", ylabel="gold", title=_fit(title))
        return _to_png(figure)


def plot_differences(comparison: Comparison, metric: str) -> bytes:
    """Plot the difference of every pair in a metric with its interval, as a forest plot."""
    with _look():
        figure, axes = _canvas(1.0 + 0.3 * len(comparison.pairs))
        for row, pair in enumerate(comparison.pairs):
            one = pair.differences[metric]
            is_clear = one.low is not None and one.high is not None and (one.low > 0 or one.high < 0)
            axes.errorbar(
                [one.value], [row], xerr=_ends([one]), fmt="o" if is_clear else "s", elinewidth=1.4, capsize=3,
                color="#0072B2" if is_clear else "#666666", markerfacecolor="#0072B2" if is_clear else "white",
            )  # fmt: skip
        axes.axvline(0, color="#111111", lw=1)
        names = [f"{_short(pair.left, 16)} \u2212 {_short(pair.right, 16)}" for pair in comparison.pairs]
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set(xlabel=f"difference in {metric}", ylim=(len(names) - 0.5, -0.5))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        return _to_png(figure)


def plot_scores(comparison: SeededComparison, *, n_columns: int = 1) -> bytes:
    """Plot the scores of ways to train with their intervals, a panel for each metric; small dots are seeds."""
    with _look():
        names, n_rows = list(comparison.scores), -(-len(SCORED) // n_columns)
        size = (_WIDTH * n_columns, n_rows * (0.8 + 0.26 * len(names)))
        figure = Figure(figsize=size, layout="constrained")
        panels: list[Axes] = list(np.ravel(figure.subplots(n_rows, n_columns)))
        for axes, metric in zip(panels, SCORED, strict=False):
            for row, name in enumerate(names):
                seeds = comparison.by_seed[name][metric]
                colour = _LINES[0] if name in comparison.ways else "#666666"
                axes.plot(seeds, [row] * len(seeds), "|", color=colour, markersize=9, alpha=0.6)
                axes.errorbar(
                    [comparison.scores[name][metric].value], [row], xerr=_ends([comparison.scores[name][metric]]),
                    fmt="o" if name in comparison.ways else "s", color=colour, markersize=5, elinewidth=1.4, capsize=3,
                )  # fmt: skip
            axes.set_yticks(range(len(names)), [_short(name, 26) for name in names], fontsize=8)
            axes.set(xlabel=metric, xlim=(-0.03, 1.03), ylim=(len(names) - 0.5, -0.5))
        for axes in panels[len(SCORED) :]:
            axes.set_axis_off()
        return _to_png(figure)


@contextmanager
def _look(*, grid: bool = True) -> Generator[None]:
    """Plot with this look, whatever the user's own settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({**_LOOK, "axes.grid": grid})
        yield


def _canvas(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _ends(estimates: Iterable[Estimate]) -> np.ndarray:
    """Return how far intervals reach to both sides, as ``errorbar`` takes it; 0 without an interval."""
    values = list(estimates)
    return _reach(
        [one.value for one in values],
        [one.value if one.low is None else one.low for one in values],
        [one.value if one.high is None else one.high for one in values],
    )


def _reach(values: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> np.ndarray:
    middle = np.asarray(values, dtype=float)
    # A percentile interval need not hold the value itself.
    below, above = middle - np.asarray(lows, dtype=float), np.asarray(highs, dtype=float) - middle
    return np.clip(np.nan_to_num(np.stack([below, above])), 0, None)


def _short(name: str, n: int = 17) -> str:
    text = printable(name)
    text = text if len(text) <= n else f"\u2026{text[-(n - 1) :]}"
    return f" {text}" if text.startswith("_") else text  # matplotlib leaves such names out of legends


def _fit(title: str) -> str:
    """Break a title that is wider than the picture."""
    return "\n".join(textwrap.wrap(printable(title), 46))


def _to_png(figure: Figure) -> bytes:
    FigureCanvasAgg(figure)
    file = io.BytesIO()
    figure.savefig(file, dpi=_DPI, metadata={"Software": None, _KEY: _MADE_BY})  # Software would name the version
    return file.getvalue()


def is_of_report(path: Path) -> bool:
    """Whether a file is a picture of a report, by what is written into it.

    Example:
        >>> is_of_report(Path("no-such-picture.png"))
        False
    """
    if path.is_symlink() or not path.is_file() or path.suffix != ".png":
        return False
    with path.open("rb") as file:
        return f"{_KEY}\0{_MADE_BY}".encode() in file.read(_HEAD)
