"""Pictures of novelty: the plane of its two scores or two z with the labels, and z by year."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata._support.quantiles import counted_quantiles
from sciscidata.errors import SchemaMismatchError
from sciscidata.frames import AnyFrame
from sciscidata.intervals import wilson_interval
from sciscidata.label_thresholds import NOVELTY_LABELS, LabelThresholds, compute_uzzi_cells, find_conventionality_cut
from sciscidata.options.checks import checked_config
from sciscidata.plots.by_group import FEW, draw_line, name_hollow
from sciscidata.plots.figure import Look, Picture, count_works, drawing, letter_panels, tick_numbers
from sciscidata.plots.labels import draw_classes
from sciscidata.plots.measure import collect_some, name_column, refuse_nothing
from sciscidata.plots.palette import COLOURS, INK, as_letters
from sciscidata.records.last_year_of_data import find_last_year
from sciscidata.release.findings import say_classes
from sciscidata.schemas import ATYPICALITY, require_columns
from sciscidata.terminal.shares import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CELLS = (60, 42)  # of the plane, across and up
_LINEAR = 1.0  # z: the axes of z are linear within, and logarithmic beyond
_TICKS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)  # and 0, on both sides
_AXES = "Both axes are linear near 0, and logarithmic far from it."
_BAND = (0.1, 0.5, 0.9)
#: Colour, marker and line of each series, which tell them apart in grey too.
_SERIES = {
    "z_median": (COLOURS["conventional"], "o", "-", "median pair: conventionality"),
    "z_p10": (COLOURS["novel"], "s", "--", "10th percentile: tail novelty where below {:g}"),
}
_NONE = "no work can lie here:\nscores add up\nto 1 or more"

_Regions = list[tuple[str, list[tuple[float, float]]]]  # of the plane: label and corners


def plot_novelty(
    scored: AnyFrame,
    eligible: AnyFrame,
    thresholds: LabelThresholds,
    *,
    eligible_counts: Mapping[str, int],
    drawn_counts: Mapping[str, int],
    n_unlabelled: int = 0,
    cut: float | None = None,
    **look: Unpack[Look],
) -> Figure:
    """Plot works in the novelty-conventionality plane with the regions of the labels, and the class counts.

    By the rule ``"margin"`` the plane is that of the two scores, by ``"uzzi"`` that of the two z.

    Args:
        scored: ATYPICALITY of all scored works; Uzzi's rule takes its median from these.
        eligible: ATYPICALITY of the works to show; nulls are left out.
        thresholds: the rule, and where its regions end.
        eligible_counts: works per novelty label before the draw.
        drawn_counts: works per novelty label in the release, both splits together.
        n_unlabelled: works in the release without a novelty label; no bar shows them.
        cut: the cut of Uzzi's rule, if it is already known; found in ``scored`` when None.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with two panels.

    Raises:
        EmptyInputError: no work to show has both scores, or both z.

    Example:
        >>> scored = pl.DataFrame({"novelty_score": [0.9, 0.2], "conventionality_score": [0.3, 0.8]})
        >>> counts = {"novel": 1, "balanced": 0, "conventional": 1}
        >>> figure = plot_novelty(scored, scored, LabelThresholds(), eligible_counts=counts, drawn_counts=counts)
        >>> figure.get_suptitle()
        'No class has most of the 2 papers: 1 is novel, 1 is conventional, 0 are balanced'
    """
    is_uzzi = thresholds.novelty_rule == "uzzi"
    columns = [*_SERIES] if is_uzzi else ["conventionality_score", "novelty_score"]
    scored, eligible = (
        require_columns(frame, ATYPICALITY, frame_name=name, stage="plot_novelty", columns=columns)
        for name, frame in {"scored": scored, "eligible": eligible}.items()
    )
    with drawing(look, heights_mm=(82, 55), ratios=(1.5, 1)) as picture:
        plane, classes = picture.panels
        points = _read_points(eligible, columns, "plot_novelty")
        if is_uzzi:
            cut = find_conventionality_cut(scored, thresholds) if cut is None else cut
            regions = _draw_quadrants(picture, points, cut, thresholds.uzzi_tail_max)
            rule = f"Lines: the cuts of Uzzi et al. 2013. {_AXES}"
        else:
            regions = _draw_band(plane, thresholds.novelty_margin)
            rule = f"A work is balanced if its scores differ by at most {thresholds.novelty_margin:g}."
        n_points = _draw_density(plane, points, regions, is_narrow=picture.is_narrow)
        picture.caption = f"Novelty and conventionality of {count_works(n_points)} that may be drawn. {rule}"
        picture.finding = say_classes({label: eligible_counts[label] for label in NOVELTY_LABELS})
        draw_classes(classes, NOVELTY_LABELS, eligible_counts, drawn_counts, n_unlabelled=n_unlabelled)
    return picture.figure


def plot_novelty_by_year(scored: AnyFrame, thresholds: LabelThresholds | None = None, **look: Unpack[Look]) -> Figure:
    """Plot for each year the median of z_median and of z_p10, and lines over the middle 80 % of works.

    Args:
        scored: publication_year and ATYPICALITY. Works without a year or a z are left out. So are works dated after the
            last year of the others (see find_last_year).
        thresholds: where tail novelty ends, for the legend; ``LabelThresholds()`` when None.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: the two z, and below them the number of works.

    Raises:
        EmptyInputError: no work has a year and both z.

    Example:
        >>> scored = pl.DataFrame({"publication_year": [2000, 2001], "z_p10": [-1.0, 0.5], "z_median": [1.0, 2.0]})
        >>> plot_novelty_by_year(scored, width="one").get_label().partition(":")[0]
        'z of 2 scored works by year of publication'
    """
    tail_max = checked_config(thresholds, LabelThresholds, name="thresholds").uzzi_tail_max
    needed = {"publication_year": pl.Int32(), **ATYPICALITY}
    names = ("publication_year", *_SERIES)
    scored = require_columns(scored, needed, frame_name="scored", stage="plot_novelty_by_year", columns=names)
    shown = scored.select("publication_year", pl.col(*_SERIES).fill_nan(None)).drop_nulls()
    quantiles = counted_quantiles(shown, "publication_year", _BAND)
    if quantiles.is_empty():
        refuse_nothing(scored, names, "plot_novelty_by_year")
    by_year = quantiles.filter(column="z_median", share=0.5)
    last_year = find_last_year(dict(by_year.select("publication_year", "n").rows()))
    if last_year is not None:  # else one mistaken date would leave a sliver for all other years
        quantiles, by_year = (frame.filter(pl.col("publication_year") <= last_year) for frame in (quantiles, by_year))
    years, works = by_year["publication_year"].to_numpy(), by_year["n"].to_numpy()
    with drawing(look, heights_mm=(60, 25), columns=1, share="x") as picture:
        spread, number = picture.panels
        is_hollow = False
        for side, (name, (colour, marker, line, meaning)) in zip((-0.2, 0.2), _SERIES.items(), strict=True):
            low, middle, high = (quantiles.filter(column=name, share=share)["quantile"].to_numpy() for share in _BAND)
            enough = works >= FEW
            spread.vlines(years[enough] + side, low[enough], high[enough], color=colour, lw=0.8, alpha=0.6)
            label = meaning.format(tail_max)
            look_of_line: dict[str, Any] = {"marker": marker, "color": colour, "ls": line, "label": label}
            is_hollow = draw_line(spread, years + side, middle, works, **look_of_line)
        spread.axhline(0, color=INK, lw=0.6)
        spread.set_ylabel("z of venue pairs")
        spread.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=1 if picture.is_narrow else 2, borderaxespad=0.2)
        number.bar(years, works, width=0.8, color=COLOURS["neutral"])
        number.set_ylabel("works")
        number.yaxis.set_major_formatter("{x:,.0f}")
        number.set_xlabel("year of publication")
        tick_numbers(number.xaxis)
        if years.size:
            number.set_xlim(years[0] - 1.2, years[-1] + 1.2)
        picture.caption = (
            f"z of {count_works(int(works.sum())).replace('work', 'scored work')} by year of publication: "
            f"medians, and lines over the middle 80 % of works.{name_hollow(is_hollow)}"
        )
    return picture.figure


def plot_uzzi_cells(
    scored: AnyFrame,
    thresholds: LabelThresholds | None = None,
    *,
    hit: str = "",
    **look: Unpack[Look],
) -> Figure:
    r"""Plot works in the plane of the two z, with the shares of the four cells of Uzzi et al.

    A work has tail novelty if ``z_p10`` is negative. It has high conventionality if ``z_median`` exceeds that of half
    of the works.

    Args:
        scored: ATYPICALITY of all scored works; only z_p10, z_median and ``hit`` are read.
        thresholds: where the cells end; ``LabelThresholds()`` when None.
        hit: a boolean column, for example of the most cited works. Each cell then shows the share of hits, with its
            Wilson interval at 95 %; "" shows the share of works.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with two panels.

    Raises:
        EmptyInputError: no work has both z.
        SchemaMismatchError: ``z_p10``, ``z_median`` or ``hit`` is missing, or mistyped.

    Source: Uzzi et al. 2013, doi:10.1126/science.1240474, figure 3.

    Example:
        >>> scored = pl.DataFrame({"z_p10": [-2.0, -1.0, 0.5, 3.0], "z_median": [-1.0, 4.0, 1.0, 9.0]})
        >>> [text.get_text() for text in plot_uzzi_cells(scored).axes[1].texts][0]
        'novel\n25.0 %\n1 work'
    """
    rule = checked_config(thresholds, LabelThresholds, name="thresholds")
    works = require_columns(
        scored, ATYPICALITY, frame_name="scored", stage="plot_uzzi_cells", columns=["z_p10", "z_median"]
    )
    if hit and works.collect_schema().get(hit) != pl.Boolean:
        raise SchemaMismatchError(
            f"plot_uzzi_cells: {hit!r} is no column of true and false of the frame. Add one, for example the top 5 %."
        )
    halves = ["has_tail_novelty", "has_high_conventionality"]
    hits = (pl.col(hit) if hit else pl.lit(None, pl.Boolean)).alias("hit")
    cells = compute_uzzi_cells(works, rule).select(*halves, hits).drop_nulls(halves)
    if hit:
        cells = cells.drop_nulls("hit")
    by_cell = cells.group_by(halves).agg(n=pl.len(), hits=pl.col("hit").sum()).collect(engine="streaming")
    counts = {(tail, high): (n, k) for tail, high, n, k in by_cell.rows()}
    with drawing(look, heights_mm=(80, 62), ratios=(1.45, 1)) as picture:
        plane, table = picture.panels
        points = _read_points(works, [*_SERIES], "plot_uzzi_cells")
        cut = find_conventionality_cut(works, rule)
        regions = _draw_quadrants(picture, points, cut, rule.uzzi_tail_max)
        n_points = _draw_density(plane, points, regions, is_narrow=picture.is_narrow)
        _draw_cells(table, counts, hit=name_column(hit) if hit else "")
        letter_panels(picture)
        what = "the share of each cell"
        if hit:
            n_works, n_hits = (sum(one[place] for one in counts.values()) for place in (0, 1))
            share = percent(n_hits / max(n_works, 1), 1)
            what = f"by cell, the share {name_column(hit)}, with its 95 % Wilson interval (of all: {share})"
        of = count_works(n_points)
        picture.caption = f"Tail novelty and conventionality of {of}: (a) the plane of the two z, (b) {what}. {_AXES}"
    return picture.figure


def _draw_cells(axes: Axes, counts: Mapping[tuple[bool, bool], tuple[int, int]], *, hit: str) -> None:
    """Draw the four cells as they lie in the plane: high conventionality to the right, tail novelty below."""
    total = sum(n for n, _ in counts.values())
    names = {(True, False): "novel", (True, True): "both", (False, True): "conventional", (False, False): "neither"}
    for (tail, high), name in names.items():
        n, hits = counts.get((tail, high), (0, 0))
        of = n if hit else total
        share = (hits if hit else n) / of if of else 0.0
        lines = [name, percent(share, 1) if of else "–", count_works(n)]
        if hit and n:
            low, high_end = (float(end) for end in wilson_interval(share, n))
            lines.insert(2, f"{percent(low, 1)} to {percent(high_end, 1)}")
        axes.text(int(high), int(not tail), "\n".join(lines), ha="center", va="center", fontsize=7)
    for line in (axes.axvline, axes.axhline):
        line(0.5, color=INK, lw=0.8)
    axes.set(xlim=(-0.5, 1.5), ylim=(-0.5, 1.5))
    axes.set_title(f"share {hit}" if hit else "share of works")
    axes.set_xticks((0, 1), ("low", "high"))
    axes.set_yticks((0, 1), ("yes", "no"))
    axes.tick_params(length=0)
    axes.set_xlabel("conventionality")
    axes.set_ylabel("tail novelty")


def _read_points(works: pl.LazyFrame, columns: Sequence[str], stage: str) -> pl.LazyFrame:
    """Return the places of the works in the plane, x and y, without the works that lack one."""
    x, y = (pl.when(pl.col(name).is_finite()).then(name) for name in columns)
    points = works.select(x.alias("x"), y.alias("y")).drop_nulls()
    if points.head(1).collect(engine="streaming").is_empty():
        refuse_nothing(works, columns, stage)
    return points


def _draw_density(axes: Axes, points: pl.LazyFrame, regions: _Regions, *, is_narrow: bool) -> int:
    """Draw in shades of each label how many works lie where, in cells even on the axes; return their number."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.patches import Polygon

    edges: list[npt.NDArray[np.float64]] = []
    for axis, ends, n in zip((axes.xaxis, axes.yaxis), (axes.get_xlim(), axes.get_ylim()), _CELLS, strict=True):
        as_drawn = axis.get_transform()
        first, last = (float(end) for end in as_drawn.transform(np.array(ends)))
        edges.append(np.asarray(as_drawn.inverted().transform(np.linspace(first, last, n + 1))))
    counts = np.zeros(_CELLS, np.int64)
    for batch in collect_some(points):
        inside = [np.clip(batch[name].to_numpy(), end[0], end[-1]) for name, end in zip("xy", edges, strict=True)]
        counts += np.histogram2d(*inside, bins=edges)[0].astype(np.int64)
    most = max(10.0, float(counts.max()))
    drawn = []
    for label, corners in regions:
        colours = LinearSegmentedColormap.from_list(label, ["white", COLOURS[label], "black"])
        shades = LogNorm(0.1, most)  # 0.1: a single work shall not be white
        cells = axes.pcolormesh(*edges, np.ma.masked_equal(counts.T, 0), cmap=colours, norm=shades, rasterized=True)
        cells.set_clip_path(Polygon(corners, transform=axes.transData))
        drawn.append(cells)
    place: Literal["bottom", "right"] = "bottom" if is_narrow else "right"
    words = "works (log scale; darker: more)"
    bar = axes.figure.colorbar(drawn[-1], ax=axes, label=words, shrink=0.8, location=place, pad=0.02)
    (bar.ax.set_xlim if is_narrow else bar.ax.set_ylim)(1, most)
    bar.minorticks_off()
    (bar.ax.xaxis if is_narrow else bar.ax.yaxis).set_major_formatter("{x:,.0f}")
    return int(counts.sum())


