"""Draw first, read texts afterwards: a slice of a few thousand works out of a table of millions of abstracts.

What a record and its citations say is judged for every work. What only its text can say (language, title, abstract,
and whether it repeats another paper) is asked in the order of the split keys, of no more works than the draw needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import polars as pl

from sciscidata.drawing import Drawn, draw_or_explain
from sciscidata.duplicates import find_duplicates, shares_name
from sciscidata.eligibility import CANDIDATES, FILTERS, EligibilityConfig, first_reason
from sciscidata.labels import VOCABULARIES
from sciscidata.last_year import count_years, remark_on_later_works
from sciscidata.late_queue import Queue
from sciscidata.progress import progress_bar
from sciscidata.schemas import ATYPICALITY, EXAMPLE, WORKS, require_columns
from sciscidata.splits import SplitConfig
from sciscidata.statement import describe_years

logger = logging.getLogger(__name__)

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
    eligibility: EligibilityConfig,
    split: SplitConfig,
    *,
    window_years: int | None,
    data_date: str | None = None,
    names: pl.LazyFrame | None = None,
) -> Drawn:
    """Draw a slice, and read the text of no more works than that takes. Executes.

    The rule, of which the size of a reading is no part: the works that pass every filter of structure are taken in
    the order of their split keys. A work is drawn if its class has room on its side, its text passes the filters of
    text, and it is not the same paper as another one, that is, has no normalised title or DOI in common with it. Of
    repeated papers the one with the lowest id is drawn, so that the result is that of filtering everything first: with
    ``names``, all titles and DOIs are passed over for every reading, and the texts of the same papers are read too.
    Without, the first in key order is drawn, because the other one's text may never be read. No two drawn works are
    ever the same paper.

    Args:
        structure: STRUCTURE, one row per work; further columns pass through. Run several times: to count, for the
            first works of every class in key order, for those drawn, and whenever the result's frames are collected.
        read_works: gives the WORKS rows of some ids.
        eligibility: which works may be drawn.
        split: how many, and which classes are balanced.
        window_years: as in ``mark_ineligible``.
        data_date: as in ``mark_ineligible``.
        names: ``work_id``, ``title`` and ``doi`` of all works; None where titles are too dear to pass over.

    Returns:
        As ``draw_after_text``. ``works`` are those of the drawn works, ``eligible`` is every work that passed or was
        never read; of the filters that read text, ``counts`` has the works among those read. ``counts["text"]``:
        ``read``, ``passed`` and ``not_read``: works whose text was asked for, those of them that passed, and the
        eligible ones whose text was not; ``with_title`` and so on: works read that have it.

    Raises:
        SchemaMismatchError: at once, if a column is missing or mistyped.
        EmptyInputError: there is no work at all.
        NotEnoughWorksError: a class falls short on a side, when every work of it there has been read. Works of sides
            that are full are not read for that; the message counts them as eligible, and says how many they are.
        WorkIdError: as ``draw_split``.

    Example:
        >>> rows = {"work_id": range(60), "disruption_label": ["disruptive", "consolidating", "neutral"] * 20}
        >>> work = {"publication_year": 2001, "n_references": 9, "n_citers": 3, "cd_index": 0.5, "is_retracted": False}
        >>> structure = pl.DataFrame(rows).with_columns(**{name: pl.lit(value) for name, value in work.items()})
        >>> absent = [pl.lit(None).alias(name) for name in STRUCTURE if name not in structure.columns]
        >>> structure = structure.with_columns(*absent).select(STRUCTURE.names()).cast(STRUCTURE)
        >>> def read_works(ids):
        ...     texts = [{"work_id": i, "title": f"On {i}", "abstract": "We ask." if i % 2 else None} for i in ids]
        ...     return pl.DataFrame(texts, schema=WORKS)
        >>> settings = EligibilityConfig(last_year=2024), SplitConfig(n_train=6, n_test=3)
        >>> draw = draw_before_text(structure.lazy(), read_works, *settings, window_years=5)
        >>> draw.works.collect().height, all(work_id % 2 for work_id in draw.drawn["work_id"])
        (9, True)
        >>> draw.counts["filters"]["works"]
        60
    """
    frame = require_columns(structure, STRUCTURE, frame_name="STRUCTURE", stage="draw_before_text")
    last_year = eligibility.last_year
    if last_year is None:  # found beforehand, for otherwise a query has to hold all works until it is
        years = describe_years(count_years(frame), None, data_date=data_date)
        last_year = years["last_year"]
        for remark in remark_on_later_works(years["later_works"], last_year):
            logger.warning("%s", remark)
    marked = _mark_structure(frame, eligibility, window_years, last_year)
    labels = list(VOCABULARIES)
    counted = marked.group_by("removed_by", "publication_year", *labels).agg(pl.len()).collect(engine="streaming")
    eligible = marked.filter(pl.col("removed_by").is_null()).drop("removed_by")
    passed = counted.filter(pl.col("removed_by").is_null())
    queue = Queue(eligible, split, passed)
    papers = None if names is None else _Papers(names, eligible, read_works, eligibility)
    with progress_bar("read texts", unit="works") as advance:
        while (wanted := queue.next_reading()).len():
            logger.info("reading the text of %s works", f"{wanted.len():,}")
            judged = _judge(read_works(wanted), queue.facts(wanted), eligibility)
            queue.take(judged, papers.repeated_after(judged) if papers else None)
            advance(wanted.len())
    filters = _count_filters(counted, queue)
    n_unread = queue.n_eligible - queue.read.height
    remaining = eligible.filter(~pl.col("work_id").is_in(queue.rejected.implode()))
    is_drawn = pl.col("work_id").is_in(queue.accepted.implode())
    if len(queue.accepted) == split.n_train + split.n_test:
        pool = eligible.filter(is_drawn)
    else:  # the draw says which class is short and by how many, and for that needs to see all works
        pool = remaining.select("work_id", *labels)
    drawn = draw_or_explain(pool.collect(engine="streaming"), split, filters, n_unread=n_unread)
    rejected = queue.facts(queue.rejected)
    counts = {
        "filters": filters,
        "scored": {name: _sum_labels(counted, name) for name in labels},
        "eligible": {name: _less(_sum_labels(passed, name), rejected[name]) for name in labels},
        "text": {
            "read": queue.read.height,
            "passed": queue.read.height - len(queue.rejected),
            "not_read": n_unread,
            **{f"with_{name}": queue.read.height - queue.read[name].null_count() for name in _REPORTED},
        },
        **describe_years(_sum_years(counted), last_year),
    }
    works = queue.read.filter(is_drawn).select(WORKS.names())
    scored = marked.filter(pl.col("z_p10").is_not_null()).select("publication_year", *ATYPICALITY)
    return Drawn(drawn, works.lazy(), remaining, scored, counts)


class _Papers:
    """The works that were read and passed, and every other one that is the same paper as one of them."""

    def __init__(
        self,
        names: pl.LazyFrame,
        eligible: pl.LazyFrame,
        read_works: Callable[[pl.Series], pl.DataFrame],
        eligibility: EligibilityConfig,
    ) -> None:
        self._names, self._read_works, self._eligibility = names, read_works, eligibility
        self._eligible = eligible.select("work_id", "publication_year")
        self._passed = pl.DataFrame(schema={name: WORKS[name] for name in _NAMES})
        self._judged: set[int] = set()

    def repeated_after(self, judged: pl.DataFrame) -> pl.Series:
        """Say which works are the same paper as one with a lower id, now that some more were read."""
        while not judged.is_empty():
            self._judged |= set(judged["work_id"])
            passed = judged.filter(pl.col("removed_by").is_null()).select(_NAMES)
            self._passed = pl.concat([self._passed, passed]).unique("work_id", keep="first", maintain_order=True)
            ids = self._find(passed)
            facts = self._eligible.filter(pl.col("work_id").is_in(ids.implode())).collect(engine="streaming")
            facts = facts.filter(~pl.col("work_id").is_in(pl.Series(list(self._judged), dtype=pl.Int64).implode()))
            facts = facts.sort("work_id")
            judged = _judge(self._read_works(facts["work_id"]), facts, self._eligibility)
        return find_duplicates(self._passed)

    def _find(self, works: pl.DataFrame) -> pl.Series:
        """Find the works that have a title or a DOI of some works; these are among them."""
        return self._names.filter(shares_name(works)).select("work_id").collect(engine="streaming")["work_id"]


def _less(counts: dict[str, int], removed: pl.Series) -> dict[str, int]:
    return {label: count - int((removed == label).sum()) for label, count in counts.items()}


def _sum_labels(counted: pl.DataFrame, name: str) -> dict[str, int]:
    return {label: int(counted.filter(pl.col(name) == label)["len"].sum()) for label in VOCABULARIES[name]}


def _sum_years(counted: pl.DataFrame) -> dict[int, int]:
    dated = counted.drop_nulls("publication_year").group_by("publication_year").agg(pl.col("len").sum())
    return {year: int(n) for year, n in dated.rows()}


def _mark_structure(
    frame: pl.LazyFrame, eligibility: EligibilityConfig, window_years: int | None, last_year: int | None
) -> pl.LazyFrame:
    """Name the first filter that removes a work, leaving out the filters that read text."""
    config = replace(eligibility, require_title=False, require_abstract=False, languages=())
    # The filter counts n_i + n_j, which is what n_citers is the sum of.
    seen = frame.with_columns(
        pl.col("n_citers").alias("n_i"), pl.lit(0).alias("n_j"), pl.lit(None, dtype=pl.String).alias("language")
    )
    return seen.with_columns(first_reason(config, window_years, last_year).alias("removed_by")).drop(
        "n_i", "n_j", "language"
    )


def _judge(works: pl.DataFrame, facts: pl.DataFrame, eligibility: EligibilityConfig) -> pl.DataFrame:
    """Name the filter of text that removes each work read; one without a row at all has no title."""
    # Structure has passed; asked again it would pass again, but for the year that is the last of these few only.
    config = replace(
        eligibility,
        exclude_retracted=False,
        work_types=(),
        min_references=0,
        min_citations=0,
        min_year=None,
        max_year=None,
        complete_window=False,
    )
    known = facts.select("work_id", "publication_year", pl.lit(0.0).alias("cd_index"))
    rows = known.join(works.drop("publication_year"), on="work_id", how="left")
    absent = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in CANDIDATES.items() if name not in rows.columns]
    reason = first_reason(config, None, None).alias("removed_by")
    return rows.with_columns(absent).with_columns(reason).select(*WORKS.names(), "removed_by")


def _count_filters(counted: pl.DataFrame, queue: Queue) -> dict[str, int]:
    removed = counted.group_by("removed_by").agg(pl.col("len").sum())
    found: dict[str, int] = {name: count for name, count in removed.rows() if name is not None}
    failed = queue.read.drop_nulls("removed_by").group_by("removed_by").len()
    for name, count in [*failed.rows(), ("duplicate", len(queue.repeated))]:
        found[name] = found.get(name, 0) + count
    works = int(counted["len"].sum())
    return {
        "works": works,
        **{name: found.get(name, 0) for name in FILTERS},
        "eligible": works - sum(found.values()),
    }
