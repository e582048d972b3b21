"""Citation graphs of any size, written out of core: works with 64-bit ids, edges in Parquet files of about 50M rows.

Works are made year by year (1900 to 2024, 4.5 % more each year). A work has no reference with probability 0.3, else a
lognormal number of them: 10.8 references per work, or fewer with a higher probability. Half of the references are
chosen directly: an age (lognormal, median about 4 years), mostly the own field, and within it works of high fitness
first. The others are a reference of one of the work's own references: that closes triangles, as real citations do, and
favours what is cited already. One reference in 500 goes anywhere, even to a later work.

Every work has a venue: one of the 276 of its field, or, for one work in eight, a general one that serves all fields.
Both follow a law of Zipf and Mandelbrot. Of 116.6M works there are 251,000 venues, the largest with 820,000 works.

Only four references of each work are remembered for this, so memory is 16 bytes per work and a few blocks of edges.
The same number of works and seed give the same edges whatever the number of threads.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit

FIRST_YEAR, LAST_YEAR = 1900, 2024
ROWS_PER_FILE = 50_000_000
_BLOCK = 1 << 20  # works made at a time
_MEAN_REFERENCES, _SIGMA, _MOST_REFERENCES = 16.4, 0.9, 300
SHARE_WITHOUT = 0.3
_FIRST_ID = 1_500_000_000
_KEPT = 4
_EDGES = pa.schema({"citing_id": pa.int64(), "cited_id": pa.int64()})
_WORKS = pa.schema({"work_id": pa.int64(), "publication_year": pa.int32(), "source_id": pa.int64()})
_VENUES_PER_FIELD, _GENERAL_VENUES, _GENERAL = 276, 3, 0.125


@njit(inline="always")
def _mix(x):
    z = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(nogil=True, cache=True)
def work_ids(first, last, seed):
    """Return the ids of the works ``first`` .. ``last - 1``: distinct, from 1.5e9 to 5.8e9, in no order.

    Four Feistel rounds permute the 32-bit numbers.
    """
    ids = np.empty(last - first, np.int64)
    low = np.uint64(0xFFFF)
    for i in range(first, last):
        left, right = np.uint64(i) >> np.uint64(16), np.uint64(i) & low
        for turn in range(4):
            left, right = right, left ^ (_mix(right + np.uint64(65536 * (4 * seed + turn))) & low)
        ids[i - first] = _FIRST_ID + np.int64((left << np.uint64(16)) | right)
    return ids


@njit(nogil=True, cache=True)
def _cite(order, year, starts, n_fields, lengths, ages, seed, remembered, rows, cited):
    """Choose the references of the works ``order``, all of one year; return how many there are."""
    n = starts[-1]
    mine = np.empty(lengths.max() + 1, np.int64)
    total = 0
    for w in range(order.size):
        i = np.int64(order[w])
        state = _mix(np.uint64(i) ^ _mix(np.uint64(seed)))
        k = 0
        for _ in range(lengths[np.int64(state & np.uint64(lengths.size - 1))]):
            state = _mix(state)
            u = np.float64(state >> np.uint64(40)) / 16777216.0
            bits = state & np.uint64(0xFFFFFF)
            state = _mix(state)
            v = np.float64(state >> np.uint64(32)) / 4294967296.0
            target = np.int64(-1)
            if u < 0.002:
                target = np.int64(v * n)
            elif u < 0.5 and k > 0:
                through = mine[np.int64(bits % np.uint64(k))]
                if through < starts[year]:
                    target = np.int64(remembered[through, np.int64(v * _KEPT)])
            if target < 0:
                then = year - ages[np.int64(bits & np.uint64(ages.size - 1))]
                if then < 0:
                    continue
                low, size = starts[then], starts[then + 1] - starts[then]
                field = (i - starts[year]) * n_fields // (starts[year + 1] - starts[year])
                if bits >> np.uint64(12) < np.uint64(819):  # one in five: another field
                    field = np.int64(bits * np.uint64(n_fields) >> np.uint64(12)) % n_fields
                begin, end = low + size * field // n_fields, low + size * (field + 1) // n_fields
                target = begin + np.int64((end - begin) * v * v * v * v)
                if then == year and target >= i:
                    continue
            repeated = target == i or target >= n
            for r in range(k):
                repeated |= mine[r] == target
            if not repeated:
                mine[k] = target
                k += 1
        for r in range(k):
            rows[total + r] = i
            cited[total + r] = mine[r]
        for r in range(_KEPT):
            remembered[i, r] = mine[r % k] if k else -1
        total += k
    return total


def generate(
    folder: Path, n_works: int, seed: int = 7, n_threads: int = 2, share_without: float = SHARE_WITHOUT
) -> int:
    """Write ``works.parquet`` and ``edges-*.parquet`` into ``folder``; return the number of edges.

    The edges of one work are together; works are in ascending order of id within blocks, and each file holds the
    citing works of a range of ids.
    """
    folder.mkdir(parents=True, exist_ok=True)
    years = np.arange(FIRST_YEAR, LAST_YEAR + 1)
    share = np.cumsum(np.exp(0.045 * (years - FIRST_YEAR)))
    starts = np.concatenate([[0], np.rint(share / share[-1] * n_works)]).astype(np.int64)
    n_fields = max(8, round(n_works**0.5 / 12))
    lengths, ages = _quantiles_of_lengths(share_without), _quantiles_of_ages()
    remembered = np.full((n_works, _KEPT), -1, np.int32)
    n_files = max(1, round(lengths.mean() * n_works / ROWS_PER_FILE))
    bounds = _FIRST_ID + np.arange(1, n_files) * ((1 << 32) // n_files)

    def make(block: tuple[int, int, int]) -> tuple[pa.Table, list[pa.Table]]:
        year, first, last = block
        ids = work_ids(first, last, seed)
        order = np.argsort(ids)
        rows, cited = np.empty((2, (last - first) * 24 + 4096), np.int32)
        total = _cite(order + first, year, starts, n_fields, lengths, ages, seed, remembered, rows, cited)
        assert total <= rows.size
        citing_id = ids[rows[:total] - first]
        cited_id = _ids_of(cited[:total], seed)
        cuts = np.concatenate([[0], np.searchsorted(citing_id, bounds), [total]])
        parts = [pa.table([citing_id[a:b], cited_id[a:b]], schema=_EDGES) for a, b in pairwise(cuts)]
        published = np.full(last - first, FIRST_YEAR + year, np.int32)
        field = (np.arange(first, last) - starts[year]) * n_fields // (starts[year + 1] - starts[year])
        venues = _draw_venues(field, n_fields, np.random.Generator(np.random.PCG64([seed, first])))
        return pa.table([ids[order], published, venues[order]], schema=_WORKS), parts

    n_edges = 0
    options = {"compression": "zstd", "compression_level": 1, "use_dictionary": ["citing_id"]}
    edge_files = [pq.ParquetWriter(folder / f"edges-{i:03d}.parquet", _EDGES, **options) for i in range(n_files)]
    work_file = pq.ParquetWriter(folder / "works.parquet", _WORKS, compression="zstd", use_dictionary=False)
    with ThreadPoolExecutor(n_threads) as pool:
        for year in range(years.size):
            cuts = [*range(int(starts[year]), int(starts[year + 1]), _BLOCK), int(starts[year + 1])]
            blocks = [(year, a, b) for a, b in pairwise(cuts)]
            for i in range(0, len(blocks), n_threads):  # no more finished blocks in memory than threads
                for works, parts in pool.map(make, blocks[i : i + n_threads]):
                    work_file.write_table(works)
                    list(pool.map(lambda pair: pair[0].write_table(pair[1]), zip(edge_files, parts, strict=True)))
                    n_edges += sum(part.num_rows for part in parts)
    for file in (*edge_files, work_file):
        file.close()
    return n_edges


@njit(nogil=True, cache=True)
def _ids_of(indices, seed):
    ids = np.empty(indices.size, np.int64)
    for e in range(indices.size):
        ids[e] = work_ids(indices[e], indices[e] + 1, seed)[0]
    return ids


def _draw_venues(field: np.ndarray, n_fields: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the venue of works of these fields; those of fields come first, then the general ones."""

    def draw(n_venues: int, n: int) -> np.ndarray:
        weights = np.cumsum(1.0 / (np.arange(1, n_venues + 1) + 2.0) ** 1.05)
        return np.minimum(np.searchsorted(weights / weights[-1], rng.random(n)), n_venues - 1)

    venues = field * _VENUES_PER_FIELD + draw(_VENUES_PER_FIELD, field.size)
    general = rng.random(field.size) < _GENERAL
    first = n_fields * _VENUES_PER_FIELD
    venues[general] = first + draw(n_fields * _GENERAL_VENUES, int(general.sum()))
    return venues.astype(np.int64)