def _draw_band(axes: Axes, margin: float) -> _Regions:
    """Part the plane of the scores; the balanced lie along the diagonal, as wide as the margin."""
    left, right = -1.0, 2.0  # beyond what is seen
    for place in (-margin, margin):
        axes.plot((left, right), (left + place, right + place), color=INK, lw=0.8, zorder=3)
    # z_p10 never exceeds z_median, so sigmoids add up to 1 or more.
    axes.fill([0, 1, 0], [0, 0, 1], fc="none", ec="#DDDDDD", hatch="///", lw=0, zorder=0)
    plate: dict[str, Any] = {"fc": "white", "ec": "none", "pad": 1.5}
    axes.text(0.05, 0.09, _NONE, color=INK, size=7, va="center", bbox=plate, zorder=4)
    if margin < 1:
        _name(axes, 0.5 * (1 - margin), 1 - 0.12 * (1 - margin), "novel")
        _name(axes, 1 - 0.25 * (1 - margin), 0.5 * (1 - margin), "conventional")
    _name(axes, 0.86, 0.86, "balanced")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("conventionality score (high: usual pair common)")
    axes.set_ylabel("novelty score (high: rare pairs atypical)")
    lower = [(left, left - margin), (right, right - margin)]
    upper = [(right, right + margin), (left, left + margin)]
    return [
        ("novel", [(left, 9.0), *reversed(upper), (right, 9.0)]),
        ("conventional", [(left, -9.0), *lower, (right, -9.0)]),
        ("balanced", [*lower, *upper]),
    ]


