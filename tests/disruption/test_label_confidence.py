"""How sure a label is: against an oracle of scipy and against draws; calibration, the ceiling, and labels over time."""

import hashlib
import logging
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import sciscidata as ssd
from sciscidata.disruption import label_chances, label_confidence
from sciscidata.disruption.label_chances import chances_of_rates, write_chances
from sciscidata.disruption.label_confidence import (
    best_expected,
    compute_label_confidence,
    find_best_rule,
    find_label_ceiling,
)
from sciscidata.disruption.label_prior import SHIPPED, LabelPrior, choose_prior, find_label_prior
from sciscidata.errors import ConfigError, EmptyInputError, NotEnoughWorksError
from sciscidata.indicators import find_effect_of_missing_data, find_label_stability
from sciscidata.judged import is_judged
from sciscidata.label_thresholds import LabelThresholds
from tests.real_graphs import scan_real

CHANCES = ["p_consolidating", "p_neutral", "p_disruptive"]
LABELS = ["consolidating", "neutral", "disruptive"]
DEFAULT = LabelThresholds()
CUTS = [
    DEFAULT,
    LabelThresholds.preset("wide"),
    LabelThresholds(consolidating_max=0.0, disruptive_min=0.2),
    LabelThresholds(consolidating_max=0.05, disruptive_min=0.3, inclusive=False),
    LabelThresholds(consolidating_max=-0.4, disruptive_min=-0.1),
    LabelThresholds(consolidating_max=0.0, disruptive_min=0.0, inclusive=False),
    LabelThresholds(consolidating_max=-1.0, disruptive_min=1.0),
    LabelThresholds(consolidating_max=-3.0, disruptive_min=1.0, inclusive=False),
    LabelThresholds(consolidating_max=-1 / 3, disruptive_min=1 / 3),
]
cuts, few = st.sampled_from(CUTS), st.integers(0, 14)


def scores(counts) -> pl.DataFrame:
    """CD_SCORES of rows of n_i, n_j, n_k."""
    n = np.asarray(counts, np.int64).reshape(-1, 3)
    total = n.sum(axis=1)
    index = np.where(total > 0, (n[:, 0] - n[:, 1]) / np.maximum(total, 1), np.nan)
    columns = {name: n[:, place] for place, name in enumerate(("n_i", "n_j", "n_k"))}
    return pl.DataFrame(columns).cast(pl.UInt32).with_columns(cd_index=pl.Series(index).fill_nan(None))


def classify(n_i, n_j, n_k, cut: LabelThresholds) -> np.ndarray:
    """0 consolidating, 1 neutral, 2 disruptive, -1 without a label; by the index as a double, as labels are."""
    total = n_i + n_j + n_k
    index = (n_i - n_j) / np.maximum(total, 1)
    up = index >= cut.disruptive_min if cut.inclusive else index > cut.disruptive_min
    down = index <= cut.consolidating_max if cut.inclusive else index < cut.consolidating_max
    return np.where(total > 0, 1 + up.astype(int) - down, -1)


def chances(counts, cut: LabelThresholds = DEFAULT, **options) -> np.ndarray:
    return compute_label_confidence(scores(counts), cut, **options).select(CHANCES).collect().to_numpy()


def cuts_of(cut: LabelThresholds):
    from sciscidata.disruption._exact_label_kernels import Cuts

    return Cuts(float(cut.consolidating_max), float(cut.disruptive_min), cut.inclusive)


def oracle(counts, cut: LabelThresholds, prior=None) -> np.ndarray:
    """The three chances by summing over all redraws: plain, or with the beta ``prior``."""
    n_i, n_j, n_k = counts

    def chance(mean, least=0):
        if prior is None:
            return stats.poisson.pmf(np.arange(int(mean + 12 * math.sqrt(mean)) + 20), mean)
        values = np.arange(int(mean + 16 * math.sqrt(mean)) + 60)
        if mean == 0:
            return stats.logser.pmf(values, 0.5) if least else (values == 0).astype(float)
        found = stats.nbinom.pmf(values, mean, 0.5)
        found[:least] = 0
        return found / found.sum()

    if prior is None:
        joint = chance(n_i)[:, None] * chance(n_j)
    else:
        sums = chance(n_i + n_j, least=1)
        x, y = np.arange(sums.size)[:, None], np.arange(sums.size)
        share = stats.betabinom.pmf(x, x + y, n_i + prior[0], n_j + prior[1])
        joint = np.where(x + y < sums.size, sums[np.minimum(x + y, sums.size - 1)] * share, 0)
    of_k = chance(n_k)
    x, y, k = np.ogrid[: joint.shape[0], : joint.shape[1], : of_k.size]
    label, weight = classify(x, y, k, cut), joint[:, :, None] * of_k
    found = np.array([weight[label == place].sum() for place in range(3)])
    return found / found.sum()


