"""Compiled loops of novelty.py, for the works of one citing year. Called by novelty.py; nothing else.

A slot is a reference whose cited work has a year and a venue; slots of one cited year are a stratum. ``offsets``
says which slots belong to which work. The distinct venues of a work are its groups, ascending by venue, with a
multiplicity each. An entry is a pair of groups (i <= j) of one work; the entries of group i lie end to end from
``entry_starts[i]`` on. A cell is a venue pair (a <= b) that occurs in the year; the cells of row a lie end to end.

No sum of floats depends on anything but the order of strata, which is that of time.
"""

# pyright: basic
from __future__ import annotations

import math

import numpy as np

from sciscidata.compiled import kernel
from sciscidata.counter_random import below, draw

_TILE_BYTES = 2**18  # a part of the smallest second-level cache


@kernel
def collect_slots(
    first, last, ref_offsets, refs, venues, year_of, max_references, offsets, years, slot_venues, left_out
):
    """Write the slots of works ``first`` .. ``last - 1``; return how many there are.

    A work with more than ``max_references`` slots gets none, and is marked as left out.
    """
    n = 0
    offsets[0] = 0
    for work in range(first, last):
        start = n
        for e in range(ref_offsets[work], ref_offsets[work + 1]):
            cited = refs[e]
            if cited < venues.size and venues[cited] >= 0:
                years[n] = year_of[cited]
                slot_venues[n] = venues[cited]
                n += 1
        if n - start > max_references:
            n = start
            left_out[work] = True
        offsets[work - first + 1] = n
    return n


@kernel
def renumber_by_appearance(values, numbers):
    """Replace values by 0, 1, 2 .. in order of appearance; return what each number stands for.

    ``numbers`` is -1 everywhere, before and after.

    The new numbers do not depend on what the values were, so that renaming venues changes no bit of a result.
    """
    n = 0
    for i in range(values.size):
        if numbers[values[i]] < 0:
            numbers[values[i]] = n
            n += 1
    old = np.empty(n, values.dtype)
    for i in range(values.size):
        number = numbers[values[i]]
        old[number] = values[i]
        values[i] = number
    for number in range(n):
        numbers[old[number]] = -1
    return old


@kernel
def sorted_by(keys, n_keys):
    """Return where each key's positions begin, and all positions ordered by key, stable."""
    starts = np.zeros(n_keys + 1, np.int64)
    for key in keys:
        starts[key + 1] += 1
    for key in range(n_keys):
        starts[key + 1] += starts[key]
    cursor = starts[:-1].copy()
    order = np.empty(keys.size, np.int64)
    for i in range(keys.size):
        order[cursor[keys[i]]] = i
        cursor[keys[i]] += 1
    return starts, order


@kernel
def shuffle_cells(key, year_numbers, starts, order, slot_venues, shuffled):
    """Permute venues inside every stratum by Fisher and Yates; draw i of a stratum is a function of its number."""
    for c in range(starts.size - 1):
        begin, n = starts[c], starts[c + 1] - starts[c]
        for i in range(n):
            shuffled[order[begin + i]] = slot_venues[order[begin + i]]
        stratum_key = draw(key, year_numbers[c])
        for i in range(n - 1, 0, -1):
            j = below(draw(stratum_key, i), i + 1)
            s, t = order[begin + i], order[begin + j]
            shuffled[s], shuffled[t] = shuffled[t], shuffled[s]


@kernel
def group_slots(offsets, slot_venues, unique):
    """Return the groups of every work: group_offsets, venues, multiplicities, and where each one's work ends."""
    n_works = offsets.size - 1
    group_offsets = np.zeros(n_works + 1, np.int64)
    venues = np.empty(slot_venues.size, np.int32)
    counts = np.empty(slot_venues.size, np.int32)
    ends = np.empty(slot_venues.size, np.int64)
    n = 0
    for work in range(n_works):
        row = np.sort(slot_venues[offsets[work] : offsets[work + 1]])
        start = n
        for i in range(row.size):
            if i and row[i] == row[i - 1]:
                counts[n - 1] += not unique
            else:
                venues[n] = row[i]
                counts[n] = 1
                n += 1
        ends[start:n] = n
        group_offsets[work + 1] = n
    return group_offsets, venues[:n].copy(), counts[:n].copy(), ends[:n].copy()


