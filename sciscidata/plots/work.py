"""The papers around one work, as people draw them: what it cites, and who cites it, alone or with its references."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Float64Array
from sciscidata.errors import EmptyInputError
from sciscidata.explanation.explanation import Explanation
from sciscidata.plots.figure import Look, drawing, plain
from sciscidata.plots.palette import COLOURS, INK, PALE, as_letters
from sciscidata.terminal.messages import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HEIGHT_MM: Final = {"one": 75.0, "two": 90.0}
_AXIS_MM: Final = 5.0  # more, for the name of the axis
_YEAR: Final = "publication_year"
_FEW: Final = 60  # citers whose links are drawn
_PAST: Final = 0.34  # of the width, left of the work
_ROWS: Final = 6  # of dots with links
_WIDTH: Final = 0.8  # of a year that dots may fill
_LARGEST_MM: Final = 2.2
_LARGEST_CITER_MM: Final = 3.6
_SMALLER: Final = 0.98  # of a size that is too large
_SMALLEST_MM: Final = 0.25
_GREY: Final = "#666666"
_COLOURS: Final = {"i": COLOURS["disruptive"], "j": COLOURS["consolidating"], "k": PALE}


class _Place(NamedTuple):
    """Where everything lies: x and y of the picture run from 0 to 1, and ``mm`` is its size."""

    year: int
    oldest: int
    years: range
    mm: tuple[float, float]
    middle: float
    strip: float
    left: float
    is_linked: bool

    def x_of_reference(self, years: Float64Array) -> Float64Array:
        """Place references: the older, the closer together, since a few may be very old."""
        age = np.maximum(self.year - years, 0)
        longest = max(math.log1p(self.year - self.oldest), 1e-9)
        place = self.left + (0.9 * _PAST - self.left) * (1 - np.log1p(age) / longest)
        return np.where(np.isnan(years), 0.01, place)

    def x_of_citer(self, year: float) -> float:
        """Return the middle of a year of citers."""
        return _PAST + 0.05 + (0.95 - _PAST) * (year - self.years.start + 0.5) / len(self.years)

    @property
    def width_mm(self) -> float:
        """How wide the dots of a year may lie."""
        return _WIDTH * (0.95 - _PAST) / len(self.years) * self.mm[0]


def plot_work(explanation: Explanation, **look: Unpack[Look]) -> Figure:
    """Draw the papers around a work: its references, and who cites it alone, with them, or them without it.

    One panel. Time runs to the right. Left of the work are its references, larger the more of its citers cite them too,
    hollow if no citer does; the older, the closer together. Those of no known year stand above "?". Right of it is a
    dot for each citer by year: above, in the colour of disruptive, those of n_i; below, in that of consolidating, those
    of n_j. The bars at the bottom count works that cite only its references, n_k. With up to 60 citers, lines show who
    cites what. Where dots would be too small to see, bars count citers.

    Args:
        explanation: what ``explain`` returns.
        **look: where the picture goes, and what it says of its data; see ``Look``.

    Raises:
        EmptyInputError: no work is counted, or the work has no year.
        ConfigError, StorageError: as in ``Look``.

    Example:
        >>> import sciscidata as ssd
        >>> works, citations, _ = ssd.scan_example()
        >>> plot_work(ssd.explain("W2734287351", works, citations)).get_label().partition(":")[0]
        'What W2734287351 (2017) cites, and who cites it'
    """
    row = explanation.scores.row(0, named=True)
    counts = explanation.by_year.drop_nulls(_YEAR)
    if row.get(_YEAR) is None or counts.is_empty():
        raise EmptyInputError("plot_work: no work is counted in the window, so there is nothing to draw.")
    with drawing(look, heights_mm=[_HEIGHT_MM[look.get("width") or "two"] + _AXIS_MM]) as picture:
        axes = picture.panels[0]
        place = _lay_out(
            explanation, row[_YEAR], counts, _size_of(axes, picture.width_mm, own=look.get("ax") is not None)
        )
        _draw_references(axes, explanation, place)
        at = _draw_citers(axes, explanation, counts, place)
        if place.is_linked:
            _draw_links(axes, explanation, place, at)
        _draw_others(axes, counts, place)
        axes.plot(_PAST, place.middle, marker="o", markersize=7, color=INK, zorder=5)
        _draw_ticks(axes, place)
        picture.caption = _describe(explanation, row)
        alone = counted(row["n_i"], "paper cites", "papers cite")
        picture.finding = f"{alone} it alone, {row['n_j']:,} with its references"
    return picture.figure


def _size_of(axes: Axes, width_mm: float, *, own: bool) -> tuple[float, float]:
    """Return about how large a panel will be, in mm."""
    if own:
        box = axes.get_window_extent()
        dpi = axes.figure.figure.dpi
        return box.width / dpi * 25.4, box.height / dpi * 25.4
    return 0.96 * width_mm, 0.74 * _HEIGHT_MM["one" if width_mm < 180 else "two"]


def _lay_out(explanation: Explanation, year: int, counts: pl.DataFrame, mm: tuple[float, float]) -> _Place:
    """Share the height between the classes by how many works the fullest year of each has."""
    most = dict(counts.group_by("class").agg(pl.col("works").max()).rows())
    i, j = (max(most.get(name, 0), 1) ** 0.7 for name in "ij")
    share = min(max(j / (i + j), 0.2), 0.8)
    strip = 0.17 if most.get("k") else 0.0
    before, years = explanation.references[_YEAR], counts[_YEAR].to_list()
    return _Place(
        year=year,
        oldest=min([year - 1, *before.drop_nulls().to_list()]),
        years=range(min([year + 1, *years]), max(years) + 1),
        mm=mm,
        middle=strip + (0.93 - strip) * share,
        strip=strip,
        left=0.02 + (0.06 if before.null_count() else 0.0),
        is_linked=explanation.citers.height <= _FEW,
    )


def _draw_references(axes: Axes, explanation: Explanation, place: _Place) -> None:
    """Draw what the work cites, stacked where years are close."""
    rows = explanation.references
    axes.text(0.0, 0.995, f"it cites {rows.height:,}", color=INK, va="top", fontsize=7)
    x, y, size = _stack_references(rows, place)
    n_citers = rows["n_citers"].to_numpy()
    area = np.where(n_citers > 0, 0.35 + 0.65 * n_citers / max(n_citers.max(initial=1), 1), 0.35) * size**2
    faces = [INK if n else "white" for n in n_citers]
    axes.scatter(x, y, s=area, c=faces, edgecolors=INK, linewidths=0.5, zorder=4)


def _stack_references(rows: pl.DataFrame, place: _Place) -> tuple[Float64Array, Float64Array, float]:
    """Return x and y of references, those of no known year on the left, and how wide a dot is, in points."""
    x = place.x_of_reference(rows[_YEAR].cast(pl.Float64).fill_null(np.nan).to_numpy())
    room = 2 * min(place.middle - place.strip, 0.9 - place.middle) * place.mm[1]
    pitch = _LARGEST_MM
    while True:
        bins = np.round(x * place.mm[0] / pitch).astype(np.int64)
        fullest = int(np.unique(bins, return_counts=True)[1].max(initial=1))
        if fullest * pitch <= room or pitch < _SMALLEST_MM:
            break
        pitch *= _SMALLER
    step = min(3 * _LARGEST_MM if place.is_linked else pitch, room / fullest)
    y = np.empty(x.size)
    for one in np.unique(bins):
        at = np.flatnonzero(bins == one)
        y[at] = place.middle + (np.arange(at.size) - (at.size - 1) / 2) * step / place.mm[1]
    return bins.astype(np.float64) * pitch / place.mm[0], y, pitch * 0.85 * 72 / 25.4


def _draw_citers(
    axes: Axes, explanation: Explanation, counts: pl.DataFrame, place: _Place
) -> dict[int, tuple[float, float]]:
    """Draw a dot for each citer, or bars; return where the dot of each work is."""
    gap = 1.6 / place.mm[1]
    rooms = {"i": 0.9 - place.middle - gap, "j": place.middle - place.strip - gap}
    of_class = {name: dict(counts.filter(pl.col("class") == name).select(_YEAR, "works").rows()) for name in "ij"}
    words = {"i": "it, none of its references", "j": "it and its references"}
    heights = {"i": 0.995, "j": place.strip + 0.015}
    for name, colour in list(_COLOURS.items())[:2]:
        text = f"{counted(sum(of_class[name].values()), 'cites', 'cite')} {words[name]}"
        axes.text(
            1.0,
            heights[name],
            text,
            color=as_letters(colour),
            ha="right",
            va="top" if name == "i" else "bottom",
            fontsize=7,
        )
    rooms["j"] -= 4.2 / place.mm[1]  # of the words below
    pitch = across = _find_pitch(of_class, rooms, place)
    if pitch < _SMALLEST_MM:
        _draw_bars(axes, of_class, rooms, place, gap)
        return {}
    columns = max(1, int(place.width_mm / pitch))
    if place.is_linked:  # so that lines fan out
        columns = max(1, -(-max(counts.filter(pl.col("class") != "k")["works"], default=0) // _ROWS))
        across = min(place.width_mm / columns, 3 * pitch)
    at: dict[int, tuple[float, float]] = {}
    for name, sign in (("i", 1), ("j", -1)):
        up = pitch / place.mm[1]
        if place.is_linked:
            up = rooms[name] / (-(-max(of_class[name].values(), default=0) // columns) + 0.5)
        some = explanation.citers.filter(pl.col("class") == name).drop_nulls(_YEAR)
        for (year,), of_year in some.group_by(_YEAR, maintain_order=True):
            n = np.arange(of_year.height)
            row, column = n // columns, n % columns
            used = min(columns, of_year.height)
            x = place.x_of_citer(float(str(year))) + (column - (used - 1) / 2) * across / place.mm[0]
            y = place.middle + sign * (gap + (row + 0.5) * up)
            at |= dict(zip(of_year["work_id"].to_list(), zip(x.tolist(), y.tolist(), strict=True), strict=True))
        if some.height:
            points = np.array([at[work] for work in some["work_id"]])
            axes.scatter(*points.T, s=(pitch * 0.85 * 72 / 25.4) ** 2, c=_COLOURS[name], linewidths=0, zorder=4)
    return at


def _find_pitch(of_class: Mapping[str, Mapping[int, int]], rooms: Mapping[str, float], place: _Place) -> float:
    """Find how far apart dots can be, in mm, so that the fullest year has room."""
    largest = _LARGEST_MM if place.is_linked else _LARGEST_CITER_MM
    pitch = largest
    while pitch >= _SMALLEST_MM:
        columns = max(1, int(place.width_mm / pitch))
        rows = {name: -(-max(years.values(), default=0) // columns) for name, years in of_class.items()}
        if all(n * pitch <= rooms[name] * place.mm[1] for name, n in rows.items()):
            return pitch
        pitch *= _SMALLER
    return 0.0


def _draw_bars(
    axes: Axes, of_class: Mapping[str, Mapping[int, int]], rooms: Mapping[str, float], place: _Place, gap: float
) -> None:
    """Draw a bar for the citers of each year, in place of dots, both classes in one scale."""
    scale = min(rooms[name] / max(years.values()) for name, years in of_class.items() if years)
    width = place.width_mm / place.mm[0]
    for name, sign in (("i", 1), ("j", -1)):
        for year, n in of_class[name].items():
            axes.bar(
                place.x_of_citer(year),
                sign * n * scale,
                width,
                place.middle + sign * gap,
                color=_COLOURS[name],
                zorder=3,
            )


def _draw_links(axes: Axes, explanation: Explanation, place: _Place, at: Mapping[int, tuple[float, float]]) -> None:
    """Draw who cites the work, and which of its references."""
    from matplotlib.collections import LineCollection

    rows = explanation.references
    x, y, _ = _stack_references(rows, place)
    references = dict(zip(rows["work_id"].to_list(), zip(x.tolist(), y.tolist(), strict=True), strict=True))
    own = (_PAST, place.middle)
    both: list[Any] = []
    to_it: dict[str, list[Any]] = {"i": [], "j": []}
    for work, name, shared in explanation.citers.select("work_id", "class", "shared").iter_rows():
        if work in at:
            to_it[name].append([at[work], own])
            both += [[at[work], references[one]] for one in shared if one in references]
    axes.add_collection(LineCollection(both, colors=_COLOURS["j"], linewidths=0.35, alpha=0.3, zorder=1))
    for name, lines in to_it.items():
        axes.add_collection(LineCollection(lines, colors=_COLOURS[name], linewidths=0.6, alpha=0.6, zorder=2))
    cited = [[own, one] for one in references.values()]
    axes.add_collection(LineCollection(cited, colors=INK, linewidths=0.4, alpha=0.5, zorder=1))


def _draw_others(axes: Axes, counts: pl.DataFrame, place: _Place) -> None:
    """Draw how many works cite only the references, by year, at the bottom."""
    others = counts.filter(pl.col("class") == "k").select(_YEAR, "works").rows()
    if not others:
        return
    total, most = sum(n for _, n in others), max(n for _, n in others)
    words = f"{counted(total, 'work cites', 'works cite')}\nonly its references,\nnot it"
    axes.text(0.0, place.strip / 2, words, color=_GREY, va="center", fontsize=7)
    width, height = place.width_mm / place.mm[0], place.strip * 0.6
    for year, n in others:
        x = place.x_of_citer(year)
        axes.bar(x, n / most * height, width, 0, color=PALE, zorder=2)
        if len(place.years) <= 12:
            axes.text(x, n / most * height + 0.01, f"{n:,}", color=_GREY, ha="center", va="bottom", fontsize=7)


def _draw_ticks(axes: Axes, place: _Place) -> None:
    """Write years below, and leave out the rest of a frame."""
    ages = [age for age in (1, 2, 3, 5, 10, 20, 50, 100, 200) if age <= place.year - place.oldest]
    step = -(-len(place.years) // (6 if place.mm[0] > 100 else 4))
    step = next(one for one in (1, 2, 5, 10, 20, 50, 100, 1_000) if one >= step)
    wanted = {place.year: _PAST} | {
        year: place.x_of_citer(year) for year in place.years if year % step == 0 and year != place.year
    }
    for age in ages[::-1]:
        wanted[place.year - age] = float(place.x_of_reference(np.array([float(place.year - age)]))[0])
    least = 9.0 / place.mm[0]  # of a year and a blank
    ticks: dict[str, float] = {"?": 0.01} if place.left > 0.05 else {}
    for year, x in wanted.items():
        if all(abs(x - other) >= least for other in ticks.values()):
            ticks[str(year)] = x
    axes.set_xticks([*ticks.values()], [*ticks])
    axes.set_xlabel("year (left of the work on a log scale of age)")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.axhline(place.middle, color=PALE, linewidth=0.4, zorder=0)
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(0, 1.01)


def _describe(explanation: Explanation, row: Mapping[str, Any]) -> str:
    name = plain(explanation.text.partition("\n")[0].partition(":")[0])
    index = f" CD\u00a0{row['cd_index']:.3g}" if row["cd_index"] is not None else ""
    said = row["disruption_label"] if row["is_judged"] else "not judged"
    label = f", {said}" if index and said else ""
    n_i, n_j, n_k = (counted(row[name], "cites", "cite") for name in ("n_i", "n_j", "n_k"))
    counts = f"{n_i} it and none of its references, {n_j} both; {n_k} only its references."
    left = " Left: its references, larger the more of its citers cite them too, hollow where no citer does"
    left += "; ?: of no known year." if explanation.references[_YEAR].null_count() else "."
    return f"What {name} cites, and who cites it: {counts}{index}{label}{'.' if index else ''}{left}"