@settings(max_examples=80, deadline=None)
@given(few, few, st.integers(0, 60), cuts)
def test_plain_chances_are_sums_over_poisson_counts(n_i, n_j, n_k, cut):
    assume(n_i + n_j + n_k)
    assert chances([n_i, n_j, n_k], cut, shrink=False)[0] == pytest.approx(oracle((n_i, n_j, n_k), cut), abs=1e-10)


@settings(max_examples=60, deadline=None)
@given(few, few, st.integers(0, 25), cuts)
def test_shrunk_chances_are_sums_over_a_beta_prior(n_i, n_j, n_k, cut):
    from sciscidata.disruption._label_kernels import Works

    found, prior = np.empty((4, 1)), np.array([[0.4, 1.3]])
    given_ = [np.array([n]) for n in (n_i, n_j, n_k)]
    works = Works(*given_, np.zeros(1), np.zeros(1, np.int64))
    write_chances(works, prior, cuts_of(cut), found, shrink=True)
    assert found[1:, 0] == pytest.approx(oracle((n_i, n_j, n_k), cut, prior[0]), abs=1e-10)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(60, 150))
def test_where_only_a_tie_is_neutral_the_difference_is_a_skellam(n_i, n_j, n_k):
    assume(n_i * n_j)
    up, down = stats.skellam.sf(0, n_i, n_j), stats.skellam.cdf(-1, n_i, n_j)
    narrow = LabelThresholds(consolidating_max=-1e-6, disruptive_min=1e-6)
    assert chances([n_i, n_j, n_k], narrow, shrink=False)[0, [2, 0]] == pytest.approx([up, down], abs=1e-9)


def test_the_plain_confidence_is_the_share_of_equal_labels_among_100_000_draws():
    rng = np.random.default_rng(0)
    for trial in range(40):
        mean = rng.integers(0, (40, 40, 30_000 if trial % 2 else 1_000))
        cut = LabelThresholds(consolidating_max=-rng.uniform(0, 0.02), disruptive_min=rng.uniform(0, 0.02))
        label = classify(*rng.poisson(mean, (100_000, 3)).T, cut)
        drawn = np.bincount(label[label >= 0], minlength=3) / (label >= 0).sum()
        wanted = chances(mean, cut, shrink=False)[0]
        assert np.abs(drawn - wanted).max() < 5 * math.sqrt(0.25 / 100_000)
        found = compute_label_confidence(scores(mean), cut, shrink=False).collect()["label_confidence"].item()
        assert found == wanted[classify(*mean, cut)]


@pytest.mark.parametrize("shrink", [False, True])
@pytest.mark.parametrize("cut", [DEFAULT, CUTS[1]])
def test_large_counts_are_near_exact(shrink, cut):
    """Where n_k passes the limit of the exact sum, its normal series takes over within its stated error."""
    near = np.array([chances([30, 42, n], cut, shrink=shrink)[0] for n in (4_095, 4_096, 4_097, 4_098)])
    steps = np.diff(near, axis=0)
    assert np.abs(np.diff(steps, axis=0)).max() < 2e-6
    n = 150_000  # where the band is as wide as the difference
    x = stats.poisson.pmf(np.arange(400), 200)
    total = np.arange(400)[:, None] + np.arange(400)
    difference = np.arange(400)[:, None] - np.arange(400)
    if not shrink and cut is DEFAULT:
        most = np.floor(difference / cut.disruptive_min + 1e-9) - total
        up = (np.outer(x, x) * np.where(difference > 0, stats.poisson.cdf(most, n), 0)).sum()
        assert chances([200, 200, n], cut, shrink=False)[0, 2] == pytest.approx(up, abs=1e-6)


