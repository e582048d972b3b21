"""The pictures of a build: the CD index, novelty, novelty by year, and published against computed scores.

They are drawn from numbers that the manifest also holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata._support.quantiles import counted_quantiles
from sciscidata._support.terminal import printable
from sciscidata._support.validate import checked_config
from sciscidata.label_thresholds import DISRUPTION_LABELS, NOVELTY_LABELS, LabelThresholds, find_conventionality_cut
from sciscidata.last_year_of_data import find_last_year

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: One colour per label everywhere; colour-blind readers can tell them apart (Okabe & Ito 2008).
COLOURS = {
    "disruptive": "#D55E00",
    "consolidating": "#0072B2",
    "neutral": "#777777",
    "novel": "#007A59",  # their green, darker: as text it has to be read
    "conventional": "#A3487E",  # their purple, darker
    "balanced": "#777777",
}

_EDGE = 1.3  # of the picture: a little beyond the index's own
_WIDEST_LINEAR = 0.1
_AT_ONCE = 1 << 18  # binning takes a hundred bytes for each of them


def plot_disruption(
    cd_index: pl.Series | pl.LazyFrame,
    thresholds: LabelThresholds,
    *,
    eligible: Mapping[str, int],
    drawn: Mapping[str, int],
    path: str | Path,
    title: str = "",
) -> None:
    """Plot how the CD index is spread over the label bands, and the class counts before and after the draw.

    Args:
        cd_index: Float64, the index of every eligible work; nulls are left out. A lazy frame has it as its one column
            and is read in batches.
        thresholds: where the shaded bands end.
        eligible: works per disruption label before the draw.
        drawn: works per disruption label in the release, both splits together.
        path: the PNG file to write.
        title: shown above the picture.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> counts = {"disruptive": 1, "consolidating": 1, "neutral": 1}
        >>> with TemporaryDirectory() as folder:
        ...     picture = Path(folder) / "cd.png"
        ...     cd = pl.Series([-0.2, 0.0, 0.4])
        ...     plot_disruption(cd, LabelThresholds(), eligible=counts, drawn=counts, path=picture)
        ...     picture.read_bytes()[1:4]
        b'PNG'
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    spread, classes = figure.subplots(1, 2, width_ratios=(2, 1))
    frame = cd_index if isinstance(cd_index, pl.LazyFrame) else cd_index.to_frame().lazy()
    batches = (batch.to_series().to_numpy() for batch in collect_some(frame.drop_nulls()))
    _draw_spread(spread, batches, thresholds)
    draw_classes(classes, DISRUPTION_LABELS, eligible, drawn)
    if title:
        figure.suptitle(plain(title))
    save(figure, path)


def plain(text: str) -> str:
    """Write a text so that matplotlib draws it as it is: a dollar starts no formula, and no line is forged."""
    return printable(text).replace("$", r"\$")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG, without a window system and without global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=130, format="png")


def signed_log_edges(low: float, high: float, n_outer: int) -> tuple[float, np.ndarray]:
    """Cut -1 .. 1 into bins that are even on a signed log axis, and linear (seven bins) between the cut-offs.

    Return where the linear part ends, and the edges, ascending; ``n_outer`` of them on either side.

    Example:
        >>> linear, edges = signed_log_edges(-0.1, 0.1, 2)
        >>> linear, edges.round(3).tolist()
        (0.1, [-1.0, -0.1, -0.071, -0.043, -0.014, 0.014, 0.043, 0.071, 0.1, 1.0])
    """
    linear = min(max(min(abs(low), abs(high)), 1e-6), _WIDEST_LINEAR)
    outer = np.geomspace(linear, 1.0, n_outer)
    return linear, np.unique(np.concatenate([-outer[::-1], np.linspace(-linear, linear, 8)[1:-1], outer]))


def signed_log_axis(axes: Axes, axis: Literal["x", "y"], linear: float) -> None:
    """Scale one axis for the edges of signed_log_edges, with ticks that can be read."""
    scale = axes.set_xscale if axis == "x" else axes.set_yscale
    scale("symlog", linthresh=linear, linscale=0.6)
    ticks = [t for t in (-1, -0.1, -0.01, -0.001, 0, 0.001, 0.01, 0.1, 1) if t == 0 or abs(t) >= linear]
    put = axes.set_xticks if axis == "x" else axes.set_yticks
    put(ticks, [f"{t:g}" for t in ticks])
    put([], minor=True)
    limits = axes.set_xlim if axis == "x" else axes.set_ylim
    limits(-_EDGE, _EDGE)


