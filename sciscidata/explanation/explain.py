"""explain: which papers made the CD index of one work, how sure it is, and what other choices would say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
import polars as pl

from sciscidata.corpus.folder import find_corpus_graph, scan_corpus
from sciscidata.disruption.cd_interval import compute_cd_interval
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.label_confidence import compute_label_confidence
from sciscidata.disruption.label_prior import SHIPPED, LabelPrior
from sciscidata.disruption.self_citations import require_authors
from sciscidata.errors import ConfigError, InputNotFoundError, WorkIdError
from sciscidata.explanation import sentences
from sciscidata.explanation.classes import (
    Classes,
    classify,
    compare_conventions,
    describe_outside,
    find_turns,
    label,
    list_citers,
    score,
    score_window,
)
from sciscidata.explanation.explanation import Explanation
from sciscidata.explanation.find_work import find_work, read_name
from sciscidata.explanation.neighbourhood import (
    DATE,
    FACTS,
    YEAR,
    Neighbourhood,
    cut_from_frames,
    cut_from_graph,
    is_open_in_field,
    read_facts,
)
from sciscidata.explanation.pairs_of_work import PAIRS_OF_WORK, explain_pairs
from sciscidata.frames import AnyFrame
from sciscidata.graph.graph import CitationGraph, Time, read_graph, require_times
from sciscidata.judged import WINDOW_COMPLETE, is_cited, is_judged
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.options.checks import check_value, checked_config
from sciscidata.records.ids import ORIGINAL_ID, number_ids
from sciscidata.release.read import Release, read_release, read_settings
from sciscidata.release.verify import kind_of
from sciscidata.schemas import CITATIONS, require_columns
from sciscidata.terminal.messages import counted, printable

_STAGE: Final = "explain"
_Listed = Annotated[int, msgspec.Meta(ge=0)]


def explain(
    work: int | str,
    works: AnyFrame | CitationGraph | str | Path,
    citations: AnyFrame | None = None,
    config: CDConfig | None = None,
    *,
    thresholds: LabelThresholds | None = None,
    prior: LabelPrior | None = None,
    authors: AnyFrame | None = None,
    novelty: NoveltyConfig | None = None,
    background: str | Path | None = None,
    n_listed: int = 100,
) -> Explanation:
    """Explain the CD index of one work: the papers that made it, how sure it is, what other choices would say.

    Runs when it is called, and reads only what belongs to the work. Its counts are those of ``compute_cd_index``.

    Args:
        work: a work_id, the work's own id, an OpenAlex id or address, or a DOI in any form.
        works: WORKS. Or the folder of a corpus, of a graph or of a release, or a CitationGraph; then leave out
            ``citations``. A graph has no titles. A release has counts, and does not know the papers.
        citations: CITATIONS, in any order; repeats, and works that cite themselves, are ignored.
        config: which convention; ``CDConfig()`` when None.
        thresholds: ``LabelThresholds()`` when None.
        prior: of ``find_label_prior``, or ``LabelPrior.of_file`` of a file of `sciscidata cd`. None: the shipped one.
        authors: one row per work and author, as ``scan_authors`` gives them: citers that share one are marked.
        novelty: the null model of the venue pairs; None: they are left out. It reads all works of the same year.
        background: a file of ``write_background``, for the venue pairs, in place of all works of the year.
        n_listed: works of n_k to list; all are counted.

    Returns:
        An Explanation: ``print`` shows its sentences, and its tables are frames.

    Raises:
        WorkIdError: the work is not there, or several works have the DOI.
        ConfigError: an option does not fit, or ``citations`` are given with a folder.
        SchemaMismatchError: a column is missing or has another type.
        InputNotFoundError: there is no corpus, graph or release in the folder.

    Example:
        >>> works = pl.DataFrame({"work_id": [1, 2, 3, 4, 5], "publication_year": [1990, 2000, 2001, 2002, 2003]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.DataFrame({"citing_id": [2, 3, 4, 4, 5], "cited_id": [1, 2, 2, 1, 1]})
        >>> found = explain(2, works, citations)
        >>> print(found.text.splitlines()[1])
        2 later works cite it (2001 to 2005), 1 of them nothing that it built on, 1 also its one reference; 1 work cites only its references: CD 0, neutral.
        >>> found.citers.select("work_id", "class", "shared").rows()
        [(3, 'i', []), (4, 'j', [1])]
    """  # noqa: E501 (a printed line)
    config = checked_config(config, CDConfig, "window_years=10")
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    check_value("prior", prior, LabelPrior | None)
    check_value("n_listed", n_listed, _Listed)
    if novelty is not None or background is not None:
        novelty = checked_config(novelty, NoveltyConfig, name="novelty")
    is_place = isinstance(works, CitationGraph | str | Path)
    if is_place and citations is not None:
        raise ConfigError(f"{_STAGE}: a folder or a graph has its citations. Leave citations out.")
    if not is_place and citations is None:
        raise ConfigError(
            f"{_STAGE} needs works and citations. Give both frames, or the folder of a corpus or a graph."
        )
    if isinstance(works, str | Path) and kind_of(works) == "release":
        _refuse_with_release(authors=authors, novelty=novelty, config=None if config == CDConfig() else config)
        return _explain_released(work, read_release(works), thresholds, prior)
    around, frames = _open(work, works, citations, config)
    asked = _Asked(config, cut, prior, n_listed)
    return asked.explain(around, frames, authors, novelty, background)


def _open(
    work: object, works: AnyFrame, citations: AnyFrame | None, config: CDConfig
) -> tuple[Neighbourhood, tuple[pl.LazyFrame, pl.LazyFrame] | None]:
    """Cut a work and what is around it out of frames, a graph or a folder; return also the frames, if there are any."""
    if isinstance(works, str | Path):
        kind = kind_of(works)
        if kind == "graph":
            graph = read_graph(works, trusted=True, whole=False)
            return _cut(graph, work, config), None
        if kind != "corpus":
            raise InputNotFoundError(
                f"{works} is a {kind}, and {_STAGE} needs a corpus, a graph or a release. Name the folder that it was "
                "made of."
            )
        corpus = scan_corpus(works)
        work_id = find_work(work, corpus.works, f"the corpus in {works}")
        around = cut_from_graph(find_corpus_graph(works, time=config.time), work_id)
        facts = read_facts(corpus.works, around.facts["work_id"])
        times = [name for name in (YEAR, DATE) if name in around.facts.columns]
        named = around.facts.join(facts.drop(times, strict=False), on="work_id", how="left", maintain_order="left")
        named = named.select(name for name in FACTS if name in named.columns)
        return around._replace(facts=named), (corpus.works, corpus.citations)
    if isinstance(works, CitationGraph):
        return _cut(works, work, config), None
    time: Time = config.time
    lazy = require_times(works, time, stage=_STAGE)
    edges = require_columns(citations, CITATIONS, frame_name="CITATIONS", stage=_STAGE)
    around = cut_from_frames(find_work(work, lazy, "works"), lazy, edges, time)
    return around, (lazy, edges)


def _cut(graph: CitationGraph, work: object, config: CDConfig) -> Neighbourhood:
    number, doi = read_name(work)
    if number is None or doi is not None:
        raise WorkIdError(
            f"{_STAGE}: a graph knows works by their numbers, not {work!r}. Give its work_id or OpenAlex id."
        )
    if config.time == DATE and graph.days is None:
        raise ConfigError("CDConfig.time is 'publication_date', and the graph has no dates. Name the corpus.")
    return cut_from_graph(graph, number)


class _Asked:
    """What is asked of every work: convention, thresholds, prior, and how many works of n_k to list."""

    def __init__(self, config: CDConfig, cut: LabelThresholds, prior: LabelPrior | None, n_listed: int) -> None:
        self.config, self.cut, self.prior, self.n_listed = config, cut, prior, n_listed

    def explain(
        self,
        around: Neighbourhood,
        frames: tuple[pl.LazyFrame, pl.LazyFrame] | None,
        authors: AnyFrame | None,
        novelty: NoveltyConfig | None,
        background: str | Path | None,
    ) -> Explanation:
        """Put the tables and the sentences together."""
        config, cut = self.config, self.cut
        classes = {name: classify(around, config, window) for name, window in config.all_windows.items()}
        scores = score(around, config, classes)
        for name, window in config.all_windows.items():
            is_over = score_window(around, config, window)[1][WINDOW_COMPLETE]
            scores = scores.with_columns(is_over.alias(WINDOW_COMPLETE + name))
        if frames is not None:
            is_open = is_open_in_field(frames[0], around, config)
            scores = scores.with_columns(pl.lit(value=False).alias(name) for name in is_open)
        counted_in = classes[""]
        found = counted_in or Classes.empty()
        scores = self._add_certainty(scores, around)
        row = scores.row(0, named=True)
        citers = _with_shared(list_citers(found.citers, around), around)
        lines = [_name(around), *sentences.describe_counts(row, config)]
        lines += sentences.describe_judged(row, around.last_year)
        lines += sentences.describe_outside(describe_outside(around, config, found) if counted_in else {})
        lines += sentences.describe_certainty(row, _name_prior(self.prior))
        has_index = row["cd_index"] is not None and row["disruption_label"] is not None
        turns = find_turns(scores, around, cut) if has_index else _no_turns()
        lines += sentences.describe_turns(turns)
        conventions = compare_conventions(around, config, cut)
        lines += sentences.describe_conventions(conventions)
        if authors is not None:
            citers, more = _mark_self_citations(citers, found, around, authors, config)
            scores = scores.hstack(more)
            lines += sentences.describe_self_citations(scores.row(0, named=True))
        pairs = PAIRS_OF_WORK.to_frame()
        if novelty is not None:
            if frames is None:
                raise ConfigError(f"{_STAGE}: a graph knows no venues, which novelty needs. Name the corpus.")
            of_work, pairs = explain_pairs(around, *frames, novelty, background)
            scores = scores.hstack(of_work.drop("work_id"))
            lines += sentences.describe_pairs(of_work.row(0, named=True), pairs)
        return Explanation(
            text="\n".join(lines),
            scores=scores,
            citers=citers,
            references=_list_references(around, found),
            citers_of_references=_with_shared(list_citers(found.others, around, self.n_listed), around),
            by_year=_count_years(around, found),
            conventions=conventions,
            turns=turns,
            venue_pairs=pairs,
        )

    def _add_certainty(self, scores: pl.DataFrame, around: Neighbourhood) -> pl.DataFrame:
        """Add what is known of the work, whether it is judged, its label, and how sure both are."""
        first = [pl.lit(around.fact(name)).alias(name) for name in (ORIGINAL_ID, "title", YEAR)]
        known = [one for one in first if one.meta.output_name() in around.facts.columns]
        n_refs = pl.lit(around.references.len(), pl.UInt32).alias("n_refs")
        columns = scores.columns[1:]
        rows = scores.select("work_id", *known, n_refs, *columns).with_columns(is_judged=is_judged())
        return add_certainty(label(rows, around, self.cut), around, self.cut, self.prior)


def add_certainty(
    rows: pl.DataFrame, around: Neighbourhood, cut: LabelThresholds, prior: LabelPrior | None
) -> pl.DataFrame:
    """Add the columns of ``compute_cd_interval`` and ``compute_label_confidence`` by one prior."""
    known = prior or SHIPPED
    cell = [pl.lit(around.fact(name)).alias(name) for name in cut.cell_columns if name not in rows.columns]
    sure = compute_label_confidence(compute_cd_interval(rows.with_columns(cell), prior=known), cut, prior=known)
    return sure.drop(one.meta.output_name() for one in cell).collect()


def _name(around: Neighbourhood) -> str:
    """Name a work: its id, its year, its title."""
    original, title, year = (around.fact(name) for name in (ORIGINAL_ID, "title", YEAR))
    name = str(original) if original is not None else f"W{around.work_id}"
    return f"{printable(name)}{f' ({year})' if year is not None else ''}{f': {printable(title)}' if title else ''}"


def _name_prior(prior: LabelPrior | None) -> str:
    if prior is None:
        return "the shipped one, of other works"
    return f"{counted(prior.works, 'work')} with one to eight citers"


def _with_shared(rows: pl.DataFrame, around: Neighbourhood) -> pl.DataFrame:
    """Count the shared references beside their list."""
    n_shared = pl.col("shared").list.len().alias("n_shared")
    return rows.with_columns(n_shared).select(pl.exclude("n_shared", "shared"), "n_shared", "shared")


def _list_references(around: Neighbourhood, found: Classes) -> pl.DataFrame:
    """List what the work cites, and how many of its citers cite it too."""
    shared = found.citers.select(cited="shared").explode("cited", empty_as_null=False).drop_nulls()
    counts = shared.group_by("cited").len("n_citers").rename({"cited": "citing_id"})
    rows = pl.DataFrame({"citing_id": around.references}).join(counts, on="citing_id", how="left")
    return list_citers(rows.with_columns(pl.col("n_citers").fill_null(0)), around)


def _count_years(around: Neighbourhood, found: Classes) -> pl.DataFrame:
    """Count the works of each class by their year."""
    every = pl.concat(
        [found.citers.select("citing_id", "class"), found.others.select("citing_id", pl.lit("k").alias("class"))]
    )
    years = every.join(around.facts.select(citing_id="work_id", publication_year=YEAR), on="citing_id", how="left")
    return years.group_by(YEAR, "class").agg(works=pl.len().cast(pl.Int64)).sort(YEAR, "class")


def _mark_self_citations(
    citers: pl.DataFrame, found: Classes, around: Neighbourhood, authors: AnyFrame, config: CDConfig
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Mark citers that share an author with the work; return also n_self_citers and the index without such works."""
    pairs = require_authors(authors, _STAGE)
    own = pairs.filter(pl.col("work_id") == around.work_id).select("author_id").unique()
    sharing = (
        pairs.join(own, on="author_id", how="semi").select("work_id").unique().collect(engine="streaming")["work_id"]
    )
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


def _no_turns() -> pl.DataFrame:
    schema = {"to_label": pl.String, "change": pl.String, "n_citers": pl.Int64, "cd_index": pl.Float64}
    return pl.DataFrame(schema=schema)


def _refuse_with_release(**options: object) -> None:
    """Raise a ConfigError for what a release cannot tell."""
    for name, value in options.items():
        if value is not None:
            raise ConfigError(
                f"{_STAGE}: a release holds counts of its own convention only, so {name} has no effect. Name the "
                "corpus that it was built from."
            )


def _explain_released(
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
    lines = [_name(around)]
    turns = _no_turns()
    if is_known:
        scores = add_certainty(scores, around, cut, prior)
        turns = find_turns(scores, around, cut) if scores["disruption_label"].item() else turns
    lines += sentences.describe_released(scores.row(0, named=True))
    if is_known:
        lines += sentences.describe_certainty(scores.row(0, named=True), _name_prior(prior))
        lines += sentences.describe_turns(turns)
    lines.append(
        "A release holds counts only: which papers cite it, and what other conventions say, is not known here. Name "
        "the corpus that it was built from."
    )
    empty = Classes.empty()
    return Explanation(
        text="\n".join(lines),
        scores=scores,
        citers=_with_shared(list_citers(empty.citers, around), around),
        references=_list_references(around, empty),
        citers_of_references=_with_shared(list_citers(empty.others, around), around),
        by_year=_count_years(around, empty),
        conventions=pl.DataFrame(),
        turns=turns,
        venue_pairs=PAIRS_OF_WORK.to_frame(),
    )
