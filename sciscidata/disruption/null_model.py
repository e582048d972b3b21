"""The CD index of rewired citations: what chance gives a work, and how far its own index is off.

A draw keeps of every work how many works it cites and how many cite it. ``"rewired"`` keeps the years of both, too. All
draws come from numbers of ``_kernels/random.py``, so threads and platforms change nothing. docs/measures/null_models.md
says what a draw keeps, and benchmarks/notes/null_models.md what draws showed on real graphs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sized
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, Unpack

import msgspec
import numpy as np
import polars as pl

from sciscidata._kernels.arrays import AnyArray, Float64Array
from sciscidata._support.parallel import map_in_order
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.counts import Counter
from sciscidata.disruption.index import add_indices, counted_rows
from sciscidata.engines.engine import Engine
from sciscidata.engines.task import Task, name_of, task
from sciscidata.frames import AnyFrame
from sciscidata.graph.edges import watched
from sciscidata.graph.graph import CitationGraph, GraphInTask, build_graph, for_tasks, open_in_task
from sciscidata.options.checks import check_threads, check_value, checked_config
from sciscidata.records.ids import with_original_ids
from sciscidata.schemas import CITATIONS, WORKS, require_columns
from sciscidata.storage.parquet import read_parquet, write_parquet
from sciscidata.terminal.progress import Advance, progress_bar

logger = logging.getLogger(__name__)

Null = Literal["rewired", "configuration"]
NDraws = Annotated[int, msgspec.Meta(ge=2, le=1_000_000)]

#: One row per work of WORKS; null where undefined.
NULL_CD_INDEX: Final = pl.Schema(
    {
        "work_id": pl.Int64(),
        "cd_index": pl.Float64(),
        "null_mean": pl.Float64(),
        "null_std": pl.Float64(),
        "z": pl.Float64(),
        "n_defined": pl.UInt32(),
    }
)
_ROWS_AT_ONCE: Final = 1 << 20
_YEAR_ZERO: Final = 2**31  # years may be negative, counters not; 0 stands for works without a year


class Draws(NamedTuple):
    """Which rewired graphs are drawn: what they keep, how many, and their seed."""

    null: Null = "rewired"
    n_draws: int = 100
    seed: int = 0

    def check(self) -> Draws:
        """Raise a ConfigError if a value does not fit; return the draws."""
        check_value("null", self.null, Null)
        check_value("n_draws", self.n_draws, NDraws)
        check_value("seed", self.seed, int)
        return self


def compute_null_cd_index(
    works: AnyFrame,
    citations: AnyFrame,
    config: CDConfig | None = None,
    *,
    null: Null = "rewired",
    n_draws: int = 100,
    seed: int = 0,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Compare the CD index of every work with its index in rewired citation graphs.

    Args:
        works: WORKS; only work_id and publication_year are read.
        citations: CITATIONS, in any order; repeats, and works that cite themselves, are ignored.
        config: which convention of the index; ``CDConfig()`` when None. The family is left out.
        null: what a draw keeps. ``"rewired"``: citations change places with others of the same citing year and the same
            cited year. Every work keeps its references, their years, and its citations in each year.
            ``"configuration"``: every work keeps its numbers of references and of citations, whatever the years.
        n_draws: rewired graphs, 2 to 1,000,000.
        seed: of the draws. The first draws of a longer run are the same.
        cache_dir: keep the graph here for later runs.
        n_threads: as many as Polars uses (POLARS_MAX_THREADS) when None. The result does not depend on it.

    Returns:
        NULL_CD_INDEX, one row per work, unordered. cd_index is as in compute_cd_index, and defined in n_defined draws.
        These have mean null_mean and population standard deviation null_std. z is (cd_index - null_mean) / null_std,
        null if the draws do not vary. A work that is undefined in all draws has no null_mean, in all but one no
        null_std. Without a year it has nothing.

    Raises:
        ConfigError: when called, if an argument is wrong.
        SchemaMismatchError: when called, if a column is missing or has another dtype.
        WorkIdError, EmptyInputError: at collect, as in compute_cd_index.

    Source: rewiring within years: Uzzi et al. 2013, doi:10.1126/science.1240474; for the CD index: Park, Leahey & Funk
    2023, doi:10.1038/s41586-022-05543-x; configuration model: Newman, Strogatz & Watts 2001, arXiv:cond-mat/0007235.

    Example:
        >>> years = [1990, 1990, 2000, 2000, 2001, 2001]
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4, 5, 6], "publication_year": years},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [3, 4, 5, 5, 6, 6], "cited_id": [1, 2, 3, 1, 4, 2]})
        >>> null = compute_null_cd_index(works, citations, n_draws=1_000)
        >>> null.filter(work_id=3).select(pl.exclude("work_id").round(1)).collect().row(0)
        (-1.0, -0.3, 0.7, -1.0, 1000)
    """
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage="compute_null_cd_index")
    read = ("work_id", "publication_year")
    works = require_columns(works, WORKS, frame_name="WORKS", stage="compute_null_cd_index", columns=read)
    config = checked_config(config, CDConfig, "window_years=10")
    draws = Draws(null, n_draws, seed).check()
    check_threads(n_threads)

    def score() -> pl.DataFrame:
        graph = build_graph(works, citations, cache_dir=cache_dir, n_threads=n_threads)
        scores = score_nulls(graph, {"": replace(config, windows=())}, draws, n_threads=n_threads)["", ""]
        return watched(scores, graph, "compute_null_cd_index")

    return with_original_ids(pl.defer(score, schema=NULL_CD_INDEX), works)


