"""Pictures by year and by field: shares and means with intervals, and drawn beside eligible works."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.errors import ConfigError
from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.options.checks import suggest
from sciscidata.plots._parts import count_works, write_share
from sciscidata.plots.figure import COLOURS, INK, PALE, Look, Picture, drawing, fit_text, letter_panels
from sciscidata.plots.intervals import mean_interval, wilson_interval
from sciscidata.records.last_year_of_data import count_years, find_last_year
from sciscidata.release.release import Release
from sciscidata.schemas import EXAMPLE, require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Float64Array = npt.NDArray[np.float64]

_YEAR, _FIELD = "publication_year", "primary_field"
_FEW: Final = 30
_MOST_FIELDS: Final = 26  # as many as OpenAlex has
_STEPS: Final = (1, 2, 5, 10)
_MOST_YEARS: Final = 500
_FEW_YEARS: Final = 40
_ROW_MM: Final = (4.2, 5.2)  # of a field, and where names take two lines
_LETTERS: Final = {"one": 26, "two": 52}  # of a line of a name
_SCORES: Final = {
    "cd_index": "CD index",
    "novelty_score": "novelty score",
    "conventionality_score": "conventionality score",
}


class Series(NamedTuple):
    """One panel: what was estimated for each group, from how many works, with which interval."""

    name: str
    colour: str
    is_share: bool
    n: npt.NDArray[np.int64]
    value: Float64Array
    low: Float64Array
    high: Float64Array
    enough: npt.NDArray[np.bool_]  # of works
    sure: npt.NDArray[np.bool_]  # that, and a complete citation window


def plot_by_year(
    labelled: AnyFrame,
    *,
    label: str = "disruptive",
    score: str = "cd_index",
    few: int = _FEW,
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
        score: ``cd_index``, ``novelty_score`` or ``conventionality_score``; "" leaves out the panel.
        few: a year with fewer works is shown as unsure.
        complete_until: last year whose citation window is complete; later years are shown as unsure. None: all are.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with a panel for the label and one for the score.

    Raises:
        ConfigError: an option is wrong.
        SchemaMismatchError: a column is missing or mistyped.
        StorageError: the file cannot be written.

    Example:
        >>> works = pl.DataFrame({
        ...     "publication_year": [2000, 2000, 2001, 2001], "cd_index": [0.5, -0.1, 0.2, 0.1],
        ...     "disruption_label": ["disruptive", "consolidating", "disruptive", "disruptive"],
        ... }, schema_overrides={"publication_year": pl.Int32})
        >>> figure = plot_by_year(works, few=2, data="four works")
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['share disruptive', 'mean CD index']
    """
    groups = _summarise(labelled, _YEAR, label, score, "plot_by_year")
    counts = dict(groups.select(_YEAR, "n").rows())
    first, last = _choose_span(counts, few)
    groups = groups.filter(pl.col(_YEAR).is_between(first, last))
    years = groups[_YEAR].to_numpy()
    is_complete = np.full(years.size, True) if complete_until is None else years <= complete_until
    series = _estimate(groups, label, score, few, is_complete)
    with drawing(look, heights_mm=(58,) * len(series)) as picture:
        for axes, one in zip(picture.panels, series, strict=True):
            draw_numbers(axes, years, one, find_limits([one]))
            axes.set_xlabel("year of publication")
            if years.size:
                axes.set_xlim(years[0] - 0.8, years[-1] + 0.8)
            if complete_until is not None and not is_complete.all():
                axes.axvline(complete_until + 0.5, color=INK, lw=0.6, ls=":")
        picture.title = _describe_groups(picture, series, "year of publication", int(groups["n"].sum()))
        hollow = [f"fewer than {few} works"] if any((one.n < few).any() for one in series) else []
        hollow += [] if is_complete.all() else [f"no complete citation window (after {complete_until})"]
        picture.title += f" Hollow: {' or '.join(hollow)}." if hollow else ""
        outside = {
            f"before {first}": sum(n for year, n in counts.items() if year < first),
            f"after {last}": sum(n for year, n in counts.items() if year > last),
        }
        picture.title += describe_hidden(outside)
    return picture.figure


