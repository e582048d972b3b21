"""The draw: filter all works, then draw. ``late_texts`` filters where there are too many texts to read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import polars as pl

from sciscidata.disruption.config import first_open_window
from sciscidata.eligibility import EligibilityConfig, join_candidates, list_filters, mark_removals, narrow_windows
from sciscidata.errors import ConfigError, EmptyInputError, NotEnoughWorksError
from sciscidata.judged import is_cited
from sciscidata.records.ids import with_original_ids
from sciscidata.sampling.demand import Demand
from sciscidata.sampling.late_texts import Judged, judge_late
from sciscidata.sampling.manifest_entries import count_judged, count_works, name_eligible
from sciscidata.sampling.split import draw_split
from sciscidata.schemas import COVERAGE, has_own_scores
from sciscidata.sources.kinds import Scored, Texts
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import end_step

logger = logging.getLogger(__name__)

_CHECK: Final = "Check that the source has what they ask for: references, years."


class Drawn(NamedTuple):
    """What was drawn, from which works, and what the manifest counts.

    ``works`` has the drawn works, perhaps others. ``eligible`` is every work that may be drawn, with scores and labels;
    ``scored`` every work with a ``z_p10``. Both may exceed memory: collect only columns that you need.
    """

    drawn: pl.DataFrame
    works: pl.LazyFrame
    eligible: pl.LazyFrame
    scored: pl.LazyFrame
    counts: dict[str, Any]
    demand: Demand


def draw(labelled: Scored, demand: Demand, text_options: tuple[str, ...] = ()) -> Drawn:
    """Draw what is wanted of labelled works. An error names ``text_options``, by which the source gets texts.

    Works that pass every filter are taken in the order of their split keys. Where texts are read late, the text of no
    more works is read than that takes, and the result is the same: see ``late_texts``.
    """
    try:
        drawn = _filter_and_draw(labelled, demand, text_options)
    except pl.exceptions.PolarsError as error:
        if not demand.eligibility.where:
            raise
        names = ", ".join(demand.eligibility.where)
        raise ConfigError(
            f"EligibilityConfig.where ({names}) cannot be computed: {str(error).splitlines()[0]}. Mend the expression."
        ) from error
    n_eligible = drawn.counts["filters"]["eligible"]
    end_step(f"{counted(n_eligible, 'work')} {name_eligible(drawn.counts)}", f"{drawn.drawn.height:,} drawn")
    if (label := demand.label) is not None:
        n_without = n_eligible - sum(drawn.counts["eligible"][label.name].values())
        if n_without:
            logger.info("%s works that may be drawn have no %s, and are left out", f"{n_without:,}", label.name)
    return drawn


def _filter_and_draw(labelled: Scored, demand: Demand, text_options: tuple[str, ...]) -> Drawn:
    if isinstance(labelled.texts, Texts):
        judged = judge_late(labelled, labelled.texts, demand)
        works = with_original_ids(judged.works, labelled.works.filter(_is_one_of(judged.works)))
    else:
        works = labelled.texts
        judged = _judge_all(labelled.rows, works, demand, labelled.facts.data_date)
    date = labelled.facts.data_date
    names = list_filters(demand.eligibility)
    counts = count_works(judged.counted, judged.last_year, names, label=demand.label, data_date=date)
    drawn = _draw_or_explain(judged, demand, counts["filters"], text_options)
    if not has_own_scores(labelled.facts.provenance):  # else citers may be all that there are, also after the window
        first_open = first_open_window(demand.window_years, counts["last_year"])
        first_open = narrow_windows(first_open, demand.window_years, judged.counted.columns)
        counts["judged"] = count_judged(judged.counted, drawn, first_open, demand.label)
    return Drawn(drawn, works, judged.eligible, judged.scored, {**counts, **judged.text_counts}, demand)


def _is_one_of(works: pl.LazyFrame) -> pl.Expr:
    return pl.col("work_id").is_in(works.select("work_id").collect()["work_id"].implode())


def _judge_all(rows: pl.LazyFrame, works: pl.LazyFrame, demand: Demand, data_date: str | None) -> Judged:
    """Apply every filter to every work."""
    eligibility = demand.eligibility
    candidates = join_candidates(works, rows, eligibility)
    window = demand.window_years
    marked = mark_removals(candidates, eligibility, window_years=window, data_date=data_date).collect()
    eligible = marked.filter(pl.col("removed_by").is_null())
    if demand.split.columns_read:
        fields = works.select("work_id", "primary_field").collect(engine="streaming")
        eligible = eligible.join(fields, on="work_id", how="left")
    full = [name for name in COVERAGE if name in marked.columns]
    by = ("removed_by", "publication_year", *full, *demand.vocabularies)
    counted = marked.group_by(by).agg(pl.len(), cited=is_cited().sum())
    scored = marked.filter(pl.col("z_p10").is_not_null()).lazy()
    return Judged(eligible, works, eligible.lazy(), scored, counted, eligibility.last_year)


def _draw_or_explain(
    judged: Judged, demand: Demand, filters: Mapping[str, int], text_options: tuple[str, ...]
) -> pl.DataFrame:
    """Draw, or explain what became of the works: a smaller draw does not help a source without texts."""
    if not filters["works"]:
        raise EmptyInputError(
            "the source holds no work, or none whose id can be read. Check its files: ids look like W2051723858."
        )
    eligibility = demand.eligibility
    rows = list_filters(eligibility)
    by_filter = ", ".join(f"{name} {filters[name]:,}" for name in rows if filters.get(name))
    removed = f"The filters removed: {by_filter}."
    if not filters["eligible"]:
        remedy = _find_remedy(eligibility, filters, text_options)
        raise NotEnoughWorksError(f"no work of {filters['works']:,} may be drawn. {removed} {remedy}")
    try:
        return draw_split(judged.pool, demand.split, label=demand.label)
    except NotEnoughWorksError as error:
        lines = [
            str(error),
            f"There are {filters['works']:,} works. {removed}" if by_filter else "No filter removed a work.",
        ]
        applied = [name for row in rows if filters.get(row) for name in rows[row].options if getattr(eligibility, name)]
        options = [f"EligibilityConfig.{name}" for name in applied]
        lines += [f"Relaxing a filter that removed works helps, too: {', '.join(options)}."] if options else []
        if n_unread := judged.n_unread:
            lines.append(f"{n_unread:,} of the eligible works were not read: their text may rule them out too.")
        raise NotEnoughWorksError("\n".join(lines), error.fits) from error


def _find_remedy(eligibility: EligibilityConfig, filters: Mapping[str, int], text_options: tuple[str, ...]) -> str:
    """Say which filter to change where no work may be drawn."""
    off = [f"EligibilityConfig.require_{text}=False" for text in ("title", "abstract") if filters.get(f"no_{text}")]
    named = f"Name its texts ({', '.join(text_options)}), or draw" if text_options else "Draw"
    remedy = f"{named} without them: {', '.join(off)}." if off else _CHECK
    default, chosen = EligibilityConfig(), dict[str, int]()
    for name, row in list_filters(eligibility).items():
        differ = [option for option in row.options if getattr(eligibility, option) != getattr(default, option)]
        differ += [f"where[{name!r}]"] if name in eligibility.where else []
        chosen |= dict.fromkeys(differ, filters.get(name, 0))
    most = max(chosen.values(), default=0)
    if most > max(filters.get("no_title", 0), filters.get("no_abstract", 0)):
        options = [f"EligibilityConfig.{option}" for option, n in chosen.items() if n == most]
        named = " or ".join(options).replace("EligibilityConfig.listed", "the list of BuildConfig.ids")
        remedy = f"Among the options that were set, {named} removed most works. Change it."
    return remedy
