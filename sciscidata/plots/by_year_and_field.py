"""Pictures by year and by field: shares and means with intervals, and drawn beside eligible works."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import polars as pl

from sciscidata.errors import ConfigError
from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.plots._parts import count_works, write_share
from sciscidata.plots.estimates import (
    FEW,
    LINES,
    STEPS,
    Series,
    add_up,
    draw_names,
    draw_numbers,
    estimate,
    find_bounds,
    find_limits,
    free_colours,
    name_column,
    name_hollow,
    name_rows,
    read_values,
    refuse_nothing,
    widen,
)
from sciscidata.plots.figure import COLOURS, INK, PALE, Look, Picture, drawing, letter_panels, name_data
from sciscidata.records.last_year_of_data import count_years, find_last_year
from sciscidata.release.release import Release
from sciscidata.schemas import EXAMPLE, require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_YEAR, _FIELD = "publication_year", "primary_field"
_MOST_FIELDS: Final = 26  # as many as OpenAlex has
_MOST_YEARS: Final = 500
_FEW_YEARS: Final = 40


def plot_by_year(
    labelled: AnyFrame,
    *,
    label: str = "disruptive",
    score: str = "cd_index",
    few: int = FEW,
    complete_until: int | None = None,
    **look: Unpack[Look],
) -> Figure:
    """Plot the share of a label and the mean of a score by year of publication, with intervals at 95%.

    Shares have Wilson's interval, means Student's. Years with few works are hollow and pale. Years before the first and
    after the last that has enough works are left out, and so are mistaken dates. The title counts their works.

    A release has equal numbers of each class, so its shares mean nothing: give all labelled works.

    Args:
        labelled: ``publication_year``, the column of the label and the score, one row per work. Rows without a label
            or without a score do not count in its panel.
        label: one of the labels of EXAMPLE, or a class of your own label; "" leaves out the panel.
        score: a column of numbers; "" leaves out the panel.
        few: a year with fewer works is shown as unsure.
        complete_until: last year whose citation window is complete; later years are shown as unsure. None: of the CD
            index, the caption warns of the last years.
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
    groups = _add_up(labelled, _YEAR, label, score, "plot_by_year")
    counts = dict(groups.select(_YEAR, "n").rows())
    first, last = _choose_span(counts, few)
    groups = groups.filter(pl.col(_YEAR).is_between(first, last))
    years = groups[_YEAR].to_numpy()
    after = complete_until if complete_until is not None and last > complete_until else None
    series = _estimate(groups, label, score, few)
    with drawing(look, heights_mm=(58,) * len(series)) as picture:
        for axes, one in zip(picture.panels, series, strict=True):
            coloured = one._replace(colour=free_colours(axes, one.colour)[0])
            draw_numbers(axes, years, coloured, find_limits([one]), label=name_data(look.get("data")), after=after)
            axes.set_xlabel("year of publication")
            if years.size:
                widen(axes, "x", years[0] - 0.8, years[-1] + 0.8)
        picture.title = _describe_groups(picture, series, "year of publication", int(groups["n"].sum()))
        picture.title += name_hollow(any((one.n < few).any() for one in series), few, after)
        outside = {
            f"before {first}": sum(n for year, n in counts.items() if year < first),
            f"after {last}": sum(n for year, n in counts.items() if year > last),
        }
        picture.title += describe_hidden(outside)
        if complete_until is None and (score.startswith("cd_index") or label in VOCABULARIES["disruption_label"]):
            picture.title += " Citation windows of the last years may not be over (no complete_until is given)."
    return picture.figure


def plot_by_field(
    labelled: AnyFrame,
    *,
    label: str = "disruptive",
    score: str = "cd_index",
    few: int = FEW,
    **look: Unpack[Look],
) -> Figure:
    """Plot the share of a label and the mean of a score by field, with 95% intervals, largest share first.

    Args:
        labelled: ``primary_field``, the column of the label and the score, one row per work. Works without a field are
            counted in the title; of more than 26 fields those with most works are shown.
        label: as in ``plot_by_year``.
        score: as in ``plot_by_year``.
        few: a field with fewer works is shown as unsure.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with a panel for the label and one for the score.

    Raises:
        EmptyInputError: there is nothing to draw, such as a column of nulls.
        SchemaMismatchError: a column is missing or mistyped.

    Example:
        >>> works = pl.DataFrame({
        ...     "primary_field": ["Medicine", "Medicine", "Psychology"], "cd_index": [0.5, -0.1, 0.2],
        ...     "disruption_label": ["disruptive", "consolidating", "disruptive"],
        ... })
        >>> figure = plot_by_field(works, few=2, width="one")
        >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
        ['Psychology (1)', 'Medicine (2)']
    """
    groups = _add_up(labelled, _FIELD, label, score, "plot_by_field")
    n_works = int(groups["n"].sum())
    groups = groups.drop_nulls(_FIELD).sort("n", _FIELD, descending=[True, False])
    named, groups = int(groups["n"].sum()), groups.head(_MOST_FIELDS)
    order = ["mean_label", "mean_score"]
    groups = groups.sort([*order, _FIELD], nulls_last=True, descending=[*(True for _ in order), False])
    series = _estimate(groups, label, score, few)
    names, height = name_rows([f"{name} ({n:,})" for name, n in groups.select(_FIELD, "n").rows()], look)
    with drawing(look, heights_mm=(height,) * len(series), share="y") as picture:
        for axes, one in zip(picture.panels, series, strict=True):
            draw_names(axes, names, one, find_limits([one]), np.arange(len(names)))
        shown = int(groups["n"].sum())
        picture.title = _describe_groups(picture, series, "field", shown)
        picture.title += name_hollow(not all(one.sure.all() for one in series), few)
        picture.title += describe_hidden({"without a field": n_works - named, "in smaller fields": named - shown})
    return picture.figure


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
    return _plot_counts([_require_years(works, "the frame", "plot_works")], look)


