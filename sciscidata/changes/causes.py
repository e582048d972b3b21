"""Which works came, went and were merged, whose label moved, and which of their counts moved it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import polars as pl

from sciscidata.label_thresholds import LabelThresholds, compute_disruption_labels
from sciscidata.schemas import CHANGES

#: What can move a label, and what it means.
CAUSES: Final = {
    "new_citers": "more works cite it in its window",
    "lost_citers": "fewer works cite it in its window",
    "other_citers": "as many works cite it, but another number of them cites its references too",
    "citers_of_references": "another number of works cites its references only (n_k)",
    "new_references": "more references are on record",
    "lost_references": "fewer references are on record",
    "changed_year": "it has another year, so its window has other citers",
    "window": "the citation window is another one",
    "convention": "the convention is another one",
    "thresholds": "the cut-offs of labels are others",
    "several": "several of these at once, which the counts cannot tell apart",
    "unknown": "no number on record says",
}
_HALVES: Final = (("thresholds", "index"), ("index", "thresholds"))


class Settings(NamedTuple):
    """What may move labels beside the data.

    Attributes:
        measure: the cause where the CD index is computed otherwise: window, convention, or several if the data differ,
            too. "": it is computed alike.
        thresholds: of both sides. None: labels are no disruption labels.
        shared: the columns of COMPARED that both sides know.
    """

    measure: str
    thresholds: tuple[LabelThresholds, LabelThresholds] | None
    shared: frozenset[str]


def find_changes(
    a: pl.DataFrame, b: pl.DataFrame, successors: pl.DataFrame, settings: Settings, own_ids: Sequence[str] = ()
) -> pl.DataFrame:
    """Return CHANGES of the works of two sides, by work_id.

    Args:
        a: ``work_id`` and COMPARED, each work once; with ``own_ids`` and, for labels by rank, ``primary_field``.
        b: the same.
        successors: what ``find_successors`` gives: into which work of B one of A was merged.
        settings: what else may move labels.
        own_ids: ORIGINAL_ID, if a side has it. It then follows ``work_id``.
    """
    sides = [
        side.select("work_id", pl.lit(value=True).alias(f"in_{end}"), pl.exclude("work_id").name.suffix(f"_{end}"))
        for side, end in ((a, "a"), (b, "b"))
    ]
    rows = sides[0].join(sides[1], on="work_id", how="full", coalesce=True)
    rows = rows.join(successors.rename({"successor_id": "merged_into"}), on="work_id", how="left")
    in_a, in_b = (pl.col(name).is_not_null() for name in ("in_a", "in_b"))
    status = [("kept", in_a & in_b), ("gained", in_b), ("merged", pl.col("merged_into").is_not_null())]
    rows = rows.with_columns(
        _first(status, "lost").alias("status"),
        pl.when(in_a & in_b).then(pl.col("label_a").ne_missing(pl.col("label_b"))).alias("moved"),
        *(pl.coalesce(f"{name}_a", f"{name}_b").alias(name) for name in own_ids),
    ).sort("work_id")
    causes = _find_causes(rows.filter("moved"), settings)
    rows = rows.join(causes, on="work_id", how="left", maintain_order="left")
    return rows.select("work_id", *own_ids, *CHANGES.names()[1:]).cast({**CHANGES})


def _first(words: Sequence[tuple[str, pl.Expr]], otherwise: str) -> pl.Expr:
    """Return the first word whose condition holds; null does not."""
    return pl.coalesce(*(pl.when(holds).then(pl.lit(word)) for word, holds in words), pl.lit(otherwise))


def _find_causes(moved: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Return ``work_id`` and ``cause`` of works whose label moved."""
    rows, cause = moved, pl.lit(settings.measure)
    if not settings.measure:
        rows = _label_halves(moved, settings.thresholds)
        cause = _first(_causes_of_index(settings.shared), "unknown")
    if settings.thresholds is not None and settings.thresholds[0] != settings.thresholds[1]:
        of_a, of_b = settings.thresholds
        rows = _label(rows, "by_index", pl.col("cd_index_b"), of_a)
        rows = _label(rows, "by_thresholds", pl.col("cd_index_a"), of_b)
        half = _first([(one, _alone(f"by_{one}", f"by_{other}")) for one, other in _HALVES], "several")
        cause = pl.when(half == "index").then(cause).otherwise(half)
    return rows.select("work_id", cause.alias("cause"))


