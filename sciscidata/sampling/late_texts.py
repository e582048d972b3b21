"""Draw first, read texts later: a release of a few thousand works out of a table of millions of abstracts.

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
from collections.abc import Callable
from typing import Final

import polars as pl

from sciscidata.label_thresholds import FIELD_YEAR, VOCABULARIES
from sciscidata.own_label import OwnLabel, vocabularies
from sciscidata.sampling.draw import Drawn, DrawRules, draw_or_explain
from sciscidata.sampling.duplicates import find_duplicates, normalise_title, shares_name
from sciscidata.sampling.filter import (
    check_where,
    choose_last_year,
    first_open_year,
    first_reason,
    list_filters,
    names_read,
)
from sciscidata.sampling.manifest_entries import count_works
from sciscidata.sampling.split import (
    SplitConfig,
    balanced_columns,
    draw_order,
    find_quotas,
    group_of_keys,
    needed_columns,
    split_keys,
)
from sciscidata.schemas import ATYPICALITY, EXAMPLE, WORKS, require_columns
from sciscidata.terminal.progress import progress_bar

logger = logging.getLogger(__name__)

#: The first reading takes this many times the works that are wanted; later ones go by its result.
_FIRST_SURPLUS: Final = 1.5
_SPARE: Final = 20
_LAST_KEY: Final = (1 << 64) - 1
#: How many works of a class are kept at first, in first readings, and how far the bound is raised.
_READINGS: Final = 8


class Queue:
    """Works in the order of their keys, with class and split; those read, and what became of them.

    ``eligible`` runs immediately, and again if too few were kept; ``counted`` has its works by pair of labels. ``read``
    is WORKS with ``removed_by``. ``repeated`` are works that are the same paper as one that is drawn.
    """

    def __init__(
        self, eligible: pl.LazyFrame, split: SplitConfig, counted: pl.DataFrame, label: OwnLabel | None = None
    ) -> None:
        self._labels = {name: pl.Enum(words) for name, words in vocabularies(label).items()}
        self._balanced, self._needed = balanced_columns(split, label), needed_columns(split, label)
        self._eligible, self._split, self._label = eligible, split, label
        self.n_eligible = int(counted["len"].sum())
        self._cell = ["split", *(["field_year"] if split.cell_columns else []), *self._balanced]
        self._found = self._count(counted)
        self.quotas = self._find_quotas()
        self.read = pl.DataFrame(schema={**WORKS, "removed_by": pl.String()})
        self.repeated: set[int] = set()
        self._repeated: pl.Series | None = None
        self._accepted: dict[str, list[int]] = {cell: [] for cell in self.quotas}
        self._bounds = self._first_bounds()
        self._order = self._load()

    @property
    def accepted(self) -> pl.Series:
        """The works that are drawn, as far as is known."""
        return pl.Series("work_id", [work for works in self._accepted.values() for work in works], pl.Int64)

    @property
    def rejected(self) -> pl.Series:
        """The works read that may not be drawn."""
        failed = self.read.filter(pl.col("removed_by").is_not_null())["work_id"].to_list()
        return pl.Series("work_id", [*failed, *sorted(self.repeated)], pl.Int64)

    def facts(self, work_ids: pl.Series) -> pl.DataFrame:
        """Return what was known before texts of works that were read, or are about to be."""
        works = self._order.filter(pl.col("work_id").is_in(work_ids.implode()))
        return works.with_columns(pl.col(name).cast(pl.String) for name in self._labels)

    def next_reading(self) -> pl.Series:
        """Choose the works to read next: of every class with room, the first unread ones in key order."""
        within, n_wanted = self._split.cell_columns, sum(self._split.sizes.values())
        while not within or sum(self.quotas.values()) == n_wanted:
            found = self._first_unread()
            if len(found) or not within or not self._share_anew():
                return found
        return pl.Series("work_id", [], pl.Int64)

    def _first_unread(self) -> pl.Series:
        n_read, n_accepted = self.read.height, sum(map(len, self._accepted.values()))
        surplus = n_read / max(n_accepted, 1) if n_read else _FIRST_SURPLUS
        wanted = {
            cell: int((quota - len(self._accepted[cell])) * surplus) + _SPARE
            for cell, quota in self.quotas.items()
            if quota > len(self._accepted[cell])
        }
        by_cell = pl.Series([wanted.get(cell, 0) for cell in self.quotas], dtype=pl.Int64)
        while True:
            unread = self._order.filter(~pl.col("work_id").is_in(self.read["work_id"].implode()))
            is_first = pl.int_range(pl.len()).over("cell") < by_cell.gather(unread["cell"].to_physical())
            first = unread.filter(is_first).sort("cell", maintain_order=True)
            there = dict(first["cell"].value_counts().iter_rows())
            short = [cell for cell, n in wanted.items() if there.get(cell, 0) < n and self._bounds[cell] < _LAST_KEY]
            if not short:
                return first["work_id"]
            self._bounds |= {cell: min(max(self._bounds[cell], 1) * _READINGS, _LAST_KEY) for cell in short}
            self._order = self._load()

    def _share_anew(self) -> bool:
        """Find the shares anew where cells of field and years have fewer works than their share; False if all have."""
        short = {cell: len(works) for cell, works in self._accepted.items() if len(works) < self.quotas[cell]}
        found = [short.get(cell, n) for cell, n in _by_cell(self._found).items()]
        self._found = self._found.with_columns(found=pl.Series(found, dtype=pl.Int64))
        self.quotas = self._find_quotas()
        self._bounds = {cell: max(bound, self._bounds[cell]) for cell, bound in self._first_bounds().items()}
        self._order = self._load()
        self._accept()
        return bool(short)

    def take(self, judged: pl.DataFrame, repeated: pl.Series | None = None) -> None:
        """Add works that were read, and draw again from the start: batches leave no trace.

        ``repeated`` are all works that are the same paper as one with a lower id; None: only those read are known.
        """
        self.read = pl.concat([self.read, judged.cast(self.read.schema)])
        self._repeated = repeated
        self._accept()

    def _accept(self) -> None:
        repeated = self._repeated
        self.repeated = set() if repeated is None else set(repeated) & set(self._passed()["work_id"])
        self._accepted = {cell: [] for cell in self.quotas}
        named = self.read.select(
            "work_id",
            "removed_by",
            normalise_title(pl.col("title")).alias("title"),
            pl.when(pl.col("doi") != "").then("doi"),
        )
        seen: set[tuple[str, str]] = set()
        ordered = self._order.select("work_id", "cell").join(named, on="work_id", how="inner", maintain_order="left")
        for work_id, cell, reason, title, doi in ordered.iter_rows():
            if reason is not None or work_id in self.repeated or len(self._accepted[cell]) == self.quotas[cell]:
                continue
            names = {(kind, name) for kind, name in (("title", title), ("doi", doi)) if name is not None}
            if repeated is None and seen & names:
                self.repeated.add(work_id)
                continue
            seen |= names
            self._accepted[cell].append(work_id)

    def _passed(self) -> pl.DataFrame:
        return self.read.filter(pl.col("removed_by").is_null())

    def _count(self, counted: pl.DataFrame) -> pl.DataFrame:
        """Count the works of each cell that may be drawn; of classes alone, about: ids are not hashed for it."""
        if self._split.cell_columns:
            keyed = self._by_batches(self._keyed, split=pl.String(), place=pl.UInt64(), field_year=pl.String())
            return keyed.group_by(self._cell).agg(found=pl.len().cast(pl.Int64)).collect(engine="streaming")
        total = self._split.n_train + self._split.n_test
        sizes = {"train": self._split.n_train, "test": self._split.n_test}
        shares = {group: sizes.get(group, total) for group in self._split.groups}
        groups = pl.DataFrame({"split": list(shares), "share": list(shares.values())})
        by_class = (
            counted.drop_nulls(self._balanced)
            .group_by(self._balanced or pl.lit(0))
            .agg(pl.col("len").sum().cast(pl.Int64))
        )
        there = groups.join(by_class, how="cross")
        return there.select(*self._cell, found=pl.col("len") * pl.col("share") // total)

    def _find_quotas(self) -> dict[str, int]:
        return _by_cell(find_quotas(self._found, self._split, self._label))

    def _first_bounds(self) -> dict[str, int]:
        """Choose bounds below which every class has several times the works that it is going to ask for."""
        there = _by_cell(self._found)
        wanted = {cell: _READINGS * (int(quota * _FIRST_SURPLUS) + _SPARE) for cell, quota in self.quotas.items()}
        return {
            cell: min(_LAST_KEY * wanted[cell] // max(there.get(cell, 0), 1), _LAST_KEY) if quota else 0
            for cell, quota in self.quotas.items()
        }

    def _load(self) -> pl.DataFrame:
        """Keep the works below the bounds, in the order in which they are drawn, those of dev last."""
        kept = self._by_batches(self._bounded, place=pl.UInt64(), cell=pl.Enum(list(self.quotas)))
        return kept.collect(engine="streaming").sort(
            pl.col("cell").cast(pl.String).str.starts_with("/dev"), "place", "work_id"
        )

    def _by_batches(self, function: Callable[[pl.DataFrame], pl.DataFrame], **more: pl.DataType) -> pl.LazyFrame:
        """Put every eligible work through a function that adds columns."""
        # As in draw_split, a work without the label is in no class.
        labelled = self._eligible.drop_nulls(list(self._needed)).with_columns(
            pl.col(name).cast(dtype) for name, dtype in self._labels.items()
        )
        # Inside the query, which waits for its slowest step; batches handed out would pile up behind the keys.
        return labelled.map_batches(
            function,
            schema={**labelled.collect_schema(), **more},
            predicate_pushdown=False,
            projection_pushdown=False,
            streamable=True,
        )

    def _keyed(self, works: pl.DataFrame) -> pl.DataFrame:
        keys = split_keys(works["work_id"], self._split.seed)
        keyed = works.with_columns(keys, group_of_keys(keys, self._split)).with_columns(draw_order().alias("place"))
        return keyed.drop("split_key").with_columns(FIELD_YEAR if self._split.cell_columns else [])

    def _bounded(self, works: pl.DataFrame) -> pl.DataFrame:
        keyed = self._keyed(works)
        names = pl.concat_str(pl.lit(""), *(pl.col(name).cast(pl.String) for name in self._cell), separator="/")
        placed = keyed.with_columns(names.cast(pl.Enum(list(self.quotas))).alias("cell"))
        bounds = pl.Series(list(self._bounds.values()), dtype=pl.UInt64).gather(placed["cell"].to_physical())
        return placed.filter(pl.col("place") <= bounds).drop("split", "field_year", strict=False)


def _by_cell(table: pl.DataFrame) -> dict[str, int]:
    """Return the last column by the name of the cell that the others make up."""
    return {"/".join(["", *cell]): n for *cell, n in table.iter_rows()}


_NAMES: Final = ("work_id", "title", "doi")
_REPORTED: Final = ("title", "abstract", "primary_field", "source_id")

#: What is judged before any text is read.
STRUCTURE: Final = pl.Schema(
    {
        "work_id": WORKS["work_id"],
        "publication_year": WORKS["publication_year"],
        "work_type": WORKS["work_type"],
        "is_retracted": WORKS["is_retracted"],
        "n_references": pl.Int64(),
        "n_citers": pl.Int64(),  # inside the window; of published scores, all there are
        "cd_index": EXAMPLE["cd_index"],
        **ATYPICALITY,
        **{label: EXAMPLE[label] for label in VOCABULARIES},
    }
)


def draw_before_text(
    structure: pl.LazyFrame,
    read_works: Callable[[pl.Series], pl.DataFrame],
    rules: DrawRules,
    *,
    names: pl.LazyFrame | None = None,
) -> Drawn:
    """Draw works, and read the text of no more works than that takes; the result is as of ``draw_after_text``.

    Works that pass every filter of structure are taken in the order of their split keys. A work is drawn if its class
    has room in its split and its text passes the filters of text. No other work may be the same paper (one normalised
    title or DOI). Of these the one with the lowest id is drawn, as if everything were filtered first. ``names`` holds
    title and doi of all works; without it, the first in key order is drawn. ``structure`` runs several times.
    ``eligible`` of the result is every work that passed or was never read. For filters of text, ``counts`` has the
    works among those read. A class is too small only when every work of it in its split has been read.
    """
    eligibility, split, window_years, data_date, label, without, texts = rules
    needed = {**STRUCTURE, **{name: WORKS[name] for name in (*names_read(eligibility), *split.cell_columns)}}
    frame = require_columns(structure, needed, frame_name="STRUCTURE", stage="draw_before_text")
    # Found beforehand: otherwise a query has to hold all works until it is.
    last_year = choose_last_year(frame, eligibility, data_date)
    # The filter counts n_i + n_j, which is what n_citers is the sum of.
    of_citers = {} if "n_i" in frame.collect_schema() else {"n_i": pl.col("n_citers"), "n_j": pl.lit(0)}
    known = frame.collect_schema()
    check_where(eligibility, {**known, **WORKS})
    filters = list_filters(eligibility, known)
    of_text = {name: row for name, row in filters.items() if row.needs_text and name not in without}
    of_facts = {name: row for name, row in filters.items() if not row.needs_text and name not in without}
    reason = first_reason(of_facts, eligibility, first_open_year(eligibility, window_years, last_year))
    marked = frame.with_columns(**of_citers).with_columns(removed_by=reason).drop(*of_citers)
    reads = {name for row in of_text.values() for name in row.reads}
    beside = ["work_id", "publication_year", *(name for name in known if name in reads and name not in WORKS)]
    text_reason = first_reason(of_text, eligibility, None)

    def judge(facts: pl.DataFrame) -> pl.DataFrame:
        """Read works, and name the filter of text that removes each; a work without a row has no title."""
        texts = read_works(facts["work_id"]).drop("publication_year")
        rows = facts.select(beside).join(texts, on="work_id", how="left")
        return rows.with_columns(removed_by=text_reason).select(*WORKS.names(), "removed_by")

    by = ["removed_by", "publication_year", *vocabularies(label)]
    counted = marked.group_by(by).agg(pl.len().cast(pl.Int64)).collect(engine="streaming")
    eligible = marked.filter(pl.col("removed_by").is_null()).drop("removed_by")
    passed = counted.filter(pl.col("removed_by").is_null())
    columns = dict.fromkeys([*beside, *split.cell_columns, *vocabularies(label)])
    queue = Queue(eligible.select(*columns), split, passed, label)
    papers = None if names is None else _Papers(names, eligible.select(beside), judge)
    with progress_bar("read texts", unit="works") as advance:
        while (wanted := queue.next_reading()).len():
            logger.info("reading the text of %s works", f"{wanted.len():,}")
            judged = judge(queue.facts(wanted))
            queue.take(judged, papers.repeated_after(judged) if papers else None)
            advance(wanted.len())
    n_unread = queue.n_eligible - queue.read.height
    read = queue.read.select("work_id", pl.col("removed_by").fill_null("duplicate"))
    rejected = queue.facts(queue.rejected).join(read, on="work_id").group_by(by).agg(pl.len().cast(pl.Int64))
    passed_before = rejected.with_columns(pl.lit(None, pl.String).alias("removed_by"), -pl.col("len"))
    counts = count_works(pl.concat([counted, rejected, passed_before]), last_year, filters, label=label)
    remaining = eligible.filter(~pl.col("work_id").is_in(queue.rejected.implode()))
    is_drawn = pl.col("work_id").is_in(queue.accepted.implode())
    if len(queue.accepted) == sum(split.sizes.values()):
        pool = eligible.filter(is_drawn)
    else:  # the draw says which class is short and by how many, and for that needs to see all works
        pool = remaining.select("work_id", *split.cell_columns, *vocabularies(label))
    pool = pool.collect(engine="streaming")
    drawn = draw_or_explain(pool, split, counts["filters"], eligibility, n_unread=n_unread, label=label, texts=texts)
    counts["text"] = {
        "read": queue.read.height,
        "passed": queue.read.height - len(queue.rejected),
        "not_read": n_unread,
        **{f"with_{name}": queue.read.height - queue.read[name].null_count() for name in _REPORTED},
    }
    works = queue.read.filter(is_drawn).select(WORKS.names())
    scored = marked.filter(pl.col("z_p10").is_not_null()).select("publication_year", *ATYPICALITY)
    return Drawn(drawn, works.lazy(), remaining, scored, counts)


class _Papers:
    """The works that were read and passed, and every other work that is the same paper as one of them."""

    def __init__(
        self,
        names: pl.LazyFrame,
        eligible: pl.LazyFrame,
        judge: Callable[[pl.DataFrame], pl.DataFrame],
    ) -> None:
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