@kernel
def count_cells(row_starts, row_groups, venues, counts, ends, same_venue, partners, observed):
    """Count venue pairs row by row, partners ascending; return where the cells of each row begin."""
    n_venues = row_starts.size - 1
    tally = np.zeros(n_venues, np.int32)
    row = np.empty(n_venues + 1, np.int32)
    cell_starts = np.zeros(n_venues + 1, np.int64)
    start = 0
    for a in range(n_venues):
        n_steps = 0
        for r in range(row_starts[a], row_starts[a + 1]):
            i = row_groups[r]
            times = counts[i]
            if same_venue:
                tally[a] += times * (times - 1) // 2
            for j in range(np.uint64(i + 1), np.uint64(ends[i])):
                tally[np.uint32(venues[j])] += times * counts[j]
            n_steps += ends[i] - i
        n = np.uint64(0)
        if 8 * n_steps > n_venues:
            for b in range(np.uint64(a), np.uint64(n_venues)):  # without a branch: whether b occurs is a coin toss
                row[n] = b
                n += np.uint64(tally[b] > 0)
        else:  # a sparse row: only what was met; minus marks what is in the row already
            for r in range(row_starts[a], row_starts[a + 1]):
                for j in range(row_groups[r], ends[row_groups[r]]):
                    b = np.uint32(venues[j])
                    if tally[b] > 0:
                        row[n] = b
                        n += np.uint64(1)
                        tally[b] = -tally[b]
            row[:n].sort()
        for cell in range(n):
            b = np.uint32(row[cell])
            partners[start + cell] = b
            observed[start + cell] = abs(tally[b])
            tally[b] = 0
        start += n
        cell_starts[a + 1] = start
    return cell_starts


@kernel
def add_shuffle(
    row_starts, row_groups, venues, counts, ends, same_venue, cell_starts, partners, observed, sums, squares
):
    """Add up by how much the pair counts of one shuffle exceed those observed, and the squares of that."""
    n_venues = row_starts.size - 1
    tally = np.zeros(n_venues, np.int32)
    for a in range(n_venues):
        n_steps = 0
        for r in range(row_starts[a], row_starts[a + 1]):
            i = row_groups[r]
            times = counts[i]
            if same_venue:
                tally[a] += times * (times - 1) // 2
            for j in range(i + 1, ends[i]):
                tally[np.uint32(venues[j])] += times * counts[j]
            n_steps += ends[i] - i
        for cell in range(cell_starts[a], cell_starts[a + 1]):
            excess = np.int64(tally[np.uint32(partners[cell])] - observed[cell])
            sums[cell] += excess
            squares[cell] += excess * excess
        if 8 * n_steps > n_venues:
            tally[a:] = 0
        else:  # a sparse row: undo it step by step
            for r in range(row_starts[a], row_starts[a + 1]):
                for j in range(row_groups[r], ends[row_groups[r]]):
                    tally[venues[j]] = 0


@kernel
def co_occurrence(offsets, strata, n_strata):
    """Return sums over works of k_c k_d and of k_c k_d k_e, where k_c is a work's number of slots in stratum c."""
    two = np.zeros((n_strata, n_strata))
    three = np.zeros((n_strata, n_strata, n_strata))
    k = np.zeros(n_strata)
    met = np.empty(n_strata, np.int64)
    for work in range(offsets.size - 1):
        n = 0
        for s in range(offsets[work], offsets[work + 1]):
            if k[strata[s]] == 0:
                met[n] = strata[s]
                n += 1
            k[strata[s]] += 1
        row = np.sort(met[:n])
        for i in range(n):
            c = np.uint64(row[i])
            for j in range(i + 1):
                d = np.uint64(row[j])
                product = k[c] * k[d]
                two[c, d] += product
                for m in range(j + 1):
                    e = np.uint64(row[m])
                    three[c, d, e] += product * k[e]
        for i in range(n):
            k[row[i]] = 0
    for c in range(n_strata):
        for d in range(c + 1):
            two[d, c] = two[c, d]
            for e in range(d + 1):
                value = three[c, d, e]
                three[c, e, d] = value
                three[d, c, e] = value
                three[d, e, c] = value
                three[e, c, d] = value
                three[e, d, c] = value
    return two, three


