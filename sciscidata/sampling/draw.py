"""Filter all works, then draw: the plain order of a build. ``late_texts`` draws in another order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import polars as pl

from sciscidata.errors import EmptyInputError, NotEnoughWorksError
from sciscidata.own_label import OwnLabel, vocabularies
from sciscidata.sampling.filter import EligibilityConfig, join_candidates, list_filters, mark_removals
from sciscidata.sampling.manifest_entries import count_works
from sciscidata.sampling.split import SplitConfig, draw_split

_CHECK: Final = "Check that the source has what they ask for: references, years."


class DrawRules(NamedTuple):
    """Which works may be drawn, and how many. ``without``: filters that are off; ``texts``: options that name texts."""

    eligibility: EligibilityConfig
    split: SplitConfig
    window_years: int | None
    data_date: str | None = None
    label: OwnLabel | None = None
    without: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


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


def draw_after_text(
    works: pl.LazyFrame,
    labelled: pl.LazyFrame,
    citations: pl.LazyFrame,
    rules: DrawRules,
) -> Drawn:
    """Draw from a source whose texts may all be read; ``labelled`` is what ``compute_labels`` returns."""
    eligibility, split, window_years, data_date, label, _, texts = rules
    candidates = join_candidates(works, labelled, citations, eligibility)
    marked = mark_removals(candidates, eligibility, window_years=window_years, data_date=data_date).collect()
    eligible = marked.filter(pl.col("removed_by").is_null())
    if split.cell_columns:
        fields = works.select("work_id", "primary_field").collect(engine="streaming")
        eligible = eligible.join(fields, on="work_id", how="left")
    counted = marked.group_by("removed_by", "publication_year", *vocabularies(label)).len()
    names = list_filters(eligibility)
    counts = count_works(counted, eligibility.last_year, names, label=label, data_date=data_date)
    drawn = draw_or_explain(eligible, split, counts["filters"], eligibility, label=label, texts=texts)
    scored = marked.filter(pl.col("z_p10").is_not_null())
    return Drawn(drawn, works, eligible.lazy(), scored.lazy(), counts)


def draw_or_explain(
    eligible: pl.DataFrame,
    split: SplitConfig,
    filters: Mapping[str, int],
    eligibility: EligibilityConfig,
    *,
    n_unread: int = 0,
    label: OwnLabel | None = None,
    texts: tuple[str, ...] = (),
) -> pl.DataFrame:
    """Draw, or explain what became of the works: a smaller draw does not help a source without texts."""
    if not filters["works"]:
        raise EmptyInputError(
            "the source holds no work, or none whose id can be read. Check its files: ids look like W2051723858."
        )
    rows = list_filters(eligibility)
    by_filter = ", ".join(f"{name} {filters[name]:,}" for name in rows if filters.get(name))
    removed = f"The filters removed: {by_filter}."
    if not filters["eligible"]:
        off = [f"EligibilityConfig.require_{text}=False" for text in ("title", "abstract") if filters.get(f"no_{text}")]
        named = f"Name its texts ({', '.join(texts)}), or draw" if texts else "Draw"
        remedy = f"{named} without them: {', '.join(off)}." if off else _CHECK
        default, chosen = EligibilityConfig(), dict[str, int]()
        for name, row in rows.items():
            differ = [option for option in row.options if getattr(eligibility, option) != getattr(default, option)]
            differ += [f"where[{name!r}]"] if name in eligibility.where else []
            chosen |= dict.fromkeys(differ, filters.get(name, 0))
        most = max(chosen.values(), default=0)
        if most > max(filters.get("no_title", 0), filters.get("no_abstract", 0)):
            named = " or ".join(f"EligibilityConfig.{option}" for option, n in chosen.items() if n == most)
            remedy = f"Of the options that were set, {named} removed most. Change it."
        raise NotEnoughWorksError(f"no work of {filters['works']:,} may be drawn. {removed} {remedy}")
    try:
        return draw_split(eligible, split, label=label)
    except NotEnoughWorksError as error:
        lines = [str(error), f"Of {filters['works']:,} works: {removed}" if by_filter else "No filter removed a work."]
        if n_unread:
            lines.append(f"{n_unread:,} of the eligible works were not read: their text may rule them out too.")
        raise NotEnoughWorksError("\n".join(lines), error.fits) from error
