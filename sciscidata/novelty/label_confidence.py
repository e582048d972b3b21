"""How sure a novelty label is: the probability that a work gets it again with another list of references."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Float64Array, Int32Array, Int64Array
from sciscidata.errors import ConfigError
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
from sciscidata.novelty.shapes import Cells, Groups
from sciscidata.novelty.venue_pairs import defer_scores, hand_out, require_corpus
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
_LARGEST: Final = np.array([2, 5, 10, 30])  # numbers of references that end a class
_FEWEST_WORKS: Final = 100  # a smaller class takes the shares of all
_STEPS: Final = 40  # which halve the interval of the weight


def compute_novelty_confidence(
    works: AnyFrame,
    citations: AnyFrame,
    config: NoveltyConfig | None = None,
    thresholds: LabelThresholds | None = None,
    *,
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
    one half of each list has to predict the label of the other half.

    Args:
        works: WORKS, as for ``compute_atypicality``.
        citations: CITATIONS.
        config: as there; ``NoveltyConfig()`` when None. Its score must be ``"sigmoid"``.
        thresholds: ``LabelThresholds()`` when None.
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
        ConfigError: when called, if the score is ``"rank"``, which depends on all other works, or as
            ``compute_atypicality``.
        SchemaMismatchError, InputNotFoundError, BackgroundError, WorkIdError, EmptyInputError: as there.

    Memory: besides ``compute_atypicality``, 60 bytes per work.

    Source: this project's. The redraw is the bootstrap of Efron 1979, doi:10.1214/aos/1176344552. See
    docs/measures/label_confidence.md for what it predicts.

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
    table = None if background is None else read_background(background, config)

    corpus = require_corpus(works, citations, "compute_novelty_confidence")

    def score(graph: CitationGraph, venues: Int32Array) -> pl.DataFrame:
        known = None if table is None else table.for_venues_of(corpus.works)
        scorer = YearScorer(graph, venues, config, known, n_threads)
        return score_novelty_confidence(scorer, rule, shrink=shrink, seed=seed)

    return defer_scores(score, NOVELTY_CONFIDENCE, corpus, cache_dir)


def require_sigmoid(config: NoveltyConfig) -> None:
    """Raise a ConfigError if scores are ranks."""
    if config.score == "rank":
        raise ConfigError(
            "NoveltyConfig.score is 'rank', which depends on all other works, so one work cannot be redrawn. "
            "Set NoveltyConfig.score='sigmoid', or find no confidence."
        )


def score_novelty_confidence(
    scorer: YearScorer, rule: LabelThresholds, *, shrink: bool = True, seed: int = 0
) -> pl.DataFrame:
    """Score works of a graph: rows and options as of ``compute_novelty_confidence``."""
    from sciscidata._kernels.random import draw, stream_key
    from sciscidata.novelty import _redraw_kernels as kernels

    graph, config = scorer.graph, scorer.config
    require_sigmoid(config)
    cut = None
    if rule.novelty_rule == "uzzi":
        cut = find_conventionality_cut(scorer.score_all().lazy(), rule)
    limits = float(rule.novelty_margin), float(rule.uzzi_tail_max), 0.0 if cut is None else cut
    rules = kernels.Rules(config.unique_pairs, config.min_pairs, rule.novelty_rule == "uzzi", *limits)
    n, key = graph.n_dated, stream_key(seed, "novelty/label confidence")
    n_refs, half_refs, half_label = np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros(n, np.int8)
    chances, half_chance = np.zeros((n, 3)), np.zeros(n)

    def look_at(at: slice, groups: Groups, cells: Cells, z: Float64Array) -> None:
        keys = draw(key, graph.work_ids[at])
        redrawn = kernels.Redrawn(n_refs[at], chances[at], half_refs[at], half_label[at], half_chance[at])
        kernels.redraw_works(groups, hand_out(groups, [(cells, z)]), keys, rules, redrawn)

    rows = compute_novelty_labels(scorer.score_all(look_at, what="label confidence"), rule, cut=cut).collect()
    labels = rows["novelty_label"].replace_strict({name: at for at, name in enumerate(NOVELTY_LABELS)}, default=-1)
    own = labels.fill_null(-1).to_numpy().astype(np.int64)
    whole = np.zeros((rows.height, 3))
    whole[:n] = chances
    if shrink:
        sizes = np.zeros(rows.height, np.int64)
        sizes[:n] = n_refs
        is_half = half_refs > 0
        halves = half_refs[is_half].astype(np.int64), half_label[is_half].astype(np.int64), half_chance[is_half]
        whole = _shrink(whole, own, sizes, halves)
    columns = dict(zip(_CHANCES, whole.T, strict=True))
    columns["label_confidence"] = whole[np.arange(own.size), own]
    known = pl.Series(own >= 0)
    made = rows.with_columns(pl.Series(name, values) for name, values in columns.items())
    return made.with_columns(pl.when(known).then(pl.col(name)) for name in columns).select(NOVELTY_CONFIDENCE.names())


def _shrink(
    chances: Float64Array,
    own: Int64Array,
    sizes: Int64Array,
    halves: tuple[Int64Array, Int64Array, Float64Array],
) -> Float64Array:
    """Mix chances with the shares of the labels among works with about as many references."""
    half_sizes, half_label, said = halves
    of_ten = _find_weight(said, _shares(half_label, half_sizes)[np.arange(said.size), half_label], half_sizes)
    weight = _weigh(sizes, of_ten)[:, None]
    known = own >= 0
    mixed = np.zeros_like(chances)
    mixed[known] = weight[known] * chances[known] + (1 - weight[known]) * _shares(own[known], sizes[known])
    return mixed


def _shares(labels: Int64Array, sizes: Int64Array) -> Float64Array:
    """Return for each list the shares of the labels among those with about as many references."""
    kind = np.searchsorted(_LARGEST, sizes)
    shares = np.empty((labels.size, 3))
    for k in range(_LARGEST.size + 1):
        some = labels[kind == k] if np.count_nonzero(kind == k) >= _FEWEST_WORKS else labels
        shares[kind == k] = np.bincount(some, minlength=3) / max(some.size, 1)
    return shares


def _weigh(sizes: Int64Array, of_ten: float) -> Float64Array:
    """Return n^2 / (n^2 + a): pairs grow with the square. ``of_ten`` is the weight of ten references."""
    pairs = sizes.astype(np.float64) ** 2 * of_ten
    return pairs / (pairs + 100 * (1 - of_ten))


def _find_weight(said: Float64Array, share: Float64Array, sizes: Int64Array) -> float:
    """Return the weight of ten references that makes labels most likely, with the chances ``said`` and ``share``."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        of_ten = (low + high) / 2
        weight = _weigh(sizes, of_ten)
        slope = (said - share) / np.maximum(weight * said + (1 - weight) * share, 1e-12) * weight * (1 - weight)
        # A sum from the first to the last has the same bits on every machine.
        if np.bincount(np.zeros(slope.size, np.int64), slope, 1)[0] > 0:
            low = of_ten
        else:
            high = of_ten
    return low
