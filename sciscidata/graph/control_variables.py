"""Columns of a regression: what is held constant beside a score, and scores as percentiles within field and year."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import polars as pl

from sciscidata.errors import SchemaMismatchError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.graph.graph import build_graph
from sciscidata.judged import MARKS, Choice, Population, choose_works
from sciscidata.options.checks import PositiveInt, check_value
from sciscidata.schemas import CITATIONS, WORKS, require_columns
from sciscidata.terminal.messages import counted

logger = logging.getLogger(__name__)

_FIELD_AND_YEAR = ("primary_field", "publication_year")
_TO_JOIN = " Add the column to works to have it."
_GROUPS = "name the columns of the groups, for example within=['publication_year']"


def compute_control_variables(works: AnyFrame, citations: AnyFrame) -> pl.LazyFrame:
    """Count references, citations and authors of each work, and how many of its references the data hold.

    Papers with cut reference lists look disruptive (Holst et al. 2024), so a regression of the CD index holds these
    numbers constant. A reference or citer that is named twice counts once, and a work's reference to itself does not.

    Args:
        works: WORKS: ``work_id``, ``publication_year``, ``primary_field``, ``cited_by_count``, and ``n_authors`` if it
            is there.
        citations: CITATIONS, references to works outside ``works`` among them.

    Returns:
        One row per work, unordered: ``work_id``, and ``original_id`` where ``works`` have it; ``n_references`` and
        ``n_citations`` in the data (Int64); ``share_references_in_data`` (Float64, 0 to 1, null without references);
        ``normalised_citations`` (Float64): ``cited_by_count`` over its mean in the same field and year, null where that
        is 0, or field, year or count are null; ``n_authors`` (Int32).

    Raises:
        SchemaMismatchError: a column is missing or mistyped.
        WorkIdError, EmptyInputError: at collect, as in ``compute_cd_index``.

    Source:
        Normalised citations: Waltman et al. 2011, doi:10.1016/j.joi.2010.08.001. Why: Holst et al. 2024,
        arXiv:2402.14583.

    Example:
        >>> from sciscidata import scan_example
        >>> corpus = scan_example()
        >>> controls = compute_control_variables(corpus.works, corpus.citations).collect()
        >>> controls.select(pl.col("n_references", "n_citations").sum()).row(0)
        (134019, 13114)
    """
    columns = ["work_id", *_FIELD_AND_YEAR, "cited_by_count", "n_authors"]
    stage = "compute_control_variables"
    works = require_columns(works, WORKS, frame_name="WORKS", stage=stage, columns=columns)
    ids = [name for name in ("work_id", "original_id") if name in works.collect_schema()]
    works = works.select(*ids, *columns[1:])
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=stage)

    def count() -> pl.DataFrame:
        graph = build_graph(works, citations)
        starts, n = graph.ref_offsets[: graph.n_known + 1], graph.n_known
        n_known = np.concatenate([[0], np.cumsum(graph.refs[: starts[-1]] < n)])[starts]  # before each work
        numbers = {"n_references": starts, "n_known": n_known, "n_citations": graph.citer_offsets[: n + 1]}
        return pl.DataFrame({"work_id": graph.work_ids[:n], **{name: np.diff(ends) for name, ends in numbers.items()}})

    schema = pl.Schema(dict.fromkeys(("work_id", "n_references", "n_known", "n_citations"), pl.Int64))
    beside = works.join(pl.defer(count, schema=schema), on="work_id", how="left")
    usual = pl.col("cited_by_count").mean().over(_FIELD_AND_YEAR)
    is_placed = _all_known((*_FIELD_AND_YEAR, "cited_by_count"), stage, "normalised_citations", _TO_JOIN) & (usual > 0)
    return beside.select(
        *ids,
        pl.col("n_references", "n_citations"),
        share_references_in_data=pl.when(pl.col("n_references") > 0).then(pl.col("n_known") / pl.col("n_references")),
        normalised_citations=pl.when(is_placed).then(pl.col("cited_by_count") / usual),
        n_authors="n_authors",
    )


def compute_percentile(
    scores: AnyFrame,
    column: str = "cd_index",
    within: Sequence[str] = _FIELD_AND_YEAR,
    *,
    population: Population = "judged",
    least: int = 10,
) -> pl.LazyFrame:
    """Add the percentile of a score among the works of the same field and year.

    When it is collected, lines of the log count the works that are left out, and those in cells that are too small.

    Args:
        scores: one row per work, with the score and the columns of ``within``; other columns pass through.
        column: the score.
        within: the columns that make up a group, its cell; none: among all works.
        population: of measures of disruption, which works have a place, as in ``measure_by``.
        least: works that a cell needs. In a smaller one a place says little: a work alone would have 50.

    Returns:
        The frame with ``<column>_percentile`` (Float64, 0 to 100). Equal scores share the middle of their places, so
        the mean of each group is 50. Null where the score or the group is null or NaN, the work is left out, or its
        cell is too small.

    Raises:
        ConfigError: ``least`` is no whole number above 0.
        SchemaMismatchError: a column is missing, or the score is not of numbers.

    Example:
        >>> scores = pl.DataFrame({"publication_year": [2000, 2000, 2000, 2001], "cd_index": [0.5, 0.1, 0.1, -1.0]})
        >>> places = compute_percentile(scores, within=["publication_year"], least=2).collect()["cd_index_percentile"]
        >>> places.round(1).to_list()
        [83.3, 33.3, 33.3, None]
    """
    stage = "compute_percentile"
    lazy = to_lazy(scores, "the scores", stage)
    schema = lazy.collect_schema()
    for name in (column, *within):
        if name not in schema:
            remedy = f"Join it, or {_GROUPS}." if name in within else "Name a column of scores."
            raise SchemaMismatchError(
                f"compute_percentile: the scores lack column {name!r}; they have {', '.join(schema)}. {remedy}"
            )
    if not schema[column].is_numeric():
        raise SchemaMismatchError(
            f"compute_percentile: column {column!r} is {schema[column]}, needs numbers. Name a column of scores."
        )
    remedy = f" To leave it out, {_GROUPS}."
    check_value("least", least, PositiveInt)
    is_placed = _all_known(within, stage, f"{column}_percentile", remedy) if within else pl.lit(True)
    value = pl.col("_value")
    rank, count = value.rank("average"), value.count()
    if within:
        rank, count = rank.over(within), count.over(within)
    choice = choose_works(schema.names(), column, population)
    known = lazy.with_columns(is_placed.alias("_placed"))  # apart, else each group would warn
    known = known.with_columns(pl.when("_placed").then(pl.col(column).cast(pl.Float64).fill_nan(None)).alias("_value"))
    known = known.with_columns(choice.marks()).with_columns(_keep_judged(choice, stage).alias("_value"))
    places = pl.struct(place=100 * (rank - 0.5) / count, n=count).map_batches(
        lambda cells: _keep_large(cells, least, stage), return_dtype=pl.Float64
    )
    return known.with_columns(places.alias(f"{column}_percentile")).drop("_placed", "_value", *MARKS)


def _keep_judged(choice: Choice, stage: str) -> pl.Expr:
    """Keep ``_value`` where a work counts; at collect, log how many do not."""

    def keep(rows: pl.Series) -> pl.Series:
        frame = rows.struct.unnest()
        choice.take(frame.lazy(), stage)
        return frame.select(pl.when("_counts").then("_value")).to_series()

    return pl.struct("_value", *MARKS).map_batches(keep, return_dtype=pl.Float64)


def _keep_large(cells: pl.Series, least: int, stage: str) -> pl.Series:
    """Keep the places of works in cells of enough works, and log how many have none for that."""
    place, n = cells.struct.field("place"), cells.struct.field("n")
    is_small = (n < least) & place.is_not_null()
    if n_small := int(is_small.sum()):
        text = "%s: %s in a cell of fewer than %d works, and %s no percentile: least=%d."
        logger.info(
            text, stage, counted(n_small, "work is", "works are"), least, "has" if n_small == 1 else "have", least
        )
    return place.set(is_small, None)


def _all_known(columns: Sequence[str], stage: str, result: str, remedy: str) -> pl.Expr:
    """Say of each row whether it has all columns; at collect, warn of a column that is null throughout."""

    def watch(known: pl.Series) -> pl.Series:
        if len(known) and not known.any():
            text = "%s: column %r is null in all %s rows, and so is %s.%s"
            logger.warning(text, stage, known.name, f"{len(known):,}", result, remedy)
        return known

    return pl.all_horizontal(
        pl.col(name).is_not_null().map_batches(watch, return_dtype=pl.Boolean()) for name in columns
    )
