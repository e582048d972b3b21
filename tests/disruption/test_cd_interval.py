"""The interval of the CD index: against an oracle of scipy over all redraws, and against other citers of real works."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sciscidata.disruption.label_prior import SHIPPED, classes_of
from sciscidata.errors import ConfigError
from sciscidata.indicators import compute_cd_interval, find_label_prior
from tests.disruption.test_label_confidence import hepth, scores

ENDS = ["cd_low", "cd_high", "cd_shrunk"]
few = st.integers(0, 9)


def redraws(n_i: int, n_j: int, n_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Every index of a redraw, ascending, with its probability; by the shipped prior."""
    at = classes_of(np.array([n_k]))[0]
    citers, others = np.arange(1, 200), np.arange(700)
    s_chance = stats.nbinom.pmf(citers, n_i + n_j, 0.5) if n_i + n_j else stats.logser.pmf(citers, 0.5)
    k_chance = stats.nbinom.pmf(others, n_k, 0.5) if n_k else np.eye(1, 700)[0]
    index, chance = [], []
    for s, of_s in zip(citers, s_chance / s_chance.sum(), strict=True):
        x = np.arange(s + 1)
        of_x = stats.betabinom.pmf(x, s, n_i + SHIPPED.a[at], n_j + SHIPPED.b[at])
        if of_s > 1e-13:
            index.append(((2 * x - s)[:, None] / (s + others)).ravel())
            chance.append((of_s * of_x[:, None] * k_chance).ravel())
    values, places = np.unique(np.concatenate(index), return_inverse=True)
    return values, np.bincount(places, np.concatenate(chance))


@settings(max_examples=25, deadline=None)
@given(few, few, st.sampled_from([0, 1, 3, 10, 40, 200]), st.sampled_from([0.5, 0.8, 0.95, 0.99]))
def test_the_ends_and_the_mean_are_those_of_all_redraws(n_i, n_j, n_k, level):
    row = scores([n_i, n_j, n_k]).with_columns(cd_index=0.0)
    low, high, mean = compute_cd_interval(row, level=level, prior=SHIPPED).select(ENDS).collect().row(0)
    index, chance = redraws(n_i, n_j, n_k)
    tail = (1 - level) / 2
    assert chance[index < low].sum() <= tail + 1e-8
    assert chance[index > high].sum() <= tail + 1e-8
    # No nearer index would do, but for 0.1 % of the size.
    assert chance[index <= low + 0.001 * abs(low) + 1e-12].sum() > tail - 1e-8
    assert chance[index >= high - 0.001 * abs(high) - 1e-12].sum() > tail - 1e-8
    assert mean == pytest.approx((index * chance).sum(), abs=1e-9)


def test_many_citers_narrow_the_interval_to_the_index_and_few_leave_it_wide():
    rows = scores(
        [[3, 1, 1], [30, 10, 9], [300, 100, 90], [3_000, 1_000, 900], [300_000, 100_000, 90_000], [9, 9, 10**6]]
    )
    found = compute_cd_interval(rows, prior=SHIPPED).collect()
    width = (found["cd_high"] - found["cd_low"]).to_list()
    assert width[:5] == sorted(width[:5], reverse=True)
    assert width[0] > 1 > 0.1 > width[3] > 0.01 > width[4]
    assert found["cd_shrunk"][4] == pytest.approx(found["cd_index"][4], abs=1e-4)
    assert 0 < found["cd_high"][5] < 3e-5
    inside = (pl.col("cd_low") < pl.col("cd_shrunk")) & (pl.col("cd_shrunk") < pl.col("cd_high"))
    assert found.select(inside.all()).item()


def test_intervals_do_not_depend_on_the_other_rows_and_are_null_without_an_index():
    every = hepth()
    prior, among = find_label_prior(every), compute_cd_interval(every).collect()
    assert among.select(every.columns).equals(every)
    some = among.sample(300, seed=1, shuffle=True)
    assert compute_cd_interval(some.select(every.columns), prior=prior).collect().equals(some)
    rows = scores([[1, 0, 3], [0, 0, 0]]).with_columns(name=pl.lit("a"), cd_low=pl.lit(7.0))
    found = compute_cd_interval(pl.concat([rows, rows.with_columns(cd_index=float("nan"))]), prior=prior).collect()
    assert found.select(ENDS).null_count().row(0) == (3, 3, 3)
    assert found.columns == [*rows.columns[:-1], *ENDS]
    for level in (0, 1.0, 95):
        with pytest.raises(ConfigError, match=f"level is {level}, needs a number above 0"):
            compute_cd_interval(rows, level=level)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_index_of_the_other_half_of_the_citers_lies_in_it_as_often_as_it_says(level):
    whole = hepth().select("n_i", "n_j", "n_k").to_numpy().astype(np.int64)
    half = np.random.default_rng(1).binomial(whole, 0.5)
    both = (half[:, :2].sum(axis=1) > 0) & ((whole - half)[:, :2].sum(axis=1) > 0)
    other = scores((whole - half)[both])["cd_index"]
    found = compute_cd_interval(scores(half), level=level).collect().filter(pl.Series(both))
    share = ((found["cd_low"] <= other) & (other <= found["cd_high"])).mean()
    assert level <= share < level + 0.05