@kernel
def venue_shares(starts, order, slot_venues, n_venues):
    """Return each venue's share of the slots of each stratum, (venues, strata)."""
    n_strata = starts.size - 1
    shares = np.zeros((n_venues, n_strata))
    for c in range(n_strata):
        for i in range(starts[c], starts[c + 1]):
            shares[slot_venues[order[i]], c] += 1
        for v in range(n_venues):
            shares[v, c] /= starts[c + 1] - starts[c]
    return shares


@kernel
def times_matrix(values, matrix):
    """Return values @ matrix, always summed in the same order, which a linear algebra library does not promise."""
    result = np.zeros(values.shape)
    for v in range(values.shape[0]):
        for c in range(matrix.shape[0]):
            if values[v, c] != 0:
                for d in range(matrix.shape[1]):
                    result[v, d] += values[v, c] * matrix[c, d]
    return result


@kernel
def linear_parts(shares, sizes, two, three, own):
    """Return S (venues, strata): n / (n - 1) times the sum over the slots of a stratum of (u - mean u)^2.

    u is the expected number of partners of venue v for a slot, given that it holds the other venue of the pair;
    ``own`` says that this other venue is v itself. Inside the slot's own stratum the partner is drawn from what
    is left, which changes the share m / n into m / (n - 2), or (m - 1) / (n - 2).
    """
    n_venues, n_strata = shares.shape
    result = np.zeros((n_venues, n_strata))
    quadratic = np.empty(n_strata)
    linear = np.empty(n_strata)
    support = np.empty(n_strata, np.int64)
    for v in range(n_venues):
        n = 0
        for c in range(n_strata):
            if shares[v, c] > 0:
                support[n] = c
                n += 1
        quadratic[:] = 0
        linear[:] = 0
        for i in range(n):
            x = shares[v, support[i]]
            for c in range(n_strata):
                linear[c] += x * two[support[i], c]
            for j in range(i + 1):
                factor = x * shares[v, support[j]] * (1 if i == j else 2)
                row = three[support[i], support[j]]
                for c in range(n_strata):
                    quadratic[c] += factor * row[c]
        for c in range(n_strata):
            size = sizes[c]
            if size < 2:
                continue
            spread = quadratic[c] - linear[c] * linear[c] / size
            total = quadratic[c]
            x = shares[v, c]
            if x > 0 and size > 2:
                shift = (x * size - own) / (size - 2) - x
                covariance = 0.0
                for i in range(n):
                    covariance += shares[v, support[i]] * three[support[i], c, c]
                covariance -= linear[c] * two[c, c] / size
                variance = three[c, c, c] - two[c, c] * two[c, c] / size
                spread += 2 * shift * covariance + shift * shift * variance
            if spread > 1e-12 * total:  # below: nothing but rounding
                result[v, c] = spread * size / (size - 1)
    return result


@kernel
def _both_hold(size, m):
    """Return the chance that two slots of a stratum both hold a venue that ``m`` of its ``size`` slots hold."""
    return m * (m - 1) / (size * (size - 1)) if size > 1 else 0.0


@kernel
def _centred_square(size, m):
    """Return the squared norm of the centred matrix [both hold the venue], divided by n (n - 3)."""
    if size < 4:
        return 0.0
    square = m * (m - 1) * (1 - 2 * (m - 1) / (size - 2) + m * (m - 1) / ((size - 1) * (size - 2)))
    return square / (size * (size - 3))


