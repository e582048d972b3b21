"""How many works of every class a balanced draw takes, and in what order what does not divide evenly is handed out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

from sciscidata.labels import VOCABULARIES

Label = TypeVar("Label")


def class_quotas(n: int, labels: Sequence[Label]) -> dict[Label, int]:
    """Divide ``n`` works over the classes: equal shares, and what remains goes to the first in label order.

    This is the largest-remainder rule, whose remainders are all equal here.

    Args:
        n: 0 or more.
        labels: the classes, in label order; at least one.

    Example:
        >>> class_quotas(5000, ("disruptive", "consolidating", "neutral"))
        {'disruptive': 1667, 'consolidating': 1667, 'neutral': 1666}
    """
    share, rest = divmod(n, len(labels))
    return {label: share + (place < rest) for place, label in enumerate(labels)}


def quota_cells(columns: Sequence[str]) -> list[tuple[str, ...]]:
    """List the cells that label columns make up, in the order in which ``class_quotas`` hands out what remains.

    One column: its classes, in label order. Two: by the diagonals of their table, so that a draw that nine does not
    divide is still as even as it can be in each of the two labels.

    Args:
        columns: none, one, or two with as many classes.

    Example:
        >>> quota_cells(["novelty_label"])
        [('novel',), ('balanced',), ('conventional',)]
        >>> quota_cells(["disruption_label", "novelty_label"])[:3]
        [('disruptive', 'novel'), ('consolidating', 'balanced'), ('neutral', 'conventional')]
    """
    vocabularies = [VOCABULARIES[column] for column in columns]
    if len(vocabularies) < 2:
        return list(itertools.product(*vocabularies))
    rows, across = vocabularies
    return [
        (label, across[(i + diagonal) % len(across)]) for diagonal in range(len(across)) for i, label in enumerate(rows)
    ]
