"""Scores for a list of ids: one row each, in the order of the list, with the reason where a work is not judged."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import polars as pl

from sciscidata.by_id.on_disk import Rules, ScoredIds, score_frames, score_graph_ids
from sciscidata.corpus.folder import INDEX, CorpusConfig
from sciscidata.disruption.cd_interval import compute_cd_interval
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.label_confidence import compute_label_confidence
from sciscidata.disruption.label_prior import SHIPPED, LabelPrior
from sciscidata.errors import ConfigError, InputNotFoundError
from sciscidata.graph.graph import GRAPH_INDEX, CitationGraph, read_graph
from sciscidata.judged import WINDOW_COMPLETE, is_cited
from sciscidata.label_thresholds import LabelThresholds, compute_labels
from sciscidata.novelty.background import read_background
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.options.checks import check_value, checked_config
from sciscidata.records.ids import ORIGINAL_ID, released_id
from sciscidata.records.listed_ids import ENTITIES, ListedIds
from sciscidata.schemas import ATYPICALITY, CD_SCORES, WORKS, Corpus
from sciscidata.sources.id_files import Ids, read_ids
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.registry import SourceConfig, open_citations
from sciscidata.sources.snapshot.merges import find_merges
from sciscidata.sources.snapshot.source import SnapshotConfig
from sciscidata.storage.user_cache import default_cache_dir
from sciscidata.terminal.messages import counted

logger = logging.getLogger(__name__)

#: Whose works a prior comes from: all works of the source, the package's, those of a file, or what was found.
Prior: TypeAlias = Literal["corpus", "shipped"] | str | Path | LabelPrior
#: One row per id asked, in the order of the list. Null where undefined.
ID_SCORES: Final = pl.Schema(
    {
        "asked": pl.String(),  # as the list has it
        "openalex_id": pl.String(),  # of the work that was found; of own tables, the id that it has there
        "reason": pl.String(),  # why the work is not judged; null if it is
        "doi": WORKS["doi"],
        "title": WORKS["title"],
        "publication_year": WORKS["publication_year"],
        "n_references": pl.UInt32(),
        **{name: CD_SCORES[name] for name in ("n_i", "n_j", "n_k", "cd_index")},
        "cd_low": pl.Float64(),
        "cd_high": pl.Float64(),
        "disruption_label": pl.String(),
        "label_confidence": pl.Float64(),
        "prior": pl.String(),  # what the last four rest on: "corpus", "shipped" or "given"
        WINDOW_COMPLETE: pl.Boolean(),
        **{name: dtype for name, dtype in ATYPICALITY.items() if name != "work_id"},
        "novelty_label": pl.String(),
        "note": pl.String(),  # that several works have the DOI; else null
    }
)
#: Reasons, in the order in which they apply.
REASONS: Final = (
    "no id", "not a work", "merged", "merged or deleted", "not found", "no year", "no references",
    "too many references", "counts contradict", "window open", "uncited",
)  # fmt: skip


def score_ids(
    ids: Ids,
    source: SourceConfig | Corpus | CitationGraph | str | Path,
    *,
    cd: CDConfig | None = None,
    thresholds: LabelThresholds | None = None,
    prior: Prior = "corpus",
    background: str | Path | None = None,
    novelty: NoveltyConfig | None = None,
    id_column: str | None = None,
    cache_dir: str | Path | None = None,
    api: ApiConfig | None = None,
) -> pl.DataFrame:
    """Score the works of a list of ids, with every citer that a source has of them.

    Args:
        ids: DOIs, OpenAlex ids or addresses of either, in any form: a list, a Series, a frame, a pasted text, or the
            path of a file (text, CSV, TSV, JSON, Parquet, RIS, BibTeX, CSL JSON).
        source: the folder of a corpus or of its graph, any source's configuration, or a Corpus of frames.
            ``OpenAlexConfig()`` asks the API, which may cost money. SciSciNet is scored by its citations.
        cd: which convention; ``CDConfig()`` when None.
        thresholds: ``LabelThresholds()`` when None.
        prior: of label confidence and interval. ``"corpus"``: that of all works of the source, which are scored too.
            ``"shipped"``: the one of the package. A path: that in a file of ``sciscidata cd``. Or a LabelPrior. The API
            and a graph know no other works: there ``"corpus"`` means the shipped one.
        background: saved null model to score novelty against. None: novelty is null.
        novelty: conventions of novelty; those of the background must agree.
        id_column: the column of a table that holds the ids. None: the one with the most.
        cache_dir: for graphs, parsed records and answers of the API; the user's cache folder when None.
        api: how to reach OpenAlex; from the environment when None.

    Returns:
        One row per id, in the order of ``ids``, repeats too: ``asked``; ``openalex_id``, null if no work was found;
        ``reason`` (String), null if the work is judged; ``doi``, ``title``, ``publication_year``, ``n_references``;
        n_i, n_j, n_k (UInt32, works) and ``cd_index``; ``cd_low`` and ``cd_high`` (95 %), ``disruption_label``,
        ``label_confidence`` (0 to 1), and ``prior``, which says whose these rest on; ``window_complete``; the columns
        of ``compute_atypicality`` and ``novelty_label``.

        ``reason`` is "no id", "not a work" (the id of an author, for example), "merged" (scores are those of the work
        in ``openalex_id``), "merged or deleted" (cited, but no work of the source), "not found", "no year",
        "no references", "window open" or "uncited". With the last two, counts and index are there, and may change. By
        the API also "too many references" (over 500, and over 10,000 works of a year cite them) and "counts
        contradict".

    Raises:
        InputNotFoundError, EmptyInputError, SchemaMismatchError, CorruptRecordError: if there are no ids to read.
        ConfigError: if an argument is something else, or the ids are of no works.
        SciSciDataError: as the source raises.

    Example:
        >>> from sciscidata import ExampleConfig
        >>> mine = ["https://doi.org/10.1001/JAMA.288.3.321", "w2560438049", "10.9999/none"]
        >>> score_ids(mine, ExampleConfig()).select("openalex_id", "reason", "n_i", "n_j", "n_k").rows()
        [('W1593442063', None, 6, 14, 6), ('W2560438049', 'uncited', 0, 0, 3), (None, 'not found', None, None, None)]
    """
    listed = read_ids(ids, id_column)
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    rules = make_rules(cd, cut, prior, background, novelty)
    home = default_cache_dir() if cache_dir is None else Path(cache_dir)
    if isinstance(source, OpenAlexConfig):
        from sciscidata.by_id.by_api import score_by_api

        scored = score_by_api(listed, rules, home, api or ApiConfig.from_environment())
        return _finish(listed, scored, rules, cut)
    with _open(source, home) as opened:
        if isinstance(opened, CitationGraph):
            _check_graph(listed, rules)
            return _finish(listed, score_graph_ids(opened, listed, rules), rules, cut)
        merges = _find_merges(source, listed)
        return _finish(listed, score_frames(opened.works, opened.citations, listed, rules, home, merges), rules, cut)


def _find_merges(source: object, listed: ListedIds) -> dict[int, int]:
    """Find into which works listed ones were merged, if the source says it."""
    if not isinstance(source, SnapshotConfig):
        return {}
    return find_merges(source, listed.rows.filter(kind="OpenAlex")["work_id"].unique())


def make_rules(
    cd: CDConfig | None,
    thresholds: LabelThresholds,
    prior: Prior,
    background: str | Path | None,
    novelty: NoveltyConfig | None,
) -> Rules:
    """Check how works are to be scored, before anything is read."""
    cd, novelty = checked_config(cd, CDConfig), checked_config(novelty, NoveltyConfig)
    if cd.windows or cd.time != "publication_year" or cd.family:
        raise ConfigError(
            "CDConfig.windows, CDConfig.time and CDConfig.family have no effect on ids: each gets one index, of "
            "CDConfig.window_years. Leave them out, or score a corpus with write_cd_index (`sciscidata cd`)."
        )
    if background is not None:
        read_background(background, novelty)
        if thresholds.novelty_rule == "uzzi":
            raise ConfigError(
                "LabelThresholds.novelty_rule='uzzi' compares a work with all works, and here are some. Set "
                "LabelThresholds.novelty_rule='margin'."
            )
    return Rules(cd, novelty, None if background is None else Path(background), _read_prior(prior))


def _read_prior(prior: Prior) -> LabelPrior | None:
    """Return the prior that is meant; None stands for that of the source's works."""
    if isinstance(prior, LabelPrior):
        return prior
    if prior in ("corpus", "shipped"):
        return None if prior == "corpus" else SHIPPED
    if not isinstance(prior, str | Path) or not Path(prior).is_file():  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputNotFoundError(
            f"prior is {str(prior)!r}, which is no file. Give 'corpus', 'shipped', or a file that `sciscidata cd` has "
            "written."
        )
    return LabelPrior.of_file(prior)


