"""Slow, obvious atypicality, written from the definition: every slot, every pair of slots, plain dictionaries."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np

from sciscidata._kernels.random import below, draw, stream_key
from sciscidata.novelty.config import NoveltyConfig

Slots = list[tuple[int, int, int]]  # (work, cited year, venue), works in graph order, then cited works in graph order
Lists = dict[int, dict[int, list[int]]]  # citing year -> work -> venues of its references


def slots_of(
    records: dict[int, tuple[int | None, int | None]], edges: list[tuple[int, int]], venue_required: bool = False
) -> dict[int, Slots]:
    """Return the slots of every citing year; ``records`` maps a work to (year, venue)."""

    def order(work: int) -> tuple[int, int]:
        return records[work][0], work

    by_year: dict[int, Slots] = defaultdict(list)
    dated = {work for work, (year, _) in records.items() if year is not None}
    kept = {(a, b) for a, b in edges if a != b and a in dated and b in dated and records[b][1] is not None}
    for citing, cited in sorted(kept, key=lambda edge: (order(edge[0]), order(edge[1]))):
        if not venue_required or records[citing][1] is not None:
            by_year[records[citing][0]].append((citing, *records[cited]))
    return dict(by_year)


def venue_lists(
    records: dict[int, tuple[int | None, int | None]], edges: list[tuple[int, int]], max_references: int | None = None
) -> Lists:
    """Return the venues of the references of every work by citing year, without those of works with too many."""
    lists: Lists = {}
    for year, slots in slots_of(records, edges).items():
        of_work: dict[int, list[int]] = defaultdict(list)
        for work, _, venue in slots:
            of_work[work].append(venue)
        lists[year] = {work: held for work, held in of_work.items() if len(held) <= (max_references or math.inf)}
    return lists


def pairs_of_work(slots: Slots, unique: bool, same: bool) -> dict[int, list[tuple[int, int]]]:
    venues = defaultdict(list)
    for work, _, venue in slots:
        if not unique or venue not in venues[work]:
            venues[work].append(venue)
    return {
        work: [(min(a, b), max(a, b)) for i, a in enumerate(row) for b in row[i + 1 :] if same or a != b]
        for work, row in venues.items()
    }


def count_pairs(slots: Slots, unique: bool = False, same: bool = True) -> dict[tuple[int, int], int]:
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for pairs in pairs_of_work(slots, unique, same).values():
        for pair in pairs:
            counts[pair] += 1
    return counts


def shuffle(slots: Slots, year: int, seed: int, n: int) -> Slots:
    """Deal the venues of every cited year anew, last slot first."""
    key = draw(draw(stream_key(seed, "novelty/shuffle"), np.array([n])), np.array([year + 2**31]))
    shuffled = list(slots)
    for cited_year in {slot[1] for slot in slots}:
        places = [i for i, slot in enumerate(slots) if slot[1] == cited_year]
        venues = [slots[i][2] for i in places]
        stratum = draw(key, np.array([cited_year + 2**31]))
        for i in range(len(venues) - 1, 0, -1):
            j = int(below(draw(stratum, np.array([i])), i + 1)[0])
            venues[i], venues[j] = venues[j], venues[i]
        for i, venue in zip(places, venues, strict=True):
            shuffled[i] = (slots[i][0], cited_year, venue)
    return shuffled


def permutation_scores(
    slots: Slots, year: int, config: NoveltyConfig
) -> dict[int, tuple[int, float | None, float | None]]:
    """Return work -> (n_pairs, z_p10, z_median) for works with at least one defined pair."""
    unique, same, n_shuffles = config.unique_venues, config.same_venue_pairs, config.n_shuffles
    observed = count_pairs(slots, unique, same)
    draws = [count_pairs(shuffle(slots, year, config.seed, n), unique, same) for n in range(n_shuffles)]
    z = {}
    for pair, count in observed.items():
        sums = sum(shuffled[pair] for shuffled in draws)
        spread = n_shuffles * sum(shuffled[pair] ** 2 for shuffled in draws) - sums**2
        excess = count - sums / n_shuffles
        if spread:
            z[pair] = excess / (math.sqrt(spread) / n_shuffles)
        elif excess and config.undefined_pairs == "infinite":
            z[pair] = math.copysign(math.inf, excess)
    scores = {}
    for work, pairs in pairs_of_work(slots, unique, same).items():
        held = sorted(set(pairs)) if config.unique_pairs else pairs
        values = [z[pair] for pair in held if pair in z]
        if values:
            whole = len(values) == len(held) or config.undefined_pairs == "drop"
            quantiles = [linear_quantile(values, share) if whole else None for share in (0.1, 0.5)]
            scores[work] = (len(values), *quantiles)
    return scores


def linear_quantile(values: list[float], share: float) -> float | None:
    """Return NumPy's linear quantile; None if it lies at infinity, or between there and a number."""
    place = (len(values) - 1) * share
    neighbours = sorted(values)[math.floor(place) : math.ceil(place) + 1]
    if any(map(math.isinf, neighbours)):
        return None
    return float(np.quantile(np.clip(values, -1e300, 1e300), share))


