"""How sure a novelty label is: the probability that a work gets it again with another list of references."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Float64Array, Int32Array, Int64Array
from sciscidata.errors import ConfigError, NotEnoughWorksError
from sciscidata.frames import AnyFrame
from sciscidata.graph.graph import CitationGraph
from sciscidata.label_thresholds import (
    NOVELTY_LABELS,
    LabelThresholds,
    compute_novelty_labels,
    find_conventionality_cut,
)
from sciscidata.novelty.atypicality import YearScorer
from sciscidata.novelty.background import read_background
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.novelty_prior import (
    FEWEST_WORKS,
    SHIPPED,
    Halves,
    NoveltyPrior,
    choose_novelty_prior,
    fit_novelty_prior,
)
from sciscidata.novelty.shapes import Entries, Groups, Quantiles
from sciscidata.novelty.venue_pairs import defer_scores, require_corpus
from sciscidata.options.checks import check_threads, check_value, checked_config
from sciscidata.schemas import ATYPICALITY

_CHANCES: Final = tuple(f"p_{label}" for label in NOVELTY_LABELS)
#: ATYPICALITY of a work with its label, the chance to get it again, and that of each label.
NOVELTY_CONFIDENCE: Final = pl.Schema(
    {
        **ATYPICALITY,
        "novelty_label": pl.String(),
        **dict.fromkeys(("label_confidence", *_CHANCES), pl.Float64()),
    }
)


def compute_novelty_confidence(
    works: AnyFrame,
    citations: AnyFrame,
    config: NoveltyConfig | None = None,
    thresholds: LabelThresholds | None = None,
    *,
    prior: NoveltyPrior | None = None,
    shrink: bool = True,
    background: str | Path | None = None,
    seed: int = 0,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> pl.LazyFrame:
    """Score and label works, and add the probability that a redrawn list of references gives the same label.

    A redrawn list has as many references as the work, drawn from its own with replacement. The z of a venue pair stays.
    A reference forms no pair with a copy of itself. Up to five references, all lists are counted, else 128 are drawn.
    The draws depend on ``seed`` and the work's id only. Lists without a label are left out.

    Few references say little, and these chances are far too sure. So by default they are mixed with the shares of the
    labels among works with about as many references. A list of n references counts n^2 / (n^2 + a). The corpus tells a:
    one half of each list has to predict the label of the other half. Give both as ``prior`` where ``works`` are not all
    works of a corpus. Fewer than 100 works with a label take the one that comes with the package, by Uzzi's rule with
    its cut, and the log says so.

    Args:
        works: WORKS, as for ``compute_atypicality``.
        citations: CITATIONS.
        config: as there; ``NoveltyConfig()`` when None. Its score must be ``"sigmoid"``.
        thresholds: ``LabelThresholds()`` when None.
        prior: what ``find_novelty_prior`` found for all works. With the same ``background``, a work then has the same
            confidence alone as among others, to the last bit. None: estimated from ``works``.
        shrink: whether short lists shrink towards those of all works.
        background: as in ``compute_atypicality``.
        seed: of the redrawn lists, and of the halves.
        cache_dir: keep the graph here for later runs.
        n_threads: as many as Polars uses (POLARS_MAX_THREADS) when None. The result does not depend on it.

    Returns:
        NOVELTY_CONFIDENCE, one row per work, unordered: ATYPICALITY, ``novelty_label``, and ``label_confidence``
        (Float64, 0 to 1), the probability of the work's own label; ``p_novel``, ``p_balanced`` and ``p_conventional``
        (Float64) are those of each and add up to 1. Null where there is no label.

    Raises:
        ConfigError: when called, if the score is ``"rank"``, which depends on all other works, if ``prior`` is of
            another rule, or as ``compute_atypicality``.
        SchemaMismatchError, InputNotFoundError, BackgroundError, WorkIdError, EmptyInputError: as there.

    Memory: besides ``compute_atypicality``, 60 bytes per work.

    Source: this project's. The redraw is the bootstrap of Efron 1979, doi:10.1214/aos/1176344552. See
    docs/measures/label_confidence_evidence.md for what it predicts.

    Example:
        >>> from sciscidata import SyntheticConfig, scan_synthetic
        >>> works, citations, _ = scan_synthetic(SyntheticConfig(n_works=2_000))
        >>> sure = compute_novelty_confidence(works, citations).drop_nulls("novelty_label").collect()
        >>> sure.group_by("novelty_label").agg(pl.col("label_confidence").mean() > 0.6).sort("novelty_label").rows()
        [('balanced', False), ('conventional', True), ('novel', False)]
    """
    config, rule = checked_config(config, NoveltyConfig), checked_config(thresholds, LabelThresholds, name="thresholds")
    check_threads(n_threads)
    check_value("seed", seed, int)
    require_sigmoid(config)
    _check_prior(prior, rule, shrink)
    table = None if background is None else read_background(background, config)

    corpus = require_corpus(works, citations, "compute_novelty_confidence")

    def score(graph: CitationGraph, venues: Int32Array) -> pl.DataFrame:
        known = None if table is None else table.for_venues_of(corpus.works)
        scorer = YearScorer(graph, venues, config, known, n_threads)
        made = score_novelty_confidence(scorer, rule, prior=prior, shrink=shrink, seed=seed)
        few = prior is None and shrink and made["novelty_label"].count() < FEWEST_WORKS
        if few and rule.novelty_rule == "uzzi":  # the shipped prior has its own cut
            return score_novelty_confidence(scorer, rule, prior=SHIPPED["uzzi"], seed=seed)
        return made

    return defer_scores(score, NOVELTY_CONFIDENCE, corpus, cache_dir)


def find_novelty_prior(
    works: AnyFrame,
    citations: AnyFrame,
    config: NoveltyConfig | None = None,
    thresholds: LabelThresholds | None = None,
    *,
    background: str | Path | None = None,
    seed: int = 0,
    cache_dir: str | Path | None = None,
    n_threads: int | None = None,
) -> NoveltyPrior:
    """Find what ``compute_novelty_confidence`` mixes the chances of short lists with. Redraws the list of every work.

    Args:
        works: WORKS of the whole corpus.
        citations: CITATIONS.
        config: as in ``compute_novelty_confidence``, like all that follow.
        thresholds: as there.
        background: as there.
        seed: as there.
        cache_dir: as there.
        n_threads: as there.

    Returns:
        A NoveltyPrior. Keep it (``to_json``), and give it wherever a part of the works is judged.

    Raises:
        NotEnoughWorksError: if fewer than 100 works have a novelty label.
        SciSciDataError: as ``compute_novelty_confidence``.

    Source: this project's.

    Example:
        >>> from sciscidata import SyntheticConfig, scan_synthetic
        >>> works, citations, _ = scan_synthetic(SyntheticConfig(n_works=2_000))
        >>> prior = find_novelty_prior(works, citations)
        >>> NoveltyPrior.from_json(prior.to_json()) == prior
        True
    """
    config, rule = checked_config(config, NoveltyConfig), checked_config(thresholds, LabelThresholds, name="thresholds")
    check_threads(n_threads)
    check_value("seed", seed, int)
    require_sigmoid(config)
    table = None if background is None else read_background(background, config)
    corpus = require_corpus(works, citations, "find_novelty_prior")
    found: list[NoveltyPrior] = []

    def score(graph: CitationGraph, venues: Int32Array) -> pl.DataFrame:
        known = None if table is None else table.for_venues_of(corpus.works)
        redrawn = redraw_lists(YearScorer(graph, venues, config, known, n_threads), rule, seed=seed)
        labelled = redrawn.own >= 0
        if (n := int(labelled.sum())) < FEWEST_WORKS:
            raise NotEnoughWorksError(
                f"find_novelty_prior needs {FEWEST_WORKS} works with a novelty label, found {n}. Give all works, or "
                "leave the prior out: the shipped one is taken."
            )
        found.append(fit_novelty_prior(redrawn.own[labelled], redrawn.sizes[labelled], redrawn.halves, redrawn.cut))
        return pl.DataFrame(schema=NOVELTY_CONFIDENCE)

    defer_scores(score, NOVELTY_CONFIDENCE, corpus, cache_dir).collect()
    return found[0]


def _check_prior(prior: object, rule: LabelThresholds, shrink: bool) -> None:
    known: NoveltyPrior | None = check_value("prior", prior, NoveltyPrior | None)
    if known is None:
        return
    if not shrink:
        raise ConfigError("shrink=False takes redrawn lists as they are, without a prior. Leave out one of both.")
    if (known.conventionality_cut is not None) != (rule.novelty_rule == "uzzi"):
        raise ConfigError(
            f"prior is of the other rule than {rule.novelty_rule!r}, by which thresholds label. Find it with the same "
            "thresholds."
        )


def require_sigmoid(config: NoveltyConfig) -> None:
    """Raise a ConfigError if scores are ranks."""
    if config.score == "rank":
        raise ConfigError(
            "NoveltyConfig.score is 'rank', which depends on all other works, so one work cannot be redrawn. "
            "Set NoveltyConfig.score='sigmoid', or find no confidence."
        )


class RedrawnLists(NamedTuple):
    """What redrawn lists say of each work, before any prior."""

    rows: pl.DataFrame  # ATYPICALITY and the label
    own: Int64Array  # the label of each, -1 without
    sizes: Int64Array  # references with a venue
    chances: Float64Array  # (works, 3)
    halves: Halves
    cut: float | None  # of Uzzi's rule


def redraw_lists(
    scorer: YearScorer, rule: LabelThresholds, *, seed: int = 0, prior: NoveltyPrior | None = None
) -> RedrawnLists:
    """Redraw the list of references of every work of a graph, and of one half of each list."""
    from sciscidata._kernels.random import draw, stream_key
    from sciscidata.novelty import _redraw_kernels as kernels

    graph, config = scorer.graph, scorer.config
    require_sigmoid(config)
    cut = None
    if rule.novelty_rule == "uzzi":
        cut = prior.conventionality_cut if prior else find_conventionality_cut(scorer.score_all().lazy(), rule)
    limits = float(rule.novelty_margin), float(rule.uzzi_tail_max), 0.0 if cut is None else cut
    rules = kernels.Rules(config.unique_pairs, config.min_pairs, rule.novelty_rule == "uzzi", *limits)
    n, key = graph.n_dated, stream_key(seed, "novelty/label confidence")
    n_refs, half_refs, half_label = np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros(n, np.int8)
    chances, half_chance = np.zeros((n, 3)), np.zeros(n)

    def redraw(at: slice, groups: Groups, entries: Entries, written: Quantiles) -> None:
        keys = draw(key, graph.work_ids[at])
        n_refs[at] = np.diff(np.append(0, np.cumsum(groups.counts))[groups.offsets])
        redrawn = kernels.Redrawn(n_refs[at], chances[at], half_refs[at], half_label[at], half_chance[at])
        lists = kernels.make_lists(int(n_refs[at].max(initial=0)))
        kernels.redraw_works(groups, entries, keys, rules, lists, written, redrawn)

    rows = compute_novelty_labels(scorer.score_all(redraw, what="label confidence"), rule, cut=cut).collect()
    labels = rows["novelty_label"].replace_strict({name: at for at, name in enumerate(NOVELTY_LABELS)}, default=-1)
    own = labels.fill_null(-1).to_numpy().astype(np.int64)
    whole, sizes = np.zeros((rows.height, 3)), np.zeros(rows.height, np.int64)
    whole[:n], sizes[:n] = chances, n_refs
    is_half = half_refs > 0
    halves = Halves(half_refs[is_half].astype(np.int64), half_label[is_half].astype(np.int64), half_chance[is_half])
    return RedrawnLists(rows, own, sizes, whole, halves, cut)


def score_novelty_confidence(
    scorer: YearScorer,
    rule: LabelThresholds,
    *,
    prior: NoveltyPrior | None = None,
    shrink: bool = True,
    seed: int = 0,
) -> pl.DataFrame:
    """Score works of a graph: rows and options as of ``compute_novelty_confidence``."""
    rows, own, sizes, chances, halves, _ = redraw_lists(scorer, rule, seed=seed, prior=prior)
    is_known = own >= 0
    if shrink:
        chances = np.where(
            is_known[:, None], choose_novelty_prior(prior, rule, own, sizes, halves).mix(chances, sizes), 0.0
        )
    columns = dict(zip(_CHANCES, chances.T, strict=True))
    columns["label_confidence"] = chances[np.arange(own.size), own]
    known = pl.Series(is_known)
    made = rows.with_columns(pl.Series(name, values) for name, values in columns.items())
    return made.with_columns(pl.when(known).then(pl.col(name)) for name in columns).select(NOVELTY_CONFIDENCE.names())
