"""First-time venue pairs against plain dictionaries, and the years that cannot tell."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata._kernels.random import below, draw, stream_key
from sciscidata.errors import ConfigError
from sciscidata.novelty.wang_novelty import WangConfig, compute_wang_novelty
from sciscidata.schemas import WANG_NOVELTY
from tests.novelty import oracle
from tests.novelty.test_atypicality import disguised, frames

EVERY_PAIR = WangConfig(profile_years=1, burn_in_years=1, reuse_years=None, drop_least_cited=0)


def scored(records, edges, config, **how) -> pl.DataFrame:
    return compute_wang_novelty(*frames(records, edges), config, **how).sort("work_id").collect()


def first_time_pairs(lists: oracle.Lists, config) -> dict[int, tuple[int, float]]:
    """Return work -> (n_new_pairs, score) for the works where these are defined."""
    joined = {
        year: Counter(pair for venues in works.values() for pair in itertools.combinations(sorted(set(venues)), 2))
        for year, works in lists.items()
    }
    with_pair = [year for year, pairs in joined.items() if pairs]
    if not with_pair:
        return {}
    first = min(with_pair) if config.first_year is None else config.first_year
    last = max(with_pair) if config.last_year is None else config.last_year
    result = {}
    for year, works in lists.items():
        profile_years = range(year - config.profile_years, year)
        profiles: dict[int, Counter] = defaultdict(Counter)
        for before in profile_years:
            for (a, b), n in joined.get(before, {}).items():
                profiles[a][b] += n
                profiles[b][a] += n
        reuse_ends = year + (config.reuse_years or 0)
        if not profiles or year - first < config.burn_in_years or reuse_ends > last:
            continue
        kept = most_cited(lists, profile_years, config.drop_least_cited)
        value = {}
        for a, b in joined[year]:
            past = [y for y in joined if y < year and (config.past_years is None or y >= year - config.past_years)]
            is_new = not any((a, b) in joined[y] for y in past)
            reuses = sum(joined.get(y, {}).get((a, b), 0) for y in range(year + 1, reuse_ends + 1))
            reused = config.reuse_years is None or reuses >= config.min_reuses
            if is_new and reused and {a, b} <= kept and profiles[a] and profiles[b]:
                value[a, b] = 1 - cosine(profiles[a], profiles[b])
        for work, venues in works.items():
            pairs = list(itertools.combinations(sorted(set(venues)), 2))
            if pairs:
                total = 0.0
                scores = sorted(value[pair] for pair in pairs if pair in value)
                for score in scores:  # one by one: sum() may carry what is rounded
                    total += score
                result[work] = (len(scores), total)
    return result


def cosine(a: Counter, b: Counter) -> float:
    product = sum(n * b[venue] for venue, n in a.items())
    return product / math.sqrt(float(sum(n * n for n in a.values())) * float(sum(n * n for n in b.values())))


def most_cited(lists: oracle.Lists, years: range, drop: float) -> set[int]:
    """Return the venues at or above the linear quantile ``drop`` of their citations in these years, in fractions."""
    cited = Counter(venue for year in years for venues in lists.get(year, {}).values() for venue in venues)
    counts = sorted(cited.values())
    place = Fraction(drop) * (len(counts) - 1)
    k = math.floor(place)
    quantile = Fraction(counts[k])
    if place > k:
        quantile += (place - k) * (counts[k + 1] - counts[k])
    return {venue for venue, n in cited.items() if n >= quantile}


def corpus_of(lists: list[tuple[int, list[int]]]):
    """Return works 0, 1, 2 .. of the given (year, venues of references), and one cited work per venue."""
    venues = sorted(set(itertools.chain.from_iterable(held for _, held in lists)))
    records = {1000 + i: (1900, venue) for i, venue in enumerate(venues)}
    records |= {work: (year, None) for work, (year, _) in enumerate(lists)}
    return records, [(work, 1000 + venues.index(venue)) for work, (_, held) in enumerate(lists) for venue in held]


@st.composite
def corpora(draw_value):
    """Years with gaps; several works per venue, so that a venue can be cited twice by one work."""
    n_cited = draw_value(st.integers(2, 12))
    venues = st.none() | st.integers(-4, 4)
    years = st.sampled_from([1995, 1996, 1997, 1998, 1999, 2002, 2003])
    records = {work: (1990, draw_value(venues)) for work in range(n_cited)}
    n = draw_value(st.integers(4, 30))
    records |= {50 + work: (draw_value(st.none() | years if work < 2 else years), None) for work in range(n)}
    citing, cited = st.integers(50, 49 + n), st.integers(0, n_cited - 1)
    return records, draw_value(st.lists(st.tuples(citing, cited), min_size=n, max_size=150))


@st.composite
def configs(draw_value):
    past, profile = draw_value(st.none() | st.integers(1, 4)), draw_value(st.integers(1, 3))
    return WangConfig(
        past_years=past,
        profile_years=profile,
        reuse_years=draw_value(st.none() | st.integers(1, 4)),
        min_reuses=draw_value(st.integers(1, 2)),
        drop_least_cited=draw_value(st.sampled_from([0, 0.25, 0.5, 0.7])),
        burn_in_years=max(profile, past or 0) + draw_value(st.integers(0, 1)),
        first_year=draw_value(st.sampled_from([None, None, 1994])),
        last_year=draw_value(st.sampled_from([None, None, 2001, 2010])),
        max_references=draw_value(st.sampled_from([None, 2, 5, 1000])),
    )


@given(corpora(), configs(), st.randoms(use_true_random=False))
@settings(max_examples=120)
def test_every_count_and_score_equals_plain_loops_whatever_names_order_and_threads(corpus, config, random):
    records, edges = corpus
    expected = first_time_pairs(oracle.venue_lists(records, edges, config.max_references), config)
    rows = scored(*disguised(corpus, random), config, n_threads=random.choice([1, 3])).rows()
    for work, n_new_pairs, novelty in rows:
        assert (n_new_pairs, novelty) == expected.get(work, (None, None))


def test_a_pair_is_new_once_and_for_all_works_of_its_first_year():
    lists = [(2000, [1, 3]), (2000, [2, 3]), (2001, [1, 2]), (2001, [2, 1]), (2002, [1, 2])]
    rows = scored(*corpus_of(lists), EVERY_PAIR).head(5)
    assert rows["n_new_pairs"].to_list() == [None, None, 1, 1, 0]


@pytest.mark.parametrize(("reuse_years", "min_reuses", "n"), [(1, 1, 0), (2, 1, 1), (2, 2, 0), (3, 2, 1), (None, 9, 1)])
def test_a_pair_counts_if_enough_works_join_it_again_in_time(reuse_years, min_reuses, n):
    lists = [(2000, [1, 3]), (2000, [2, 4]), (2001, [1, 2]), (2003, [2, 1]), (2004, [1, 2, 5]), (2005, [3, 4])]
    config = WangConfig(
        profile_years=1, burn_in_years=1, reuse_years=reuse_years, min_reuses=min_reuses, drop_least_cited=0
    )
    assert scored(*corpus_of(lists), config)["n_new_pairs"][2] == n


def test_difficulty_is_zero_for_equal_company_one_for_none_in_common_and_between_otherwise():
    lists = [(2000, [1, 9]), (2000, [2, 9]), (2000, [2, 9]), (2000, [3, 8]), (2000, [4, 9]), (2000, [4, 8])]
    lists += [(2001, [1, 2]), (2001, [1, 3]), (2001, [1, 4]), (2001, [1, 2, 3, 4])]
    novelty = scored(*corpus_of(lists), EVERY_PAIR)["wang_novelty"]
    assert novelty[6:9].to_list() == [0.0, 1.0, 1 - 1 / 2**0.5]
    # 2-3 has nothing in common, 2-4 and 3-4 half the company.
    assert novelty[9] == pytest.approx(2 + 3 * (1 - 1 / 2**0.5), rel=1e-15)


def test_years_that_cannot_tell_are_null_and_the_rest_are_not():
    lists = [(year, [1, 2]) for year in range(1999, 2021)] + [(2010, [7]), (2010, [7]), (1950, [7])]
    records, edges = corpus_of(lists)
    assert defined_years(records, edges, WangConfig()) == list(range(2009, 2018))
    assert defined_years(records, edges, WangConfig(reuse_years=None)) == list(range(2009, 2021))
    assert defined_years(records, edges, WangConfig(burn_in_years=5)) == list(range(2004, 2018))
    later = WangConfig(first_year=2002, last_year=2019)
    assert defined_years(records, edges, later) == list(range(2012, 2017))
    rows = scored(records, edges, WangConfig())
    assert rows.filter(pl.col("work_id").is_in([22, 23]))["wang_novelty"].null_count() == 2  # one venue: no pair
    assert rows["n_new_pairs"].is_null().equals(rows["wang_novelty"].is_null())


def defined_years(records, edges, config) -> list[int]:
    rows = scored(records, edges, config).drop_nulls("wang_novelty")
    return sorted(records[work][0] for work in rows["work_id"])


def random_corpus(n_venues: int, per_year: int, length: int):
    years = range(2000, 2016)
    drawn = below(draw(stream_key(0, "test/first time"), np.arange(len(years) * per_year * length)), n_venues**2)
    venues = np.sqrt(drawn.astype(np.float64)).astype(int).reshape(-1, length)
    return corpus_of([(2000 + i // per_year, row) for i, row in enumerate(venues.tolist())])


@pytest.mark.parametrize(
    "options", [{}, {"past_years": 3}, {"profile_years": 2, "min_reuses": 2}, {"reuse_years": None}, {"reuse_years": 1}]
)
def test_a_busy_corpus_equals_plain_loops_to_the_last_bit(options):
    drawn = below(draw(stream_key(0, "test/busy"), np.arange(16 * 12 * 7)), 90).reshape(-1, 7)
    records = {work: (1990, 3 * (work // 3) % 64) for work in range(90)}  # 22 venues, of which some have more works
    records |= {1000 + i: (2000 + i // 12, None) for i in range(drawn.shape[0])}
    edges = [(1000 + i, int(cited)) for i, row in enumerate(drawn) for cited in row]
    config = WangConfig(burn_in_years=3, **options)
    expected = first_time_pairs(oracle.venue_lists(records, edges, 1000), config)
    rows = scored(records, edges, config).drop_nulls()
    assert {row[0]: row[1:] for row in rows.iter_rows()} == expected
    assert rows.filter(pl.col("wang_novelty") > 0).height > 5


def test_the_bits_of_the_scores_are_pinned():
    rows = scored(*random_corpus(60, 20, 5), WangConfig(burn_in_years=3))
    assert rows.filter(pl.col("wang_novelty") > 0).height > 50
    columns = b"".join(column.to_numpy().tobytes() for column in rows.fill_null(-99))
    assert hashlib.sha256(columns).hexdigest()[:16] == "097204d4fa5e4ffb"


@pytest.mark.parametrize("options", [{"burn_in_years": 2}, {"burn_in_years": 5, "past_years": 6}])
def test_a_burn_in_that_is_shorter_than_the_past_is_refused(options):
    with pytest.raises(ConfigError, match=r"WangConfig\.burn_in_years is"):
        WangConfig(**options)


def test_a_work_without_references_has_no_score():
    works, citations = frames({1: (2000, 1)}, [])
    assert compute_wang_novelty(works, citations).collect_schema() == WANG_NOVELTY
    assert compute_wang_novelty(works, citations).collect().row(0) == (1, None, None)
