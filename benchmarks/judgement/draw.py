"""Draw what the page answers, from the kept results: as wide as a page, and for a phone."""

from __future__ import annotations

from typing import Any, NamedTuple

import matplotlib as mpl
from kept import RESULTS, Slices
from matplotlib.axes import Axes
from PIL import Image

from sciscidata.plots.figure import COLOURS, INK, PALE, Look, drawing

IMAGES = RESULTS.parents[2] / "docs" / "images"
TITLE = (
    "Words or a small language model add little to what was known at publication. Accuracy on disruptive against "
    "consolidating papers, with intervals of 95 %."
)
#: By what a way saw.
PALETTE = {
    "text": COLOURS["consolidating"], "known": COLOURS["novel"], "both": COLOURS["conventional"],
    "later": COLOURS["neutral"],
}  # fmt: skip


class Dot(NamedTuple):
    """A way to judge; ``kind`` is one of PALETTE.

    ``tests`` has accuracy, low and high on the first test and the second, None where not run.
    """

    name: str
    saw: str
    kind: str
    tests: tuple[tuple[float, float, float] | None, ...]


def draw_answer(slices: Slices, dots: list[Dot]) -> None:
    """Draw a row for each way, from the first at the top."""
    mpl.use("agg")
    wide, narrow = Look(width="two", title=TITLE), Look(width="one", title=TITLE)
    for look, name in ((wide, "judgement"), (narrow, "judgement_narrow")):
        with drawing(look, heights_mm=[11 * len(dots) + 24]) as picture:
            (axis,) = picture.panels
            draw_dots(axis, dots, slices["two"]["ceiling"]["accuracy"], is_narrow=picture.is_narrow)
        picture.figure.savefig(IMAGES / f"{name}.png", dpi=200 if picture.is_narrow else 180)
        with Image.open(IMAGES / f"{name}.png") as drawn:
            drawn.convert("RGB").quantize(128).save(IMAGES / f"{name}.png", optimize=True)


def draw_dots(axis: Axes, dots: list[Dot], ceiling: float, *, is_narrow: bool) -> None:
    """Draw the rows; names stand left of the dots, and on a phone above them."""
    low, high = (0.46 if is_narrow else 0.27), 0.85
    for number, dot in enumerate(reversed(dots)):
        colour = PALETTE[dot.kind]
        for at, test in enumerate(dot.tests):
            if test:
                y = number - 0.22 * at
                axis.plot(test[1:], (y, y), color=colour, linewidth=1.2)
                axis.plot(test[0], y, "o", color=colour, markersize=5, markerfacecolor="white" if at else colour)
        bold: dict[str, Any] = {"color": colour, "fontweight": "bold", "fontsize": 7.5, "va": "center"}
        if is_narrow:
            plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            axis.text(low, number + 0.38, dot.name, bbox=plate, **bold)
            axis.text(high, number + 0.38, dot.saw, color=INK, va="center", ha="right", fontsize=6.5, bbox=plate)
        else:
            axis.text(low, number + 0.1, dot.name, **bold)
            axis.text(low, number - 0.22, dot.saw, color=INK, va="center", fontsize=6.5)
        if dot.kind == "later":
            axis.axhline(number + (0.62 if is_narrow else 0.45), color=PALE, linewidth=0.6, linestyle=":")
    for x, said in ((0.5, "chance"), (ceiling, "ceiling")):
        axis.axvline(x, color=PALE, linewidth=0.8, zorder=0)
        axis.text(x, len(dots) - 0.25, said, ha="center", va="bottom", color=INK, fontsize=7)
    axis.plot([], [], "o", color=INK, markersize=5, label="first test")
    axis.plot([], [], "o", color=INK, markersize=5, markerfacecolor="white", label="second test, looked at once")
    axis.set(xlim=(low, high), ylim=(-0.6, len(dots) - 0.1), xlabel="accuracy", yticks=())
    axis.xaxis.set_label_coords((0.66 - low) / (high - low), -0.1)
    axis.set_xticks([0.5, 0.6, 0.7, 0.8])
    axis.spines["bottom"].set_bounds(0.47, high)
    axis.spines["left"].set_visible(False)
    axis.figure.legend(loc="outside lower center", ncols=2)
