"""What several pictures share: reading in batches, the bars of the classes, an axis for the CD index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import polars as pl

from sciscidata.plots.figure import COLOURS, INK
from sciscidata.terminal.messages import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EDGE: Final = 1.3  # of the picture: a little beyond the index's own
_WIDEST_LINEAR = 0.1
_AT_ONCE = 1 << 18  # binning takes a hundred bytes for each of them


def collect_some(works: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Collect a frame of works in batches, unordered, so that a picture never holds all works."""
    return works.collect_batches(chunk_size=_AT_ONCE, maintain_order=False, engine="streaming")


def signed_log_edges(low: float, high: float, n_outer: int) -> tuple[float, np.ndarray]:
    """Cut -1 .. 1 into bins: ``n_outer`` even on a log axis on either side, seven linear ones between the cut-offs.

    Example:
        >>> linear, edges = signed_log_edges(-0.1, 0.1, 2)
        >>> linear, edges.round(3).tolist()
        (0.1, [-1.0, -0.1, -0.071, -0.043, -0.014, 0.014, 0.043, 0.071, 0.1, 1.0])
    """
    linear = min(max(min(abs(low), abs(high)), 1e-6), _WIDEST_LINEAR)
    outer = np.geomspace(linear, 1.0, n_outer)
    return linear, np.unique(np.concatenate([-outer[::-1], np.linspace(-linear, linear, 8)[1:-1], outer]))


def signed_log_axis(axes: Axes, axis: Literal["x", "y"], linear: float) -> None:
    """Scale one axis for the edges of signed_log_edges, with ticks that can be read."""
    scale = axes.set_xscale if axis == "x" else axes.set_yscale
    scale("symlog", linthresh=linear, linscale=0.6)
    powers = [10.0**power for power in range(-3, 1) if 10.0**power >= linear * (1 - 1e-9)]
    ticks = [*(-power for power in reversed(powers)), 0, *powers]
    put = axes.set_xticks if axis == "x" else axes.set_yticks
    put(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
    put([], minor=True)
    limits = axes.set_xlim if axis == "x" else axes.set_ylim
    limits(-EDGE, EDGE)


def draw_classes(
    axes: Axes, labels: Sequence[str], eligible: Mapping[str, int], drawn: Mapping[str, int], *, n_unlabelled: int = 0
) -> None:
    """Draw the class counts side by side, each bar with its number; the title counts drawn works without a label."""
    positions = np.arange(len(labels))
    for offset, counts, alpha in ((-0.2, eligible, 0.4), (0.2, drawn, 1.0)):
        colours = [COLOURS.get(label, INK) for label in labels]
        bars = axes.bar(positions + offset, [counts[label] for label in labels], 0.38, color=colours, alpha=alpha)
        axes.bar_label(bars, fmt="{:,.0f}", fontsize=6, padding=1)
    axes.set_xticks(positions, labels)
    axes.margins(y=0.12)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel("works")
    without = f"\n({n_unlabelled:,} more drawn without a label)" if n_unlabelled else ""
    axes.set_title(f"Eligible (pale) and drawn works{without}")


def count_works(n: int) -> str:
    """Write a number of works."""
    return counted(n, "work")


def write_share(share: float, _: object = None) -> str:
    """Write a share as a tick says it: 2.5%."""
    return f"{round(100 * share, 6):g}%"
