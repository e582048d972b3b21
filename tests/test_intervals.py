"""Intervals of shares and means have the values of SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.intervals import mean_interval, wilson_interval


@given(st.integers(0, 500), st.integers(1, 500))
def test_shares_have_the_interval_of_scipy(k, n):
    stats = pytest.importorskip("scipy.stats")
    k = min(k, n)
    expected = stats.binomtest(k, n).proportion_ci(method="wilson")
    low, high = wilson_interval(k / n, n)
    assert (float(low), float(high)) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(st.integers(2, 400))
def test_means_have_the_interval_of_scipy(n):
    stats = pytest.importorskip("scipy.stats")
    low, high = mean_interval(np.float64(1), np.float64(4 * (n - 1)), np.float64(n), np.float64(n))
    half = stats.t.ppf(0.975, n - 1) * 2 / np.sqrt(n)
    assert float(high - low) / 2 == pytest.approx(half, rel=2e-3)


def test_a_share_of_all_or_nothing_ends_there_to_the_last_bit_and_of_nobody_is_undefined():
    low, high = wilson_interval([0.0, 1.0, 0.0, math.nan], [30, 30, 0, 0])
    assert (low[0], high[1]) == (0.0, 1.0)
    assert low[1] > 0.8
    assert high[0] < 0.2
    assert np.isnan([*low[2:], *high[2:]]).all()


def test_three_deviations_give_a_wider_interval_than_95_percent():
    (low, high), (lower, higher) = wilson_interval(0.2, 100), wilson_interval(0.2, 100, 3.0)
    assert lower < low < 0.2 < high < higher
    assert (float(lower), float(higher)) == pytest.approx(((24.5 - 73**0.5 * 1.5) / 109, (24.5 + 73**0.5 * 1.5) / 109))
