"""A statistic of any score by any group, drawn: ``plot_by``, and the panels that plots by year and field are made of.

Groups with few works are hollow and pale, and no line goes through them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.errors import ConfigError
from sciscidata.frames import AnyFrame, to_lazy, with_long_ids_as_text
from sciscidata.judged import WINDOW_COMPLETE, Choice, Population
from sciscidata.plots.figure import (
    COLOURS,
    INK,
    Look,
    axes_of,
    count_works,
    drawing,
    letter_panels,
    name_data,
    plain,
    tick_numbers,
    write_share,
)
from sciscidata.plots.measure import (
    MEASURED,
    Asked,
    Numbers,
    Stat,
    choose_value,
    count_hidden,
    measure,
    name_column,
    read_groups,
    refuse_nothing,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW: Final = 30
YEAR: Final = "publication_year"
#: Okabe and Ito 2008, without yellow and black.
LINES: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#777777")
_INTERVALS: Final = {"share": "Wilson", "mean": "t"}
_MOST_PLACES: Final = 500
_MOST_NAMES: Final = 40
_ROW_MM: Final = (4.2, 5.2)  # of a name, and where names take two lines
_LETTERS: Final = {"one": 26, "two": 52}  # of a line of a name


def plot_by(
    frame: AnyFrame,
    x: str,
    y: str = "cd_index",
    *,
    by: str | None = None,
    stat: Stat = "mean",
    few: int = FEW,
    population: Population = "judged",
    unit: str | None = "",
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
        population: as in ``measure_by``; the caption counts the works that are left out.
        unit: as in ``measure_by``.
        complete_until: where ``x`` is the year: the last one whose citation window is over. Later years are shown as
            unsure. None: found in ``window_complete``, if the frame has it.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with one panel.

    Raises:
        ConfigError: an option is wrong, or there are too many groups to draw.
        EmptyInputError: no row has a group and a value.
        SchemaMismatchError: a column is missing, or ``y`` is not of numbers.

    Example:
        >>> papers = pl.DataFrame({"team_size": [1, 1, 2, 2], "cd_index": [0.5, 0.1, 0.0, -0.2]})
        >>> figure = plot_by(papers, "team_size", stat="median", few=2, unit=None, data="four papers")
        >>> figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()
        ('team size', 'median CD index')
    """
    keys = [x, *([by] if by is not None else [])]
    read, left_out = read_groups(frame, Asked(keys, y, stat, population, unit), "plot_by")
    measured = measure(read, keys, y, stat, "plot_by")
    measured = measured.with_columns(with_long_ids_as_text(measured.select(keys)))
    if measured.is_empty():
        refuse_nothing(frame, [*keys, y], "plot_by")
    is_names = not measured[x].dtype.is_numeric()
    n, most = measured[x].n_unique(), _MOST_NAMES if is_names else _MOST_PLACES
    if n > most:
        how = "Keep the most frequent" if is_names else f'Make classes, for example with pl.col("{x}").qcut(10)'
        raise ConfigError(f"x={x!r} has {n:,} groups, a picture has room for {most}. {how}.")
    if complete_until is not None and is_names:
        raise ConfigError(f"complete_until={complete_until} needs years, x={x!r} has names. Leave it out.")
    lines = [measured] if by is None else measured.sort(by, x).partition_by(by, maintain_order=True)
    if len(lines) > len(LINES):
        raise ConfigError(f"by={by!r} has {len(lines)} groups, a picture has {len(LINES)} colours. Keep fewer.")
    hidden = count_hidden(read, [*map(name_column, keys), name_column(y)], keys)
    if complete_until is None and x == YEAR:
        complete_until = find_complete_until(frame, choose_value(to_lazy(frame, "", ""), y, stat, "judged"), "plot_by")
    reading = Reading(few=few, by=by, after=complete_until)
    remarks = describe_hidden(hidden) + left_out.describe()
    return plot_panels(look, x, [Panel(y, stat, lines)], reading, remarks)


def find_complete_until(frame: AnyFrame, choice: Choice, stage: str) -> int | None:
    """Find the last year in which a window is over, by the column of ``choice``; None if it is not known."""
    column = WINDOW_COMPLETE + choice.window
    rows = to_lazy(frame, "the frame", stage)
    if choice.counts is None or not {YEAR, column} <= {*rows.collect_schema()}:
        return None
    is_over = pl.col(column).cast(pl.Boolean)
    last, n_open = rows.select(pl.col(YEAR).filter(is_over).max(), (~is_over).sum()).collect(engine="streaming").row(0)
    return last if n_open else None


