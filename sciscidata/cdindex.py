"""The CD (disruption) index and its family, exact, for every work of a citation graph."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.checks import check_threads, is_whole
from sciscidata.errors import ConfigError
from sciscidata.graph import CitationGraph, build_graph
from sciscidata.progress import progress_bar
from sciscidata.schemas import CD_FAMILY, CD_SCORES, CITATIONS, WORKS, require_columns

#: DI_5 counts only citers that share at least this many references.
STRONG = 5
_LAST_STAMP = np.iinfo(np.uint32).max
_MAX_WINDOW = 9_999  # years; None has no end
_MIN_CHUNK_REFERENCES = 1 << 12  # fewer are not worth handing to a thread


@dataclass(frozen=True, kw_only=True, slots=True)
class CDConfig:
    """Which citers count, and what an undefined index is. The defaults are Funk & Owen-Smith's.

    Attributes:
        window_years: a citer counts up to this many years (0 .. 9,999) after the focal work; None: without end.
        same_year: count citers of the focal work's own year too.
        earlier_citers: count works that cite the references but are older than the focal work; needs same_year.
        focal_in_n_k: count the focal work itself, which cites all its references, in n_k; needs same_year.
        window_from: ``"focal"``: the window runs from the focal work's year. ``"cited"``: each citation is
            judged by its own age, 0 .. window_years from the year of the paper it cites (pySciSci).
        focal_citers: ``"window"``: only works inside the window count in n_i. ``"any"``: so do works that cite the
            focal work before its window begins, whatever else they cite (novelpy).
        zero_references: a work without a reference on record gets ``"null"`` (its record is incomplete, and it
            would score 1), or is scored like any other: ``"keep"``.
        uncited: a work without a citer in the window is scored (0, if somebody cites its references): ``"keep"``;
            or is undefined: ``"null"``.
        undefined: what an undefined cd_index becomes: ``"null"``, or ``"zero"`` as novelpy has it.
        family: add the columns of CD_FAMILY.

    Raises:
        ConfigError: on construction, if a value is not one of those named here, or two options contradict each other.

    Example:
        >>> CDConfig(window_years=10).window_years
        10
        >>> CDConfig.compat("sciscinet_v1_d").focal_in_n_k
        True
    """

    window_years: int | None = 5
    same_year: bool = False
    earlier_citers: bool = False
    focal_in_n_k: bool = False
    window_from: Literal["focal", "cited"] = "focal"
    focal_citers: Literal["window", "any"] = "window"
    zero_references: Literal["null", "keep"] = "null"
    uncited: Literal["keep", "null"] = "keep"
    undefined: Literal["null", "zero"] = "null"
    family: bool = False

    def __post_init__(self) -> None:
        problem = ""
        if self.window_years is not None and not (
            is_whole(self.window_years) and 0 <= self.window_years <= _MAX_WINDOW
        ):
            problem = f"window_years must be None or a whole number from 0 to {_MAX_WINDOW}, got {self.window_years!r}."
        elif self.window_years == 0 and not self.same_year:
            problem = "window_years=0 holds no year at all; set same_year=True, or widen the window."
        elif self.earlier_citers and not self.same_year:
            problem = "earlier_citers=True includes the focal year; set same_year=True too."
        elif self.focal_in_n_k and not self.same_year:
            problem = "focal_in_n_k=True has no effect without the focal year; set same_year=True too."
        elif self.window_from == "cited" and (self.window_years is None or not self.same_year):
            problem = "window_from='cited' needs window_years and same_year=True: ages run from 0."
        elif self.window_from == "cited" and self.focal_citers == "any":
            problem = "focal_citers='any' has no effect on windows of their own; set window_from='focal' too."
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, type(allowed[0])) or value not in allowed:  # 1 equals True
                problem = f"{name} must be one of {', '.join(map(str, allowed))}, got {value!r}."
        if problem:
            msg = f"CDConfig: {problem}"
            raise ConfigError(msg)

    @classmethod
    def compat(cls, name: str, **changes: Any) -> CDConfig:  # noqa: ANN401
        """Return the convention of another implementation, so that its published numbers can be reproduced.

        Args:
            name: a key of ``COMPAT``.
            **changes: options to set differently, for example ``family=True`` or ``window_years=10``.

        Raises:
            ConfigError: at once, if there is no such convention or option, and as CDConfig.
        """
        # Lists, because what a TOML file names need not be hashable.
        asked = [("convention", name, list(COMPAT))]
        asked += [("option", option, [field.name for field in fields(cls)]) for option in changes]
        for kind, word, known in asked:
            if word not in known:
                msg = f"CDConfig.compat: no {kind} {word!r}; choose one of {', '.join(known)}."
                raise ConfigError(msg)
        return cls(**(COMPAT[name] | changes))


#: The values of every option that has but a few; a bool has no arguments.
_CHOICES = {
    name: get_args(hint) or (False, True) for name, hint in get_type_hints(CDConfig).items() if name != "window_years"
}

#: How other implementations differ from the default. A work or citer without a year never counts here, in any
#: of them; the originals assume that every work has one.
COMPAT: dict[str, dict[str, Any]] = {
    # PyPI cdindex and fast-cdindex, at year resolution; the C code of Funk & Owen-Smith 2017.
    "cdindex": {"window_years": 5, "zero_references": "keep"},
    # D of Wu, Wang & Evans 2019: all later citers, works without references left out.
    "wu_wang_evans": {"window_years": None},
    # SciSciNet v1 (Lin et al. 2023), column D: no bound on time at all, the focal work in n_k, cited works only.
    "sciscinet_v1_d": {
        "window_years": None,
        "same_year": True,
        "earlier_citers": True,
        "focal_in_n_k": True,
        "uncited": "null",
    },
    # SciSciNet v1, column CD5: citers of year 0 .. 5, the focal work in n_k.
    "sciscinet_v1_cd5": {"window_years": 5, "same_year": True, "focal_in_n_k": True, "uncited": "null"},
    # novelpy: from the focal year on, but older citers of the focal work count in n_i; undefined is 0. Its DI5
    # and DeIn also count the references that older citers share; n_j5 and n_shared do not.
    "novelpy": {
        "window_years": None,
        "same_year": True,
        "focal_citers": "any",
        "zero_references": "keep",
        "undefined": "zero",
    },
    # pySciSci, disruption_index(cite_window=[0, 5]): each citation is judged by its own age.
    "pyscisci": {
        "window_years": 5,
        "same_year": True,
        "earlier_citers": True,
        "focal_in_n_k": True,
        "window_from": "cited",
        "uncited": "null",
    },
    # CrossDI (Xu et al. 2025): everybody up to the end of the window; works without references are kept.
    "crossdi": {"window_years": 5, "same_year": True, "earlier_citers": True, "zero_references": "keep"},
}


def compute_cd_index(
    citations: pl.LazyFrame,
    works: pl.LazyFrame,
    config: CDConfig | None = None,
    *,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Score every work by what later papers cite with it. Runs nothing until collected.

    Among the works published 1 .. window_years years after focal f: n_i cite f and none of its references, n_j
    cite f and at least one of them, n_k cite at least one of them and not f;
    cd_index = (n_i - n_j) / (n_i + n_j + n_k).

    Args:
        citations: CITATIONS, in any order; repeats and self-citations are ignored.
        works: WORKS; only work_id and publication_year are read.
        config: conventions; ``CDConfig()`` when None.
        cache_dir: keep the graph here for later runs; see build_graph.
        n_threads: as many as Polars uses (POLARS_MAX_THREADS) when None. The result does not depend on it.

    Returns:
        CD_SCORES, one row per work, unordered: -1 consolidating .. +1 disruptive; null if the work has no
        reference, no year, or nobody in the three sets. With ``config.family`` also CD_FAMILY:
        n_refs (distinct references), n_j5 (citers that share at least 5 of them), n_shared (references shared,
        summed over citers), mcd_index (cd_index times the citers up to the window's end), di5_index
        ((n_i - n_j5) / (n_i + n_j5 + n_k)), di_nok_index ((n_i - n_j) / (n_i + n_j)), dependence
        (n_shared / (n_i + n_j)).

    Raises:
        ConfigError: at once, if ``config`` is no CDConfig or ``n_threads`` no number of threads.
        SchemaMismatchError: at once, before any row is read.
        WorkIdError: at collect, if a work_id is null or repeated.
        EmptyInputError: at collect, if ``works`` has no row.

    Source: Funk & Owen-Smith 2017, doi:10.1287/mnsc.2015.2366; DI_5 and DI without n_k: Bornmann et al. 2020,
    doi:10.1162/qss_a_00068; null without references: Holst et al. 2024, arXiv:2402.14583.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3, 4, 5], "publication_year": [1990, 2000, 2001, 2002, 2003]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.LazyFrame({"citing_id": [2, 3, 4, 4, 5], "cited_id": [1, 2, 2, 1, 1]})
        >>> compute_cd_index(citations, works).filter(pl.col("work_id") == 2).collect().row(0)
        (2, 1, 1, 1, 0.0)
    """
    require_columns(citations, CITATIONS, frame_name="CITATIONS", stage="compute_cd_index")
    read = ("work_id", "publication_year")
    require_columns(works, WORKS, frame_name="WORKS", stage="compute_cd_index", columns=read)
    config = _checked(config, n_threads)

    def score() -> pl.DataFrame:
        graph = build_graph(citations, works, cache_dir=cache_dir)
        return score_graph(graph, config, n_threads=n_threads)

    return pl.defer(score, schema=_schema(config))


