"""A picture of two sets of CD indices of the same works: published ones and ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from sciscidata.checks import checked_config
from sciscidata.labels import LabelThresholds
from sciscidata.plots import plain, save, signed_log_axis, signed_log_edges

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABELS = ("consolidating", "neutral", "disruptive")  # along the axis of the index
_COLOURS = "cividis"  # told apart by colour-blind readers, and in grey
_BRIGHT = 0.5  # a share from which the colour is too bright for white letters


def draw_comparison(
    published: pl.LazyFrame | pl.DataFrame,
    computed: pl.LazyFrame | pl.DataFrame,
    compared: Mapping[str, Any],
    thresholds: LabelThresholds | None = None,
    *,
    path: str | Path,
    title: str = "",
) -> None:
    """Draw where works lie by both scores, and how often both get one label. Executes.

    Left, the number of works by published and computed index, on signed log axes with the cut-offs dashed: works in
    agreement lie on the diagonal. Right, works by published and computed label, each column adding up to 100 %. The
    caption says how many works are in neither, because one of the two scores is undefined.

    Args:
        published: ``work_id`` and ``cd_index``, for example ``SciSciNet.scores``.
        computed: the same, for example of ``compute_cd_index``.
        compared: what ``compare_scores`` says of the two, by the same ``thresholds``.
        thresholds: ``LabelThresholds()`` when None.
        path: the PNG file to write.
        title: shown above the picture.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.sciscinet_values import compare_scores
        >>> theirs = pl.DataFrame({"work_id": [1, 2, 3], "cd_index": [0.5, -0.1, 0.0]})
        >>> ours = pl.DataFrame({"work_id": [1, 2, 3], "cd_index": [0.4, -0.2, None]})
        >>> with TemporaryDirectory() as folder:
        ...     picture = Path(folder) / "comparison.png"
        ...     draw_comparison(theirs, ours, compare_scores(theirs, ours), path=picture)
        ...     picture.read_bytes()[1:4]
        b'PNG'
    """
    from matplotlib.figure import Figure

    left, right = (
        frame.lazy().select("work_id", pl.col("cd_index").fill_nan(None).alias(name)).drop_nulls()
        for name, frame in (("published", published), ("computed", computed))
    )
    both = left.join(right, on="work_id").select("published", "computed").collect(engine="streaming")
    figure = Figure(figsize=(11, 5), layout="constrained")
    plane, labels = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_plane(plane, both, checked_config(thresholds, LabelThresholds, name="thresholds"))
    _draw_labels(labels, compared)
    if title:
        figure.suptitle(plain(title))
    figure.supxlabel(_caption(compared), fontsize=9)
    save(figure, path)


def _draw_plane(axes: Axes, both: pl.DataFrame, thresholds: LabelThresholds) -> None:
    from matplotlib.colors import LogNorm

    low, high = thresholds.consolidating_max, thresholds.disruptive_min
    linear, edges = signed_log_edges(low, high, 25)
    values = [both[name].to_numpy() for name in ("published", "computed")]
    counts, _, _ = np.histogram2d(*values, bins=(edges, edges))
    shown = np.ma.masked_equal(counts.T, 0)  # an empty cell has no colour
    drawn = axes.pcolormesh(
        edges, edges, shown, cmap=_COLOURS, norm=LogNorm(vmin=1, vmax=max(2.0, counts.max())), rasterized=True
    )
    axes.plot([-1, 1], [-1, 1], color="black", linewidth=0.6, alpha=0.6)
    for cut in (low, high):
        for line in (axes.axvline, axes.axhline):
            line(cut, color="black", linewidth=0.6, linestyle=(0, (4, 4)), alpha=0.6)
    for axis in ("x", "y"):
        signed_log_axis(axes, axis, linear)
    axes.figure.colorbar(drawn, ax=axes, label="works (log)")
    axes.set_aspect("equal")
    axes.tick_params(axis="x", rotation=45)
    axes.set_xlabel("published cd_index (signed log axis)")
    axes.set_ylabel("computed cd_index (signed log axis)")
    axes.set_title(f"CD index of {both.height:,} works with both scores", fontsize=10)


def _draw_labels(axes: Axes, compared: Mapping[str, Any]) -> None:
    """Draw the table of labels, with the axes of the plane beside it."""
    counts = np.zeros((3, 3), np.int64)  # computed, published
    for cell in compared["labels"]:
        counts[_LABELS.index(cell["computed"]), _LABELS.index(cell["published"])] = cell["works"]
    totals = counts.sum(axis=0)
    shares = counts / np.maximum(totals, 1)
    axes.imshow(shares, cmap=_COLOURS, vmin=0, vmax=1, origin="lower")
    for row, column in np.ndindex(3, 3):
        text = f"{counts[row, column]:,}" + (f"\n{shares[row, column]:.1%}" if totals[column] else "")
        colour = "white" if shares[row, column] < _BRIGHT else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=9, color=colour)
    axes.set_xticks(range(3), _LABELS)
    axes.set_yticks(range(3), _LABELS, rotation=90, va="center")
    axes.set_xlabel("published label")
    axes.set_ylabel("computed label")
    axes.set_title("Works by both labels; columns add up to 100 %", fontsize=10)


def _caption(compared: Mapping[str, Any]) -> str:
    if not compared["both"]:
        told = "No work has both scores."
    else:
        spearman = "undefined" if compared["spearman"] is None else f"{compared['spearman']:.3f}"
        same = f"same sign {compared['same_sign']:.1%}, same label {compared['same_label']:.1%}"
        told = f"{compared['both']:,} works with both scores: Spearman {spearman}, {same}."
    return (
        f"{told}\nNot shown, one of the two undefined: {compared['only_published']:,} with a published score only, "
        f"{compared['only_computed']:,} with a computed score only."
    )