def _draw_quadrants(picture: Picture, points: pl.LazyFrame, cut: float | None, tail_max: float) -> _Regions:
    """Part the plane of z by the two cuts, on axes that show every work: linear near 0, logarithmic beyond."""
    axes = picture.panels[0]
    edge = tail_max if cut is None else cut
    seen = points.select(pl.all().min().name.suffix("_low"), pl.all().max().name.suffix("_high"))
    (x_low, y_low, x_high, y_high) = seen.collect(engine="streaming").row(0)
    left, right = _view(x_low, x_high, edge)
    low, high = _view(y_low, y_high, tail_max)
    _scale_z(axes, "x", (left, right), is_narrow=picture.is_narrow)
    _scale_z(axes, "y", (low, high), is_narrow=False)
    # Near the upper and the lower end: the works are thickest where the regions meet.
    bottom, top = _between(low, tail_max, 0.12), _between(high, tail_max, 0.1)
    _name(axes, _between(left, edge), bottom, "novel")
    _name(axes, _between(edge, right), top, "conventional")
    _name(axes, _between(edge, right), bottom, "balanced", " (both)")
    _name(axes, _between(left, edge), top, "balanced", "\n(neither)")
    axes.axvline(edge, color=INK, lw=0.8, zorder=3)
    axes.axhline(tail_max, color=INK, lw=0.8, zorder=3)
    axes.set_xlabel(f"median z (high conventionality: above {edge:.3g})")
    axes.set_ylabel(f"z, 10th percentile\n(tail novelty: below {tail_max:g})")
    below, above, before, after = (low, tail_max), (tail_max, high), (left, edge), (edge, right)
    parts = [("novel", before, below), ("conventional", after, above)]
    parts += [("balanced", after, below), ("balanced", before, above)]
    return [(label, [(x[0], y[0]), (x[1], y[0]), (x[1], y[1]), (x[0], y[1])]) for label, x, y in parts]


