"""The tables of an explanation: works with what is known of them, and the row of scores."""

from __future__ import annotations

import polars as pl

from sciscidata.disruption.cd_interval import compute_cd_interval
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.label_confidence import compute_label_confidence
from sciscidata.disruption.label_prior import SHIPPED, LabelPrior
from sciscidata.disruption.self_citations import require_authors
from sciscidata.explanation.classes import Classes, label, score
from sciscidata.explanation.explanation import SHARED_ORIGINAL
from sciscidata.explanation.neighbourhood import DATE, YEAR, Neighbourhood
from sciscidata.frames import AnyFrame
from sciscidata.judged import is_judged
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.records.ids import ORIGINAL_ID


def _own_ids(facts: pl.DataFrame) -> pl.Expr:
    """Write the works of ``shared`` as the ids of the user's table; a work without a row keeps its number."""
    number, dtype = pl.element(), facts.schema[ORIGINAL_ID]
    own = number.replace_strict(facts["work_id"], facts[ORIGINAL_ID], default=None, return_dtype=dtype)
    return pl.col("shared").list.eval(pl.coalesce(own, number.cast(dtype)))


def list_works(rows: pl.DataFrame, around: Neighbourhood, most: int | None = None) -> pl.DataFrame:
    """Put what is known of works beside their ids, by (year, work_id); at most the first ``most``."""
    facts = around.facts.drop("source_id", "source_name", "primary_field", DATE, strict=False)
    named = rows.rename({"citing_id": "work_id"}).join(facts, on="work_id", how="left")
    first = [name for name in facts.columns if name in named.columns and name != "doi"]
    if "shared" in named.columns:
        named = named.with_columns(n_shared=pl.col("shared").list.len()).select(pl.exclude("shared"), "shared")
        if ORIGINAL_ID in facts.columns:
            named = named.with_columns(_own_ids(facts).alias(SHARED_ORIGINAL))
    if "doi" in named.columns:
        named = named.select(pl.exclude("doi"), "doi")
    ordered = named.select(*first, pl.exclude(first)).sort("publication_year", "work_id", nulls_last=True)
    return ordered if most is None else ordered.head(most)


def list_references(around: Neighbourhood, found: Classes) -> pl.DataFrame:
    """List what the work cites, and how many of its citers cite it too, the most first."""
    shared = found.citers.select(cited="shared").explode("cited", empty_as_null=False).drop_nulls()
    counts = shared.group_by("cited").len("n_citers").rename({"cited": "citing_id"})
    rows = pl.DataFrame({"citing_id": around.references}).join(counts, on="citing_id", how="left")
    listed = list_works(rows.with_columns(pl.col("n_citers").fill_null(0)), around)
    return listed.sort("n_citers", descending=True, maintain_order=True)


def count_years(around: Neighbourhood, found: Classes) -> pl.DataFrame:
    """Count the works of each class by their year."""
    every = pl.concat(
        [found.citers.select("citing_id", "class"), found.others.select("citing_id", pl.lit("k").alias("class"))]
    )
    years = every.join(around.facts.select(citing_id="work_id", publication_year=YEAR), on="citing_id", how="left")
    return years.group_by(YEAR, "class").agg(works=pl.len().cast(pl.Int64)).sort(YEAR, "class")


def mark_self_citations(
    citers: pl.DataFrame, found: Classes, around: Neighbourhood, authors: AnyFrame, config: CDConfig
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Mark citers that share an author with the work; return also n_self_citers and the index without such works."""
    near = pl.col("work_id").is_in(around.facts["work_id"].implode())
    pairs = require_authors(authors, "explain").filter(near).collect(engine="streaming")
    own = pairs.filter(pl.col("work_id") == around.work_id)
    sharing = pairs.join(own, on="author_id", how="semi")["work_id"].unique()
    is_known = around.work_id in sharing
    marked = citers.with_columns(
        is_self_citation=pl.when(pl.lit(is_known)).then(pl.col("work_id").is_in(sharing.implode()))
    )
    n = int(marked["is_self_citation"].sum()) if is_known else None
    left = score(around, config, {"": found.without(sharing)})["cd_index"].item() if is_known else None
    columns = {
        "n_self_citers": pl.Series([n], dtype=pl.UInt32),
        "independent_cd_index": pl.Series([left], dtype=pl.Float64),
    }
    return marked, pl.DataFrame(columns)


def add_facts(scores: pl.DataFrame, around: Neighbourhood) -> pl.DataFrame:
    """Put what is known of the work before its scores, and say whether it is judged."""
    first = [pl.lit(around.fact(name)).alias(name) for name in (ORIGINAL_ID, "title", YEAR)]
    known = [one for one in first if one.meta.output_name() in around.facts.columns]
    n_refs = pl.lit(around.references.len(), pl.UInt32).alias("n_refs")
    return scores.select("work_id", *known, n_refs, pl.exclude("work_id")).with_columns(is_judged=is_judged())


def add_certainty(
    rows: pl.DataFrame, around: Neighbourhood, cut: LabelThresholds, prior: LabelPrior | None
) -> pl.DataFrame:
    """Add the label, and the columns of ``compute_cd_interval`` and ``compute_label_confidence`` by one prior."""
    known = prior or SHIPPED
    cell = [pl.lit(around.fact(name)).alias(name) for name in cut.cell_columns if name not in rows.columns]
    sure = compute_label_confidence(
        compute_cd_interval(label(rows, around, cut).with_columns(cell), prior=known), cut, prior=known
    )
    return sure.drop(one.meta.output_name() for one in cell).collect()
