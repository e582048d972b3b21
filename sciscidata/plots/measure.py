"""A statistic of a score in groups of works with its interval at 95 %, from any frame."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn, get_args

import numpy as np
import numpy.typing as npt
import polars as pl
from polars import selectors

from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError
from sciscidata.frames import AnyFrame, to_lazy
from sciscidata.intervals import mean_interval, student, wilson_interval
from sciscidata.judged import Choice, LeftOut, Population, choose_works, name_window, window_of
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.options.did_you_mean import suggest
from sciscidata.records.ids import UNITS
from sciscidata.terminal.messages import counted

logger = logging.getLogger(__name__)

Stat = Literal["mean", "median", "percentile", "share"]
Numbers = npt.NDArray[Any]

MEASURED: Final = ("n_works", "value", "low", "high")
_TITLES: Final = {
    "publication_year": "year of publication",
    "primary_field": "field",
    "cd_index": "CD index",
    "z_p10": "z (10th percentile)",
    "n_authors": "number of authors",
}
_AT_ONCE: Final = 1 << 18  # works; binning takes a hundred bytes for each of them


def measure_by(
    frame: AnyFrame,
    x: str,
    y: str = "cd_index",
    *,
    by: str | None = None,
    stat: Stat = "mean",
    population: Population = "judged",
    unit: str | None = "",
) -> pl.DataFrame:
    """Return a statistic of each group with its interval at 95 %: the numbers of ``plot_by``.

    Where works repeat, as in a table of works and authors, rows of one work are not independent. So intervals
    are by work: of a mean, Student's with the variance of the sums of works; of a share, Wilson's with as many works as
    have this variance; of a median, Woodruff's. Without repeated works these are the usual ones. Nothing is drawn at
    random, so equal works give equal intervals.

    Args:
        frame: one row per work, or several: ``x``, ``y`` and ``by``. Rows with a null in one of them do not count.
        x: the column of groups.
        y: a column of numbers; for shares, a label (``"disruptive"``) or a column of true and false.
        by: a second column of groups.
        stat: ``"mean"``, ``"median"`` or ``"share"``. ``"percentile"``: where the group's median lies among all works,
            from 0 to 100; works of equal score share the middle of their places. If more than half of the works have
            one score, a warning says so: all groups may stand on it.
        population: of measures of disruption, which works count. ``"judged"``: those whose citation window is over,
            and which something cites in it, by the columns of ``compute_cd_index``: ``n_i``, ``n_j``,
            ``window_complete``. A line of the log counts the others. ``"all"``: all with a value.
        unit: the column that says which rows are of one work. "": ``work_id``, ``original_id`` or ``openalex_id``,
            whichever comes first. None: no work repeats.

    Returns:
        A row per group, in ascending order, or in the order of the categories of an Enum or an ordered categorical of
        pandas: ``x`` and ``by`` as they are, ``n`` rows and ``n_works`` (Int64),
        ``value``, ``low`` and ``high`` (Float64). Ends are null where works are too few: one, or for medians about
        seven. No row where no row of ``frame`` counts; ``plot_by`` then has nothing to draw, and raises.

    Raises:
        ConfigError: ``by`` is ``x``, or one of them is called like a column of the result.
        SchemaMismatchError: a column is missing, or ``y`` is not of numbers.

    Source:
        Wilson 1927, doi:10.1080/01621459.1927.10502953; Woodruff 1952, doi:10.1080/01621459.1952.10483443. Median
        percentiles of the CD index by team size: Wu, Wang and Evans 2019, doi:10.1038/s41586-019-0941-9.

    Example:
        >>> papers = pl.DataFrame({"team_size": [1, 1, 2, 2], "cd_index": [0.5, 0.1, 0.0, -0.2]})
        >>> measure_by(papers, "team_size", unit=None).select("team_size", "n", pl.col("value").round(2)).rows()
        [(1, 2, 0.3), (2, 2, -0.1)]
        >>> measure_by(papers, "team_size", stat="percentile", unit=None)["value"].to_list()
        [75.0, 25.0]
    """
    keys = [x, *([by] if by is not None else [])]
    rows, _ = read_groups(frame, Asked(keys, y, stat, population, unit), "measure_by")
    return measure(rows, keys, y, stat, "measure_by")


class Asked(NamedTuple):
    """What is measured: see ``measure_by``."""

    keys: list[str]
    y: str
    stat: Stat
    population: Population
    unit: str | None


def read_groups(frame: AnyFrame, asked: Asked, stage: str) -> tuple[pl.LazyFrame, LeftOut]:
    """Read the groups, ``_value`` and ``_work`` of each row that counts."""
    keys, y, stat, population, unit = asked
    if stat not in get_args(Stat):
        raise ConfigError(f"stat is {stat!r}, needs one of {', '.join(get_args(Stat))}.{suggest(stat, get_args(Stat))}")
    if taken := {"n", *MEASURED} & {*keys}:
        raise ConfigError(f"{stage}: the result has a column {min(taken)!r} of its own. Rename yours before.")
    if len(keys) > len({*keys}):
        raise ConfigError(f"by is {keys[0]!r}, and so is x. Leave it out, or name another column of groups.")
    frame = to_lazy(frame, "the frame", stage)
    choice = choose_value(frame, y, stat, population)
    work = _read_unit(frame, unit, stage)
    return choice.take(read_values(frame, keys, {"_value": (y, stat)}, work, *choice.marks(), stage=stage), stage)


def _read_unit(frame: pl.LazyFrame, unit: str | None, stage: str) -> pl.Expr:
    """Number the works of rows, in their order; -1 for null."""
    columns = frame.collect_schema().names()
    if unit == "":
        unit = next((name for name in UNITS if name in columns), None)
        if unit is None:
            logger.warning(
                "%s: the frame has no %s, so every row counts as a work of its own. If works repeat, name the column "
                "of their ids: unit='...'. If not: unit=None.",
                *(stage, " or ".join(UNITS)),
            )
    elif unit is not None and unit not in columns:
        raise ConfigError(f"{stage}: unit is {unit!r}, needs a column of the frame, or None.{suggest(unit, columns)}")
    work = pl.int_range(pl.len()) if unit is None else pl.col(unit).rank("dense")
    return work.cast(pl.Int64).fill_null(-1).alias("_work")


def choose_value(frame: pl.LazyFrame, y: str, stat: str, population: Population) -> Choice:
    """Choose the works that count where ``y`` is summed up: a column, or a label whose shares are measured."""
    schema = frame.collect_schema()
    if stat == "share" and y not in schema:
        y = next((column for column, words in VOCABULARIES.items() if y in words), y)
    return choose_works(schema.names(), y, population)


def count_hidden(rows: pl.LazyFrame, names: list[str], keys: list[str]) -> dict[str, int]:
    """Count the rows that lack a group or a value, each once, by the first that it lacks."""
    columns = [*keys, "_value"]
    lacks = pl.coalesce(pl.when(pl.col(column).is_null()).then(pl.lit(i)) for i, column in enumerate(columns))
    counts = dict(rows.select(lacks.alias("lacks")).drop_nulls().group_by("lacks").len().collect().rows())
    return {f"without {name}": counts.get(i, 0) for i, name in enumerate(names)}


def measure(rows: pl.LazyFrame, keys: list[str], y: str, stat: Stat, stage: str) -> pl.DataFrame:
    """Measure the groups of ``read_groups``: ``keys``, ``n`` and the columns of MEASURED."""
    known = rows.drop_nulls().sort(*keys, "_value", "_work").collect(engine="streaming")
    if stat == "percentile":
        value, each = known["_value"].to_numpy(), known.unique("_work", keep="first")["_value"].sort().to_numpy()
        places = np.searchsorted(each, value) + np.searchsorted(each, value, "right")
        _warn_of_ties(each, y, stage)
        known = known.with_columns(_value=50 * places / max(each.size, 1))
    if stat in ("mean", "share"):
        return estimate(add_up(known.lazy(), keys, ["_value"], work="_work"), keys, "_value", is_share=stat == "share")
    return _measure_medians(known, keys)


def _measure_medians(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Measure medians; the ends of an interval are the values at the ends of that of the share up to the median."""
    below = (pl.col("_value") <= pl.col("_value").median().over(keys)).cast(pl.Float64)
    groups = add_up(rows.lazy().with_columns(_value=below), keys, ["_value"], work="_work")
    n, n_works, share, squares = sums_of(groups, "_value")
    value, starts = rows["_value"].to_numpy(), np.cumsum(n) - n

    def pick(place: Numbers) -> Numbers:
        return value[starts + np.clip(place, 0, n - 1).astype(np.int64)] if n.size else np.empty(0)

    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.nan_to_num(student(n_works - 1.0) * 0.5 / np.sqrt(equal_works(share, squares, n, n_works)), nan=1.0)
    low = np.where(half < 0.5, pick(np.floor(n * (0.5 - half)) - 1), np.nan)
    high = np.where(half < 0.5, pick(np.ceil(n * (0.5 + half))), np.nan)
    return put_measured(groups, keys, n_works, (pick((n - 1) // 2) + pick(n // 2)) / 2, low, high)


def _warn_of_ties(values: Numbers, y: str, stage: str) -> None:
    middle = values[values.size // 2] if values.size else 0  # more than half of sorted values cover it
    n = int((values == middle).sum())
    if 2 * n > values.size > 1:
        cited = " population='judged' leaves uncited works out, by n_i and n_j." * y.startswith("cd_index")
        logger.warning(
            "%s: %s of %s works have %s %g, so medians of groups fall on one percentile. Leave these works "
            "out, or take stat='mean'.%s",
            *(stage, f"{n:,}", f"{values.size:,}", y, middle, cited),
        )


def add_up(rows: pl.LazyFrame, keys: Sequence[str], values: Sequence[str], *, work: str = "") -> pl.DataFrame:
    """Add up columns in each group, in one pass that holds no row; ``keys`` ascend.

    For each value v: ``n_v``, ``n_works_v``, ``mean_v`` and ``squares_v``, the sum over works of the square of what
    they differ by. Rows of one ``work`` (a column) are not independent: another pass adds up each work.

    Example:
        >>> rows = pl.LazyFrame({"year": [1, 1, 2], "cd": [0.5, 0.25, None], "work": [7, 7, 8]})
        >>> add_up(rows, ["year"], ["cd"], work="work").rows()
        [(1, 2, 2, 0.375, 1, 0.0)]
    """
    known = rows.filter(pl.any_horizontal(pl.col(values).is_not_null()))
    sums: dict[str, pl.Expr] = {"n": pl.len()}
    for value in values:
        n, squares = pl.col(value).count(), pl.col(value).var() * (pl.col(value).count() - 1)
        sums |= {f"n_{value}": n, f"mean_{value}": pl.col(value).mean()}
        sums |= {f"n_works_{value}": n, f"squares_{value}": squares.fill_null(0.0)}
    groups = known.group_by(keys).agg(**sums)
    if work:
        off = [(pl.col(value) - pl.col(f"mean_{value}")).sum().alias(value) for value in values]
        per_work = known.join(groups, on=keys).group_by(*keys, work).agg(off)
        squares = [(pl.col(value) ** 2).sum().alias(f"squares_{value}") for value in values]
        works = [pl.len().alias(f"n_works_{value}") for value in values]
        groups = groups.drop("^squares_.*|n_works_.*$").join(per_work.group_by(keys).agg(*works, *squares), on=keys)
    return groups.sort(keys).collect(engine="streaming").cast({pl.UInt32: pl.Int64})


def estimate(groups: pl.DataFrame, keys: Sequence[str], value: str, *, is_share: bool) -> pl.DataFrame:
    """Put mean and interval beside each group of ``add_up``: by Wilson of a share, else by Student."""
    n, n_works, mean, squares = sums_of(groups, value)
    equal_to = equal_works(mean, squares, n, n_works)
    ends = wilson_interval(mean, equal_to) if is_share else mean_interval(mean, squares, n, n_works)
    return put_measured(groups, keys, n_works, mean, *ends)


def put_measured(groups: pl.DataFrame, keys: Sequence[str], *columns: Numbers) -> pl.DataFrame:
    """Put works, value, and the ends of its interval beside each group; NaN is null."""
    measured = [pl.Series(name, column).fill_nan(None) for name, column in zip(MEASURED, columns, strict=True)]
    return groups.select(*keys, "n").with_columns(measured)


def sums_of(groups: pl.DataFrame, value: str) -> list[Numbers]:
    """Return the columns of a value of ``add_up``: rows, works, mean, squares."""
    return [groups[f"{part}_{value}"].to_numpy() for part in ("n", "n_works", "mean", "squares")]


def equal_works(share: Numbers, squares: Numbers, n: Numbers, n_works: Numbers) -> Numbers:
    """Return how many works of one row each would give a share this variance."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(squares > 1e-9, share * (1 - share) * n**2 / squares, n_works)


def collect_some(works: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Collect a frame of works in batches, unordered, so that a picture never holds all works."""
    return works.collect_batches(chunk_size=_AT_ONCE, maintain_order=False, engine="streaming")


def read_values(
    frame: AnyFrame, keys: Sequence[str], values: Mapping[str, tuple[str, str]], *others: pl.Expr, stage: str
) -> pl.LazyFrame:
    """Read ``keys``, and by new names values as numbers: a column and "mean", or a label and "share"; "" is null."""
    rows = to_lazy(frame, "the frame", stage)
    schema, columns, made = rows.collect_schema(), [*keys], dict[str, pl.Expr]()
    for name, (value, stat) in values.items():
        made[name] = pl.lit(None, pl.Float64)
        if value and stat == "share" and schema.get(value) != pl.Boolean:
            columns.append(find_label_column(value, rows, "label" if name == "label" else "y"))
            made[name] = (pl.col(columns[-1]) == value).cast(pl.Float64)
        elif value:
            columns.append(value)
            made[name] = pl.col(value).cast(pl.Float64).fill_nan(None)
            if stat != "share" and value in schema and not schema[value].is_numeric():
                remedy = 'For shares of a label: y="disruptive", stat="share".'
                raise SchemaMismatchError(f"y={value!r} is a column of {schema[value]}, {stat} needs numbers. {remedy}")
    for name in columns:
        if name not in schema:
            remedy = suggest(name, schema) or f" It has {', '.join(schema)}."
            raise SchemaMismatchError(f"{stage}: the frame lacks column {name!r}.{remedy}")
    return rows.select(*keys, *others, **made)


def refuse_nothing(frame: AnyFrame, columns: Sequence[str], stage: str) -> NoReturn:
    """Say which columns leave nothing to draw; a label stands for its column."""
    rows = to_lazy(frame, "the frame", stage)
    schema = rows.collect_schema()
    names = [*dict.fromkeys(name if name in schema else find_label_column(name, rows) for name in columns if name)]
    known = rows.select(pl.col(names)).with_columns(selectors.float().fill_nan(None))
    n, *counts = known.select(pl.len().alias("_n"), pl.all().count()).collect(engine="streaming").row(0)
    empty = [name for name, count in zip(names, counts, strict=True) if not count]
    why = f"no row has a value in each of {', '.join(names)}"
    if not n or empty:
        why = f"column {empty[0]!r} is null in all {counted(n, 'row')}" if n else "the frame has no row"
    raise EmptyInputError(f"{stage}: there is nothing to draw: {why}. Name another column, or give rows with a value.")


def find_label_column(label: str, labelled: pl.LazyFrame, argument: str = "label") -> str:
    """Find the column that holds a label: of those that every release has, else an own one of these works."""
    holder = next((column for column, words in VOCABULARIES.items() if label in words), None)
    if holder is None:
        schema = labelled.collect_schema()
        other_labels = [name for name in schema if name.endswith("_label") and name not in VOCABULARIES]
        other_labels = [name for name in other_labels if schema[name] == pl.String]
        with_label = {name: labelled.select(pl.col(name) == label).filter(pl.first()).head(1) for name in other_labels}
        holder = next((name for name, rows in with_label.items() if rows.collect(engine="streaming").height), None)
    if holder is None:
        words = [word for vocabulary in VOCABULARIES.values() for word in vocabulary]
        or_column = ", or a column of true and false" if argument == "y" else ""
        raise ConfigError(
            f"{argument} is {label!r}, needs one of {', '.join(words)}{or_column}.{suggest(label, words)}"
        )
    return holder


def name_column(column: str) -> str:
    """Name a column as titles and axes say it, with the length of its window where the name says that.

    Example:
        >>> name_column("cd_index_3"), name_column("team_size")
        ('CD index (3 years)', 'team size')
    """
    window = window_of(column) or ""
    name = column.replace(window, "", 1)
    name = _TITLES.get(name, re.sub("^(m?)cd ", r"\1CD ", name.replace("_", " ")))
    return f"{name} ({name_window(window)})" if window else name
