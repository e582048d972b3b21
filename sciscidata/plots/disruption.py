"""Pictures of the CD index: how it is spread, and two indices of the same works side by side.

CD by year is in ``by_year_and_field.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import polars as pl

from sciscidata.errors import ConfigError
from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import DISRUPTION_LABELS, LABELS_BY_INDEX, LabelThresholds
from sciscidata.options.checks import checked_config
from sciscidata.plots._parts import (
    EDGE,
    collect_some,
    count_works,
    draw_classes,
    signed_log_axis,
    signed_log_edges,
)
from sciscidata.plots.estimates import add_up, draw_line, name_hollow, refuse_nothing
from sciscidata.plots.figure import COLOURS, INK, Look, drawing
from sciscidata.records.ids import ORIGINAL_ID
from sciscidata.schemas import CD_SCORES, CD_SWEEP, require_columns
from sciscidata.sources.sciscinet.published_scores import compare_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = "cividis"  # colour-blind readers can tell the shades apart, also in grey
_LOWER = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
_MOST_LINES = 2 * len(_DASHES)
_BRIGHT = 0.5  # a share from which the colour is too bright for white letters


def plot_disruption(
    scores: AnyFrame,
    thresholds: LabelThresholds | None = None,
    *,
    eligible: Mapping[str, int] | None = None,
    drawn: Mapping[str, int] | None = None,
    **look: Unpack[Look],
) -> Figure:
    r"""Plot how the CD index is spread over the label bands, and the class counts before and after a draw.

    Args:
        scores: ``cd_index`` of every work; nulls are left out. A lazy frame is read in batches. Or a Series.
        thresholds: where the shaded bands end; ``LabelThresholds()`` when None.
        eligible: works per disruption label before the draw. Without both counts there is one panel.
        drawn: works per disruption label in the release, both splits together.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: the distribution on a signed log axis, and the class counts if they are given.

    Raises:
        ConfigError: an option of the picture is wrong, or only one of ``eligible`` and ``drawn`` is given.
        EmptyInputError: ``cd_index`` is null in all rows.
        SchemaMismatchError: the frame has no ``cd_index``.

    Example:
        >>> figure = plot_disruption(pl.Series([-0.2, 0.0, 0.4]), data="three works", width="one")
        >>> figure.get_suptitle().replace("\n", " ")
        'Distribution of the CD index of 3 works over the label bands, on log axes. Data: three works.'
    """
    if (eligible is None) != (drawn is None):
        raise ConfigError("eligible and drawn are shown side by side. Give both, or neither.")
    frame = scores.alias("cd_index").to_frame() if isinstance(scores, pl.Series) else scores
    lazy = require_columns(
        frame, CD_SCORES, frame_name="the frame", stage="plot_disruption", columns=["cd_index"]
    ).select(pl.col("cd_index").fill_nan(None))
    batches = (batch.to_series().to_numpy() for batch in collect_some(lazy.drop_nulls()))
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    heights = (60, 50) if eligible is not None and drawn is not None else (60,)
    with drawing(look, heights_mm=heights, ratios=(2, 1)[: len(heights)]) as picture:
        n_works = _draw_spread(picture.panels[0], batches, cut)
        if not n_works and eligible is None:  # a build has counts to show
            refuse_nothing(lazy, ["cd_index"], "plot_disruption")
        picture.panels[0].tick_params(axis="x", labelsize=6 if picture.is_narrow else 7)
        of_works = f"{n_works:,} eligible works" if eligible is not None else count_works(n_works)
        bands = "" if cut.cells else " over the label bands"
        picture.title = f"Distribution of the CD index of {of_works}{bands}, on log axes."
        if eligible is not None and drawn is not None:
            picture.panels[0].set_ylabel("eligible works (log axis)")
            draw_classes(picture.panels[1], DISRUPTION_LABELS, eligible, drawn)
    return picture.figure


def _draw_spread(axes: Axes, batches: Iterable[np.ndarray], thresholds: LabelThresholds) -> int:
    """Draw a histogram on a signed log axis, linear between the cut-offs; return the number of works."""
    low, high = thresholds.consolidating_max, thresholds.disruptive_min
    linear, edges = signed_log_edges(low, high, 31)
    counts, n_works = np.zeros(edges.size - 1, np.int64), 0
    for values in batches:
        counts += np.histogram(values, edges)[0]
        n_works += values.size
    axes.stairs(counts, edges, fill=True, color=INK)
    signed_log_axis(axes, "x", linear)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(0, max(10.0, 5.0 * float(counts.max(initial=1))))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    ends = np.clip([-EDGE, low, high, EDGE], -EDGE, EDGE)
    # Where they lie in the picture, from 0 at its left to 1. The middle of a band is not that of its numbers.
    positions = (axes.transScale + axes.transLimits).transform(np.column_stack([ends, np.ones(4)]))[:, 0]
    for i, label in enumerate(LABELS_BY_INDEX):
        if positions[i] < positions[i + 1] and not thresholds.cells:  # cells differ in their bands
            axes.axvspan(ends[i], ends[i + 1], color=COLOURS[label], alpha=0.13, lw=0, zorder=0)
            middle = (positions[i] + positions[i + 1]) / 2
            axes.text(
                *(middle, 0.97, label), color=COLOURS[label], ha="center", va="top", transform=axes.transAxes, size=7
            )
    axes.set_xlabel("CD index (signed log axis)")
    axes.set_ylabel("works (log axis)")
    return n_works


def plot_comparison(
    published: AnyFrame,
    computed: AnyFrame,
    compared: Mapping[str, Any] | None = None,
    thresholds: LabelThresholds | None = None,
    **look: Unpack[Look],
) -> Figure:
    """Plot published against computed CD index, and how often both give one label.

    (a) works by both scores, on signed log axes with the cut-offs dashed; equal scores lie on the diagonal. (b) works
    by both labels, each column adding up to 100%. The title counts the works with one of the two scores only.

    Args:
        published: ``work_id`` and ``cd_index``.
        computed: the same.
        compared: what ``compare_scores`` says of them; computed here when None.
        thresholds: where labels end; ``LabelThresholds()`` when None.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with two panels.

    Example:
        >>> theirs = pl.DataFrame({"work_id": [1, 2, 3], "cd_index": [0.5, -0.1, 0.0]})
        >>> ours = pl.DataFrame({"work_id": [1, 2, 3], "cd_index": [0.4, -0.2, None]})
        >>> len(plot_comparison(theirs, ours).axes)  # and the scale of the colours
        3
    """
    return _plot_two((published, computed), ("published", "computed"), compared, thresholds, look, "plot_comparison")


def plot_windows(
    shorter: AnyFrame,
    longer: AnyFrame,
    thresholds: LabelThresholds | None = None,
    *,
    windows: tuple[int | None, int | None] | None = None,
    **look: Unpack[Look],
) -> Figure:
    """Plot the CD index of one citation window against that of another, and how often both give one label.

    Args:
        shorter: ``work_id`` and ``cd_index``, for example of ``CDConfig(window_years=5)``.
        longer: the same, of the other window.
        thresholds: where labels end; ``LabelThresholds()`` when None.
        windows: years of both windows, to name them, since scores do not say theirs; of one, None: no upper bound.
            Without them the axes say "shorter window" and "longer window".
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with two panels, as in ``plot_comparison``.

    Example:
        >>> five = pl.DataFrame({"work_id": [1, 2], "cd_index": [0.5, -0.1]})
        >>> ten = pl.DataFrame({"work_id": [1, 2], "cd_index": [0.4, 0.2]})
        >>> plot_windows(five, ten, windows=(5, 10)).axes[0].get_ylabel()
        'CD₁₀ (signed log axis)'
    """
    first, second = "CD (shorter window)", "CD (longer window)"
    if windows is not None:
        first, second = ("CD of all years" if years is None else f"CD{years}".translate(_LOWER) for years in windows)
    return _plot_two((shorter, longer), (first, second), None, thresholds, look, "plot_windows")


def plot_cd_trajectory(trajectory: AnyFrame, works: Sequence[int | str] = (), **look: Unpack[Look]) -> Figure:
    """Plot how the CD index changes with the age of works: mean and quartiles, or chosen works one by one.

    Args:
        trajectory: work_id, age and cd_index, as of ``indicators.compute_cd_trajectory``. Undefined values are left
            out, so an age may have fewer works than another one.
        works: the work_id, or the original_id, of works that get a line each, at most ten. Empty: all works together.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with one panel.

    Raises:
        ConfigError: an option is wrong, more than ten works are chosen, or one of them has no index at any age.
        SchemaMismatchError: a column is missing or mistyped.

    Example:
        >>> found = pl.DataFrame({"work_id": [7, 7], "age": [1, 2], "cd_index": [1.0, 0.5]})
        >>> figure = plot_cd_trajectory(found.cast({"age": pl.Int32}), works=[7])
        >>> figure.axes[0].get_ylabel(), figure.get_label()
        ('CD index', 'CD index of work 7 by its age.')
    """
    from matplotlib.ticker import MaxNLocator

    columns = {"work_id": pl.Int64(), "age": pl.Int32(), "cd_index": pl.Float64()}
    rows = require_columns(trajectory, columns, frame_name="the frame", stage="plot_cd_trajectory")
    chosen = [*dict.fromkeys([works] if isinstance(works, str) else works)]
    if chosen and ORIGINAL_ID in rows.collect_schema() and all(isinstance(work, str) for work in chosen):
        rows = rows.with_columns(pl.col(ORIGINAL_ID).cast(pl.String).alias("work_id"))
    elif strange := [work for work in chosen if isinstance(work, bool) or not isinstance(work, Integral)]:
        raise ConfigError(
            f"works holds {strange[0]!r}, needs whole numbers from the column work_id, or text alone where the "
            "trajectory has original_id."
        )
    rows = rows.select(columns.keys()).with_columns(pl.col("cd_index").fill_nan(None)).drop_nulls()
    if len(chosen) > _MOST_LINES:
        raise ConfigError(
            f"works holds {len(chosen)} works, needs at most {_MOST_LINES}: more lines cannot be told apart."
        )
    with drawing(look, heights_mm=(60,)) as picture:
        (axes,) = picture.panels
        axes.axhline(0, color=INK, lw=0.6)
        picture.title = _draw_works(axes, rows, chosen) if chosen else _draw_quartiles(axes, rows)
        axes.set_xlabel("years after publication")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel("CD index")
        axes.legend(loc="best")
    return picture.figure


def plot_cd_sweep(sweep: AnyFrame, **look: Unpack[Look]) -> Figure:
    """Plot the mean CD index by publication year, in each convention and window.

    Args:
        sweep: CD_SWEEP, as ``sciscidata sweep`` writes it. With null_mean, the mean of the null model stands beside,
            dashed. Undefined values are left out, so each line has works of its own.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: one panel for each convention, in the order of their names.

    Raises:
        SchemaMismatchError: a column is missing or mistyped.

    Example:
        >>> rows = {"publication_year": [1990, 1991], "convention": "default", "window": "5", "cd_index": [0.5, 0.4]}
        >>> figure = plot_cd_sweep(pl.DataFrame(rows, schema_overrides={"publication_year": pl.Int32}))
        >>> figure.get_label()
        'Mean CD index by publication year, 1 convention and 1 window. Hollow: fewer than 30 works.'
    """
    from matplotlib.ticker import MaxNLocator

    read = ("publication_year", "convention", "window", "cd_index")
    rows = require_columns(sweep, CD_SWEEP, frame_name="the frame", stage="plot_cd_sweep", columns=read)
    nulls = ["null_mean"] if "null_mean" in rows.collect_schema() else []
    keys = ("publication_year", "convention", "window")
    shown = add_up(rows.select(*keys, "cd_index", *nulls).drop_nulls("publication_year"), keys, ["cd_index", *nulls])
    shown = shown.filter(pl.col("n_cd_index") > 0)
    conventions = sorted(shown["convention"].unique()) or ["no scores"]
    windows = sorted(shown["window"].unique(), key=lambda name: (not name[:1].isdigit(), len(name), name))
    is_hollow = False
    with drawing(look, heights_mm=(52,) * len(conventions)) as picture:
        for axes, convention in zip(picture.panels, conventions, strict=True):
            axes.axhline(0, color=INK, lw=0.6)
            for number, window in enumerate(windows):
                line = shown.filter(convention=convention, window=window)
                shade = 1 - 0.75 * number / max(len(windows) - 1, 1)
                name = "no end" if window == "all" else f"{window} years" if window.isdigit() else window
                years, works = (line[name].to_numpy() for name in ("publication_year", "n_cd_index"))
                shown_as: dict[str, Any] = {"color": INK, "alpha": shade}
                is_hollow |= draw_line(axes, years, line["mean_cd_index"].to_numpy(), works, label=name, **shown_as)
                for null in nulls:
                    axes.plot(years, line[f"mean_{null}"], ls="--", lw=0.8, **shown_as)
            axes.set_ylabel(f"mean CD index\n{convention}")
            axes.set_xlabel("publication year")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        note = "; dashed: null model" if nulls else ""
        picture.panels[0].legend(loc="best", title=f"window{note}")
        counted = f"{len(conventions)} convention{'s' * (len(conventions) > 1)}"
        picture.title = (
            f"Mean CD index by publication year, {counted} and {len(windows)} window{'s' * (len(windows) != 1)}."
            + name_hollow(is_hollow)
        )
    return picture.figure


def _draw_works(axes: Axes, rows: pl.LazyFrame, chosen: Sequence[int | str]) -> str:
    """Draw a line for each chosen work, and return the title."""
    lines = rows.filter(pl.col("work_id").is_in(chosen)).sort("age").collect(engine="streaming")
    for number, work in enumerate(chosen):
        line = lines.filter(work_id=work)
        if line.is_empty():
            raise ConfigError(f"work {work} has no CD index at any age. Choose works that have one.")
        at, index = line["age"].to_numpy(), line["cd_index"].to_numpy()
        (drawn,) = axes.plot(at, index, color=INK, marker="o", markersize=2.5, label=f"work {work}")
        drawn.set(alpha=1 - 0.6 * (number % 2), linestyle=_DASHES[number // 2])
    names = ", ".join(str(work) for work in chosen)
    return f"CD index of work {names} by its age." if len(chosen) == 1 else f"CD index of works {names} by their age."


def _draw_quartiles(axes: Axes, rows: pl.LazyFrame) -> str:
    """Draw mean, median and middle half of all works at each age, and return the title."""
    index = pl.col("cd_index")
    quartiles = [index.quantile(share, "linear").alias(f"q{share}") for share in (0.25, 0.5, 0.75)]
    by_age = rows.group_by("age").agg(index.mean().alias("mean"), pl.len().alias("n"), *quartiles).sort("age")
    shown = by_age.collect(engine="streaming")
    n_works: int = rows.select(pl.col("work_id").n_unique()).collect(engine="streaming").item()
    age, mean, n, low, middle, high = (shown[name].to_numpy() for name in shown.columns)
    axes.fill_between(age, low, high, color=INK, alpha=0.2, lw=0, label="middle half")
    axes.plot(age, middle, color=INK, ls="--", label="median")
    is_hollow = draw_line(axes, age, mean, n, color=INK, label="mean")
    fewest, most = int(n.min(initial=n_works)), int(n.max(initial=0))
    number = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return f"CD index of {count_works(n_works)} by age, with {number} at each age.{name_hollow(is_hollow)}"


def _plot_two(
    frames: tuple[AnyFrame, AnyFrame],
    names: tuple[str, str],
    compared: Mapping[str, Any] | None,
    thresholds: LabelThresholds | None,
    look: Look,
    stage: str,
) -> Figure:
    """Draw the plane of two indices of the same works and the table of both labels."""
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    published, computed = (
        require_columns(frame, CD_SCORES, frame_name=name, stage=stage, columns=("work_id", "cd_index"))
        for name, frame in zip(names, frames, strict=True)
    )
    compared = compare_scores(published, computed, cut) if compared is None else compared
    left, right = (
        frame.select("work_id", pl.col("cd_index").fill_nan(None).alias(name)).drop_nulls()
        for name, frame in (("published", published), ("computed", computed))
    )
    both = left.join(right, on="work_id").select("published", "computed").collect(engine="streaming")
    with drawing(look, heights_mm=(80, 78), ratios=(1.3, 1)) as picture:
        _draw_plane(picture.panels[0], both, cut, names)
        _draw_labels(picture.panels[1], compared, names)
        picture.title = describe_two(compared, names)
    return picture.figure


def _draw_plane(axes: Axes, both: pl.DataFrame, thresholds: LabelThresholds, names: tuple[str, str]) -> None:
    from matplotlib.colors import LogNorm

    low, high = thresholds.consolidating_max, thresholds.disruptive_min
    linear, edges = signed_log_edges(low, high, 25)
    values = [both[name].to_numpy() for name in ("published", "computed")]
    counts, _, _ = np.histogram2d(*values, bins=(edges, edges))
    shown = np.ma.masked_equal(counts.T, 0)  # an empty cell has no colour
    norm = LogNorm(vmin=1, vmax=max(2.0, counts.max()))
    drawn = axes.pcolormesh(edges, edges, shown, cmap=_COLOURS, norm=norm, rasterized=True)
    axes.plot([-1, 1], [-1, 1], color="black", linewidth=0.6, alpha=0.6)
    for cut in (low, high):
        for line in (axes.axvline, axes.axhline):
            line(cut, color="black", linewidth=0.6, linestyle=(0, (4, 4)), alpha=0.6)
    for axis in ("x", "y"):
        signed_log_axis(axes, axis, linear)
    axes.figure.colorbar(drawn, ax=axes, label="works (log scale)", shrink=0.8)
    axes.set_aspect("equal")
    for tick in axes.get_xticklabels():
        tick.set(rotation=45, ha="right", rotation_mode="anchor")
    axes.set_xlabel(f"{_index(names[0])} (signed log axis)")
    axes.set_ylabel(f"{_index(names[1])} (signed log axis)")
    axes.set_title("a", loc="left", fontweight="bold")


def _index(name: str) -> str:
    return name if "CD" in name else f"{name} CD index"


def _draw_labels(axes: Axes, compared: Mapping[str, Any], names: tuple[str, str]) -> None:
    """Draw the table of labels, its axes in the order of the plane next to it."""
    counts = np.zeros((3, 3), np.int64)  # computed, published
    for cell in compared["labels"]:
        counts[LABELS_BY_INDEX.index(cell["computed"]), LABELS_BY_INDEX.index(cell["published"])] = cell["works"]
    totals = counts.sum(axis=0)
    shares = counts / np.maximum(totals, 1)
    axes.imshow(shares, cmap=_COLOURS, vmin=0, vmax=1, origin="lower")
    for row, column in np.ndindex(3, 3):
        text = f"{counts[row, column]:,}" + (f"\n{shares[row, column]:.1%}" if totals[column] else "")
        colour = "white" if shares[row, column] < _BRIGHT else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(3), LABELS_BY_INDEX, fontsize=7)
    axes.set_yticks(range(3), LABELS_BY_INDEX, rotation=90, va="center", fontsize=7)
    axes.tick_params(length=0)
    axes.set_xlabel(f"label by {_index(names[0])}")
    axes.set_ylabel(f"label by {_index(names[1])}")
    axes.set_title("b", loc="left", fontweight="bold")


def describe_two(compared: Mapping[str, Any], names: tuple[str, str]) -> str:
    """Say in sentences what ``compare_scores`` found."""
    first, second = names
    what = f"{first} against {second}" if "CD" in first else f"{first.capitalize()} against {second} CD index"
    if not compared["both"]:
        text = f"{what}: no work has both scores."
    else:
        spearman = "undefined" if compared["spearman"] is None else f"{compared['spearman']:.3f}"
        same = f"same sign {compared['same_sign']:.1%}, same label {compared['same_label']:.1%}"
        text = f"{what} of {count_works(compared['both'])}: Spearman {spearman}, {same}."
    text += " (a) Works by both scores, cut-offs dashed; (b) works by both labels, columns add up to 100%."
    only = {first: compared["only_published"], second: compared["only_computed"]}
    hidden = [f"{n:,} with {name} score only" for name, n in only.items() if n]
    return text + (f" Not shown: {' and '.join(hidden)}." if hidden else "")