def exact_mean(slots: Slots, pair: tuple[int, int]) -> float:
    """Sum, over every two slots of one work, the chance that they hold the pair."""
    size, held = defaultdict(int), defaultdict(int)
    for _, year, venue in slots:
        size[year] += 1
        held[year, venue] += 1

    def chance(first: int, second: int, a: int, b: int) -> float:
        p = held[first, a] / size[first]
        if first != second:
            return p * held[second, b] / size[second]
        return p * (held[second, b] - (a == b)) / (size[second] - 1) if size[second] > 1 else 0.0

    a, b = pair
    years = defaultdict(list)
    for work, year, _ in slots:
        years[work].append(year)
    mean = 0.0
    for of_work in years.values():
        for first, second in itertools.combinations(of_work, 2):
            mean += chance(first, second, a, b) + (chance(first, second, b, a) if a != b else 0.0)
    return mean


def all_counts(slots: Slots) -> list[dict[tuple[int, int], int]]:
    """Return the pair counts of every possible deal of the venues, each distinct deal once; for a few slots only."""
    years = sorted({year for _, year, _ in slots})
    places = {year: [i for i, slot in enumerate(slots) if slot[1] == year] for year in years}
    deals = [set(itertools.permutations([slots[i][2] for i in places[year]])) for year in years]
    counts = []
    for deal in itertools.product(*deals):
        venues = {
            i: venue for year, row in zip(years, deal, strict=True) for i, venue in zip(places[year], row, strict=True)
        }
        counts.append(count_pairs([(work, year, venues[i]) for i, (work, year, _) in enumerate(slots)]))
    return counts


def exact_moments(slots: Slots, pair: tuple[int, int]) -> tuple[float, float]:
    """Return mean and variance of a pair's count over every possible deal of the venues; for a few slots only."""
    counts = [deal[pair] for deal in all_counts(slots)]
    mean = sum(counts) / len(counts)
    return mean, sum((count - mean) ** 2 for count in counts) / len(counts)


def variance_by_parts(slots: Slots, pair: tuple[int, int]) -> tuple[float, float]:
    """Return the variance of the count of a pair of two venues, exact by parts, and with the package's shortcuts.

    The matrix A says which two slots belong to one work. Its linear parts are the centred row sums of each block
    of two strata, its quadratic parts the blocks with rows and columns centred.
    """
    a, b = pair
    works = np.array([slot[0] for slot in slots])
    together = (works[:, None] == works[None, :]).astype(float)
    np.fill_diagonal(together, 0)
    years = sorted({slot[1] for slot in slots})
    blocks = [np.array([i for i, slot in enumerate(slots) if slot[1] == year]) for year in years]
    sizes = [len(block) for block in blocks]
    x = {v: [sum(slots[i][2] == v for i in block) / len(block) for block in blocks] for v in pair}
    exact = shortcut = 0.0
    for c, block in enumerate(blocks):
        n = sizes[c]
        if n < 2:
            continue
        u = {v: np.zeros(n) for v in pair}
        for d, other in enumerate(blocks):
            row_sums = together[np.ix_(block, other)].sum(axis=1)
            for v in pair:
                share = x[v][d] if d != c else x[v][d] * n / (n - 2) if n > 2 else 0.0
                u[v] += (row_sums - row_sums.mean()) * share
        s = {v: x[v][c] * (1 - x[v][c]) for v in pair}
        alone = s[a] * (u[b] @ u[b]) + s[b] * (u[a] @ u[a])
        exact += n / (n - 1) * (alone - 2 * x[a][c] * x[b][c] * (u[a] @ u[b]))
        shortcut += n / (n - 1) * (alone - 2 * x[a][c] * x[b][c] * math.sqrt((u[a] @ u[a]) * (u[b] @ u[b])))
    v_matrix = np.zeros((len(blocks), len(blocks)))
    for c, block in enumerate(blocks):
        for d, other in enumerate(blocks):
            n, m = sizes[c], sizes[d]
            centred = together[np.ix_(block, other)]
            if c != d and min(n, m) > 1:
                centred = centred - centred.mean(axis=1, keepdims=True)
                centred = centred - centred.mean(axis=0, keepdims=True)
                v_matrix[c, d] = (centred**2).sum() * n * m / ((n - 1) * (m - 1))
                z_c, z_d = (x[a][i] * x[b][i] for i in (c, d))
                s_c, s_d = x[a][c] * (1 - x[a][c]), x[b][d] * (1 - x[b][d])
                exact += v_matrix[c, d] * (s_c * s_d + z_c * z_d)
            elif c == d and n > 3:
                rows = centred.sum(axis=1)
                centred = centred - (rows[:, None] + rows[None, :]) / (n - 2) + rows.sum() / ((n - 1) * (n - 2))
                np.fill_diagonal(centred, 0)
                norm = (centred**2).sum()
                v_matrix[c, c] = norm * n / (n - 3)
                m_a, m_b = n * x[a][c], n * x[b][c]
                kernel = m_a * m_b * (1 - (m_a + m_b) / (n - 2) + 2 * m_a * m_b / ((n - 1) * (n - 2)))
                exact += norm * kernel / (n * (n - 3))
    x_a, x_b = np.array(x[a]), np.array(x[b])
    shortcut += (x_a * (1 - x_a)) @ v_matrix @ (x_b * (1 - x_b))
    if v_matrix.sum() > 0:
        shortcut += (x_a * x_b) @ v_matrix.sum(axis=1) * ((x_a * x_b) @ v_matrix.sum(axis=1)) / v_matrix.sum()
    return exact, shortcut