def score_graph(
    graph: CitationGraph,
    config: CDConfig | None = None,
    *,
    n_threads: int | None = None,
) -> pl.DataFrame:
    """Score every work of a graph built before. Executes; the frame is that of compute_cd_index.

    Rows come in the graph's index order, that is by (year, id), works without a year last.

    Raises:
        ConfigError: at once, if ``config`` is no CDConfig or ``n_threads`` no number of threads.
    """
    config = _checked(config, n_threads)
    n_dated = graph.n_dated
    columns: dict[str, npt.NDArray[Any]] = {"work_id": graph.work_ids[:n_dated]}
    columns |= _count_all(graph, config, n_threads or pl.thread_pool_size())
    columns["n_refs"] = np.diff(graph.ref_offsets[: n_dated + 1]).astype(np.uint32)
    rows = pl.DataFrame(columns)
    if graph.n_known > n_dated:
        undated = pl.DataFrame({"work_id": graph.work_ids[n_dated : graph.n_known]})
        rows = pl.concat([rows, undated], how="diagonal")
    return add_indices(rows, config)


def _checked(config: CDConfig | None, n_threads: int | None) -> CDConfig:
    """Refuse what type hints alone do not keep out of a notebook."""
    config = CDConfig() if config is None else config
    if not isinstance(config, CDConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"config is {config!r}, needs a CDConfig, for example CDConfig(window_years=10), or None."
        raise ConfigError(msg)
    check_threads(n_threads)
    return config


def _schema(config: CDConfig) -> pl.Schema:
    return pl.Schema(CD_SCORES | CD_FAMILY) if config.family else CD_SCORES


def add_indices(counts: pl.DataFrame, config: CDConfig) -> pl.DataFrame:
    """Define every index from whole numbers, so that one division is the only rounding.

    Args:
        counts: work_id, n_i, n_j, n_k and n_refs; with ``config.family`` also n_j5, n_shared and n_to_date (citers
            up to the window's end). A null count leaves null what depends on it.
        config: which indices, and when they are undefined.

    Returns:
        CD_SCORES, with ``config.family`` also CD_FAMILY, in the order of ``counts``.

    Example:
        >>> counts = pl.DataFrame({"work_id": [7], "n_i": [3], "n_j": [1], "n_k": [4], "n_refs": [20]})
        >>> add_indices(counts, CDConfig())["cd_index"].to_list()
        [0.25]
    """
    n_i, n_j, n_k = (pl.col(name).cast(pl.Int64) for name in ("n_i", "n_j", "n_k"))
    usable = pl.lit(value=True)
    if config.zero_references == "null":
        usable &= pl.col("n_refs") > 0
    if config.uncited == "null":
        usable &= n_i + n_j > 0

    def ratio(above: pl.Expr, below: pl.Expr) -> pl.Expr:
        return pl.when(usable & (below > 0)).then(above / below)

    cd = ratio(n_i - n_j, n_i + n_j + n_k)
    indices = {"cd_index": cd}
    if config.undefined == "zero":
        indices["cd_index"] = pl.when(n_i.is_not_null()).then(cd.fill_null(0.0))
    if config.family:
        n_j5 = pl.col("n_j5").cast(pl.Int64)
        indices |= {
            "mcd_index": cd * pl.col("n_to_date"),
            "di5_index": ratio(n_i - n_j5, n_i + n_j5 + n_k),
            "di_nok_index": ratio(n_i - n_j, n_i + n_j),
            "dependence": ratio(pl.col("n_shared"), n_i + n_j),
        }
    schema = _schema(config)
    return counts.with_columns(**indices).select(schema.names()).cast(schema)


def _count_all(graph: CitationGraph, config: CDConfig, n_threads: int) -> dict[str, npt.NDArray[Any]]:
    """Walk the focal years in order, moving the window along, and share each year's works among threads."""
    from sciscidata import cd_kernels as kernels

    n = graph.n_dated
    counts = np.zeros((n, 3), np.uint32)
    n_j5 = np.zeros(n, np.uint32)
    n_shared, n_to_date = np.zeros((2, n), np.int64)
    omit_focal = config.same_year and not config.focal_in_n_k
    n_references = int(graph.ref_offsets[n])
    kind = _FixedWindow if config.window_from == "cited" else _MovingWindow
    with ThreadPoolExecutor(n_threads) as pool, progress_bar("CD index", n_references, unit="references") as advance:
        window = kind(graph, config)

        def count(first: int, last: int) -> int:
            place = (window.slices, window.low, max(window.high - window.low, 1), omit_focal)
            given = (first, last, graph.ref_offsets, graph.refs, graph.citers, *place)
            if config.family:
                kernels.count_shared(*given, STRONG, _LAST_STAMP, counts, n_j5, n_shared)
            else:
                kernels.count_citers(*given, counts)
            return int(graph.ref_offsets[last] - graph.ref_offsets[first])

        for j, year in enumerate(graph.years.tolist()):
            window.move_to(year, pool, n_threads)
            begin, end = int(graph.year_offsets[j]), int(graph.year_offsets[j + 1])
            cuts = _cuts(graph, begin, end, 4 * n_threads)
            for done in pool.map(count, cuts[:-1], cuts[1:]):
                advance(done)
            n_to_date[begin:end] = window.citers_to_date(begin, end)
    if config.focal_citers == "any":  # those before the window have no stamp, so that they belong to n_i
        counts[:, 0] = n_to_date - counts[:, 1]
    names = ("n_i", "n_j", "n_k")
    columns: dict[str, npt.NDArray[Any]] = {name: counts[:, i] for i, name in enumerate(names)}
    return columns | ({"n_j5": n_j5, "n_shared": n_shared, "n_to_date": n_to_date} if config.family else {})


class _MovingWindow:
    """Which citers count for the present focal year.

    Attributes:
        slices: (n, 2), for every paper, where in the flat list of citers those inside the window begin and end.
        low, high: the works that may be citers at all have indices low .. high - 1.
    """

    def __init__(self, graph: CitationGraph, config: CDConfig) -> None:
        self.graph, self.config = graph, config
        self.slices = _empty_slices(graph)
        self.slices[:] = graph.citer_offsets[:-1, None]
        self.low = self.high = 0

    def move_to(self, year: int, pool: ThreadPoolExecutor, n_threads: int) -> None:
        """Move both ends of every slice to the window of focal works of ``year``; each thread has its papers."""
        from sciscidata import cd_kernels as kernels

        graph, config = self.graph, self.config
        low, high = 0, graph.n_dated
        if not config.earlier_citers:
            low = graph.first_index_from(year if config.same_year else year + 1)
        if config.window_years is not None:
            high = graph.first_index_from(year + config.window_years + 1)

        def move(first: int, last: int) -> None:
            for side, (old, new) in enumerate(((self.low, low), (self.high, high))):
                kernels.slide(self.slices, side, graph.ref_offsets, graph.refs, old, new, first, last)

        shares: list[int] = np.linspace(0, graph.n_works, n_threads + 1).astype(np.int64).tolist()
        list(pool.map(move, shares[:-1], shares[1:]))
        self.low, self.high = low, high

    def citers_to_date(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        """Count the citers of the works ``begin`` .. ``end - 1`` up to the window's end, with no lower bound."""
        return self.slices[begin:end, 1].astype(np.int64) - self.graph.citer_offsets[begin:end]


class _FixedWindow:
    """Which citers count when each citation is judged by its own age: the same for every focal year."""

    def __init__(self, graph: CitationGraph, config: CDConfig) -> None:
        from sciscidata import cd_kernels as kernels

        assert config.window_years is not None  # CDConfig has checked
        self.slices = _empty_slices(graph)
        self.low, self.high = 0, graph.n_dated
        lows = np.zeros(graph.n_works, np.int64)
        highs = np.zeros(graph.n_works, np.int64)  # nothing cites an undated work at a known age
        sizes = np.diff(graph.year_offsets)
        ends = [graph.first_index_from(year + config.window_years + 1) for year in graph.years.tolist()]
        lows[: graph.n_dated] = np.repeat(graph.year_offsets[:-1], sizes)
        highs[: graph.n_dated] = np.repeat(np.array(ends, np.int64), sizes)
        kernels.slices_by_own_age(self.slices, graph.citer_offsets, graph.citers, lows, highs)

    def move_to(self, year: int, pool: ThreadPoolExecutor, n_threads: int) -> None:
        """Stay."""

    def citers_to_date(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        """Count the citers of the works ``begin`` .. ``end - 1`` that count."""
        return np.diff(self.slices[begin:end].astype(np.int64), axis=1)[:, 0]


def _empty_slices(graph: CitationGraph) -> npt.NDArray[Any]:
    """Make room for a slice per paper; half the memory, and half the wait for it, while 32 bits suffice."""
    position = np.uint32 if graph.n_citations <= np.iinfo(np.uint32).max else np.int64
    return np.empty((graph.n_works, 2), position)


def _cuts(graph: CitationGraph, begin: int, end: int, n_chunks: int) -> list[int]:
    """Cut the works ``begin`` .. ``end - 1`` into at most ``n_chunks`` ranges with about as many references each."""
    total = int(graph.ref_offsets[end] - graph.ref_offsets[begin])
    size = max(_MIN_CHUNK_REFERENCES, -(-total // n_chunks))
    cuts = [begin]
    while cuts[-1] < end:
        reach = int(np.searchsorted(graph.ref_offsets, graph.ref_offsets[cuts[-1]] + size))
        cuts.append(min(end, max(cuts[-1] + 1, reach)))
    return cuts
