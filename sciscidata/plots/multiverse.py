"""The specification curve: every estimate of a multiverse in order, and the choices behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Int64Array
from sciscidata.disruption.specifications import Multiverse
from sciscidata.errors import EmptyInputError
from sciscidata.frames import AnyFrame
from sciscidata.judged import name_window
from sciscidata.plots.figure import Look, drawing, plain, write_share
from sciscidata.plots.measure import name_column
from sciscidata.plots.palette import COLOURS, INK
from sciscidata.terminal.messages import counted, shorten
from sciscidata.terminal.shares import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Above 0, below it, and neither; an interval that holds 0 makes no side.
_SIDES: Final = {1: COLOURS["disruptive"], -1: COLOURS["consolidating"], 0: COLOURS["neutral"]}
_SIDE: Final = {1: "above", -1: "below"}
_CURVE_MM: Final = 62.0
_ROW_MM: Final = 3.3
_BETWEEN_ROWS: Final = 0.6  # of a row, between two choices
_LETTERS: Final = 24
_PANEL: Final = 0.7  # of the width that specifications share
_MM_PER_POINT: Final = 25.4 / 72
_HEADS: Final = {
    "missing": "missing citations",
    "self_citations": "self-citations",
    "population": "works",
    "min_references": "references",
    "min_citers": "citers",
}


class _Row(NamedTuple):
    """One value of a choice in the matrix, and which specifications chose it."""

    name: str
    chose: Int64Array


def plot_multiverse(specifications: AnyFrame, **look: Unpack[Look]) -> Figure:
    """Plot a multiverse as a specification curve: estimates in order with their intervals, and below what was chosen.

    Args:
        specifications: those of ``run_multiverse(...)``, or further ones of the same columns: works, estimate, low,
            high, problem; every other column is a choice. Those with one value are not drawn.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure: (a) estimates, in the colour of the side on which their interval is off 0; the diamond is the main
        specification, the first row; (b) a mark for each choice made. At the right, how much of the variance of the
        estimates a choice alone explains.

    Raises:
        SchemaMismatchError: a column is missing or has another type.
        EmptyInputError: no specification has an estimate.

    Example:
        >>> table = pl.DataFrame({"window": ["5", "10"], "works": [9, 9], "estimate": [0.5, 0.1], "low": [0.2, -0.1],
        ...     "high": [0.8, 0.3], "problem": [None, None]})
        >>> plot_multiverse(table).get_label().partition(":")[0]
        '2 specifications in order of their estimates, with their intervals'
    """
    found = Multiverse(specifications)
    rows = found.specifications.with_row_index("place").drop_nulls("estimate").sort("estimate", "place")
    if rows.is_empty():
        raise EmptyInputError("plot_multiverse: no specification has an estimate. The column problem says why.")
    influence = {row["choice"]: row["share_of_variance"] for row in found.influence.iter_rows(named=True)}
    matrix = {choice: _lay_out(rows, choice) for choice in influence}
    n_rows = sum(map(len, matrix.values())) + _BETWEEN_ROWS * len(matrix)
    with drawing(look, heights_mm=(_CURVE_MM, 8 + _ROW_MM * max(n_rows, 1)), columns=1, share="x") as picture:
        curve, choices = picture.panels
        colours, room = _colour(rows), _PANEL * picture.width_mm / _MM_PER_POINT / rows.height
        _draw_curve(curve, rows, colours, room)
        _draw_choices(choices, matrix, colours, room)
        choices.set_xlim(curve.get_xlim())  # Axes of one's own share nothing
        _name_choices(choices, matrix, influence)
        picture.caption = _describe(found, rows, is_drawn=bool(matrix))
        picture.finding = _find(found, rows)
    return picture.figure


def _colour(rows: pl.DataFrame) -> list[str]:
    """Choose the colour of each estimate, by the side on which its interval is; neutral without an interval."""
    side = pl.when(pl.col("low") > 0).then(1).when(pl.col("high") < 0).then(-1).otherwise(0)
    return [_SIDES[one] for one in rows.select(side.alias("side"))["side"]]


def _draw_curve(axes: Axes, rows: pl.DataFrame, colours: list[str], room: float) -> None:
    """Draw the estimates over their rank; ``room`` is the width of one, in points."""
    x, estimate = np.arange(rows.height), rows["estimate"].to_numpy()
    low, high = (rows[name].fill_null(np.nan).to_numpy() for name in ("low", "high"))
    axes.axhline(0, color=INK, lw=0.6, zorder=1)
    axes.vlines(x, low, high, color=colours, lw=float(np.clip(0.6 * room, 0.25, 1.2)), alpha=0.4, zorder=2)
    axes.scatter(x, estimate, s=float(np.clip(room, 1.3, 4.0)) ** 2, c=colours, lw=0, zorder=3)
    main = np.flatnonzero(rows["place"].to_numpy() == 0)
    axes.plot(main, estimate[main], "D", ms=5, mfc="white", mec=INK, mew=1.0, zorder=4)
    room = 0.02 * rows.height + 0.5
    axes.set_xlim(-room, rows.height - 1 + room)
    axes.set_ylabel("estimate")
    axes.tick_params(axis="x", bottom=False, labelbottom=False)


def _lay_out(rows: pl.DataFrame, choice: str) -> list[_Row]:
    """Name the values of a choice in the order of the specifications, and find which ones chose each."""
    values = rows.sort("place")[choice].unique(maintain_order=True).drop_nulls()
    return [_Row(_name(choice, value), np.flatnonzero((rows[choice] == value).to_numpy())) for value in values]


def _name(choice: str, value: object) -> str:
    """Write a value of a choice for the matrix.

    Example:
        >>> _name("window", "10"), _name("missing", 0.1), _name("index", "di_nok_index"), _name("min_citers", 5)
        ('10 years', '10 %', 'DI nok index', 'at least 5')
    """
    text = str(value)
    if choice == "window":
        text = name_window(f"_{value}") or text
    elif choice == "missing" and isinstance(value, float):
        text = write_share(value)
    elif choice.startswith("min_"):
        text = f"at least {value}" if value else "any"
    elif choice == "index":
        text = name_column(text).replace("di", "DI", 1) if text.startswith("di") else name_column(text)
    return plain(shorten(text, _LETTERS))


def _draw_choices(axes: Axes, matrix: dict[str, list[_Row]], colours: list[str], room: float) -> None:
    """Draw a mark for each specification beside the values that it chose."""
    ticks: dict[float, str] = {}
    y = 0.0
    for values in matrix.values():
        axes.axhspan(y - 0.5, y + len(values) - 0.5, color="#F4F4F4", lw=0, zorder=0)
        for value in values:
            look: dict[str, Any] = {
                "color": [colours[i] for i in value.chose],
                "lw": float(np.clip(0.6 * room, 0.2, 3)),
            }
            axes.vlines(value.chose, y - 0.36, y + 0.36, **look)
            ticks[y] = value.name
            y += 1
        y += _BETWEEN_ROWS
    axes.set_yticks([*ticks], [*ticks.values()])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(y - _BETWEEN_ROWS, 1) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("specifications, by estimate")
    axes.tick_params(axis="x", bottom=False, labelbottom=False)


def _name_choices(axes: Axes, matrix: dict[str, list[_Row]], influence: dict[str, float | None]) -> None:
    """Write at the right what each choice is, and how much it explains."""
    y = 0.0
    for choice, values in matrix.items():
        share, name = influence[choice], _HEADS.get(choice, choice.replace("_", " "))
        text = plain(shorten(name, _LETTERS)) + ("" if share is None else f"\n{percent(share)} of variance")
        place: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
        axes.text(1.01, y + (len(values) - 1) / 2, text, fontsize=7, **place)
        y += len(values) + _BETWEEN_ROWS


def _find(found: Multiverse, rows: pl.DataFrame) -> str:
    """Say how many estimates agree in sign."""
    side, n = _SIDE.get(found.sign), rows.height
    if side is None:
        return f"As many of {n:,} estimates lie above 0 as below"
    return f"{percent(found.share_same_sign)} of {counted(n, 'estimate')} lie {side} 0"


def _describe(found: Multiverse, rows: pl.DataFrame, *, is_drawn: bool) -> str:
    """Describe the picture, and what came out, in its title."""
    text = f"{counted(rows.height, 'specification')} in order of their estimates"
    side = _SIDE.get(found.sign)
    has_intervals = found.share_off_zero is not None
    text += ", with their intervals: " if has_intervals else ": "
    text += f"{percent(found.share_same_sign)} lie {side} 0" if side else "as many lie above 0 as below"
    if has_intervals:
        on_sides = (found.share_off_zero, found.share_against)[:: found.sign or 1]
        text += "; intervals off 0 (coloured): {} above, {} below".format(
            *(percent(share or 0.0) for share in on_sides)
        )
    text += ". Diamond: the main specification."
    text += " Below: what each chose, and how much of the variance a choice alone explains." if is_drawn else ""
    return text + (
        f" Not shown: {counted(found.n_failed, 'specification')} without estimate." if found.n_failed else ""
    )