def plot_drawn(eligible: AnyFrame, drawn: AnyFrame | Release, **look: Unpack[Look]) -> Figure:
    """Plot drawn against eligible works, as shares of each, by year of publication and by field.

    Where the dots leave the bars, the draw is not like the works that it was drawn from. Classes of equal size bring
    more of the years and fields in which rare classes are frequent.

    Args:
        eligible: ``publication_year`` and ``primary_field`` of every work that may be drawn. Without the field there is
            one panel.
        drawn: the same of the drawn works; or a release.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with a panel for years and one for fields.

    Raises:
        EmptyInputError: ``publication_year`` is null in all rows.
        SchemaMismatchError: ``publication_year`` is missing or mistyped.

    Example:
        >>> works = pl.DataFrame({"publication_year": [2000, 2000, 2001]}, schema={"publication_year": pl.Int32})
        >>> figure = plot_drawn(works, works.head(1), width="one")
        >>> len(figure.axes), figure.get_suptitle().partition(",")[0]
        (1, '1 work drawn from 3 works')
    """
    given = pl.concat([drawn.train, drawn.test]) if isinstance(drawn, Release) else drawn
    frames = {"the frame of eligible works": eligible, "the frame of drawn works": given}
    return _plot_counts([_require_years(frame, name, "plot_drawn") for name, frame in frames.items()], look)


def _require_years(frame: AnyFrame, name: str, stage: str) -> pl.LazyFrame:
    return require_columns(frame, EXAMPLE, frame_name=name, stage=stage, columns=[_YEAR])


def _plot_counts(frames: list[pl.LazyFrame], look: Look) -> Figure:
    """Draw the works of one frame by year and by field, or the shares of a second beside those of the first."""
    totals = [int(frame.select(pl.len()).collect(engine="streaming").item()) for frame in frames]
    by_year, by_field = [count_years(frame) for frame in frames], [_count_fields(frame) for frame in frames]
    for frame, counts in zip(frames, by_year, strict=True):
        if not counts:
            refuse_nothing(frame, [_YEAR], "plot_drawn" if len(frames) > 1 else "plot_works")
    fields = sorted(by_field[0], key=lambda name: (-by_field[0][name], name))[:_MOST_FIELDS] if all(by_field) else []
    names, height = name_rows(fields, look)
    heights = (58, height) if fields else (58,)
    if look.get("width") != "one":
        heights = (max(heights), *heights[1:])
    with drawing(look, heights_mm=heights, ratios=(1, 1.3)[: len(heights)]) as picture:
        _draw_year_counts(picture.panels[0], by_year, totals)
        if fields:
            _draw_field_counts(picture.panels[1], fields, names, by_field)
            letter_panels(picture)
        by = "(a) year of publication and (b) field" if fields else "year of publication"
        drawn_from = f"{count_works(totals[-1])} drawn from {count_works(totals[0])}, as shares of each"
        picture.title = f"{drawn_from if len(frames) > 1 else count_works(totals[0])} by {by}."
        smaller = sum(n for name, n in by_field[0].items() if name not in fields) if fields else 0
        span = _span_of(by_year)
        outside = sum(n for year, n in by_year[0].items() if not span or not span[0] <= year <= span[-1])
        picture.title += describe_hidden({"in smaller fields": smaller, "of other years": outside})
    return picture.figure


def _add_up(labelled: AnyFrame, by: str, label: str, score: str, stage: str) -> pl.DataFrame:
    """Add up ``label``, as 0 and 1, and ``score`` in each group."""
    if not label and not score:
        raise ConfigError("there is nothing to show. Name a label, a score, or both.")
    labelled = require_columns(labelled, EXAMPLE, frame_name="the frame", stage=stage, columns=[by])
    rows = read_values(labelled, [by], {"label": (label, "share"), "score": (score, "mean")}, stage=stage)
    groups = add_up(rows.drop_nulls(by) if by == _YEAR else rows, [by], ["label", "score"])
    known = groups.drop_nulls(by)
    for name, column in {"label": label, "score": score}.items():
        if column and not known[f"n_{name}"].sum():
            refuse_nothing(labelled, [by, column], stage)
    return groups


