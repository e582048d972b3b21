"""Parse one part of a snapshot, of either edition, in batches of works and in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata._kernels.strings import is_text, string_buffers
from sciscidata.errors import CorruptRecordError
from sciscidata.records.abstracts import decode_spans
from sciscidata.records.json_record import PlainRecord, read_records
from sciscidata.records.work_columns import (
    LEAVES,
    NO_ROWS,
    Batch,
    leaves_of_batch,
    merge_rows,
    rows_of_leaves,
    rows_of_records,
)
from sciscidata.sources.record_files import BATCH_WORKS, ReadSoFar, in_batches, read_json_batches
from sciscidata.sources.snapshot.layout import Part

Advance = Callable[[float], None]
# As paths of Parquet leaves, without the levels that only Parquet has.
_LEAVES = {path.replace(".[]", "") for path in LEAVES}
# A JSON record may lack any field, but a table without these columns would make them null for all works.
_NEEDED = {"id", "publication_year", "referenced_works"}
_INDEX = "abstract_inverted_index"
_LEVELS = {"list", "element", "item", "array", "bag", "array_element"}


def read_batches(part: Part, advance: Advance | None = None, *, include_xpac: bool = True) -> Iterator[Batch]:
    """Read one part in order, ``BATCH_WORKS`` records at a time, or fewer where they are large."""
    so_far, path = ReadSoFar(), Path(part.path)
    if part.edition == "jsonl":
        chunks = read_json_batches(path, advance, so_far, include_xpac=include_xpac, pages=False)
    else:
        chunks = _read_parquet(path, advance, so_far, include_xpac)
    return in_batches(chunks, so_far)


def _read_parquet(path: Path, advance: Advance | None, so_far: ReadSoFar, include_xpac: bool) -> Iterator[Batch]:
    """Read the needed columns; odd records become JSON lines, so that both editions have one parser for them."""
    number = 1
    size = path.stat().st_size
    try:
        # Only checksums, if the writer left them, show that a bit has changed.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            # updated_date is a column of the file, so the folder of that name must not become one.
            for batch in file.iter_batches(BATCH_WORKS, columns=_projection(file.metadata.schema), use_threads=False):
                so_far.n_bytes += batch.nbytes
                yield _rows_of_batch(batch, include_xpac).moved(number)
                number += len(batch)
                if advance is not None:
                    advance(size * len(batch) / max(file.metadata.num_rows, 1))
    except (pa.ArrowException, OSError) as error:
        raise CorruptRecordError(f"the Parquet file is damaged ({str(error).splitlines()[0]})") from error


def _rows_of_batch(batch: Any, include_xpac: bool) -> Batch:  # noqa: ANN401 (of Arrow)
    rows: pl.DataFrame | None = None
    is_odd = np.ones(batch.num_rows, np.bool_)
    if (leaves := leaves_of_batch(batch)) is not None:
        rows = rows_of_leaves(leaves)
        is_odd = rows["work_id"].is_null().to_numpy()
        if _INDEX in batch.schema.names:
            if not is_text(kind := batch.schema.field(_INDEX).type):
                raise CorruptRecordError(f"the column {_INDEX} of the Parquet file has type {kind}, needs text")
            indexes, offsets = string_buffers(batch.column(_INDEX))
            unwanted = is_odd if include_xpac else is_odd | leaves.is_xpac.to_numpy()
            starts = offsets[:-1].copy()
            ends = np.where(unwanted, starts, offsets[1:])
            place = rows.get_column_index("abstract")
            rows = rows.replace_column(place, decode_spans(indexes, starts, ends).alias("abstract"))
    if rows is not None and not is_odd.any():  # as in most batches
        return merge_rows(rows, is_odd, Batch(NO_ROWS, []))
    odd: Any = pl.from_arrow(batch.filter(pa.array(is_odd)))
    # Kept apart from the JSON, where it would be escaped and unescaped for nothing.
    indexes = odd.drop_in_place(_INDEX).to_list() if _INDEX in odd.columns else [None] * odd.height
    lines = odd.write_ndjson().encode().splitlines() if odd.height else []

    def read() -> Iterator[tuple[int, PlainRecord | CorruptRecordError]]:
        for place, line, index in zip(np.flatnonzero(is_odd).tolist(), lines, indexes, strict=True):
            (record,) = read_records(line, pages=False)
            yield place, record if isinstance(record, CorruptRecordError) else record._replace(abstract_index=index)

    of_odd = rows_of_records(read())
    return of_odd if rows is None else merge_rows(rows, is_odd, of_odd)


def _projection(schema: Any) -> list[str]:  # noqa: ANN401
    paths = [schema.column(place).path for place in range(len(schema))]
    leaves = {path: ".".join(level for level in path.split(".") if level not in _LEVELS) for path in paths}
    if missing := sorted(_NEEDED - set(leaves.values())):
        raise CorruptRecordError(f"the Parquet file has no column {', '.join(missing)}")
    return [path for path, leaf in leaves.items() if leaf in _LEAVES]
