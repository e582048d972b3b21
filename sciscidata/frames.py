"""Frames of any library as frames of Polars, and columns of a near type as the type that is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import polars as pl

from sciscidata.errors import SchemaMismatchError

#: From here on a whole number may lose digits as a float.
EXACT: Final = 1 << 53
#: A frame of any library that to_lazy knows.
AnyFrame: TypeAlias = Any

_NEEDS: Final = "needs a frame: of Polars, pandas, Arrow, DuckDB, or one with __arrow_c_stream__"


def to_lazy(frame: AnyFrame, name: str, stage: str, columns: Iterable[str] | None = None) -> pl.LazyFrame:
    """Return a frame of any library as a lazy frame of Polars.

    From pandas only ``columns`` are converted (None: all), since a column may hold anything. An index with a name
    becomes a column.
    """
    if isinstance(frame, pl.LazyFrame | pl.DataFrame):
        return frame.lazy()
    if hasattr(frame, "to_native"):  # narwhals
        return to_lazy(frame.to_native(), name, stage, columns)
    kind = type(frame)
    library = kind.__module__.split(".")[0]
    try:
        if library == "pandas" and hasattr(frame, "columns"):
            frame = with_named_index(frame)
            return _from_pandas(frame if columns is None else frame[[*columns]]).lazy()
        if hasattr(frame, "__arrow_c_stream__"):
            return pl.DataFrame(frame).lazy()
        if hasattr(frame, "__dataframe__"):
            return pl.from_dataframe(frame).lazy()
    except (pl.exceptions.PolarsError, TypeError, ValueError, NotImplementedError) as error:  # also those of Arrow
        names = ", ".join(map(str, getattr(frame, "columns", ()) if columns is None else columns))
        raise SchemaMismatchError(
            f"{stage}: {name}: a column of {names or kind.__name__} holds values of several types ({error}). "
            "Make it text: .astype('string')."
        ) from error
    remedy = "Files are read by `sciscidata ingest --works FILE --citations FILE`."
    if isinstance(frame, str | Path):
        remedy = f"Read the file, for example with pl.scan_parquet or pl.scan_csv. {remedy}"
    elif isinstance(frame, dict | list):
        remedy = "Make one: pl.DataFrame(...)."
    elif kind.__name__ == "Corpus":
        remedy = "Give its two frames: corpus.works and corpus.citations."
    elif kind.__name__ == "Release":
        remedy = "Give one of its frames: release.train or release.test."
    elif library == "networkx":
        remedy = (
            "Make two of the graph: works = pl.DataFrame([{'work_id': node, **facts} for node, facts in "
            "graph.nodes(data=True)]) and citations = pl.DataFrame([*graph.edges()], schema=['citing_id', 'cited_id'], "
            "orient='row')."
        )
    raise SchemaMismatchError(f"{stage}: {name} is of type {kind.__name__}, {_NEEDS}. {remedy}")


def _from_pandas(frame: Any) -> pl.DataFrame:  # noqa: ANN401
    """Convert a pandas frame; names in an order, such as classes of ``pd.cut``, become an Enum, which keeps it."""
    ordered = {
        name: [str(category) for category in kind.categories]
        for name, kind in frame.dtypes.items()
        if getattr(kind, "ordered", False) and kind.categories.dtype.kind == "O"  # numbers have an order
    }
    if ordered:
        frame = frame.assign(**{name: frame[name].cat.rename_categories(names) for name, names in ordered.items()})
    return pl.from_pandas(frame).cast({name: pl.Enum(names) for name, names in ordered.items()})


def with_named_index(frame: Any) -> Any:  # noqa: ANN401 (a frame of pandas)
    """Make the index of a pandas frame columns, where it has names that no column has."""
    return frame.reset_index() if not {None, *frame.columns} & {*frame.index.names} else frame


def near_cast(name: str, got: pl.DataType, needed: pl.DataType, what: str) -> pl.Expr | None:
    """Return a cast of a column that changes no value, None where there is none.

    Whole numbers of any width, and whole floats, become whole numbers. Numbers become Float64, categories text, and
    times days. ``what`` begins the error at collect, if a value does not fit.

    Example:
        >>> years = pl.LazyFrame({"year": [2001.0, None]})
        >>> years.select(near_cast("year", pl.Float64(), pl.Int32(), "demo: WORKS")).collect().to_series().to_list()
        [2001, None]
        >>> near_cast("year", pl.String(), pl.Int32(), "demo: WORKS") is None
        True
    """
    if needed.is_integer() and got.is_numeric():

        def cast(values: pl.Series) -> pl.Series:
            values = values.fill_nan(None) if values.dtype.is_float() else values
            made = values.cast(needed, strict=False)
            wrong = values.filter(~(made == values).fill_null(value=False) & values.is_not_null())
            if len(wrong):
                raise SchemaMismatchError(
                    f"{what} column {name!r} holds {wrong[0]}, needs {needed}. Mend the value, or make it null."
                )
            return made

        return pl.col(name).map_batches(cast, return_dtype=needed, is_elementwise=True)
    is_category = needed == pl.String() and isinstance(got, pl.Categorical | pl.Enum)
    is_number = needed == pl.Float64() and got.is_numeric()
    is_day = needed == pl.Date() and isinstance(got, pl.Datetime)
    is_list = needed == pl.List and isinstance(got, pl.List) and (got.inner == pl.Null or got.inner == pl.Struct)
    if got == pl.Null() or is_category or is_number or is_day or is_list:
        return pl.col(name).cast(needed)
    return None


def with_long_ids_as_text(rows: pl.DataFrame) -> pl.DataFrame:
    """Write whole numbers as text where a float would lose digits: pandas, Stata and axes make floats of them.

    Ids that are texts have such numbers, of 19 digits. Columns of shorter numbers stay.

    Example:
        >>> with_long_ids_as_text(pl.DataFrame({"work_id": [2**62 + 1], "n_i": [3]})).row(0)
        ('4611686018427387905', 3)
    """
    whole = rows.select(pl.col(pl.Int64, pl.UInt64))
    is_long = whole.select((pl.all() > EXACT).any() | (pl.all() < -EXACT).any())
    return rows.with_columns(pl.col(name).cast(pl.String) for name in whole.columns if is_long[name][0])


def read_long_ids(frame: AnyFrame, rows: pl.LazyFrame, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """Make whole numbers again of what ``with_long_ids_as_text`` gave to pandas, where ``schema`` needs numbers."""
    if type(frame).__module__.split(".")[0] != "pandas":
        return rows
    texts = [name for name, got in rows.collect_schema().items() if got == pl.String and schema.get(name) == pl.Int64]
    is_long = rows.select(pl.col(texts).str.contains(r"^-?[0-9]{16,19}$").any()).collect() if texts else None
    numbers = rows.select(pl.col(texts).cast(pl.Int64, strict=False)).collect() if texts else None
    if is_long is None or numbers is None:
        return rows
    n_null = rows.select(pl.col(texts).null_count()).collect()
    same = [name for name in texts if is_long[name][0] and numbers[name].null_count() == n_null[name][0]]
    return rows.with_columns(numbers.select(same).get_columns())


def _collect_as(method: str, frame: pl.LazyFrame) -> Callable[..., Any]:
    def collect(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        rows = frame.collect()
        rows = with_long_ids_as_text(rows) if method == "to_pandas" else rows
        return getattr(rows, method)(*arguments, **options)

    return collect


# Users of pandas ask this of a result first. Scores are lazy, and Polars has it for eager frames only.
for _method in ("to_pandas", "to_arrow"):
    if not hasattr(pl.LazyFrame, _method):
        pl.api.register_lazyframe_namespace(_method)(partial(_collect_as, _method))  # pyright: ignore[reportArgumentType]