def _view(low: float, high: float, cut: float) -> tuple[float, float]:
    """Choose the ends of an axis of z: all works, and some room on both sides of the cut, as it is drawn."""
    least, most, middle = (math.asinh(z / _LINEAR) for z in (low, high, cut))
    room = 0.08 * max(most - least, 1.0)
    first, last = min(least, middle - room) - room, max(most, middle + room) + room
    return _LINEAR * math.sinh(first), _LINEAR * math.sinh(last)


def _between(start: float, end: float, share: float = 0.5) -> float:
    """Return the z that lies some share of the way from one to another, as it is drawn."""
    first, last = math.asinh(start / _LINEAR), math.asinh(end / _LINEAR)
    return _LINEAR * math.sinh(first + share * (last - first))


def _scale_z(axes: Axes, axis: Literal["x", "y"], ends: tuple[float, float], *, is_narrow: bool) -> None:
    """Give one axis the scale of z, with ticks that can be read."""
    scale, put, limit = (
        (axes.set_xscale, axes.set_xticks, axes.set_xlim)
        if axis == "x"
        else (axes.set_yscale, axes.set_yticks, axes.set_ylim)
    )
    scale("asinh", linear_width=_LINEAR)
    some = _TICKS[:: 2 if is_narrow else 1]
    ticks = [tick for tick in (*(-tick for tick in reversed(some)), 0, *some) if ends[0] <= tick <= ends[1]]
    put(ticks, [f"{tick:,}".replace("-", "−") for tick in ticks])
    put([], minor=True)
    limit(*ends)


def _name(axes: Axes, x: float, y: float, label: str, note: str = "") -> None:
    from matplotlib.patheffects import withStroke

    outline = [withStroke(linewidth=3, foreground="white")]  # a box would cover the works beside the letters
    look: dict[str, Any] = {"ha": "center", "va": "center", "weight": "bold", "size": 7, "zorder": 4}
    axes.text(x, y, f"{label}{note}", color=as_letters(COLOURS[label]), path_effects=outline, **look)
