"""Pictures of labels: their classes before and after a draw, over the years, and where data are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Unpack

import numpy as np
import polars as pl

from sciscidata.disruption.label_stability import GROUPS, LABEL_STABILITY
from sciscidata.disruption.missing_data import MISSING_DATA
from sciscidata.frames import AnyFrame
from sciscidata.intervals import wilson_interval
from sciscidata.label_thresholds import LABELS_BY_INDEX
from sciscidata.options.checks import require_config
from sciscidata.own_label import OwnLabel
from sciscidata.plots.by_group import (
    Panel,
    Reading,
    draw_panel,
    legend_height,
    name_hollow,
    put_legend_outside,
)
from sciscidata.plots.figure import COLOURS, INK, Look, count_works, drawing, letter_panels, write_share
from sciscidata.plots.measure import put_measured
from sciscidata.schemas import require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKS: Final = "os^D"
_PANELS: Final = {"citers": "citers at that age", "references": "references on record"}


def draw_classes(
    axes: Axes,
    labels: Sequence[str],
    eligible: Mapping[str, int],
    drawn: Mapping[str, int],
    *,
    n_unlabelled: int = 0,
    noun: str = "works",
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
    axes.set_ylabel(noun)
    without = f"\n({n_unlabelled:,} more drawn without a label)" if n_unlabelled else ""
    axes.set_title(f"Eligible (pale) and drawn works{without}")


def plot_label(label: OwnLabel, eligible: Mapping[str, int], drawn: Mapping[str, int], **look: Unpack[Look]) -> Figure:
    """Plot the class counts of a label of your own before and after a draw.

    Args:
        label: its name and classes.
        eligible: works per class before the draw.
        drawn: works per class in the release, all splits together.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, one panel.

    Raises:
        ConfigError: ``label`` is no OwnLabel, or an option of the picture is wrong.

    Example:
        >>> label = OwnLabel(name="impact_label", classes=("top", "rest"), column="impact_label")
        >>> figure = plot_label(label, {"top": 5, "rest": 95}, {"top": 5, "rest": 5}, width="one")
        >>> figure.get_suptitle().partition(".")[0]
        'Classes of impact_label of 10 drawn works'
    """
    example = "name='impact_label', classes=('top', 'rest'), column='impact_label'"
    require_config(label, OwnLabel, example, name="label")
    classes = label.classes or tuple(sorted(eligible))
    with drawing(look, heights_mm=(58,)) as picture:
        draw_classes(picture.panels[0], classes, eligible, drawn)
        if len(classes) > (3 if picture.is_narrow else 6):
            picture.panels[0].tick_params(axis="x", labelrotation=45)
        n_drawn = count_works(sum(drawn.values())).replace(" work", " drawn work")
        picture.title = f"Classes of {label.name} of {n_drawn}."
    return picture.figure


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
    rows = require_columns(stability, LABEL_STABILITY, frame_name="stability", stage="plot_label_stability").collect()
    share, works = rows["share_same"].to_numpy(), rows["works"].to_numpy()
    rows = put_measured(rows.with_columns(n="works"), ("age", "group"), works, share, *wilson_interval(share, works))
    ages: list[int] = rows["age"].unique().sort().to_list()
    is_hollow = False
    with drawing(look, heights_mm=(60, 60 + legend_height(look, len(ages)))) as picture:
        for axes, (kind, name) in zip(picture.panels, _PANELS.items(), strict=True):
            groups = ["all", *(group for group in GROUPS if group.endswith(kind) and group in rows["group"])]
            lines = [rows.filter(pl.col("group").is_in(groups), age=age) for age in ages]
            names = {group: group.removesuffix(f" {kind}") for group in groups}
            axes.set_xlim(0, 1.04)
            panel = Panel("final label", "share", lines)
            is_hollow |= draw_panel(axes, "group", panel, Reading(by="age", names=names)).is_few
            axes.set_xlabel("works with the final label")
            axes.set_ylabel(name)
        if look.get("ax") is None:
            picture.panels[0].legend().remove()
            put_legend_outside(picture, "years after\npublication")
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
    whole = rows.filter(missing="nothing").select("label", n_whole="works").unique("label")
    every = rows.filter(label="all").select("missing", "share", n_all="works")
    rows = rows.join(whole, on="label", how="left", maintain_order="left")
    rows = rows.join(every, on=["missing", "share"], how="left", maintain_order="left")
    colours = {"all": INK, **{label: COLOURS[label] for label in LABELS_BY_INDEX}}
    with drawing(look, heights_mm=(66, 66), share="y") as picture:
        for panel, column in zip(picture.panels, ("share_same", "label_share"), strict=True):
            for place, (label, colour) in enumerate(colours.items()):
                of_all = label == "all" and column == "label_share"
                shown = rows.filter(label=label)
                at = (
                    np.array([gaps.index(gap) for gap in shown.select("missing", "share").rows()]) + 0.12 * place - 0.18
                )
                if not of_all:
                    n_of = shown["n_whole" if column == "share_same" else "n_all"].cast(pl.Float64).to_numpy()
                    panel.vlines(at, *wilson_interval(shown[column].to_numpy(), n_of), color=colour, lw=0.8)
                panel.plot(
                    at,
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
            if look.get("ax") is not None:
                panel.legend(loc="best")
        if look.get("ax") is None:
            (first, labels), (second, ceiling) = (panel.get_legend_handles_labels() for panel in picture.panels)
            columns = 2 if picture.is_narrow else 5
            picture.figure.legend(
                [*first, *second], [*labels, *ceiling], loc="outside lower center", ncols=columns, columnspacing=1.5
            )
        picture.panels[0].set_ylabel("works with the same label")
        picture.panels[1].set_ylabel("share of works")
        letter_panels(picture)
        picture.title = (
            "Disruption labels where citations or the reference lists of works are missing: (a) works that keep their "
            "label, by the label in the whole data, (b) shares of the labels, and the ceiling of accuracy. "
            "Lines: 95% Wilson intervals."
        )
    return picture.figure
