"""What ``--balance`` does: which labels get equal counts, and how many works each of their classes gets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeVar

from sciscidata.own_label import OwnLabel, vocabularies

Label = TypeVar("Label")


def class_quotas(n: int, labels: Sequence[Label]) -> dict[Label, int]:
    """Divide ``n`` works over the classes: equal shares, and the remainder goes to the first in label order."""
    share, rest = divmod(n, len(labels))
    return {label: share + (place < rest) for place, label in enumerate(labels)}


def share_quotas(n: int, counts: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Share ``n`` works, or as many as fit, over cells, each of which gives equally many works of each class.

    A cell has room for as many of each class as its rarest class has. The shares are proportional to this room, by
    largest remainder, then by name. What the classes do not divide evenly goes to the first classes of one cell.

    Example:
        >>> share_quotas(10, {"Art 1990": [5, 2, 9], "Art 1995": [4, 9, 4], "Law 1990": [0, 9, 9]})
        {'Art 1990': [1, 1, 1], 'Art 1995': [3, 2, 2], 'Law 1990': [0, 0, 0]}
    """
    room = {cell: min(counts[cell]) for cell in sorted(counts)}
    n_classes = len(next(iter(counts.values()), [0]))
    each, rest = divmod(n, n_classes)
    total = sum(room.values())
    wanted, rest = (each, rest) if total >= each else (total, 0)
    shares = {cell: divmod(wanted * n_there, max(total, 1)) for cell, n_there in room.items()}
    left = wanted - sum(share for share, _ in shares.values())
    first = {*sorted(shares, key=lambda cell: (-shares[cell][1], cell))[:left]}
    quotas = {cell: [share + (cell in first)] * n_classes for cell, (share, _) in shares.items()}
    roomy = [cell for cell in quotas if rest and min(counts[cell][:rest]) > quotas[cell][0]]
    if roomy:
        cell = max(roomy, key=lambda cell: room[cell])
        quotas[cell] = [quota + (place < rest) for place, quota in enumerate(quotas[cell])]
    return quotas


def quota_cells(
    columns: Sequence[str], label: OwnLabel | None = None, only: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """List the cells that label columns make up, in the order in which ``class_quotas`` hands out the remainder.

    ``only`` names the classes that count; of a column without one of them, all do.

    Two columns go by the diagonals of their table. A draw that nine does not divide is still even in both labels.

    Example:
        >>> quota_cells(["novelty_label"])
        [('novel',), ('balanced',), ('conventional',)]
        >>> quota_cells(["disruption_label", "novelty_label"])[:3]
        [('disruptive', 'novel'), ('consolidating', 'balanced'), ('neutral', 'conventional')]
    """
    words = vocabularies(label)
    found = [tuple(word for word in words[column] if word in only) or words[column] for column in columns]
    if len(found) < 2:
        return list(itertools.product(*found))
    rows, across = found
    return [
        (label, across[(i + diagonal) % len(across)]) for diagonal in range(len(across)) for i, label in enumerate(rows)
    ]
