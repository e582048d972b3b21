"""A statistic of groups with its interval at 95 %, and how it is drawn: what all plots by year, field and group share.

Groups with few works are hollow and pale, and no line goes through them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import polars as pl
from polars import selectors

from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.options.did_you_mean import suggest
from sciscidata.plots._parts import write_share
from sciscidata.plots.figure import INK, Look, axes_of, fit_text
from sciscidata.plots.intervals import mean_interval, wilson_interval
from sciscidata.terminal.messages import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Float64Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[Any]

FEW: Final = 30
STEPS: Final = (1, 2, 5, 10)
#: Okabe and Ito 2008, without yellow and black.
LINES: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#777777")
_TITLES: Final = {
    "cd_index": "CD index",
    "cd_index_5": "CD₅",
    "cd_index_10": "CD₁₀",
    "z_p10": "z (10th percentile)",
    "n_authors": "number of authors",
}
_ROW_MM: Final = (4.2, 5.2)  # of a name, and where names take two lines
_LETTERS: Final = {"one": 26, "two": 52}  # of a line of a name


def add_up(rows: pl.LazyFrame, keys: Sequence[str], values: Sequence[str], *, work: str = "") -> pl.DataFrame:
    """Add up columns in each group, in one pass that holds no row; ``keys`` ascend.

    For each value v: ``n_v``, ``n_works_v``, ``mean_v`` and ``squares_v``, the sum over works of the square of what
    they differ by. Rows of one ``work`` (a column) are not independent: another pass adds up each work.

    Example:
        >>> rows = pl.LazyFrame({"year": [1, 1, 2], "cd": [0.5, 0.25, None], "work": [7, 7, 8]})
        >>> add_up(rows, ["year"], ["cd"], work="work").rows()
        [(1, 2, 2, 0.375, 1, 0.0)]
    """
    known = rows.filter(pl.any_horizontal(pl.col(values).is_not_null()))
    sums: dict[str, pl.Expr] = {"n": pl.len()}
    for value in values:
        n, squares = pl.col(value).count(), pl.col(value).var() * (pl.col(value).count() - 1)
        sums |= {f"n_{value}": n, f"mean_{value}": pl.col(value).mean()}
        sums |= {f"n_works_{value}": n, f"squares_{value}": squares.fill_null(0.0)}
    groups = known.group_by(keys).agg(**sums)
    if work:
        off = [(pl.col(value) - pl.col(f"mean_{value}")).sum().alias(value) for value in values]
        per_work = known.join(groups, on=keys).group_by(*keys, work).agg(off)
        squares = [(pl.col(value) ** 2).sum().alias(f"squares_{value}") for value in values]
        works = [pl.len().alias(f"n_works_{value}") for value in values]
        groups = groups.drop("^squares_.*|n_works_.*$").join(per_work.group_by(keys).agg(*works, *squares), on=keys)
    return groups.sort(keys).collect(engine="streaming").cast({pl.UInt32: pl.Int64})


class Series(NamedTuple):
    """A line of a panel: what was estimated for each group, from how many works, with which interval."""

    name: str
    colour: str
    is_share: bool
    n: npt.NDArray[np.int64]
    value: Float64Array
    low: Float64Array
    high: Float64Array
    few: int
    is_complete: npt.NDArray[np.bool_] | bool = True  # the citation window
    bounds: tuple[float, float] = (-np.inf, np.inf)  # no value lies beyond them

    @property
    def enough(self) -> npt.NDArray[np.bool_]:
        """Which groups have enough works."""
        return self.n >= self.few

    @property
    def sure(self) -> npt.NDArray[np.bool_]:
        """Which of them have a complete citation window, too."""
        return self.enough & self.is_complete


def estimate(groups: pl.DataFrame, value: str, *, is_share: bool) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return works, mean and ends of a value in each group of ``add_up``: by Wilson of a share, else by Student."""
    n, n_works, mean, squares = sums_of(groups, value)
    if is_share:
        equal_to = equal_works(mean, squares, n, n_works)
        return n_works, mean, *wilson_interval(mean * equal_to, equal_to)
    return n_works, mean, *mean_interval(mean, squares, n, n_works)


def sums_of(groups: pl.DataFrame, value: str) -> list[Numbers]:
    """Return the columns of a value of ``add_up``: rows, works, mean, squares."""
    return [groups[f"{part}_{value}"].to_numpy() for part in ("n", "n_works", "mean", "squares")]


