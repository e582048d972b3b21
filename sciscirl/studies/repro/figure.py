"""The sweep as a picture: a line for each setting, how many answers are the same, how far their tokens' odds moved."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from sciscidata.plots import plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Panel

#: Okabe & Ito 2008; the shapes tell them apart without colour.
_MODES: Final = {"greedy": ("#0072B2", "o", -0.14), "sampled": ("#D55E00", "D", 0.14)}
_PANELS: Final = (
    ("identical_share", "answers with the same tokens"),
    ("label_flip_share", "answers with another label"),
    ("logprob_difference_max", "largest log-prob difference, nats"),
)
_LEAST: Final = 1e-8  # nats: below single precision, so that all that is drawn left of it is zero


def draw_sweep(table: pl.DataFrame, path: str | Path, *, title: str = "") -> None:
    """Draw a table of a sweep.

    Args:
        table: ``table.TABLE``.
        path: the PNG file to write.
        title: above the picture.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscirl.studies.repro.table import TABLE
        >>> row = {"axis": "dtype", "value": "int8", "status": "unsupported", "reason": "no kernel"}
        >>> with TemporaryDirectory() as folder:
        ...     picture = Path(folder) / "sweep.png"
        ...     draw_sweep(pl.DataFrame([row], schema=TABLE), picture)
        ...     picture.read_bytes()[1:4]
        b'PNG'
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    settings = table.select("axis", "value", "status").unique(maintain_order=True).rows()
    figure = Figure(figsize=(11, max(3.0, 1.6 + 0.36 * len(settings))), layout=ConstrainedLayoutEngine(wspace=0.05))
    panels: Iterable[Panel] = figure.subplots(1, len(_PANELS), sharey=True, width_ratios=(1, 1, 1.35))
    places = {(axis, value): place for place, (axis, value, _) in enumerate(settings)}
    for panel, (column, label) in zip(panels, _PANELS, strict=True):
        for mode, (colour, shape, shift) in _MODES.items():
            part = table.filter(pl.col("mode") == mode, pl.col(column).is_not_null())
            heights = [places[row] + shift for row in part.select("axis", "value").rows()]
            (marks,) = panel.plot(
                part[column].to_list(), heights, shape, color=colour, markersize=7, label=mode, clip_on=False, zorder=3
            )
            marks.set_in_layout(False)  # where there are none, unclipped, they would need infinite room
        for place, (_, _, status) in enumerate(settings):
            if status != "measured":
                panel.text(
                    0.5, place, "not supported here", transform=panel.get_yaxis_transform(), ha="center", va="center",
                    color="#666666", fontsize=8.5, style="italic",
                )  # fmt: skip
        _dress(panel, label)
        if column.startswith("logprob"):
            panel.set_xscale("symlog", linthresh=_LEAST)
            panel.set_xlim(left=0)
            panel.set_xticks([0, 1e-7, 1e-5, 1e-3, 1e-1, 10], ["0", "1e-7", "1e-5", "0.001", "0.1", "10"])
        else:
            panel.set_xlim(-0.03, 1.03)
            panel.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
    first: Any = figure.axes[0]
    first.set_yticks(range(len(settings)), [plain(f"{axis.replace('_', ' ')}  {value}") for axis, value, _ in settings])
    first.set_ylim(len(settings) - 0.5, -0.5)
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    if title:
        figure.suptitle(plain(title))
    save(figure, path)


def _dress(panel: Panel, label: str) -> None:
    panel.set_xlabel(label)
    panel.grid(color="#DDDDDD")
    panel.set_axisbelow(True)
    panel.tick_params(length=0)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
