"""Pictures of a build, drawn from numbers that the manifest also holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from sciscidata.labels import DISRUPTION_LABELS, LabelThresholds
from sciscidata.terminal import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: One colour per label everywhere; told apart by colour-blind readers (Okabe & Ito 2008).
COLOURS = {
    "disruptive": "#D55E00",
    "consolidating": "#0072B2",
    "neutral": "#777777",
    "novel": "#007A59",  # their green, darker: as text it has to be read
    "conventional": "#A3487E",  # their purple, darker
    "balanced": "#777777",
}

_EDGE = 1.3  # of the picture: a little beyond the index's own
_WIDEST_LINEAR = 0.1
_AT_ONCE = 1 << 18  # binning takes a hundred bytes for each of them


def draw_disruption(
    cd_index: pl.Series | pl.LazyFrame,
    thresholds: LabelThresholds,
    *,
    eligible: Mapping[str, int],
    drawn: Mapping[str, int],
    path: str | Path,
    title: str = "",
) -> None:
    """Draw how the index is spread over the label bands, and the classes before and after the draw. Executes.

    Args:
        cd_index: Float64, the index of every eligible work; nulls are left out. Of a lazy frame, its one column, of
            which no more than some works at a time are in memory.
        thresholds: where the shaded bands end.
        eligible: works per disruption label before the draw.
        drawn: works per disruption label in the release, both sides together.
        path: the PNG file to write.
        title: shown above the picture.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> counts = {"disruptive": 1, "consolidating": 1, "neutral": 1}
        >>> with TemporaryDirectory() as folder:
        ...     picture = Path(folder) / "cd.png"
        ...     cd = pl.Series([-0.2, 0.0, 0.4])
        ...     draw_disruption(cd, LabelThresholds(), eligible=counts, drawn=counts, path=picture)
        ...     picture.read_bytes()[1:4]
        b'PNG'
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    spread, classes = figure.subplots(1, 2, width_ratios=(2, 1))
    frame = cd_index if isinstance(cd_index, pl.LazyFrame) else cd_index.to_frame().lazy()
    batches = (batch.to_series().to_numpy() for batch in collect_some(frame.drop_nulls()))
    _draw_spread(spread, batches, thresholds)
    draw_classes(classes, DISRUPTION_LABELS, eligible, drawn)
    if title:
        figure.suptitle(plain(title))
    save(figure, path)


def plain(text: str) -> str:
    r"""Write a text such that matplotlib draws it as it is: dollars are no formula, and no line is forged.

    Example:
        >>> plain("runs/$x^2$")
        'runs/\\$x^2\\$'
    """
    return printable(text).replace("$", r"\$")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG, without a window system and without global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=130, format="png")


def signed_log_edges(low: float, high: float, n_outer: int) -> tuple[float, np.ndarray]:
    """Cut -1 .. 1 into bins that are even on a signed log axis, linear between the cut-offs.

    Args:
        low: the lower cut-off.
        high: the upper one.
        n_outer: edges on either side of the linear part, which has seven bins.

    Returns:
        Where the linear part ends, and the edges, ascending.

    Example:
        >>> linear, edges = signed_log_edges(-0.1, 0.1, 2)
        >>> linear, edges.round(3).tolist()
        (0.1, [-1.0, -0.1, -0.071, -0.043, -0.014, 0.014, 0.043, 0.071, 0.1, 1.0])
    """
    linear = min(max(min(abs(low), abs(high)), 1e-6), _WIDEST_LINEAR)
    outer = np.geomspace(linear, 1.0, n_outer)
    return linear, np.unique(np.concatenate([-outer[::-1], np.linspace(-linear, linear, 8)[1:-1], outer]))


def signed_log_axis(axes: Axes, axis: Literal["x", "y"], linear: float) -> None:
    """Scale one axis for the edges of signed_log_edges, and put ticks where they can be read."""
    scale = axes.set_xscale if axis == "x" else axes.set_yscale
    scale("symlog", linthresh=linear, linscale=0.6)
    ticks = [t for t in (-1, -0.1, -0.01, -0.001, 0, 0.001, 0.01, 0.1, 1) if t == 0 or abs(t) >= linear]
    put = axes.set_xticks if axis == "x" else axes.set_yticks
    put(ticks, [f"{t:g}" for t in ticks])
    put([], minor=True)
    limits = axes.set_xlim if axis == "x" else axes.set_ylim
    limits(-_EDGE, _EDGE)


def collect_some(works: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Execute a frame of works some at a time, unordered, so that a picture of all of them holds none."""
    return works.collect_batches(chunk_size=_AT_ONCE, maintain_order=False, engine="streaming")


def _draw_spread(axes: Axes, batches: Iterable[np.ndarray], thresholds: LabelThresholds) -> None:
    """Draw a histogram on a signed log axis, linear between the cut-offs."""
    low, high = thresholds.consolidating_max, thresholds.disruptive_min
    linear, edges = signed_log_edges(low, high, 31)
    counts, n_works = np.zeros(edges.size - 1, np.int64), 0
    for values in batches:
        counts += np.histogram(values, edges)[0]
        n_works += values.size
    axes.stairs(counts, edges, fill=True, color="#333333")
    signed_log_axis(axes, "x", linear)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(0, max(10.0, 3.0 * float(counts.max(initial=1))))
    axes.minorticks_off()
    ends = np.clip([-_EDGE, low, high, _EDGE], -_EDGE, _EDGE)
    # Where they lie in the picture, from 0 at its left to 1: the middle of a band is not that of its numbers.
    places = (axes.transScale + axes.transLimits).transform(np.column_stack([ends, np.ones(4)]))[:, 0]
    for i, label in enumerate(("consolidating", "neutral", "disruptive")):
        if places[i] < places[i + 1]:
            axes.axvspan(ends[i], ends[i + 1], color=COLOURS[label], alpha=0.13, lw=0, zorder=0)
            middle = (places[i] + places[i + 1]) / 2
            axes.text(middle, 0.97, label, color=COLOURS[label], ha="center", va="top", transform=axes.transAxes)
    axes.set_xlabel("cd_index (signed log axis)")
    axes.set_ylabel("eligible works (log axis)")
    axes.set_title(f"CD index of {n_works:,} eligible works", fontsize=10)


def draw_classes(
    axes: Axes, labels: Sequence[str], eligible: Mapping[str, int], drawn: Mapping[str, int], *, n_unlabelled: int = 0
) -> None:
    """Draw the class counts side by side, each bar with its number; what was drawn without a label is only said."""
    positions = np.arange(len(labels))
    for offset, counts, alpha, name in ((-0.2, eligible, 0.4, "eligible"), (0.2, drawn, 1.0, "drawn")):
        bars = axes.bar(
            positions + offset,
            [counts[label] for label in labels],
            width=0.38,
            color=[COLOURS[label] for label in labels],
            alpha=alpha,
            label=name,
        )
        axes.bar_label(bars, fmt="{:,.0f}", fontsize=8)
    axes.set_xticks(positions, labels)
    axes.margins(y=0.12)
    axes.set_ylabel("works")
    without = f"\n({n_unlabelled:,} more drawn without a label)" if n_unlabelled else ""
    axes.set_title(f"Eligible (pale) and drawn works{without}", fontsize=10)
