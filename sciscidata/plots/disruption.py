"""Pictures of the CD index: how it is spread, also beside its null model, by age and window, and two of it compared.

CD by year is in ``by_year_and_field.py``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

import numpy as np
import polars as pl

from sciscidata.disruption.compare import compare_scores
from sciscidata.disruption.null_model import NULL_CD_INDEX
from sciscidata.errors import ConfigError, EmptyInputError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.intervals import mean_interval
from sciscidata.judged import LeftOut, Population, choose_population, window_of
from sciscidata.label_thresholds import (
    LABELS_BY_INDEX,
    LabelThresholds,
    compute_disruption_labels,
)
from sciscidata.options.checks import checked_config
from sciscidata.plots.by_group import (
    FEW,
    Drawn,
    Panel,
    Reading,
    add_drawn,
    draw_line,
    draw_panel,
    fit_name,
    free_colours,
    name_hollow,
    put_legend_outside,
)
from sciscidata.plots.figure import Look, count_works, drawing, letter_panels, tick_numbers, write_share
from sciscidata.plots.labels import draw_classes
from sciscidata.plots.measure import add_up, collect_some, estimate, refuse_nothing
from sciscidata.plots.palette import COLOURS, DASHES, INK, LINES, MARKERS, PALE, RAMP, as_letters, letters_on
from sciscidata.records.ids import ORIGINAL_ID, warn_of_repeated_works
from sciscidata.release.findings import say_classes
from sciscidata.schemas import CD_SCORES, CD_SWEEP, Corpus, require_columns
from sciscidata.terminal.messages import counted
from sciscidata.terminal.shares import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_EDGE: Final = 1.3  # of the picture: a little beyond the index's own
_WIDEST_LINEAR: Final = 0.1
_LOWER = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_MOST_LINES = len(MARKERS)
_GAPS: Final = " Gaps beside 0: such values need hundreds of citations."
_TITLE_LETTERS = 32  # of a title, as the name of a work
_WORK_MM = 54.0  # of that name
_FAR: Final = 2.0  # standard deviations of the draws
_BANDS: Final = {
    f"z < −{_FAR:g}": COLOURS["consolidating"],
    f"|z| ≤ {_FAR:g}": PALE,
    f"z > {_FAR:g}": COLOURS["disruptive"],
    "no z": "white",
}


def plot_disruption(
    scores: AnyFrame,
    thresholds: LabelThresholds | None = None,
    *,
    eligible: Mapping[str, int] | None = None,
    drawn: Mapping[str, int] | None = None,
    population: Population = "judged",
    **look: Unpack[Look],
) -> Figure:
    r"""Plot how the CD index is spread over the label bands, and the class counts before and after a draw.

    Args:
        scores: ``cd_index`` of every work; nulls are left out. A lazy frame is read in batches. Or a Series.
        thresholds: where the shaded bands end; ``LabelThresholds()`` when None.
        eligible: works per disruption label before the draw, of those that count. Without both counts there is one
            panel.
        drawn: the same in the release, both splits together.
        population: as in ``measure_by``; the caption counts the works that are left out.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: the distribution on a signed log axis, and the class counts if they are given.

    Raises:
        ConfigError: an option of the picture is wrong, or only one of ``eligible`` and ``drawn`` is given.
        EmptyInputError: ``cd_index`` is null in all rows.
        SchemaMismatchError: the frame has no ``cd_index``.

    Example:
        >>> index = pl.Series([-0.2, 0.0, 0.4])
        >>> figure = plot_disruption(index, population="all", data="three works", width="one")
        >>> figure.get_suptitle().replace("\n", " ")
        'No class has most of the 3 papers: 1 consolidates, 1 is neutral, 1 disrupts'
    """
    if (eligible is None) != (drawn is None):
        raise ConfigError("eligible and drawn are shown side by side. Give both, or neither.")
    frame = scores.alias("cd_index").to_frame() if isinstance(scores, pl.Series) else scores
    lazy, left_out = _read_index(frame, CD_SCORES, ("cd_index",), population, "plot_disruption")
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    heights = (60, 50) if eligible is not None and drawn is not None else (60,)
    with drawing(look, heights_mm=heights, ratios=(2, 1)[: len(heights)]) as picture:
        axes = picture.panels[0]
        linear, edges = _signed_log_edges(cut, 31)
        counts = np.zeros(edges.size - 1, np.int64)
        by_label = dict.fromkeys(map(str, LABELS_BY_INDEX), 0)
        works = lazy.drop_nulls()
        for batch in collect_some(works if cut.cells else compute_disruption_labels(works, cut)):
            counts += np.histogram(batch["cd_index"].to_numpy(), edges)[0]
            for label in () if cut.cells else LABELS_BY_INDEX:
                by_label[label] += int((batch["disruption_label"] == label).sum())
        n_works = int(counts.sum())
        if not n_works and eligible is None:  # a build has counts to show
            refuse_nothing(lazy, ["cd_index"], "plot_disruption")
        _draw_spread(axes, {"": counts}, linear, edges, is_narrow=picture.is_narrow)
        if not cut.cells:  # cells differ in their bands
            _draw_bands(axes, cut, by_label)
        of_works = count_works(n_works) + (" that may be drawn" if eligible is not None else "")
        bands = "" if cut.cells else " over the label bands"
        said = f"Distribution of the CD index of {of_works}{bands}, on a signed log axis."
        picture.caption = f"{said}{_GAPS}{left_out.describe()}"
        picture.finding = say_classes(by_label if eligible is None else eligible)
        if eligible is not None and drawn is not None:
            noun = "judged works" if left_out.is_any else "works"
            axes.set_ylabel("works that may be drawn")
            draw_classes(picture.panels[1], LABELS_BY_INDEX, eligible, drawn, noun=noun)
    return picture.figure


def _read_index(
    frame: AnyFrame, schema: pl.Schema, columns: Sequence[str], population: Population, stage: str
) -> tuple[pl.LazyFrame, LeftOut]:
    """Read columns of the works that count."""
    read = require_columns(frame, schema, frame_name="the frame", stage=stage, columns=columns)
    warn_of_repeated_works(read, stage)
    read, left_out = choose_population(read, "cd_index", population, stage)
    return read.select(pl.col(columns).fill_nan(None)), left_out


def _draw_spread(
    axes: Axes, counts: Mapping[str, np.ndarray], linear: float, edges: np.ndarray, *, is_narrow: bool
) -> None:
    """Draw histograms by name on a signed log axis, linear between the cut-offs; the first one is filled."""
    (name, first), *others = counts.items()
    axes.stairs(first, edges, fill=True, color=PALE if others else INK, label=name)
    for name, other in others:
        axes.stairs(other, edges, color=INK, lw=1.2, label=name)
    _signed_log_axis(axes, "x", linear, step=2 if is_narrow else 1)
    highest = max(float(one.max()) for one in counts.values())
    axes.set_ylim(0, (1.4 if others else 1.3) * max(highest, 1.0))  # with room for words
    axes.yaxis.set_major_formatter("{x:,.0f}")
    tick_numbers(axes.yaxis, 5)
    axes.set_xlabel("CD index (signed log axis)")
    axes.set_ylabel("works")


def _draw_bands(axes: Axes, thresholds: LabelThresholds, counts: Mapping[str, int]) -> None:
    """Shade the band of each label, and write its name, works and share."""
    ends = np.clip([-_EDGE, thresholds.consolidating_max, thresholds.disruptive_min, _EDGE], -_EDGE, _EDGE)
    # Where they lie in the picture, from 0 at its left to 1. The middle of a band is not that of its numbers.
    positions = (axes.transScale + axes.transLimits).transform(np.column_stack([ends, np.ones(4)]))[:, 0]
    for i, label in enumerate(LABELS_BY_INDEX):
        if positions[i] < positions[i + 1]:
            axes.axvspan(ends[i], ends[i + 1], color=COLOURS[label], alpha=0.13, lw=0, zorder=0)
            share = percent(counts[label] / max(sum(counts.values()), 1))
            place = ((positions[i] + positions[i + 1]) / 2, 0.97, f"{label}\n{counts[label]:,} ({share})")
            look: dict[str, Any] = {"ha": "center", "va": "top", "transform": axes.transAxes, "size": 7}
            axes.text(*place, color=as_letters(COLOURS[label]), **look)


def _signed_log_edges(thresholds: LabelThresholds, n_outer: int) -> tuple[float, np.ndarray]:
    """Cut -1 .. 1 into bins: ``n_outer`` even on a log axis on either side, seven linear ones between the cut-offs.

    Example:
        >>> linear, edges = _signed_log_edges(LabelThresholds(consolidating_max=-0.1, disruptive_min=0.1), 2)
        >>> linear, edges.round(3).tolist()
        (0.1, [-1.0, -0.1, -0.071, -0.043, -0.014, 0.014, 0.043, 0.071, 0.1, 1.0])
    """
    nearest = min(abs(thresholds.consolidating_max), abs(thresholds.disruptive_min))
    linear = min(max(nearest, 1e-6), _WIDEST_LINEAR)
    outer = np.geomspace(linear, 1.0, n_outer)
    return linear, np.unique(np.concatenate([-outer[::-1], np.linspace(-linear, linear, 8)[1:-1], outer]))


def _signed_log_axis(axes: Axes, axis: Literal["x", "y"], linear: float, *, step: int = 1) -> None:
    """Scale one axis for the edges of _signed_log_edges, with ticks that can be read: every one, or every second."""
    scale = axes.set_xscale if axis == "x" else axes.set_yscale
    scale("symlog", linthresh=linear, linscale=0.6)
    powers = [10.0**power for power in range(-3, 1) if 10.0**power >= linear * (1 - 1e-9)]
    powers = powers[::-1][::step][::-1]
    ticks = [*(-power for power in reversed(powers)), 0, *powers]
    put = axes.set_xticks if axis == "x" else axes.set_yticks
    put(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
    put([], minor=True)
    limits = axes.set_xlim if axis == "x" else axes.set_ylim
    limits(-_EDGE, _EDGE)


def plot_null_cd_index(
    scores: AnyFrame,
    thresholds: LabelThresholds | None = None,
    *,
    population: Population = "judged",
    **look: Unpack[Look],
) -> Figure:
    r"""Plot how the CD index and its null mean are spread, and how far each label lies from chance.

    Args:
        scores: what ``compute_null_cd_index`` gives, read in batches; works without an index or a null mean are left
            out.
        thresholds: of the labels; ``LabelThresholds()`` when None.
        population: as in ``measure_by``, by the columns of ``compute_cd_index``, joined by ``work_id``.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: (a) both distributions on a signed log axis, and (b) for each label the works whose z is above 2,
        below -2, or neither.

    Raises:
        EmptyInputError: no work has an index and a null mean.
        SchemaMismatchError: a column is missing.

    Example:
        >>> scores = pl.DataFrame({"cd_index": [0.4, -0.2], "null_mean": [0.1, -0.1], "z": [2.5, None]})
        >>> figure = plot_null_cd_index(scores, data="two works")
        >>> figure.get_label().partition(":")[0]
        'CD index of 2 works and its mean over draws of a null model, on a signed log axis'
    """
    columns = ("cd_index", "null_mean", "z")
    lazy, left_out = _read_index(scores, NULL_CD_INDEX, columns, population, "plot_null_cd_index")
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    linear, edges = _signed_log_edges(cut, 31)
    spread = {name: np.zeros(edges.size - 1, np.int64) for name in ("observed", "mean of the draws")}
    by_label = {label: np.zeros(len(_BANDS), np.int64) for label in LABELS_BY_INDEX}
    band = (
        pl.when(pl.col("z").is_null()).then(3).when(pl.col("z") > _FAR).then(2).when(pl.col("z") < -_FAR).then(0)
    ).otherwise(1)
    works = compute_disruption_labels(lazy.drop_nulls(["cd_index", "null_mean"]), cut)
    for batch in collect_some(works.with_columns(band=band)):
        for counts, name in zip(spread.values(), ("cd_index", "null_mean"), strict=True):
            counts += np.histogram(batch[name].to_numpy(), edges)[0]
        for label, band_of, n in batch.group_by("disruption_label", "band").len().rows():
            by_label[label][band_of] += n
    n_works = int(sum(counts.sum() for counts in by_label.values()))
    if not n_works:
        refuse_nothing(lazy, ["cd_index", "null_mean"], "plot_null_cd_index")
    with drawing(look, heights_mm=(60, 50), ratios=(1.5, 1)) as picture:
        left, right = picture.panels
        _draw_spread(left, spread, linear, edges, is_narrow=picture.is_narrow)
        left.legend(loc="upper left")
        _draw_shares_of_z(right, by_label)
        letter_panels(picture)
        picture.caption = (
            f"CD index of {count_works(n_works)} and its mean over draws of a null model, on a signed log axis: "
            f"(a) how both are spread, (b) z by label, beyond chance from {_FAR:g} on.{left_out.describe()}"
        )
        far = {"consolidating": by_label["consolidating"][0], "disruptive": by_label["disruptive"][2]}
        shares = [percent(n / max(int(by_label[label].sum()), 1)) for label, n in far.items()]
        picture.finding = "{} of consolidating labels lie beyond chance, {} of disruptive ones".format(*shares)
    return picture.figure


def _draw_shares_of_z(axes: Axes, by_label: Mapping[str, np.ndarray]) -> None:
    """Stack the shares of the bands of z, one bar per label."""
    totals = np.array([max(int(counts.sum()), 1) for counts in by_label.values()])
    bottom = np.zeros(len(by_label))
    bands = [band for band in enumerate(_BANDS.items()) if any(counts[band[0]] for counts in by_label.values())]
    for i, (name, colour) in bands:
        shares = np.array([counts[i] for counts in by_label.values()]) / totals
        hatch = "////" if colour == "white" else None
        look: dict[str, Any] = {"color": colour, "ec": INK, "lw": 0.4, "hatch": hatch, "label": name}
        bars = axes.bar(range(len(by_label)), shares, 0.7, bottom, **look)
        labels = [percent(share) if share >= 0.06 and not hatch else "" for share in shares]
        axes.bar_label(bars, labels, label_type="center", fontsize=7, color=letters_on(colour))
        bottom += shares
    names = [f"{label}\n{int(counts.sum()):,}" for label, counts in by_label.items()]
    axes.set_xticks(range(len(names)), names)
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(write_share)
    axes.set_ylabel("share of works")
    close = {"columnspacing": 0.7, "handlelength": 0.9, "handletextpad": 0.4, "borderaxespad": 0.2}
    axes.legend(loc="lower right", bbox_to_anchor=(1.02, 1.0), ncols=len(bands), **close)


def plot_comparison(
    published: AnyFrame,
    computed: AnyFrame,
    compared: Mapping[str, Any] | None = None,
    thresholds: LabelThresholds | None = None,
    *,
    population: Population = "judged",
    **look: Unpack[Look],
) -> Figure:
    """Plot published against computed CD index, and how often both give one label.

    (a) works by both scores, on signed log axes with the cut-offs dashed; equal scores lie on the diagonal. (b) works
    by both labels, each column adding up to 100 %. The title counts the works with one of the two scores only.

    Args:
        published: ``work_id`` and ``cd_index``.
        computed: the same.
        compared: what ``compare_scores`` says of them, of all works that have both; computed here when None.
        thresholds: where labels end; ``LabelThresholds()`` when None.
        population: as in ``measure_by``, by the columns of ``computed``. Where ``compared`` is there, all count.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with two panels.

    Raises:
        EmptyInputError: no work has both scores.

    Example:
        >>> theirs = pl.DataFrame({"work_id": [1, 2, 3], "cd_index": [0.5, -0.1, 0.0]})
        >>> ours = pl.DataFrame({"work_id": [1, 2, 3], "cd_index": [0.4, -0.2, None]})
        >>> len(plot_comparison(theirs, ours).axes)  # and the scale of the colours
        3
    """
    sides = [
        require_columns(frame, CD_SCORES, frame_name=name, stage="plot_comparison", columns=("work_id", "cd_index"))
        for name, frame in (("published", published), ("computed", computed))
    ]
    left_out = LeftOut()
    if compared is None:
        sides[1], left_out = choose_population(sides[1], "cd_index", population, "plot_comparison")
        if left_out.is_any:
            sides[0] = sides[0].join(sides[1].select("work_id"), on="work_id", how="semi")
    two = ((("published", sides[0]), ("computed", sides[1])), left_out)
    return _plot_two(*two, compared, thresholds, look, "plot_comparison")


def plot_windows(
    shorter: AnyFrame,
    longer: AnyFrame,
    thresholds: LabelThresholds | None = None,
    *,
    windows: tuple[int | None, int | None] | None = None,
    population: Population = "judged",
    **look: Unpack[Look],
) -> Figure:
    """Plot the CD index of one citation window against that of another, and how often both give one label.

    Args:
        shorter: ``work_id`` and ``cd_index``, for example of ``CDConfig(window_years=5)``. Or scores of several
            windows: ``cd_index_10`` is read where ``windows`` names 10 years.
        longer: the same, of the other window. It may be the same frame, if it has several windows.
        thresholds: where labels end; ``LabelThresholds()`` when None.
        windows: years of both windows, to name them, since scores do not say theirs; of one, None: no upper bound.
            Without them the axes say "shorter window" and "longer window". For one frame with one further window, the
            second is that.
        population: as in ``measure_by``; works count that are judged in both windows.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with two panels, as in ``plot_comparison``.

    Raises:
        ConfigError: the two are one frame, and one column would be compared with itself.
        EmptyInputError: no work has both scores.

    Example:
        >>> five = pl.DataFrame({"work_id": [1, 2], "cd_index": [0.5, -0.1]})
        >>> ten = pl.DataFrame({"work_id": [1, 2], "cd_index": [0.4, 0.2]})
        >>> plot_windows(five, ten, windows=(5, 10)).axes[0].get_ylabel()
        'CD₁₀ (signed log axis)'
        >>> both = five.with_columns(cd_index_10=pl.Series([0.4, 0.2]))
        >>> plot_windows(both, both, windows=(5, 10)).axes[0].get_ylabel()
        'CD₁₀ (signed log axis)'
    """
    stage = "plot_windows"
    first, second = "CD (shorter window)", "CD (longer window)"
    if windows is not None:
        first, second = ("CD of all years" if years is None else f"CD{years}".translate(_LOWER) for years in windows)
    frames = [to_lazy(shorter, first, stage), to_lazy(longer, second, stage)]
    endings = _find_windows(frames, windows, is_one=shorter is longer)
    sides: list[pl.LazyFrame] = []
    left_out = LeftOut()
    for frame, name, ending in zip(frames, (first, second), endings, strict=True):
        index = f"cd_index{ending}"
        needed = {"work_id": CD_SCORES["work_id"], index: CD_SCORES["cd_index"]}
        side, left = choose_population(
            require_columns(frame, needed, frame_name=name, stage=stage), index, population, stage
        )
        left_out = left if left.open + left.uncited >= left_out.open + left_out.uncited else left_out
        sides.append(side.select("work_id", cd_index=index))
    if left_out.is_any:
        sides = [one.join(other.select("work_id"), on="work_id", how="semi") for one, other in (sides, sides[::-1])]
    return _plot_two(((first, sides[0]), (second, sides[1])), left_out, None, thresholds, look, stage)


def _find_windows(
    frames: Sequence[pl.LazyFrame], windows: tuple[int | None, int | None] | None, *, is_one: bool
) -> list[str]:
    """Find what the columns of the two windows end with; "" where the frame has no column with the window's name."""
    names = [frame.collect_schema().names() for frame in frames]
    endings = ["", ""]
    if windows is not None:
        wanted = ["_all" if years is None else f"_{years}" for years in windows]
        endings = [ending if f"cd_index{ending}" in there else "" for ending, there in zip(wanted, names, strict=True)]
    elif is_one:
        further = [
            name.removeprefix("cd_index") for name in names[1] if window_of(name) and name.startswith("cd_index_")
        ]
        endings[1] = further[0] if len(further) == 1 else ""
    if is_one and endings[0] == endings[1]:
        there = ", ".join(name for name in names[0] if window_of(name) is not None and name.startswith("cd_index"))
        raise ConfigError(
            f"plot_windows: shorter and longer are one frame, which has {there or 'no index'}. So cd_index{endings[0]} "
            "would be compared with itself. Name two windows that it has, for example windows=(5, 10)."
        )
    return endings