@pytest.mark.parametrize("shrink", [False, True])
@pytest.mark.parametrize("cut", [CUTS[1], CUTS[8]])
def test_works_that_share_a_table_have_the_chances_of_the_sum_over_their_own_redraws(cut, shrink):
    rng = np.random.default_rng(5)
    counts = np.column_stack(
        [
            rng.integers(0, rng.choice([12, 100], (400, 1)), (400, 2)),
            rng.integers(0, 4_500, 400) // rng.integers(1, 90, 400),
        ]
    )
    prior = SHIPPED if shrink else None
    shared = chances(counts, cut, shrink=shrink, prior=prior)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_chances, "_MOST_GROUPED", -1)
        alone = chances(counts, cut, shrink=shrink, prior=prior)
    np.testing.assert_allclose(shared, alone, atol=1e-10)


@pytest.mark.parametrize("cut", CUTS[:3])
@pytest.mark.parametrize("shrink", [False, True])
def test_many_citers_off_the_cuts_make_a_label_sure(cut, shrink):
    rows = [[900, 100, 50], [100, 900, 50], [2_000_000, 1_000, 3], [1_000, 2_000_000, 3]]
    rows += [[500, 500, 4_000_000_000]] if cut is not CUTS[2] else []
    found = compute_label_confidence(scores(rows), cut, shrink=shrink).collect()["label_confidence"]
    assert found.min() > 0.9999


@given(st.lists(st.tuples(few, few, st.integers(0, 2_000)), min_size=1, max_size=60), cuts, st.randoms())
def test_the_order_of_rows_and_their_batches_change_no_byte(rows, cut, random):
    once = compute_label_confidence(scores(rows), cut).with_row_index().collect()
    places = list(range(len(rows)))
    random.shuffle(places)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_confidence, "_ROWS_AT_ONCE", 7)
        again = compute_label_confidence(scores([rows[place] for place in places]), cut).collect()
    assert again.equals(once[places].drop("index"))


@settings(suppress_health_check=[HealthCheck.filter_too_much])  # few random counts are far off the cuts
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 40))
def test_a_common_factor_makes_a_label_surer_unless_it_is_neutral(n_i, n_j, n_k):
    assume(abs(n_i - n_j) * 4 > n_i + n_j + n_k or n_i == n_j != 0)
    rows = np.outer((1, 2, 4, 8), (n_i, n_j, n_k))
    wide = LabelThresholds(consolidating_max=-0.01, disruptive_min=0.01)
    found = compute_label_confidence(scores(rows), wide, shrink=False).collect()["label_confidence"].to_list()
    if n_i == n_j:
        assume(rows[-1].sum() < 50)  # the band holds n_i = n_j only
        found = found[::-1]
    assert found == sorted(found) or found == pytest.approx([1] * 4, abs=1e-12)


def test_what_has_no_label_has_no_confidence_and_the_rest_adds_up_to_1():
    rows = scores([[1, 0, 3], [0, 0, 0], [0, 0, 7], [2, 2, 0]]).with_columns(name=pl.lit("a"))
    rows = rows.with_columns(cd_index=pl.when(pl.col("n_i") == 2).then(float("nan")).otherwise("cd_index"))
    for shrink in (False, True):
        found = compute_label_confidence(rows.lazy(), shrink=shrink)
        assert found.collect_schema().names() == [*rows.columns, "label_confidence", *CHANCES]
        made = found.collect()
        assert made.select(rows.columns).equals(rows, null_equal=True)
        assert made["label_confidence"].is_null().to_list() == [False, True, False, True]
        sums = made.select(pl.sum_horizontal(CHANCES, ignore_nulls=False)).to_series().drop_nulls()
        assert sums.to_list() == pytest.approx([1, 1], abs=1e-12)
    zero = scores([0, 0, 0]).with_columns(cd_index=0.0)  # as CDConfig(undefined="zero") has it
    assert compute_label_confidence(zero, shrink=False).collect()["label_confidence"].item() == 1


