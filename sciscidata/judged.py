"""Which works count: a work is judged if its citation window is over in the data, and a work in it cites it.

An index of 0 for lack of citers is the value of the definition, no finding. One of an open window is not known yet. So
whatever sums up works counts judged ones, and says how many it leaves out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from typing import Final, Literal, NamedTuple

import polars as pl

from sciscidata.options.checks import check_value
from sciscidata.terminal.messages import counted

logger = logging.getLogger(__name__)

#: Which works count: those that are judged, or all that have a value.
Population = Literal["judged", "all"]

#: Whether the window of a work is over before the data's last year. Null: no year, or a window without end. For
#: further windows there is ``window_complete_10``.
WINDOW_COMPLETE: Final = "window_complete"

#: Whether a row counts, its window is open, or nothing cites it in a window that is over.
MARKS: Final = ("_counts", "_open", "_uncited")

_MEASURES: Final = re.compile(
    r"(?:m?cd_index|di[0-9]+_index|di_nok_index|di[0-9]+_nok_index|dependence|inverse_dependence|orig_base|cd_low|cd_high"
    r"|cd_shrunk|disruption_label|label_confidence|p_consolidating|p_neutral|p_disruptive)"
    r"((?:_(?:[0-9]+(?:d|mo)?|until[0-9]+|all))?)(?:_percentile)?"
)


def window_of(column: str) -> str | None:
    """Return what the columns of a measure's window end with; None of columns that are no measure of disruption.

    Example:
        >>> window_of("cd_index"), window_of("cd_index_10"), window_of("disruption_label_18mo"), window_of("z_p10")
        ('', '_10', '_18mo', None)
    """
    found = _MEASURES.fullmatch(column)
    return found and found[1]


def name_window(window: str) -> str:
    """Say how long a window is, by what its columns end with; "" where these do not say it.

    Example:
        >>> [name_window(window) for window in ("_3", "_18mo", "_until2017", "_all", "")]
        ['3 years', '18 months', 'until 2017', 'all years', '']
    """
    parts = re.fullmatch(r"_(until|)([0-9]+)(d|mo|)", window)
    if parts is None:
        return "all years" if window == "_all" else ""
    if parts[1]:
        return f"until {parts[2]}"
    return counted(int(parts[2]), {"d": "day", "mo": "month", "": "year"}[parts[3]])


def n_citers(window: str = "") -> pl.Expr:
    """Return the number of works that cite a work in the window (Int64)."""
    return pl.col(f"n_i{window}").cast(pl.Int64) + pl.col(f"n_j{window}").cast(pl.Int64)


def is_judged(window: str = "") -> pl.Expr:
    """Say whether a work is judged, as an expression for ``filter``: its window is over, and something in it cites it.

    Args:
        window: what the columns of the window end with, ``"_10"`` for ``n_i_10``, ``n_j_10`` and
            ``window_complete_10``. "": those of ``CDConfig.window_years``.

    Returns:
        A Boolean expression over the scores of ``compute_cd_index``, never null. A window without end counts as over.

    Example:
        >>> scores = pl.DataFrame({"n_i": [2, 0, 2], "n_j": [1, 0, 0], "window_complete": [True, True, False]})
        >>> scores.select(is_judged())["window_complete"].to_list()
        [True, False, False]
    """
    return is_over(window) & is_cited(window)


def is_cited(window: str = "") -> pl.Expr:
    """Say whether a work in the window cites a work; never null."""
    return (n_citers(window) > 0).fill_null(value=False)


def counts_in_both() -> pl.Expr:
    """Say of rows of CHANGES whether a work counts: it has a label in A or B, and is judged in both, if that is known.

    Example:
        >>> row = {"status": "kept", "label_a": "neutral", "label_b": None, "judged_a": True, "judged_b": None}
        >>> pl.DataFrame([row], schema_overrides={"judged_b": pl.Boolean}).select(counts_in_both()).item()
        True
    """
    is_labelled = pl.col("label_a").is_not_null() | pl.col("label_b").is_not_null()
    is_judged_in_both = (pl.col(f"judged_{side}").fill_null(value=True) for side in "ab")
    return (pl.col("status") == "kept") & is_labelled & pl.all_horizontal(is_judged_in_both)


def is_over(window: str = "") -> pl.Expr:
    """Say whether the window of a work is over, by its column; never null: one that is not known counts as over."""
    return pl.col(WINDOW_COMPLETE + window).cast(pl.Boolean).fill_null(value=True)


def is_over_by_year(first_open: int | pl.Expr | None) -> pl.Expr:
    """Make the column WINDOW_COMPLETE from publication_year; null without a year.

    ``first_open`` is the first year whose window is not over. None: that is not known, and all are null.

    Example:
        >>> pl.DataFrame({"publication_year": [2018, 2019, None]}).select(is_over_by_year(2019)).to_series().to_list()
        [True, False, None]
    """
    over = pl.lit(None, pl.Boolean) if first_open is None else pl.col("publication_year") < first_open
    return over.alias(WINDOW_COMPLETE)


class LeftOut(NamedTuple):
    """How many works with a value do not count, each once, and what is not known.

    Attributes:
        judged: works that count.
        open: works whose window is not over.
        uncited: other works that nothing cites in the window.
        lacks: columns of which the frame has none, so that all works count, or those of open windows.
        window: what the columns of the window end with.
        counts_all: whether ``open`` and ``uncited`` count all the same, as asked.
    """

    judged: int = 0
    open: int = 0
    uncited: int = 0
    lacks: tuple[str, ...] = ()
    window: str = ""
    counts_all: bool = False

    @property
    def is_any(self) -> bool:
        """Whether a work is left out."""
        return not self.counts_all and self.open + self.uncited > 0

    def describe(self, noun: str = "work") -> str:
        """Say it at the end of a caption, without code; ``noun`` is what is counted.

        Example:
            >>> LeftOut(100, open=1, uncited=2_000).describe()
            ' Left out: 2,000 works uncited in the window and 1 work whose window is not over.'
            >>> LeftOut(100, uncited=20, window="_10", counts_all=True).describe()
            ' Counted too: 20 works uncited within 10 years.'
            >>> LeftOut(100, lacks=("n_i", "n_j")).describe()
            ' Works that are uncited, or whose window is not over, may be among them.'
        """
        many = noun.replace(" ", "s ", 1) + "s"
        length = name_window(self.window)
        within = "in the window" if not length else length if "until" in length else f"within {length}"
        parts = [f"{counted(self.uncited, noun, many)} uncited {within}"] if self.uncited else []
        parts += [f"{counted(self.open, noun, many)} whose window is not over"] if self.open else []
        text = f" {'Counted too' if self.counts_all else 'Left out'}: {' and '.join(parts)}." if parts else ""
        if len(self.lacks) > 1:
            return f"{text} Works that are uncited, or whose window is not over, may be among them."
        return f"{text} Works whose window is not over may be among them." if self.lacks else text

    def log(self, stage: str) -> None:
        """Say the same in one line, with what to do."""
        if self.is_any:
            logger.info(
                "%s: %s count.%s To count all: population='all'.",
                *(stage, counted(self.judged, "judged work"), self._replace(lacks=()).describe()),
            )
        if self.lacks:
            logger.info(
                "%s: which works are judged is not known, since the frame lacks %s. Join the scores of "
                "compute_cd_index.",
                *(stage, " and ".join(self.lacks)),
            )


class Choice(NamedTuple):
    """Which rows count, as an expression, and the columns that it would need besides; None: all rows count.

    ``counts_all`` is set where all were asked for, and it is known which of them are judged.
    """

    counts: pl.Expr | None = None
    lacks: tuple[str, ...] = ()
    window: str = ""
    counts_all: bool = False

    def marks(self, of: str = "") -> list[pl.Expr]:
        """Return the columns MARKS for ``take``, to be read beside what is summed up; their names begin with ``of``."""
        every, is_open, is_uncited = pl.lit(value=True), pl.lit(value=False), pl.lit(value=False)
        if self.counts is not None or self.counts_all:
            is_open = is_open if self.lacks else ~is_over(self.window)
            every, is_uncited = every if self.counts is None else self.counts, ~is_cited(self.window) & ~is_open
        return [mark.alias(of + name) for mark, name in zip((every, is_open, is_uncited), MARKS, strict=True)]

    def take(self, rows: pl.LazyFrame, stage: str) -> tuple[pl.LazyFrame, LeftOut]:
        """Keep the rows that count, of rows with ``marks``; count those of the others that lack nothing, and log it."""
        left_out = self.count_marked(rows)
        left_out.log(stage)
        return (rows if self.counts is None else rows.filter("_counts")).drop(MARKS), left_out

    def count_left_out(self, rows: pl.LazyFrame, column: str) -> LeftOut:
        """Count the rows that have a value in ``column``, and do not count."""
        return self.count_marked(rows.filter(pl.col(column).is_not_null()).select(self.marks()))

    def count_marked(self, marked: pl.LazyFrame) -> LeftOut:
        """Count the rows with ``marks`` that lack nothing."""
        if self.counts is None and not self.counts_all:
            return LeftOut(lacks=self.lacks, window=self.window)
        sums = marked.drop_nulls().select(pl.col(MARKS).sum()).collect(engine="streaming")
        lacks = () if self.counts_all else self.lacks
        return LeftOut(*sums.row(0), lacks=lacks, window=self.window, counts_all=self.counts_all)


def choose_works(columns: Collection[str], y: str, population: Population, window: str | None = None) -> Choice:
    """Choose the rows that count where the column ``y`` is summed up, in a frame of ``columns``.

    ``window`` is that of ``y``, by its name when None. Rows count all if ``y`` is no measure of disruption.
    """
    check_value("population", population, Population)
    window = window_of(y) if window is None else window
    if window is None:
        return Choice()
    if population == "all":
        judged = choose_works(columns, y, "judged", window)
        return Choice() if judged.counts is None else Choice(None, judged.lacks, window, counts_all=True)
    if lacks := tuple(name + window for name in ("n_i", "n_j") if name + window not in columns):
        return Choice(None, lacks if len(lacks) > 1 else (*lacks, WINDOW_COMPLETE + window), window)
    if WINDOW_COMPLETE + window in columns:
        return Choice(is_judged(window), (), window)
    return Choice(is_cited(window), (WINDOW_COMPLETE + window,), window)


def choose_population(rows: pl.LazyFrame, y: str, population: Population, stage: str) -> tuple[pl.LazyFrame, LeftOut]:
    """Keep the rows that count where the column ``y`` is summed up; count the others, and log how many there are."""
    choice = choose_works(rows.collect_schema().names(), y, population)
    left_out = choice.count_left_out(rows, y)
    left_out.log(stage)
    return (rows if choice.counts is None else rows.filter(choice.counts)), left_out


def watch_labels(labelled: pl.LazyFrame, indices: Sequence[str], stage: str, *, is_lazy: bool) -> pl.LazyFrame:
    """Log, of a lazy frame when it is collected, how many labels are of works that are not judged.

    Warn of values of ``indices`` that no CD index has: they may be of another index, or in percent.
    """
    if not indices:
        return labelled
    counts, holder = ("n_i", "n_j", WINDOW_COMPLETE), indices[0].replace("cd_index", "disruption_label")
    has_counts = {"disruption_label", *counts} <= {*labelled.collect_schema()}
    choice = choose_works(counts, "disruption_label", "judged") if has_counts else Choice()

    def say(rows: pl.Series | pl.LazyFrame) -> pl.Series:
        frame = rows.struct.unnest().lazy() if isinstance(rows, pl.Series) else rows
        found = choice.count_left_out(frame, "disruption_label") if has_counts else LeftOut()
        if found.open or found.uncited:
            logger.info(
                "%s: %s of %s labels are of works that are not judged: %s uncited in the window, and of %s the window "
                "is not over.",
                *(stage, f"{found.open + found.uncited:,}", f"{sum(found[:3]):,}"),
                *(f"{found.uncited:,}", f"{found.open:,}"),
            )
        for index in indices:
            values = frame.select(pl.col(index).cast(pl.Float64).fill_nan(None)).filter(pl.col(index).abs() > 1)
            n, largest = values.select(pl.len(), pl.col(index).abs().max()).collect().row(0)
            if n:
                logger.warning(
                    "%s: %s beyond -1 to 1 in %s, up to %g. A CD index has none: divide by 100 if it is in percent.",
                    *(stage, counted(n, "value lies", "values lie"), index, largest),
                )
        return rows.struct.field(holder) if isinstance(rows, pl.Series) else pl.Series()

    if not is_lazy:
        say(labelled)
        return labelled
    columns = dict.fromkeys([holder, *(("disruption_label", *counts) if has_counts else ()), *indices])
    return labelled.with_columns(pl.struct(*columns).map_batches(say, return_dtype=pl.String).alias(holder))
