"""The closed approximation of the null model: mean and spread of the CD index over rewired citations, without draws.

A draw of ``null="rewired"`` keeps the citers D = n_i + n_j of a focal work. N is the number of citations in the window
to its references. benchmarks/notes/null_models.md derives the formula in these symbols, and says how far it can be
off.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Float64Array, Int32Array
from sciscidata.disruption.config import CDConfig, WindowYears
from sciscidata.disruption.index import score_graph
from sciscidata.disruption.null_model import NULL_CD_INDEX
from sciscidata.frames import AnyFrame
from sciscidata.graph.edges import watched
from sciscidata.graph.graph import CitationGraph, build_graph, require_times
from sciscidata.options.checks import check_value
from sciscidata.records.ids import with_original_ids
from sciscidata.schemas import CITATIONS, require_columns

if TYPE_CHECKING:
    from sciscidata.disruption._expect_kernels import Lists

logger = logging.getLogger(__name__)

_STAGE: Final = "compute_expected_cd_index"
#: Works with a spread. With fewer, the mean can be off by more than 0.01 on average (benchmarks/ranges.py).
_FEW_WORKS: Final = 500
_STEP: Final = 0.25  # of the logarithm of s, in the integral
_S: Final = np.exp(np.arange(np.log(1e-6), np.log(60), _STEP))
_GRID_STEP: Final = 0.1
_GRID: Final = np.arange(np.log(1e-8), np.log(70), _GRID_STEP)  # logarithms, where the transforms are known
#: As NULL_CD_INDEX, without the number of draws.
EXPECTED_CD_INDEX: Final = pl.Schema({name: kind for name, kind in NULL_CD_INDEX.items() if name != "n_defined"})


def compute_expected_cd_index(
    works: AnyFrame, citations: AnyFrame, *, window_years: int | None = 5, cache_dir: str | Path | None = None
) -> pl.LazyFrame:
    """Compare the CD index of every work with what it is on average in rewired citation graphs, without drawing any.

    This approximates ``compute_null_cd_index`` with ``null="rewired"``, of the default convention. On cit-HepTh and
    handball the means correlate with those of 1,000 draws at 0.999, and z at 0.995 and 0.998 (Spearman). On the small
    example these are 0.988 and 0.964. The mean is off by 0.003 to 0.009 on average where 500 works or more have a
    spread, by 0.004 to 0.127 where fewer have one (30 cuts of graphs and worlds). A warning then says to draw. Draw
    also where a single work matters: some are off by 0.5.

    Args:
        works: WORKS; only work_id and publication_year are read.
        citations: CITATIONS, in any order; repeats, and works that cite themselves, are ignored.
        window_years: as in ``CDConfig``.
        cache_dir: keep the graph here for later runs.

    Returns:
        One row per work, unordered: work_id, cd_index, null_mean, null_std and z, as in NULL_CD_INDEX. All but cd_index
        are null where a work has no year or no reference. They are null, too, where no later work can cite it or a
        reference in the window.

    Raises:
        ConfigError: when called, if ``window_years`` is wrong.
        SchemaMismatchError: when called, if a column is missing or has another dtype.
        WorkIdError, EmptyInputError: at collect, as in ``compute_cd_index``.

    Time: about that of one draw. Memory: 4 bytes per work and year of the window, and 12 per citation of these years.

    Source: this project's.

    Example:
        >>> from sciscidata import scan_example
        >>> works, citations, _ = scan_example()
        >>> expected = compute_expected_cd_index(works, citations).drop_nulls("z").collect()
        >>> expected.height, expected.select((pl.col("z") < -2).mean().round(2)).item()
        (1488, 0.64)
    """
    check_value("window_years", window_years, WindowYears)
    config = CDConfig(window_years=window_years)
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=_STAGE)
    works = require_times(works, config.time, stage=_STAGE)

    def score() -> pl.DataFrame:
        graph = build_graph(works, citations, cache_dir=cache_dir)
        mean, std = expect(graph, config)
        if 0 < (n := int((std > 0).sum())) < _FEW_WORKS:
            logger.warning(
                f"{_STAGE}: only {n} works have a null_std above 0. Below {_FEW_WORKS}, null_mean may be far off. "
                "Draw instead: compute_null_cd_index(works, citations)."
            )
        dated = pl.DataFrame({"null_mean": mean, "null_std": std}, nan_to_null=True)
        moments = pl.concat([dated, dated.clear(graph.n_known - graph.n_dated)])
        scores = score_graph(graph, config).select("work_id", "cd_index").hstack(moments)
        z = pl.when(pl.col("null_std") > 0).then((pl.col("cd_index") - pl.col("null_mean")) / pl.col("null_std"))
        return watched(scores.with_columns(z=z), graph, _STAGE)

    return with_original_ids(pl.defer(score, schema=EXPECTED_CD_INDEX), works)


class _Year(NamedTuple):
    """The citations of one citing year."""

    refs: Int32Array
    lists: Lists
    sizes: Float64Array  # (cells): citations


def expect(graph: CitationGraph, config: CDConfig) -> Float64Array:
    """Return mean and standard deviation (2, works) of every work with a year, NaN where undefined."""
    from sciscidata.disruption import _expect_kernels as kernels

    years, starts = graph.years.astype(np.int64), graph.year_offsets
    spans = [config.times_of_citers(year, config.window_years) for year in years.tolist()]
    windows = [range(*np.searchsorted(years, [span.start, span.stop]).tolist()) for span in spans]
    width = max(map(len, windows), default=0)
    later = np.zeros((graph.n_works, width), np.int32)  # citers of each work; those of year j in column j % width
    ends = np.append(starts[1:], graph.n_works)  # works without a year are one more cell
    expected = np.full((2, graph.n_dated), np.nan)
    kept, counted = dict[int, _Year](), range(0)
    for y, window in enumerate(windows):
        if not window:
            continue
        for j in (y, *window):
            if j not in kept:
                offsets = graph.ref_offsets[starts[j] : starts[j + 1] + 1]
                lists = kernels.Lists(*kernels.list_cells(offsets, graph.refs, ends))
                sizes = np.bincount(lists.cells, lists.counts, ends.size).astype(np.float64)
                kept[j] = _Year(graph.refs[offsets[0] : offsets[-1]], lists, sizes)
        for j in sorted(set(counted) ^ set(window)):  # years that leave come first, and make room
            kernels.count_citers(kept[j].refs, later, j % width, j in counted)
        counted, focal = window, slice(*starts[[y, y + 1]].tolist())
        expected[:, focal] = _expect_year(kept[y], y, {j % width: kept[j] for j in window}, later, later[focal])
        kept = {j: year for j, year in kept.items() if j in window}
    return expected


def _expect_year(
    focal: _Year, y: int, window: Mapping[int, _Year], later: Int32Array, citers: Int32Array
) -> Float64Array:
    """Return mean and standard deviation for the works of the year ``y``; the keys of ``window`` are columns."""
    from sciscidata.disruption import _expect_kernels as kernels

    refs, lists, sizes = focal
    n = np.maximum(sizes, 1)
    # Of the citations of each cell: how often its work is cited in each year of the window, and log E exp(-s N_a).
    in_window, per_year = np.empty(refs.size, np.int32), np.zeros((sizes.size, later.shape[1]))
    kernels.add_cited(refs, lists, later, in_window, per_year)
    per_year /= n[:, None]
    is_there = np.bincount(in_window) > 0
    values, places = np.flatnonzero(is_there), np.cumsum(is_there) - 1
    histogram, phi = np.zeros((sizes.size, values.size)), np.zeros((sizes.size, _GRID.size))
    kernels.add_histogram(lists, in_window, places, histogram)
    table = np.exp(np.maximum(-np.outer(values, np.exp(_GRID)), -700))  # smaller numbers are not normal, and slow
    kernels.add_mixtures(histogram, table, phi)
    log_phi = np.log(np.maximum(phi / n[:, None], 1e-300))
    shares = np.zeros_like(per_year)  # references that a citer of each year shares with the focal work
    for column, citing in window.items():
        pairs = np.zeros(sizes.size)
        kernels.add_pairs(citing.lists, y, pairs)
        of_each = pairs / max(citing.sizes[y], 1)
        shares[:, column] = of_each * per_year[:, column] / np.maximum(citing.sizes, 1)
    grid, expected = kernels.Grid(_GRID[0], _GRID_STEP, _S, _STEP), np.full((2, citers.shape[0]), np.nan)
    kernels.expect_works(lists, citers, log_phi, per_year.sum(axis=1), shares, grid, expected)
    return expected
