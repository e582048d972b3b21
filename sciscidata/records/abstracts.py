"""Turn OpenAlex's inverted index of an abstract into its text.

OpenAlex stores an abstract as ``{"word": [0, 5], ...}``. Decoding it takes most of the time of a source, so a compiled
loop does it: 100,000 abstracts in 1.8 s, with msgspec and Python 17 s. The loop marks rows that it does not expect; the
standard library's ``json``, which defines the result, decodes those.
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from sciscidata._kernels.arrays import Int64Array
from sciscidata._kernels.strings import replace_rows, string_buffers
from sciscidata._support.parallel import map_in_order
from sciscidata.errors import SchemaMismatchError

_MOST_BYTES = 16 << 20  # of one index: the loop takes 17 times as much memory
#: A long word at many positions gives a text of the squared size. No abstract reaches these bounds.
_MOST_TIMES, _MOST_MORE = 8, 1 << 16
_ENTRY = re.compile(r'\s*("(?:[^"\\\x00-\x1f]|\\.)*")\s*:\s*(\[[0-9,\s]*\])\s*(?:,|\}\s*$|$)')

_BLOCK_ROWS = 4_096  # about ten megabytes of JSON: small enough that the allocator reuses its pages
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def decode_inverted_index(index: pl.Expr | str) -> pl.Expr:
    """Decode a String column of inverted indexes (JSON text) into the text of the abstracts, row for row.

    Two words at one position are both kept, gaps close up, blank words are dropped, a lone surrogate becomes U+FFFD.
    The form of 2021, ``{"IndexLength": 2, "InvertedIndex": {...}}``, is read too. Null: there is no word or no index,
    or it has more than 16 MB. Or its text is longer than eight times the index plus 64 KB. OpenAlex cuts an index off
    at 32,760 bytes. Then only the words before the first missing one are kept; null if they are fewer than 20. An index
    of 10,000 bytes or more counts as cut off if it is broken, or lacks more than a fifth of the words behind the first
    missing one. Source: https://docs.openalex.org/api-entities/works/work-object#abstract_inverted_index
    """
    column = pl.col(index) if isinstance(index, str) else index
    return column.map_batches(decode_inverted_indexes, return_dtype=pl.String(), is_elementwise=True)


def decode_inverted_indexes(indexes: pl.Series) -> pl.Series:
    """Decode a Series like ``decode_inverted_index``, in blocks on ``POLARS_MAX_THREADS`` threads."""
    if indexes.dtype not in (pl.String(), pl.Null()):
        raise SchemaMismatchError(
            f"decode_inverted_index: column {indexes.name!r} is {indexes.dtype}, needs String: the JSON text of "
            "abstract_inverted_index. Keep that field as text when reading, or encode it: json.dumps."
        )
    blocks = [indexes.slice(start, _BLOCK_ROWS) for start in range(0, max(len(indexes), 1), _BLOCK_ROWS)]
    if len(blocks) == 1 or pl.thread_pool_size() == 1:
        return pl.concat([_decode_block(block) for block in blocks], rechunk=False)
    return pl.concat(map_in_order(_decode_block, blocks, pl.thread_pool_size(), n_held=len(blocks)), rechunk=False)


def _decode_block(indexes: pl.Series) -> pl.Series:
    indexes = indexes.cast(pl.String).rechunk()
    data, offsets = string_buffers(indexes)
    starts = offsets[:-1].copy()
    ends = np.where(indexes.is_null().to_numpy(), starts, offsets[1:])
    return decode_spans(data, starts, ends).alias(indexes.name)


def decode_spans(data: npt.NDArray[np.uint8], starts: Int64Array, ends: Int64Array) -> pl.Series:
    """Decode the inverted indexes from ``starts`` to ``ends`` in UTF-8 ``data``, as ``decode_inverted_index`` does."""
    from sciscidata.records._abstract_kernels import IRREGULAR, TEXT, decode_rows  # numba takes a while to import

    ends = np.where(ends - starts <= _MOST_BYTES, ends, starts)
    text, text_offsets, status = decode_rows(data, starts, ends)
    valid: Any = pa.array(status == TEXT)
    decoded = pa.LargeStringArray.from_buffers(
        len(starts), pa.py_buffer(text_offsets), pa.py_buffer(text), valid.buffers()[1]
    )
    series = pl.Series(decoded, dtype=pl.String)
    irregular = np.flatnonzero(status == IRREGULAR)
    if not irregular.size:
        return series
    exact = [_decode_exactly(data[starts[row] : ends[row]].tobytes().decode()) for row in irregular.tolist()]
    return replace_rows(series, irregular, pl.Series(exact, dtype=pl.String))


def _decode_exactly(index: str) -> str | None:
    """Decode any row, slowly, with the standard library's parser."""
    from sciscidata.records._abstract_kernels import LONG_INDEX_BYTES

    is_long = len(index) > LONG_INDEX_BYTES // 4 and len(index.encode()) >= LONG_INDEX_BYTES
    is_broken = False
    try:
        parsed: Any = json.loads(index, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        if not is_long:
            return None
        is_broken = True
        parsed = _whole_entries(index)
    if not isinstance(parsed, _Pairs):
        return None
    form_of_2021: dict[str, Any] = dict(parsed)
    length, inner = form_of_2021.get("IndexLength"), form_of_2021.get("InvertedIndex")
    # An abstract may hold these two words, but then their values are lists of positions.
    if isinstance(inner, _Pairs) and isinstance(length, (int, float)) and not isinstance(length, bool):
        parsed = inner
    placed: list[tuple[int, str]] = []
    for word, positions in parsed:
        if not isinstance(positions, list) or isinstance(positions, _Pairs):
            return None
        if any(type(position) is not int or position < 0 for position in positions):
            return None
        placed.extend((position, word) for position in positions)
    if sum(len(word) + 1 for _, word in placed) > _MOST_TIMES * len(index) + _MOST_MORE:
        return None
    placed.sort(key=lambda place: place[0])
    if is_long and placed:
        placed = _before_the_cut(placed, is_broken=is_broken)
    text = " ".join(word for _, word in placed if word.strip())
    return _LONE_SURROGATE.sub("\ufffd", text) or None


def _whole_entries(index: str) -> _Pairs:
    """Read the entries of a cut-off index up to the cut."""
    pairs = _Pairs()
    at = index.find("{") + 1
    while at and (entry := _ENTRY.match(index, at)):
        try:
            pairs.append((json.loads(entry[1]), json.loads(entry[2])))
        except ValueError:
            break
        at = entry.end()
    return pairs


def _before_the_cut(placed: list[tuple[int, str]], *, is_broken: bool) -> list[tuple[int, str]]:
    """Keep the words before the first missing position, if so many are missing that the index was cut off.

    A word stands where it occurs first: behind the cut a third or more are new words, hence missing (36 and 42 % in
    real records). Fewer are an oddity of the record (7 %).
    """
    from sciscidata.records._abstract_kernels import LEAST_WORDS, MOST_MISSING

    positions = {position for position, _ in placed}
    last = placed[-1][0]
    gap = next((place for place in range(last) if place not in positions), last + 1)
    missing = last + 1 - gap - sum(position >= gap for position in positions)
    if not is_broken and missing * MOST_MISSING <= last + 1 - gap:
        return placed
    kept = [place for place in placed if place[0] < gap]
    return kept if len(kept) >= LEAST_WORDS else []


class _Pairs(list[tuple[str, Any]]):
    """A JSON object that remembers a repeated key."""
