"""From any id to its number: one rule for works, citations and venues, which a release is verified by too.

The number depends on the id alone, and never on its rank: else more data would move works between splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import numpy as np
import polars as pl

from sciscidata._kernels.strings import string_buffers
from sciscidata._support.terminal import counted
from sciscidata.errors import ONE_ROW_EACH, SchemaMismatchError, WorkIdError

#: The column of WORKS and of scores that holds the ids of the source itself, where they are not OpenAlex's.
ORIGINAL_ID: Final = "original_id"
#: The first number of an id that is a text of its own.
TEXTS_FROM: Final = 1 << 62
_EXACT: Final = 1 << 53  # a larger number may have lost digits as a float


def number_ids(ids: pl.Series, letter: Literal["W", "S"] = "W") -> pl.Series:
    """Give every id its number; the same id has the same number in every table.

    A whole number below 2^62, or the text that writes it, is that number. ``W123`` and ``https://openalex.org/W123``
    are 123. Any other text is 2^62 plus the upper 62 bits of its XXH64 (of the UTF-8 bytes, seed 0).

    Among n texts, two have one number with probability n^2 / 2^63: about 1 in 900 for 100 million.

    Args:
        ids: text or whole numbers, which may be floats; null and empty text have no number.
        letter: of OpenAlex ids: W for works, S for venues.

    Returns:
        Int64, with the name of ``ids``.

    Raises:
        SchemaMismatchError: the ids are of another type, or floats that are not whole or lost digits.

    Example:
        >>> number_ids(pl.Series(["W7", "7", "https://openalex.org/W7", "P7", None])).to_list()
        [7, 7, 7, 8175472200559104240, None]
    """
    from sciscidata._kernels.ids import number_texts  # numba takes a while to import

    ids = plain_ids(ids)
    if ids.dtype == pl.Int64():
        outside = (ids < 0) | (ids >= TEXTS_FROM)
        if not outside.any():
            return ids
        texts = ids.filter(outside).cast(pl.String)
        return ids.scatter(outside.arg_true(), number_ids(texts, letter))
    found = number_texts(*string_buffers(ids), np.uint8(ord(letter)))
    numbers = pl.Series(ids.name, found)
    return numbers if not found.size or found.min() >= 0 else numbers.set(numbers < 0, None)


def plain_ids(ids: pl.Series) -> pl.Series:
    """Return ids as Int64 or String, as an original id is kept.

    Raises:
        SchemaMismatchError: as number_ids.
    """
    dtype = ids.dtype
    if dtype in (pl.String(), pl.Int64()):
        return ids
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return ids.cast(pl.String)
    if dtype.is_float():
        is_whole = ids.is_nan() | ((ids == ids.round()) & (ids.abs() < _EXACT))
        if not is_whole.all():
            wrong = ids.filter(~is_whole)[0]
            msg = f"{ids.name!r} holds {wrong!r}, needs ids: whole numbers, or text. Read them as text."
            raise SchemaMismatchError(msg)
        return ids.fill_nan(None).cast(pl.Int64)
    if dtype.is_integer() or dtype == pl.Null() or (isinstance(dtype, pl.Decimal) and dtype.scale == 0):
        narrow = ids.cast(pl.Int64, strict=False)
        return narrow if narrow.null_count() == ids.null_count() else ids.cast(pl.String)
    msg = f"{ids.name!r} is {dtype}, needs ids: text, or whole numbers."
    raise SchemaMismatchError(msg)


def refuse_shared_numbers(works: pl.DataFrame, what: str) -> None:
    """Raise WorkIdError if two of some works, sorted by ``work_id``, have one number.

    Args:
        works: ``work_id`` and ``original_id``.
        what: of which table, for the message.

    Example:
        >>> refuse_shared_numbers(pl.DataFrame({"work_id": [7, 7], "original_id": ["7", "W7"]}), "works")
        Traceback (most recent call last):
        ...
        sciscidata.errors.WorkIdError: works: the ids '7' and 'W7' have one number, 7, so they cannot be told apart.
        Write one of them otherwise, for example with a prefix.
    """
    numbers = works["work_id"]
    at = (numbers[1:] == numbers[:-1]).arg_true()
    if not len(at):
        return
    pairs = works.select(first=pl.col(ORIGINAL_ID), second=pl.col(ORIGINAL_ID).shift(-1), work_id="work_id")[at]
    for first, second, number in pairs.filter(pl.col("first") != pl.col("second")).head(1).rows():
        msg = (
            f"{what}: the ids {first!r} and {second!r} have one number, {number}, so they cannot be told apart. Write "
            "one of them otherwise, for example with a prefix."
        )
        raise WorkIdError(msg)
    msg = (
        f"{what}: {counted(pairs['work_id'].n_unique(), 'id occurs', 'ids occur')} more than once, for example "
        f"{pairs['first'][0]!r}. Keep "
        "one row for each work."
    )
    raise WorkIdError(msg)


def require_one_row_each(work_ids: pl.Series, stage: str) -> None:
    """Raise WorkIdError if an id is null or repeated.

    Example:
        >>> require_one_row_each(pl.Series([7, 8, 7]), "demo")
        Traceback (most recent call last):
        ...
        sciscidata.errors.WorkIdError: demo: work_id 7 occurs more than once in WORKS, needs one row per work. Keep one
        row each: .sort(pl.all()).unique('work_id', keep='first', maintain_order=True).
    """
    if n_null := work_ids.null_count():
        msg = f"{stage}: WORKS has {counted(n_null, 'row')} without a work_id. Drop them: .drop_nulls('work_id')."
        raise WorkIdError(msg)
    repeated = work_ids.filter(work_ids.is_duplicated())
    if len(repeated):
        msg = (
            f"{stage}: work_id {repeated[0]} occurs more than once in WORKS, needs one row per work. "
            f"Keep one row each: {ONE_ROW_EACH}."
        )
        raise WorkIdError(msg)


def with_original_ids(scores: pl.LazyFrame, works: pl.LazyFrame) -> pl.LazyFrame:
    """Put ``original_id`` right after ``work_id``, if ``works`` has it.

    Example:
        >>> scores = pl.LazyFrame({"work_id": [7], "cd_index": [0.5]})
        >>> with_original_ids(scores, pl.LazyFrame({"work_id": [7], "original_id": ["W7"]})).collect().row(0)
        (7, 'W7', 0.5)
    """
    if ORIGINAL_ID not in works.collect_schema():
        return scores
    columns = [name for name in scores.collect_schema() if name not in ("work_id", ORIGINAL_ID)]
    originals = works.lazy().select("work_id", ORIGINAL_ID)
    joined = scores.drop(ORIGINAL_ID, strict=False).join(originals, on="work_id", how="left", maintain_order="left")
    return joined.select("work_id", ORIGINAL_ID, *columns)


def original_ids_beside(batches: Iterable[pl.DataFrame], works: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Do the same to batches in the order of ``work_id``, in bounded memory; ``works`` has that order too."""
    if ORIGINAL_ID not in works.collect_schema():
        yield from batches
        return
    found = works.select("work_id", ORIGINAL_ID)
    reader = found.collect_batches(chunk_size=1 << 18, maintain_order=True)
    held = found.head(0).collect()
    for rows in batches:
        last = rows["work_id"].max()
        while last is not None and (held.is_empty() or held["work_id"][-1] < last):  # pyright: ignore[reportOperatorIssue]
            held = pl.concat([held.filter(pl.col("work_id") >= rows["work_id"][0]), next(reader)])
        yield with_original_ids(rows.lazy(), held.lazy()).collect()


def released_id(has_original: bool) -> pl.Expr:
    """Return the id that a release and an export name a work by: the original one as text, or W and the number."""
    named = pl.col(ORIGINAL_ID).cast(pl.String) if has_original else pl.format("W{}", "work_id")
    return named.alias("openalex_id")