@contextmanager
def _open(
    source: SourceConfig | Corpus | CitationGraph | str | Path, cache_dir: Path
) -> Generator[Corpus | CitationGraph]:
    """Open what the ids are looked up in. A folder is a corpus, or the graph of one."""
    if isinstance(source, CitationGraph):
        yield source
        return
    if (folder := find_graph(source)) is not None:
        yield read_graph(folder, trusted=True, whole=False)
        return
    source = CorpusConfig(folder=str(source)) if isinstance(source, str | Path) else source
    if not isinstance(source, Corpus):
        check_value("source", source, SourceConfig)
    with open_citations(source, cache_dir) as corpus:
        yield corpus


def find_graph(source: SourceConfig | Corpus | CitationGraph | str | Path) -> Path | None:
    """Return the folder of a graph that stands in the place of a corpus, None if there is none."""
    folder = source.folder if isinstance(source, CorpusConfig) else source
    if not isinstance(folder, str | Path) or (Path(folder) / INDEX).exists():
        return None
    return Path(folder) if (Path(folder) / GRAPH_INDEX).exists() else None


def _check_graph(listed: ListedIds, rules: Rules) -> None:
    """Refuse what a graph cannot answer: it holds ids, years and references."""
    if not (listed.rows["kind"] == "OpenAlex").any():
        raise ConfigError("a graph knows works by their OpenAlex ids only, and the list has none. Name its corpus.")
    if rules.background is not None:
        raise ConfigError("a graph knows no venues, so there is no novelty. Name its corpus, or leave out background.")


