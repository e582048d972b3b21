"""The colours of every picture of this repository: of labels, lines and shades; and letters that can be read on them.

Colour-blind readers can tell them apart (Okabe & Ito 2008), and disruptive has one colour everywhere.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

#: One colour per label.
COLOURS: Final = {
    "disruptive": "#D55E00",
    "consolidating": "#0072B2",
    "neutral": "#777777",
    "novel": "#007A59",  # their green, darker: as text it has to be read
    "conventional": "#A3487E",  # their purple, darker
    "balanced": "#777777",
}
#: Lines that are no labels, in the order in which they are taken; without yellow, which is too pale on white.
LINES: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#777777")
#: How to tell lines apart without colour.
MARKERS: Final = "os^Dv<>pPX"
DASHES: Final = ("-", "--", ":", "-.")
INK: Final = "#333333"
PALE: Final = "#BBBBBB"
GRID: Final = "#EEEEEE"
#: Shades of a number: from dark to bright, also in grey.
RAMP: Final = "cividis"
#: What WCAG 2.2 asks of letters against what is behind them (success criterion 1.4.3).
LEAST_CONTRAST: Final = 4.5
_BEHIND: Final = "#E4E4E4"  # coloured letters may stand on a tint, too
_DARKER: Final = 0.97


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours after WCAG 2.2: from 1 to 21.

    Example:
        >>> contrast("white", "black"), round(contrast("white", COLOURS["disruptive"]), 1)
        (21.0, 3.9)
    """
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def letters_on(colour: str) -> str:
    """Return black or white: the colour in which letters can be read on another one.

    Example:
        >>> letters_on(COLOURS["disruptive"]), letters_on(COLOURS["consolidating"])
        ('black', 'white')
    """
    return max(("white", "black"), key=lambda letters: contrast(letters, colour))


@lru_cache
def as_letters(colour: str, behind: str = _BEHIND) -> str:
    """Return a colour for letters: as it is where it can be read, else darker.

    Example:
        >>> as_letters(INK), as_letters(COLOURS["disruptive"])
        ('#333333', '#a84a00')
    """
    from matplotlib.colors import to_hex, to_rgb

    if contrast(colour, behind) >= LEAST_CONTRAST:
        return colour
    red, green, blue = (_DARKER * part for part in to_rgb(colour))
    return as_letters(to_hex((red, green, blue)), behind)


def shade(n: int, first: float = 0.0, last: float = 1.0) -> list[str]:
    """Return shades of an ordered quantity, from one place of the ramp to another.

    Example:
        >>> shade(3)
        ['#00224e', '#7d7c78', '#fee838']
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    steps = (first + (last - first) * i / max(n - 1, 1) for i in range(n))
    return [to_hex(colormaps[RAMP](step)) for step in steps]


def _luminance(colour: str) -> float:
    from matplotlib.colors import to_rgb

    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
