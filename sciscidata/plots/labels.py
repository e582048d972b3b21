"""Pictures of how far labels can be trusted: over the years, and where data are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import polars as pl

from sciscidata.disruption.label_stability import GROUPS, LABEL_STABILITY
from sciscidata.disruption.missing_data import MISSING_DATA
from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import LABELS_BY_INDEX
from sciscidata.plots._parts import write_share
from sciscidata.plots.estimates import FEW, name_hollow
from sciscidata.plots.figure import COLOURS, INK, Look, drawing, letter_panels
from sciscidata.plots.intervals import wilson_interval
from sciscidata.schemas import require_columns
from sciscidata.terminal.messages import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKS: Final = "os^Dvp"
_PANELS: Final = {"citers": "citers at that age", "references": "references on record"}


def plot_label_stability(stability: AnyFrame, **look: Unpack[Look]) -> Figure:
    """Plot which share of works has, some years after publication, the label of all years.

    Args:
        stability: what ``find_label_stability`` gives.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: shares with their 95% Wilson intervals (a) by citers at that age, (b) by references on record.

    Raises:
        SchemaMismatchError: a column is missing or has another type.

    Example:
        >>> stability = pl.DataFrame({"age": [3, 3, 5], "group": ["all", "1-2 citers", "all"], "works": [9, 4, 8],
        ...     "share_same": [0.8, 0.75, 0.9]}, schema=LABEL_STABILITY)
        >>> plot_label_stability(stability).get_label().partition(":")[0]
        'Works whose disruption label after 3 or 5 years is that of all years, with 95% Wilson intervals'
    """
    from matplotlib import colormaps

    rows = require_columns(stability, LABEL_STABILITY, frame_name="stability", stage="plot_label_stability").collect()
    ages: list[int] = rows["age"].unique().sort().to_list()
    is_hollow = False
    with drawing(look, heights_mm=(60, 60), share="y") as picture:
        for panel, (kind, name) in zip(picture.panels, _PANELS.items(), strict=True):
            groups = ["all", *(group for group in GROUPS if group.endswith(kind) and group in rows["group"])]
            for place, age in enumerate(ages):
                shown = rows.filter(pl.col("group").is_in(groups), age=age)
                share, works = shown["share_same"].to_numpy(), shown["works"].to_numpy()
                low, high = wilson_interval(share * works, works)
                gap = 0.6 * ((place + 0.5) / len(ages) - 0.5)
                at = np.array([groups.index(group) + gap for group in shown["group"]])
                mark: dict[str, Any] = {"color": colormaps["cividis"]((place + 0.5) / len(ages)), "markersize": 3.5}
                mark |= {"marker": _MARKS[place % len(_MARKS)], "ls": "none"}
                ends = [share - low, high - share]
                panel.errorbar(at, share, ends, lw=0.8, label=counted(age, "year"), **mark)
                panel.plot(at[works < FEW], share[works < FEW], mfc="white", **mark)
                is_hollow |= bool((works < FEW).any())
            panel.set_xticks(range(len(groups)), [group.removesuffix(f" {kind}") for group in groups])
            panel.set_xlabel(name)
            panel.set_ylim(0, 1.04)
            panel.yaxis.set_major_formatter(write_share)
            panel.grid(axis="y", lw=0.3)
        picture.panels[0].set_ylabel("works with the final label")
        close = {"columnspacing": 0.8, "handletextpad": 0.1, "borderaxespad": 0.2}
        picture.panels[0].legend(loc="lower right", bbox_to_anchor=(1.02, 1), ncols=len(ages), **close)
        letter_panels(picture)
        said = " or ".join(filter(None, [", ".join(map(str, ages[:-1])), *map(str, ages[-1:])]))
        picture.title = (
            f"Works whose disruption label after {said} years is that of all years, with 95% Wilson intervals: "
            f"(a) by citers at that age, (b) by references on record.{name_hollow(is_hollow)}"
        )
    return picture.figure


def plot_missing_data(effect: AnyFrame, **look: Unpack[Look]) -> Figure:
    """Plot which share of works keeps its disruption label where data are missing, and what becomes of the ceiling.

    Args:
        effect: what ``find_effect_of_missing_data`` gives.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: (a) works that keep their label, by label; (b) shares of the labels, and the ceiling of accuracy.

    Raises:
        SchemaMismatchError: a column is missing or has another type.

    Example:
        >>> effect = pl.DataFrame({"missing": ["nothing", "citations"], "share": [0.0, 0.1], "label": ["all", "all"],
        ...     "works": [9, 8], "label_share": [1.0, 1.0], "share_same": [1.0, 0.9], "share_lost": [0.0, 0.1],
        ...     "ceiling_accuracy": [0.8, 0.7], "ceiling_macro_f1": [0.6, 0.5]})
        >>> [text.get_text() for text in plot_missing_data(effect).axes[0].get_xticklabels()]
        ['nothing', '10%']
    """
    rows = require_columns(effect, MISSING_DATA, frame_name="effect", stage="plot_missing_data").collect()
    gaps = rows.select("missing", "share").unique(maintain_order=True).rows()
    colours = {"all": INK, **{label: COLOURS[label] for label in LABELS_BY_INDEX}}
    with drawing(look, heights_mm=(60, 60), share="y") as picture:
        for panel, column in zip(picture.panels, ("share_same", "label_share"), strict=True):
            for place, (label, colour) in enumerate(colours.items()):
                of_all = label == "all" and column == "label_share"
                shown = rows.filter(label=label)
                panel.plot(
                    [gaps.index(gap) + 0.12 * place - 0.18 for gap in shown.select("missing", "share").rows()],
                    shown["ceiling_accuracy" if of_all else column],
                    _MARKS[place],
                    color=colour,
                    mfc="white" if of_all else colour,
                    markersize=4,
                    label="ceiling of accuracy" if of_all else label if column == "share_same" else None,
                )
            names = [write_share(share) + ("\nlists" if kind == "references" else "") for kind, share in gaps]
            panel.set_xticks(range(len(gaps)), ["nothing", *names[1:]] if gaps[:1] == [("nothing", 0.0)] else names)
            panel.set_xlim(-0.5, len(gaps) - 0.5)
            panel.set_xlabel("missing citations, or reference lists")
            panel.set_ylim(0, 1.04)
            panel.yaxis.set_major_formatter(write_share)
            panel.grid(axis="y", lw=0.3)
            panel.legend(loc="best")
        picture.panels[0].set_ylabel("works with the same label")
        picture.panels[1].set_ylabel("share of works")
        letter_panels(picture)
        picture.title = (
            "Disruption labels where citations or the reference lists of works are missing: (a) works that keep their "
            "label, by the label in the whole data, (b) shares of the labels, and the ceiling of accuracy."
        )
    return picture.figure
