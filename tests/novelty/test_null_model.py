"""The closed form of the null model against thousands of shuffles, and its kernels against NumPy and plain loops."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.graph.graph import CitationGraph, build_graph
from sciscidata.novelty import _moment_kernels as novelty_kernels
from sciscidata.novelty import _per_work_kernels as work_quantile_kernels
from sciscidata.novelty import atypicality, venue_pairs
from sciscidata.novelty import null_model as novelty_nulls
from sciscidata.novelty.atypicality import YearScorer
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.shapes import Entries, Groups, Quantiles
from sciscidata.novelty.venue_pairs import entry_starts, venue_numbers
from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
from tests.novelty import oracle
from tests.real_graphs import scan_real

N_SHUFFLES = 1_000


def synthetic() -> tuple[pl.LazyFrame, pl.LazyFrame]:
    works, citations, *_ = scan_synthetic(SyntheticConfig(n_works=4_000))
    return works, citations


def slots_of_year(graph: CitationGraph, venues: np.ndarray, year: int) -> venue_pairs.Slots:
    lists, no_work = venue_pairs.references_of(graph, venues), np.zeros(graph.n_dated, np.bool_)
    return venue_pairs.year_slots(graph, lists, graph.years.tolist().index(year), None, no_work)


def cells_of(slots: venue_pairs.Slots) -> venue_pairs.Cells:
    return venue_pairs.observe(venue_pairs.group(slots.offsets, slots.venues, slots.n_venues))


def shuffles(seed: int, years: tuple[int, int] | None = None) -> NoveltyConfig:
    return NoveltyConfig(null="permutation", n_shuffles=N_SHUFFLES, seed=seed, years=years)


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    return pl.DataFrame({"a": a, "b": b}).select(pl.corr("a", "b", method="spearman")).item()


@pytest.mark.slow
@pytest.mark.parametrize(("corpus", "n_years"), [(scan_real, 6), (synthetic, 2)])
def test_a_thousand_shuffles_agree_with_the_closed_form_as_well_as_with_each_other(corpus, n_years):
    works, citations = corpus()
    graph = build_graph(works, citations)
    venues = venue_numbers(graph, works)
    years = graph.years[-n_years:].tolist()
    errors, variances = [], []
    for year in years:
        slots = slots_of_year(graph, venues, year)
        cells = cells_of(slots)
        mean, deviation = novelty_nulls.analytic_moments(slots)(cells)
        drawn_mean, drawn = novelty_nulls.permutation_moments(slots, cells, year, shuffles(0))
        varies = deviation > 0
        errors.append((drawn_mean - mean)[varies] / (deviation[varies] / math.sqrt(N_SHUFFLES)))
        variances.append(np.stack([deviation[varies] ** 2, np.nan_to_num(drawn[varies]) ** 2]))
        # What the closed form says cannot vary, does not.
        assert np.isnan(drawn[~varies]).all()
    error = np.concatenate(errors)
    closed, drawn = np.concatenate(variances, axis=1)
    print(f"{error.size} pairs: mean off by {error.mean():.3f} s.e., spread {error.std():.3f}")
    print(f"variance: {closed.sum() / drawn.sum():.4f} in sum")
    assert abs(error.mean()) < 0.05
    assert error.std() == pytest.approx(1, abs=0.05)
    assert abs(error).max() < 7  # a rare pair's count is far from normal
    assert closed.sum() / drawn.sum() == pytest.approx(1, abs=0.01 if corpus is synthetic else 0.02)

    span = (years[0], years[-1])
    tables = [NoveltyConfig(years=span), shuffles(0, span), shuffles(1, span)]
    tables = [YearScorer(graph, venues, config).score_all()["z_p10"].to_numpy() for config in tables]
    both = ~np.isnan(tables).any(axis=0)
    closed, first, second = (table[both] for table in tables)
    flips = {
        name: 100 * ((a < 0) != (b < 0)).mean()
        for name, a, b in (("closed", closed, first), ("shuffles", first, second))
    }
    ranks = {name: rank_correlation(a, b) for name, a, b in (("closed", closed, first), ("shuffles", first, second))}
    print(f"{both.sum()} works: other sign of z_p10, % {flips}; rank correlation {ranks}")
    assert ranks["closed"] > 0.999
    # No exact null could do better than shuffles do among themselves, less a square root of two.
    assert flips["closed"] < flips["shuffles"] + 0.2


def laid_out(rows: list[tuple[int, int]]) -> venue_pairs.Slots:
    """Slots of one stratum from (work, venue)."""
    rows = sorted(rows)
    lengths = list(Counter(work for work, _ in rows).values())
    _, numbers = np.unique([venue for _, venue in rows], return_inverse=True)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return venue_pairs.lay_out(offsets, np.zeros(len(rows), np.int64), numbers.astype(np.int32))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400)), min_size=1, max_size=120), st.booleans(), st.data())
@settings(max_examples=60)
def test_cells_are_counted_alike_in_sparse_and_dense_rows_and_partners_ascend(rows, same, data):
    crowd = data.draw(st.integers(0, 60))
    rows = sorted(rows + [(41, venue) for venue in range(crowd)])  # many venues of one work: a dense row among sparse
    slots = laid_out(rows)
    cells = venue_pairs.observe(venue_pairs.group(slots.offsets, slots.venues, slots.n_venues), same_venue_pairs=same)
    names = list(dict.fromkeys(venue for _, venue in rows))
    found = {}
    for a in range(slots.n_venues):
        partners = cells.partners[cells.starts[a] : cells.starts[a + 1]].tolist()
        assert partners == sorted(set(partners))
        assert not partners or partners[0] >= a
        for b, n in zip(partners, cells.observed[cells.starts[a] : cells.starts[a + 1]].tolist(), strict=True):
            found[tuple(sorted((names[a], names[b])))] = n
    assert found == dict(oracle.count_pairs([(work, 0, venue) for work, venue in rows], same=same))


def test_moments_equal_plain_sums_over_slots_in_a_year_whose_venues_take_more_than_one_tile():
    rng = np.random.default_rng(4)
    year, venue = rng.integers(0, 20, 3_600), rng.zipf(1.3, 3_600) % 1_500
    _, venue = np.unique(venue, return_inverse=True)
    slots = venue_pairs.lay_out(np.arange(121) * 30, 2000 + year, venue.astype(np.int32))
    assert slots.n_venues > 1.2 * novelty_kernels.TILE_BYTES / (32 * slots.strata_years.size)
    cells = cells_of(slots)
    mean, deviation = novelty_nulls.analytic_moments(slots)(cells)
    work = np.repeat(np.arange(slots.offsets.size - 1), np.diff(slots.offsets))
    plain = list(zip(work.tolist(), slots.strata_years[slots.strata].tolist(), slots.venues.tolist(), strict=True))
    rows = np.repeat(np.arange(slots.n_venues), np.diff(cells.starts))
    for cell in np.linspace(0, rows.size - 1, 12).astype(int):
        pair = (int(rows[cell]), int(cells.partners[cell]))
        assert mean[cell] == pytest.approx(oracle.exact_mean(plain, pair), rel=1e-9)
        if pair[0] != pair[1]:
            assert deviation[cell] ** 2 == pytest.approx(oracle.variance_by_parts(plain, pair)[1], rel=1e-7)


@given(
    st.lists(st.lists(st.integers(1, 4), max_size=9), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([1, 30]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=80)
def test_quantiles_are_those_of_numpy_over_the_pairs_that_have_a_z(works, unique, repeats, random):
    counts = [[n * repeats for n in work] for work in works]
    offsets = np.concatenate([[0], np.cumsum([len(work) for work in counts])])
    starts, n_entries = entry_starts(np.repeat(offsets[1:], np.diff(offsets)))
    entries = np.array([random.choice([math.nan, random.gauss(0, 3), 1.0]) for _ in range(n_entries)])
    flat = np.array([n for work in counts for n in work], np.int32)
    n_pairs, low, middle = np.zeros(len(counts), np.int64), np.zeros(len(counts)), np.zeros(len(counts))
    room = np.empty(max([sum(work) * (sum(work) - 1) // 2 for work in counts]) + 1)
    nothing = np.empty(0, np.int64)
    groups = Groups(offsets, nothing, flat, nothing, nothing, nothing, nothing)
    work_quantile_kernels.work_quantiles(
        groups, Entries(starts, entries), unique, Quantiles(n_pairs, low, middle), room
    )
    place = itertools.count()
    for w, work in enumerate(counts):
        values = []
        for i, j in itertools.combinations_with_replacement(range(len(work)), 2):
            z = entries[next(place)]
            times = work[i] * (work[i] - 1) // 2 if i == j else work[i] * work[j]
            values += [z] * (min(times, 1) if unique else times)
        values = [z for z in values if not math.isnan(z)]
        assert n_pairs[w] == len(values)
        expected = np.quantile(values, [0.1, 0.5]).tolist() if values else [math.nan, math.nan]
        np.testing.assert_array_equal([low[w], middle[w]], expected)


def year_of_few_venues(n_venues: int, steepness: float, n_works: int = 300) -> venue_pairs.Slots:
    """One citing year of some works, twelve cited years; venues follow a power law, in other places at other ages."""
    rng = np.random.default_rng(5)
    lengths = np.maximum(2, rng.lognormal(np.log(10), 0.6, n_works).astype(int))
    centre = np.repeat(rng.uniform(0, 12, n_works), lengths)
    strata = np.clip(np.abs(rng.normal(centre, 3)), 0, 11).astype(int)
    law = 1 / np.arange(1, n_venues + 1) ** steepness
    held = np.empty(strata.size, np.int32)
    for stratum in range(12):
        there = strata == stratum
        law_there = np.roll(law, stratum * n_venues // 12)
        held[there] = rng.choice(n_venues, there.sum(), p=law_there / law_there.sum())
    return venue_pairs.lay_out(np.concatenate([[0], np.cumsum(lengths)]), strata.astype(np.int64) + 1990, held)


@pytest.mark.parametrize(
    ("n_venues", "steepness", "lowest", "highest"),
    [(400, 0.0, 0.99, 1.01), (60, 1.0, 0.99, 1.01), (3, 2.5, 0.80, 0.92)],
)
def test_variances_sum_to_those_of_shuffles_where_no_few_venues_dominate_and_the_log_says_where_they_do(
    n_venues, steepness, lowest, highest
):
    slots = year_of_few_venues(n_venues, steepness)
    cells = cells_of(slots)
    _, deviation = novelty_nulls.analytic_moments(slots)(cells)
    _, drawn = novelty_nulls.permutation_moments(slots, cells, 2000, shuffles(1))
    both = (deviation > 0) & (drawn > 0)
    ratio = (deviation[both] ** 2).sum() / (drawn[both] ** 2).sum()
    concentration = novelty_nulls.venue_concentration(slots)
    print(f"{n_venues} venues, concentration {concentration:.3f}: variances sum to {ratio:.4f} of the shuffled ones")
    assert lowest < ratio < highest
    assert bool(novelty_nulls.remark_on_concentration({2000: concentration})) == (ratio < 0.99)


@pytest.mark.parametrize(("concentration", "expected"), [(0.19, []), (0.2, [True]), (1.0, [True])])
def test_the_years_in_which_few_venues_dominate_are_named_by_their_concentration(concentration, expected):
    said = novelty_nulls.remark_on_concentration({1999: 0.01, 2000: concentration})
    assert ["1 of 2 years (2000)" in remark for remark in said] == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 5)), max_size=40))
def test_the_concentration_is_the_share_of_pairs_of_slots_of_one_stratum_with_one_venue(rows):
    rows = sorted(rows)
    lengths = [sum(work == row[0] for row in rows) for work in range(4)]
    years, held = (np.array([row[place] for row in rows], np.int64) for place in (1, 2))
    slots = venue_pairs.lay_out(np.concatenate([[0], np.cumsum(lengths)]), years, held.astype(np.int32))
    expected, n_slots = 0.0, 0
    for year in range(5):
        venues = [venue for _, cited, venue in rows if cited == year]
        pairs = list(itertools.combinations(venues, 2))
        if pairs:
            expected += len(venues) * sum(a == b for a, b in pairs) / len(pairs)
            n_slots += len(venues)
    assert novelty_nulls.venue_concentration(slots) == pytest.approx(expected / n_slots if n_slots else 0)


def test_years_of_few_venues_are_named_in_the_log_without_a_warning_and_handed_out(caplog):
    caplog.set_level("INFO")
    atypicality._say_once.cache_clear()  # another test may have heard the same
    works = pl.LazyFrame(
        {
            "work_id": range(40),
            "source_id": [[1, 1, 1, 2][i % 4] if i < 20 else None for i in range(40)],
            "publication_year": [1990] * 20 + [2000] * 10 + [2001] * 10,
        },
        schema_overrides={"publication_year": pl.Int32},
    )
    edges = [(20 + i, (3 * i + j * j) % 20) for i in range(20) for j in range(5)]
    citations = pl.LazyFrame(edges, schema={"citing_id": pl.Int64, "cited_id": pl.Int64}, orient="row")
    graph = build_graph(works, citations)
    scorer = YearScorer(graph, venue_numbers(graph, works), None, None)
    scorer.score_all()
    assert scorer.concentrations.keys() == {2000, 2001}
    assert min(scorer.concentrations.values()) > 0.4
    assert "few venues dominate the references of 2 of 2 years (2000-2001)" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    config = NoveltyConfig(null="permutation", n_shuffles=5)
    scorer = YearScorer(graph, venue_numbers(graph, works), config, None)
    scorer.score_all()
    assert (scorer.concentrations, caplog.text) == ({}, "")