def plot_cd_trajectory(
    trajectory: AnyFrame,
    works: Sequence[int | str] | Mapping[int | str, str] = (),
    *,
    population: Population = "judged",
    **look: Unpack[Look],
) -> Figure:
    """Plot how the CD index changes with the age of works: mean and quartiles, or chosen works one by one.

    A mean has its 95 % t interval, where works have one row at each age.

    Args:
        trajectory: work_id, age and cd_index, as of ``indicators.compute_cd_trajectory``. Undefined values are left
            out, so an age may have fewer works than another one.
        works: the work_id, or the original_id, of works that get a line each, at most ten; or these with the name of
            each: ``{2734287351: "Oldenburg 2017"}``. Empty: all works together. Works without such a name are called by
            the beginning of their title and their year: by the columns ``title`` and ``publication_year`` of the
            trajectory, or of the works of ``data``.
        population: as in ``measure_by``, at each age. Chosen works are drawn as they are.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, with one panel.

    Raises:
        ConfigError: an option is wrong, more than ten works are chosen, or one of them has no index at any age.
        EmptyInputError: no work has an index.
        SchemaMismatchError: a column is missing or mistyped.

    Example:
        >>> found = pl.DataFrame({"work_id": [7, 7], "age": [1, 2], "cd_index": [1.0, 0.5]})
        >>> figure = plot_cd_trajectory(found.cast({"age": pl.Int32}), works=[7])
        >>> figure.axes[0].get_ylabel(), figure.get_label()
        ('CD index', 'CD index of work 7 by its age.')
    """
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
    names = _name_works(rows, chosen, look.get("data")) | (dict(works) if isinstance(works, Mapping) else {})
    left_out = LeftOut()
    if not chosen:
        rows, left_out = choose_population(rows, "cd_index", population, "plot_cd_trajectory")
    numbers = rows.select(columns.keys()).with_columns(pl.col("cd_index").fill_nan(None))
    rows = numbers.drop_nulls()
    if not chosen and rows.head(1).collect(engine="streaming").is_empty():
        refuse_nothing(numbers, [*columns], "plot_cd_trajectory")
    if len(chosen) > _MOST_LINES:
        raise ConfigError(
            f"works holds {len(chosen)} works, needs at most {_MOST_LINES}: more lines cannot be told apart."
        )
    with drawing(look, heights_mm=(60,)) as picture:
        (axes,) = picture.panels
        axes.axhline(0, color=INK, lw=0.6)
        title = _draw_works(axes, rows, chosen, names) if chosen else _draw_quartiles(axes, rows)
        picture.caption = title + left_out.describe("work and age")
        axes.set_xlabel("years after publication")
        tick_numbers(axes.xaxis)
        axes.set_ylabel("CD index")
        if not chosen:
            axes.legend(loc="best")
        elif len(chosen) > 1 and look.get("ax") is None:
            put_legend_outside(picture, "")
        elif len(chosen) > 1:
            axes.legend()
    return picture.figure