def _finish(listed: ListedIds, scored: ScoredIds, rules: Rules, thresholds: LabelThresholds) -> pl.DataFrame:
    """Label the works, and put them beside the ids in their order."""
    # Without the column, nothing is logged of works that are not judged: each row says it.
    works = compute_labels(scored.works.drop(WINDOW_COMPLETE), thresholds).collect()
    works = works.join(scored.works.select("work_id", WINDOW_COMPLETE), on="work_id", how="left")
    works = compute_cd_interval(works, prior=scored.prior).collect()
    works = compute_label_confidence(works, thresholds, prior=scored.prior).collect()
    prior_of = "shipped" if scored.prior == SHIPPED else "corpus" if rules.prior is None else "given"
    works = works.with_columns(
        released_id(ORIGINAL_ID in works.columns),
        prior=pl.when(pl.col("label_confidence").is_not_null()).then(pl.lit(prior_of)),
    )
    rows = listed.rows.hstack(_match(listed, works, scored))
    unscored = pl.DataFrame(
        {"number": [*scored.unscored], "why": [*scored.unscored.values()]}, {"number": pl.Int64(), "why": pl.String()}
    )
    found = rows.drop("doi").join(works.rename({"work_id": "number"}), on="number", how="left", maintain_order="left")
    found = found.join(unscored, on="number", how="left", maintain_order="left").with_columns(reason=_say_why(scored))
    _say_found(found)
    return found.select(ID_SCORES.names()).cast(ID_SCORES)


