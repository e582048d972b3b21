"""Pictures by year and by field: shares and means with intervals, and drawn beside eligible works."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import polars as pl

from sciscidata.errors import ConfigError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.judged import MARKS, LeftOut, Population
from sciscidata.plots.by_group import (
    FEW,
    YEAR,
    Panel,
    Reading,
    describe_hidden,
    find_complete_until,
    name_rows,
    plot_panels,
)
from sciscidata.plots.figure import Look, count_works, drawing, letter_panels, tick_numbers, write_share
from sciscidata.plots.measure import MEASURED, Stat, add_up, choose_value, estimate, read_values, refuse_nothing
from sciscidata.plots.palette import INK, PALE
from sciscidata.records.ids import warn_of_repeated_works
from sciscidata.records.last_year_of_data import count_years, find_last_year
from sciscidata.release.read import Release
from sciscidata.schemas import EXAMPLE, require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FIELD = "primary_field"
_MOST_FIELDS: Final = 26  # as many as OpenAlex has
_MOST_YEARS: Final = 500
_FEW_YEARS: Final = 40
_RARE: Final = 0.01  # of the works: fields below are drawn as one


def plot_by_year(
    labelled: AnyFrame,
    *,
    label: str = "disruptive",
    score: str = "cd_index",
    by: str = YEAR,
    few: int = FEW,
    population: Population = "judged",
    complete_until: int | None = None,
    **look: Unpack[Look],
) -> Figure:
    """Plot the share of a label and the mean of a score by year of publication, with intervals at 95 %.

    Shares have Wilson's interval, means Student's. Years with few works are hollow and pale. Years before the first and
    after the last that has enough works are left out, and so are mistaken dates. The title counts their works.

    A release has equal numbers of each class, so its shares mean nothing: give all labelled works.

    Args:
        labelled: ``publication_year``, the column of the label and the score, one row per work. Rows without a label
            or without a score do not count in its panel.
        label: one of the labels of EXAMPLE, or a class of your own label; "" leaves out the panel.
        score: a column of numbers; "" leaves out the panel.
        by: the column of years.
        few: a year with fewer works is shown as unsure.
        population: as in ``measure_by``; the caption counts the works that are left out.
        complete_until: last year whose citation window is over; later years are shown as unsure. None: found in
            ``window_complete``, if the frame has it.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with a panel for the label and one for the score.

    Raises:
        EmptyInputError: there is nothing to draw, such as a column of nulls.
        SchemaMismatchError: a column is missing or mistyped.

    Example:
        >>> works = pl.DataFrame({
        ...     "publication_year": [2000, 2000, 2001, 2001], "cd_index": [0.5, -0.1, 0.2, 0.1],
        ...     "disruption_label": ["disruptive", "consolidating", "disruptive", "disruptive"],
        ... }, schema_overrides={"publication_year": pl.Int32})
        >>> figure = plot_by_year(works, few=2, data="four works")
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['share disruptive', 'mean CD index']
    """
    groups, left_out = _add_up(labelled, by, (label, score), population, "plot_by_year")
    groups = groups.drop_nulls(by)
    first, last = _choose_span(dict(groups.select(by, "n").rows()), few)
    year = pl.col(by)
    hidden = {f"before {first}": groups.filter(year < first), f"after {last}": groups.filter(year > last)}
    panels = _measure(groups.filter(year.is_between(first, last)), by, label, score, hidden, left_out)
    if complete_until is not None or by != YEAR:
        panels = [panel._replace(after=complete_until) for panel in panels]
    else:
        every = to_lazy(labelled, "the frame", "plot_by_year")
        choices = [choose_value(every, panel.y, panel.stat, "judged") for panel in panels]
        over = {
            one.window: find_complete_until(every, one, "plot_by_year") for one in choices if one.counts is not None
        }
        panels = [
            panel._replace(after=None if one.counts is None else over[one.window])
            for panel, one in zip(panels, choices, strict=True)
        ]
    return plot_panels(look, by, panels, Reading(few))


def plot_by_field(
    labelled: AnyFrame,
    *,
    label: str = "disruptive",
    score: str = "cd_index",
    by: str = _FIELD,
    few: int = FEW,
    population: Population = "judged",
    **look: Unpack[Look],
) -> Figure:
    """Plot the share of a label and the mean of a score by field, with 95 % intervals, largest share first.

    Fields with few works are hollow, and come last.

    Args:
        labelled: ``primary_field``, the column of the label and the score, one row per work. Works without a field are
            counted in the title; of more than 26 fields those with most works are shown.
        label: as in ``plot_by_year``.
        score: as in ``plot_by_year``.
        by: the column of fields, or of any names.
        few: a field with fewer works is shown as unsure.
        population: as in ``measure_by``; the caption counts the works that are left out.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with a panel for the label and one for the score.

    Raises:
        ConfigError: an option is wrong, or ``by`` is called like a column that is made here.
        EmptyInputError: there is nothing to draw, such as a column of nulls.
        SchemaMismatchError: a column is missing or mistyped.

    Example:
        >>> works = pl.DataFrame({
        ...     "primary_field": ["Medicine", "Medicine", "Psychology"], "cd_index": [0.5, -0.1, 0.2],
        ...     "disruption_label": ["disruptive", "consolidating", "disruptive"],
        ... })
        >>> figure = plot_by_field(works, few=2, width="one")
        >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
        ['Medicine (2)', 'Psychology (1)']
    """
    groups, left_out = _add_up(labelled, by, (label, score), population, "plot_by_field")
    named = groups.drop_nulls(by).sort("n", by, descending=[True, False])
    shown = named.head(_MOST_FIELDS)
    hidden = {"without a field": groups.filter(pl.col(by).is_null()), "in smaller fields": named[_MOST_FIELDS:]}
    return plot_panels(look, by, _measure(shown, by, label, score, hidden, left_out), Reading(few))


def plot_works(works: AnyFrame, **look: Unpack[Look]) -> Figure:
    """Plot how works are spread over years of publication and fields: what a data section shows first.

    Args:
        works: ``publication_year`` and ``primary_field``, one row per work. Without the field there is one panel.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with a panel for years and one for fields.

    Raises:
        EmptyInputError: ``publication_year`` is null in all rows.
        SchemaMismatchError: ``publication_year`` is missing or mistyped.

    Example:
        >>> works = pl.DataFrame({"publication_year": [2000, 2000, 2001], "primary_field": ["Law", None, "Law"]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> [axes.get_xlabel() for axes in plot_works(works).axes]
        ['year of publication', 'works']
    """
    return _plot_counts({"the frame": works}, "plot_works", look)


def plot_drawn(
    eligible: AnyFrame, drawn: AnyFrame | Release, *, bars: str = "may be drawn", **look: Unpack[Look]
) -> Figure:
    """Plot drawn against eligible works, as shares of each, by year of publication and by field.

    Where the dots leave the bars, the draw is not like the works that it was drawn from. Classes of equal size bring
    more of the years and fields in which rare classes are frequent.

    Args:
        eligible: ``publication_year`` and ``primary_field`` of every work that may be drawn. Without the field there is
            one panel.
        drawn: the same of the drawn works; or a release.
        bars: what the legend calls the first works, if they are not those that may be drawn.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with a panel for years and one for fields.

    Raises:
        EmptyInputError: ``publication_year`` is null in all rows.
        SchemaMismatchError: ``publication_year`` is missing or mistyped.

    Example:
        >>> works = pl.DataFrame({"publication_year": [2000, 2000, 2001]}, schema={"publication_year": pl.Int32})
        >>> figure = plot_drawn(works, works.head(1), width="one")
        >>> len(figure.axes), figure.get_label().partition(",")[0]
        (1, '1 work drawn from 3 works')
    """
    drawn_rows = pl.concat([drawn.train, drawn.test]) if isinstance(drawn, Release) else drawn
    frames = {"the frame of eligible works": eligible, "the frame of drawn works": drawn_rows}
    return _plot_counts(frames, "plot_drawn", look, bars)


def _plot_counts(frames: Mapping[str, AnyFrame], stage: str, look: Look, bars: str = "") -> Figure:
    """Draw the works of one frame by year and by field, or the shares of a second beside those of the first."""
    works = [
        require_columns(frame, EXAMPLE, frame_name=name, stage=stage, columns=[YEAR]) for name, frame in frames.items()
    ]
    for frame in works:
        warn_of_repeated_works(frame, stage)
    totals = [int(frame.select(pl.len()).collect(engine="streaming").item()) for frame in works]
    by_year, by_field = [count_years(frame) for frame in works], [_count_fields(frame) for frame in works]
    for frame, counts in zip(works, by_year, strict=True):
        if not counts:
            refuse_nothing(frame, [YEAR], stage)
    ends = [end for counts in by_year for end in _choose_span(counts, few=1)]
    span = [*range(max(min(ends), max(ends) - _MOST_YEARS), max(ends) + 1)]
    fields = sorted(by_field[0], key=lambda name: (-by_field[0][name], name))[:_MOST_FIELDS] if all(by_field) else []
    if len(works) > 1:
        rare = [name for name in fields if all(one.get(name, 0) < _RARE * sum(one.values()) for one in by_field)]
        if len(rare) > 1:
            others = f"{len(rare)} other fields"
            by_field = [one | {others: sum(one.get(name, 0) for name in rare)} for one in by_field]
            fields = [*(name for name in fields if name not in rare), others]
            by_field = [{name: n for name, n in one.items() if name not in rare} for one in by_field]
    ends = [f" ({by_field[0][name]:,})" if len(works) == 1 else "" for name in fields]
    names, height = name_rows([*zip(fields, ends, strict=True)], look)
    heights = (58, height) if fields else (58,)
    if look.get("width") != "one":
        heights = (max(heights), *heights[1:])
    with drawing(look, heights_mm=heights, ratios=(1, 1.3)[: len(heights)]) as picture:
        axes = picture.panels[0]
        shown = _draw_counts(axes, by_year, span)
        axes.set_xlim(span[0] - 0.8, span[-1] + 0.8)
        tick_numbers(axes.xaxis, 6)
        axes.set_xlabel("year of publication")
        if len(works) > 1:
            axes.legend(shown, [f"{bars} ({totals[0]:,})", f"drawn ({totals[1]:,})"], loc="upper left")
        if fields:
            _draw_counts(picture.panels[1], by_field, fields, names)
            letter_panels(picture)
        by = "(a) year of publication and (b) field" if fields else "year of publication"
        drawn_from = f"{count_works(totals[-1])} drawn from {count_works(totals[0])}, as shares of each"
        picture.caption = f"{drawn_from if len(works) > 1 else count_works(totals[0])} by {by}."
        smaller = sum(n for name, n in by_field[0].items() if name not in fields) if fields else 0
        outside = sum(n for year, n in by_year[0].items() if not span[0] <= year <= span[-1])
        picture.caption += describe_hidden({"in smaller fields": smaller, "of other years": outside})
    return picture.figure


def _draw_counts(
    axes: Axes, counts: Sequence[Mapping[Any, int]], groups: Sequence[Any], names: Sequence[str] = ()
) -> list[Any]:
    """Draw counts as bars, and a second set as dots, both then as shares: over years, or beside ``names``."""
    is_share = len(counts) > 1
    sizes = [
        np.array([one.get(group, 0) for group in groups]) / (sum(one.values()) if is_share else 1) for one in counts
    ]
    most = max(float(size.max()) for size in sizes) or 1
    values, rows = axes.xaxis if names else axes.yaxis, np.arange(len(names))
    if names:
        shown: list[Any] = [axes.barh(rows, sizes[0], 0.8, color=PALE)]
        axes.set_yticks(rows, names, linespacing=0.9)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(0, 1.05 * most)
    else:
        shown = [axes.bar(groups, sizes[0], 0.85 if len(groups) <= _FEW_YEARS else 1.0, color=PALE)]
    if is_share and names:
        shown += axes.plot(sizes[1], rows, "o", ms=3.5, color=INK)
    elif is_share:
        shown += axes.plot(groups, sizes[1], "o-", color=INK, lw=0.6, ms=float(np.clip(110 / len(groups), 1.2, 3.5)))
        axes.set_ylim(0, 1.5 * most)
    tick_numbers(values, 5, is_whole=not is_share)
    values.set_major_formatter(write_share if is_share else "{x:,.0f}")
    values.set_label_text("share of works" if is_share else "works")
    return shown


def _add_up(
    labelled: AnyFrame, by: str, columns: tuple[str, str], population: Population, stage: str
) -> tuple[pl.DataFrame, dict[str, LeftOut]]:
    """Add up a label, as 0 and 1, and a score in each group, of the works that count for each; and say which do not."""
    label, score = columns
    if not label and not score:
        raise ConfigError("there is nothing to show. Name a label, a score, or both.")
    if re.fullmatch("((n|n_works|mean|squares)_)?(label|score)(_.*)?|n|" + "|".join(MEASURED), by):
        raise ConfigError(f"{stage}: the picture has a column {by!r} of its own. Rename yours before.")
    needed = {by: EXAMPLE[YEAR if stage == "plot_by_year" else _FIELD]}
    labelled = require_columns(labelled, needed, frame_name="the frame", stage=stage)
    warn_of_repeated_works(labelled, stage, within=by)
    values = {"label": (label, "share"), "score": (score, "mean")}
    choices = {name: choose_value(labelled, y, stat, population) for name, (y, stat) in values.items()}
    marks = [mark for name, choice in choices.items() for mark in choice.marks(name)]
    rows, left_out = read_values(labelled, [by], values, *marks, stage=stage), dict[str, LeftOut]()
    for name, choice in choices.items():
        left_out[name] = choice.count_marked(rows.select(name, **{mark: name + mark for mark in MARKS}))
        rows = rows.with_columns(pl.when(f"{name}_counts").then(name).alias(name))
    for said in dict.fromkeys(left_out[name] for name, (y, _) in values.items() if y):
        said.log(stage)
    groups = add_up(rows.select(by, "label", "score"), [by], ["label", "score"])
    known = groups.drop_nulls(by)
    for name, column in {"label": label, "score": score}.items():
        if column and not known[f"n_{name}"].sum():
            refuse_nothing(labelled, [by, column], stage)
    return groups, left_out


def _measure(
    groups: pl.DataFrame,
    by: str,
    label: str,
    score: str,
    hidden: Mapping[str, pl.DataFrame],
    left_out: Mapping[str, LeftOut],
) -> list[Panel]:
    """Measure the panel of a label and that of a score; each counts its own works."""
    panels: list[Panel] = []
    stats: tuple[tuple[str, str, Stat], ...] = (("label", label, "share"), ("score", score, "mean"))
    for name, y, stat in stats:
        if y:
            own = groups.with_columns(n=f"n_{name}")
            not_shown = describe_hidden({where: int(rows[f"n_{name}"].sum()) for where, rows in hidden.items()})
            line = estimate(own, [by], name, is_share=stat == "share")
            panels.append(Panel(y, stat, [line], remarks=not_shown + left_out[name].describe()))
    return panels


def _choose_span(counts: Mapping[int, int], few: int) -> tuple[int, int]:
    """Return the first and the last year with enough works, or any: mistaken dates would leave others a sliver."""
    last = find_last_year(counts)
    first = find_last_year({-year: n for year, n in counts.items()})  # the same rule, seen from the other end
    if last is None or first is None:
        return 0, 0
    real = [year for year in counts if max(-first, last - _MOST_YEARS) <= year <= last]
    sure = [year for year in real if counts[year] >= few] or real
    return min(sure), max(sure)


def _count_fields(works: pl.LazyFrame) -> dict[str, int]:
    if works.collect_schema().get(_FIELD) != pl.String:
        return {}
    counts = works.select(pl.col(_FIELD).drop_nulls()).group_by(_FIELD).len().collect(engine="streaming")
    return dict(counts.sort(_FIELD).rows())
