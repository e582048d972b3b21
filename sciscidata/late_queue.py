"""The works that may be drawn, in the order of their keys, without a list of all of them.

Of every class a draw takes the first works in key order that pass. So only works whose key is below a bound are kept,
some times as many as the draw wants; when a class has no more of them, the bound is raised and the works are run again.
Which works are read, and which are drawn, is that of the whole list.
"""

from __future__ import annotations

import logging
from typing import Final

import polars as pl

from sciscidata.duplicates import normalise_title
from sciscidata.labels import VOCABULARIES
from sciscidata.quotas import class_quotas, quota_cells
from sciscidata.schemas import WORKS
from sciscidata.splits import BALANCED, SplitConfig, side_of_keys, split_keys

logger = logging.getLogger(__name__)

#: The first reading takes this many times as many works as are wanted; later ones go by what the first has shown.
_FIRST_SURPLUS: Final = 1.5
_SPARE: Final = 20
_KEYS: Final = 1 << 64
#: How many works of a class are kept at first, in first readings; and how much further the bound is raised.
_READINGS: Final = 8
_LABELS: Final = {name: pl.Enum(words) for name, words in VOCABULARIES.items()}


class Queue:
    """Works in the order of their keys, each in its class and on its side; those that were read, and what became of it.

    Args:
        eligible: ``work_id``, ``publication_year`` and both labels of the works that may be drawn; run at once, and
            again if too few were kept.
        split: how many are drawn, and which classes are balanced.
        counted: how many works of each pair of labels ``eligible`` has: the labels, and ``len``.

    Attributes:
        read: WORKS of the works that were read, with ``removed_by``.
        repeated: the works that are the same paper as one that is drawn.

    Example:
        >>> rows = {"work_id": range(90), "disruption_label": ["disruptive", "consolidating", "neutral"] * 30}
        >>> eligible = pl.LazyFrame(rows).with_columns(publication_year=1999, novelty_label=pl.lit(None, pl.String))
        >>> counted = eligible.group_by(*VOCABULARIES).len().collect()
        >>> queue = Queue(eligible, SplitConfig(n_train=3, n_test=0), counted)
        >>> wanted = queue.next_reading()
        >>> queue.n_eligible, len(wanted)
        (90, 63)
        >>> works = [{"work_id": work_id, "title": f"On {work_id}"} for work_id in wanted]
        >>> queue.take(pl.DataFrame(works, schema={**WORKS, "removed_by": pl.String}))
        >>> len(queue.accepted), len(queue.next_reading())
        (3, 0)
    """

    def __init__(self, eligible: pl.LazyFrame, split: SplitConfig, counted: pl.DataFrame) -> None:
        self._eligible, self._split = eligible.select("work_id", "publication_year", *_LABELS), split
        self.n_eligible = int(counted["len"].sum())
        balanced = BALANCED[split.balance]
        cells = quota_cells(balanced)
        sizes = split.sizes if balanced else {"any": split.n_train + split.n_test}
        self.quotas = {
            "/".join(["", side, *cell]): quota
            for side, size in sizes.items()
            for cell, quota in class_quotas(size, cells).items()
        }
        self.read = pl.DataFrame(schema={**WORKS, "removed_by": pl.String()})
        self.repeated: set[int] = set()
        self._accepted: dict[str, list[int]] = {cell: [] for cell in self.quotas}
        self._bound = self._first_bound(counted)
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
        """Give ``work_id``, ``publication_year`` and the labels of works that were read, or are about to be."""
        found = self._order.filter(pl.col("work_id").is_in(work_ids.implode()))
        return found.select("work_id", "publication_year", *(pl.col(name).cast(pl.String) for name in _LABELS))

    def next_reading(self) -> pl.Series:
        """Choose the works to read next: of every class with room, the first in key order that were not read."""
        n_read, n_accepted = self.read.height, sum(map(len, self._accepted.values()))
        surplus = n_read / max(n_accepted, 1) if n_read else _FIRST_SURPLUS
        wanted = {
            cell: int((quota - len(self._accepted[cell])) * surplus) + _SPARE
            for cell, quota in self.quotas.items()
            if quota > len(self._accepted[cell])
        }
        while True:
            unread = self._order.filter(~pl.col("work_id").is_in(self.read["work_id"].implode()))
            found = {cell: unread.filter(cell=cell)["work_id"].head(n) for cell, n in wanted.items()}
            if self._bound == _KEYS or all(len(found[cell]) == n for cell, n in wanted.items()):
                return pl.concat([pl.Series("work_id", [], pl.Int64), *found.values()])
            self._bound = min(self._bound * _READINGS, _KEYS)
            self._order = self._load()

    def take(self, judged: pl.DataFrame, repeated: pl.Series | None = None) -> None:
        """Add works that were read, and draw once more from the start, so that their batches leave no trace.

        Args:
            judged: WORKS with ``removed_by``.
            repeated: which works of all are the same paper as one with a lower id; None if only those read are known:
                then the first in key order is drawn.
        """
        self.read = pl.concat([self.read, judged.cast(self.read.schema)])
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

    def _first_bound(self, counted: pl.DataFrame) -> int:
        """Choose a bound below which every class has some times the works that it is going to ask for."""
        balanced, total = BALANCED[self._split.balance], self._split.n_train + self._split.n_test
        bound = 1
        for cell, quota in self.quotas.items():
            _, side, *labels = cell.split("/")
            is_of_cell = [pl.col(name) == label for name, label in zip(balanced, labels, strict=True)]
            there = counted.filter(pl.lit(value=True), *is_of_cell)
            n_there = int(there["len"].sum()) * self._split.sizes.get(side, total) // total
            wanted = _READINGS * (int(quota * _FIRST_SURPLUS) + _SPARE)
            bound = max(bound, _KEYS * wanted // max(n_there, 1) if quota else 0)
        return min(bound, _KEYS)

    def _load(self) -> pl.DataFrame:
        """Keep the works whose keys are below the bound, in their order."""
        columns = BALANCED[self._split.balance] or ("disruption_label",)
        # As in draw_split, a work without the label is in no class.
        labelled = self._eligible.drop_nulls(list(columns)).with_columns(
            pl.col(name).cast(dtype) for name, dtype in _LABELS.items()
        )
        schema = {**labelled.collect_schema(), "split_key": pl.UInt64(), "cell": pl.Enum(list(self.quotas))}
        # Inside the query, which waits for its slowest step; batches handed out would pile up behind the keys.
        kept = labelled.map_batches(
            self._keyed, schema=schema, predicate_pushdown=False, projection_pushdown=False, streamable=True
        )
        return kept.collect(engine="streaming").sort("split_key", "work_id")

    def _keyed(self, works: pl.DataFrame) -> pl.DataFrame:
        balanced = BALANCED[self._split.balance]
        keyed = works.with_columns(split_keys(works["work_id"], self._split.seed))
        if self._bound < _KEYS:
            keyed = keyed.filter(pl.col("split_key") < self._bound)
        sides = side_of_keys(keyed["split_key"], self._split) if balanced else pl.lit("any")
        names = pl.concat_str(pl.lit(""), sides, *(pl.col(name).cast(pl.String) for name in balanced), separator="/")
        return keyed.with_columns(names.cast(pl.Enum(list(self.quotas))).alias("cell"))