def _match(listed: ListedIds, works: pl.DataFrame, scored: ScoredIds) -> pl.DataFrame:
    """Return ``number``, the work of each id: by its number, else by its DOI; null if there is none. And ``note``.

    Of several works with one DOI, the one with most citations counts.
    """
    first = works.select("work_id", "doi", "cited_by_count").drop_nulls("doi")
    first = first.sort(pl.col("cited_by_count").fill_null(-1), "work_id", descending=[True, False])
    by_doi = first.group_by("doi", maintain_order=True).agg(of_doi=pl.col("work_id").first(), n_of_doi=pl.len())
    asked_twice = by_doi.filter(pl.col("n_of_doi") > 1)["doi"]
    if n := int(asked_twice.is_in(listed.rows["doi"].implode()).sum()):
        logger.warning("%s of several works: the one with most citations counts", counted(n, "DOI is", "DOIs are"))
    merged = pl.DataFrame(
        {"work_id": [*scored.merged], "now": [*scored.merged.values()]}, {"work_id": pl.Int64(), "now": pl.Int64()}
    )
    rows = listed.rows.join(merged, on="work_id", how="left", maintain_order="left")
    rows = rows.join(by_doi, on="doi", how="left", maintain_order="left")
    number = pl.coalesce("now", "work_id")
    is_known = number.is_in(works["work_id"].implode()).fill_null(value=False)
    note = pl.format("{} works have this DOI; this one has most citations", "n_of_doi")
    return rows.select(
        pl.when(is_known).then(number).otherwise("of_doi").alias("number"),
        pl.when(~is_known & (pl.col("n_of_doi") > 1)).then(note).alias("note"),
    )


def _say_why(scored: ScoredIds) -> pl.Expr:
    """Name the first of REASONS that applies; null for a judged work."""
    kind, number = pl.col("kind"), pl.col("number")
    cites_nothing = (pl.col("n_references") == 0) & pl.col("cd_index").is_null()
    return (
        pl.when(kind.is_null()).then(pl.lit("no id"))
        .when(number.is_null() & kind.is_in([*ENTITIES.values()])).then(pl.lit("not a work"))
        .when(number.is_null() & (kind == "OpenAlex") & pl.col("work_id").is_in([*scored.gone]))
        .then(pl.lit("merged or deleted"))
        .when(number.is_null()).then(pl.lit("not found"))
        .when(pl.col("work_id").is_in([*scored.merged])).then(pl.lit("merged"))
        .when(pl.col("publication_year").is_null()).then(pl.lit("no year"))
        .when(cites_nothing).then(pl.lit("no references"))
        .when(pl.col("why").is_not_null()).then(pl.col("why"))
        .when(~pl.col(WINDOW_COMPLETE).fill_null(value=True)).then(pl.lit("window open"))
        .when(~is_cited()).then(pl.lit("uncited"))
        .otherwise(pl.lit(None, pl.String))
    )  # fmt: skip


def count_reasons(rows: pl.DataFrame) -> dict[str, int]:
    """Count the rows of each reason, in their order; "judged" first."""
    counts = dict(rows["reason"].value_counts().iter_rows())
    return {"judged": counts.pop(None, 0)} | {name: counts[name] for name in REASONS if name in counts}


def _say_found(rows: pl.DataFrame) -> None:
    """Log how many ids have a judged work, and why others have none."""
    reasons = ", ".join(f"{name} {n:,}" for name, n in count_reasons(rows).items())
    level = logging.INFO if rows["openalex_id"].is_not_null().any() else logging.WARNING
    logger.log(level, "%s: %s", counted(rows.height, "id"), reasons)