def collect_some(works: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Collect a frame of works in batches, unordered, so that a picture never holds all works."""
    return works.collect_batches(chunk_size=_AT_ONCE, maintain_order=False, engine="streaming")


def _draw_spread(axes: Axes, batches: Iterable[np.ndarray], thresholds: LabelThresholds) -> None:
    """Draw a histogram on a signed log axis, linear between the cut-offs."""
    low, high = thresholds.consolidating_max, thresholds.disruptive_min
    linear, edges = signed_log_edges(low, high, 31)
    counts, n_works = np.zeros(edges.size - 1, np.int64), 0
    for values in batches:
        counts += np.histogram(values, edges)[0]
        n_works += values.size
    axes.stairs(counts, edges, fill=True, color="#333333")
    signed_log_axis(axes, "x", linear)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(0, max(10.0, 3.0 * float(counts.max(initial=1))))
    axes.minorticks_off()
    ends = np.clip([-_EDGE, low, high, _EDGE], -_EDGE, _EDGE)
    # Where they lie in the picture, from 0 at its left to 1: the middle of a band is not that of its numbers.
    places = (axes.transScale + axes.transLimits).transform(np.column_stack([ends, np.ones(4)]))[:, 0]
    for i, label in enumerate(("consolidating", "neutral", "disruptive")):
        if places[i] < places[i + 1]:
            axes.axvspan(ends[i], ends[i + 1], color=COLOURS[label], alpha=0.13, lw=0, zorder=0)
            middle = (places[i] + places[i + 1]) / 2
            axes.text(middle, 0.97, label, color=COLOURS[label], ha="center", va="top", transform=axes.transAxes)
    axes.set_xlabel("cd_index (signed log axis)")
    axes.set_ylabel("eligible works (log axis)")
    axes.set_title(f"CD index of {n_works:,} eligible works", fontsize=10)


def draw_classes(
    axes: Axes, labels: Sequence[str], eligible: Mapping[str, int], drawn: Mapping[str, int], *, n_unlabelled: int = 0
) -> None:
    """Draw the class counts side by side, each bar with its number; the title counts drawn works without a label."""
    positions = np.arange(len(labels))
    for offset, counts, alpha, name in ((-0.2, eligible, 0.4, "eligible"), (0.2, drawn, 1.0, "drawn")):
        bars = axes.bar(
            positions + offset,
            [counts[label] for label in labels],
            width=0.38,
            color=[COLOURS[label] for label in labels],
            alpha=alpha,
            label=name,
        )
        axes.bar_label(bars, fmt="{:,.0f}", fontsize=8)
    axes.set_xticks(positions, labels)
    axes.margins(y=0.12)
    axes.set_ylabel("works")
    without = f"\n({n_unlabelled:,} more drawn without a label)" if n_unlabelled else ""
    axes.set_title(f"Eligible (pale) and drawn works{without}", fontsize=10)


_LABELS = ("consolidating", "neutral", "disruptive")  # along the axis of the index
_COLOURS = "cividis"  # colour-blind readers can tell the shades apart, also in grey
_BRIGHT = 0.5  # a share from which the colour is too bright for white letters


def plot_comparison(
    published: pl.LazyFrame | pl.DataFrame,
    computed: pl.LazyFrame | pl.DataFrame,
    compared: Mapping[str, Any],
    thresholds: LabelThresholds | None = None,
    *,
    path: str | Path,
    title: str = "",
) -> None:
    """Plot published against computed CD index, and how often both give one label.

    Left: works by both scores, on signed log axes with the cut-offs dashed; equal scores lie on the diagonal. Right:
    works by both labels, each column adding up to 100 %. The caption counts the works with one of the two scores only.

    ``published`` and ``computed`` hold ``work_id`` and ``cd_index``; ``compared`` is what ``compare_scores`` says of
    them.
    """
    from matplotlib.figure import Figure

    left, right = (
        frame.lazy().select("work_id", pl.col("cd_index").fill_nan(None).alias(name)).drop_nulls()
        for name, frame in (("published", published), ("computed", computed))
    )
    both = left.join(right, on="work_id").select("published", "computed").collect(engine="streaming")
    figure = Figure(figsize=(11, 5), layout="constrained")
    plane, labels = figure.subplots(1, 2, width_ratios=(1.25, 1))
    _draw_plane(plane, both, checked_config(thresholds, LabelThresholds, name="thresholds"))
    _draw_labels(labels, compared)
    if title:
        figure.suptitle(plain(title))
    figure.supxlabel(_caption(compared), fontsize=9)
    save(figure, path)


def _draw_plane(axes: Axes, both: pl.DataFrame, thresholds: LabelThresholds) -> None:
    from matplotlib.colors import LogNorm

    low, high = thresholds.consolidating_max, thresholds.disruptive_min
    linear, edges = signed_log_edges(low, high, 25)
    values = [both[name].to_numpy() for name in ("published", "computed")]
    counts, _, _ = np.histogram2d(*values, bins=(edges, edges))
    shown = np.ma.masked_equal(counts.T, 0)  # an empty cell has no colour
    drawn = axes.pcolormesh(
        edges, edges, shown, cmap=_COLOURS, norm=LogNorm(vmin=1, vmax=max(2.0, counts.max())), rasterized=True
    )
    axes.plot([-1, 1], [-1, 1], color="black", linewidth=0.6, alpha=0.6)
    for cut in (low, high):
        for line in (axes.axvline, axes.axhline):
            line(cut, color="black", linewidth=0.6, linestyle=(0, (4, 4)), alpha=0.6)
    for axis in ("x", "y"):
        signed_log_axis(axes, axis, linear)
    axes.figure.colorbar(drawn, ax=axes, label="works (log)")
    axes.set_aspect("equal")
    axes.tick_params(axis="x", rotation=45)
    axes.set_xlabel("published cd_index (signed log axis)")
    axes.set_ylabel("computed cd_index (signed log axis)")
    axes.set_title(f"CD index of {both.height:,} works with both scores", fontsize=10)


def _draw_labels(axes: Axes, compared: Mapping[str, Any]) -> None:
    """Draw the table of labels, its axes in the order of the plane next to it."""
    counts = np.zeros((3, 3), np.int64)  # computed, published
    for cell in compared["labels"]:
        counts[_LABELS.index(cell["computed"]), _LABELS.index(cell["published"])] = cell["works"]
    totals = counts.sum(axis=0)
    shares = counts / np.maximum(totals, 1)
    axes.imshow(shares, cmap=_COLOURS, vmin=0, vmax=1, origin="lower")
    for row, column in np.ndindex(3, 3):
        text = f"{counts[row, column]:,}" + (f"\n{shares[row, column]:.1%}" if totals[column] else "")
        colour = "white" if shares[row, column] < _BRIGHT else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=9, color=colour)
    axes.set_xticks(range(3), _LABELS)
    axes.set_yticks(range(3), _LABELS, rotation=90, va="center")
    axes.set_xlabel("published label")
    axes.set_ylabel("computed label")
    axes.set_title("Works by both labels; columns add up to 100 %", fontsize=10)


def _caption(compared: Mapping[str, Any]) -> str:
    if not compared["both"]:
        text = "No work has both scores."
    else:
        spearman = "undefined" if compared["spearman"] is None else f"{compared['spearman']:.3f}"
        same = f"same sign {compared['same_sign']:.1%}, same label {compared['same_label']:.1%}"
        text = f"{compared['both']:,} works with both scores: Spearman {spearman}, {same}."
    return (
        f"{text}\nNot shown, one of the two undefined: {compared['only_published']:,} with a published score only, "
        f"{compared['only_computed']:,} with a computed score only."
    )


_SEEN = (0.005, 0.995)  # of the works lie within the plane of z: a few extremes would squeeze all others
_GRID = 45  # hexagons across
_BAND = (0.1, 0.5, 0.9)
_SERIES = {"z_median": ("#0072B2", "conventionality"), "z_p10": ("#D55E00", "tail novelty where below 0")}

Float64Array = npt.NDArray[np.float64]


def plot_novelty(
    scored: pl.LazyFrame | pl.DataFrame,
    eligible: pl.LazyFrame | pl.DataFrame,
    thresholds: LabelThresholds,
    *,
    eligible_counts: Mapping[str, int],
    drawn_counts: Mapping[str, int],
    n_unlabelled: int = 0,
    cut: float | None = None,
    path: str | Path,
) -> None:
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
        path: the PNG file to write.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> scored = pl.DataFrame({"novelty_score": [0.9, 0.2], "conventionality_score": [0.3, 0.8]})
        >>> counts = {"novel": 1, "balanced": 0, "conventional": 1}
        >>> with TemporaryDirectory() as folder:
        ...     picture = Path(folder) / "novelty.png"
        ...     plot_novelty(scored, scored, LabelThresholds(), eligible_counts=counts, drawn_counts=counts,
        ...         path=picture)
        ...     picture.read_bytes()[1:4]
        b'PNG'
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.2), layout="constrained")
    plane, classes = figure.subplots(1, 2, width_ratios=(1.5, 1))
    if thresholds.novelty_rule == "uzzi":
        points = _points(eligible, "z_median", "z_p10")
        cut = find_conventionality_cut(scored.lazy(), thresholds) if cut is None else cut
        _draw_quadrants(plane, points, cut, thresholds.uzzi_tail_max)
    else:
        points = _points(eligible, "conventionality_score", "novelty_score")
        _draw_band(plane, thresholds.novelty_margin)
    n_points, n_seen = _draw_density(plane, points)
    beyond = f", {n_points - n_seen:,} of them beyond the edges" if n_seen < n_points else ""
    title = f"{n_points:,} eligible works with a score{beyond}; rule {thresholds.novelty_rule}"
    plane.set_title(title, fontsize=10)
    draw_classes(classes, NOVELTY_LABELS, eligible_counts, drawn_counts, n_unlabelled=n_unlabelled)
    save(figure, path)


def plot_novelty_by_year(scored: pl.LazyFrame | pl.DataFrame, path: str | Path) -> None:
    """Plot for each year the median of z_median and of z_p10, and the band of the middle 80 % of works.

    ``scored`` holds publication_year and ATYPICALITY. Works without a year or a z are left out, and so are works dated
    after the last year of the others (see find_last_year).
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    shown = scored.lazy().select("publication_year", pl.col(*_SERIES).fill_nan(None)).drop_nulls()
    found = counted_quantiles(shown, "publication_year", _BAND)
    by_year = found.filter(column="z_median", share=0.5)
    last_year = find_last_year(dict(by_year.select("publication_year", "n").rows()))
    if last_year is not None:  # else one mistaken date would leave a sliver for all other years
        found, by_year = (frame.filter(pl.col("publication_year") <= last_year) for frame in (found, by_year))
    years, works = by_year["publication_year"].to_numpy(), by_year["n"].to_numpy()
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    spread, number = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    for name, (colour, meaning) in _SERIES.items():
        low, middle, high = (found.filter(column=name, share=share)["quantile"].to_numpy() for share in _BAND)
        # Bars, because a band would bridge years without works and hide a single one.
        spread.bar(years, high - low, bottom=low, width=1.0, color=colour, alpha=0.22, lw=0)
        spread.plot(years, middle, color=colour, marker="o", markersize=3, lw=1.5, label=f"{name}: {meaning}")
    spread.use_sticky_edges = False  # else the lowest band stands on the frame
    spread.axhline(0, color="#333333", lw=0.8)
    spread.set_ylabel("z: median, and 10 to 90 %")
    spread.legend(frameon=False, fontsize=9)
    spread.set_title(f"z of {works.sum():,} scored works by year of publication", fontsize=10)
    number.bar(years, works, width=0.8, color="#777777")
    number.set_ylabel("works")
    number.set_xlabel("publication_year")
    number.xaxis.set_major_locator(MaxNLocator(integer=True))
    number.ticklabel_format(axis="x", useOffset=False)
    if years.size:
        number.set_xlim(years[0] - 1.2, years[-1] + 1.2)
    save(figure, path)


def _points(works: pl.LazyFrame | pl.DataFrame, x: str, y: str) -> pl.LazyFrame:
    """Return the places of the works in the plane, x and y, without the works that lack one."""
    return works.lazy().select(pl.col(x).fill_nan(None).alias("x"), pl.col(y).fill_nan(None).alias("y")).drop_nulls()


def _draw_density(axes: Axes, points: pl.LazyFrame) -> tuple[int, int]:
    """Draw in greys how many works lie where; return how many works there are, and how many are seen."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    rows = max(1, int(_GRID / 1.8))
    extent = (left, right, low, high)
    grid = {"gridsize": (_GRID, rows), "extent": extent}
    centres, counts, n_points = _count_cells(points, grid)
    if not counts.size:
        return n_points, 0
    look = {"bins": "log", "mincnt": 1, "cmap": "Greys", "lw": 0.1}
    cells = axes.hexbin(*centres.T, C=counts, reduce_C_function=np.sum, **grid, **look)
    most = max(10.0, float(np.asarray(cells.get_array()).max(initial=1.0)))
    cells.set_clim(0.1, most)  # from a tenth of a work: a single one shall not be white
    # Hexagons stand on the edges too, and a half one looks as if something were cut off.
    across, up = 0.7 * (right - left) / _GRID, 0.7 * (high - low) / rows
    axes.set_xlim(left - across, right + across)
    axes.set_ylim(low - up, high + up)
    bar = axes.figure.colorbar(cells, ax=axes, label="works (log scale)", shrink=0.8)
    bar.ax.set_ylim(1, most)
    return n_points, int(counts.sum())


def _count_cells(points: pl.LazyFrame, grid: Mapping[str, Any]) -> tuple[Float64Array, Float64Array, int]:
    """Count the works in each hexagon, batch by batch, so that no work is kept.

    Return the centres of the hexagons in which a work lies, (n, 2); the works in each; and the number of all works.
    """
    from matplotlib.figure import Figure

    left, right, low, high = grid["extent"]
    axes = Figure().subplots()
    centres, counts, n_points = np.empty((0, 2)), np.zeros(0), 0
    for batch in collect_some(points):
        n_points += batch.height
        seen = batch.filter(pl.col("x").is_between(left, right), pl.col("y").is_between(low, high))
        if seen.height:
            cells = axes.hexbin(seen["x"].to_numpy(), seen["y"].to_numpy(), **grid)
            centres, found = np.asarray(cells.get_offsets()), np.asarray(cells.get_array())
            counts = found + (counts if counts.size else 0.0)
            axes.clear()
    return centres[counts > 0], counts[counts > 0], n_points


def _draw_band(axes: Axes, margin: float) -> None:
    """Shade the plane of the scores; the balanced lie on white along the diagonal, as wide as the margin."""
    ends = np.array([-1.0, 2.0])  # beyond what is seen, like the regions
    for label, low, high in (("conventional", -3.0, ends - margin), ("novel", ends + margin, 4.0)):
        axes.fill_between(ends, low, high, color=COLOURS[label], alpha=0.18, lw=0, zorder=0)
    for place in (ends - margin, ends + margin):
        axes.plot(ends, place, color="#333333", lw=0.8, zorder=3)
    if margin < 1:
        # Below the other diagonal: z_p10 never exceeds z_median, so sigmoids add up to 1 or more, and no work is there.
        near, far = (1 - margin) / 6, (1 + margin) / 2
        _name(axes, near, far, "novel")
        _name(axes, far, near, "conventional")
    _name(axes, 0.12, 0.12, "balanced")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("conventionality_score (high: its usual pair of venues is common)")
    axes.set_ylabel("novelty_score (high: its rare pairs are atypical)")


def _draw_quadrants(axes: Axes, points: pl.LazyFrame, cut: float | None, tail_max: float) -> None:
    """Shade the plane of z by the two cuts; balanced stays white, so that greys are works."""
    edge = tail_max if cut is None else cut
    found = counted_quantiles(points.with_columns(pl.lit(0).alias("all")), "all", _SEEN)
    left, right = _view(found.filter(column="x")["quantile"].to_list(), edge)
    low, high = _view(found.filter(column="y")["quantile"].to_list(), tail_max)
    wide, tall = right - left, high - low  # more than is seen: shades shall not end at the outermost works
    for label, across, up in (
        ("novel", (left - wide, edge), (low - tall, tail_max)),
        ("conventional", (edge, right + wide), (tail_max, high + tall)),
    ):
        axes.fill_between(across, *up, color=COLOURS[label], alpha=0.18, lw=0, zorder=0)
    # Near the upper and the lower end: the works are thickest where the regions meet.
    bottom, top = low + 0.1 * (tail_max - low), high - 0.1 * (high - tail_max)
    _name(axes, (left + edge) / 2, bottom, "novel")
    _name(axes, (edge + right) / 2, top, "conventional")
    _name(axes, (edge + right) / 2, bottom, "balanced", "both")
    _name(axes, (left + edge) / 2, top, "balanced", "neither")
    axes.axvline(edge, color="#333333", lw=0.8, zorder=3)
    axes.axhline(tail_max, color="#333333", lw=0.8, zorder=3)
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.set_xlabel(f"z_median (high conventionality: above {edge:.3g}, the cut of all scored works)")
    axes.set_ylabel(f"z_p10 (tail novelty: below {tail_max:g})")


def _view(ends: Sequence[float], cut: float) -> tuple[float, float]:
    """Choose the ends of an axis: nearly all works, and some room on both sides of the cut."""
    low, high = ends or (cut, cut)
    room = 0.2 * max(high - low, 1.0)
    return min(low, cut - room) - room, max(high, cut + room) + room


def _name(axes: Axes, x: float, y: float, label: str, note: str = "") -> None:
    from matplotlib.patheffects import withStroke

    text = f"{label}\n({note})" if note else label
    outline = [withStroke(linewidth=3, foreground="white")]  # a box would cover the works beside the letters
    axes.text(x, y, text, color=COLOURS[label], ha="center", va="center", weight="bold", zorder=4, path_effects=outline)
