"""The pictures of reports, comparisons and sweeps, as PNG: readable on a phone and without colour; equal bytes."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sciscidata.plots.palette import DASHES, GRID, INK, LINES, MARKERS
from sciscidata.terminal.messages import printable
from sciscirl.lab.analysis.compare import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LETTERS_OF_TWO: Final = 18  # of names that have room side by side
_WIDTH: Final = 4.4  # inches; of a phone's screen, it leaves letters of about eleven pixels
_LOOK: Final[dict[Any, Any]] = {
    "text.parse_math": False,  # names hold dollars
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine has it
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.titlesize": 10.5,
    "grid.color": GRID,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A line: places, values, and where they are known the ends of their intervals (NaN: not known)."""

    steps: Sequence[float]
    values: Sequence[float]
    lows: Sequence[float] = ()
    highs: Sequence[float] = ()


def plot_lines(lines: Mapping[str, Series], *, title: str, is_share: bool = True) -> bytes:
    """Plot values over steps, a line for each run, with intervals; ``is_share``: the axis is 0 to 1."""
    columns = 2 if all(len(_short(name)) <= _LETTERS_OF_TWO for name in lines) else 1
    with _look():
        figure, (axes,) = _canvas([2.5 + 0.19 * -(-len(lines) // columns)])
        for number, (name, line) in enumerate(lines.items()):
            axes.errorbar(
                line.steps, line.values, _reach(line.values, line.lows, line.highs) if line.lows else None,
                color=LINES[number % len(LINES)], linestyle=DASHES[number // len(LINES) % len(DASHES)], lw=1.5,
                marker=MARKERS[number % len(MARKERS)], markersize=4.5, markevery=max(1, len(line.steps) // 12),
                elinewidth=0.8, capsize=2, label=_short(name),
            )  # fmt: skip
        if is_share:
            axes.set_ylim(-0.03, 1.03)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.set(title="\n".join(textwrap.wrap(printable(title), 46)), xlabel="training step")
        if len(lines) > 1:
            figure.legend(loc="outside lower center", ncols=columns)
        return _to_png(figure)


def plot_estimates(
    panels: Mapping[str, Mapping[str, Estimate]],
    *,
    seeds: Mapping[str, Mapping[str, Sequence[float]]] = MappingProxyType({}),
    lines: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    is_share: bool = True,
) -> bytes:
    """Plot estimates with their intervals, a panel for each metric and a row for each name, which may have lines.

    ``seeds`` are strokes, ``lines`` what estimates are read against, such as a guess and the ceiling. Where the axis is
    no share, an interval without 0 has a filled mark.
    """
    with _look():
        rows = list(next(iter(panels.values())))
        labels = ["\n".join(map(_short, name.split("\n"))) for name in rows]
        height = 0.17 + 0.13 * max((label.count("\n") + 1 for label in labels), default=1)
        figure, axes = _canvas([0.9 + height * len(rows)] * len(panels))
        for panel, (metric, estimates) in zip(axes, panels.items(), strict=True):
            for row, name in enumerate(rows):
                one = estimates[name]
                low, high = (one.value if end is None else end for end in (one.low, one.high))
                is_clear = is_share or low > 0 or high < 0
                strokes = seeds.get(metric, {}).get(name, ())
                panel.plot(strokes, [row] * len(strokes), "|", color=LINES[0], markersize=9, alpha=0.6)
                panel.errorbar(
                    [one.value], [row], xerr=_reach([one.value], [low], [high]), fmt="o", color=LINES[0], markersize=5,
                    markerfacecolor=LINES[0] if is_clear else "white", elinewidth=1.4, capsize=3,
                )  # fmt: skip
            for number, (name, value) in enumerate(lines.get(metric, {}).items()):
                panel.axvline(value, color=INK, lw=1, ls=DASHES[1 + number % 2], label=f"{name} {value:.2f}")
            if metric in lines:
                panel.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
            panel.set_yticks(range(len(rows)), labels)
            panel.set(xlabel=metric, ylim=(len(rows) - 0.5, -0.5), **({"xlim": (-0.03, 1.03)} if is_share else {}))
        return _to_png(figure)


@contextmanager
def _look() -> Generator[None]:
    """Plot with this look, whatever the user's own settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_LOOK)
        yield


def _canvas(heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
    return figure, [*figure.subplots(len(heights), 1, squeeze=False).flat]


def _reach(values: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> np.ndarray:
    """Return how far intervals reach to both sides, as ``errorbar`` takes it; 0 without an interval."""
    middle = np.asarray(values, dtype=float)
    # A percentile interval need not hold the value itself.
    return np.clip(np.nan_to_num(np.stack([middle - np.asarray(lows), np.asarray(highs) - middle])), 0, None)


def _short(name: str, n: int = 26) -> str:
    text = printable(name)
    text = text if len(text) <= n else f"\u2026{text[-(n - 1) :]}"
    return f" {text}" if text.startswith("_") else text  # matplotlib leaves such names out of legends


def _to_png(figure: Figure) -> bytes:
    FigureCanvasAgg(figure)
    file = io.BytesIO()
    figure.savefig(file, dpi=160, metadata={"Software": None})  # it would name the version
    return file.getvalue()
