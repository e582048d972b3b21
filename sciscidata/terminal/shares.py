"""How programs, pages and pictures write a share."""

from __future__ import annotations


def percent(share: float, digits: int = 0) -> str:
    """Write a share with as many digits as are asked for.

    Example:
        >>> percent(0.0478, 1), percent(0.9566)
        ('4.8 %', '96 %')
    """
    return f"{100 * share:.{digits}f} %"