def plot_cd_sweep(sweep: AnyFrame, *, population: Population = "judged", **look: Unpack[Look]) -> Figure:
    """Plot the mean CD index by publication year, in each convention and window.

    Args:
        sweep: CD_SWEEP, as ``sciscidata sweep`` writes it. With null_mean, the mean of the null model stands beside,
            dashed. Undefined values are left out, so each line has works of its own.
        population: as in ``measure_by``; the caption counts rows, one for each work and line.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: one panel for each convention, in the order of their names.

    Raises:
        EmptyInputError: no work has a year and an index.
        SchemaMismatchError: a column is missing or mistyped.

    Example:
        >>> rows = {"publication_year": [1990, 1991], "convention": "default", "window": "5", "cd_index": [0.5, 0.4]}
        >>> sweep = pl.DataFrame(rows, schema_overrides={"publication_year": pl.Int32})
        >>> figure = plot_cd_sweep(sweep, population="all")
        >>> figure.get_label()
        'Mean CD index by publication year, 1 convention and 1 window. Hollow: fewer than 30 works.'
    """
    keys = ("publication_year", "convention", "window")
    rows = require_columns(
        sweep, CD_SWEEP, frame_name="the frame", stage="plot_cd_sweep", columns=(*keys, "cd_index")
    ).drop_nulls("publication_year")
    rows, left_out = choose_population(rows, "cd_index", population, "plot_cd_sweep")
    nulls = ["null_mean"] if "null_mean" in rows.collect_schema() else []
    values = ["cd_index", *nulls]
    shown = add_up(rows.select(*keys, *values), keys, values).filter(pl.col("n_cd_index") > 0)
    if shown.is_empty():
        refuse_nothing(rows, [*keys, "cd_index"], "plot_cd_sweep")
    conventions = shown["convention"].unique().sort()
    windows = sorted(shown["window"].unique(), key=lambda name: (not name[:1].isdigit(), len(name), name))
    drawn_panels: list[Drawn] = []
    columns = min(len(conventions), 1 if look.get("width") == "one" else 2)
    with drawing(look, heights_mm=[52.0] * len(conventions), columns=columns) as picture:
        for axes, convention in zip(picture.panels, conventions, strict=True):
            lines = [shown.filter(convention=convention, window=window) for window in windows]
            lines = [line for line in lines if line.height]
            panel = Panel("cd_index", "mean", [estimate(line, keys, "cd_index", is_share=False) for line in lines])
            reading = Reading(by="window", is_crowded=len(lines) > 2)
            drawn_panels.append(draw_panel(axes, "publication_year", panel, reading))
            drawn_lines: list[Any] = axes.get_legend_handles_labels()[0]
            for line, drawn in zip(lines if nulls else [], drawn_lines, strict=False):
                years, means = (line[name].to_numpy() for name in ("publication_year", "mean_null_mean"))
                axes.plot(years, means, ls="--", lw=0.8, color=drawn.get_color())
            axes.set_title(f"{convention}{' (dashed: null model)' if nulls else ''}")
        of = f"{counted(len(conventions), 'convention')} and {counted(len(windows), 'window')}"
        if look.get("ax") is None:
            for axes in picture.panels[:-1]:
                axes.legend().remove()
            put_legend_outside(picture, "window")
        all_drawn = add_drawn(drawn_panels)
        said = f"{name_hollow(all_drawn.is_few)}{all_drawn.describe()}{left_out.describe('row')}"
        picture.caption = f"Mean CD index by publication year, {of}.{said}"
    return picture.figure