class Panel(NamedTuple):
    """A statistic of a column, and its groups as measured: a frame for each line."""

    y: str
    stat: Stat
    lines: Sequence[pl.DataFrame]

    @property
    def name(self) -> str:
        """What the axis of values says."""
        kind = "median percentile of" if self.stat == "percentile" else self.stat
        return f"{kind} {name_column(self.y)}"

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the ends of what a value can be."""
        if self.stat in ("share", "percentile"):
            return 0.0, 1.0 if self.stat == "share" else 100.0
        return (-1.0, 1.0) if self.y.startswith("cd_index") else (-np.inf, np.inf)


class Reading(NamedTuple):
    """How groups are read: which are unsure, and what lines and names say.

    Attributes:
        few: a group with fewer works is unsure.
        by: the column that a line of the panel is a group of.
        after: years after this one have no complete citation window.
        names: what is written for each group that is a name, in order; numbers have none.
        label: of the line, in a legend that a user adds.
    """

    few: int = FEW
    by: str | None = None
    after: int | None = None
    names: Mapping[Any, str] = MappingProxyType({})
    label: str = ""


class _Line(NamedTuple):
    """What is drawn in one colour: estimates, which have ``enough`` works, and which are ``sure`` in every respect."""

    colour: str
    is_share: bool
    value: Numbers
    low: Numbers
    high: Numbers
    enough: npt.NDArray[np.bool_]
    sure: npt.NDArray[np.bool_]


def plot_panels(look: Look, x: str, panels: Sequence[Panel], reading: Reading, remarks: str = "") -> Figure:
    """Draw panels over numbers, such as years, or beside names, such as fields; the title ends with ``remarks``.

    Names stand in their own order, or by their value: those of ``reading``, and its label, are made here.
    """
    by, after = reading.by, reading.after
    every = pl.concat(panels[0].lines)
    names, height = dict[Any, str](), 62.0
    if not every[x].dtype.is_numeric():
        names, height = _order_names(every, x, look)
    after = after if after is not None and (every[x] > after).any() else None
    reading = reading._replace(after=after, names=names, label="" if by else name_data(look.get("data")))
    with drawing(look, heights_mm=(height,) * len(panels), share="y" if names else "") as picture:
        drawn = [draw_panel(axes, x, one, reading) for axes, one in zip(picture.panels, panels, strict=True)]
        if by and not axes_of(look):
            picture.panels[-1].legend(title=name_column(by), loc="upper left", bbox_to_anchor=(1, 1))
        said = [f"{panel.name} with 95% {_INTERVALS.get(panel.stat, 'Woodruff')} interval" for panel in panels]
        if len(panels) > 1:
            letter_panels(picture)
            said = [f"({letter}) {text}" for letter, text in zip("ab", said, strict=True)]
        within = f" and {name_column(by)}" if by else ""
        picture.title = f"{count_works(int(every['n'].sum()))} by {name_column(x)}{within}: {', '.join(said)}."
        picture.title += name_hollow(any(drawn), reading.few, after) + remarks
    return picture.figure


def _order_names(groups: pl.DataFrame, x: str, look: Look) -> tuple[dict[Any, str], float]:
    """Order names by the mean of their values, or as they are ordered; give what is written, and the height in mm."""
    ranked = groups.group_by(x).agg(pl.col("value").mean(), pl.col("n").sum())
    is_ordered = groups[x].dtype == pl.Enum
    ranked = ranked.sort(x) if is_ordered else ranked.sort("value", x, descending=[True, False], nulls_last=True)
    written, height = name_rows(
        [f"{name} ({n:,})" for name, n in ranked.select(pl.col(x).cast(pl.String), "n").rows()], look
    )
    return dict(zip(ranked[x], written, strict=True)), height


def draw_panel(axes: Axes, x: str, panel: Panel, reading: Reading) -> bool:
    """Draw one panel, over numbers if the groups have no names; return whether a group has few works."""
    by, after, names = reading.by, reading.after, reading.names
    colours = cycle(free_colours(axes, COLOURS.get(panel.y, LINES[0])))
    lines = [_read_line(panel, x, *one, reading) for one in zip(panel.lines, colours, strict=False)]
    limits, row_of = _find_limits(lines, panel.bounds), {name: row for row, name in enumerate(names)}
    for number, (frame, line) in enumerate(zip(panel.lines, lines, strict=True)):
        if names:
            rows = np.array([row_of[name] for name in frame[x]], np.float64)
            offset = 0.0 if len(lines) == 1 else 0.5 * (number / (len(lines) - 1) - 0.5)
            _draw_estimates(axes, rows + offset, line, limits)
        else:
            _draw_over_numbers(axes, frame[x].to_numpy(), line, limits, reading.label)
        if by:
            axes.plot([], [], "o", color=line.colour, ms=3.5, label=str(frame[by][0]))
    if names:
        axes.set_yticks(range(len(names)), [*names.values()], linespacing=0.9)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(axis="y", color="#EEEEEE", lw=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel(panel.name)
    else:
        places = pl.concat([frame[x] for frame in panel.lines]).sort()
        low, high = float(places[0]), float(places[-1])
        room = 0.3 + 0.02 * (high - low)
        widen(axes, "x", low - room, high + room)
        if after is not None:
            axes.axvline(after + 0.5, color=INK, lw=0.6, ls=":")
        axes.set_xlabel(name_column(x))
        axes.set_ylabel(panel.name)
    if by:
        axes.legend(title=name_column(by))
    return not all(line.enough.all() for line in lines)


def _read_line(panel: Panel, x: str, frame: pl.DataFrame, colour: str, reading: Reading) -> _Line:
    value, low, high = (frame[name].fill_null(np.nan).to_numpy() for name in MEASURED[1:])
    sure = enough = (frame["n_works"] >= reading.few).to_numpy()
    if reading.after is not None:
        sure = enough & (frame[x] <= reading.after).to_numpy()
    return _Line(colour, panel.stat == "share", value, low, high, enough, sure)


def _find_limits(lines: Sequence[_Line], bounds: tuple[float, float]) -> tuple[float, float]:
    """Choose the ends of the axis of values where works are enough; estimates beyond them are drawn at the edge."""
    numbers = [np.empty(0)]
    is_any = sum(int(one.enough.sum()) for one in lines) > 1
    for one in lines:
        every = np.ones(one.value.size, np.bool_)
        sure = one.enough if is_any else every
        numbers += [one.value[one.enough if one.enough.sum() > 1 else every], one.low[sure], one.high[sure]]
    shown = np.concatenate(numbers)
    shown = shown[np.isfinite(shown)]
    if not shown.size:
        return 0.0, 1.0
    low, high = float(shown.min()), float(shown.max())
    room = 0.12 * (high - low) or 0.05
    dot = 0.02 * (bounds[1] - bounds[0])
    return max(low - room, bounds[0] - dot), min(high + room, bounds[1] + dot)


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


def _draw_estimates(
    axes: Axes, places: Numbers, one: _Line, limits: tuple[float, float], upright_size: float | None = None
) -> None:
    """Draw dots with their intervals: hollow and pale where unsure, a triangle where beyond the edge.

    Values lie along x, or with ``upright_size``, that of a dot, along y.
    """
    upright, size = upright_size is not None, upright_size or 3.5
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


def draw_line(axes: Any, x: Numbers, y: Numbers, works: Numbers, **look: Any) -> bool:  # noqa: ANN401
    """Draw a line through groups with enough works, the others as hollow dots; return whether there are others."""
    sure = works >= FEW
    line: dict[str, Any] = {"marker": "o", "markersize": 2.5, **look}
    axes.plot(x, np.where(sure, y, np.nan), **line)
    axes.plot(x[~sure], y[~sure], **line | {"ls": "none", "label": None, "mfc": "white", "mew": 0.6})
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


def describe_hidden(hidden: Mapping[str, int]) -> str:
    """Say at the end of a title which works are not shown."""
    parts = [f"{count_works(n)} {where}" for where, n in hidden.items() if n]
    return f" Not shown: {' and '.join(parts)}." if parts else ""


def _draw_over_numbers(axes: Axes, places: Numbers, one: _Line, limits: tuple[float, float], label: str) -> None:
    """Draw estimates over numbers: a line joins neighbours that are sure, and no gap; ``label`` is for a legend."""
    steps = np.diff(places, append=places[-1])
    gaps = np.flatnonzero(steps > 1.5 * min(steps[:-1], default=1)) + 1
    joined = np.insert(np.where(one.sure, one.value, np.nan), gaps, np.nan)
    at = np.insert(places.astype(np.float64), gaps, np.nan)
    axes.plot(at, joined, color=one.colour, lw=0.8, alpha=0.6, label=label)
    _draw_estimates(axes, places, one, limits, float(np.clip(110 / places.size, 1.2, 3.5)))
    tick_numbers(axes.xaxis, 6, is_whole=bool((places == np.round(places)).all()))


def name_rows(names: list[str], look: Look) -> tuple[list[str], float]:
    """Break long names into lines; return them and the height of a panel with all of them, in mm."""
    from matplotlib.ticker import FixedLocator

    if any(axes.has_data() and isinstance(axes.yaxis.get_major_locator(), FixedLocator) for axes in axes_of(look)):
        raise ConfigError("ax has the names of an earlier picture. Give other Axes, or both in one frame with by=.")
    n_letters = _LETTERS.get(look.get("width", "two"), _LETTERS["two"])
    fitted = [textwrap.fill(plain(name), n_letters) for name in names]
    return fitted, 20 + _ROW_MM["\n" in "".join(fitted)] * max(len(fitted), 2)