def _label_halves(moved: pl.DataFrame, thresholds: tuple[LabelThresholds, LabelThresholds] | None) -> pl.DataFrame:
    """Add the labels by the citers of B with n_k of A (``by_citers``), and the other way round (``by_n_k``)."""
    if thresholds is None:
        return moved.with_columns(pl.lit(None, pl.String).alias(name) for name in ("by_citers", "by_n_k"))

    def mixed(of_citers: str, of_n_k: str) -> pl.Expr:
        n_i, n_j = (pl.col(f"{name}_{of_citers}").cast(pl.Int64) for name in ("n_i", "n_j"))
        total = n_i + n_j + pl.col(f"n_k_{of_n_k}").cast(pl.Int64)
        return pl.when(total > 0).then((n_i - n_j) / total)

    return _label(_label(moved, "by_citers", mixed("b", "a"), thresholds[0]), "by_n_k", mixed("a", "b"), thresholds[0])


def _label(rows: pl.DataFrame, name: str, index: pl.Expr, thresholds: LabelThresholds) -> pl.DataFrame:
    """Add the label of an index; by rank it is that in the cell of the work in A."""
    asked = rows.select(cd_index=index, **{column: pl.col(f"{column}_a") for column in thresholds.cell_columns})
    return rows.with_columns(compute_disruption_labels(asked, thresholds).collect()["disruption_label"].alias(name))


def _alone(one: str, other: str) -> pl.Expr:
    """Say whether the label moves by what ``one`` changes, and stays by what ``other`` does."""
    return pl.col(one).eq_missing(pl.col("label_b")) & pl.col(other).eq_missing(pl.col("label_a"))


def _causes_of_index(shared: Collection[str]) -> list[tuple[str, pl.Expr]]:
    """Tell by the counts of both sides why the index is another one: each cause, where those before it do not hold."""
    n_i, n_j, n_k = (_both(name) for name in ("n_i", "n_j", "n_k"))
    citers = tuple(i + j for i, j in zip(n_i, n_j, strict=True))
    if "n_references" in shared:
        references = _both("n_references")
        more_references, fewer_references = references[1] > references[0], references[1] < references[0]
    else:  # a work without an index that something cites has no reference on record
        is_bare = [pl.col(f"label_{end}").is_null() & (n > 0) for end, n in zip("ab", citers, strict=True)]
        more_references, fewer_references = is_bare[0] & ~is_bare[1], is_bare[1] & ~is_bare[0]
    other_references = (more_references | fewer_references).fill_null(value=False)
    other_year = pl.lit(value=False)
    if "publication_year" in shared:
        other_year = pl.col("publication_year_a").ne_missing(pl.col("publication_year_b"))
    is_other = n_i[0].ne(n_i[1]) | n_j[0].ne(n_j[1])
    by_citers = _alone("by_citers", "by_n_k")
    # References that were lost turn n_j into n_i, and n_k only falls; by_citers: what n_k does is not the cause.
    stays = citers[0].eq(citers[1]) & ~other_year
    is_more = more_references & stays & (n_j[1] >= n_j[0]) & ((n_k[1] >= n_k[0]) | by_citers)
    is_less = fewer_references & stays & (n_j[1] <= n_j[0]) & ((n_k[1] <= n_k[0]) | by_citers)
    by_citers = is_other & (n_k[0].eq(n_k[1]) | by_citers)
    return [
        ("changed_year", other_year & ~other_references),
        ("new_references", is_more),
        ("lost_references", is_less),
        ("several", other_year | other_references),
        ("new_citers", by_citers & (citers[1] > citers[0])),
        ("lost_citers", by_citers & (citers[1] < citers[0])),
        ("other_citers", by_citers),
        ("citers_of_references", n_k[0].ne(n_k[1]) & (~is_other | _alone("by_n_k", "by_citers"))),
        ("several", is_other | n_k[0].ne(n_k[1])),
    ]


def _both(name: str) -> tuple[pl.Expr, pl.Expr]:
    return pl.col(f"{name}_a").cast(pl.Int64), pl.col(f"{name}_b").cast(pl.Int64)