def _name_works(rows: pl.LazyFrame, chosen: Sequence[int | str], data: object) -> dict[int | str, str]:
    """Name chosen works by title and year, or by the ids of their source: the number of a text means nothing."""
    names: dict[int | str, str] = {}
    if not chosen:
        return names
    is_text = isinstance(chosen[0], str)
    sides = [rows]
    if isinstance(data, Corpus):
        own_id = [pl.col(ORIGINAL_ID).cast(pl.String).alias("work_id")] if is_text else []
        sides.append(data.works.with_columns(own_id))
    for side in sides:
        there = side.collect_schema()
        columns = [name for name in ("title", ORIGINAL_ID) if name in there]
        if not columns:
            continue
        year = "publication_year" if "publication_year" in there else pl.lit(None, pl.Int32).alias("publication_year")
        some = side.filter(pl.col("work_id").is_in(chosen)).select("work_id", *columns, year).unique("work_id")
        for work in some.collect(engine="streaming").iter_rows(named=True):
            if title := work.get("title"):
                head = textwrap.shorten(title, _TITLE_LETTERS, placeholder="…")
                head = head if len(head) > 1 else f"{title[: _TITLE_LETTERS - 1]}…"  # one word, or no blanks at all
                at = "" if work["publication_year"] is None else f" ({work['publication_year']})"
                names[work["work_id"]] = head + at
            elif ORIGINAL_ID in work:
                names.setdefault(work["work_id"], f"work {work[ORIGINAL_ID]}")
    return names


