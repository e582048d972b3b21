"""Pictures of an index beside its null model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Unpack

import numpy as np
import polars as pl

from sciscidata.disruption.null_model import NULL_CD_INDEX
from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import LABELS_BY_INDEX, LabelThresholds, compute_disruption_labels
from sciscidata.options.checks import checked_config
from sciscidata.plots._parts import collect_some, count_works, signed_log_axis, signed_log_edges, write_share
from sciscidata.plots.figure import COLOURS, INK, PALE, Look, drawing, letter_panels
from sciscidata.schemas import require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FAR: Final = 2.0  # standard deviations of the draws
_BANDS: Final = {
    f"z < −{_FAR:g}": COLOURS["consolidating"],
    f"|z| ≤ {_FAR:g}": PALE,
    f"z > {_FAR:g}": COLOURS["disruptive"],
    "no z": "white",
}


def plot_null_cd_index(scores: AnyFrame, thresholds: LabelThresholds | None = None, **look: Unpack[Look]) -> Figure:
    r"""Plot how the CD index and its null mean are spread, and how far each label lies from chance.

    Args:
        scores: what ``compute_null_cd_index`` gives, read in batches; works without an index or a null mean are left
            out.
        thresholds: of the labels; ``LabelThresholds()`` when None.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: (a) both distributions on a signed log axis, and (b) for each label the works whose z is above 2,
        below -2, or neither.

    Raises:
        SchemaMismatchError: a column is missing.

    Example:
        >>> scores = pl.DataFrame({"cd_index": [0.4, -0.2], "null_mean": [0.1, -0.1], "z": [2.5, None]})
        >>> figure = plot_null_cd_index(scores, data="two works")
        >>> figure.get_label().partition(":")[0]
        'CD index of 2 works and its mean over draws of a null model, on log axes'
    """
    columns = ("cd_index", "null_mean", "z")
    lazy = require_columns(
        scores, NULL_CD_INDEX, frame_name="the frame", stage="plot_null_cd_index", columns=columns
    ).select(pl.col(columns).fill_nan(None))
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    linear, edges = signed_log_edges(cut.consolidating_max, cut.disruptive_min, 31)
    spread = np.zeros((2, edges.size - 1), np.int64)
    by_label = {label: np.zeros(len(_BANDS), np.int64) for label in LABELS_BY_INDEX}
    band = (
        pl.when(pl.col("z").is_null()).then(3).when(pl.col("z") > _FAR).then(2).when(pl.col("z") < -_FAR).then(0)
    ).otherwise(1)
    works = compute_disruption_labels(lazy.drop_nulls(["cd_index", "null_mean"]), cut)
    for batch in collect_some(works.with_columns(band=band)):
        for i, name in enumerate(("cd_index", "null_mean")):
            spread[i] += np.histogram(batch[name].to_numpy(), edges)[0]
        for label, band_of, n in batch.group_by("disruption_label", "band").len().rows():
            by_label[label][band_of] += n
    with drawing(look, heights_mm=(60, 50), ratios=(1.5, 1)) as picture:
        left, right = picture.panels
        left.stairs(spread[0], edges, fill=True, color=PALE, label="observed")
        left.stairs(spread[1], edges, color=INK, lw=1.2, label="mean of the draws")
        signed_log_axis(left, "x", linear)
        left.tick_params(axis="x", labelsize=6 if picture.is_narrow else 7)
        left.set_yscale("symlog", linthresh=1)
        left.set_ylim(0, max(10.0, 20.0 * float(spread.max(initial=1))))  # with room for the legend
        left.yaxis.set_major_formatter("{x:,.0f}")
        left.minorticks_off()
        left.set_xlabel("CD index (signed log axis)")
        left.set_ylabel("works (log axis)")
        left.legend(loc="upper left")
        _draw_bands(right, by_label)
        letter_panels(picture)
        n_works = count_works(int(sum(counts.sum() for counts in by_label.values())))
        picture.title = (
            f"CD index of {n_works} and its mean over draws of a null model, on log axes: (a) how both are spread, "
            "(b) z by label."
        )
    return picture.figure


def _draw_bands(axes: Axes, by_label: Mapping[str, np.ndarray]) -> None:
    """Stack the shares of the bands of z, one bar per label."""
    totals = np.array([max(int(counts.sum()), 1) for counts in by_label.values()])
    bottom = np.zeros(len(by_label))
    for i, (name, colour) in enumerate(_BANDS.items()):
        shares = np.array([counts[i] for counts in by_label.values()]) / totals
        bars = axes.bar(range(len(by_label)), shares, 0.7, bottom, color=colour, ec=INK, lw=0.4, label=name)
        labels = [f"{share:.0%}" if share >= 0.06 else "" for share in shares]
        light = "white" if colour in COLOURS.values() else INK
        axes.bar_label(bars, labels, label_type="center", fontsize=7, color=light)
        bottom += shares
    names = [f"{label}\n{int(counts.sum()):,}" for label, counts in by_label.items()]
    axes.set_xticks(range(len(names)), names)
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(write_share)
    axes.set_ylabel("share of works")
    close = {"columnspacing": 0.7, "handlelength": 0.9, "handletextpad": 0.4, "borderaxespad": 0.2}
    axes.legend(loc="lower right", bbox_to_anchor=(1.02, 1.0), ncols=len(_BANDS), **close)
