"""The picture of a comparison: which labels became which, and what moved them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack

import polars as pl

from sciscidata.frames import AnyFrame
from sciscidata.judged import counts_in_both
from sciscidata.label_thresholds import LABELS_BY_INDEX
from sciscidata.plots.disruption import draw_label_table
from sciscidata.plots.figure import Look, count_works, drawing, letter_panels, tick_numbers
from sciscidata.plots.measure import refuse_nothing
from sciscidata.plots.palette import INK
from sciscidata.schemas import CHANGES, require_columns
from sciscidata.terminal.shares import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_READ: Final = ("status", "moved", "cause", "label_a", "label_b", "judged_a", "judged_b")
_NO_LABEL: Final = "no label"
_SLOTS: Final = 6  # for bars


def plot_changes(changes: AnyFrame, **look: Unpack[Look]) -> Figure:
    """Plot what a comparison found: works by their labels in A and B, and why labels moved.

    (a) works that are in both and judged in both, by both labels: as in the printed table A down, B across, each row
    adding up to 100 %. (b) how many labels each cause moved.

    Args:
        changes: CHANGES, as ``compare(...).changes`` or the file of its ``out``.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with two panels.

    Raises:
        SchemaMismatchError: a column is missing or has another type.
        EmptyInputError: no work that is judged in both has a label.

    Example:
        >>> row = {"work_id": 1, "status": "kept", "moved": True, "cause": "new_citers", "label_a": "neutral",
        ...     "label_b": "disruptive", "judged_a": True, "judged_b": True}
        >>> plot_changes(pl.DataFrame([row])).get_label().partition(":")[0]
        'Disruption labels of 1 work judged in both A and B'
    """
    stage = "plot_changes"
    rows = require_columns(changes, CHANGES, frame_name="changes", stage=stage, columns=_READ)
    is_known = pl.all_horizontal(pl.col("judged_a", "judged_b").is_not_null()).alias("is_known")
    labels = [pl.col(name).fill_null(_NO_LABEL) for name in ("label_a", "label_b")]
    counted = (
        rows.filter(counts_in_both()).group_by(*labels, "moved", "cause", is_known).len().collect(engine="streaming")
    )
    if counted.is_empty():
        refuse_nothing(rows, ("label_a", "label_b"), stage)
    there = {*counted["label_a"], *counted["label_b"]}
    names = [*LABELS_BY_INDEX] if there <= {*LABELS_BY_INDEX, _NO_LABEL} else sorted(there - {_NO_LABEL})
    names += [_NO_LABEL] if _NO_LABEL in there else []
    cells = counted.group_by("label_a", "label_b").agg(pl.col("len").sum()).iter_rows()
    causes = counted.filter("moved").group_by("cause").agg(n=pl.col("len").sum()).sort("n", "cause")
    with drawing(look, heights_mm=(78, 60), ratios=(1.1, 1)) as picture:
        draw_label_table(picture.panels[0], {(one, other): n for one, other, n in cells}, names, is_first_down=True)
        picture.panels[0].set_xlabel("label in B")
        picture.panels[0].set_ylabel("label in A")
        _draw_causes(picture.panels[1], causes)
        letter_panels(picture)
        of = " judged in both" if counted["is_known"].all() else " in"
        n, moved = int(counted["len"].sum()), int(causes["n"].sum())
        picture.caption = (
            f"Disruption labels of {count_works(n)}{of} A and B: {moved:,} moved ({percent(moved / n, 1)}). "
            "(a) Works by both labels, rows add up to 100 %; (b) what moved them."
        )
        picture.finding = f"{percent(moved / n, 1)} of labels moved: {moved:,} of {n:,}"
    return picture.figure


def _draw_causes(axes: Axes, causes: pl.DataFrame) -> None:
    """Draw a bar for each cause, the largest on top."""
    names = [cause.replace("_", " ") for cause in causes["cause"]]
    bars = axes.barh(range(len(names)), causes["n"].to_numpy(), 0.7, color=INK)
    axes.bar_label(bars, [f"{n:,}" for n in causes["n"]], padding=2, fontsize=7)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(min(-0.5, len(names) - _SLOTS + 0.5), len(names) - 0.5)  # few bars are no thicker
    axes.margins(x=0.18)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    tick_numbers(axes.xaxis, 6)
    axes.set_xlabel("labels that moved")
    if not names:
        axes.text(0.5, 0.5, "no label moved", ha="center", va="center", transform=axes.transAxes)
        axes.set_xticks([])