def _quantiles_of_lengths(share_without: float) -> np.ndarray:
    """Return 4,096 equally likely lengths of a reference list."""
    from statistics import NormalDist

    size = 4096
    n_without = round(size * share_without)
    normal = NormalDist(np.log(_MEAN_REFERENCES) - _SIGMA**2 / 2, _SIGMA)
    lengths = [np.exp(normal.inv_cdf((i + 0.5) / (size - n_without))) for i in range(size - n_without)]
    return np.array([0] * n_without + [min(round(length), _MOST_REFERENCES) for length in lengths], np.int64)


def _quantiles_of_ages() -> np.ndarray:
    """Return 4,096 equally likely ages of a cited work, in years."""
    ages = np.arange(LAST_YEAR - FIRST_YEAR + 1)
    weights = np.exp(-((np.log(ages + 0.7) - np.log(4.5)) ** 2) / (2 * 0.95**2)) / (ages + 0.7)
    return np.searchsorted(np.cumsum(weights) / weights.sum(), (np.arange(4096) + 0.5) / 4096)


def repeat_graph(folder: Path, target: Path, copies: int) -> None:
    """Write a graph on disk several times as large: copies of one that share no work, year by year.

    It takes minutes where a generated graph of that size takes a quarter of an hour and twice the disk. Its SHA-256 are
    not noted, so it is opened as ``trusted``. Memory: 5 bytes a work of the original, and a year of its references.
    """
    from sciscidata.graph.graph import GRAPH_INDEX, read_graph

    graph = read_graph(folder, trusted=True)
    starts = graph.year_offsets
    assert graph.n_dated == graph.n_works, "each work needs a year"
    sizes = np.diff(starts)
    year_of = np.repeat(np.arange(sizes.size, dtype=np.uint8), sizes)
    target.mkdir(parents=True)
    with ExitStack() as stack:
        files = {
            name: stack.enter_context((target / f"{name}.bin").open("wb"))
            for name in ("work_ids", "ref_offsets", "refs", "citer_offsets", "years", "year_offsets")
        }
        graph.years.tofile(files["years"])
        (starts * copies).tofile(files["year_offsets"])
        ends = dict.fromkeys(("ref_offsets", "citer_offsets"), np.zeros(1, np.int64))
        for year, (first, last) in enumerate(pairwise(starts.tolist())):
            refs = graph.refs[slice(*graph.ref_offsets[[first, last]].tolist())]
            years = year_of[refs]
            moved = refs + ((copies - 1) * starts[:-1]).astype(np.int32)[years]
            step = sizes.astype(np.int32)[years]
            for copy in range(copies):
                (graph.work_ids[first:last] + (copy << 33)).tofile(files["work_ids"])
                (moved + np.int32(copy) * step).tofile(files["refs"])
                for name in ends:
                    offsets = getattr(graph, name)[first : last + 1]
                    (ends[name] + offsets[:-1] - offsets[0]).tofile(files[name])
                    ends[name] = ends[name] + offsets[-1] - offsets[0]
            print(f"{graph.years[year]}", end="\r", file=sys.stderr)
        for name, end in ends.items():
            end.tofile(files[name])
    metadata = json.loads((folder / GRAPH_INDEX).read_text())
    metadata |= {"n_known": copies * graph.n_known, "n_citations": copies * graph.n_citations}
    (target / GRAPH_INDEX).write_text(json.dumps(metadata) + "\n")