def calibration_error(confidence: np.ndarray, is_same: np.ndarray) -> float:
    places = np.minimum((confidence * 10).astype(int), 9)
    gaps = np.bincount(places, confidence, 10) - np.bincount(places, is_same, 10)
    return float(np.abs(gaps).sum() / confidence.size)


@pytest.mark.parametrize(("graph", "highest"), [("example", 0.045), ("hepth", 0.02)])
def test_the_default_predicts_the_label_of_the_other_half_of_the_citers(graph, highest):
    """One split of the example's 800 works is off by 0.02 even where the chances are the true ones."""
    works, citations = scan_real(graph)
    counts = ssd.compute_cd_index(works, citations).drop_nulls("cd_index").sort("work_id").select("n_i", "n_j", "n_k")
    whole = counts.collect().to_numpy().astype(np.int64)
    errors = []
    for seed in range(3):
        half = np.random.default_rng(seed).binomial(whole, 0.5)
        other = whole - half
        both = (half[:, :2].sum(axis=1) > 0) & (other[:, :2].sum(axis=1) > 0)
        found = compute_label_confidence(scores(half)).collect()["label_confidence"].to_numpy()[both]
        errors.append(calibration_error(found, (classify(*half.T, DEFAULT) == classify(*other.T, DEFAULT))[both]))
    assert np.mean(errors) < highest


def judge(said: np.ndarray, drawn: np.ndarray) -> tuple[float, float]:
    """Return macro-F1 and its standard error, by the influence of each work."""
    hits, golds, named = (np.eye(3)[labels] for labels in (drawn, drawn, said))
    hits *= named
    size = golds.sum(axis=0) + named.sum(axis=0)
    f1 = 2 * hits.sum(axis=0) / np.maximum(size, 1)
    known = golds.any(axis=0)
    influence = ((2 * hits - f1 * (golds + named)) / np.maximum(size, 1))[:, known].mean(axis=1)
    return f1[known].mean(), math.sqrt((influence**2).sum())


def test_the_ceiling_does_not_depend_on_the_order_of_works():
    counts = np.random.default_rng(3).poisson([2, 3, 9], (2_000, 3))
    assert find_label_ceiling(scores(counts)) == find_label_ceiling(scores(counts[::-1]))


def test_predictors_that_know_the_rates_stay_below_the_ceiling_in_300_worlds():
    """Accuracy and macro-F1, each of its best predictor: minus ceiling, in standard errors, the mean is near 0."""
    rng, n, beyond = np.random.default_rng(7), 200, []
    for _ in range(300):
        size, share = rng.gamma(rng.uniform(0.4, 2), rng.uniform(2, 8), n), rng.beta(*rng.uniform(0.3, 2, 2), n)
        rates = np.maximum(np.stack([size * share, size * (1 - share)], 1), 1e-9)
        counts = np.column_stack([rng.poisson(rates), rng.poisson(rng.uniform(5, 90), n)])
        cited = counts[:, :2].sum(axis=1) > 0
        known, drawn = (
            chances_of_rates(rates, counts[:, 2], cuts_of(DEFAULT))[cited],
            classify(*counts.T, DEFAULT)[cited],
        )
        ceiling, rule = find_label_ceiling(scores(counts)), find_best_rule(known)
        is_right = known.argmax(axis=1) == drawn
        macro_f1, error = judge((known * rule[1] - rule[2]).argmax(axis=1), drawn)
        beyond.append(
            (
                (is_right.mean() - ceiling.accuracy) / math.sqrt(max(is_right.var(), 1e-3) / is_right.size),
                (macro_f1 - ceiling.macro_f1) / error,
            )
        )
    assert np.all(np.abs(np.mean(beyond, axis=0)) < [0.25, 0.1])
    assert np.max(beyond) < 4.5


