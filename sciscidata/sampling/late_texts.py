"""Read texts late: a release of a few thousand works out of a table of millions of abstracts.

What a record and its citations say is judged for every work. Language, title, abstract and repeated papers need the
text. It is read in the order of the split keys, of no more works than the draw needs.

Of each class a draw takes the first works in key order that pass. So only works whose key is below a bound are kept,
several times as many as the draw wants. When a class runs out of them, its bound is raised and the query runs again.
The works that are read and drawn are the same as from the whole list.

Where classes are balanced within cells of field and years, the cells get their shares before any text is read. If a
cell cannot fill its share, because texts rule out too many works, it gets less. All shares are found anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import polars as pl

from sciscidata.eligibility import (
    Filter,
    check_where,
    choose_last_year,
    first_open_year,
    first_reason,
    list_filters,
    list_read,
    names_read,
    narrow_windows,
)
from sciscidata.judged import is_cited
from sciscidata.label_thresholds import FIELD_YEAR
from sciscidata.records.duplicates import find_duplicates, normalise_title, shares_name
from sciscidata.sampling.demand import Demand
from sciscidata.sampling.split import draw_order, group_of_keys, is_drawn, split_keys
from sciscidata.schemas import ATYPICALITY, COVERAGE, WORKS, require_columns
from sciscidata.sources.kinds import STRUCTURE, Scored, Texts
from sciscidata.terminal.progress import progress_bar

logger = logging.getLogger(__name__)

#: The first reading takes this many times the works that are wanted; later ones go by its result.
_FIRST_SURPLUS: Final = 1.5
_SPARE: Final = 20
_LAST_KEY: Final = (1 << 64) - 1
#: How many works of a class are kept at first, in first readings, and how far the bound is raised.
_READINGS: Final = 8
_NAMES: Final = ("work_id", "title", "doi")
_REPORTED: Final = ("title", "abstract", "primary_field", "source_id")
_READ: Final = pl.Schema({**WORKS, "removed_by": pl.String()})

#: Reads works of which the facts are known, and names the filter of text that removes each.
Judge: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]


class Judged(NamedTuple):
    """All works, as the filters found them.

    Attributes:
        pool: works to draw from, with their labels.
        works: WORKS with the texts of all that are drawn.
        eligible: every work that may be drawn, those that were never read among them.
        scored: every work with a ``z_p10``.
        counted: numbers of works by filter, year and labels.
        last_year: last year of the data, as far as it is known.
        n_unread: works that may be drawn and were not read.
        text_counts: what the manifest counts of texts.
    """

    pool: pl.DataFrame
    works: pl.LazyFrame
    eligible: pl.LazyFrame
    scored: pl.LazyFrame
    counted: pl.DataFrame
    last_year: int | None
    n_unread: int = 0
    text_counts: Mapping[str, Any] = {}


def judge_late(labelled: Scored, texts: Texts, demand: Demand) -> Judged:
    """Read the text of no more works than a draw takes; what it draws of them is as if all had been read.

    Works that pass every filter of structure are taken in the order of their split keys. A work is drawn if its class
    has room in its split and its text passes the filters of text. No other work may be the same paper (one normalised
    title or DOI). Among equals the one with the lowest id is drawn, as if everything were filtered first. Without
    ``texts.names``, the first in key order is drawn. The rows run several times. For filters of text, ``counted`` has
    the works among those read. A class is too small only when every work of it in its split has been read.
    """
    eligibility, split = demand.eligibility, demand.split
    needed = {**STRUCTURE, **{name: WORKS[name] for name in (*names_read(eligibility), *split.columns_read)}}
    frame = require_columns(labelled.rows, needed, frame_name="STRUCTURE", stage="draw")
    # Found beforehand: otherwise a query has to hold all works until it is.
    last_year = choose_last_year(frame, eligibility, labelled.facts.data_date)
    known = frame.collect_schema()
    check_where(eligibility, {**known, **WORKS})
    filters = {name: row for name, row in list_filters(eligibility).items() if name not in demand.left_out}
    reads, early = list_read(eligibility), {*known, "n_i", "n_j"}
    of_text = {name: row for name, row in filters.items() if not reads.get(name, set()) <= early}
    of_facts = {name: row for name, row in filters.items() if name not in of_text}
    # The filter counts n_i + n_j, which is what n_citers is the sum of.
    of_citers = {} if "n_i" in known else {"n_i": pl.col("n_citers"), "n_j": pl.lit(0)}
    window = demand.window_years
    first_open = narrow_windows(first_open_year(eligibility, window, last_year), window, known)
    reason = first_reason(of_facts, eligibility, first_open)
    marked = frame.with_columns(**of_citers).with_columns(removed_by=reason, is_cited=is_cited()).drop(*of_citers)

    full = [name for name in COVERAGE if name in known]
    by = ["removed_by", "publication_year", *full, *demand.vocabularies]
    sums = {"len": pl.len().cast(pl.Int64), "cited": pl.col("is_cited").sum().cast(pl.Int64)}
    counted = marked.group_by(by).agg(**sums).collect(engine="streaming")
    eligible = marked.filter(pl.col("removed_by").is_null()).drop("removed_by")
    passed = counted.filter(pl.col("removed_by").is_null())
    of_texts_read = {name for row in of_text for name in reads[row]}
    judge, beside = _judge_by(of_text, [name for name in known if name in of_texts_read], texts, demand)
    columns = dict.fromkeys([*beside, "is_cited", *full, *split.columns_read, *demand.vocabularies])
    papers = None if texts.names is None else _Papers(texts.names, eligible.select(beside), judge)
    read = _read_until_full(_Pool(eligible.select(*columns), demand), passed, judge, papers)
    n_unread = int(passed["len"].sum()) - read.works.height
    of_rejected = read.works.select("work_id", pl.col("removed_by").fill_null("duplicate"))
    rejected = read.facts_of(read.rejected).join(of_rejected, on="work_id").group_by(by).agg(**sums)
    passed_before = rejected.with_columns(pl.lit(None, pl.String).alias("removed_by"), -pl.col(*sums))
    remaining = eligible.filter(~pl.col("work_id").is_in(read.rejected.implode()))
    is_drawn = pl.col("work_id").is_in(read.accepted.implode())
    if len(read.accepted) == sum(split.sizes.values()):
        pool = eligible.filter(is_drawn)
    else:  # the draw says which class is short and by how many, and for that needs to see all works
        pool = remaining.select("work_id", *split.columns_read, *demand.vocabularies)
    of_texts = {
        "read": read.works.height,
        "passed": read.works.height - len(read.rejected),
        "not_read": n_unread,
        **{f"with_{name}": read.works.height - read.works[name].null_count() for name in _REPORTED},
    }
    return Judged(
        pool=pool.collect(engine="streaming"),
        works=read.works.filter(is_drawn).select(WORKS.names()).lazy(),
        eligible=remaining,
        scored=marked.filter(pl.col("z_p10").is_not_null()).select("publication_year", *ATYPICALITY),
        counted=pl.concat([counted, rejected, passed_before]),
        last_year=last_year,
        n_unread=n_unread,
        text_counts={"text": of_texts},
    )


def _judge_by(rows: Mapping[str, Filter], read: list[str], texts: Texts, demand: Demand) -> tuple[Judge, list[str]]:
    """Return how works are judged by their texts, and the columns of ``read`` that lie beside these."""
    beside = ["work_id", "publication_year", *(name for name in read if name not in WORKS)]
    reason = first_reason(rows, demand.eligibility, None)

    def judge(facts: pl.DataFrame) -> pl.DataFrame:
        """Read works, and name the filter of text that removes each; a work without a row has no title."""
        read = texts.read(facts["work_id"]).drop("publication_year")
        rows = facts.select(beside).join(read, on="work_id", how="left")
        return rows.with_columns(removed_by=reason).select(_READ.names()).cast(_READ)  # pyright: ignore[reportArgumentType]

    return judge, beside


class _Queue(NamedTuple):
    """The first works of every cell, in the order in which they are drawn.

    Attributes:
        found: how many works there are of each cell.
        quotas: how many are drawn.
        bounds: keys up to which works are kept.
        works: these works, with what is known of them, ``place`` and ``cell``.
    """

    found: pl.DataFrame
    quotas: dict[str, int]
    bounds: dict[str, int]
    works: pl.DataFrame


class _Accepted(NamedTuple):
    """The works that are drawn, by cell, and works that are the same paper as one of them."""

    works: dict[str, list[int]]
    repeated: set[int]


class _Read(NamedTuple):
    """All works that were read, and what became of them: they are drawn, may not be drawn, or are left over."""

    works: pl.DataFrame
    facts: pl.DataFrame
    accepted: pl.Series
    rejected: pl.Series

    def facts_of(self, work_ids: pl.Series) -> pl.DataFrame:
        """Return what was known of works before their texts were read."""
        return self.facts.filter(pl.col("work_id").is_in(work_ids.implode()))


def _read_until_full(pool: _Pool, passed: pl.DataFrame, judge: Judge, papers: _Papers | None) -> _Read:
    """Read texts until every class is full; ``passed`` has the works of the pool by labels."""
    within, n_wanted = pool.demand.split.cell_columns, sum(pool.demand.split.sizes.values())
    queue = pool.queue(pool.count_cells(passed))
    read, repeated = _READ.to_frame(), None
    accepted = _accept(queue, read, repeated)
    with progress_bar("read texts", unit="works") as advance:
        while not within or sum(queue.quotas.values()) == n_wanted:
            wanted, queue = _first_unread(pool, queue, read, accepted)
            if len(wanted):
                logger.info("reading the text of %s works", f"{len(wanted):,}")
                judged = judge(pool.facts_of(queue, wanted))
                read = pl.concat([read, judged])
                repeated = papers.repeated_after(judged) if papers else None
                advance(len(wanted))
            elif within and (short := _find_short(queue, accepted)):
                queue = _share_anew(pool, queue, short)
            else:
                break
            accepted = _accept(queue, read, repeated)  # from the start: batches leave no trace
    failed = read.filter(pl.col("removed_by").is_not_null())["work_id"].to_list()
    return _Read(
        works=read,
        facts=pool.facts_of(queue, read["work_id"]),
        accepted=pl.Series("work_id", [work for works in accepted.works.values() for work in works], pl.Int64),
        rejected=pl.Series("work_id", [*failed, *sorted(accepted.repeated)], pl.Int64),
    )


def _first_unread(pool: _Pool, queue: _Queue, read: pl.DataFrame, accepted: _Accepted) -> tuple[pl.Series, _Queue]:
    """Choose the works to read next: of every cell with room, the first unread ones in key order."""
    n_accepted = sum(map(len, accepted.works.values()))
    surplus = read.height / max(n_accepted, 1) if read.height else _FIRST_SURPLUS
    wanted = {
        cell: int((quota - len(accepted.works[cell])) * surplus) + _SPARE
        for cell, quota in queue.quotas.items()
        if quota > len(accepted.works[cell])
    }
    by_cell = pl.Series([wanted.get(cell, 0) for cell in queue.quotas], dtype=pl.Int64)
    while True:
        unread = queue.works.filter(~pl.col("work_id").is_in(read["work_id"].implode()))
        is_first = pl.int_range(pl.len()).over("cell") < by_cell.gather(unread["cell"].to_physical())
        first = unread.filter(is_first).sort("cell", maintain_order=True)
        there = dict(first["cell"].value_counts().iter_rows())
        short = [cell for cell, n in wanted.items() if there.get(cell, 0) < n and queue.bounds[cell] < _LAST_KEY]
        if not short:
            return first["work_id"], queue
        further = {cell: min(max(queue.bounds[cell], 1) * _READINGS, _LAST_KEY) for cell in short}
        queue = pool.load(queue.found, queue.quotas, queue.bounds | further)


def _accept(queue: _Queue, read: pl.DataFrame, repeated: pl.Series | None) -> _Accepted:
    """Take works that were read, in the order of the draw, as far as their cells have room.

    ``repeated`` are all works that are the same paper as one with a lower id; None: only those read are known.
    """
    passed = read.filter(pl.col("removed_by").is_null())
    accepted = _Accepted(
        {cell: [] for cell in queue.quotas}, set(() if repeated is None else repeated) & set(passed["work_id"])
    )
    named = passed.select(
        "work_id", normalise_title(pl.col("title")).alias("title"), pl.when(pl.col("doi") != "").then("doi")
    )
    seen: set[tuple[str, str]] = set()
    ordered = queue.works.select("work_id", "cell").join(named, on="work_id", how="inner", maintain_order="left")
    for work_id, cell, title, doi in ordered.iter_rows():
        if work_id in accepted.repeated or len(accepted.works[cell]) == queue.quotas[cell]:
            continue
        names = {(kind, name) for kind, name in (("title", title), ("doi", doi)) if name is not None}
        if repeated is None and seen & names:
            accepted.repeated.add(work_id)
            continue
        seen |= names
        accepted.works[cell].append(work_id)
    return accepted


def _find_short(queue: _Queue, accepted: _Accepted) -> dict[str, int]:
    """Find the cells with fewer works than their share, and how many these have."""
    return {cell: len(works) for cell, works in accepted.works.items() if len(works) < queue.quotas[cell]}


def _share_anew(pool: _Pool, queue: _Queue, short: Mapping[str, int]) -> _Queue:
    """Find all shares anew where cells of field and years are ``short``."""
    found = [short.get(cell, n) for cell, n in _by_cell(queue.found).items()]
    return pool.queue(queue.found.with_columns(found=pl.Series(found, dtype=pl.Int64)), queue.bounds)


class _Pool(NamedTuple):
    """The works that pass every filter of structure. ``eligible`` runs when they are counted, and for each queue."""

    eligible: pl.LazyFrame
    demand: Demand

    @property
    def cell(self) -> list[str]:
        """The columns that make up a cell."""
        return ["split", *(["field_year"] if self.demand.split.cell_columns else []), *self.demand.balanced]

    def count_cells(self, passed: pl.DataFrame) -> pl.DataFrame:
        """Count the works of each cell that may be drawn; of classes alone, about: ids are not hashed for it."""
        split = self.demand.split
        if split.columns_read:
            added = {"field_year": pl.String()} if split.cell_columns else {}
            keyed = self._by_batches(self._keyed, split=pl.String(), place=pl.UInt64(), **added)
            return keyed.group_by(self.cell).agg(found=pl.len().cast(pl.Int64)).collect(engine="streaming")
        total = split.n_train + split.n_test
        sizes = {"train": split.n_train, "test": split.n_test}
        shares = {group: sizes.get(group, total) for group in split.groups}
        groups = pl.DataFrame({"split": list(shares), "share": list(shares.values())})
        balanced = self.demand.balanced
        drawn = passed.drop_nulls(balanced).filter(is_drawn(split, self.demand.label) or pl.lit(value=True))
        of_classes = drawn.group_by(balanced or pl.lit(0))
        there = groups.join(of_classes.agg(pl.col("len").sum().cast(pl.Int64)), how="cross")
        return there.select(*self.cell, found=pl.col("len") * pl.col("share") // total)

    def queue(self, found: pl.DataFrame, least: Mapping[str, int] | None = None) -> _Queue:
        """Keep several times the works that every class is going to ask for, and those up to the ``least`` bounds."""
        quotas, there = _by_cell(self.demand.find_quotas(found)), _by_cell(found)
        wanted = {cell: _READINGS * (int(quota * _FIRST_SURPLUS) + _SPARE) for cell, quota in quotas.items()}
        bounds = {
            cell: min(_LAST_KEY * wanted[cell] // max(there.get(cell, 0), 1), _LAST_KEY) if quota else 0
            for cell, quota in quotas.items()
        }
        highest = {cell: max(bound, (least or {}).get(cell, 0)) for cell, bound in bounds.items()}
        return self.load(found, quotas, highest)

    def load(self, found: pl.DataFrame, quotas: dict[str, int], bounds: dict[str, int]) -> _Queue:
        """Keep the works below the bounds, in the order in which they are drawn, those of dev last."""
        cells = pl.Enum(list(quotas))

        def bounded(works: pl.DataFrame) -> pl.DataFrame:
            names = pl.concat_str(pl.lit(""), *(pl.col(name).cast(pl.String) for name in self.cell), separator="/")
            placed = self._keyed(works).with_columns(names.cast(cells).alias("cell"))
            highest = pl.Series(list(bounds.values()), dtype=pl.UInt64).gather(placed["cell"].to_physical())
            return placed.filter(pl.col("place") <= highest).drop("split", "field_year", strict=False)

        kept = self._by_batches(bounded, place=pl.UInt64(), cell=cells).collect(engine="streaming")
        works = kept.sort(pl.col("cell").cast(pl.String).str.starts_with("/dev"), "place", "work_id")
        return _Queue(found, quotas, bounds, works)

    def facts_of(self, queue: _Queue, work_ids: pl.Series) -> pl.DataFrame:
        """Return what is known of works before their texts are read."""
        works = queue.works.filter(pl.col("work_id").is_in(work_ids.implode()))
        return works.with_columns(pl.col(name).cast(pl.String) for name in self.demand.vocabularies)

    def _by_batches(self, function: Callable[[pl.DataFrame], pl.DataFrame], **more: pl.DataType) -> pl.LazyFrame:
        """Put every eligible work through a function that adds columns."""
        words = {name: pl.Enum(known) for name, known in self.demand.vocabularies.items()}
        # As in draw_split, a work without the label is in no class.
        labelled = self.eligible.drop_nulls(list(self.demand.needed))
        if self.demand.split.labels:
            labelled = labelled.filter(is_drawn(self.demand.split, self.demand.label))
        labelled = labelled.cast(words)  # pyright: ignore[reportArgumentType]
        # Inside the query, which waits for its slowest step; batches handed out would pile up behind the keys.
        return labelled.map_batches(
            function,
            schema={**labelled.collect_schema(), **more},
            predicate_pushdown=False,
            projection_pushdown=False,
            streamable=True,
        )

    def _keyed(self, works: pl.DataFrame) -> pl.DataFrame:
        split = self.demand.split
        keys = split_keys(works["work_id"], split.seed)
        fields = works["primary_field"] if split.test_fields else None
        keyed = works.with_columns(keys, group_of_keys(keys, split, fields)).with_columns(draw_order().alias("place"))
        return keyed.drop("split_key").drop_nulls("split").with_columns(FIELD_YEAR if split.cell_columns else [])


def _by_cell(table: pl.DataFrame) -> dict[str, int]:
    """Return the last column by the name of the cell that the others make up."""
    return {"/".join(["", *cell]): n for *cell, n in table.iter_rows()}


class _Papers:
    """The works that were read and passed, and every other work that is the same paper as one of them."""

    def __init__(self, names: pl.LazyFrame, eligible: pl.LazyFrame, judge: Judge) -> None:
        self._names, self._eligible, self._judge = names, eligible, judge
        self._passed = pl.DataFrame(schema={name: WORKS[name] for name in _NAMES})
        self._judged: set[int] = set()

    def repeated_after(self, judged: pl.DataFrame) -> pl.Series:
        """Say which works are the same paper as one with a lower id, after some more were read."""
        while not judged.is_empty():
            self._judged |= set(judged["work_id"])
            passed = judged.filter(pl.col("removed_by").is_null()).select(_NAMES)
            self._passed = pl.concat([self._passed, passed]).unique("work_id", keep="first", maintain_order=True)
            # Every work that has a title or a DOI of one of these; these are among them.
            same = self._names.filter(shares_name(passed)).select("work_id").collect(engine="streaming")["work_id"]
            repeats = self._eligible.filter(pl.col("work_id").is_in(same.implode())).collect(engine="streaming")
            repeats = repeats.filter(~pl.col("work_id").is_in(pl.Series(list(self._judged), dtype=pl.Int64).implode()))
            repeats = repeats.sort("work_id")
            judged = self._judge(repeats)
        return find_duplicates(self._passed)
