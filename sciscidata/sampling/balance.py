"""What ``--balance`` does: which labels get equal counts, and how many works each of their classes gets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeVar

from sciscidata.own_label import OwnLabel, vocabularies

Label = TypeVar("Label")
Balance = Literal["disruption", "novelty", "joint", "pool", "none", "label"]

#: The label columns whose classes are drawn in equal numbers; ``balanced_columns`` knows that of ``"label"`` too.
BALANCED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "disruption": ("disruption_label",),
        "novelty": ("novelty_label",),
        "joint": ("disruption_label", "novelty_label"),
        "pool": ("disruption_label",),
        "none": (),
    }
)


def class_quotas(n: int, labels: Sequence[Label]) -> dict[Label, int]:
    """Divide ``n`` works over the classes: equal shares, and the remainder goes to the first in label order.

    Example:
        >>> class_quotas(5000, ("disruptive", "consolidating", "neutral"))
        {'disruptive': 1667, 'consolidating': 1667, 'neutral': 1666}
    """
    share, rest = divmod(n, len(labels))
    return {label: share + (place < rest) for place, label in enumerate(labels)}


def quota_cells(columns: Sequence[str], label: OwnLabel | None = None) -> list[tuple[str, ...]]:
    """List the cells that label columns make up, in the order in which ``class_quotas`` hands out the remainder.

    One column: its classes, in label order. Two: by the diagonals of their table, so that a draw that nine does not
    divide is still as even as possible in each of the two labels. ``label`` is the own label, if a column has it.

    Example:
        >>> quota_cells(["novelty_label"])
        [('novel',), ('balanced',), ('conventional',)]
        >>> quota_cells(["disruption_label", "novelty_label"])[:3]
        [('disruptive', 'novel'), ('consolidating', 'balanced'), ('neutral', 'conventional')]
    """
    words = vocabularies(label)
    found = [words[column] for column in columns]
    if len(found) < 2:
        return list(itertools.product(*found))
    rows, across = found
    return [
        (label, across[(i + diagonal) % len(across)]) for diagonal in range(len(across)) for i, label in enumerate(rows)
    ]
