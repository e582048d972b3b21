"""What a release tells of one of its works: counts, but not the papers behind them."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sciscidata.disruption.label_prior import LabelPrior
from sciscidata.errors import ConfigError, InputNotFoundError
from sciscidata.explanation import sentences
from sciscidata.explanation.classes import Classes, find_turns, label, no_turns
from sciscidata.explanation.explanation import Explanation
from sciscidata.explanation.find_work import find_work
from sciscidata.explanation.neighbourhood import YEAR, Neighbourhood
from sciscidata.explanation.pairs_of_work import PAIRS_OF_WORK
from sciscidata.explanation.tables import add_certainty, count_years, list_references, list_works
from sciscidata.judged import is_cited
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.records.ids import ORIGINAL_ID, number_ids
from sciscidata.release.read import Release, read_settings
from sciscidata.schemas import CITATIONS, MANIFEST


def refuse_any_folder(folder: Path) -> None:
    """Raise an InputNotFoundError for a folder that holds nothing of this package."""
    if not (folder / MANIFEST).exists():
        raise InputNotFoundError(
            f"{folder} is a folder, but no corpus, graph or release. Name one; `sciscidata ingest` makes a corpus."
        )


def refuse_with_release(**options: object) -> None:
    """Raise a ConfigError for what a release cannot tell."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(
                f"explain: a release holds counts of its own convention only, so {name} has no effect. Name the "
                "corpus that it was built from."
            )


def explain_released(
    work: object, release: Release, thresholds: LabelThresholds | None, prior: LabelPrior | None
) -> Explanation:
    """Say what the counts in a release tell of one of its works."""
    cut = thresholds or read_settings(release.manifest)[0]
    prior = prior or release.label_prior
    texts = pl.concat([getattr(release, split) for split in release.splits])
    told = ["openalex_id", "title", YEAR, "primary_field", "cd_index"]
    rows = texts.select(told).join(release.scores, on="openalex_id", how="left", maintain_order="left")
    numbers = number_ids(rows["openalex_id"])
    rows = rows.with_columns(work_id=numbers).rename({"openalex_id": ORIGINAL_ID})
    work_id = find_work(work, rows.lazy(), f"the release in {release.folder}")
    row = rows.filter(pl.col("work_id") == work_id)
    none = pl.DataFrame(schema=CITATIONS)
    around = Neighbourhood(work_id, row, pl.Series("cited_id", [], pl.Int64), none, None)
    counts = ["n_i", "n_j", "n_k", "cd_index"]
    is_known = row.select(pl.all_horizontal(pl.col(counts).is_not_null())).item()
    scores = row.select("work_id", ORIGINAL_ID, "title", YEAR, pl.col("n_references").alias("n_refs"), *counts)
    scores = label(scores.with_columns(is_judged=is_cited()), around, cut)
    lines = [sentences.name_work(around)]
    turns = no_turns()
    if is_known:
        scores = add_certainty(scores, around, cut, prior)
        turns = find_turns(scores, around, cut) if scores["disruption_label"].item() else turns
    lines += sentences.describe_released(scores.row(0, named=True))
    if is_known:
        lines += sentences.describe_certainty(scores.row(0, named=True), prior)
        lines += sentences.describe_turns(turns)
    lines.append(
        "A release holds counts only: which papers cite it, and what other conventions say, is not known here. Name "
        "the corpus that it was built from."
    )
    empty = Classes.empty()
    return Explanation(
        text="\n".join(lines),
        scores=scores,
        citers=list_works(empty.citers, around),
        references=list_references(around, empty),
        citers_of_references=list_works(empty.others, around),
        by_year=count_years(around, empty),
        conventions=pl.DataFrame(),
        turns=turns,
        venue_pairs=PAIRS_OF_WORK.to_frame(),
    )