def _draw_works(axes: Axes, rows: pl.LazyFrame, chosen: Sequence[int | str], names: Mapping[int | str, str]) -> str:
    """Draw a line for each chosen work, by its name if it has one, and return the title."""
    lines = rows.filter(pl.col("work_id").is_in(chosen)).sort("age").collect(engine="streaming")
    colours = cycle(free_colours(axes))
    for number, work in enumerate(chosen):
        line = lines.filter(work_id=work)
        if line.is_empty():
            raise ConfigError(f"work {work} has no CD index at any age. Choose works that have one.")
        at, index = line["age"].to_numpy(), line["cd_index"].to_numpy()
        label = fit_name(names.get(work, f"work {work}"), _WORK_MM, n_lines=1)
        marker, dash = MARKERS[number], DASHES[number // len(LINES)]
        axes.plot(at, index, color=next(colours), marker=marker, markersize=3, linestyle=dash, label=label)
    of = names.get(chosen[0], f"work {chosen[0]}") if len(chosen) == 1 else f"{len(chosen)} works"
    return f"CD index of {of} by {'its' if len(chosen) == 1 else 'their'} age."


def _draw_quartiles(axes: Axes, rows: pl.LazyFrame) -> str:
    """Draw mean, median and middle half of all works at each age, and return the title."""
    index = pl.col("cd_index")
    quartiles = [index.quantile(share, "linear").alias(f"q{share}") for share in (0.25, 0.5, 0.75)]
    squares = (index.var() * (pl.len() - 1)).fill_null(0.0).alias("squares")
    by_age = rows.group_by("age").agg(index.mean().alias("mean"), pl.len().alias("n"), *quartiles, squares).sort("age")
    shown = by_age.collect(engine="streaming")
    n_works: int = rows.select(pl.col("work_id").n_unique()).collect(engine="streaming").item()
    age, mean, n, low, middle, high, spread = (shown[name].to_numpy() for name in shown.columns)
    axes.fill_between(age, low, high, color=INK, alpha=0.2, lw=0, label="middle half")
    axes.plot(age, middle, color=INK, ls="--", label="median")
    is_hollow = draw_line(axes, age, mean, n, color=INK, label="mean, 95 % t interval")
    first, last = mean_interval(mean, spread, n, n)
    axes.vlines(age[n >= FEW], first[n >= FEW], last[n >= FEW], color=INK, lw=0.8)
    fewest, most = int(n.min(initial=n_works)), int(n.max(initial=0))
    number = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return f"CD index of {count_works(n_works)} by age, with {number} at each age.{name_hollow(is_hollow)}"


def _plot_two(
    two: tuple[tuple[str, pl.LazyFrame], tuple[str, pl.LazyFrame]],
    left_out: LeftOut,
    compared: Mapping[str, Any] | None,
    thresholds: LabelThresholds | None,
    look: Look,
    stage: str,
) -> Figure:
    """Draw the plane of two indices of the same works, each with its name, and the table of both labels."""
    names, read = (two[0][0], two[1][0]), (two[0][1], two[1][1])
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    compared = compare_scores(read[0], read[1], cut) if compared is None else compared
    published, computed = (frame.select("work_id", pl.col("cd_index").fill_nan(None)).drop_nulls() for frame in read)
    both = published.join(computed, on="work_id", suffix="_computed").collect(engine="streaming")
    if both.is_empty():
        for frame in read:
            if not frame.select(pl.col("cd_index").fill_nan(None).count()).collect().item():
                refuse_nothing(frame, ["cd_index"], stage)
        raise EmptyInputError(f"{stage}: there is nothing to draw: no work has both scores. Give scores of one corpus.")
    with drawing(look, heights_mm=(80, 78), ratios=(1.3, 1)) as picture:
        _draw_plane(picture.panels[0], both, cut, names)
        _draw_labels(picture.panels[1], compared, names)
        letter_panels(picture)
        picture.caption = describe_two(compared, names) + left_out.describe()
        same = percent(compared["same_label"], 1)
        first = _index(names[0])
        picture.finding = f"{first[0].upper()}{first[1:]} and {_index(names[1])} agree on {same} of labels"
    return picture.figure


def _draw_plane(axes: Axes, both: pl.DataFrame, thresholds: LabelThresholds, names: tuple[str, str]) -> None:
    from matplotlib.colors import LogNorm

    linear, edges = _signed_log_edges(thresholds, 25)
    values = [both[name].to_numpy() for name in ("cd_index", "cd_index_computed")]
    counts, _, _ = np.histogram2d(*values, bins=(edges, edges))
    shown = np.ma.masked_equal(counts.T, 0)  # an empty cell has no colour
    norm = LogNorm(vmin=1, vmax=max(2.0, counts.max()))
    drawn = axes.pcolormesh(edges, edges, shown, cmap=RAMP, norm=norm, rasterized=True)
    axes.plot([-1, 1], [-1, 1], color="black", linewidth=0.6, alpha=0.6)
    for cut in (thresholds.consolidating_max, thresholds.disruptive_min):
        for line in (axes.axvline, axes.axhline):
            line(cut, color="black", linewidth=0.6, linestyle=(0, (4, 4)), alpha=0.6)
    for axis in ("x", "y"):
        _signed_log_axis(axes, axis, linear, step=2)
    bar = axes.figure.colorbar(drawn, ax=axes, label="works (log scale)", shrink=0.8)
    bar.ax.yaxis.set_major_formatter("{x:,.0f}")
    bar.ax.minorticks_off()
    axes.set_aspect("equal")
    axes.set_xlabel(f"{_index(names[0])} (signed log axis)")
    axes.set_ylabel(f"{_index(names[1])} (signed log axis)")


def _index(name: str) -> str:
    return name if "CD" in name else f"{name} CD index"


def _draw_labels(axes: Axes, compared: Mapping[str, Any], names: tuple[str, str]) -> None:
    """Draw the table of labels, its axes in the order of the plane next to it."""
    cells = {(cell["published"], cell["computed"]): cell["works"] for cell in compared["labels"]}
    draw_label_table(axes, cells, LABELS_BY_INDEX)
    axes.set_xlabel(f"label by {_index(names[0])}")
    axes.set_ylabel(f"label by {_index(names[1])}")


def draw_label_table(
    axes: Axes, cells: Mapping[tuple[str, str], int], labels: Sequence[str], *, is_first_down: bool = False
) -> None:
    """Draw works by two labels: each number, and its share of those with the same first label.

    The first is across, the second runs up; or, as in a table of text, the first runs down.
    """
    from matplotlib.colors import to_hex

    counts = np.array([[cells.get((first, second), 0) for first in labels] for second in labels], np.int64)
    totals = np.broadcast_to(counts.sum(axis=0), counts.shape)
    if is_first_down:
        counts, totals = counts.T, totals.T
    shares = counts / np.maximum(totals, 1)
    shown = axes.imshow(shares, cmap=RAMP, vmin=0, vmax=1, origin="upper" if is_first_down else "lower")
    colours: Any = shown.to_rgba(shares)
    for row, column in np.ndindex(*counts.shape):
        text = f"{counts[row, column]:,}" + (
            f"\n{percent(float(shares[row, column]), 1)}" if totals[row, column] else ""
        )
        colour = letters_on(to_hex(colours[row, column]))
        axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(len(labels)), labels, fontsize=7)
    axes.set_yticks(range(len(labels)), labels, rotation=90, va="center", fontsize=7)
    axes.tick_params(length=0)


def describe_two(compared: Mapping[str, Any], names: tuple[str, str]) -> str:
    """Say in sentences what ``compare_scores`` found."""
    first, second = names
    what = f"{first} against {second}" if "CD" in first else f"{first.capitalize()} against {second} CD index"
    spearman = "undefined" if compared["spearman"] is None else f"{compared['spearman']:.3f}"
    same = f"same sign {percent(compared['same_sign'], 1)}, same label {percent(compared['same_label'], 1)}"
    text = f"{what} of {count_works(compared['both'])}: Spearman {spearman}, {same}."
    text += " (a) Works by both scores, cut-offs dashed; (b) works by both labels, columns add up to 100 %."
    only = {first: compared["only_published"], second: compared["only_computed"]}
    hidden = [f"{n:,} with {name} score only" for name, n in only.items() if n]
    return text + (f" Not shown: {' and '.join(hidden)}." if hidden else "")
