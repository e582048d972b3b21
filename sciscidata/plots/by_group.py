"""A statistic of any score by any group, drawn: ``plot_by``, and the panels that plots by year and field are made of.

Groups with few works are hollow and pale, and no line goes through them.
"""

from __future__ import annotations

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
    STYLE,
    Look,
    Picture,
    axes_of,
    count_works,
    drawing,
    fit,
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
from sciscidata.plots.palette import COLOURS, INK, LINES, PALE
from sciscidata.terminal.messages import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW: Final = 30
YEAR: Final = "publication_year"
_INTERVALS: Final = {"share": "Wilson", "mean": "t"}
_MOST_PLACES: Final = 500
_MOST_NAMES: Final = 40
_ROW_MM: Final = (4.2, 7.0)  # of a name, and where names take two lines
_LINE_MM: Final = 2.0  # of a row, for each line that its names have
_NAME_MM: Final = {"one": 32.0, "two": 62.0}  # the widest name beside a panel
_LEGEND_MM: Final = 62.0
_CROWDED: Final = 60  # estimates of more than two groups: more are drawn in a panel for each group
_COLUMNS: Final = {"one": 2, "two": 3}  # of panels for each group
_SEEN: Final = (0.025, 0.975)  # of works in a crowded picture have the ends of their intervals on the axis
_PANEL_MM: Final = 42.0
_ARROWS: Final = {"<": 4, ">": 5, "^": 6, "v": 7}  # matplotlib's carets: the tip is at the place
_FRAME_MM: Final = 14.0  # around all panels together


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
    categorical of pandas in its order, others by their value, those of few works last. Groups with few works are hollow
    and pale, and no line goes through them. A triangle is a value beyond the axis; the title counts them.

    Where more than two groups have more than 60 estimates together, each has a panel of its own, the others in grey
    behind it. Years of few works have no interval there, and widen no axis.

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
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``. With ``ax``, all groups share it.

    Returns:
        The figure, with one panel, or one for each group of ``by``.

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
    hidden = count_hidden(read, [*map(name_column, keys), "a label" if stat == "share" else name_column(y)], keys)
    if complete_until is None and x == YEAR:
        complete_until = find_complete_until(frame, choose_value(to_lazy(frame, "", ""), y, stat, "judged"), "plot_by")
    panel = Panel(y, stat, lines, complete_until, describe_hidden(hidden) + left_out.describe())
    reading = Reading(few=few, by=by, is_crowded=len(lines) > 2 and not is_names and measured.height > _CROWDED)
    return plot_panels(look, x, [panel], reading)


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
    """A statistic of a column, and its groups as measured: a frame for each line.

    Attributes:
        after: years after this one have no complete citation window.
        remarks: sentences about its works, each after a space, for the end of a title.
    """

    y: str
    stat: Stat
    lines: Sequence[pl.DataFrame]
    after: int | None = None
    remarks: str = ""

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
        names: what is written for each group that is a name, in order; numbers have none.
        label: of the line, in a legend that a user adds.
        is_crowded: estimates of few works have no interval, and intervals of few works may leave the axis.
        colours: of the lines; those of labels, or the usual ones, where there are none.
    """

    few: int = FEW
    by: str | None = None
    names: Mapping[Any, str] = MappingProxyType({})
    label: str = ""
    is_crowded: bool = False
    colours: Sequence[str] = ()


class Drawn(NamedTuple):
    """What a title has to explain: whether a group has few works, and what lies beyond the edges.

    Attributes:
        is_few: whether a group has few works.
        n_beyond: values beyond the axis, each a triangle.
        n_cut: intervals of which an end lies beyond the axis.
    """

    is_few: bool
    n_beyond: int
    n_cut: int

    def describe(self) -> str:
        """Say at the end of a title what stands at the edges.

        Example:
            >>> Drawn(True, 1, 12).describe()
            ' Triangles: 1 value beyond the axis. Arrowheads: 12 intervals reach beyond it.'
        """
        beyond = f" Triangles: {counted(self.n_beyond, 'value')} beyond the axis." if self.n_beyond else ""
        reach = counted(self.n_cut, "interval reaches", "intervals reach")
        return beyond + (f" Arrowheads: {reach} beyond {'it' if beyond else 'the axis'}." if self.n_cut else "")


def add_drawn(drawn: Sequence[Drawn]) -> Drawn:
    """Say of several panels or lines together what a title has to explain."""
    is_few = any(one.is_few for one in drawn)
    return Drawn(is_few, sum(one.n_beyond for one in drawn), sum(one.n_cut for one in drawn))


class _Line(NamedTuple):
    """What is drawn in one colour: estimates, which have ``enough`` works, and which are ``sure`` in every respect."""

    group: str
    colour: str
    places: Numbers
    n: Numbers
    is_share: bool
    value: Numbers
    low: Numbers
    high: Numbers
    enough: npt.NDArray[np.bool_]
    sure: npt.NDArray[np.bool_]


def plot_panels(look: Look, x: str, panels: Sequence[Panel], reading: Reading) -> Figure:
    """Draw panels over numbers, such as years, or beside names, such as fields; the title ends with their remarks.

    Names stand in their own order, or by their value: those of ``reading``, and its label, are made here. Panels of
    different works say how many each has. Crowded groups have a panel each.
    """
    by, names, height = reading.by, dict[Any, str](), 62.0
    every = [pl.concat(panel.lines) for panel in panels]
    panels = [
        one
        if one.after is None or groups.filter(pl.col(x) > one.after, pl.col("n") > 0).height
        else one._replace(after=None)
        for one, groups in zip(panels, every, strict=True)
    ]
    if reading.is_crowded and not axes_of(look):
        return _plot_each_group(look, x, panels[0], reading)
    if not every[0][x].dtype.is_numeric():
        n_lines = max(len(panel.lines) for panel in panels)
        names, height = _order_names(every, x, reading.few, look, n_lines)
    reading = reading._replace(names=names, label="" if by else name_data(look.get("data")))
    with drawing(look, heights_mm=(height,) * len(panels), share="y" if names else "") as picture:
        drawn = [draw_panel(axes, x, one, reading) for axes, one in zip(picture.panels, panels, strict=True)]
        if by and not axes_of(look):
            put_legend_outside(picture, name_column(by))
        if len(panels) > 1:
            letter_panels(picture)
        picture.caption = _describe_panels(panels, x, reading, drawn)
    return picture.figure


def put_legend_outside(picture: Picture, title: str) -> None:
    """Move the legend of the last panel beside it, or in one column of a journal below, where it hides nothing."""
    axes = picture.panels[-1]
    handles, labels = axes.get_legend_handles_labels()
    if not picture.is_narrow:
        axes.legend(title=title, loc="upper left", bbox_to_anchor=(1, 1))
        return
    axes.legend().remove()
    picture.legend = {"handles": handles, "labels": labels, "title": title.replace("\n", " ")}


def _plot_each_group(look: Look, x: str, panel: Panel, reading: Reading) -> Figure:
    """Draw a panel for each group, all with the same axes, and the other groups in grey behind it."""
    is_narrow = look.get("width") == "one"
    columns = _COLUMNS["one" if is_narrow else "two"]
    lines = [_read_line(panel, x, *one, reading) for one in zip(panel.lines, LINES, strict=False)]
    limits = _find_limits(lines, panel.bounds, is_crowded=True)
    height = _PANEL_MM + _FRAME_MM / -(-len(lines) // columns)
    with drawing(look, heights_mm=(height,) * len(lines), columns=columns, share="both") as picture:
        drawn: list[Drawn] = []
        for number, (axes, line) in enumerate(zip(picture.panels, lines, strict=True)):
            for other in lines:
                if other is not line:
                    shown = np.where(other.sure, other.value, np.nan)
                    axes.plot(other.places, shown, color=PALE, lw=0.6, zorder=0.5)
            drawn.append(_draw_over_numbers(axes, line, limits, ""))
            _frame_numbers(axes, x, panel)
            axes.set(xlabel="", ylabel="")
            width = 0.72 * picture.width_mm / columns
            axes.set_title(fit_name(line.group, width, end=f" ({line.n.sum():,})"))
            tick_numbers(axes.xaxis, 3 if is_narrow else 4)
            axes.tick_params(labelbottom=number + columns >= len(lines))  # also above a place that is left free
        picture.common_x = name_column(x)
        picture.figure.supylabel(panel.name, fontsize=STYLE["axes.labelsize"])
        picture.caption = _describe_panels([panel], x, reading, drawn, is_each=True)
    return picture.figure


def _describe_panels(
    panels: Sequence[Panel], x: str, reading: Reading, drawn: Sequence[Drawn], *, is_each: bool = False
) -> str:
    """Write the title of panels: what they show of how many works, and what is unsure, at the edges and left out."""
    by = reading.by
    counts = [count_works(sum(int(line["n"].sum()) for line in panel.lines)) for panel in panels]
    of = [f" of {n}" for n in counts] if len({*counts}) > 1 else [""] * len(counts)
    intervals = [_INTERVALS.get(panel.stat, "Woodruff") for panel in panels]
    said = [f"{one.name}{n} with 95 % {name} interval" for one, n, name in zip(panels, of, intervals, strict=True)]
    said = [f"({letter}) {text}" for letter, text in zip("ab", said, strict=True)] if len(panels) > 1 else said
    within = f" and {name_column(by)}" if by else ""
    title = f"{'Works' if any(of) else counts[0]} by {name_column(x)}{within}: {', '.join(said)}."
    if any(of) and reading.names:
        title += " In brackets: works in (a); in (b)."
    all_drawn = add_drawn(drawn)
    title += " Grey: the other groups." * is_each
    title += name_hollow(all_drawn.is_few, reading.few, [one.after for one in panels])
    title += " These have no interval." * (reading.is_crowded and "Hollow" in title) + all_drawn.describe()
    remarks = [one.remarks for one in panels]
    is_same = len({*remarks}) == 1
    return title + (remarks[0] if is_same else "".join(f" ({a}){b}" for a, b in zip("ab", remarks, strict=True) if b))


def _order_names(
    panels: Sequence[pl.DataFrame], x: str, few: int, look: Look, n_lines: int
) -> tuple[dict[Any, str], float]:
    """Order names by the mean of their values in the first panel, those of few works last, or as they are ordered.

    Give what is written: the works of each panel, once where they are the same. And give the height in mm.
    """
    groups, *others = panels
    value, is_few = pl.col("value").mean(), pl.col("n_works").max() < few
    ranked = groups.group_by(x).agg(value, pl.col("n").sum(), _is_few=is_few)
    is_ordered = groups[x].dtype == pl.Enum
    ranked = ranked.sort(x) if is_ordered else ranked.sort("_is_few", -pl.col("value"), x, nulls_last=True)
    counts = [dict(one.group_by(x).agg(pl.col("n").sum()).rows()) for one in (groups, *others)]
    counts = counts if any(one != counts[0] for one in counts) else counts[:1]
    names = zip(ranked[x], ranked[x].cast(pl.String), strict=True)
    shown = {group: (name, f" ({'; '.join(f'{one[group]:,}' for one in counts)})") for group, name in names}
    written, height = name_rows([*shown.values()], look, n_lines)
    return dict(zip(shown, written, strict=True)), height


def draw_panel(axes: Axes, x: str, panel: Panel, reading: Reading) -> Drawn:
    """Draw one panel, over numbers if the groups have no names."""
    by, names = reading.by, reading.names
    groups = [str(frame[by][0]) for frame in panel.lines] if by else []
    are_labels = bool(groups) and {*groups} <= {*COLOURS}  # a label has one colour everywhere
    usual = [COLOURS[one] for one in groups] if are_labels else free_colours(axes, COLOURS.get(panel.y, LINES[0]))
    colours = reading.colours or usual
    lines = [_read_line(panel, x, *one, reading) for one in zip(panel.lines, cycle(colours), strict=False)]
    limits = _find_limits(lines, panel.bounds, is_crowded=reading.is_crowded)
    row_of, drawn = {name: row for row, name in enumerate(names)}, list[Drawn]()
    for number, (frame, line) in enumerate(zip(panel.lines, lines, strict=True)):
        if names:
            rows = np.array([row_of[name] for name in frame[x]], np.float64)
            offset = 0.0 if len(lines) == 1 else 0.6 * (number / (len(lines) - 1) - 0.5)
            drawn.append(_draw_estimates(axes, rows + offset, line, limits))
        else:
            drawn.append(_draw_over_numbers(axes, line, limits, reading.label))
        if by:
            axes.plot([], [], "o", color=line.colour, ms=3.5, label=fit_name(line.group, _LEGEND_MM))
    if panel.stat == "percentile":
        (axes.axvline if names else axes.axhline)(50, color=INK, lw=0.6, ls=":", zorder=1)
    if names:
        axes.set_yticks(range(len(names)), [*names.values()], linespacing=0.9)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(axis="y", color="#EEEEEE", lw=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel(panel.name)
    else:
        _frame_numbers(axes, x, panel)
    if by:
        axes.legend(title=name_column(by))
    return add_drawn(drawn)


def _frame_numbers(axes: Axes, x: str, panel: Panel) -> None:
    """Set the ends of an axis of numbers, name both axes, and mark the last year with a complete window."""
    places = pl.concat([frame[x] for frame in panel.lines]).unique().sort()
    low, high = float(places[0]), float(places[-1])
    room = 0.3 * min([1.0, *places.diff().drop_nulls()]) + 0.02 * (high - low)
    widen(axes, "x", low - room, high + room)
    if panel.after is not None:
        axes.axvline(panel.after + 0.5, color=INK, lw=0.6, ls=":")
    axes.set_xlabel(name_column(x))
    axes.set_ylabel(panel.name)


def _read_line(panel: Panel, x: str, frame: pl.DataFrame, colour: str, reading: Reading) -> _Line:
    value, low, high = (frame[name].fill_null(np.nan).to_numpy() for name in MEASURED[1:])
    sure = enough = (frame["n_works"] >= reading.few).to_numpy()
    if panel.after is not None:
        sure = enough & (frame[x] <= panel.after).to_numpy()
    if reading.is_crowded:
        low, high = (np.where(sure, end, np.nan) for end in (low, high))
    group = str(frame[reading.by][0]) if reading.by else ""
    is_share = panel.stat == "share"
    return _Line(group, colour, frame[x].to_numpy(), frame["n"].to_numpy(), is_share, value, low, high, enough, sure)


def _find_limits(
    lines: Sequence[_Line], bounds: tuple[float, float], *, is_crowded: bool = False
) -> tuple[float, float]:
    """Choose the ends of the axis of values where works are enough; estimates beyond them are drawn at the edge.

    A share of 0 has its place on the axis, also of few works: at the edge it would read as another share. In a crowded
    picture intervals of the fewest works may leave the axis: a wide one would leave the others a sliver.
    """
    numbers = [np.empty(0)]
    is_any = sum(int(one.enough.sum()) for one in lines) > 1
    ends: tuple[list[Numbers], list[Numbers]] = [], []
    for one in lines:
        every = np.ones(one.value.size, np.bool_)
        sure = one.enough if is_any else every
        numbers.append(one.value[one.enough if one.enough.sum() > 1 else every])
        for side, end in zip(ends, (one.low, one.high), strict=True):
            some = sure & np.isfinite(end)
            side.append(np.repeat(end[some], one.n[some] if is_crowded else 1))
    for side, share in zip(ends, _SEEN, strict=True):
        every_end = np.concatenate(side)
        if is_crowded and every_end.size:
            every_end = np.quantile(every_end, [share], method="nearest")
        numbers.append(every_end)
    numbers += [one.value[one.value == 0] for one in lines if one.is_share]
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
) -> Drawn:
    """Draw dots with their intervals: hollow and pale where unsure, a triangle where beyond the edge.

    Values lie along x, or with ``upright_size``, that of a dot, along y.
    """
    from matplotlib.ticker import AutoLocator, MaxNLocator

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
    cut = {"v" if upright else "<": (low, one.low < low), "^" if upright else ">": (high, one.high > high)}
    for direction, (edge, some) in cut.items():
        for sure, alpha in ((True, 1.0), (False, 0.4)):
            chosen = some & inside & (one.sure == sure)
            at = (places[chosen], np.full(chosen.sum(), edge))
            arrows: dict[str, Any] = {
                "marker": _ARROWS[direction],
                "ms": size,
                "color": one.colour,
                "mew": 0,
                "alpha": alpha,
            }
            if chosen.any():
                (drawn,) = axes.plot(*(at if upright else at[::-1]), ls="none", **arrows, clip_on=False, zorder=2)
                drawn.set_in_layout(False)
    values = axes.yaxis if upright else axes.xaxis
    if one.is_share:
        values.set_major_formatter(write_share)
    elif low < 0 < high:
        (axes.axhline if upright else axes.axvline)(0, color=INK, lw=0.6, zorder=1)
    if isinstance(values.get_major_locator(), AutoLocator):
        values.set_major_locator(MaxNLocator(5, steps=(1, 2, 2.5, 5, 10), min_n_ticks=3))
    n_cut = int((inside & ((one.low < low) | (one.high > high))).sum())
    return Drawn(not one.enough.all(), sum(int(some.sum()) for some in beyond.values()), n_cut)


def draw_line(axes: Any, x: Numbers, y: Numbers, works: Numbers, **look: Any) -> bool:  # noqa: ANN401
    """Draw a line through groups with enough works, the others as hollow dots; return whether there are others."""
    sure = works >= FEW
    line: dict[str, Any] = {"marker": "o", "markersize": 2.5, **look}
    axes.plot(x, np.where(sure, y, np.nan), **line)
    axes.plot(x[~sure], y[~sure], **line | {"ls": "none", "label": None, "mfc": "white", "mew": 0.6})
    return not sure.all()


def name_hollow(is_few: bool, few: int = FEW, after: Sequence[int | None] = ()) -> str:
    """Say at the end of a title what hollow dots are; ``after`` has a year for each panel.

    Example:
        >>> name_hollow(True), name_hollow(False, after=[2016, 2016])
        (' Hollow: fewer than 30 works.', ' Hollow: no complete citation window (after 2016).')
        >>> name_hollow(False, after=[2016, 2018])
        ' Hollow: no complete citation window (after 2016 in (a) and 2018 in (b)).'
    """
    hollow = [f"fewer than {few} works"] if is_few else []
    years = [f"{year} in ({letter})" for letter, year in zip("ab", after, strict=False) if year is not None]
    years = [str(after[0])] if years and len({*after}) == 1 else years
    hollow += [f"no complete citation window (after {' and '.join(years)})"] if years else []
    return f" Hollow: {' or '.join(hollow)}." if hollow else ""


def describe_hidden(hidden: Mapping[str, int]) -> str:
    """Say at the end of a title which works are not shown."""
    parts = [f"{count_works(n)} {where}" for where, n in hidden.items() if n]
    return f" Not shown: {' and '.join(parts)}." if parts else ""


def _draw_over_numbers(axes: Axes, one: _Line, limits: tuple[float, float], label: str) -> Drawn:
    """Draw estimates over numbers: a line joins neighbours that are sure, and no gap; ``label`` is for a legend."""
    places = one.places
    steps = np.diff(places, append=places[-1])
    gaps = np.flatnonzero(steps > 1.5 * min(steps[:-1], default=1)) + 1
    joined = np.insert(np.where(one.sure, one.value, np.nan), gaps, np.nan)
    at = np.insert(places.astype(np.float64), gaps, np.nan)
    axes.plot(at, joined, color=one.colour, lw=0.8, alpha=0.6, label=label)
    drawn = _draw_estimates(axes, places, one, limits, float(np.clip(110 / places.size, 1.2, 3.5)))
    tick_numbers(axes.xaxis, 6, is_whole=bool((places == np.round(places)).all()))
    return drawn


def name_rows(names: Sequence[tuple[str, str]], look: Look, n_lines: int = 1) -> tuple[list[str], float]:
    """Break long names into two lines at most; return them and the height of a panel with all of them, in mm.

    A name is cut off where it is too long, what stands after it is not. ``n_lines`` estimates stand beside each.
    """
    from matplotlib.ticker import FixedLocator

    if any(axes.has_data() and isinstance(axes.yaxis.get_major_locator(), FixedLocator) for axes in axes_of(look)):
        raise ConfigError("ax has the names of an earlier picture. Give other Axes, or both in one frame with by=.")
    width = _NAME_MM.get(look.get("width", "two"), _NAME_MM["two"])
    fitted = [fit_name(name, width, end=end) for name, end in names]
    row = max(_ROW_MM["\n" in "".join(fitted)], _LINE_MM * n_lines)
    return fitted, 20 + row * max(len(fitted), 2)


def fit_name(name: str, width_mm: float, *, n_lines: int = 2, end: str = "") -> str:
    """Write a name in some lines at most, as matplotlib draws and lists it."""
    written = fit(plain(name), width_mm, size=STYLE["legend.fontsize"], n_lines=n_lines, end=end)
    return f" {written}" if written.startswith("_") else written  # legends leave out what begins so
