"""From any id to its number: one rule for works, citations and venues, which a release is verified by too.

The number depends on the id alone, and never on its rank: else more data would move works between splits. The rules
for missing values stand here, too; those for DOIs in ``dois.py``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from sciscidata._kernels.arrays import Int64Array
from sciscidata._kernels.strings import string_buffers, view_texts
from sciscidata.errors import ONE_ROW_EACH, SchemaMismatchError, WorkIdError
from sciscidata.frames import EXACT, AnyFrame, to_lazy
from sciscidata.records.dois import BLANKS, CHANGED_DOIS, PLAIN_START, read_dois
from sciscidata.terminal.messages import counted, shorten

logger = logging.getLogger(__name__)

#: The column of WORKS and of scores that holds the ids of the source itself, where they are not OpenAlex's.
ORIGINAL_ID: Final = "original_id"
#: The columns that tell works apart, the first one that a frame has.
UNITS: Final = ("work_id", ORIGINAL_ID, "openalex_id")
_NONE, _ODD = -1, -2  # what number_texts makes of no text, and of one that is not in its plain form
_MANY: Final = 1 << 14
_MOST_SEEN: Final = 1 << 20  # ids that are compared at once
_ONE_ROW: Final = (
    "Keep one row each, as frame.unique('work_id') does. Or leave out the column if each row is to count. measure_by "
    "and plot_by take repeated works."
)
#: The first number of an id that is a text of its own.
TEXTS_FROM: Final = 1 << 62
#: Texts that stand for a missing value, as R, SQL, pandas and Python write it; "na" is a language.
MISSING: Final = ("NA", "N/A", "NULL", "null", r"\N", "NaN", "nan", "None", "<NA>")
_OPENALEX: Final = "https://openalex.org/"
_ADDRESS: Final = r"(?:https?://(?:api\.)?openalex\.org/(?:works/|sources/|venues/)?)?"
_OPENALEX_ID: Final = re.compile(rf"\s*{_ADDRESS}([WSVAI])0*([1-9][0-9]{{0,17}})/?\s*", re.I)
#: W for works, S for venues, V for venues until 2022, A for authors, I for institutions.
Letter: TypeAlias = Literal["W", "S", "V", "A", "I"]
#: A number that may have lost digits, and several ids in one text.
_LOSSY: Final = r"^[+-]?[0-9](?:\.[0-9]+)?[eE]\+[0-9]+$|^[+-]?[0-9]\.[0-9]+[eE][0-9]+$"
_SEVERAL: Final = (
    r"^\[[\s\S]*\]$|^\{[\s\S]*\}$|^c?\(.*\)$|^[0-9]+(?:\s*[;|\s]\s*[0-9]+)+$|"
    r"^(?i:(?:\S*/)?w[0-9]+(?:\s*[,;|\s]\s*(?:\S*/)?w[0-9]+)+)$"
)


def number_ids(
    ids: pl.Series, letter: Literal["W", "S"] = "W", tally: MutableMapping[str, int] | None = None
) -> pl.Series:
    """Give every id its number, the same in every table; null and empty text have none.

    A whole number below 2^62, or the text that writes it (also as ``007`` or ``7.0``), is that number. An OpenAlex id
    is its number in any form: ``W123``, ``w123``, ``https://openalex.org/W123``. Any other text, without blanks around
    it, is 2^62 plus the upper 62 bits of its XXH64 (of the UTF-8 bytes, seed 0). A DOI is hashed as ``bare_dois``
    writes it. Among n texts, two have one number with probability n^2 / 2^63: about 1 in 900 for 100 million. Ids of
    another type, numbers that lost digits and texts of several ids raise a SchemaMismatchError. ``tally`` counts DOIs
    that ``read_dois`` changes by more than case and address.
    """
    ids = plain_ids(ids)
    if ids.dtype == pl.Int64():
        outside = (ids < 0) | (ids >= TEXTS_FROM)
        if not outside.any():
            return ids
        texts = ids.filter(outside).cast(pl.String)
        return ids.clone().scatter(outside.arg_true(), number_ids(texts, letter))  # scatter writes into its Series
    from_texts = _number_texts(ids, letter)
    if not from_texts.size or (least := from_texts.min()) >= 0:
        return pl.Series(ids.name, from_texts)
    if least == _ODD and (odd := _find_odd(ids, from_texts)).size:
        plain, n_changed = _plain_forms(ids.gather(odd), letter)
        from_texts[odd] = _number_texts(plain, letter, are_plain=True)
        if tally is not None and n_changed:
            tally[CHANGED_DOIS] = tally.get(CHANGED_DOIS, 0) + n_changed
    numbers = pl.Series(ids.name, from_texts)
    return numbers.set(numbers < 0, None)


def _number_texts(texts: pl.Series, letter: Letter, *, are_plain: bool = False) -> Int64Array:
    """Number texts; -1 is null or empty, ``_ODD`` one that ``_plain_forms`` writes otherwise first."""
    from sciscidata._kernels.ids import number_texts  # numba takes a while to import

    numbers, start = np.empty(len(texts), np.int64), 0
    for views, buffers, is_null, _ in view_texts(texts):
        number_texts(views, buffers, is_null, ord(letter), are_plain, numbers[start : start + len(views)])
        start += len(views)
    return numbers


def _find_odd(ids: pl.Series, numbers: Int64Array) -> Int64Array:
    """Return the rows of ``_ODD``; where these are many, DOIs of usual forms among them are numbered first."""
    odd = np.flatnonzero(numbers == _ODD)
    if odd.size >= _MANY:
        from sciscidata._kernels.ids import number_dois  # which compiles for longer than few take

        start = 0
        for views, buffers, _, _ in view_texts(ids):
            number_dois(views, buffers, numbers[start : start + len(views)])
            start += len(views)
        odd = odd[numbers[odd] == _ODD]
    return odd


def _plain_forms(ids: pl.Series, letter: Literal["W", "S"]) -> tuple[pl.Series, int]:
    """Write ids of odd forms as they are numbered, and count the DOIs that change by more than case and address."""
    text = pl.col(ids.name).str.strip_chars(BLANKS)
    letters = "[SV]" if letter == "S" else letter
    number = text.str.replace(rf"^(?i:{_ADDRESS}{letters})0*([0-9]+)/?$", "$1")
    number = number.str.replace(r"^(-?)0*([0-9]+)(?:\.0+)?$", "${1}${2}")
    is_float = text.str.contains(r"^-?[0-9]+\.0+$") & (number.str.strip_chars_start("-").str.len_bytes() >= 16)
    dois, is_changed = read_dois(ids)
    is_doi = dois.str.contains(PLAIN_START).fill_null(value=False)
    plain = pl.when(is_doi).then(dois).otherwise(number)
    is_lossy, is_several = is_float | text.str.contains(_LOSSY), text.str.contains(_SEVERAL)
    forms = ids.to_frame().select(plain.alias("plain"), is_lossy.alias("lossy"), is_several.alias("several"))
    for problem, what in (
        (
            "lossy",
            "a number that may have lost digits. Save whole numbers as such, or as text",
        ),
        ("several", "several ids in one. Give one id in each row; lists belong into a column of references"),
    ):
        if (wrong := ids.filter(forms[problem])).len():
            raise SchemaMismatchError(f"{ids.name!r} holds {shorten(wrong[0])!r}, {what}.")
    return forms["plain"], int((is_changed & is_doi).sum())


def openalex_number(value: object, letter: Letter) -> int | None:
    """Return the number of an OpenAlex id (a URL or bare, any case), or None if its letter is another."""
    if not isinstance(value, str):
        return None
    digits = value[22:]
    # Nearly all have this form; the pattern would give the same.
    if value[:22] == _OPENALEX + letter and len(digits) <= 18 and digits.isdecimal() and digits.isascii():
        return int(digits) or None
    match = _OPENALEX_ID.fullmatch(value)
    return int(match[2]) if match and match[1].upper() == letter else None


def openalex_numbers(ids: Any, *letters: Letter) -> Int64Array:  # noqa: ANN401 (a Series or Arrow's strings)
    """Return the numbers of OpenAlex ids with one of the letters, -1 for others and for null."""
    from sciscidata.records._text_kernels import number_addresses  # numba takes a while to import

    texts: Any = ids.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest()) if isinstance(ids, pl.Series) else ids
    data, offsets = string_buffers(texts)
    numbers = number_addresses(data, offsets, np.frombuffer((_OPENALEX + letters[0]).encode(), np.uint8))
    odd = np.flatnonzero((numbers < 0) & (offsets[1:] > offsets[:-1]))
    for place, value in zip(odd.tolist(), texts.take(pa.array(odd)).to_pylist(), strict=True):
        candidates = (openalex_number(value, letter) for letter in letters)
        numbers[place] = next((number for number in candidates if number is not None), -1)
    return numbers


def without_missing(values: pl.Series, missing: Sequence[str] = MISSING) -> tuple[pl.Series, int]:
    """Return text with null for blanks and words of ``missing``, and the number of these; other types as they are."""
    if isinstance(values.dtype, pl.Categorical | pl.Enum):
        values = values.cast(pl.String)
    if values.dtype != pl.String():
        return values, 0
    # Only short texts are looked at, with a blank on either side: most columns have none.
    short = (values.str.len_bytes() <= max(map(len, missing), default=0) + 2).arg_true()
    bare = values.gather(short).str.strip_chars(BLANKS)
    is_word = bare.is_in(missing)
    none = short.filter(is_word | (bare.str.len_bytes() == 0))
    return (values.clone().scatter(none, None) if len(none) else values), int(is_word.sum())


def plain_ids(ids: pl.Series) -> pl.Series:
    """Return ids as Int64 or String, as an original id is kept; SchemaMismatchError as number_ids."""
    dtype = ids.dtype
    if dtype in (pl.String(), pl.Int64()):
        return ids
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return ids.cast(pl.String)
    if dtype.is_float():
        exact = 1 << 24 if dtype == pl.Float32() else EXACT
        is_whole = ids.is_nan() | ((ids == ids.round()) & (ids.abs() < exact))
        if not is_whole.all():
            wrong = ids.filter(~is_whole)[0]
            raise SchemaMismatchError(
                f"{ids.name!r} holds {wrong!r}, needs ids: whole numbers, or text. Read them as text."
            )
        return ids.fill_nan(None).cast(pl.Int64)
    if dtype.is_integer() or dtype == pl.Null() or (isinstance(dtype, pl.Decimal) and dtype.scale == 0):
        narrow = ids.cast(pl.Int64, strict=False)
        return narrow if narrow.null_count() == ids.null_count() else ids.cast(pl.String)
    raise SchemaMismatchError(f"{ids.name!r} is {dtype}, needs ids: text, or whole numbers.")


def refuse_shared_numbers(works: pl.DataFrame, what: str) -> None:
    """Raise WorkIdError if two of some works, sorted by ``work_id``, have one number; ``what`` names the table."""
    numbers = works["work_id"]
    at = (numbers[1:] == numbers[:-1]).arg_true()
    if not len(at):
        return
    pairs = works.select(first=pl.col(ORIGINAL_ID), second=pl.col(ORIGINAL_ID).shift(-1), work_id="work_id")[at]
    for first, second, number in pairs.filter(pl.col("first") != pl.col("second")).head(1).rows():
        raise WorkIdError(
            f"{what}: the ids {first!r} and {second!r} have one number, {number}: they are two forms of one id, or "
            "cannot be told apart. Keep one row for each work, or write one otherwise, for example with a prefix."
        )
    raise WorkIdError(
        f"{what}: {counted(pairs['work_id'].n_unique(), 'id occurs', 'ids occur')} more than once, for example "
        f"{pairs['first'][0]!r}. Keep "
        "one row for each work."
    )


def require_one_row_each(work_ids: pl.Series, stage: str) -> None:
    """Raise WorkIdError if an id is null or repeated."""
    if n_null := work_ids.null_count():
        raise WorkIdError(
            f"{stage}: WORKS has {counted(n_null, 'row')} without a work_id. Drop them: .drop_nulls('work_id')."
        )
    repeated = work_ids.filter(work_ids.is_duplicated())
    if len(repeated):
        raise WorkIdError(
            f"{stage}: work_id {repeated[0]} occurs more than once in WORKS, needs one row per work. "
            f"Keep one row each: {ONE_ROW_EACH}."
        )


def require_one_row_per_work(frame: AnyFrame, stage: str) -> None:
    """Raise WorkIdError if a frame that is summed up repeats a work, by the first column of UNITS that it has."""
    if repeated := _find_repeated(frame, stage, None):
        raise WorkIdError(f"{repeated}, needs one row per work. {_ONE_ROW}")


def warn_of_repeated_works(frame: AnyFrame, stage: str, within: str | None = None) -> None:
    """Warn if a frame that is drawn repeats a work; ``within``: in a group, since a work may be in several."""
    if repeated := _find_repeated(frame, stage, within):
        logger.warning("%s. Each row counts as a work. %s", repeated, _ONE_ROW)


def _find_repeated(frame: AnyFrame, stage: str, within: str | None) -> str:
    """Name a work that occurs more than once, by the first column of UNITS that the frame has; "" if none does.

    ``within``: a column of groups. A work may then be in several, once in each. One pass. Of many works it looks at
    those whose hash is a multiple of a number, so memory has a bound.
    """
    rows = to_lazy(frame, "the frame", stage)
    columns = rows.collect_schema().names()
    unit = next((name for name in UNITS if name in columns), None)
    if unit is None:
        return ""
    key = pl.col(unit) if within is None else pl.struct(unit, within)
    keys = rows.filter(pl.col(unit).is_not_null()).select(key.alias("key"))
    seen, one_of = keys.head(0).collect()["key"], 1
    for batch in keys.collect_batches(maintain_order=False, engine="streaming"):
        seen = pl.concat([seen, batch["key"].filter(batch["key"].hash() % one_of == 0)])
        if len(seen) > _MOST_SEEN and seen.is_duplicated().any():
            break
        while len(seen) > _MOST_SEEN:
            one_of *= 2
            seen = seen.filter(seen.hash() % one_of == 0)
    repeated = seen.filter(seen.is_duplicated())
    if repeated.is_empty():
        return ""
    repeated = repeated if within is None else repeated.struct.field(unit)
    return f"{stage}: {unit} {repeated.sort()[0]!r} occurs more than once"


def with_original_ids(scores: pl.LazyFrame, works: pl.LazyFrame) -> pl.LazyFrame:
    """Put ``original_id`` right after ``work_id``, if ``works`` has it."""
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
    originals = works.select("work_id", ORIGINAL_ID)
    reader = originals.collect_batches(chunk_size=1 << 18, maintain_order=True)
    buffered = originals.head(0).collect()
    for rows in batches:
        last = rows["work_id"].max()
        while last is not None and (buffered.is_empty() or buffered["work_id"][-1] < last):  # pyright: ignore[reportOperatorIssue]
            buffered = pl.concat([buffered.filter(pl.col("work_id") >= rows["work_id"][0]), next(reader)])
        yield with_original_ids(rows.lazy(), buffered.lazy()).collect()


def released_id(has_original: bool) -> pl.Expr:
    """Return the id of a work in releases and exports: the original one as text, or W and the number."""
    named = pl.col(ORIGINAL_ID).cast(pl.String) if has_original else pl.format("W{}", "work_id")
    return named.alias("openalex_id")
