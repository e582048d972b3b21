"""Who cites each work, on disk beside a graph: so that a reader of few works needs no pass over all citations."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Int32Array, Int64Array
from sciscidata._support.parallel import run_all
from sciscidata.errors import StorageError
from sciscidata.graph.graph import CitationGraph, graph_folder
from sciscidata.storage import cached_folder
from sciscidata.terminal.progress import progress_bar

_FILE: Final = "citers.bin"
_MOST_CITERS = 1 << 29  # held at a time, 4 bytes each


def write_citers(graph: CitationGraph) -> Path:
    """Write the citers of every work of a graph on disk into a folder beside it, or use it again; return the folder.

    The file has int32 indices of citing works, 4 bytes per citation: those of work i, ascending, lie from
    citer_offsets[i] to citer_offsets[i+1]. Memory: at most 2 GB, and 8 bytes per work, beside mapped files. A pass over
    all citations makes the citers of half a billion.
    """
    return cached_folder(_folder_of(graph), partial(_make, graph))


def _folder_of(graph: CitationGraph) -> Path:
    folder = graph_folder(graph)
    return folder.with_name(f"citers-{folder.name.removeprefix('graph-')}")


def _make(graph: CitationGraph, folder: Path) -> None:
    from sciscidata.graph import _kernels as kernels  # numba takes a while to import

    offsets, first = graph.citer_offsets, 0
    n_threads = pl.thread_pool_size()
    with (folder / _FILE).open("wb") as file, progress_bar("citers", graph.n_citations, unit="citations") as advance:
        while first < graph.n_works:
            reach = int(np.searchsorted(offsets, offsets[first] + _MOST_CITERS, side="right")) - 1
            last = max(first + 1, reach)
            begin, end = offsets[[first, last]].tolist()
            citers = np.empty(end - begin, np.int32)
            cursor: Int64Array = offsets[first:last] - begin
            ends = begin + (end - begin) * np.arange(n_threads + 1) // n_threads
            cuts = np.searchsorted(offsets[first:last], ends).tolist()
            cuts[-1] = last - first

            def scatter(
                share: tuple[int, int], first: int = first, cursor: Int64Array = cursor, citers: Int32Array = citers
            ) -> None:
                part = cursor[slice(*share)]
                all_works = (0, graph.n_works)
                kernels.scatter_citers(graph.ref_offsets, graph.refs, *all_works, first + share[0], part, citers)

            run_all(scatter, pairwise(cuts), n_threads)
            citers.tofile(file)
            advance(end - begin)
            first = last


def read_citers(graph: CitationGraph, works: Int32Array) -> list[Int32Array] | None:
    """Return the citers of some works of a graph on disk, by index; None if ``write_citers`` has not been there."""
    path = _folder_of(graph) / _FILE
    if not path.is_file():
        return None
    offsets = graph.citer_offsets[np.stack([works, works + 1])].T.tolist()
    if path.stat().st_size != 4 * graph.n_citations or not all(0 <= a <= b <= graph.n_citations for a, b in offsets):
        raise _damage(path)
    found = [np.fromfile(path, np.int32, end - begin, offset=4 * begin) for begin, end in offsets]
    if any(one.size and not (one.min() >= 0 and one.max() < graph.n_works) for one in found):
        raise _damage(path)
    return found


def _damage(path: Path) -> StorageError:
    return StorageError(f"{path} is damaged. Remove its folder; `sciscidata graph CORPUS --citers` makes it again.")