def equal_works(share: Float64Array, squares: Float64Array, n: Float64Array, n_works: Float64Array) -> Float64Array:
    """Return how many works of one row each would give a share this variance."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(squares > 1e-9, share * (1 - share) * n**2 / squares, n_works)


def find_limits(series: list[Series]) -> tuple[float, float]:
    """Choose the ends of the axis of values where works are enough; estimates beyond them are drawn at the edge."""
    numbers = [np.empty(0)]
    is_any = sum(int(one.enough.sum()) for one in series) > 1
    for one in series:
        every = np.ones(one.value.size, np.bool_)
        sure = one.enough if is_any else every
        numbers += [one.value[one.enough if one.enough.sum() > 1 else every], one.low[sure], one.high[sure]]
    shown = np.concatenate(numbers)
    shown = shown[np.isfinite(shown)]
    if not shown.size:
        return 0.0, 1.0
    low, high = float(shown.min()), float(shown.max())
    room = 0.12 * (high - low) or 0.05
    least, most = (0.0, 1.0) if series[0].is_share else series[0].bounds
    dot = 0.02 * (most - least)
    return max(low - room, least - dot), min(high + room, most + dot)


def find_bounds(column: str) -> tuple[float, float]:
    """Return the ends of what a score can be: -1 and 1 of the CD index, else no ends."""
    return (-1.0, 1.0) if column.startswith("cd_index") else (-np.inf, np.inf)


def free_colours(axes: Axes, *first: str) -> list[str]:
    """Return ``first`` and LINES, those that no line of the Axes has before all others."""
    from matplotlib.colors import to_hex

    used = {to_hex(line.get_color()) for line in axes.lines}
    return sorted(dict.fromkeys([*first, *LINES]), key=lambda colour: to_hex(colour) in used)


def widen(axes: Axes, axis: Literal["x", "y"], low: float, high: float) -> tuple[float, float]:
    """Set and return the ends of an axis: beyond those that were set before, where an earlier call did."""
    is_free, limits = (
        (axes.get_autoscalex_on(), axes.get_xlim) if axis == "x" else (axes.get_autoscaley_on(), axes.get_ylim)
    )
    if not is_free:
        low, high = min(low, *limits()), max(high, *limits())
    (axes.set_xlim if axis == "x" else axes.set_ylim)(low, high)
    return low, high


def draw_estimates(
    axes: Axes, places: npt.NDArray[Any], one: Series, limits: tuple[float, float], *, upright: bool, size: float
) -> None:
    """Draw dots with their intervals: hollow and pale where unsure, a triangle where beyond the edge."""
    low, high = widen(axes, "y" if upright else "x", *limits)
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
    values = axes.yaxis if upright else axes.xaxis
    if one.is_share:
        values.set_major_formatter(write_share)
    elif low < 0 < high:
        (axes.axhline if upright else axes.axvline)(0, color=INK, lw=0.6, zorder=1)


def draw_line(axes: Axes, x: Numbers, y: Numbers, works: Numbers, marker: str = "o", **look: Any) -> bool:  # noqa: ANN401
    """Draw a line through groups with enough works, the others as hollow dots; return whether there are others."""
    sure = works >= FEW
    axes.plot(x, np.where(sure, y, np.nan), marker=marker, markersize=2.5, **look)
    look |= {"ls": "none", "label": None, "mfc": "white", "mew": 0.6}
    axes.plot(x[~sure], y[~sure], marker=marker, markersize=2.5, **look)
    return not sure.all()


def name_hollow(is_few: bool, few: int = FEW, after: int | None = None) -> str:
    """Say at the end of a title what hollow dots are.

    Example:
        >>> name_hollow(True), name_hollow(False, after=2016)
        (' Hollow: fewer than 30 works.', ' Hollow: no complete citation window (after 2016).')
    """
    hollow = [f"fewer than {few} works"] if is_few else []
    hollow += [] if after is None else [f"no complete citation window (after {after})"]
    return f" Hollow: {' or '.join(hollow)}." if hollow else ""


def draw_numbers(
    axes: Axes,
    places: npt.NDArray[Any],
    one: Series,
    limits: tuple[float, float],
    *,
    label: str = "",
    after: int | None = None,
) -> None:
    """Draw estimates over numbers, such as years: a line joins neighbours that are sure, and no gap.

    ``label`` names the line in a legend that a user adds. Years ``after`` this one have no complete citation window.
    """
    from matplotlib.ticker import MaxNLocator

    if after is not None:
        one = one._replace(is_complete=places <= after)
        axes.axvline(after + 0.5, color=INK, lw=0.6, ls=":")
    if places.size:
        steps = np.diff(places, append=places[-1])
        gaps = np.flatnonzero(steps > 1.5 * min(steps[:-1], default=1)) + 1
        joined = np.insert(np.where(one.sure, one.value, np.nan), gaps, np.nan)
        at = np.insert(places.astype(np.float64), gaps, np.nan)
        axes.plot(at, joined, color=one.colour, lw=0.8, alpha=0.6, label=label)
    size = float(np.clip(110 / max(places.size, 1), 1.2, 3.5))
    draw_estimates(axes, places, one, limits, upright=True, size=size)
    axes.set_ylabel(one.name)
    whole = not places.size or bool((places == np.round(places)).all())
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=whole, steps=STEPS))
    axes.ticklabel_format(axis="x", useOffset=False)


def draw_names(axes: Axes, names: list[str], one: Series, limits: tuple[float, float], rows: npt.NDArray[Any]) -> None:
    """Draw estimates beside names, such as fields, one below the other; ``rows`` says where each stands."""
    draw_estimates(axes, rows, one, limits, upright=False, size=3.5)
    axes.set_yticks(range(len(names)), names, linespacing=0.9)
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.grid(axis="y", color="#EEEEEE", lw=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(one.name)


def name_rows(names: list[str], look: Look) -> tuple[list[str], float]:
    """Break long names into lines; return them and the height of a panel with all of them, in mm."""
    from matplotlib.ticker import FixedLocator

    if any(axes.has_data() and isinstance(axes.yaxis.get_major_locator(), FixedLocator) for axes in axes_of(look)):
        raise ConfigError("ax has the names of an earlier picture. Give other Axes, or both in one frame with by=.")
    fitted = [fit_text(name, _LETTERS.get(look.get("width", "two"), _LETTERS["two"])) for name in names]
    return fitted, 20 + _ROW_MM["\n" in "".join(fitted)] * max(len(fitted), 2)


def read_values(
    frame: AnyFrame, keys: Sequence[str], values: Mapping[str, tuple[str, str]], *others: pl.Expr, stage: str
) -> pl.LazyFrame:
    """Read ``keys``, and by new names values as numbers: a column and "mean", or a label and "share"; "" is null."""
    rows = to_lazy(frame, "the frame", stage)
    schema, columns, made = rows.collect_schema(), [*keys], dict[str, pl.Expr]()
    for name, (value, stat) in values.items():
        made[name] = pl.lit(None, pl.Float64)
        if value and stat == "share" and schema.get(value) != pl.Boolean:
            columns.append(find_label_column(value, rows, "label" if name == "label" else "y"))
            made[name] = (pl.col(columns[-1]) == value).cast(pl.Float64)
        elif value:
            columns.append(value)
            made[name] = pl.col(value).cast(pl.Float64).fill_nan(None)
            if stat != "share" and value in schema and not schema[value].is_numeric():
                remedy = 'For shares of a label: y="disruptive", stat="share".'
                raise SchemaMismatchError(f"y={value!r} is a column of {schema[value]}, {stat} needs numbers. {remedy}")
    for name in columns:
        if name not in schema:
            remedy = suggest(name, schema) or f" It has {', '.join(schema)}."
            raise SchemaMismatchError(f"{stage}: the frame lacks column {name!r}.{remedy}")
    return rows.select(*keys, *others, **made)


def refuse_nothing(frame: AnyFrame, columns: Sequence[str], stage: str) -> NoReturn:
    """Say which columns leave nothing to draw; a label stands for its column."""
    rows = to_lazy(frame, "the frame", stage)
    schema = rows.collect_schema()
    names = [name if name in schema else find_label_column(name, rows) for name in columns if name]
    known = rows.select(pl.col(names)).with_columns(selectors.float().fill_nan(None))
    n, *counts = known.select(pl.len().alias("_n"), pl.all().count()).collect(engine="streaming").row(0)
    empty = [name for name, count in zip(names, counts, strict=True) if not count]
    why = f"no row has a value in each of {', '.join(names)}"
    if not n or empty:
        why = f"column {empty[0]!r} is null in all {counted(n, 'row')}" if n else "the frame has no row"
    raise EmptyInputError(f"{stage}: there is nothing to draw: {why}. Name another column, or give rows with a value.")


def find_label_column(label: str, labelled: pl.LazyFrame, argument: str = "label") -> str:
    """Find the column that holds a label: of those that every release has, else an own one of these works."""
    holder = next((column for column, words in VOCABULARIES.items() if label in words), None)
    if holder is None:
        schema = labelled.collect_schema()
        other_labels = [name for name in schema if name.endswith("_label") and name not in VOCABULARIES]
        other_labels = [name for name in other_labels if schema[name] == pl.String]
        with_label = {name: labelled.select(pl.col(name) == label).filter(pl.first()).head(1) for name in other_labels}
        holder = next((name for name, rows in with_label.items() if rows.collect(engine="streaming").height), None)
    if holder is None:
        words = [word for vocabulary in VOCABULARIES.values() for word in vocabulary]
        or_column = ", or a column of true and false" if argument == "y" else ""
        raise ConfigError(
            f"{argument} is {label!r}, needs one of {', '.join(words)}{or_column}.{suggest(label, words)}"
        )
    return holder


def name_column(column: str) -> str:
    """Name a column as titles and axes say it."""
    return _TITLES.get(column, column.replace("_", " "))
