"""What the classes of works say in one sentence: the title of a picture, and its text where it cannot be seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: What works of a label do, of one and of several; a label of one's own has no verb.
_DO: Final = {
    "disruptive": ("disrupts", "disrupt"),
    "consolidating": ("consolidates", "consolidate"),
    **{label: (f"is {label}", f"are {label}") for label in ("neutral", "novel", "balanced", "conventional")},
}


def say_classes(counts: Mapping[str, int], *, is_synthetic: bool = False) -> str:
    """Say which class is the largest, and how many works each other one has; "" without works.

    Example:
        >>> say_classes({"disruptive": 129, "consolidating": 1_019, "neutral": 63})
        'Most papers consolidate: 1,019 of 1,211; 129 disrupt, 63 are neutral'
        >>> say_classes({"novel": 40, "balanced": 1, "conventional": 59}, is_synthetic=True)
        'Synthetic: most papers are conventional: 59 of 100; 40 are novel, 1 is balanced'
        >>> say_classes({"top": 5, "rest": 5})
        'No class has most of the 10 papers: 5 are top, 5 are rest'
    """
    total = sum(counts.values())
    if not total:
        return ""
    ordered = sorted(counts.items(), key=lambda one: -one[1])
    said = {label: f"{n:,} {_DO.get(label, (f'is {label}', f'are {label}'))[n != 1]}" for label, n in ordered}
    largest = next(iter(said))
    if 2 * counts[largest] > total:
        others = ", ".join(text for label, text in said.items() if label != largest)
        does = _DO.get(largest, ("", f"are {largest}"))[1]
        text = f"Most papers {does}: {counts[largest]:,} of {total:,}" + (f"; {others}" if others else "")
    else:
        text = f"No class has most of the {total:,} papers: {', '.join(said.values())}"
    return mark_synthetic(text) if is_synthetic else text


def mark_synthetic(finding: str) -> str:
    """Say at the beginning of a finding that its data are made up.

    Example:
        >>> mark_synthetic("Most papers consolidate")
        'Synthetic: most papers consolidate'
    """
    return f"Synthetic: {finding[:1].lower()}{finding[1:]}" if finding else ""
