"""How sure a novelty label is: against plain Python over all lists, and against the other half of real lists."""

from __future__ import annotations

import math
from itertools import combinations, combinations_with_replacement, product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sciscidata as ssd
from sciscidata._kernels.random import below, draw, stream_key
from sciscidata.errors import ConfigError, NotEnoughWorksError
from sciscidata.indicators import compute_novelty_confidence, find_novelty_prior
from sciscidata.label_thresholds import NOVELTY_LABELS, LabelThresholds
from sciscidata.novelty.background import VenuePairs, write_null_model
from sciscidata.novelty.novelty_prior import SHIPPED, NoveltyPrior, find_weight
from sciscidata.novelty.shapes import Entries, Groups, Quantiles
from sciscidata.novelty.venue_pairs import entry_starts
from tests.disruption.test_label_confidence import calibration_error

CHANCES = [f"p_{label}" for label in NOVELTY_LABELS]
KEY = np.uint64(stream_key(1, "test"))
MARGIN, TAIL, CUT = 0.15, 0.0, 0.8


def redraw(z: np.ndarray, counts: list[int], *, unique: bool = False, uzzi: bool = False) -> np.ndarray:
    """The chances that the kernel finds for one work, whose groups have ``counts`` references."""
    from sciscidata.novelty import _redraw_kernels

    offsets = np.array([0, len(counts)])
    starts, n = entry_starts(np.full(len(counts), len(counts)))
    entries = z[np.triu_indices(len(counts))]
    assert entries.size == n
    rules = _redraw_kernels.Rules(unique, 1, uzzi, MARGIN, TAIL, CUT)
    nothing = np.empty(0, np.int64)
    groups = Groups(offsets, nothing, np.array(counts, np.int32), nothing, nothing, nothing, nothing)
    chances = np.zeros((1, 3))
    halves = np.zeros(1, np.int32), np.zeros(1, np.int8), np.zeros(1)
    redrawn = _redraw_kernels.Redrawn(np.array([sum(counts)], np.int32), chances, *halves)
    written = Quantiles(np.zeros(1, np.int64), np.zeros(1), np.zeros(1))
    lists = _redraw_kernels.make_lists(sum(counts))
    _redraw_kernels.redraw_works(groups, Entries(starts, entries), np.array([KEY]), rules, lists, written, redrawn)
    return chances[0]


def label_of(repeats: np.ndarray, z: np.ndarray, group: np.ndarray, *, unique: bool, uzzi: bool) -> int | None:
    """The label of a list that has each reference so often, from the definition."""
    values: dict[tuple[int, int], list[float]] = {}
    for r, s in combinations(range(group.size), 2):
        a, b = sorted((group[r], group[s]))
        if not math.isnan(z[a, b]):
            values.setdefault((a, b), []).extend([z[a, b]] * int(repeats[r] * repeats[s]))
    held = [value for some in values.values() for value in (some[:1] if unique else some)]
    if not held:
        return None
    low, middle = np.quantile(held, [0.1, 0.5])
    if uzzi:
        return {(True, False): 0, (False, True): 2}.get((low < TAIL, middle > CUT), 1)
    novelty, usual = (1 / (1 + math.exp(-min(max(x, -8), 8))) for x in (-low, middle))
    return 0 if novelty - usual > MARGIN else 2 if usual - novelty > MARGIN else 1


def shares(lists: dict[tuple[int, ...], int], z: np.ndarray, group: np.ndarray, **rule: bool) -> np.ndarray:
    """The shares of labels among lists, each as often as it is there."""
    found = np.zeros(3)
    for chosen, times in lists.items():
        label = label_of(np.bincount(chosen, minlength=group.size), z, group, **rule)
        if label is not None:
            found[label] += times
    return found / found.sum()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.booleans(), st.booleans(), st.integers(0, 2**32))