@kernel
def _same_venue(sizes, x, means, joint, weights, own_parts, within):
    """Return mean and variance of how often two slots of one work both hold the venue with shares ``x``."""
    mean = 0.0
    positive = 0.0
    for c in range(sizes.size):
        if x[c] > 0:
            size = sizes[c]
            variance = x[c] * (1 - x[c])
            m = math.floor(x[c] * size + 0.5)
            inside = _both_hold(size, m)
            # means holds W' with n / (n - 1) on the diagonal, right for a != b: replace that part.
            mean += 0.5 * (x[c] * means[c] + within[c, 0] * (inside - x[c] * x[c] * size / max(size - 1, 1)))
            positive += own_parts[c] * variance
            positive += 0.5 * variance * (joint[c] - weights[c, c] * variance)
            positive += 0.5 * within[c, 1] * _centred_square(size, m)
    return mean, positive


@kernel
def pair_moments(
    cell_starts, partners, shares, sizes, means, joint, weights, parts, own_parts, within, mean_out, deviation_out
):
    """Write mean and standard deviation of every cell's count; NaN where it cannot vary. Formulas: docs/novelty.md.

    means = shares @ W', joint = (x (1 - x)) @ V with V = ``weights``; ``parts`` and ``own_parts`` are linear_parts
    for a != b and a = b; ``within`` holds, per stratum, W_cc and the squared norm of the centred matrix.
    Partners must ascend in each row: venues b are visited tile by tile, so that what is read of them stays in cache.
    """
    n_venues, n_strata = shares.shape
    margin = np.zeros(n_strata)
    total = 0.0
    for c in range(n_strata):
        for d in range(n_strata):
            margin[c] += weights[c, d]
        total += margin[c]
    of_partner = np.empty((n_venues, n_strata, 4))
    of_row = np.empty((n_venues, n_strata, 4))
    support = np.empty((n_venues, n_strata), np.uint32)
    lengths = np.zeros(n_venues, np.uint64)
    for v in range(n_venues):
        n = 0
        for c in range(n_strata):
            x = shares[v, c]
            root = x * math.sqrt(parts[v, c])
            across = x * math.sqrt(margin[c])
            of_partner[v, c] = means[v, c], parts[v, c] + joint[v, c], root, across
            if x > 0:
                support[v, n] = c
                of_row[v, n] = x, x * (1 - x), root, across
                n += 1
        lengths[v] = n
    tile = max(1, _TILE_BYTES // (32 * n_strata))
    cursor = cell_starts[:-1].copy()
    for tile_end in range(tile, n_venues + tile, tile):
        for a in range(min(tile_end, n_venues)):
            row, row_support, row_parts = of_row[a], support[a], parts[a]
            cell = np.uint64(cursor[a])
            end = np.uint64(cell_starts[a + 1])
            while cell < end and partners[cell] < tile_end:
                b = np.uint32(partners[cell])
                if a == b:
                    mean, variance = _same_venue(sizes, shares[a], means[a], joint[a], weights, own_parts[a], within)
                    mean_out[cell] = mean
                    deviation_out[cell] = math.sqrt(variance) if variance > 0 else np.nan
                    cell += np.uint64(1)
                    continue
                mean = 0.0
                positive = 0.0
                shared = 0.0
                double = 0.0
                partner, partner_row, partner_support = of_partner[b], of_row[b], support[b]
                for i in range(lengths[a]):
                    c = row_support[i]
                    mean += row[i, 0] * partner[c, 0]
                    positive += row[i, 1] * partner[c, 1]
                    shared += row[i, 2] * partner[c, 2]
                    double += row[i, 3] * partner[c, 3]
                for i in range(lengths[b]):
                    positive += partner_row[i, 1] * row_parts[partner_support[i]]
                variance = positive - 2 * shared
                if total > 0:
                    variance += double * double / total
                mean_out[cell] = mean
                # What is left of a variance of zero is rounding.
                deviation_out[cell] = math.sqrt(variance) if variance > 1e-9 * positive else np.nan
                cell += np.uint64(1)
            cursor[a] = cell


@kernel
def spread_z(row_starts, row_groups, venues, ends, entry_starts, cell_starts, partners, z, entries):
    """Hand the z of every cell to the entries of the works that hold it; NaN where a pair has no cell."""
    n_venues = row_starts.size - 1
    row = np.full(n_venues, np.nan)
    for a in range(n_venues):
        first, last = np.uint64(cell_starts[a]), np.uint64(cell_starts[a + 1])
        for cell in range(first, last):
            row[np.uint32(partners[cell])] = z[cell]
        for r in range(row_starts[a], row_starts[a + 1]):
            i = row_groups[r]
            entry = np.uint64(entry_starts[i])
            for j in range(np.uint64(i), np.uint64(ends[i])):
                entries[entry] = row[np.uint32(venues[j])]
                entry += np.uint64(1)
        for cell in range(first, last):
            row[np.uint32(partners[cell])] = np.nan


@kernel
def entry_places(group_offsets):
    """Return where the entries of each group begin, and how many there are in all."""
    starts = np.empty(group_offsets[-1], np.int64)
    n = 0
    for work in range(group_offsets.size - 1):
        for i in range(group_offsets[work], group_offsets[work + 1]):
            starts[i] = n
            n += group_offsets[work + 1] - i
    return starts, n


@kernel
def _select(values, low, high, k):
    """Reorder values[low .. high - 1] so that place k holds what it would if sorted, nothing larger before it.

    Quickselect with partitions that move every value whatever it is, because a branch here is a coin toss.
    """
    while high > low + np.uint64(1):
        first, middle, last = values[low], values[(low + high) >> np.uint64(1)], values[high - np.uint64(1)]
        pivot = max(min(first, middle), min(max(first, middle), last))
        cut = low
        for i in range(low, high):
            value = values[i]
            values[i] = values[cut]
            values[cut] = value
            cut += np.uint64(value < pivot)
        if k < cut:
            high = cut
            continue
        low = cut
        for i in range(low, high):  # what equals the pivot: pairs of one venue pair share their z
            value = values[i]
            values[i] = values[cut]
            values[cut] = value
            cut += np.uint64(value == pivot)
        if k < cut:
            return
        low = cut


@kernel
def _quantile(values, n, high, share):
    """Return NumPy's linear quantile of values[:n], whose lowest lie in values[:high] and are reordered there."""
    place = (np.int64(n) - 1) * share
    k = np.uint64(math.floor(place))
    t = place - math.floor(place)
    _select(values, np.uint64(0), high, k)
    below_it = values[k]
    if t == 0:
        return below_it
    above_it = values[k + np.uint64(1)]
    for i in range(k + np.uint64(2), high):
        above_it = min(above_it, values[i])
    gap = above_it - below_it
    return above_it - gap * (1 - t) if t >= 0.5 else below_it + gap * t


@kernel
def work_quantiles(group_offsets, counts, entry_starts, entries, n_pairs, z_p10, z_median, unique=False):
    """Write, per work, how many pairs have a z, and the 10th percentile and median of these; NaN if there is none.

    A pair of venues counts as often as references form it; once, with ``unique``.
    """
    one = np.uint64(1)
    values = np.empty(1024)
    for work in range(group_offsets.size - 1):
        begin, end = np.uint64(group_offsets[work]), np.uint64(group_offsets[work + 1])
        n_slots = 0
        for i in range(begin, end):
            n_slots += counts[i]
        if n_slots * (n_slots - 1) // 2 > values.size:
            values = np.empty(n_slots * (n_slots - 1))
        n = np.uint64(0)
        for i in range(begin, end):
            entry = np.uint64(entry_starts[i])
            for j in range(i, end):
                z = entries[entry]
                entry += one
                if z == z:
                    times = counts[i] * (counts[i] - 1) // 2 if i == j else counts[i] * counts[j]
                    times = min(times, 1) if unique else times
                    for _ in range(times):
                        values[n] = z
                        n += one
        n_pairs[work] = n
        z_median[work] = _quantile(values, n, n, 0.5) if n else np.nan
        half = (n - one) // np.uint64(2) + one  # where the median has put the lower half
        z_p10[work] = _quantile(values, n, half, 0.1) if n else np.nan