def test_no_assignment_of_labels_beats_the_best_expected_one():
    rng, reached = np.random.default_rng(2), []
    for _ in range(60):
        table = rng.dirichlet(rng.uniform(0.2, 2, 3), 7) * rng.uniform(0.5, 2, 3)
        actual, best = table.sum(axis=0), 0.0
        for said in np.stack(np.meshgrid(*[np.arange(3)] * 7, indexing="ij"), -1).reshape(-1, 7):
            right = np.bincount(said, table[np.arange(7), said], 3)
            best = max(best, (2 * right / (np.bincount(said, table.sum(axis=1), 3) + actual)).mean())
        accuracy, macro_f1 = best_expected(table)
        assert accuracy == pytest.approx(table.max(axis=1).sum() / table.sum())
        assert macro_f1 <= best + 1e-9
        reached.append(macro_f1 / best)
    assert np.mean(reached) > 0.995


def test_the_ceiling_of_a_balanced_draw_is_that_of_its_shares():
    rng = np.random.default_rng(3)
    rows = scores(np.stack([rng.poisson(1, 3_000), rng.poisson(4, 3_000), np.full(3_000, 30)], 1))
    as_it_is = find_label_ceiling(rows)
    balanced = find_label_ceiling(rows, shares=dict.fromkeys(LABELS, 1 / 3))
    assert as_it_is.works == balanced.works == rows.filter(pl.col("n_i") + pl.col("n_j") > 0).height
    assert 1 / 3 < balanced.accuracy < as_it_is.accuracy < 1
    assert balanced.macro_f1 == pytest.approx(balanced.accuracy, abs=0.05)
    with pytest.raises(
        ConfigError, match=r"shares holds .*novel.*, needs shares of labels that a work has: consolidating"
    ):
        find_label_ceiling(rows, shares={"novel": 1})
    with pytest.raises(ConfigError, match=r"these sum to 0\.7"):
        find_label_ceiling(rows, shares={"disruptive": 0.3, "neutral": 0.4})
    with pytest.raises(EmptyInputError, match="no work has a CD index and a citer"):
        find_label_ceiling(scores([0, 0, 5]))


def corpus() -> tuple[pl.DataFrame, pl.DataFrame]:
    """300 works of twenty years and their citations."""
    rng = np.random.default_rng(5)
    years = np.sort(rng.integers(1990, 2010, 300))
    edges = rng.integers(0, 300, (2_500, 2))
    works = pl.DataFrame(
        {"work_id": np.arange(300), "publication_year": years}, schema_overrides={"publication_year": pl.Int32}
    )
    citations = pl.DataFrame({"citing_id": edges.max(axis=1), "cited_id": edges.min(axis=1)}).filter(
        pl.col("citing_id") != pl.col("cited_id")
    )
    return works, citations


def test_stability_compares_early_labels_with_those_of_all_years():
    works, citations = corpus()
    found = find_label_stability(works, citations, ages=[2, 6])
    for age in (2, 6):
        early, late = (
            ssd.compute_labels(ssd.compute_cd_index(works, citations, ssd.CDConfig(window_years=window))).collect()
            for window in (age, None)
        )
        both = early.join(late, on="work_id", suffix="_late").join(works, on="work_id")
        both = both.filter(pl.col("n_i_late") + pl.col("n_j_late") > 0, pl.col("publication_year") + age < 2009)
        both = both.drop_nulls(["disruption_label", "disruption_label_late"])
        is_same = both["disruption_label"] == both["disruption_label_late"]
        assert found.filter(age=age, group="all").rows() == [(age, "all", both.height, is_same.mean())]
        few = both.select((pl.col("n_i") + pl.col("n_j")).is_between(1, 2)).to_series()
        assert found.filter(age=age, group="1-2 citers")["share_same"].item() == is_same.filter(few).mean()
        groups = found.filter(pl.col("age") == age, pl.col("group").str.contains("citers"))
        assert groups["works"].sum() == both.height
    with pytest.raises(EmptyInputError, match="no window of 30 years ends before the last year of the data"):
        find_label_stability(works, citations, ages=[30])