def test_chances_are_those_of_all_lists_or_of_128_that_follow_from_the_key(counts, unique, uzzi, seed):
    rng = np.random.default_rng(seed)
    g, n = len(counts), sum(counts)
    z = rng.normal(0.3, 1.2, (g, g))
    z = np.where(rng.random((g, g)) < 0.15, np.nan, z)
    z = np.triu(z) + np.triu(z, 1).T
    found, group = redraw(z, counts, unique=unique, uzzi=uzzi), np.repeat(np.arange(g), counts)
    ones = [label_of(np.ones(n), z, group, unique=unique, uzzi=uzzi)]
    if ones == [None]:
        assert found.sum() == 0
        return
    ways = {
        chosen: math.factorial(n) // math.prod(map(math.factorial, np.bincount(chosen).tolist()))
        for chosen in combinations_with_replacement(range(n), n)
        if n <= 6
    }
    if n <= 5:
        assert found == pytest.approx(shares(ways, z, group, unique=unique, uzzi=uzzi), abs=1e-12)
        return
    drawn = below(draw(KEY, np.arange(128 * n)), n).reshape(128, n)
    lists: dict[tuple[int, ...], int] = {}
    for one in np.sort(drawn, axis=1).tolist():
        lists[tuple(one)] = lists.get(tuple(one), 0) + 1
    assert found == pytest.approx(shares(lists, z, group, unique=unique, uzzi=uzzi), abs=1e-12)
    if n == 6:
        whole = shares(ways, z, group, unique=unique, uzzi=uzzi)
        assert np.abs(found - whole).max() < 5 * math.sqrt(0.25 / 128)


def test_the_compiled_sigmoid_has_the_bits_of_the_portable_one():
    from sciscidata._kernels.portable_math import sigmoid
    from sciscidata.novelty import _redraw_kernels

    z = np.concatenate([np.random.default_rng(0).normal(0, 4, 500), [-9.0, -8.0, 0.0, 8.0, 9.0]])
    assert [_redraw_kernels.sigmoid(x) for x in z] == sigmoid(z).tolist()


def test_the_weight_is_the_one_that_made_the_labels():
    rng = np.random.default_rng(1)
    said, share = rng.dirichlet([0.3, 0.3, 0.3], 20_000), np.array([0.2, 0.3, 0.5])
    sizes = rng.integers(2, 20, 20_000)
    for of_ten in (0.0, 0.3, 0.9):
        weight = (sizes**2 / (sizes**2 + 100 * (1 / of_ten - 1)) if of_ten else np.zeros(sizes.size))[:, None]
        chances = weight * said + (1 - weight) * share
        label = (rng.random(20_000)[:, None] > chances[:, :2].cumsum(axis=1)).sum(axis=1)
        rows = np.arange(label.size)
        assert find_weight(said[rows, label], share[label], sizes) == pytest.approx(of_ten, abs=0.03)
    assert find_weight(np.empty(0), np.empty(0), np.empty(0, np.int64)) == 0


@pytest.mark.parametrize("rule", ["margin", "uzzi"])
def test_the_scores_and_labels_are_those_of_atypicality_and_rows_and_threads_change_nothing(rule):
    works, citations, _ = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=3_000))
    cut = LabelThresholds(novelty_rule=rule)
    made = compute_novelty_confidence(works, citations, thresholds=cut, n_threads=1).sort("work_id").collect()
    labelled = ssd.compute_labels(ssd.compute_atypicality(works, citations), cut).sort("work_id").collect()
    assert made.select(labelled.columns).equals(labelled)
    other = works.collect().reverse(), citations.collect().reverse()
    assert compute_novelty_confidence(*other, thresholds=cut, n_threads=3).sort("work_id").collect().equals(made)
    known = made.drop_nulls("novelty_label")
    assert (
        made.filter(pl.col("novelty_label").is_null()).select(CHANCES).null_count().row(0)
        == (made.height - known.height,) * 3
    )
    assert known.select(pl.sum_horizontal(CHANCES)).to_series().to_list() == pytest.approx([1] * known.height)
    for label in NOVELTY_LABELS:
        some = known.filter(novelty_label=label)
        assert some["label_confidence"].to_list() == some[f"p_{label}"].to_list()
    with pytest.raises(ConfigError, match=r"NoveltyConfig\.score is 'rank'.*Set NoveltyConfig\.score='sigmoid'"):
        compute_novelty_confidence(works, citations, ssd.NoveltyConfig(score="rank"))