def plot_by_field(
    labelled: AnyFrame,
    *,
    label: str = "disruptive",
    score: str = "cd_index",
    few: int = _FEW,
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
        ConfigError: an option is wrong.
        SchemaMismatchError: a column is missing or mistyped.
        StorageError: the file cannot be written.

    Example:
        >>> works = pl.DataFrame({
        ...     "primary_field": ["Medicine", "Medicine", "Psychology"], "cd_index": [0.5, -0.1, 0.2],
        ...     "disruption_label": ["disruptive", "consolidating", "disruptive"],
        ... })
        >>> figure = plot_by_field(works, few=2, width="one")
        >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
        ['Psychology (1)', 'Medicine (2)']
    """
    groups = _summarise(labelled, _FIELD, label, score, "plot_by_field")
    n_works = int(groups["n"].sum())
    groups = groups.drop_nulls(_FIELD).sort("n", _FIELD, descending=[True, False])
    named, groups = int(groups["n"].sum()), groups.head(_MOST_FIELDS)
    order = ["share", "mean"] if label else ["mean"]
    groups = groups.sort([*order, _FIELD], nulls_last=True, descending=[*(True for _ in order), False])
    series = _estimate(groups, label, score, few, np.ones(groups.height, np.bool_))
    names, height = name_rows([f"{name} ({n:,})" for name, n in groups.select(_FIELD, "n").rows()], look)
    with drawing(look, heights_mm=(height,) * len(series), share="y") as picture:
        for axes, one in zip(picture.panels, series, strict=True):
            draw_names(axes, names, one, find_limits([one]), np.arange(len(names)))
        shown = int(groups["n"].sum())
        picture.title = _describe_groups(picture, series, "field", shown)
        if not all(one.sure.all() for one in series):
            picture.title += f" Hollow: fewer than {few} works."
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
        ConfigError: an option of the picture is wrong.
        SchemaMismatchError: ``publication_year`` is missing or mistyped.
        StorageError: the file cannot be written.

    Example:
        >>> works = pl.DataFrame({"publication_year": [2000, 2000, 2001], "primary_field": ["Law", None, "Law"]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> [axes.get_xlabel() for axes in plot_works(works).axes]
        ['year of publication', 'works']
    """
    return _plot_counts([_require_years(works, "the works", "plot_works")], look)


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
        ConfigError: an option of the picture is wrong.
        SchemaMismatchError: ``publication_year`` is missing or mistyped.
        StorageError: the file cannot be written.

    Example:
        >>> works = pl.DataFrame({"publication_year": [2000, 2000, 2001]}, schema={"publication_year": pl.Int32})
        >>> figure = plot_drawn(works, works.head(1), width="one")
        >>> len(figure.axes), figure.get_suptitle().partition(",")[0]
        (1, '1 work drawn from 3 works')
    """
    given = pl.concat([drawn.train, drawn.test]) if isinstance(drawn, Release) else drawn
    frames = {"the eligible works": eligible, "the drawn works": given}
    return _plot_counts([_require_years(frame, name, "plot_drawn") for name, frame in frames.items()], look)


def _require_years(frame: AnyFrame, name: str, stage: str) -> pl.LazyFrame:
    return require_columns(frame, EXAMPLE, frame_name=name, stage=stage, columns=[_YEAR])


def _plot_counts(frames: list[pl.LazyFrame], look: Look) -> Figure:
    """Draw the works of one frame by year and by field, or the shares of a second beside those of the first."""
    totals = [int(frame.select(pl.len()).collect(engine="streaming").item()) for frame in frames]
    by_year, by_field = [count_years(frame) for frame in frames], [_count_fields(frame) for frame in frames]
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


def _summarise(labelled: AnyFrame, by: str, label: str, score: str, stage: str) -> pl.DataFrame:
    """Count works, labels and scores of each group: ``n``, ``n_labelled``, ``n_label``, ``share``, ``mean``, ``sd``."""
    labelled = require_columns(labelled, {}, frame_name="the labelled works", stage=stage)
    column = find_label_column(label, labelled)
    if score and score not in _SCORES:
        raise ConfigError(f"score is {score!r}, needs one of {', '.join(_SCORES)}.{suggest(score, _SCORES)}")
    if not label and not score:
        raise ConfigError("there is nothing to show. Name a label, a score, or both.")
    needed = [by, *([column] if column else []), *([score] if score else [])]
    known_types = {column: pl.String(), **EXAMPLE}
    rows = require_columns(labelled, known_types, frame_name="the labelled works", stage=stage, columns=needed)
    value = pl.col(score).fill_nan(None) if score else pl.lit(None, pl.Float64)
    known = pl.col(column) if column else pl.lit(None, pl.String)
    values = rows.select(by, known.alias("label"), value.alias("value"))
    counted = values.drop_nulls(by) if by == _YEAR else values
    return (
        counted.filter(pl.col("label").is_not_null() | pl.col("value").is_not_null())
        .group_by(by)
        .agg(
            n=pl.len().cast(pl.Int64),
            n_labelled=pl.col("label").count().cast(pl.Int64),
            n_label=(pl.col("label") == label).sum().cast(pl.Int64),
            n_scored=pl.col("value").count().cast(pl.Int64),
            mean=pl.col("value").mean(),
            sd=pl.col("value").std(),
        )
        .with_columns(share=pl.col("n_label") / pl.col("n_labelled"))
        .sort(by)
        .collect(engine="streaming")
    )


def _choose_span(counts: Mapping[int, int], few: int) -> tuple[int, int]:
    """Return the first and the last year with enough works; all years where none has enough.

    Mistaken dates, early and late, are left out: one of them would leave a sliver for all other years.
    """
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


def find_label_column(label: str, labelled: pl.LazyFrame) -> str:
    """Find the column that holds a label: of those that every release has, else an own one of these works."""
    if not label:
        return ""
    holder = next((column for column, words in VOCABULARIES.items() if label in words), None)
    if holder is None:
        schema = labelled.collect_schema()
        other_labels = [name for name in schema if name.endswith("_label") and name not in VOCABULARIES]
        other_labels = [name for name in other_labels if schema[name] == pl.String]
        with_label = {name: labelled.select(pl.col(name) == label).filter(pl.first()).head(1) for name in other_labels}
        holder = next((name for name, rows in with_label.items() if rows.collect(engine="streaming").height), None)
    if holder is None:
        words = [word for vocabulary in VOCABULARIES.values() for word in vocabulary]
        raise ConfigError(f"label is {label!r}, needs one of {', '.join(words)}.{suggest(label, words)}")
    return holder


def _estimate(
    groups: pl.DataFrame, label: str, score: str, few: int, is_complete: npt.NDArray[np.bool_]
) -> list[Series]:
    """Make the panels that are asked for."""
    series: list[Series] = []
    columns: dict[str, Any] = {
        name: groups[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
        for name in groups.columns
        if name not in (_YEAR, _FIELD)
    }
    if label:
        n = groups["n_labelled"].to_numpy()
        low, high = wilson_interval(columns["n_label"], n)
        sure = n >= few, (n >= few) & is_complete
        series.append(Series(f"share {label}", COLOURS.get(label, INK), True, n, columns["share"], low, high, *sure))
    if score:
        n = groups["n_scored"].to_numpy()
        low, high = mean_interval(columns["mean"], columns["sd"], n)
        sure = n >= few, (n >= few) & is_complete
        series.append(Series(f"mean {_SCORES[score]}", "#0072B2", False, n, columns["mean"], low, high, *sure))
    return series


def find_limits(series: list[Series]) -> tuple[float, float]:
    """Choose the ends of the axis of values where works are enough; estimates beyond them are drawn at the edge."""
    numbers = [np.empty(0)]
    for one in series:
        sure = one.enough if one.enough.sum() > 1 else np.ones(one.value.size, np.bool_)
        numbers += [one.value[sure], one.low[sure], one.high[sure]]
    shown = np.concatenate(numbers)
    shown = shown[np.isfinite(shown)]
    if not shown.size:
        return 0.0, 1.0
    low, high = float(shown.min()), float(shown.max())
    room = 0.12 * (high - low) or 0.05
    is_share = series[0].is_share
    return (max(low - room, -0.02 if is_share else -np.inf), min(high + room, 1.02 if is_share else np.inf))


def draw_estimates(
    axes: Axes, places: npt.NDArray[Any], one: Series, limits: tuple[float, float], *, upright: bool, size: float
) -> None:
    """Draw dots with their intervals: hollow and pale where unsure, a triangle where beyond the edge."""
    low, high = limits
    shown = np.clip(one.value, low, high)
    lines = axes.vlines if upright else axes.hlines
    for sure, alpha in ((True, 1.0), (False, 0.4)):
        some = (one.sure == sure) & np.isfinite(one.low)
        lines(places[some], one.low[some], one.high[some], color=one.colour, lw=0.8, alpha=alpha)
    beyond = {"v" if upright else "<": one.value < low, "^" if upright else ">": one.value > high}
    inside = np.isfinite(one.value) & ~np.logical_or(*beyond.values())
    for marker, some in {"o": inside, **beyond}.items():
        for sure, face in ((True, one.colour), (False, "white")):
            chosen = some & (one.sure == sure)
            if not chosen.any():
                continue
            at = (places[chosen], shown[chosen]) if upright else (shown[chosen], places[chosen])
            dots: dict[str, Any] = {"marker": marker, "ms": size, "mfc": face, "mec": one.colour, "mew": 0.7}
            (drawn,) = axes.plot(*at, ls="none", **dots, clip_on=False, zorder=3)
            drawn.set_in_layout(False)  # half of a dot may stand out of the frame
    (axes.set_ylim if upright else axes.set_xlim)(low, high)
    values = axes.yaxis if upright else axes.xaxis
    if one.is_share:
        values.set_major_formatter(write_share)
    elif low < 0 < high:
        (axes.axhline if upright else axes.axvline)(0, color=INK, lw=0.6, zorder=1)


def draw_numbers(axes: Axes, places: npt.NDArray[Any], one: Series, limits: tuple[float, float]) -> None:
    """Draw estimates over numbers, such as years: a line joins neighbours that are sure, and no gap."""
    from matplotlib.ticker import MaxNLocator

    if places.size:
        steps = np.diff(places, append=places[-1])
        gaps = np.flatnonzero(steps > 1.5 * min(steps[:-1], default=1)) + 1
        joined = np.insert(np.where(one.sure, one.value, np.nan), gaps, np.nan)
        axes.plot(np.insert(places.astype(np.float64), gaps, np.nan), joined, color=one.colour, lw=0.8, alpha=0.6)
    size = float(np.clip(110 / max(places.size, 1), 1.2, 3.5))
    draw_estimates(axes, places, one, limits, upright=True, size=size)
    axes.set_ylabel(one.name)
    whole = not places.size or bool((places == np.round(places)).all())
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=whole, steps=_STEPS))
    axes.ticklabel_format(axis="x", useOffset=False)


def draw_names(axes: Axes, names: list[str], one: Series, limits: tuple[float, float], rows: npt.NDArray[Any]) -> None:
    """Draw estimates beside names, such as fields, one below the other; ``rows`` says where each stands."""
    draw_estimates(axes, rows, one, limits, upright=False, size=3.5)
    axes.set_yticks(range(len(names)), names, linespacing=0.9)
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.grid(axis="y", color="#EEEEEE", lw=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(one.name)


def _describe_groups(picture: Picture, series: list[Series], by: str, n_works: int) -> str:
    intervals = [f"{one.name} with 95% {'Wilson' if one.is_share else 't'} interval" for one in series]
    if len(series) > 1:
        letter_panels(picture)
        intervals = [f"({letter}) {text}" for letter, text in zip("ab", intervals, strict=False)]
    return f"{count_works(n_works)} by {by}: {', '.join(intervals)}."


def name_rows(names: list[str], look: Look) -> tuple[list[str], float]:
    """Break long names into lines; return them and the height of a panel with all of them, in mm."""
    fitted = [fit_text(name, _LETTERS.get(look.get("width", "two"), _LETTERS["two"])) for name in names]
    return fitted, 20 + _ROW_MM["\n" in "".join(fitted)] * max(len(fitted), 2)


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
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=_STEPS))
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

    axis.set_major_locator(MaxNLocator(nbins=5, integer=not is_share, steps=_STEPS))
    axis.set_major_formatter(write_share if is_share else "{x:,.0f}")
