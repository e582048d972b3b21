"""Run a user's estimate over every choice that a paper on disruption could have made.

All windows, indices and populations of a convention come out of one pass over the citations, those without
self-citations too. So a multiverse takes one pass for each convention and share of missing citations.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import score_graph, score_schema, variants_of
from sciscidata.disruption.missing_data import is_kept
from sciscidata.disruption.self_citations import INDEPENDENT, N_SELF_CITERS, require_authors, score_independently
from sciscidata.disruption.specifications import (
    DEFAULT,
    OUTCOMES,
    SELF_CITATIONS,
    Multiverse,
    MultiverseConfig,
    least_shared,
    name_of_window,
    name_specification,
)
from sciscidata.disruption.windows import close_windows, find_open_in_fields, last_year_of
from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.graph.edges import watched
from sciscidata.graph.graph import build_graph, require_times
from sciscidata.judged import WINDOW_COMPLETE, is_judged, n_citers
from sciscidata.options.checks import checked_config, show_value
from sciscidata.schemas import CITATIONS, WORKS, require_columns
from sciscidata.terminal.messages import counted, one_line
from sciscidata.terminal.progress import progress_bar

logger = logging.getLogger(__name__)

_STAGE: Final = "run_multiverse"
#: The column that holds the index of a specification.
DISRUPTION: Final = "disruption"
_COUNTS: Final = ("n_refs", "n_i", "n_j", "n_k", WINDOW_COMPLETE)
_TEXTS: Final = ("title", "abstract")
_ENDS: Final = ("estimate", "low", "high")
_NO_NUMBERS: Final = (str, bytes, bool, np.bool_)
_MOST_SAID: Final = 3  # problems in a warning
_NEEDED: Final = "a number, (estimate, low, high), or something with these three names, with low <= estimate <= high"
_ROUNDING: Final = 1e-9  # of the numbers: an end may lie so far beyond the estimate

#: A function of a scored frame: returns a number, (estimate, low, high), or something with these names.
Estimate = Callable[[pl.DataFrame], Any]


class _Pass(NamedTuple):
    """One pass over the citations: what it varies, and the scores of every work. ``shared`` is the l of DI_l."""

    number: int
    missing: float
    convention: str
    shared: int
    scores: pl.DataFrame

    def makes(self, choices: Mapping[str, Any]) -> bool:
        """Say whether the scores of a specification are among these."""
        is_same = (choices["missing"], choices["convention"]) == (self.missing, self.convention)
        return is_same and least_shared(choices["index"]) == self.shared


class _Outcome(NamedTuple):
    """What one specification gave: OUTCOMES, and the error behind a problem."""

    works: int = 0
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    problem: str | None = None
    error: Exception | None = None


def run_multiverse(
    estimate: Estimate,
    works: AnyFrame,
    citations: AnyFrame,
    config: MultiverseConfig | None = None,
    *,
    authors: AnyFrame | None = None,
) -> Multiverse:
    """Run an estimate over every choice that a paper could have made: one row per specification.

    ``estimate`` gets a collected frame of the works that a specification keeps, by publication year and work_id; all
    have an index. It holds every column of ``works`` but title and abstract, so join what you compare beforehand. Then
    come ``disruption`` (Float64), the index of the specification, and n_refs, n_i, n_j, n_k and window_complete.
    ``frame.to_pandas()`` makes a frame of pandas.

    ``estimate`` returns a number, ``(estimate, low, high)``, or something with these three names: a dict, a named
    tuple, an object, or a frame with one row. Low and high are the ends of an interval around the estimate, no standard
    error or p. An error, None, NaN or infinity costs one specification: its estimate is null, and its ``problem`` says
    why. The log counts them. If the whole first pass has no estimate, the first problem is raised.

    Args:
        estimate: the function.
        works: WORKS, as for ``compute_cd_index``, and whatever ``estimate`` reads.
        citations: CITATIONS.
        config: the choices; ``MultiverseConfig()`` when None, which makes 288 specifications.
        authors: as ``scan_authors`` gives them. Then each specification comes twice: with self-citations, and without
            citers that share an author (``compute_independent_cd_index``). Works without a known author count in
            neither, so that both have the same works; the log counts them. Without self-citations, a work may lose its
            last citer, and with it what a specification asks of it.

    Returns:
        A Multiverse: its ``specifications`` have one row each, in the order of the choices. The same data, choices and
        seed give the same rows.

    Raises:
        ConfigError, SchemaMismatchError, WorkIdError: as ``compute_cd_index``; also if ``estimate`` returns something
            else.
        EmptyInputError: if ``works`` has no row, or ``authors`` names no author of a work in it.

    Source: Leibel & Bornmann 2024, doi:10.1007/s11192-024-05201-1; specification curves: Simonsohn et al. 2020,
    doi:10.1038/s41562-020-0912-z.

    Example:
        >>> from sciscidata import SyntheticConfig, scan_synthetic
        >>> works, citations, _ = scan_synthetic(SyntheticConfig(n_works=2_000))
        >>> choices = MultiverseConfig(windows=[3, 5], indices=["cd_index"], min_citers=[0], missing=[0])
        >>> found = run_multiverse(lambda frame: frame["disruption"].mean(), works, citations, choices)
        >>> found
        Multiverse(16 specifications, 0 without estimate)
    """
    if not callable(estimate):
        raise ConfigError(
            f"{_STAGE}: estimate is of type {type(estimate).__name__}, needs a function of a frame, and works and "
            f"citations after it: {_STAGE}(lambda frame: frame['disruption'].mean(), works, citations)."
        )
    citations = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=_STAGE)
    config = checked_config(config, MultiverseConfig, "windows=[3, 5, 10]")
    facts = require_columns(works, WORKS, frame_name="WORKS", stage=_STAGE, columns=("work_id", "publication_year"))
    _refuse_scores(facts, config)
    pairs = None if authors is None else require_authors(authors, _STAGE)
    chosen = [*config.list_specifications(has_authors=pairs is not None)]
    outcomes: dict[int, _Outcome] = {}
    passes = _score_passes(require_times(works, "publication_year", stage=_STAGE), citations, config, pairs)
    table = facts.drop(_TEXTS, strict=False).collect()
    for one in passes:
        table = _in_order(table, one.scores["work_id"])
        some = {at: choices for at, choices in enumerate(chosen) if one.makes(choices)}
        outcomes |= _estimate_all(estimate, table, one, some, config)
        if one.number == 1:
            _refuse_if_all_fail(outcomes, chosen)
    return _gather(chosen, outcomes)


def _refuse_scores(facts: pl.LazyFrame, config: MultiverseConfig) -> None:
    """Raise if works have a column that the scores bring."""
    made = {DISRUPTION, WINDOW_COMPLETE, *config.indices}
    for shared in config.least_shared:
        made |= {*score_schema(config.config_of(DEFAULT, shared)), *variants_of("", shared)} - {"work_id"}
    if taken := [name for name in facts.collect_schema() if name in made]:
        raise SchemaMismatchError(
            f"{_STAGE}: WORKS have a column {taken[0]!r}, which the scores bring. Drop it, or give it another name."
        )


def _score_passes(
    works: pl.LazyFrame, citations: pl.LazyFrame, config: MultiverseConfig, pairs: pl.LazyFrame | None
) -> Iterator[_Pass]:
    """Score every work in one pass after the other."""
    open_works: Mapping[str, pl.Series] | None = None
    number = 0
    for missing in config.missing:
        left = citations.filter(is_kept("citations", missing, config.seed)) if missing else citations
        graph = build_graph(works, left)
        for convention, shared in product(config.conventions, config.least_shared):
            number += 1
            logger.info(
                "%s: pass %d of %d: convention %s, %.0f%% of citations missing.",
                *(_STAGE, number, config.n_passes, convention, 100 * missing),
            )
            of_pass = config.config_of(convention, shared)
            if pairs is None:
                scores = score_graph(graph, of_pass)
            else:
                scores = score_independently(graph, pairs, of_pass, pl.thread_pool_size())
            if open_works is None:  # the same in every pass
                watched(scores, graph, _STAGE)
                open_works = find_open_in_fields(works, of_pass, last_year_of(graph))
                if pairs is not None:
                    _say_unknown(scores)
            yield _Pass(number, missing, convention, shared, close_windows(scores, open_works))


def _say_unknown(scores: pl.DataFrame) -> None:
    """Log how many works with an index have no known author; raise if no work has one."""
    if scores[N_SELF_CITERS].null_count() == scores.height:
        raise EmptyInputError(
            f"{_STAGE}: authors has no author of a work in works. Make both of the same source, with the same ids."
        )
    unknown = scores.filter(pl.col(N_SELF_CITERS).is_null(), pl.col("cd_index").is_not_null()).height
    if unknown:
        logger.info(
            "%s: %s no known author, and count in no specification: what self-citations do to them is not known.",
            *(_STAGE, counted(unknown, "work with an index has", "works with an index have")),
        )


def _estimate_all(
    estimate: Estimate, table: pl.DataFrame, one: _Pass, some: dict[int, dict[str, Any]], config: MultiverseConfig
) -> dict[int, _Outcome]:
    """Run the function for every specification of a pass."""
    views: dict[tuple[str, str], list[int]] = {}
    for at, choices in some.items():
        views.setdefault((choices["window"], choices["self_citations"]), []).append(at)
    outcomes: dict[int, _Outcome] = {}
    named = f"estimates, pass {one.number} of {config.n_passes}"
    with progress_bar(named, len(some), unit="specifications") as advance:
        for (window, self_citations), places in views.items():
            of_pass = config.config_of(one.convention, one.shared)
            frame = table.hstack(_view(one.scores, of_pass, window, self_citations))
            if N_SELF_CITERS in one.scores.columns:
                frame = frame.filter(one.scores[N_SELF_CITERS].is_not_null())
            for at in places:
                outcomes[at] = _estimate(estimate, _keep(frame, some[at], config), some[at])
                advance(1)
    return outcomes


def _in_order(facts: pl.DataFrame, work_ids: pl.Series) -> pl.DataFrame:
    """Bring works into the order of scores, which is the same in every pass."""
    if facts["work_id"].equals(work_ids):
        return facts
    return work_ids.to_frame().join(facts, on="work_id", how="left", maintain_order="left", validate="1:1")


def _view(scores: pl.DataFrame, config: CDConfig, window: str, self_citations: str) -> pl.DataFrame:
    """Take the counts and indices of one window, with or without self-citations, under their plain names."""
    ending = next(end for end, one in config.all_windows.items() if name_of_window(one) == window)
    beginning = "" if self_citations == SELF_CITATIONS[0] else INDEPENDENT
    names = [name for name in score_schema(replace(config, windows=())) if name not in ("work_id", "n_refs")]
    columns = {name: pl.col(f"{beginning}{name}{ending}") for name in names}
    columns |= {"n_refs": pl.col("n_refs"), WINDOW_COMPLETE: pl.col(WINDOW_COMPLETE + ending)}
    return scores.select(**columns).with_columns(**variants_of("", config.di_l))


def _keep(frame: pl.DataFrame, choices: Mapping[str, Any], config: MultiverseConfig) -> pl.DataFrame:
    """Keep the works that a specification counts, and the columns that its estimate sees."""
    counts = pl.col(choices["index"]).is_not_null()
    if choices["population"] == "judged":
        counts &= is_judged()
    counts &= pl.col("n_refs") >= choices["min_references"]
    counts &= n_citers() >= choices["min_citers"]
    if span := config.span_of(choices["years"]):
        counts &= pl.col("publication_year").is_between(*span)
    facts = frame.columns[: frame.columns.index("n_i")]
    return frame.filter(counts).select(*facts, pl.col(choices["index"]).alias(DISRUPTION), *_COUNTS)


def _estimate(estimate: Estimate, frame: pl.DataFrame, choices: Mapping[str, Any]) -> _Outcome:
    """Run the function on one frame."""
    if frame.is_empty():
        return _Outcome(problem="no work is left")
    try:
        returned = estimate(frame)
    except Exception as error:  # the function is the user's
        return _Outcome(frame.height, problem=f"{type(error).__name__}: {one_line(error)}", error=error)
    parts = _take_apart(returned)
    values = _read(parts)
    if values is None or _is_outside(*values):
        why = "" if values is None else ": an interval is low to high around the estimate, not a standard error or p"
        raise ConfigError(
            f"{_STAGE}: estimate returned {one_line(show_value(returned))}, needs {_NEEDED}{why}. Specification: "
            f"{name_specification(choices)}."
        )
    at, low, high = (value if math.isfinite(value) else None for value in values)
    word = None if parts[0] is None else values[0]
    problem = None if at is not None else f"estimate returned {word}, which is no number"
    return _Outcome(frame.height, at, low, high, problem)


def _take_apart(returned: Any) -> list[Any]:  # noqa: ANN401
    """Return estimate, low and high as they came; a list of another length if it is something else."""
    row: Any = returned
    if isinstance(row, pl.LazyFrame) or any(hasattr(row, name) for name in ("columns", "column_names")):
        with suppress(SchemaMismatchError):  # no frame
            rows = to_lazy(row, "estimate", _STAGE).collect()
            row = rows.row(0, named=True) if rows.height == 1 else {}
    if isinstance(row, Mapping):
        named = {name: row[name] for name in _ENDS if name in row}
    elif hasattr(row, "estimate"):
        named = {name: getattr(row, name) for name in _ENDS if hasattr(row, name)}
    elif isinstance(row, tuple | list | np.ndarray) and getattr(row, "ndim", 1) == 1:
        return [*row]
    else:
        return [row, None, None]
    return [named.get(name) for name in _ENDS] if [*named] in (["estimate"], [*_ENDS]) else []


def _read(parts: list[Any]) -> tuple[float, float, float] | None:
    """Return the numbers, NaN where there is none; None if it is something else."""
    try:
        if len(parts) != len(_ENDS) or any(isinstance(part, _NO_NUMBERS) or np.ndim(part) for part in parts):
            return None
        at, low, high = (math.nan if part is None else float(part) for part in parts)
    except (TypeError, ValueError):
        return None
    return at, low, high


def _is_outside(at: float, low: float, high: float) -> bool:
    """Say whether an estimate lies outside its interval by more than rounding; never where there is none."""
    room = _ROUNDING * max((abs(value) for value in (at, low, high) if math.isfinite(value)), default=0.0)
    return low > high + room or (math.isfinite(at) and (at < low - room or at > high + room))


def _refuse_if_all_fail(outcomes: Mapping[int, _Outcome], chosen: list[dict[str, Any]]) -> None:
    """Raise if no frame of the first pass has an estimate."""
    tried = {at: one for at, one in outcomes.items() if one.works}
    if tried and all(one.estimate is None for one in tried.values()):
        at, first = next(((at, one) for at, one in tried.items() if one.error), next(iter(tried.items())))
        fails, remedy = "gives no number", "Are there nulls or NaN in a column? Drop them: frame.drop_nulls()."
        if first.error:
            fails, remedy = "fails", "It gets a frame of Polars; frame.to_pandas() makes one of pandas."
        raise ConfigError(
            f"{_STAGE}: estimate {fails} in all {counted(len(tried), 'specification')} of the first pass with works, "
            f"first in {name_specification(chosen[at])}: {first.problem}. {remedy}"
        ) from first.error


def _gather(chosen: list[dict[str, Any]], outcomes: Mapping[int, _Outcome]) -> Multiverse:
    """Put choices and outcomes side by side; log why some have no estimate."""
    choices = pl.DataFrame(chosen, schema_overrides={"missing": pl.Float64()})
    rows = [outcomes[at] for at in range(len(chosen))]
    found = Multiverse(choices.hstack(pl.DataFrame([one[: len(OUTCOMES)] for one in rows], OUTCOMES, orient="row")))
    ends = [(one.high, one.works) for one in rows if one.low is not None and one.high is not None]
    if ends and all(high == works for high, works in ends):
        logger.warning(
            "%s: high is the number of works in every specification. Return (estimate, low, high), where low and high "
            "are the ends of an interval.",
            _STAGE,
        )
    problems = Counter(one.problem for one in rows if one.problem)
    if problems:
        places = [one.problem for one in rows]
        said = [
            f"{n:,} with {problem!r}, the first {name_specification(chosen[places.index(problem)])}"
            for problem, n in problems.most_common(_MOST_SAID)
        ]
        logger.warning(
            "%s: %s of %s have no estimate: %s. The column problem has each.",
            *(_STAGE, f"{found.n_failed:,}", counted(len(chosen), "specification"), "; ".join(said)),
        )
    return found
