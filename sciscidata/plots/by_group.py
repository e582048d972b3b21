"""A statistic of any score by any group, with intervals that hold where a work has several rows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, get_args

import numpy as np
import polars as pl

from sciscidata.errors import ConfigError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.options.did_you_mean import suggest
from sciscidata.plots._parts import count_works
from sciscidata.plots.by_year_and_field import describe_hidden
from sciscidata.plots.estimates import (
    FEW,
    LINES,
    Numbers,
    Series,
    add_up,
    draw_names,
    draw_numbers,
    equal_works,
    estimate,
    find_bounds,
    find_limits,
    free_colours,
    name_column,
    name_hollow,
    name_rows,
    read_values,
    refuse_nothing,
    sums_of,
    widen,
)
from sciscidata.plots.figure import Look, drawing, name_data
from sciscidata.plots.intervals import student

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

Stat = Literal["mean", "median", "percentile", "share"]

_MOST_PLACES: Final = 500
_MOST_NAMES: Final = 40
_MEASURED: Final = ("n_works", "value", "low", "high")


def measure_by(
    frame: AnyFrame, x: str, y: str = "cd_index", *, by: str | None = None, stat: Stat = "mean"
) -> pl.DataFrame:
    """Return a statistic of each group with its interval at 95 %: the numbers of ``plot_by``.

    Where ``work_id`` repeats, as in a table of works and authors, rows of one work are not independent. So intervals
    are by work: of a mean, Student's with the variance of the sums of works; of a share, Wilson's with as many works as
    have this variance; of a median, Woodruff's. Without repeated works these are the usual ones. Nothing is drawn at
    random, so equal works give equal intervals.

    Args:
        frame: one row per work, or several: ``x``, ``y`` and ``by``. Rows with a null in one of them do not count.
        x: the column of groups.
        y: a column of numbers; for shares, a label (``"disruptive"``) or a column of true and false.
        by: a second column of groups.
        stat: ``"mean"``, ``"median"`` or ``"share"``. ``"percentile"``: where the group's median lies among all works,
            from 0 to 100; works of equal score share the middle of their places. If more than half of the works have
            one score, a warning says so: all groups may stand on it.

    Returns:
        A row per group, in ascending order, or in the order of the categories of an Enum or an ordered categorical of
        pandas: ``x`` and ``by`` as they are, ``n`` rows and ``n_works`` (Int64),
        ``value``, ``low`` and ``high`` (Float64). Ends are null where works are too few: one, or for medians about
        seven.

    Raises:
        SchemaMismatchError: a column is missing, or ``y`` is not of numbers.

    Source:
        Wilson 1927, doi:10.1080/01621459.1927.10502953; Woodruff 1952, doi:10.1080/01621459.1952.10483443. Median
        percentiles of the CD index by team size: Wu, Wang and Evans 2019, doi:10.1038/s41586-019-0941-9.

    Example:
        >>> papers = pl.DataFrame({"team_size": [1, 1, 2, 2], "cd_index": [0.5, 0.1, 0.0, -0.2]})
        >>> measure_by(papers, "team_size").select("team_size", "n", pl.col("value").round(2)).rows()
        [(1, 2, 0.3), (2, 2, -0.1)]
        >>> measure_by(papers, "team_size", stat="percentile")["value"].to_list()
        [75.0, 25.0]
    """
    keys = [x, *([by] if by is not None else [])]
    return _measure(_read(frame, keys, y, stat, "measure_by"), keys, y, stat, "measure_by")


def plot_by(
    frame: AnyFrame,
    x: str,
    y: str = "cd_index",
    *,
    by: str | None = None,
    stat: Stat = "mean",
    few: int = FEW,
    complete_until: int | None = None,
    **look: Unpack[Look],
) -> Figure:
    """Plot a statistic of any score by any group, with intervals at 95 %: ``measure_by``, drawn.

    Numbers stand in their order from left to right. Names stand one below the other: those of an Enum or an ordered
    categorical of pandas in its order, others by their value. Groups with few works are hollow and pale, and no line
    goes through them.

    Args:
        frame: as in ``measure_by``.
        x: the column of groups: numbers, such as years or team sizes, or names.
        y: as in ``measure_by``.
        by: a column of at most seven groups, each with a colour.
        stat: as in ``measure_by``.
        few: a group with fewer works is shown as unsure.
        complete_until: where ``x`` is the year: the last one whose citation window is complete. Later years are shown
            as unsure. None: all are complete.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with one panel.

    Raises:
        ConfigError: an option is wrong, or there are too many groups to draw.
        EmptyInputError: no row has a group and a value.
        SchemaMismatchError: a column is missing, or ``y`` is not of numbers.

    Example:
        >>> papers = pl.DataFrame({"team_size": [1, 1, 2, 2], "cd_index": [0.5, 0.1, 0.0, -0.2]})
        >>> figure = plot_by(papers, "team_size", stat="median", few=2, data="four papers")
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('team size', 'median of CD index')
    """
    keys = [x, *([by] if by is not None else [])]
    read = _read(frame, keys, y, stat, "plot_by")
    measured = _measure(read, keys, y, stat, "plot_by")
    if measured.is_empty():
        refuse_nothing(frame, [*keys, y], "plot_by")
    is_names = not measured[x].dtype.is_numeric()
    places = measured[x].unique().sort()
    most = _MOST_NAMES if is_names else _MOST_PLACES
    if places.len() > most:
        how = "Keep the most frequent" if is_names else f'Make classes, for example with pl.col("{x}").qcut(10)'
        raise ConfigError(f"x={x!r} has {places.len():,} groups, a picture has room for {most}. {how}.")
    if complete_until is not None and is_names:
        raise ConfigError(f"complete_until={complete_until} needs years, x={x!r} has names. Leave it out.")
    after = complete_until if complete_until is not None and (places > complete_until).any() else None
    lines = [measured] if by is None else measured.sort(by, x).partition_by(by, maintain_order=True)
    if len(lines) > len(LINES):
        raise ConfigError(f"by={by!r} has {len(lines)} groups, a picture has {len(LINES)} colours. Keep fewer.")
    named, bounds = _name_statistic(y, stat), (0.0, 100.0) if stat == "percentile" else find_bounds(y)
    if is_names:
        ranked = measured.group_by(x).agg(pl.col("value").mean(), pl.col("n").sum())
        is_ordered = measured[x].dtype == pl.Enum
        ranked = ranked.sort(x) if is_ordered else ranked.sort("value", x, descending=[True, False], nulls_last=True)
        row_of = {name: row for row, name in enumerate(ranked[x])}
        names, height = name_rows(
            [f"{name} ({n:,})" for name, n in ranked.select(pl.col(x).cast(pl.String), "n").rows()], look
        )
    else:
        row_of, names, height = {}, [], 62.0
    with drawing(look, heights_mm=(height,)) as picture:
        (axes,) = picture.panels
        series: list[Series] = []
        for part, colour in zip(lines, free_colours(axes), strict=False):
            n, value, low, high = (part[name].fill_null(np.nan).to_numpy() for name in _MEASURED)
            series.append(Series(named, colour, stat == "share", n, value, low, high, few, bounds=bounds))
        limits = find_limits(series)
        label = name_data(look.get("data")) if by is None else ""
        for number, (part, one) in enumerate(zip(lines, series, strict=True)):
            if is_names:
                rows = np.array([row_of[name] for name in part[x]], np.float64)
                offset = 0.0 if len(lines) == 1 else 0.5 * (number / (len(lines) - 1) - 0.5)
                draw_names(axes, names, one, limits, rows + offset)
            else:
                draw_numbers(axes, part[x].to_numpy(), one, limits, label=label, after=after)
        if not is_names:
            axes.set_xlabel(name_column(x))
            low, high = places.to_numpy()[[0, -1]]
            room = 0.3 + 0.02 * (high - low)
            widen(axes, "x", low - room, high + room)
        if by is not None:
            for part, one in zip(lines, series, strict=True):
                axes.plot([], [], "o", color=one.colour, ms=3.5, label=str(part[by][0]))
            beside: dict[str, Any] = (
                {} if look.get("ax") is not None else {"loc": "upper left", "bbox_to_anchor": (1, 1)}
            )
            axes.legend(title=name_column(by), **beside)
        n_rows = int(measured["n"].sum())
        within = f" and {name_column(by)}" if by else ""
        picture.title = f"{count_works(n_rows)} by {name_column(x)}{within}: {named} with 95% interval."
        picture.title += name_hollow(any((one.n < few).any() for one in series), few, after)
        picture.title += describe_hidden(_count_hidden(read, [*map(name_column, keys), name_column(y)], keys))
    return picture.figure


def _read(frame: AnyFrame, keys: list[str], y: str, stat: Stat, stage: str) -> pl.LazyFrame:
    """Read the groups, ``_value`` and ``_work`` of each row."""
    if stat not in get_args(Stat):
        raise ConfigError(f"stat is {stat!r}, needs one of {', '.join(get_args(Stat))}.{suggest(stat, get_args(Stat))}")
    frame = to_lazy(frame, "the frame", stage)
    work = pl.col("work_id").rank("dense") if "work_id" in frame.collect_schema() else pl.int_range(pl.len())
    work = work.cast(pl.Int64).fill_null(-1).alias("_work")
    return read_values(frame, keys, {"_value": (y, stat)}, work, stage=stage)


def _count_hidden(rows: pl.LazyFrame, names: list[str], keys: list[str]) -> dict[str, int]:
    """Count the rows that lack a group or a value, each once, by the first that it lacks."""
    columns = [*keys, "_value"]
    lacks = pl.coalesce(pl.when(pl.col(column).is_null()).then(pl.lit(i)) for i, column in enumerate(columns))
    counts = dict(rows.select(lacks.alias("lacks")).drop_nulls().group_by("lacks").len().collect().rows())
    return {f"without {name}": counts.get(i, 0) for i, name in enumerate(names)}


def _measure(rows: pl.LazyFrame, keys: list[str], y: str, stat: Stat, stage: str) -> pl.DataFrame:
    known = rows.drop_nulls().sort(*keys, "_value", "_work").collect(engine="streaming")
    if stat == "percentile":
        value, each = known["_value"].to_numpy(), known.unique("_work", keep="first")["_value"].sort().to_numpy()
        places = np.searchsorted(each, value) + np.searchsorted(each, value, "right")
        _warn_of_ties(each, y, stage)
        known = known.with_columns(_value=50 * places / max(each.size, 1))
    if stat in ("mean", "share"):
        groups = add_up(known.lazy(), keys, ["_value"], work="_work")
        measured = estimate(groups, "_value", is_share=stat == "share")
    else:
        groups, measured = _measure_medians(known, keys)
    columns = [pl.Series(name, part).fill_nan(None) for name, part in zip(_MEASURED, measured, strict=True)]
    return groups.select(*keys, "n").with_columns(columns)


def _measure_medians(rows: pl.DataFrame, keys: list[str]) -> tuple[pl.DataFrame, tuple[Numbers, ...]]:
    """Return groups, works and medians, and the values at the ends of the interval of the share up to the median."""
    below = (pl.col("_value") <= pl.col("_value").median().over(keys)).cast(pl.Float64)
    groups = add_up(rows.lazy().with_columns(_value=below), keys, ["_value"], work="_work")
    n, n_works, share, squares = sums_of(groups, "_value")
    value, starts = rows["_value"].to_numpy(), np.cumsum(n) - n

    def pick(place: Numbers) -> Numbers:
        return value[starts + np.clip(place, 0, n - 1).astype(np.int64)] if n.size else np.empty(0)

    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.nan_to_num(student(n_works - 1.0) * 0.5 / np.sqrt(equal_works(share, squares, n, n_works)), nan=1.0)
    low = np.where(half < 0.5, pick(np.floor(n * (0.5 - half)) - 1), np.nan)
    high = np.where(half < 0.5, pick(np.ceil(n * (0.5 + half))), np.nan)
    return groups, (n_works, (pick((n - 1) // 2) + pick(n // 2)) / 2, low, high)


def _warn_of_ties(values: Numbers, y: str, stage: str) -> None:
    middle = values[values.size // 2] if values.size else 0  # more than half of sorted values cover it
    n = int((values == middle).sum())
    if 2 * n > values.size > 1:
        cited = " For cited works alone: .filter(pl.col('n_i') + pl.col('n_j') > 0)." * y.startswith("cd_index")
        logger.warning(
            "%s: %s of %s works have %s %g, so medians of groups fall on one percentile. Leave these works "
            "out, or take stat='mean'.%s",
            *(stage, f"{n:,}", f"{values.size:,}", y, middle, cited),
        )


def _name_statistic(y: str, stat: str) -> str:
    what = name_column(y)
    return {"percentile": f"median percentile of {what}", "share": f"share {what}"}.get(stat, f"{stat} of {what}")
