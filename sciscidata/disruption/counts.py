"""The whole numbers behind a CD index: who cites a work, its references, or both, inside a moving window."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise

import numpy as np

from sciscidata._kernels.arrays import AnyArray, Int64Array
from sciscidata._support.parallel import map_in_order, run_all
from sciscidata._support.progress import Advance
from sciscidata.disruption.config import CDConfig
from sciscidata.graph.graph import CitationGraph

#: DI_5 counts only citers that share at least this many references.
STRONG = 5
_LAST_STAMP = np.iinfo(np.uint32).max
_WIDE_WINDOW = 1 << 23  # works; what takes more stays in no cache, and is taken part by part
_PART = 1 << 21
_MIN_CHUNK_REFERENCES = 1 << 12  # fewer are not worth handing to a thread


class Counter:
    """Counts for the works of one focal year after the other; the window moves along with them."""

    def __init__(self, graph: CitationGraph, config: CDConfig, n_threads: int, advance: Advance) -> None:
        self._graph, self._config, self._n_threads, self._advance = graph, config, n_threads, advance
        self._window = (_FixedWindow if config.window_from == "cited" else _MovingWindow)(graph, config)

    def count(self, focal: range) -> dict[str, AnyArray]:
        """Count n_i, n_j, n_k, with ``family`` also n_j5, n_shared, n_to_date; cheapest year by year, in order."""
        from sciscidata.disruption import _kernels as kernels

        graph, config, window = self._graph, self._config, self._window
        year = int(graph.years[np.searchsorted(graph.year_offsets, focal.start, side="right") - 1])
        window.move_to(year, self._n_threads)
        counts = np.zeros((len(focal), 3), np.uint32)
        n_j5 = np.zeros(len(focal), np.uint32)
        n_shared = np.zeros(len(focal), np.int64)
        omit_focal = config.same_year and not config.focal_in_n_k

        def share(span: tuple[int, int]) -> int:
            first, last = span
            rows = slice(first - focal.start, last - focal.start)
            place = (window.slices, window.low, max(window.high - window.low, 1), omit_focal)
            given = (first, last, graph.ref_offsets, graph.refs, graph.citers, *place)
            if config.family:
                kernels.count_shared(*given, STRONG, _LAST_STAMP, counts[rows], n_j5[rows], n_shared[rows])
            else:
                width = window.high - window.low
                # One byte each for a single part; with more parts the numbers run out faster.
                stamps = np.zeros(max(width, 1), np.uint8) if width <= _WIDE_WINDOW else np.zeros(_PART, np.uint16)
                kernels.count_citers(*given, stamps, counts[rows])
            return int(graph.ref_offsets[last] - graph.ref_offsets[first])

        cuts = _cuts(graph, focal.start, focal.stop, 4 * self._n_threads)
        with closing(map_in_order(share, pairwise(cuts), self._n_threads, n_held=len(cuts))) as results:
            for done in results:
                self._advance(done)
        n_to_date = window.citers_to_date(focal.start, focal.stop)
        if config.focal_citers == "any":  # those before the window have no stamp, so that they belong to n_i
            counts[:, 0] = n_to_date - counts[:, 1]
        columns: dict[str, AnyArray] = {name: counts[:, i] for i, name in enumerate(("n_i", "n_j", "n_k"))}
        return columns | ({"n_j5": n_j5, "n_shared": n_shared, "n_to_date": n_to_date} if config.family else {})


class _MovingWindow:
    """Which citers count for the present focal year.

    ``slices`` (n, 2) says where in the flat list of citers those of each paper that are inside the window begin and
    end. Works that may be citers at all have indices low .. high - 1.
    """

    def __init__(self, graph: CitationGraph, config: CDConfig) -> None:
        self.graph, self.config = graph, config
        self.slices = _empty_slices(graph)
        self.slices[:] = graph.citer_offsets[:-1, None]
        self.low = self.high = 0

    def move_to(self, year: int, n_threads: int) -> None:
        """Move both ends of every slice to the window of focal works of ``year``; each thread has its papers."""
        from sciscidata.disruption import _kernels as kernels

        graph, config = self.graph, self.config
        low, high = 0, graph.n_dated
        if not config.earlier_citers:
            low = graph.first_index_from(year if config.same_year else year + 1)
        if config.window_years is not None:
            high = graph.first_index_from(year + config.window_years + 1)

        def move(share: tuple[int, int]) -> None:
            for side, (old, new) in enumerate(((self.low, low), (self.high, high))):
                kernels.slide(self.slices, side, graph.ref_offsets, graph.refs, old, new, *share)

        shares: list[int] = np.linspace(0, graph.n_works, n_threads + 1).astype(np.int64).tolist()
        run_all(move, pairwise(shares), n_threads)
        self.low, self.high = low, high

    def citers_to_date(self, begin: int, end: int) -> Int64Array:
        """Count the citers of the works ``begin`` .. ``end - 1`` up to the window's end, with no lower bound."""
        return self.slices[begin:end, 1].astype(np.int64) - self.graph.citer_offsets[begin:end]


class _FixedWindow:
    """Which citers count when each citation is judged by its own age; the same for every focal year."""

    def __init__(self, graph: CitationGraph, config: CDConfig) -> None:
        from sciscidata.disruption import _kernels as kernels

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

    def move_to(self, year: int, n_threads: int) -> None:
        """Stay."""

    def citers_to_date(self, begin: int, end: int) -> Int64Array:
        """Count the citers of the works ``begin`` .. ``end - 1`` that count."""
        return np.diff(self.slices[begin:end].astype(np.int64), axis=1)[:, 0]


def _empty_slices(graph: CitationGraph) -> AnyArray:
    """Make room for a slice per paper; 32 bits, while they suffice, halve the memory and the wait for it."""
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