def score_nulls(
    graph: CitationGraph,
    configs: Mapping[str, CDConfig],
    draws: Draws,
    *,
    n_threads: int | None = None,
    tasks: tuple[Engine, Path] | None = None,
) -> dict[tuple[str, str], pl.DataFrame]:
    """Compare the CD index under several conventions, with all their windows, with its index in the same draws.

    Returns NULL_CD_INDEX for each name and window, by (year, work_id); works without a year come last. Memory: 28 bytes
    a work for each. ``tasks``: an engine, and the folder in which a file of its task stays for each draw.
    """
    null, n_draws, seed = draws.check()
    configs = {name: replace(config, family=False, di_l=5) for name, config in configs.items()}
    check_threads(n_threads)
    threads = n_threads or pl.thread_pool_size()
    sums = {(name, window): _Sums(graph.n_dated) for name, config in configs.items() for window in config.all_windows}
    with progress_bar("CD index", float(_n_references(graph, configs)), unit="references") as advance:
        for name, span, values in _indices_by_year(graph, configs, threads, advance):
            sums[name].observed[span] = values
    n_mended = n_stuck = 0
    if tasks is not None:
        for path, facts in _draw_by_tasks(graph, configs, draws, *tasks):
            n_mended, n_stuck = n_mended + facts["n_mended"], n_stuck + facts["n_stuck"]
            for name, of_draws in sums.items():
                of_draws.add(read_parquet(path, ["".join(name)]).to_series().to_numpy(writable=True))
    else:
        with progress_bar("null model", n_draws, unit="draws") as advance:
            for number in range(n_draws):
                draw = rewire(graph, number, null=null, seed=seed, n_threads=threads)
                n_mended, n_stuck = n_mended + draw.n_mended, n_stuck + draw.n_stuck
                for name, span, values in _indices_by_year(draw.graph, configs, threads, advance, in_draws=True):
                    sums[name].add(values, span)
                del draw  # or two of them would be in memory
    share = n_mended / max(1, n_draws * graph.n_citations)
    logger.info("%d draws (%s): %.3g%% of the citations were swapped to keep a draw simple", n_draws, null, 100 * share)
    if n_stuck:
        logger.info("%d cells could not be mended, and were drawn by swaps from the observed citations", n_stuck)
    return {name: _summed(graph, of_draws) for name, of_draws in sums.items()}


class _Sums:
    """The observed index of each dated work, and what its draws add up to."""

    def __init__(self, n: int) -> None:
        self.observed, self.means, self.squares = np.empty(n), np.zeros(n), np.zeros(n)
        self.n_defined = np.zeros(n, np.uint32)

    def add(self, values: Float64Array, span: slice = slice(None)) -> None:
        from sciscidata.disruption._rewire_kernels import add_draw

        add_draw(values, self.means[span], self.squares[span], self.n_defined[span])


def _summed(graph: CitationGraph, sums: _Sums) -> pl.DataFrame:
    n = graph.n_dated
    columns = {"work_id": graph.work_ids[:n], "cd_index": sums.observed, "null_mean": sums.means}
    dated = pl.DataFrame(columns | {"null_std": sums.squares, "n_defined": sums.n_defined}).with_columns(
        pl.col("cd_index").fill_nan(None),
        pl.when(pl.col("n_defined") > 0).then("null_mean"),
        pl.when(pl.col("n_defined") > 1).then((pl.col("null_std") / pl.col("n_defined")).sqrt()).alias("null_std"),
    )
    away = (pl.col("cd_index") - pl.col("null_mean")) / pl.col("null_std")
    undated = pl.DataFrame({"work_id": graph.work_ids[n : graph.n_known]})
    scored = dated.with_columns(pl.when(pl.col("null_std") > 0).then(away).alias("z"))
    return pl.concat([scored, undated], how="diagonal").select(NULL_CD_INDEX.names()).cast(NULL_CD_INDEX)


