"""What noise does to groups and regressions: worlds with a known truth, and halves of real citers."""

import numpy as np
import polars as pl
import pytest

from sciscidata.disruption.label_prior import SHIPPED, classes_of
from sciscidata.errors import ConfigError, EmptyInputError
from sciscidata.indicators import NoiseEffect, find_noise_effect, is_judged
from tests.disruption.test_label_confidence import hepth, scores


def make_world(rng: np.random.Generator, n: int) -> tuple[pl.DataFrame, np.ndarray]:
    """CD_SCORES of works with known rates, in two groups, and the true index at these rates."""
    citers, others, group = rng.geometric(0.25, n), rng.geometric(0.05, n), rng.integers(0, 2, n)
    at = classes_of(others)
    share = rng.beta(np.array(SHIPPED.a)[at] + group, np.array(SHIPPED.b)[at])
    drawn = np.column_stack([rng.poisson(citers * share), rng.poisson(citers * (1 - share)), rng.poisson(others)])
    reach = citers / (citers + others) * np.expm1(-citers - others.astype(float)) / np.expm1(-citers.astype(float))
    cited = drawn[:, :2].sum(axis=1) > 0
    return scores(drawn[cited]).with_columns(group=group[cited]), ((2 * share - 1) * reach)[cited]


def fit(y: np.ndarray, *columns: np.ndarray) -> tuple[float, float]:
    """The first slope of a least-squares line, and its robust error."""
    x = np.column_stack([np.ones(y.size), *columns])
    inverse = np.linalg.inv(x.T @ x)
    slopes = inverse @ x.T @ y
    rest = (y - x @ slopes)[:, None] * x
    return slopes[1], np.sqrt((inverse @ (rest.T @ rest) @ inverse)[1, 1])


def test_corrected_slopes_and_differences_are_near_the_true_ones_and_most_of_their_intervals_hold_them():
    """Reliability is off by up to a tenth here, which narrow intervals of 2,000 works do not know of."""
    rng, slopes, covered, differences = np.random.default_rng(3), [], [], []
    for _ in range(60):
        world, truth = make_world(rng, 2_000)
        index, effect = world["cd_index"].to_numpy(), find_noise_effect(world)
        assert effect.reliability == pytest.approx(np.corrcoef(index, truth)[0, 1] ** 2, abs=5 * effect.standard_error)
        control = truth + rng.normal(0, 2 * truth.std(), truth.size)
        explained = np.corrcoef(index, control)[0, 1] ** 2
        y = 2 * truth + rng.normal(0, 0.5, truth.size)
        alone, beside = fit(y, index), fit(y + control, index, control)
        right = effect.correct_slope(*alone), effect.correct_slope(*beside, explained=explained)
        slopes.append([alone[0], beside[0], right[0].slope, right[1].slope])
        covered.append([one.low < 2 < one.high for one in right] + [abs(alone[0] - 2) < 2 * alone[1]])
        within = find_noise_effect(world, by="group")
        group = world["group"].to_numpy()
        d = fit(index, group)[0] / np.sqrt(within.variance)
        spread = np.sqrt(np.mean([truth[group == one].var() for one in (0, 1)]))
        differences.append([d, within.correct_difference(d), fit(truth, group)[0] / spread])
    means = np.mean(slopes, axis=0)
    assert np.all(means[:2] < 1.5)
    assert means[2:] == pytest.approx([2, 2], rel=0.12)
    assert np.mean(covered, axis=0)[:2].min() > 0.65
    assert np.mean(covered, axis=0)[2] == 0
    raw, right, true = np.mean(differences, axis=0)
    assert raw < 0.9 * true
    assert right == pytest.approx(true, rel=0.06)


def test_the_reliability_of_half_the_citers_is_near_the_correlation_of_the_halves():
    whole = hepth().select("n_i", "n_j", "n_k").to_numpy().astype(np.int64)
    half = np.random.default_rng(0).binomial(whole, 0.5)
    both = (half[:, :2].sum(axis=1) > 0) & ((whole - half)[:, :2].sum(axis=1) > 0)
    one, other = scores(half[both]), scores((whole - half)[both])
    seen = np.corrcoef(one["cd_index"].to_numpy(), other["cd_index"].to_numpy())[0, 1]
    assert find_noise_effect(one).reliability == pytest.approx(seen, abs=0.1)


def test_the_order_of_rows_and_works_that_are_not_judged_change_nothing():
    rows = hepth()
    effect = find_noise_effect(rows)
    assert effect.works == rows.filter(is_judged()).height
    assert effect.noise_variance == pytest.approx((1 - effect.reliability) * effect.variance)
    assert effect == find_noise_effect(rows.sample(fraction=1, shuffle=True, seed=1).lazy())
    is_open = pl.int_range(pl.len()) % 2 == 0
    some = find_noise_effect(rows.with_columns(window_complete=pl.col("window_complete") & ~is_open))
    assert some.works == pytest.approx(effect.works / 2, rel=0.05)


def test_what_cannot_be_corrected_is_an_error():
    effect = NoiseEffect(works=9, variance=1.0, noise_variance=0.6, reliability=0.4, standard_error=0.02)
    with pytest.raises(ConfigError, match=r"explained is 0\.38, needs to be well below the reliability of 0\.40"):
        effect.correct_slope(1.0, 0.1, explained=0.38)
    with pytest.raises(EmptyInputError, match="2 works with an index and a citer have no spread"):
        find_noise_effect(scores([[1, 0, 3], [1, 0, 3], [0, 0, 3]]))
    with pytest.raises(ConfigError, match="by names 'field', needs columns of scores: n_i"):
        find_noise_effect(scores([[1, 0, 3]]), by="field")


@pytest.mark.parametrize("error", [-1, -1e-9, float("nan"), np.float32(-1), None, "0.1"])
def test_a_slope_without_a_possible_error_is_refused(error):
    effect = NoiseEffect(works=100, variance=1.0, noise_variance=0.4, reliability=0.6, standard_error=0.05)
    with pytest.raises(ConfigError, match=r"standard_error is .*needs a"):
        effect.correct_slope(0.5, error)
    assert effect.correct_slope(0.5, np.float32(0.25)) == effect.correct_slope(0.5, 0.25)
    assert effect.correct_slope(0.5, np.int64(0)) == effect.correct_slope(0.5, 0)