def test_the_default_predicts_the_label_of_the_other_half_of_the_references(shared_data: Path, tmp_path: Path):
    """Both halves are scored against the null model of the whole lists, so the z of a pair stays."""
    files = (str(shared_data / "openalex" / "synergy_A.works.jsonl.gz"),)
    works, citations, _ = ssd.scan_records(ssd.RecordsConfig(inputs=files))
    table = write_null_model(VenuePairs.of(works, citations), tmp_path / "pairs.parquet")
    rows = citations.unique().sort("citing_id", "cited_id").collect()
    errors: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(2):
        mixed = rows.sample(fraction=1, shuffle=True, seed=seed)
        is_first = pl.int_range(pl.len()).over("citing_id") * 2 < pl.len().over("citing_id")
        one, other = mixed.filter(is_first), mixed.filter(~is_first)
        wanted = ssd.compute_labels(ssd.compute_atypicality(works, other, background=table))
        for shrink, found in errors.items():
            sure = compute_novelty_confidence(works, one, shrink=shrink, background=table)
            both = sure.join(wanted.select("work_id", other="novelty_label"), on="work_id").collect()
            both = both.drop_nulls(["novelty_label", "other"])
            is_same = (both["novelty_label"] == both["other"]).to_numpy()
            found.append(calibration_error(both["label_confidence"].to_numpy(), is_same))
    assert np.mean(errors[True]) < 0.04
    assert np.mean(errors[False]) > 0.08


@pytest.mark.parametrize("rule", ["margin", "uzzi"])
def test_a_work_alone_has_the_confidence_that_it_has_among_all(rule, tmp_path: Path, caplog):
    works, citations, _ = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=3_000))
    table = write_null_model(VenuePairs.of(works, citations), tmp_path / "pairs.parquet")
    options = {"thresholds": LabelThresholds(novelty_rule=rule), "background": table}
    prior = find_novelty_prior(works, citations, **options)
    among = compute_novelty_confidence(works, citations, **options).sort("work_id").collect()
    assert compute_novelty_confidence(works, citations, **options, prior=prior).sort("work_id").collect().equals(among)
    known = among.drop_nulls("novelty_label")
    assert prior.works == known.height
    kept = NoveltyPrior.from_json(prior.to_json())
    some = citations.collect()
    for one in known["work_id"].sample(3, seed=1):
        cited = some.filter(citing_id=one)
        few = works.filter(pl.col("work_id").is_in([one, *cited["cited_id"]]))
        alone = compute_novelty_confidence(few, cited, **options, prior=kept).filter(work_id=one).collect()
        assert alone.equals(among.filter(work_id=one))
    assert caplog.text == ""
    without = compute_novelty_confidence(few, cited, **options).filter(work_id=one).collect()
    assert caplog.text.count("too few to say how sure it is (needs 100)") == 1
    if rule == "margin":
        gap = without["label_confidence"].item() - among.filter(work_id=one)["label_confidence"].item()
        assert abs(gap) < 0.25
    with pytest.raises(NotEnoughWorksError, match="needs 100 works with a novelty label, found 1"):
        find_novelty_prior(few, cited, **options)
    other = LabelThresholds(novelty_rule="uzzi" if rule == "margin" else "margin")
    with pytest.raises(ConfigError, match="prior is of the other rule"):
        compute_novelty_confidence(works, citations, thresholds=other, prior=prior)
    with pytest.raises(ConfigError, match="without a prior"):
        compute_novelty_confidence(works, citations, prior=prior, thresholds=options["thresholds"], shrink=False)
    corpus = ssd.ingest(ssd.SyntheticConfig(n_works=3_000), tmp_path / "corpus", cache_dir=tmp_path)
    shipped = compute_novelty_confidence(works, citations, **options, prior=SHIPPED[rule]).collect()
    for frames, chosen in product(("eager", "lazy", "disk"), (kept, SHIPPED[rule], None)):
        works_of, edges = (corpus.works, corpus.citations) if frames == "disk" else (works.lazy(), citations.lazy())
        pair = works_of.filter(pl.col("work_id").is_in([one, *cited["cited_id"]])), edges.filter(citing_id=one)
        few, cited_by_one = (frame.collect() if frames == "eager" else frame for frame in pair)
        alone = compute_novelty_confidence(few, cited_by_one, **options, prior=chosen).filter(work_id=one).collect()
        assert alone.equals((among if chosen is kept else shipped).filter(work_id=one)), (frames, chosen)
    for text in ("[]", '{"of_ten": 2, "shares": [], "works": 1}'):
        with pytest.raises(ConfigError, match="NoveltyPrior"):
            NoveltyPrior.from_json(text)
