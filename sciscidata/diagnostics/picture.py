"""Draw the diagnostics: every check as a bar, and those that are counted by year and by field."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from sciscidata.diagnostics.diagnose import DIAGNOSTICS
from sciscidata.frames import AnyFrame
from sciscidata.intervals import wilson_interval
from sciscidata.plots.by_group import FEW, Panel, Reading, draw_panel, fit_name
from sciscidata.plots.figure import drawing, tick_numbers
from sciscidata.plots.measure import put_measured
from sciscidata.plots.palette import COLOURS, PALE
from sciscidata.schemas import require_columns
from sciscidata.terminal.shares import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEVELS: Final = {"ok": COLOURS["neutral"], "warning": COLOURS["disruptive"]}
_SERIES: Final = ("no_references", "works_with_venue", "references_with_venue")
#: What the share of each check is of, and whether much of it is good.
_MEANING: Final = {
    "high is good": {
        "works_in_citations": "works in a citation",
        "complete_window": "works with a complete window",
        "works_with_venue": "works with a venue",
        "references_with_venue": "references with a venue",
    },
    "high is bad": {
        "citing_ids": "citing ids that are not in works",
        "cited_ids": "cited ids that are not in works",
        "merged": "citations of merged works",
        "later_citations": "citations to a later work",
        "self_citations": "citations of a work by itself",
        "repeats": "citations in repeated rows",
        "impossible_years": "works with an impossible year",
        "no_year": "works without a year",
        "no_references": "cited works without references",
    },
}
_FIELDS: Final = 12
_HEIGHTS_MM: Final = (62.0, 62.0, 76.0, 76.0)
_RATIOS: Final = (1.2, 1.0)
_NAME_MM: Final = 30.0
_SHOWN: Final = 0.99  # of the works lie in the years that are shown: mistaken years would leave a sliver for the others


def plot_diagnostics(checks: AnyFrame, path: str | Path | None = None, *, title: str = "") -> Figure:
    """Plot what ``diagnose`` has found: the share of every check, and missing references and venues by year and field.

    Args:
        checks: as ``diagnose`` returns it.
        path: the PNG, SVG or PDF file to write; None writes none.
        title: shown above the picture, for example the name of the data.

    Returns:
        The figure. Warnings are orange. A year or field with fewer than 30 works is hollow.

    Raises:
        SchemaMismatchError: when called, if ``checks`` is another frame.
        ConfigError, StorageError: the file cannot be written, or has another suffix.

    Example:
        >>> import polars as pl
        >>> from sciscidata import diagnose
        >>> works = pl.LazyFrame({"work_id": [1, 2], "publication_year": [1990, 2000]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> figure = plot_diagnostics(diagnose(works, pl.LazyFrame({"citing_id": [2], "cited_id": [1]})))
        >>> [axes.get_title() for axes in figure.axes][0]
        'Checks (orange: warning)'
    """
    rows = require_columns(checks, DIAGNOSTICS, frame_name="checks", stage="plot_diagnostics").collect()
    by_name = {row["name"]: row for row in rows.iter_rows(named=True)}
    years = _central_years(by_name.get("complete_window", {}).get("by_year") or [])
    fields = dict[str, int]()
    for name in _SERIES:
        for group in by_name.get(name, {}).get("by_field") or []:
            fields[group["field"]] = max(fields.get(group["field"], 0), group["of"])
    chosen = sorted(fields, key=lambda name: (-fields[name], name))[:_FIELDS]
    with drawing({"path": path}, heights_mm=_HEIGHTS_MM, ratios=_RATIOS, columns=2) as picture:
        left, right, below, beside = picture.panels
        _draw_checks(left, by_name)
        _draw_windows(right, by_name.get("complete_window", {}), years)
        _draw_groups(below, by_name, "year", years)
        _draw_groups(beside, by_name, "field", chosen)
        handles, labels = max(
            (one.get_legend_handles_labels() for one in (below, beside)), key=lambda found: len(found[1])
        )
        if labels:
            picture.legend = {"handles": handles, "labels": labels}
        picture.finding = title
    return picture.figure


def _draw_checks(axes: Axes, by_name: dict[str, dict[str, Any]]) -> None:
    names: list[str] = []
    for meaning, checks in _MEANING.items():
        shown = {name: text for name, text in checks.items() if by_name.get(name, {}).get("value") is not None}
        names += [f"{meaning}:"] * bool(shown)
        for name, text in shown.items():
            row = by_name[name]
            bars = axes.barh(len(names), row["value"], color=_LEVELS[row["level"]])
            axes.bar_label(bars, [f" {percent(row['value'], 1)} ({row['n']:,} of {row['of']:,})"], fontsize=7)
            names.append(text)
    ticks = axes.set_yticks(range(len(names)), names)
    for tick in ticks:
        tick.label1.set_fontweight("bold" if tick.label1.get_text().endswith(":") else "normal")
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.set_xlim(0, 2.2)  # room for the numbers
    axes.set_xticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
    axes.set_title("Checks (orange: warning)")


def _draw_windows(axes: Axes, row: dict[str, Any], years: range) -> None:
    groups = [group for group in row.get("by_year") or [] if group["year"] in years]
    at, whole = [group["year"] for group in groups], [group["of"] for group in groups]
    axes.bar(at, whole, width=0.9, color=PALE, label="window not over")
    axes.bar(at, [group["n"] for group in groups], width=0.9, color=COLOURS["consolidating"], label="complete window")
    if years:
        axes.set_xlim(years[0] - 1, years[-1] + 1)
    tick_numbers(axes.xaxis, 5)
    axes.set_xlabel("year of publication")
    axes.set_ylabel("works")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    if groups:
        axes.margins(y=0.4)  # room for the legend
        axes.legend(loc="upper left")
    axes.set_title("Works by year of publication")


def _draw_groups(axes: Axes, by_name: dict[str, dict[str, Any]], x: str, chosen: Sequence[Any]) -> None:
    """Draw the shares of some checks by year or field."""
    meanings = {name: f"{text} ({meaning})" for meaning, checks in _MEANING.items() for name, text in checks.items()}
    lines: list[pl.DataFrame] = []
    for name in _SERIES:
        found = [group for group in by_name.get(name, {}).get(f"by_{x}") or [] if group[x] in chosen]
        if found:
            groups = pl.DataFrame(found).with_columns(check=pl.lit(meanings[name]))
            n, of = groups["n"].to_numpy(), groups["of"].to_numpy()
            ends = wilson_interval(n / of, of)
            lines.append(put_measured(groups.with_columns(n="of"), (x, "check"), of, n / of, *ends))
    axes.set_title(f"By {x} (hollow: fewer than {FEW} works)" if lines else f"By {x}: works say none")
    if lines:
        limits = axes.set_xlim if x == "field" else axes.set_ylim
        limits(-0.03, 1.03)
        names = {name: fit_name(name, _NAME_MM) for name in chosen} if x == "field" else {}
        reading = Reading(by="check", names=names, is_crowded=x == "year")
        draw_panel(axes, x, Panel("", "share", lines), reading)
        axes.set(xlabel="share" if names else "year of publication", ylabel="" if names else "share")
        axes.legend().remove()


def _central_years(groups: list[dict[str, Any]]) -> range:
    """Return the years without the outermost works on either side."""
    if not groups:
        return range(0)
    passed = np.cumsum([group["of"] for group in groups])
    outside = passed[-1] * (1 - _SHOWN) / 2
    first, last = np.searchsorted(passed, outside, "right"), np.searchsorted(passed, passed[-1] - outside)
    return range(groups[first]["year"], groups[last]["year"] + 1)
