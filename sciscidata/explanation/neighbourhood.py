"""The citations around one work: what it cites, and everything that cites it or a reference of it.

They are cut out of frames by filters, and out of a graph by one pass over its citations. That pass holds 16 MB of a
graph on disk at a time. It is not needed where the citers of every work lie beside the graph (``write_citers``).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import AnyArray, Int32Array, Int64Array, read_only
from sciscidata._support.parallel import run_all
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.windows import find_open_in_fields, last_year_of
from sciscidata.errors import StorageError, WorkIdError
from sciscidata.graph.citers import read_citers
from sciscidata.graph.graph import CitationGraph
from sciscidata.records.ids import ORIGINAL_ID, require_one_row_each
from sciscidata.records.last_year_of_data import find_last_year

YEAR, DATE, TIME = "publication_year", "publication_date", "time"
#: What is said of a work, as far as the works have it.
FACTS: Final = ("work_id", ORIGINAL_ID, "title", YEAR, DATE, "source_id", "source_name", "primary_field", "doi")
_CHUNK: Final = 1 << 22  # citations of a graph on disk that a thread reads at a time
_BLOCK: Final = 1 << 20  # works whose numbers are read together
_PAGE: Final = 1 << 9  # the same of few works
_MANY: Final = 1_000  # works in a block for which it is read as a whole
_LIKELY: Final = 1 << 15  # bytes, which a processor's fastest cache holds


class Neighbourhood(NamedTuple):
    """A work and the citations around it.

    Attributes:
        work_id: the work.
        facts: one row per work that has a part in it and a row in WORKS: work_id, publication_year, and others of
            ``FACTS`` as far as they are known. Unordered.
        references: what the work cites, ascending, without itself.
        links: citing_id and cited_id (Int64), one row per citation of the work or of a reference, by other works.
        last_year: to which the data reach; None if no work has a year.
    """

    work_id: int
    facts: pl.DataFrame
    references: pl.Series
    links: pl.DataFrame
    last_year: int | None

    def fact(self, name: str) -> Any:  # noqa: ANN401
        """Return what is known of the work itself; None if nothing is."""
        rows = self.facts.filter(pl.col("work_id") == self.work_id)
        return rows[name].item() if name in rows.columns and rows.height else None

    def times(self, config: CDConfig) -> pl.DataFrame:
        """Return work_id and ``time`` of all works: years, or days since 1970 if the convention says so."""
        time = pl.col(YEAR).cast(pl.Int64)
        if config.time == DATE:
            middle = pl.date(pl.col(YEAR), 7, 1)
            day = pl.coalesce(DATE, middle) if DATE in self.facts.columns else middle
            time = day.cast(pl.Int32).cast(pl.Int64)
        return self.facts.select("work_id", time.alias(TIME))

    def time(self, config: CDConfig) -> int | None:
        """Return the time of the work itself."""
        rows = self.times(config).filter(pl.col("work_id") == self.work_id)
        return rows[TIME].item() if rows.height else None


def cut_from_frames(work_id: int, works: pl.LazyFrame, citations: pl.LazyFrame, time: str = YEAR) -> Neighbourhood:
    """Cut a work and the citations around it out of frames, by filters that hold nothing else in memory."""
    edges = citations.select("citing_id", "cited_id").drop_nulls().filter(pl.col("citing_id") != pl.col("cited_id"))
    cited = edges.filter(pl.col("citing_id") == work_id).select("cited_id").unique()
    references = cited.collect(engine="streaming").to_series().sort()
    targets = pl.concat([references, pl.Series("cited_id", [work_id], pl.Int64)])
    around = edges.filter(pl.col("cited_id").is_in(targets.implode()), pl.col("citing_id") != work_id)
    links = around.unique().collect(engine="streaming").sort("citing_id", "cited_id")
    facts = read_facts(works, pl.concat([targets, links["citing_id"]]))
    require_one_row_each(facts["work_id"], "explain")
    year = pl.col(YEAR)
    if time == DATE:  # the date says the year, as in a graph by dates
        year = pl.coalesce(pl.col(DATE).dt.year(), year)
    counts = works.select(year.alias(YEAR)).drop_nulls().group_by(YEAR).len().collect(engine="streaming")
    return Neighbourhood(work_id, facts, references, links, find_last_year(dict(counts.rows())))


def read_facts(works: pl.LazyFrame, work_ids: pl.Series) -> pl.DataFrame:
    """Return what WORKS say of some works, sorted by work_id."""
    there = works.collect_schema()
    rows = works.select(name for name in FACTS if name in there)
    some = rows.filter(pl.col("work_id").is_in(work_ids.unique().implode())).collect(engine="streaming")
    return some.sort("work_id")


def is_known(graph: CitationGraph, work_id: int) -> bool:
    """Whether a work of a graph has a row in WORKS."""
    return 0 <= find_places(graph, np.array([work_id]))[0] < graph.n_known


def is_cited(graph: CitationGraph, work_id: int) -> bool:
    """Whether an id that no row of WORKS has is cited by works of a graph."""
    return bool(find_places(graph, np.array([work_id]))[0] >= graph.n_known)


def find_places(graph: CitationGraph, ids: Int64Array) -> Int64Array:
    """Return the index of each id in a graph, -1 where it has none."""
    offsets = graph.year_offsets if graph.day_offsets is None else graph.day_offsets
    places = np.full(ids.size, -1, np.int64)
    for low, high in pairwise(np.unique([*offsets.tolist(), graph.n_known, graph.n_works]).tolist()):
        part = _view(graph.work_ids, low, high)
        at = np.minimum(np.searchsorted(part, ids), part.size - 1)  # ids ascend within each
        places = np.where((places < 0) & (part[at] == ids), low + at, places)
    return places


def read_references(graph: CitationGraph, place: int) -> Int32Array:
    """Return what a work of a graph cites, by index; a StorageError if a number leads nowhere."""
    begin, end = graph.ref_offsets[[place, place + 1]].tolist()
    if not 0 <= begin <= end <= graph.n_citations:
        raise _damage(graph)
    references = np.asarray(graph.refs[begin:end], np.int32)
    if references.size and not (references.min() >= 0 and references.max() < graph.n_works):
        raise _damage(graph)
    return references


def cut_from_graph(graph: CitationGraph, work_id: int, n_threads: int | None = None) -> Neighbourhood:
    """Cut a work and the citations around it out of a graph. A graph on disk needs no memory but for these."""
    focal = int(find_places(graph, np.array([work_id]))[0])
    if focal < 0:
        raise WorkIdError(f"explain: the graph has no work {work_id}. Check the id.")
    references = read_references(graph, focal)
    targets = np.unique(np.append(references, np.int32(focal)))
    citing, which = find_citers(graph, targets, n_threads or pl.thread_pool_size())
    is_other = citing != focal
    citing, cited = citing[is_other], targets[which[is_other]]
    places = np.unique(np.concatenate([targets.astype(np.int64), citing]))
    ids = take(graph.work_ids, places)

    def ids_of(some: AnyArray) -> Int64Array:
        return ids[np.searchsorted(places, some)]

    links = pl.DataFrame({"citing_id": ids_of(citing), "cited_id": ids_of(cited)}).sort("citing_id", "cited_id")
    has_row = places < graph.n_known
    facts = facts_of(graph, places[has_row], ids[has_row])
    refs = pl.Series("cited_id", ids_of(references)).sort()
    return Neighbourhood(work_id, facts, refs, links, last_year_of(graph))


def facts_of(graph: CitationGraph, places: Int64Array, ids: Int64Array) -> pl.DataFrame:
    """Return work_id and publication_year of some works of a graph, and publication_date if it is by dates."""
    columns: dict[str, pl.Series] = {"work_id": pl.Series(ids, dtype=pl.Int64)}
    is_dated = pl.Series(places < graph.n_dated)
    known = (
        (YEAR, graph.years, graph.year_offsets, pl.Int32()),
        (DATE, graph.days, graph.day_offsets, pl.Date()),
    )
    for name, times, offsets, dtype in known:
        if times is not None and offsets is not None:
            at = np.minimum(np.searchsorted(offsets, places, side="right") - 1, times.size - 1)
            of_places = pl.Series(times[at] if times.size else np.zeros(places.size, np.int32))
            columns[name] = of_places.cast(pl.Int32).cast(dtype).set(~is_dated, None)
    return pl.DataFrame(columns).sort("work_id")


def find_citers(graph: CitationGraph, targets: Int32Array, n_threads: int) -> tuple[Int64Array, AnyArray]:
    """Return who cites one of some works, by index, and the place of the cited one in ``targets``."""
    n = int((graph.citer_offsets[targets + 1] - graph.citer_offsets[targets]).sum())
    if not 0 <= n <= graph.n_citations:
        raise _damage(graph)
    file = _file_of(graph.refs)
    if file is not None and (listed := read_citers(graph, targets)) is not None:
        which = np.repeat(np.arange(targets.size), [one.size for one in listed])
        return np.concatenate([np.empty(0, np.int32), *listed]).astype(np.int64), which
    from sciscidata.explanation._scan_kernels import find_citations  # numba takes a while to import

    # Of many works, an eighth of it is marked at most, or each work of the graph has its own.
    size = max(_LIKELY, 1 << min((8 * targets.size).bit_length(), graph.n_works.bit_length()))
    is_likely = np.zeros(size, np.uint8)
    is_likely[targets & (size - 1)] = 1

    def look(share: tuple[int, int]) -> tuple[Int64Array, AnyArray]:
        places, which, n_found = np.empty(n, np.int64), np.empty(n, np.int32), 0
        if file is None:
            refs = read_only(graph.refs[slice(*share)])
            n_found = find_citations(refs, share[0], targets, is_likely, places, which, 0)
            return places[:n_found], which[:n_found]
        # Read into one place: pages of a mapped file would all count as memory of this process.
        held = np.empty(min(_CHUNK, share[1] - share[0]), np.int32)
        with file.open("rb", buffering=0) as raw:
            raw.seek(share[0] * held.itemsize)
            for first in range(*share, max(held.size, 1)):
                part = held[: min(held.size, share[1] - first)]
                buffer: Any = part
                if raw.readinto(memoryview(buffer).cast("B")) != part.nbytes:
                    raise _damage(graph)
                n_found = find_citations(read_only(part), first, targets, is_likely, places, which, n_found)
        return places[:n_found], which[:n_found]

    cuts = np.linspace(0, graph.n_citations, n_threads + 1).astype(np.int64).tolist()
    found = run_all(look, [*pairwise(cuts)], n_threads)
    places, which = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return _owners_of(graph.ref_offsets, places), which


def _file_of(array: AnyArray) -> Path | None:
    """Return the file that an array of a graph is mapped from."""
    name: Any = getattr(array.base, "filename", None)
    return None if name is None else Path(name)


def _read(array: AnyArray, first: int, last: int) -> AnyArray:
    """Return a part of an array; of a mapped one a copy, since its pages would stay in memory."""
    file, last = _file_of(array), min(last, array.size)
    if file is None:
        return array[first:last]
    return np.fromfile(file, array.dtype, last - first, offset=first * array.itemsize)


def _view(array: AnyArray, first: int, last: int) -> AnyArray:
    """Return a part of an array; of a mapped one another mapping, whose pages leave memory with it."""
    file = _file_of(array)
    if file is None:
        return array[first:last]
    return np.memmap(file, array.dtype, "r", first * array.itemsize, (last - first,))


def take(array: AnyArray, places: Int64Array) -> AnyArray:
    """Return the numbers at some ascending places; of a mapped array no page stays in memory."""
    file = _file_of(array)
    if file is None:
        return array[places]
    taken, n_bytes = np.empty(places.size, array.dtype), array.itemsize
    size = _BLOCK if places.size > _MANY * np.unique(places // _BLOCK).size else _PAGE
    blocks, starts = np.unique(places // size, return_index=True)
    with file.open("rb", buffering=0) as raw:
        for block, low, high in zip(blocks.tolist(), starts, [*starts, places.size][1:], strict=True):
            raw.seek(block * size * n_bytes)
            part = np.frombuffer(raw.read(size * n_bytes), array.dtype)
            taken[low:high] = part[places[low:high] - block * size]
    return taken


def _owners_of(offsets: Int64Array, places: Int64Array) -> Int64Array:
    """Return the works whose references lie at some ascending places."""
    owners = np.empty(places.size, np.int64)
    blocks = np.searchsorted(offsets[:-1:_BLOCK], places, side="right") - 1
    blocks, starts = np.unique(blocks, return_index=True)
    for block, low, high in zip(blocks.tolist(), starts, [*starts, places.size][1:], strict=True):
        first = block * _BLOCK
        part = _read(offsets, first, first + _BLOCK)
        owners[low:high] = first + np.searchsorted(part, places[low:high], side="right") - 1
    return owners


def _damage(graph: CitationGraph) -> StorageError:
    return StorageError(f"{graph!r} is damaged. `sciscidata verify` of its folder says which file; build it anew.")


def is_open_in_field(works: pl.LazyFrame, around: Neighbourhood, config: CDConfig) -> set[str]:
    """Return the windows, by their columns, that are not over in the work's field, though they are in the data."""
    field = around.fact("primary_field")
    if field is None:
        return set()
    of_field = works.filter(pl.col("primary_field").cast(pl.String) == field)
    is_open = find_open_in_fields(of_field, config, around.last_year)
    return {name for name, ids in is_open.items() if around.work_id in ids}
