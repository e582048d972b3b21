"""The whole numbers behind a CD index: who cites a work, its references, or both, inside a moving window."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import TypeVar

import numpy as np

from sciscidata._kernels.arrays import AnyArray, Int32Array, Int64Array
from sciscidata._support.parallel import map_in_order
from sciscidata.disruption.config import CDConfig, Window
from sciscidata.errors import ConfigError
from sciscidata.graph.graph import CitationGraph
from sciscidata.terminal.progress import Advance

Item = TypeVar("Item")

_LAST_STAMP = np.iinfo(np.uint32).max
_WIDE_WINDOW = 1 << 23  # works; what takes more stays in no cache, and is taken part by part
_PART = 1 << 21
_MOST_HELD = 1 << 30  # citations whose citers are in memory together, 4 bytes each; one window at least
_MIN_CHUNK_REFERENCES = 1 << 12  # fewer are not worth handing to a thread


class Counter:
    """Counts for the works of one focal time after the other, before ``n_focal`` (None: all); windows move along."""

    def __init__(
        self, graph: CitationGraph, config: CDConfig, n_threads: int, advance: Advance, n_focal: int | None = None
    ) -> None:
        self._graph, self._config, self._n_threads, self._advance = graph, config, n_threads, advance
        self._clock = Clock(graph, config)
        limit = graph.n_dated
        if n_focal:
            last = self._clock.time_of(range(n_focal - 1, n_focal))
            limit = max(self._clock.place(last, window)[1] for window in config.all_windows.values())
        windows = config.all_windows
        self._needs_all = config.family or config.focal_citers == "any"  # citers before the window, too
        if config.window_from == "cited":  # a citer is inside for one reference and outside for another: pass by pass
            lists = graph.citers_among(range(graph.n_dated), n_threads)
            self._passes: list[tuple[list[str], _MovingWindow | _FixedWindow]] = [
                ([name], _FixedWindow(self._clock, window, *lists)) for name, window in windows.items()
            ]
        else:
            self._passes = [([*windows], _MovingWindow(self._clock, self._needs_all, limit, advance))]

    def count(self, focal: range) -> dict[str, AnyArray]:
        """Count n_i, n_j, n_k (n_j5, n_shared, n_to_date) of every window by name; cheapest in order, time by time."""
        columns: dict[str, AnyArray] = {}
        for names, window in self._passes:
            for span in self._clock.split(focal):
                window.move_to(self._clock.time_of(span), self._n_threads)
                rows = slice(span.start - focal.start, span.stop - focal.start)
                for name, part in self._count(span, names, window).items():
                    columns.setdefault(name, np.empty(len(focal), part.dtype))[rows] = part
        return columns

    def _count(self, focal: range, names: list[str], window: _MovingWindow | _FixedWindow) -> dict[str, AnyArray]:
        from sciscidata.disruption import _kernels as kernels

        graph, config = self._graph, self._config
        ends = np.unique(window.ends)  # two windows may end with the last work
        counts = np.zeros((len(focal), ends.size, 3), np.uint32)
        n_j5 = np.zeros((len(focal), ends.size), np.uint32)
        n_shared = np.zeros((len(focal), ends.size), np.int64)
        omit_focal = config.same_year and not config.focal_in_n_k

        def share(span: tuple[int, int]) -> int:
            first, last = span
            rows = slice(first - focal.start, last - focal.start)
            width = window.high - window.low
            place = kernels.Place(window.low, max(width, 1), omit_focal)
            longest = int(np.diff(graph.ref_offsets[first : last + 1]).max(initial=1))
            slices = np.empty((2, longest, 2), window.slices.dtype)
            lists = kernels.Lists(graph.ref_offsets, graph.refs, window.citers, window.slices)
            if config.family:
                shared = kernels.Shared(n_j5[rows], n_shared[rows])
                limits = (config.di_l, _LAST_STAMP)
                kernels.count_shared(first, last, lists, place, ends, *limits, slices, counts[rows], shared)
            else:
                # One byte each for a single part; with more parts the numbers run out faster.
                stamps = np.zeros(max(width, 1), np.uint8) if width <= _WIDE_WINDOW else np.zeros(_PART, np.uint16)
                several = ends if ends.size > 1 else None
                found = np.empty(1 if several is None else stamps.size + 1, np.uint32)  # unwritten pages cost nothing
                scratch = kernels.Scratch(slices, stamps, np.iinfo(stamps.dtype).max, found)
                kernels.count_citers(first, last, lists, place, several, scratch, counts[rows])
            return int(graph.ref_offsets[last] - graph.ref_offsets[first])

        spans = [*pairwise(cut_evenly(graph, focal.start, focal.stop, 4 * self._n_threads))]
        with closing(run_in_order(share, spans, self._n_threads)) as results:
            for done in results:
                self._advance(done / len(self._passes))
        columns: dict[str, AnyArray] = {name: counts[:, :, i] for i, name in enumerate(("n_i", "n_j", "n_k"))}
        if self._needs_all:
            n_to_date = window.citers_before(focal.start, focal.stop)[:, None] + counts[:, :, 0] + counts[:, :, 1]
            if config.focal_citers == "any":  # those before the window have no stamp, so that they belong to n_i
                counts[:, :, 0] = n_to_date - counts[:, :, 1]
            if config.family:
                columns |= {f"n_j{config.di_l}": n_j5, "n_shared": n_shared, "n_to_date": n_to_date}
        at, time = np.searchsorted(ends, window.ends).tolist(), self._clock.time_of(focal)
        is_late = [config.is_too_late(time, config.all_windows[window_name]) for window_name in names]
        return {
            name + window_name: np.zeros_like(column[:, place]) if late else column[:, place]
            for window_name, place, late in zip(names, at, is_late, strict=True)
            for name, column in columns.items()
        }


def run_in_order(
    work: Callable[[tuple[int, int]], Item], spans: list[tuple[int, int]], n_threads: int
) -> Generator[Item]:
    """Work on spans in order. One thread, or one span, as on most days, gets no pool, which costs a millisecond."""
    if n_threads == 1 or len(spans) == 1:
        yield from map(work, spans)
    else:
        yield from map_in_order(work, spans, n_threads, n_held=len(spans))


class Clock:
    """The times of dated works: years, or days if the convention says so."""

    def __init__(self, graph: CitationGraph, config: CDConfig) -> None:
        self.graph, self.config = graph, config
        self.times, self.offsets = graph.years.astype(np.int64), graph.year_offsets
        if config.time == "publication_date":
            if graph.days is None or graph.day_offsets is None:
                raise ConfigError(
                    "CDConfig.time is 'publication_date', and the graph has no dates. Build it with "
                    "build_graph(works, citations, time='publication_date')."
                )
            self.times, self.offsets = graph.days, graph.day_offsets

    def split(self, focal: range) -> list[range]:
        """Cut a range of dated works where the time changes."""
        return split_at(self.offsets, focal)

    def time_of(self, span: range) -> int:
        """Return the time of works that have the same."""
        return int(self.times[np.searchsorted(self.offsets, span.start, side="right") - 1])

    def place(self, time: int, window: Window) -> tuple[int, int]:
        """Return the index of the first work inside a window of works of ``time``, and of the first one after it."""
        inside = self.config.times_of_citers(time, window)
        low, high = self.offsets[np.searchsorted(self.times, [inside.start, inside.stop])].tolist()
        return low, high


def split_at(offsets: Int64Array, span: range) -> list[range]:
    """Cut a range of works at the offsets inside it."""
    first, last = np.searchsorted(offsets, [span.start, span.stop], side="right").tolist()
    cuts = [span.start, *offsets[first:last].tolist(), span.stop]
    return [range(a, b) for a, b in pairwise(cuts) if a < b]


class _MovingWindow:
    """Which citers count for the present focal time.

    ``citers`` holds the lists of the citers among ``held``, as many works as memory allows. ``slices`` (n, 2) says
    which of each paper's are inside the widest window. Possible citers have indices low .. high - 1; ``ends`` has the
    end of every window, none behind ``limit``. ``counts_all``: citers before ``held``, too.
    """

    def __init__(self, clock: Clock, counts_all: bool, limit: int, advance: Advance) -> None:
        self.clock, self._limit, self._advance = clock, limit, advance
        self.graph, self.config = clock.graph, clock.config
        self.held = range(0)
        self.starts = self.slices = self.citers = np.empty(0, np.uint32)
        self._n_earlier = np.zeros(clock.graph.n_works, np.uint32) if counts_all else None
        self.low = self.high = 0
        self.ends: Sequence[int] = ()

    def move_to(self, time: int, n_threads: int) -> None:
        """Move both ends of every slice to the windows of focal works of ``time``; each thread has its papers."""
        from sciscidata.disruption import _kernels as kernels

        graph, config = self.graph, self.config
        lows, self.ends = zip(*(self.clock.place(time, window) for window in config.all_windows.values()), strict=True)
        low, high = lows[0], max(self.ends)
        if not (self.held and self.held.start <= low and high <= self.held.stop):
            self._hold(low, high, n_threads)

        lists = kernels.Lists(graph.ref_offsets, graph.refs, self.citers, self.slices)

        def move(share: tuple[int, int]) -> None:
            for side, (old, new) in enumerate(((self.low, low), (self.high, high))):
                kernels.slide(lists, side, old, new, *share)

        moved = graph.ref_offsets[[self.low, low]], graph.ref_offsets[[self.high, high]]
        n_shares = n_threads if sum(int(b - a) for a, b in moved) > _MIN_CHUNK_REFERENCES else 1
        shares: list[int] = np.linspace(0, graph.n_works, n_shares + 1).astype(np.int64).tolist()
        deque(run_in_order(move, [*pairwise(shares)], n_threads), maxlen=0)
        self.low, self.high = low, high

    def _hold(self, low: int, high: int, n_threads: int) -> None:
        """Make the lists of the citers from ``low`` on, at least to ``high``; every slice is empty then."""
        from sciscidata.graph import _kernels as kernels

        graph, offsets = self.graph, self.graph.ref_offsets
        self._advance(0, "listing citers")
        if self._n_earlier is not None:
            kernels.count(graph.refs[offsets[self.held.start] : offsets[low]], 0, self._n_earlier)
        reach = int(np.searchsorted(offsets, offsets[low] + _MOST_HELD, side="right")) - 1
        # With earlier citers no list is ever done with, so a second range would begin with the first one again.
        self.held = range(low, self._limit if self.config.earlier_citers else max(high, min(reach, self._limit)))
        self.starts = self.slices = self.citers = np.empty(0, np.uint32)  # give their memory back first
        self.starts, self.citers = graph.citers_among(self.held, n_threads)
        self.slices = np.repeat(self.starts[:-1, None], 2, axis=1)
        self.low = self.high = low
        if self._n_earlier is None:
            self.starts = self.starts[:0]

    def citers_before(self, begin: int, end: int) -> Int64Array:
        """Count the citers of the works ``begin`` .. ``end - 1`` before the windows begin."""
        assert self._n_earlier is not None
        inside = self.slices[begin:end, 0] - self.starts[begin:end]
        return self._n_earlier[begin:end].astype(np.int64) + inside


class _FixedWindow:
    """Which citers count when each citation is judged by its own age; the same for every focal time."""

    def __init__(self, clock: Clock, window: Window, starts: AnyArray, citers: Int32Array) -> None:
        from sciscidata.disruption import _kernels as kernels

        graph = clock.graph
        self.citers = citers
        self.slices = np.empty((graph.n_works, 2), starts.dtype)
        self.low, self.high = 0, graph.n_dated
        self.ends = [self.high]
        places = np.zeros((2, graph.n_works), np.int64)  # nothing cites an undated work at a known age
        of_times = np.array([clock.place(time, window) for time in clock.times.tolist()], np.int64).reshape(-1, 2)
        places[:, : graph.n_dated] = np.repeat(of_times, np.diff(clock.offsets), axis=0).T
        kernels.slices_by_own_age(self.slices, starts, citers, *places)

    def move_to(self, time: int, n_threads: int) -> None:
        """Stay."""

    def citers_before(self, begin: int, end: int) -> Int64Array:
        """Count none: what counts is inside."""
        return np.zeros(end - begin, np.int64)


def cut_evenly(graph: CitationGraph, begin: int, end: int, n_chunks: int) -> list[int]:
    """Cut the works ``begin`` .. ``end - 1`` into at most ``n_chunks`` ranges with about as many references each."""
    total = int(graph.ref_offsets[end] - graph.ref_offsets[begin])
    size = max(_MIN_CHUNK_REFERENCES, -(-total // n_chunks))
    cuts = [begin]
    while cuts[-1] < end:
        reach = int(np.searchsorted(graph.ref_offsets, graph.ref_offsets[cuts[-1]] + size))
        cuts.append(min(end, max(cuts[-1] + 1, reach)))
    return cuts
