"""Canonical JSON lines: row by row in Python for a release, batch by batch through Polars for an export.

Both write the same bytes. A release takes the first, because no library update may change its bytes.
"""

from __future__ import annotations

import io
import json
from typing import Final

import polars as pl

#: What ``str.splitlines`` and JavaScript take for a line end although JSON does not.
_LINE_ENDS: Final = {end: f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
_ESCAPED: Final = str.maketrans(_LINE_ENDS)


def render_jsonl(rows: pl.DataFrame) -> bytes:
    r"""Write rows as canonical JSON lines; a ValueError if a float is not finite.

    UTF-8, no spaces, columns in their order, floats in Python's shortest form that reads back as the same number. The
    three characters that naive line readers split on are escaped.

    Example:
        >>> render_jsonl(pl.DataFrame({"title": ["Séance\u2028one"], "cd_index": [0.1]}))
        b'{"title":"S\xc3\xa9ance\\u2028one","cd_index":0.1}\n'
    """
    lines = (
        json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_ESCAPED)
        for row in rows.iter_rows(named=True)
    )
    return "".join(f"{line}\n" for line in lines).encode()


def render_lines(rows: pl.DataFrame) -> bytes:
    """Write the bytes of ``render_jsonl`` many times faster, of text, whole numbers, Float64 and lists of text."""
    for name, dtype in rows.schema.items():
        if not (dtype.is_integer() or dtype in (pl.String(), pl.Float64(), pl.List(pl.String()))):
            raise TypeError(f"column {name!r} is {dtype}, needs String, a whole number, Float64 or List(String).")
    floats = [column for column in rows.iter_columns() if column.dtype == pl.Float64()]
    for column in floats:
        infinite = column.filter(~column.is_finite())
        if infinite.len():
            raise ValueError(f"{infinite[0]} is no JSON number. Undefined is null.")
    buffer = io.BytesIO()
    rows.write_ndjson(buffer)
    text = buffer.getvalue()
    for end, escaped in _LINE_ENDS.items():
        text = text.replace(end.encode(), escaped.encode())
    # Python writes 1e-05 and 1e+16 where other writers have another exponent, or none.
    sizes = [column.abs() for column in floats]
    is_odd = [((size < 1e-4) & (size > 0)) | (size >= 1e16) for size in sizes]
    odd = pl.select(pl.any_horizontal(is_odd)).to_series().arg_true() if is_odd else pl.Series(dtype=pl.UInt32)
    if odd.len():
        lines = text.split(b"\n")
        for place, line in zip(odd, render_jsonl(rows[odd]).split(b"\n"), strict=False):
            lines[place] = line
        text = b"\n".join(lines)
    return text
