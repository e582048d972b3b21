"""Find the rows of a snapshot that do not count: deleted works, and copies that a newer part replaces."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata.corpus.folder import REMOVED_ROWS
from sciscidata.errors import CorruptRecordError
from sciscidata.records.read_lines import Gap, ReadLimits
from sciscidata.sources.snapshot.reading import line_blocks

Int64Array = npt.NDArray[np.int64]

#: An id and a date have 50 bytes; the whole list of 2026 has some hundred MB.
_LIMITS = ReadLimits(max_line_mb=1, max_gap_mb=256)
_IDS_AT_ONCE = 16_000_000  # about half a gigabyte with what sorting needs
REMOVED = pl.Schema({**REMOVED_ROWS, "is_deleted": pl.Boolean()})


def read_deleted_ids(files: Sequence[Path]) -> Int64Array:
    r"""Read the ids of deleted works, and of works that were merged into another one: sorted numbers, each once.

    A file is ``deleted_ids.csv.gz`` (work_id, deleted_date), or the older merged_ids (merge_date, id, merge_into_id).
    A file that is damaged, or has neither column, is a CorruptRecordError.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     path = Path(home, "deleted_ids.csv")
        ...     _ = path.write_text("work_id,deleted_date\nhttps://openalex.org/W7,2026-08-15\nW5,2026-08-16\n")
        ...     read_deleted_ids([path])
        array([5, 7])
    """
    found = [np.empty(0, np.int64)]
    for path in files:
        place: int | None = None
        try:
            gap = Gap(_LIMITS, is_optional=False)
            for block in line_blocks(path, None, _LIMITS, gap):
                if isinstance(block, CorruptRecordError):
                    msg = f"it has a line of more than {_LIMITS.max_line_mb} MB"
                    raise CorruptRecordError(msg)
                gap.add(len(block))
                lines = block
                if place is None:
                    header, _, lines = block.partition(b"\n")
                    names = [name.strip().strip('"') for name in header.decode("utf-8-sig").split(",")]
                    place = next(names.index(name) for name in ("work_id", "id") if name in names)
                if lines.strip():
                    table = pl.read_csv(io.BytesIO(lines), has_header=False, columns=[place], infer_schema=False)
                    ids = table.to_series().str.extract(r"(?i)^(?:.*/)?W([0-9]{1,18})$").cast(pl.Int64)
                    ids = ids.drop_nulls().to_numpy()
                    found.append(ids)
                    if len(ids):
                        gap.clear()
        except (StopIteration, UnicodeDecodeError, pl.exceptions.PolarsError, CorruptRecordError) as error:
            what = error if isinstance(error, CorruptRecordError) else "it has no column work_id or id"
            msg = f"{path} is no list of deleted works: {what}. Copy it again, or remove it to keep all works."
            raise CorruptRecordError(msg) from error
    return np.unique(np.concatenate(found))


def find_removals(parts: Sequence[tuple[str, Path]], deleted: Int64Array, n_works: int) -> pl.DataFrame:
    """Find the rows that do not count: deleted works, and all copies of a work but the last one.

    ``parts`` has the name and the works file of each, oldest first. ``n_works`` counts the rows of all files; the ids
    are read once for every 16 million, for bounded memory. REMOVED is sorted by part and work_id; a deleted work that
    occurs twice has two rows.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     old, new = Path(home, "old.parquet"), Path(home, "new.parquet")
        ...     pl.DataFrame({"work_id": [1, 2, 3]}).write_parquet(old)
        ...     pl.DataFrame({"work_id": [2]}).write_parquet(new)
        ...     find_removals([("old", old), ("new", new)], np.array([3]), 4).rows()
        [('old', 2, False), ('old', 3, True)]
    """
    n_rounds = -(-n_works // _IDS_AT_ONCE)
    frames = [REMOVED.to_frame()]
    for turn in range(n_rounds):
        ids_of_parts: list[Int64Array] = []
        for _, path in parts:
            ids = pl.read_parquet(path, columns=["work_id"], glob=False).to_series().to_numpy()
            ids_of_parts.append(ids if n_rounds == 1 else ids[ids % n_rounds == turn])
        ids = np.concatenate(ids_of_parts)
        place = np.repeat(np.arange(len(parts)), [len(ids) for ids in ids_of_parts])
        order = np.argsort(ids, kind="stable")  # copies of one work stay in the order of the parts
        ids, place = ids[order], place[order]
        is_stale = np.append(ids[1:] == ids[:-1], False)
        is_deleted = np.isin(ids, deleted)
        removed = is_stale | is_deleted
        names = pl.Series([name for name, _ in parts], dtype=pl.String).gather(place[removed])
        frames.append(
            pl.DataFrame({"part": names, "work_id": ids[removed], "is_deleted": is_deleted[removed]}, schema=REMOVED)
        )
    return pl.concat(frames).sort("part", "work_id")
