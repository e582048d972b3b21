"""Count what would make scores wrong in silence: missing ids, swapped columns, wrong years, missing references.

Edges are never held: the arrays of the citation graph are walked in spans, and works in batches.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata.disruption.config import WindowYears, first_open_window
from sciscidata.frames import AnyFrame
from sciscidata.graph.edges import LATER, SWAPPED, Edges, edges_of, say_few_joined, say_share
from sciscidata.graph.graph import CitationGraph, build_graph, require_times
from sciscidata.options.checks import Year, check_value
from sciscidata.records.ids import ORIGINAL_ID, TEXTS_FROM
from sciscidata.records.last_year_of_data import find_last_year
from sciscidata.schemas import CITATIONS, WORKS, require_columns
from sciscidata.terminal.messages import counted
from sciscidata.terminal.shares import percent

logger = logging.getLogger(__name__)

_GROUP: Final = {"n": pl.Int64(), "of": pl.Int64()}
#: One row per check. ``value`` is n / of, null where ``of`` is 0 or unknown. The last two columns divide some checks.
DIAGNOSTICS: Final = pl.Schema(
    {
        "name": pl.String(),
        "value": pl.Float64(),
        "n": pl.Int64(),
        "of": pl.Int64(),
        "level": pl.String(),  # ok or warning
        "text": pl.String(),
        "by_year": pl.List(pl.Struct({"year": pl.Int32(), **_GROUP})),
        "by_field": pl.List(pl.Struct({"field": pl.String(), **_GROUP})),
    }
)
#: Works in the fullest of the last ten years, from which on it is no chance that later years have none. Of fewer, such
#: as 248 records of 40 years, any year may be the last.
_ENOUGH: Final = 100
_LAST_YEAR: Final = 2100
_FIRST_YEAR: Final = 1400  # before printing there are no works to cite
_SPAN: Final = 1 << 22
_NEIGHBOURS: Final = 0.02  # of all that a check counts: smaller groups are not named as the worst
_WORST: Final = 1.25  # times the share of all


class _Question(NamedTuple):
    """What a check counts, the share from which (``low``: below which) it warns, and what the warning says."""

    noun: str
    predicate: str  # empty: it depends on the works
    share: float = math.inf
    why: str = ""
    low: bool = False


_INCOMPLETE: Final = "Is the table of works complete?"
_QUESTIONS: Final = {
    "works_in_citations": _Question("works", "are in a citation"),
    "citing_ids": _Question(
        "citing ids",
        "are not in works",
        0.05,
        f"their citations have no year, so they count for nothing. {_INCOMPLETE}",
    ),
    "cited_ids": _Question(
        *("cited ids", "are not in works", 0.995),
        "they have no year and no venue, so novelty leaves them out. Add cited works to the table, or use tables that "
        "belong together",
    ),
    "later_citations": _Question(*LATER, 0.05, "check the years"),
    "self_citations": _Question("citations", "are of a work by itself", 0.05, "they are dropped; check the columns"),
    "repeats": _Question("citations", "are repeated rows", 0.1, "they are dropped; was a table joined twice?"),
    "impossible_years": _Question("works", "", 0.01, "mend these years, or set them to null"),
    "no_year": _Question("works", "have no year", 0.05, "they have no score, and never count as citers"),
    "no_references": _Question(
        *("works that are cited", "have no references", 0.2),
        "their reference lists are probably missing, and without one there is no score",
    ),
    "complete_window": _Question(
        *("works", "", 0.5),
        "the others are not judged yet; only EligibilityConfig.complete_window=False draws them. A shorter "
        "CDConfig.window_years has fewer of them",
        low=True,
    ),
    "works_with_venue": _Question("works", "have a venue", 0.5, "novelty needs the venues of references", low=True),
    "references_with_venue": _Question(
        "references to works", "have a venue", 0.5, "novelty is computed from these only", low=True
    ),
}
_SWAPPED_FROM: Final = 0.2  # of citations with two years lead to a later work


def diagnose(
    works: AnyFrame,
    citations: AnyFrame,
    *,
    window_years: int | None = 5,
    last_year: int | None = None,
    earlier: AnyFrame | None = None,
    cache_dir: str | Path | None = None,
) -> pl.DataFrame:
    """Check works and citations for what would make scores wrong in silence.

    Args:
        works: WORKS; ``work_id`` and ``publication_year`` are needed, ``source_id`` and ``primary_field`` are read if
            they are there.
        citations: CITATIONS, in any order.
        window_years: the citation window of the scores; None: without end, so no window is complete.
        last_year: last year of the data; found in the numbers of works of each year when None.
        earlier: the works of an earlier release of OpenAlex (``work_id``, ``doi``). A work that is gone, and whose DOI
            one other work has now, was merged into it; see ``find_successors``.
        cache_dir: keep the citation graph here for later calls; see ``compute_cd_index``.

    Returns:
        One row per check. ``name``; ``value`` = ``n`` / ``of``, null where there is nothing to divide; ``level``: ok or
        warning; ``text``: one line. ``by_year`` and ``by_field`` divide some of the checks: lists of year (or field),
        n, of. The checks: works_in_citations, citing_ids and cited_ids (distinct ids that are not in works), merged,
        later_citations, self_citations, repeats, impossible_years, no_year, no_references (works that are cited and
        have none), complete_window, works_with_venue, references_with_venue.

    Raises:
        ConfigError: when called, if an option does not fit its type.
        SchemaMismatchError: when called, if a column is missing or has another dtype.
        WorkIdError, EmptyInputError, StorageError: as ``compute_cd_index`` at collect.

    Example:
        >>> works = pl.LazyFrame({"work_id": [1, 2, 3], "publication_year": [1990, 2000, 2001]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> swapped = pl.LazyFrame({"citing_id": [1, 1, 2], "cited_id": [2, 3, 3]})
        >>> found = diagnose(works, swapped).filter(name="later_citations")
        >>> found["level"].item(), found["text"].item()
        ('warning', '3 of 3 citations (100.0 %) lead to a later work: are citing and cited swapped?')
    """
    check_value("window_years", window_years, WindowYears)
    check_value("last_year", last_year, Year | None)
    works = require_times(works, "publication_year", stage="diagnose")
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage="diagnose")
    if earlier is not None:
        columns = ("work_id", "doi")
        earlier = require_columns(earlier, WORKS, frame_name="earlier", stage="diagnose", columns=columns)
        works = require_columns(works, WORKS, frame_name="WORKS", stage="diagnose", columns=columns)
    graph = build_graph(works, citations, cache_dir=cache_dir)
    checks = diagnose_graph(graph, works, citations, DataYears(window_years, last_year), earlier)
    rows = [check.stated() | {"by_year": check.by_year, "by_field": check.by_field} for check in checks]
    return pl.DataFrame(rows, schema=DIAGNOSTICS)


class Check(NamedTuple):
    """One row of DIAGNOSTICS; ``of`` is None where nothing can be counted."""

    name: str
    n: int | None
    of: int | None
    text: str
    warns: bool = False
    by_year: Sequence[dict[str, Any]] = ()
    by_field: Sequence[dict[str, Any]] = ()

    def stated(self) -> dict[str, Any]:
        """State the check in JSON types, for a manifest."""
        share = self.n / self.of if self.of and self.n is not None else None
        level = "warning" if self.warns else "ok"
        return {"name": self.name, "value": share, "n": self.n, "of": self.of, "level": level, "text": self.text}


class DataYears(NamedTuple):
    """What decides which citation windows are complete, and which years are possible."""

    window_years: int | None  # None: a window without end
    last_year: int | None = None  # None: found in the works of each year, and data_date
    data_date: str | None = None  # ISO
    are_drawn: bool = False  # works whose window is not complete, too


def diagnose_graph(
    graph: CitationGraph,
    works: pl.LazyFrame,
    citations: pl.LazyFrame | None,
    years: DataYears,
    earlier: pl.LazyFrame | None = None,
) -> list[Check]:
    """Make every check from a graph; ``citations``, if given, are read only where it lacks their number of rows."""
    ends, edges, counted = _count_ends(graph), edges_of(graph), _count_works(works, graph)
    # Works bring their own references, so where ids are missing in works, it is the cited ones.
    is_reversed = (
        ends.citing_unknown * 2 > ends.citing and ends.cited_unknown < _QUESTIONS["citing_ids"].share * ends.cited
    )
    is_swapped = edges.later > _SWAPPED_FROM * edges.dated
    reversed_ids = f"and nearly all cited ids are; {SWAPPED}"
    findings = [
        _check_common_ids(graph, ends, edges, works),
        _judge("citing_ids", ends.citing_unknown, ends.citing, why=reversed_ids if is_reversed else ""),
        _judge("cited_ids", ends.cited_unknown, ends.cited),
        _check_merged(graph, works, earlier),
        _judge("later_citations", edges.later, edges.dated, why=SWAPPED if is_swapped else ""),
    ]
    n_rows, n_self = graph.n_rows, graph.n_citing_themselves
    if (n_rows is None or n_self is None) and citations is not None:
        n_rows, n_self = _count_rows(citations)
    if n_rows is not None and n_self is not None:
        findings += [
            _judge("self_citations", n_self, n_rows),
            _judge("repeats", n_rows - n_self - graph.n_citations, n_rows),
        ]
    return findings + _check_works(counted, years)


def diagnose_works(works: pl.LazyFrame, years: DataYears) -> list[Check]:
    """Make the checks that need no citations: years and venues, and, with published counts, references."""
    return _check_works(_count_works(works), years)


def log_warnings(checks: Sequence[Check]) -> None:
    """Log one line for each check that warns."""
    for check in checks:
        if check.warns:
            logger.warning("%s", check.text)


def find_successors(works: pl.LazyFrame, earlier: pl.LazyFrame) -> pl.DataFrame:
    """Infer which works that are gone were merged into which: ``work_id``, ``successor_id``.

    OpenAlex publishes no list of merges. It documents a trail: the surviving work takes over the locations of the other
    one. WORKS holds one of them, the DOI. So a work of ``earlier`` that ``works`` lacks was merged into the one work
    that has its DOI now. A work without a DOI leaves no trail here. Source: help.openalex.org, "Tracing merges:
    location IDs move to the surviving work" (2026-08-17).
    """
    named = works.select("work_id", "doi").drop_nulls()
    gone = earlier.select("work_id", "doi").drop_nulls().join(works.select("work_id"), on="work_id", how="anti")
    found = gone.join(named.rename({"work_id": "successor_id"}), on="doi", how="inner")
    one = found.group_by("work_id").agg(pl.col("successor_id").min(), n=pl.col("successor_id").n_unique())
    return one.filter(n=1).drop("n").sort("work_id").collect(engine="streaming")


class _Ends(NamedTuple):
    """How many distinct ids cite and are cited, how many of these WORKS lacks, and how many works do either."""

    citing: int
    citing_unknown: int
    cited: int
    cited_unknown: int
    connected: int


def _count_ends(graph: CitationGraph) -> _Ends:
    counts = np.zeros(5, np.int64)
    for start in range(0, graph.n_works, _SPAN):
        stop = min(start + _SPAN, graph.n_works)
        cites, is_cited = (np.diff(ends[start : stop + 1]) > 0 for ends in (graph.ref_offsets, graph.citer_offsets))
        known = max(0, min(stop, graph.n_known) - start)
        masks = (cites, cites[known:], is_cited, is_cited[known:], (cites | is_cited)[:known])
        counts += [np.count_nonzero(mask) for mask in masks]
    return _Ends(*counts.tolist())


def _count_rows(citations: pl.LazyFrame) -> tuple[int, int]:
    """Count the rows with both ids, and those in which a work cites itself."""
    rows = citations.select(CITATIONS.names()).drop_nulls()
    is_self = pl.col("citing_id") == pl.col("cited_id")
    return rows.select(pl.len(), is_self.sum()).collect(engine="streaming").row(0)


def _count_works(works: pl.LazyFrame, graph: CitationGraph | None = None) -> pl.DataFrame:
    """Count works by year and field: all, with a venue, cited, cited without references, citations by venue."""
    columns = works.collect_schema()
    null = pl.lit(None, dtype=pl.Boolean)
    rows = works.select(
        "work_id",
        "publication_year",
        pl.col("primary_field") if "primary_field" in columns else pl.lit(None, dtype=pl.String).alias("primary_field"),
        (pl.col("source_id").is_not_null() if "source_id" in columns else null).alias("has_venue"),
        *(pl.col(name).cast(pl.UInt32) for name in ("n_references", "n_citers") if name in columns and graph is None),
    )
    if graph is not None:
        degrees = {"n_references": pl.UInt32(), "n_citers": pl.UInt32()}
        schema = {**rows.collect_schema(), **degrees}
        pushed = {"predicate_pushdown": False, "projection_pushdown": False}
        rows = rows.map_batches(lambda some: _add_degrees(graph, some), schema=schema, streamable=True, **pushed)
    elif "n_references" not in columns:
        rows = rows.with_columns(pl.lit(None, dtype=pl.UInt32).alias(name) for name in ("n_references", "n_citers"))
    is_cited = pl.col("n_citers") > 0
    citers = pl.col("n_citers").cast(pl.Int64)
    counts = {
        "works": pl.len(),
        "with_venue": pl.col("has_venue").sum(),
        "venues_known": pl.col("has_venue").count(),
        "cited": is_cited.sum(),
        "without_references": (is_cited & (pl.col("n_references") == 0)).sum(),
        "references_with_venue": citers.filter(pl.col("has_venue")).sum(),
        "references": citers.sum(),
        "references_known": citers.count(),
    }
    by = rows.group_by("publication_year", "primary_field").agg(
        expression.cast(pl.Int64).alias(name) for name, expression in counts.items()
    )
    return by.collect(engine="streaming").sort("publication_year", "primary_field")


def _add_degrees(graph: CitationGraph, rows: pl.DataFrame) -> pl.DataFrame:
    """Add the numbers of references and citers of works that are in the graph."""
    at = graph.find(rows["work_id"].to_numpy(), rows["publication_year"])
    offsets = {"n_references": graph.ref_offsets, "n_citers": graph.citer_offsets}
    return rows.hstack([pl.Series(name, ends[at + 1] - ends[at]).cast(pl.UInt32) for name, ends in offsets.items()])


def _check_works(counted: pl.DataFrame, years: DataYears) -> list[Check]:
    last_year, data_date = years.last_year, years.data_date
    works = counted.drop_nulls("publication_year").group_by("publication_year").agg(pl.col("works").sum())
    per_year: dict[int, int] = dict(works.sort("publication_year").rows())
    n_works, n_dated = _sum(counted, "works"), sum(per_year.values())
    reached = find_last_year(per_year, data_date=data_date)
    # No clock: the same data have the same diagnostics in every year.
    present = int(data_date[:4]) if data_date and data_date[:4].isdecimal() else reached or _FIRST_YEAR
    if (
        not data_date
        and max((n for year, n in per_year.items() if present - 10 < year <= present), default=0) < _ENOUGH
    ):
        present = max([present, *(year for year in per_year if year <= _LAST_YEAR)])
    impossible = {year: n for year, n in per_year.items() if not _FIRST_YEAR <= year <= present + 1}
    predicate = f"are dated before {_FIRST_YEAR} or after {present + 1}"
    if impossible:
        predicate += f" ({', '.join(map(str, [*impossible][:3]))}{' ...' if len(impossible) > 3 else ''})"
    last_year = reached if last_year is None else last_year
    return [
        _judge("impossible_years", sum(impossible.values()), n_dated, predicate),
        _judge("no_year", n_works - n_dated, n_works),
        _check_references(counted),
        _check_windows(per_year, years._replace(last_year=last_year)),
        *_check_venues(counted),
    ]


def _check_references(counted: pl.DataFrame) -> Check:
    if not _sum(counted, "references_known"):
        return Check("no_references", None, None, "citations are not counted, so missing references are not seen")
    return _judge_groups(counted, "no_references", "without_references", "cited")


def _check_windows(per_year: dict[int, int], years: DataYears) -> Check:
    window_years, last_year = years.window_years, years.last_year
    open_from = first_open_window(window_years, last_year)
    if open_from is None:
        return Check("complete_window", None, None, "a window without end is never complete")
    by_year = [{"year": year, "n": n * (year < open_from), "of": n} for year, n in per_year.items()]
    n, of = sum(group["n"] for group in by_year), sum(per_year.values())
    predicate = f"have a window of {window_years} years that was over before {last_year}, the last year"
    why = "the others are not judged yet, but not left out" if years.are_drawn else ""
    return _judge("complete_window", n, of, predicate, why=why)._replace(by_year=by_year)


def _check_venues(counted: pl.DataFrame) -> list[Check]:
    if not _sum(counted, "venues_known"):
        text = "there are no venues (source_id) to count"
        return [Check("works_with_venue", None, None, text)]
    checks = [_judge_groups(counted, "works_with_venue", "with_venue", "works")]
    if _sum(counted, "references_known"):
        checks.append(_judge_groups(counted, "references_with_venue", "references_with_venue", "references"))
    return checks


def _judge_groups(counted: pl.DataFrame, name: str, part: str, whole: str) -> Check:
    """Make a check that also counts by year and by field, and names the worst of them."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for key, column in (("year", "publication_year"), ("field", "primary_field")):
        sums = counted.drop_nulls(column).group_by(column).agg(n=pl.col(part).sum(), of=pl.col(whole).sum())
        groups[key] = sums.filter(pl.col("of") > 0).sort(column).rename({column: key}).to_dicts()
    n, of = _sum(counted, part), _sum(counted, whole)
    check = _judge(name, n, of)
    worst = [_worst(of_key, n, of, low=_QUESTIONS[name].low) for of_key in groups.values()]
    told = ", ".join(filter(None, worst))
    text = f"{check.text}; most so in {told}" if told and check.warns else check.text
    return check._replace(text=text, by_year=groups["year"], by_field=groups["field"])


def _worst(groups: Sequence[dict[str, Any]], n: int, of: int, *, low: bool) -> str:
    """Name the group with the worst share, if it is large enough and clearly worse than all together."""
    large = [group for group in groups if group["of"] >= _NEIGHBOURS * of]
    worst = max(large, key=lambda group: (-1 if low else 1) * group["n"] / group["of"], default=None)
    if worst is None:
        return ""
    share, of_all = worst["n"] / worst["of"], n / of
    is_worse = share * _WORST < of_all if low else share > _WORST * of_all
    return f"{worst.get('year', worst.get('field'))} ({percent(share, 1)})" if is_worse else ""


def _check_common_ids(graph: CitationGraph, ends: _Ends, edges: Edges, works: pl.LazyFrame) -> Check:
    check = _judge("works_in_citations", ends.connected, graph.n_known)
    if ends.connected or not graph.n_citations:
        few = say_few_joined(edges)
        return check._replace(text=few, warns=True) if few else check
    here, there = int(graph.work_ids[0]), int(graph.work_ids[graph.n_known])
    known, like = str(here), f"like {there}" if there < TEXTS_FROM else "of other texts"
    if ORIGINAL_ID in works.collect_schema():  # of own tables; the graph has only the numbers of what is cited
        known = repr(works.filter(pl.col("work_id") == here).select(ORIGINAL_ID).collect().item())
    text = (
        f"works and citations have no id in common: works have ids like {known}, citations {like}. "
        "Are they of one source?"
    )
    return check._replace(text=text, warns=True)


def _check_merged(graph: CitationGraph, works: pl.LazyFrame, earlier: pl.LazyFrame | None) -> Check:
    """Count the citations that name a work which is gone and has a successor."""
    n_missing = int(graph.citer_offsets[-1] - graph.citer_offsets[graph.n_known])
    if earlier is None:
        text = (
            f"{counted(n_missing, 'citation names', 'citations name')} a work that is not in works. Which of these "
            "were merged cannot be inferred from one release of OpenAlex; diagnose(earlier=...) compares it with "
            "another"
        )
        return Check("merged", None, n_missing, text)
    successors = find_successors(works, earlier)
    unknown, gone = graph.work_ids[graph.n_known :], successors["work_id"].to_numpy()
    at = np.searchsorted(unknown, gone)
    is_cited = at < unknown.size
    is_cited[is_cited] = unknown[at[is_cited]] == gone[is_cited]
    places = graph.n_known + at[is_cited]
    n = int((graph.citer_offsets[places + 1] - graph.citer_offsets[places]).sum())
    if not n:
        return Check("merged", 0, n_missing, "no citation names a work that was merged since, as far as DOIs tell")
    old, new = successors.filter(pl.Series(is_cited)).row(0)
    text = (
        f"{counted(n, 'citation names', 'citations name')} a work that was merged into another one since "
        f"(W{old} is now W{new}); find_successors names them all"
    )
    return Check("merged", n, n_missing, text, warns=True)


def _judge(name: str, n: int, of: int, predicate: str = "", *, why: str = "") -> Check:
    """Make a check that ``n`` of ``of`` are something; ``why`` takes the place of the usual reason to warn."""
    question = _QUESTIONS[name]
    share = n / of if of else 0.0
    warns = bool(of) and (share < question.share if question.low else share >= question.share)
    text = say_share(n, of, question.noun, predicate or question.predicate)
    return Check(name, n, of, f"{text}: {why or question.why}" if warns else text, warns)


def _sum(counted: pl.DataFrame, column: str) -> int:
    return int(counted[column].sum() or 0)