def hashed(key: int, *counters: int) -> int:
    """The project's hash of whole numbers in plain Python."""

    def mix(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    for counter in counters:
        key = mix(mix((key + counter * 0x9E3779B97F4A7C15) % 2**64) ^ key)
    return key


def test_labels_with_missing_data_are_those_of_the_citations_that_a_hash_leaves():
    works, citations = corpus()
    found = find_effect_of_missing_data(works, citations.reverse(), seed=3)
    gaps = [("nothing", 0.0), ("citations", 0.05), ("citations", 0.1), ("citations", 0.2), ("references", 0.1)]
    assert found.select("missing", "share").unique(maintain_order=True).rows() == gaps
    whole: dict[int, str] = {}
    for kind, share in gaps:
        key = int.from_bytes(hashlib.sha256(f"3:missing data/{kind}".encode()).digest()[:8], "little")
        ids = [row if kind == "citations" else row[:1] for row in citations.rows()]
        left = citations.filter(pl.Series([hashed(key, *one) >= share * 2**64 for one in ids]))
        scored = ssd.compute_labels(ssd.compute_cd_index(works, left)).filter(is_judged())
        labels = dict(scored.drop_nulls("disruption_label").select("work_id", "disruption_label").collect().iter_rows())
        whole = whole or labels
        for row in found.filter(missing=kind, share=share).iter_rows(named=True):
            before = [work for work, label in whole.items() if row["label"] in ("all", label)]
            now = sum(row["label"] in ("all", label) for label in labels.values())
            assert (row["works"], row["label_share"]) == (now, now / len(labels))
            assert row["share_same"] == sum(labels.get(work) == whole[work] for work in before) / len(before)
            assert row["share_lost"] == sum(work not in labels for work in before) / len(before)
            if row["label"] == "all":
                ceiling = find_label_ceiling(scored)
                assert row["ceiling_accuracy"] == pytest.approx(ceiling.accuracy)
                assert row["ceiling_macro_f1"] == pytest.approx(ceiling.macro_f1)
    every = find_effect_of_missing_data(works, citations, citations_missing=[], references_missing=[], population="all")
    cited = ssd.compute_cd_index(works, citations).filter(pl.col("n_i") + pl.col("n_j") > 0, pl.col("cd_index") >= -1)
    assert every["works"][0] == cited.collect().height > found["works"][0]
    ceiling = find_label_ceiling(ssd.compute_cd_index(works, citations), population="all")
    assert every["ceiling_accuracy"][0] == pytest.approx(ceiling.accuracy)
    assert ceiling.works == cited.collect().height
    with pytest.raises(EmptyInputError, match="with 100 % of citations missing, no work has a label"):
        find_effect_of_missing_data(works, citations, citations_missing=[1])
    with pytest.raises(ConfigError, match=r"references_missing is \(1.5,\)"):
        find_effect_of_missing_data(works, citations, references_missing=[1.5])


def hepth() -> pl.DataFrame:
    works, citations = scan_real("hepth")
    return ssd.compute_cd_index(works, citations).drop_nulls("cd_index").sort("work_id").collect()


def test_a_work_alone_has_the_confidence_that_it_has_among_all(caplog):
    every = hepth()
    prior = find_label_prior(every.lazy())
    among = compute_label_confidence(every).collect()
    assert compute_label_confidence(every, prior=prior).collect().equals(among)
    assert caplog.text == ""
    kept = LabelPrior.from_json(prior.to_json())
    assert kept == prior
    for at in (0, 5_000, 11_111):
        assert compute_label_confidence(every[at], prior=kept).collect().equals(among[at])
    chosen = among.filter(pl.col("cd_index") < 0)
    assert compute_label_confidence(chosen.select(every.columns), prior=kept).collect().equals(chosen)
    balanced = find_label_ceiling(every.sample(500, seed=1), prior=prior)
    assert balanced.accuracy == pytest.approx(find_label_ceiling(every).accuracy, abs=0.03)


def as_many_of_each(rows: pl.DataFrame, n: int = 700) -> pl.DataFrame:
    side = (pl.col("n_i").cast(pl.Int64) - pl.col("n_j").cast(pl.Int64)).sign()
    return pl.concat([rows.filter(side == one).sample(n, seed=0) for one in (-1, 0, 1)])


@pytest.mark.parametrize("name", ["example", "handball", "hepth", "synthetic"])
def test_works_chosen_by_anything_but_their_label_have_a_prior_of_their_own(name, caplog):
    """The sides of a beta prior are as large as in real corpora; only a choice by label moves them apart."""
    frames = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=5_000))[:2] if name == "synthetic" else scan_real(name)
    every = ssd.compute_cd_index(*frames).drop_nulls("cd_index").sort("work_id").collect()
    citers = pl.col("n_i") + pl.col("n_j")
    for rows in (every, every.sample(1_000, seed=1), every.filter(citers >= 3), every.filter(pl.col("n_k") < 100)):
        assert choose_prior(rows) == find_label_prior(rows)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    if name == "synthetic":
        return
    few = every.filter((citers > 0) & ((pl.col("cd_index") >= 0) | (pl.col("work_id") % 5 == 0)))
    assert choose_prior(few) == SHIPPED


