"""What ``--balance`` does: which labels get equal counts, and how many works each of their classes gets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from sciscidata.errors import ConfigError
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.options.checks import show_value
from sciscidata.own_label import OwnLabel, vocabularies

Label = TypeVar("Label")

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


def check_choices(
    labels: Sequence[str],
    balance: str,
    test_fields: Sequence[str] = (),
    label: OwnLabel | None = None,
    *,
    n_test: int = 1,
) -> None:
    """Raise a ConfigError unless ``labels`` are two or more classes of the balanced labels, and fields can be held out.

    Classes of an own label that are not known yet are not checked: a build finds them.
    """
    if test_fields and not n_test:
        raise ConfigError(
            "SplitConfig.test_fields holds fields out for test, and SplitConfig.n_test is 0. Raise it, or leave the "
            "fields out."
        )
    if test_fields and balance == "pool":
        raise ConfigError(
            "SplitConfig.test_fields holds fields out for test, and SplitConfig.balance='pool' divides one pool "
            "between train and test. Set SplitConfig.balance='disruption'."
        )
    if not labels:
        return
    of = balance.partition("_within")[0]
    if of == "label":
        vocabularies = [label.classes] if label is not None and label.classes else []
        if not vocabularies:
            return
    else:
        vocabularies = [VOCABULARIES[column] for column in BALANCED[of]]
    known = [word for words in vocabularies for word in words]
    if not known:
        raise ConfigError(
            f"SplitConfig.labels is {show_value(labels)}, and SplitConfig.balance={balance!r} balances no label. Name "
            "a balance, such as SplitConfig.balance='disruption', or leave the labels out."
        )
    each = [sum(word in labels for word in words) or len(words) for words in vocabularies]
    if not {*labels} <= {*known} or len({*labels}) < len(labels) or math.prod(each) < 2:
        raise ConfigError(
            f"SplitConfig.labels is {show_value(labels)}, needs two or more different ones of {', '.join(known)}, the "
            f"classes of SplitConfig.balance={balance!r}. Name these."
        )


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
