"""Pictures of labels: their classes before and after a draw, over the years, and where data are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import polars as pl

from sciscidata.disruption.label_stability import GROUPS, LABEL_STABILITY
from sciscidata.disruption.missing_data import MISSING_DATA
from sciscidata.frames import AnyFrame
from sciscidata.intervals import wilson_interval
from sciscidata.label_thresholds import LABELS_BY_INDEX
from sciscidata.options.checks import require_config
from sciscidata.own_label import OwnLabel
from sciscidata.plots.by_group import Panel, Reading, draw_panel, name_hollow, put_legend_outside
from sciscidata.plots.figure import Look, count_works, drawing, letter_panels, write_share
from sciscidata.plots.measure import put_measured
from sciscidata.plots.palette import COLOURS, INK, MARKERS, PALE, shade
from sciscidata.release.findings import say_classes
from sciscidata.schemas import require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLOSE: Final[dict[str, Any]] = {"columnspacing": 1.0, "handlelength": 0.9, "handletextpad": 0.4, "borderaxespad": 0.2}
_AGES: Final = (0.82, 0.05)  # of the shades: from few years to many
_GAP: Final = 0.5  # of a place, between missing citations and missing lists
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
    """Draw the class counts side by side, each bar with its number; the legend counts drawn works without a label."""
    from matplotlib.patches import Patch

    positions = np.arange(len(labels))
    for offset, counts, alpha in ((-0.2, eligible, 0.4), (0.2, drawn, 1.0)):
        colours = [COLOURS.get(label, INK) for label in labels]
        bars = axes.bar(positions + offset, [counts[label] for label in labels], 0.38, color=colours, alpha=alpha)
        axes.bar_label(bars, fmt="{:,.0f}", fontsize=7, padding=1)
    axes.set_xticks(positions, labels)
    axes.margins(y=0.12)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylabel(noun)
    without = f" ({n_unlabelled:,} more have no label)" if n_unlabelled else ""
    names = {"may be drawn": 0.4, f"drawn{without}": 1.0}
    patches = [Patch(color=INK, alpha=alpha, lw=0, label=name) for name, alpha in names.items()]
    axes.legend(handles=patches, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, **_CLOSE)


def plot_label(label: OwnLabel, eligible: Mapping[str, int], drawn: Mapping[str, int], **look: Unpack[Look]) -> Figure:
    r"""Plot the class counts of a label of your own before and after a draw.

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
        >>> figure.get_label(), figure.get_suptitle().replace("\n", " ")
        ('Classes of impact_label of 10 drawn works.', 'Most papers are rest: 95 of 100; 5 are top')
    """
    example = "name='impact_label', classes=('top', 'rest'), column='impact_label'"
    require_config(label, OwnLabel, example, name="label")
    classes = label.classes or tuple(sorted(eligible))
    with drawing(look, heights_mm=(58,)) as picture:
        draw_classes(picture.panels[0], classes, eligible, drawn)
        if len(classes) > (3 if picture.is_narrow else 6):
            picture.panels[0].tick_params(axis="x", labelrotation=45)
        n_drawn = count_works(sum(drawn.values())).replace(" work", " drawn work")
        picture.caption = f"Classes of {label.name} of {n_drawn}."
        picture.finding = say_classes({name: eligible[name] for name in classes})
    return picture.figure


def plot_label_stability(stability: AnyFrame, **look: Unpack[Look]) -> Figure:
    """Plot which share of works has, some years after publication, the label of all years.

    Args:
        stability: what ``find_label_stability`` gives.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: shares with their 95 % Wilson intervals (a) by citers at that age, (b) by references on record.

    Raises:
        SchemaMismatchError: a column is missing or has another type.

    Example:
        >>> stability = pl.DataFrame({"age": [3, 3, 5], "group": ["all", "1-2 citers", "all"], "works": [9, 4, 8],
        ...     "share_same": [0.8, 0.75, 0.9]}, schema=LABEL_STABILITY)
        >>> plot_label_stability(stability).get_label().partition(":")[0]
        'Works whose disruption label after 3 or 5 years is that of all years, with 95 % Wilson intervals'
    """
    rows = require_columns(stability, LABEL_STABILITY, frame_name="stability", stage="plot_label_stability").collect()
    share, works = rows["share_same"].to_numpy(), rows["works"].to_numpy()
    rows = put_measured(rows.with_columns(n="works"), ("age", "group"), works, share, *wilson_interval(share, works))
    ages: list[int] = rows["age"].unique().sort().to_list()
    shades = shade(len(ages), *_AGES)
    is_hollow = False
    with drawing(look, heights_mm=(60, 60)) as picture:
        for axes, (kind, name) in zip(picture.panels, _PANELS.items(), strict=True):
            groups = ["all", *(group for group in GROUPS if group.endswith(kind) and group in rows["group"])]
            lines = [rows.filter(pl.col("group").is_in(groups), age=age) for age in ages]
            names = {group: group.removesuffix(f" {kind}") for group in groups}
            axes.set_xlim(0, 1.04)
            panel = Panel("final label", "share", lines)
            is_hollow |= draw_panel(axes, "group", panel, Reading(by="age", names=names, colours=shades)).is_few
            axes.set_xlabel("works with the final label")
            axes.set_ylabel(name)
        if look.get("ax") is None:
            picture.panels[0].legend().remove()
            put_legend_outside(picture, "years after\npublication")
        letter_panels(picture)
        said = " or ".join(filter(None, [", ".join(map(str, ages[:-1])), *map(str, ages[-1:])]))
        picture.caption = (
            f"Works whose disruption label after {said} years is that of all years, with 95 % Wilson intervals: "
            f"(a) by citers at that age, (b) by references on record.{name_hollow(is_hollow)}"
        )
    return picture.figure


def plot_missing_data(effect: AnyFrame, **look: Unpack[Look]) -> Figure:
    """Plot which share of works keeps its disruption label where data are missing, and what becomes of the ceiling.

    Args:
        effect: what ``find_effect_of_missing_data`` gives.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: (a) works that keep their label, by label; (b) shares of the labels; (c) the ceiling of accuracy.

    Raises:
        SchemaMismatchError: a column is missing or has another type.

    Example:
        >>> effect = pl.DataFrame({"missing": ["nothing", "citations"], "share": [0.0, 0.1], "label": ["all", "all"],
        ...     "works": [9, 8], "label_share": [1.0, 1.0], "share_same": [1.0, 0.9], "share_lost": [0.0, 0.1],
        ...     "ceiling_accuracy": [0.8, 0.7], "ceiling_macro_f1": [0.6, 0.5]})
        >>> [text.get_text() for text in plot_missing_data(effect).axes[0].get_xticklabels()]
        ['nothing', '10 %']
    """
    rows = require_columns(effect, MISSING_DATA, frame_name="effect", stage="plot_missing_data").collect()
    gaps = rows.select("missing", "share").unique(maintain_order=True).rows()
    of_lists = [kind == "references" for kind, _ in gaps]
    places = np.arange(len(gaps)) + _GAP * np.array(of_lists)
    whole = rows.filter(missing="nothing").select("label", n_whole="works").unique("label")
    every = rows.filter(label="all").select("missing", "share", n_all="works")
    rows = rows.join(whole, on="label", how="left", maintain_order="left")
    rows = rows.join(every, on=["missing", "share"], how="left", maintain_order="left")
    colours = {"all": INK, **{label: COLOURS[label] for label in LABELS_BY_INDEX}}
    names = [write_share(share) + "\nlists" * (kind == "references") for kind, share in gaps]
    names = ["nothing", *names[1:]] if gaps[:1] == [("nothing", 0.0)] else names
    panels = {"share_same": "works with the same label", "label_share": "works with the label"}
    panels["ceiling_accuracy"] = "ceiling of accuracy"
    with drawing(look, heights_mm=(62, 62, 62), share="y") as picture:
        for panel, (column, name) in zip(picture.panels, panels.items(), strict=True):
            of_label = column == "label_share"
            shown = {"all": INK} if column == "ceiling_accuracy" else dict([*colours.items()][of_label:])
            for number, (label, colour) in enumerate(shown.items()):
                some = rows.filter(label=label)
                own = [places[gaps.index(gap)] for gap in some.select("missing", "share").rows()]
                at = np.array(own) + 0.14 * (number - (len(shown) - 1) / 2)
                values = some[column].to_numpy()
                if column != "ceiling_accuracy":
                    n_of = some["n_all" if of_label else "n_whole"].cast(pl.Float64).to_numpy()
                    panel.vlines(at, *wilson_interval(values, n_of), color=colour, lw=0.8)
                panel.plot(at, values, MARKERS[list(colours).index(label)], color=colour, markersize=4, label=label)
            panel.set_xticks(places, names)
            panel.set_xlim(-0.5, places[-1] + 0.5)
            for between in {float(places[i]) - 0.75 for i, is_list in enumerate(of_lists) if is_list and i}:
                panel.axvline(between, color=PALE, lw=0.6, ls=":")
            panel.set_xlabel("missing citations, or lists" if any(of_lists) else "missing citations")
            panel.set_ylim(0, 1.04)
            panel.yaxis.set_major_formatter(write_share)
            panel.grid(axis="y", lw=0.3)
            panel.set_ylabel(name)
            if look.get("ax") is not None and column == "share_same":
                panel.legend(loc="best")
        if look.get("ax") is None:
            handles, labels = picture.panels[0].get_legend_handles_labels()
            columns = 2 if picture.is_narrow else 4
            picture.legend = {"handles": handles, "labels": labels, "ncols": columns, "columnspacing": 1.5}
        letter_panels(picture)
        picture.caption = (
            "Disruption labels where citations or the reference lists of works are missing: (a) works that keep their "
            "label, by the label in the whole data, (b) shares of the labels, (c) the highest accuracy that can be "
            "expected. Lines: 95 % Wilson intervals."
        )
    return picture.figure