@pytest.mark.parametrize(
    ("choose", "why"),
    [
        (lambda rows: rows.head(1), "these 1 rows are too few to say how sure a label is"),
        (lambda rows: rows.with_columns(split=pl.lit("train")), "rows have a split, so they are a draw"),
        (lambda rows: rows.filter(pl.col("cd_index") > 0), "rows all have the same sign of the CD index"),
        (lambda rows: as_many_of_each(rows), "rows have too many or too few of a label"),
        (lambda rows: rows.filter(pl.col("n_i") != pl.col("n_j")), "rows have too many or too few of a label"),
    ],
)
def test_rows_that_cannot_be_all_works_take_the_shipped_prior_and_say_so_once(choose, why, caplog):
    every = hepth().filter(pl.col("n_i") + pl.col("n_j") > 0).sort("n_i", descending=True)
    every = pl.concat([scores([[1, 1, 20]]), every.drop("work_id")], how="diagonal")
    rows = choose(every)
    found = compute_label_confidence(rows).collect()
    assert [record.message for record in caplog.records if why in record.message] == [
        record.message for record in caplog.records
    ]
    assert len(caplog.records) == 1
    assert "Give prior=find_label_prior(all scores)" in caplog.text
    among = compute_label_confidence(rows, prior=find_label_prior(every)).collect()
    gap = (found["label_confidence"].mean() or 0) - (among["label_confidence"].mean() or 0)
    assert abs(gap) < 0.03
    assert compute_label_confidence(rows.head(0)).collect().height == 0


def test_a_prior_that_is_none_is_refused():
    prior = LabelPrior(a=(1.0,) * 11, b=(1.0,) * 11, works=3)
    with pytest.raises(ConfigError, match=r"prior is 3, needs a LabelPrior, or None"):
        compute_label_confidence(scores([1, 0, 2]), prior=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="shrink=False takes counts as they are"):
        compute_label_confidence(scores([1, 0, 2]), prior=prior, shrink=False)
    with pytest.raises(ConfigError, match=r"LabelPrior\.a is .*, needs 11 numbers above 0"):
        LabelPrior(a=(1.0, 0.0), b=prior.b, works=3)
    for text in ("{}", "[", '{"a": [], "b": [], "works": 1}', prior.to_json().replace("3", '"x"')):
        with pytest.raises(ConfigError, match=r"find_label_prior|to_json"):
            LabelPrior.from_json(text)
    with pytest.raises(NotEnoughWorksError, match="needs 100 works with an index and one to 8 citers, found 2"):
        find_label_prior(scores([[1, 0, 2], [1, 1, 2], [9, 9, 9]]))


def test_a_file_of_scores_of_a_whole_corpus_keeps_the_prior(tmp_path):
    world, places = tmp_path / "world", {"cache_dir": tmp_path / "cache"}
    ssd.ingest(ssd.SyntheticConfig(n_works=3_000), world, **places)
    file = ssd.write_cd_index(world, tmp_path / "cd.parquet", **places)
    assert LabelPrior.of_file(file) == find_label_prior(pl.scan_parquet(file))
    before = file.read_bytes()
    assert ssd.write_cd_index(world, file, **places).read_bytes() == before
    ssd.verify(file)
    shard = ssd.write_cd_index(world, tmp_path / "shard.parquet", shard="1/2", **places)
    for other in (shard, tmp_path / "nothing.parquet"):
        with pytest.raises(ConfigError, match=r"holds no prior.*find_label_prior"):
            LabelPrior.of_file(other)