def _draw_by_tasks(
    graph: CitationGraph, configs: Mapping[str, CDConfig], draws: Draws, engine: Engine, home: Path
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Have tasks score the works in each draw; give their files in the order of the draws."""
    of_all = for_tasks(graph, engine.config.stage_dir) | {
        "configs": {name: asdict(config) for name, config in configs.items()},
        "null": draws.null,
        "seed": draws.seed,
        "n_threads": engine.config.threads,
    }
    tasks = [
        Task(
            name=f"draw {number + 1} of {draws.n_draws}",
            work=name_of(score_draw),
            arguments=of_all | {"number": number},
            out=str(home / f"{number:06}.parquet"),
        )
        for number in range(draws.n_draws)
    ]
    all_facts = engine.do_all(tasks, home, what="null model", unit="draws")
    for drawn, facts in zip(tasks, all_facts, strict=True):
        yield Path(drawn.out), facts


class _DrawInTask(GraphInTask):
    """Which draw a task makes, and how it scores the works in it."""

    configs: dict[str, dict[str, Any]]
    null: Null
    seed: int
    number: int
    n_threads: int


@task
def score_draw(advance: Advance, *, out: Path, **of: Unpack[_DrawInTask]) -> dict[str, int]:
    """Score all dated works in one draw, NaN where undefined, into Parquet with a column per convention and window."""
    graph, n_threads = open_in_task(of["graph"], of["stage_dir"]), of["n_threads"]
    draw = rewire(graph, of["number"], null=of["null"], seed=of["seed"], n_threads=n_threads)
    configs, columns = {name: CDConfig(**one) for name, one in of["configs"].items()}, dict[str, Float64Array]()
    for name, span, values in _indices_by_year(draw.graph, configs, n_threads, advance, in_draws=True):
        columns.setdefault("".join(name), np.empty(graph.n_dated))[span] = values
    write_parquet(pl.DataFrame(columns), out)
    return {"n_mended": draw.n_mended, "n_stuck": draw.n_stuck}


@dataclass(frozen=True, kw_only=True)
class Draw:
    """A rewired graph, with counts of citations swapped away as repeats, and of cells in which no swap was possible."""

    graph: CitationGraph
    n_mended: int
    n_stuck: int


def rewire(
    graph: CitationGraph, number: int, *, null: Null = "rewired", seed: int = 0, n_threads: int | None = None
) -> Draw:
    """Draw one rewired graph, a function of ``graph``, ``null``, ``seed`` and ``number`` alone.

    Memory: 4 bytes per citation, and 20 per citation of one citing year and thread; with ``"configuration"`` 8, and 4
    per work. Citations of works without a year never count, and stay as they are.
    """
    from sciscidata._kernels.random import draw, stream_key
    from sciscidata.disruption import _rewire_kernels as kernels

    threads = n_threads or pl.thread_pool_size()
    key: Any = draw(stream_key(seed, f"cd/{null}"), np.array([number]))[0]
    offsets, observed, refs = graph.ref_offsets, graph.refs, np.array(graph.refs)
    if null == "configuration":
        starts = offsets[: graph.n_dated + 1]
        works, m = np.arange(graph.n_dated, dtype=np.int32), int(starts[-1])
        row_of, tries = np.repeat(works, np.diff(starts)), kernels.TRIES if m <= kernels.SMALL else 1
        counts = [kernels.deal_cell(key, observed[:m], kernels.Cell(refs[:m], starts, works, row_of), tries)]
    else:
        numbers = np.append(graph.years.astype(np.int64) + _YEAR_ZERO, 0)
        classes = kernels.Classes(np.append(graph.year_offsets[1:], graph.n_works), numbers)
        keys = draw(np.array([key]), numbers)

        def deal(j: int) -> tuple[int, int]:
            first, last = graph.year_offsets[j : j + 2].tolist()
            return kernels.deal_year(keys[j], first, last, classes, offsets, observed, refs)

        largest_first = np.argsort(-np.diff(graph.ref_offsets[graph.year_offsets]), kind="stable")
        counts = list(map_in_order(deal, largest_first.tolist(), threads, n_held=graph.years.size + 1))
    n_mended, n_stuck = (sum(parts) for parts in zip(*counts, strict=True)) if counts else (0, 0)
    return Draw(graph=replace(graph, refs=refs), n_mended=n_mended, n_stuck=n_stuck)


def _indices_by_year(
    graph: CitationGraph, configs: Mapping[str, CDConfig], n_threads: int, bar: Advance, *, in_draws: bool = False
) -> Iterator[tuple[tuple[str, str], slice, Float64Array]]:
    """Give convention and window, span, and CD index of some years after the other, NaN where undefined.

    ``in_draws``: a bar advances by 1 for the whole graph, not by references.
    """
    n_references = max(1, _n_references(graph, configs))

    def advance(amount: float, note: str = "") -> None:
        bar(amount / n_references if in_draws else amount, note)

    for name, config in configs.items():
        counter = Counter(graph, config, n_threads, advance)
        parts: list[dict[str, AnyArray]] = []
        begin = 0
        for first, last in pairwise(graph.year_offsets.tolist()):
            parts.append(counter.count(range(first, last)))
            if last - begin >= _ROWS_AT_ONCE or last == graph.n_dated:
                counts = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
                indices = add_indices(counted_rows(graph, range(begin, last), counts), config)
                for window in config.all_windows:
                    values = indices[f"cd_index{window}"].fill_null(np.nan).to_numpy(writable=True)
                    yield (name, window), slice(begin, last), values
                parts, begin = [], last


def _n_references(graph: CitationGraph, configs: Sized) -> int:
    """Count what is read to score a graph under some conventions."""
    return int(graph.ref_offsets[graph.n_dated]) * len(configs)