def _estimate(groups: pl.DataFrame, label: str, score: str, few: int) -> list[Series]:
    """Make the panels that are asked for."""
    series: list[Series] = []
    if label:
        shares = estimate(groups, "label", is_share=True)
        series.append(Series(f"share {label}", COLOURS.get(label, INK), True, *shares, few))
    if score:
        means = estimate(groups, "score", is_share=False)
        of_score = Series(f"mean {name_column(score)}", LINES[0], False, *means, few, bounds=find_bounds(score))
        series.append(of_score)
    return series


def _choose_span(counts: Mapping[int, int], few: int) -> tuple[int, int]:
    """Return the first and the last year with enough works, or any: mistaken dates would leave others a sliver."""
    last = find_last_year(counts)
    first = find_last_year({-year: n for year, n in counts.items()})  # the same rule, seen from the other end
    if last is None or first is None:
        return 0, 0
    real = [year for year in counts if max(-first, last - _MOST_YEARS) <= year <= last]
    sure = [year for year in real if counts[year] >= few] or real
    return min(sure), max(sure)


def describe_hidden(hidden: dict[str, int]) -> str:
    """Say at the end of a title which works are not shown."""
    parts = [f"{count_works(n)} {where}" for where, n in hidden.items() if n]
    return f" Not shown: {' and '.join(parts)}." if parts else ""


def _describe_groups(picture: Picture, series: list[Series], by: str, n_works: int) -> str:
    intervals = [f"{one.name} with 95% {'Wilson' if one.is_share else 't'} interval" for one in series]
    if len(series) > 1:
        letter_panels(picture)
        intervals = [f"({letter}) {text}" for letter, text in zip("ab", intervals, strict=False)]
    return f"{count_works(n_works)} by {by}: {', '.join(intervals)}."


def _count_fields(works: pl.LazyFrame) -> dict[str, int]:
    if works.collect_schema().get(_FIELD) != pl.String:
        return {}
    counts = works.select(pl.col(_FIELD).drop_nulls()).group_by(_FIELD).len().collect(engine="streaming")
    return dict(counts.sort(_FIELD).rows())


def _span_of(counts: list[dict[int, int]]) -> list[int]:
    """Return every year from the first to the last of any frame, without mistaken dates."""
    ends = [end for one in counts if one for end in _choose_span(one, few=1)]
    return [*range(max(min(ends), max(ends) - _MOST_YEARS), max(ends) + 1)] if ends else []


def _draw_year_counts(axes: Axes, counts: list[dict[int, int]], totals: list[int]) -> None:
    from matplotlib.ticker import MaxNLocator

    span = _span_of(counts)
    heights = [np.array([one.get(year, 0) for year in span], np.float64) for one in counts]
    if len(counts) > 1:
        heights = [height / max(sum(one.values()), 1) for height, one in zip(heights, counts, strict=True)]
    names = [f"{name} ({total:,})" for name, total in zip(("eligible", "drawn"), totals, strict=False)]
    axes.bar(span, heights[0], width=0.85 if len(span) <= _FEW_YEARS else 1.0, color=PALE, label=names[0])
    if len(counts) > 1:
        size = float(np.clip(110 / max(len(span), 1), 1.2, 3.5))
        axes.plot(span, heights[1], color=INK, lw=0.6, marker="o", ms=size, label=names[1])
        axes.legend(loc="upper left")
        axes.set_ylim(0, 1.5 * (max(float(height.max(initial=0)) for height in heights) or 1))
    if span:
        axes.set_xlim(span[0] - 0.8, span[-1] + 0.8)
    _scale_counts(axes.yaxis, is_share=len(counts) > 1)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=STEPS))
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.set_xlabel("year of publication")
    axes.set_ylabel("share of works" if len(counts) > 1 else "works")


def _draw_field_counts(axes: Axes, fields: list[str], names: list[str], counts: list[dict[str, int]]) -> None:
    rows = np.arange(len(fields))
    lengths = [np.array([one.get(field, 0) for field in fields], np.float64) for one in counts]
    if len(counts) > 1:
        lengths = [length / max(sum(one.values()), 1) for length, one in zip(lengths, counts, strict=True)]
    axes.barh(rows, lengths[0], height=0.8, color=PALE)
    if len(counts) > 1:
        axes.plot(lengths[1], rows, ls="none", marker="o", ms=3.5, color=INK)
    axes.set_yticks(rows, names, linespacing=0.9)
    axes.set_ylim(max(len(fields), 1) - 0.5, -0.5)
    axes.set_xlim(0, 1.05 * (max(float(length.max(initial=0)) for length in lengths) or 1))
    _scale_counts(axes.xaxis, is_share=len(counts) > 1)
    axes.set_xlabel("share of works" if len(counts) > 1 else "works")


def _scale_counts(axis: Any, *, is_share: bool) -> None:  # noqa: ANN401 (XAxis or YAxis)
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=5, integer=not is_share, steps=STEPS))
    axis.set_major_formatter(write_share if is_share else "{x:,.0f}")
