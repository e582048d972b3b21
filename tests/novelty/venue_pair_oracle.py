"""Commonness and first-time pairs from their definitions: plain dictionaries and sets, one pair after the other."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np

Records = dict[int, tuple[int | None, int | None]]  # work -> (year, venue)
Lists = dict[int, dict[int, list[int]]]  # year -> work -> venues of its references


def venue_lists(records: Records, edges: list[tuple[int, int]], max_references: int | None = None) -> Lists:
    lists: Lists = defaultdict(dict)
    for citing, cited in sorted(set(edges)):
        year, venue = records.get(cited, (None, None))
        if citing != cited and year is not None and venue is not None and records.get(citing, (None,))[0] is not None:
            lists[records[citing][0]].setdefault(citing, []).append(venue)
    for works in lists.values():
        for work in [work for work, venues in works.items() if len(venues) > (max_references or math.inf)]:
            del works[work]
    return lists


def commonness(works: dict[int, list[int]], ordered: bool, unique: bool, same: bool) -> dict[int, tuple]:
    """Return work -> (n_pairs, 10th percentile, median) for the works of one year that have a pair."""
    pairs = {}
    for work, venues in works.items():
        held = sorted(set(venues)) if unique else sorted(venues)
        pairs[work] = [(a, b) for a, b in itertools.combinations(held, 2) if same or a != b]
    joint, single = Counter(), Counter()
    for a, b in itertools.chain.from_iterable(pairs.values()):
        ends = [(a, b), (b, a)] if ordered else [(a, b)]
        for end in ends:
            joint[end] += 1
        for venue in (a, b) if ordered else {a, b}:
            single[venue] += 1
    total = joint.total()
    values = {(a, b): float(n) * float(total) / (float(single[a]) * float(single[b])) for (a, b), n in joint.items()}
    result = {}
    for work, held in pairs.items():
        if held:
            row = [values[pair] for pair in held]
            result[work] = (len(row), float(np.quantile(row, 0.1)), float(np.quantile(row, 0.5)))
    return result


def first_time_pairs(lists: Lists, config) -> dict[int, tuple[int, float]]:
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


def most_cited(lists: Lists, years: range, drop: float) -> set[int]:
    """Return the venues at or above the linear quantile ``drop`` of their citations in these years, in fractions."""
    cited = Counter(venue for year in years for venues in lists.get(year, {}).values() for venue in venues)
    counts = sorted(cited.values())
    place = Fraction(drop) * (len(counts) - 1)
    k = math.floor(place)
    quantile = Fraction(counts[k])
    if place > k:
        quantile += (place - k) * (counts[k + 1] - counts[k])
    return {venue for venue, n in cited.items() if n >= quantile}
