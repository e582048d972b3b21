"""What a build says of its works beside them: the entries of the manifest, the checks, and the pictures."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import polars as pl

from sciscidata.config import BuildConfig
from sciscidata.diagnostics.diagnose import Check, DataYears, diagnose_graph, diagnose_works
from sciscidata.diagnostics.labels import diagnose_labels
from sciscidata.disruption.config import first_open_window
from sciscidata.disruption.label_prior import FEWEST_WORKS, MOST_CITERS, LabelPrior, count_citers, fit_prior, n_works
from sciscidata.errors import EmptyInputError
from sciscidata.judged import is_over_by_year
from sciscidata.label_thresholds import VOCABULARIES, LabelThresholds, count_labels
from sciscidata.plots import plot_comparison, plot_disruption, plot_label, plot_novelty, plot_novelty_by_year
from sciscidata.release.documents import remark_on_release
from sciscidata.sampling.draw import Drawn
from sciscidata.sampling.manifest_entries import NullModel, describe_novelty
from sciscidata.schemas import CD_SCORES, SPLITS
from sciscidata.scoring import Computed
from sciscidata.sources.kinds import Scored, Texts
from sciscidata.sources.registry import find_source
from sciscidata.terminal.progress import AT_END

logger = logging.getLogger(__name__)


def describe(labelled: Scored, drawn: Drawn, config: BuildConfig, background: dict[str, Any] | None) -> dict[str, Any]:
    """State in JSON types what was read, decided and counted, and warn of what was probably not meant."""
    kind, demand = find_source(config.source), drawn.demand
    model = NullModel(
        config=None if kind.brings_labels else config.novelty,
        background=background,
        is_published=config.has_published_scores,
        concentrations=labelled.concentrations if isinstance(labelled, Computed) else {},
    )
    novelty = describe_novelty(model, drawn.scored, drawn.counts["filters"]["works"], config.thresholds)
    checks, ceiling = check_works(labelled, config, last_year=drawn.counts["last_year"]), None
    prior, rests_on = (None, {}) if kind.sample else _find_prior(labelled)
    # Sure labels are no fair draw of citers, so a filter of confidence leaves the ceiling unknown. A sample has no
    # prior, and the ceiling of labels by rank is not known.
    is_chosen = kind.sample or config.eligibility.min_label_confidence or config.thresholds.cells
    if not is_chosen and "disruption_label" in demand.needed:
        tested = drawn.drawn.filter(split="test") if demand.split.n_test else drawn.drawn
        eligible, counts = drawn.eligible, drawn.counts["eligible"]["disruption_label"]
        if demand.split.test_fields:
            eligible = eligible.filter(pl.col("primary_field").is_in(demand.split.test_fields))
            counts = count_labels(eligible.select("disruption_label").collect(engine="streaming"))
        ceiling, sure = diagnose_labels(eligible, counts, count_labels(tested), config.thresholds, prior)
        if fields := " and ".join(demand.split.test_fields):
            sure = [check._replace(text=f"of {fields} alone: {check.text}") for check in sure]
        checks += sure
    facts = {
        "source": labelled.facts.provenance,
        **config.stated(),
        **demand.stated(),
        "atypicality": novelty,
        "counts": drawn.counts,
        "diagnostics": [check.stated() for check in checks],
        **({} if ceiling is None else {"ceiling": ceiling}),
        # Label confidence follows from the counts in scores.parquet.
        **({"label_prior": {**prior.stated(), "rests_on": rests_on}} if prior and config.scores_file else {}),
    }
    for remark in remark_on_release(facts):
        if remark.is_warning:
            logger.warning("%s", f"{remark.text} {remark.remedy}".rstrip(), extra=AT_END)
    return facts


def check_works(scored: Scored, config: BuildConfig, last_year: int | None = None) -> list[Check]:
    """Check the works, and their citations where the source has them."""
    facts, lacks = scored.facts, scored.facts.lacks
    years = DataYears(config.cd.window_years, last_year, facts.data_date, not config.eligibility.complete_window)
    if isinstance(scored, Computed):
        return diagnose_graph(scored.graph, scored.source.works, scored.source.citations, years)
    if "publication_year" in lacks:
        return []
    known = scored.rows.drop({"n_references", "n_citers"} & lacks.keys())
    return diagnose_works(known if isinstance(scored.texts, Texts) else scored.texts, years)


def _find_prior(labelled: Scored) -> tuple[LabelPrior | None, dict[str, Any]]:
    """Find the prior of all scored works, and say what it rests on. Too few works, or works without counts, have None.

    ``counts_sha256`` is that of ``count_citers`` as little-endian Int64: the same works give it again.
    """
    if not labelled.facts.has_index or not set(CD_SCORES) <= set(labelled.rows.collect_schema()):
        return None, {}
    counts = count_citers(labelled.rows)
    if n_works(counts) < FEWEST_WORKS:
        return None, {}
    rests_on = {
        "source": labelled.facts.provenance.get("kind"),
        "works": f"all scored works with an index and 1 to {MOST_CITERS} citers in the window",
        "counts_sha256": hashlib.sha256(counts.astype("<i8").tobytes()).hexdigest(),
    }
    return fit_prior(counts), rests_on


_JUDGED: Final = ("n_i", "n_j", "window_complete")


def _with_judged(rows: pl.LazyFrame, drawn: Drawn) -> pl.LazyFrame:
    """Add the columns that say which works are judged, by the last year of the manifest."""
    first_open = first_open_window(drawn.demand.window_years, drawn.counts["last_year"])
    citers = [] if "n_i" in rows.collect_schema() else [pl.col("n_citers").alias("n_i"), pl.lit(0).alias("n_j")]
    return rows.with_columns(*citers, is_over_by_year(first_open))


def _add_splits(judged: dict[str, Any]) -> dict[str, dict[str, int]]:
    splits = [by_label for name, by_label in judged.items() if name in SPLITS]
    return {
        column: {word: sum(split[column][word] for split in splits) for word in words}
        for column, words in judged["scored"].items()
    }


def plot_pictures(labelled: Scored, drawn: Drawn, facts: dict[str, Any], folder: Path) -> None:
    """Draw the pictures of a release, those of published scores and of novelty only where works have them."""
    thresholds, eligible = drawn.demand.thresholds, drawn.counts["eligible"]
    data, published = labelled.facts.provenance, labelled.facts.published
    if (label := drawn.demand.label) is not None:
        found = count_labels(drawn.drawn, label.name, label.classes)
        plot_label(label, eligible[label.name], found, data=data, path=folder / "label.png")
    if isinstance(labelled, Computed) and "cd_index" in published.collect_schema():
        plain = LabelThresholds() if thresholds.cells else thresholds  # as those of the comparison in the manifest
        computed = _with_judged(labelled.rows, drawn).select("work_id", "cd_index", *_JUDGED)
        computed = computed.collect(engine="streaming")
        with suppress(EmptyInputError):  # no work has both scores
            theirs = published.select("work_id", "cd_index")
            plot_comparison(theirs, computed, None, plain, data=data, path=folder / "comparison.png")
    drawn_counts = {name: count_labels(drawn.drawn, name) for name in VOCABULARIES}
    if labelled.facts.has_index:
        filters, judged = drawn.demand.eligibility, drawn.counts.get("judged")
        rows, of_draw = drawn.eligible.select("cd_index"), (eligible, drawn_counts)
        are_judged = filters.complete_window and filters.min_citations > 0
        if judged is not None and not are_judged:
            rows = _with_judged(drawn.eligible, drawn).select("cd_index", *_JUDGED)
            of_draw = (judged["eligible"], _add_splits(judged))
        plot_disruption(
            rows,
            thresholds,
            eligible=of_draw[0]["disruption_label"],
            drawn=of_draw[1]["disruption_label"],
            population="all" if are_judged else "judged",
            data=data,
            path=folder / "disruption.png",
        )
    with suppress(EmptyInputError):  # no eligible work has a z
        plot_novelty(
            drawn.scored,
            drawn.eligible,
            thresholds,
            eligible_counts=eligible["novelty_label"],
            drawn_counts=drawn_counts["novelty_label"],
            n_unlabelled=drawn.drawn["novelty_label"].null_count(),
            cut=(facts["atypicality"] or {}).get("conventionality_cut"),
            data=data,
            path=folder / "novelty.png",
        )
    with suppress(EmptyInputError):  # no work with a z has a year
        plot_novelty_by_year(drawn.scored, thresholds, data=data, path=folder / "novelty_by_year.png")
