"""Split rows that exceed memory into files on disk, to be read again file by file, or sorted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


class RowSpool:
    """Writes rows to Arrow files ``{stem}-{number}.arrow``, one for each number. Those of a number keep their order."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder, self._stem = folder, stem
        self._writers: dict[int, Any] = {}
        self._files = ExitStack()

    def __enter__(self) -> RowSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self._writers.clear()
        self._files.close()

    def path(self, number: int) -> Path:
        """Return the file of a number, which is there if it has rows; read it when the spool is closed."""
        return self._folder / f"{self._stem}-{number}.arrow"

    def add(self, rows: pl.DataFrame, numbers: npt.NDArray[np.int64]) -> None:
        """Write rows with the same columns each time; ``numbers`` has one number, 0 or more, per row."""
        order = np.argsort(numbers, kind="stable")
        there, starts = np.unique(numbers[order], return_index=True)
        ordered, edges = rows[order], [*starts.tolist(), numbers.size]
        for number, (start, end) in zip(there.tolist(), pairwise(edges), strict=True):
            part: Any = ordered[start:end].to_arrow(compat_level=pl.CompatLevel.oldest())
            if number not in self._writers:
                file = pa.ipc.new_file(self.path(number), part.schema, options=_LZ4)
                self._writers[number] = self._files.enter_context(file)
            self._writers[number].write_table(part)


class DiskSort:
    """Sorts rows that exceed memory, in runs on disk. Memory: three times ``run_bytes``, then ``batch_bytes`` a run."""

    def __init__(
        self, keys: Sequence[str], folder: Path, *, run_bytes: int = 192 << 20, batch_bytes: int = 1 << 20
    ) -> None:
        self._keys, self._folder, self._run_bytes, self._batch_bytes = [*keys], folder, run_bytes, batch_bytes
        self._paths, self._in_memory, self._size = list[Path](), list[pl.DataFrame](), 0

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows, in any order."""
        self._in_memory.append(rows)
        self._size += rows.estimated_size()
        if self._size >= self._run_bytes:
            self._paths.append(self._folder / f"{self._keys[0]}-{len(self._paths)}.arrow")
            _write_run(pl.concat(self._in_memory).sort(self._keys), self._paths[-1], self._batch_bytes)
            self._in_memory, self._size = [], 0

    def merge(self) -> Iterator[pl.DataFrame]:
        """Yield all rows in order, in batches."""
        key = self._keys[0]
        with ExitStack() as stack:
            runs = [_Run(key, stack.enter_context(pa.ipc.open_file(path))) for path in self._paths]
            if self._in_memory:
                runs.append(_Run(key, None, pl.concat(self._in_memory).sort(self._keys)))
            while runs := [run for run in runs if run.rows.height]:
                last = min(run.rows[key][-1] for run in runs)
                yield pl.concat([run.take(last) for run in runs]).sort(self._keys)


def _write_run(rows: pl.DataFrame, path: Path, batch_bytes: int) -> None:
    table: Any = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    n = max(1, rows.height * batch_bytes // max(table.nbytes, 1))
    with pa.ipc.new_file(path, table.schema, options=_LZ4) as file:
        file.write_table(table, max_chunksize=n)


class _Run:
    """A sorted run, of which one batch is in memory."""

    def __init__(self, key: str, reader: Any, rows: pl.DataFrame | None = None) -> None:  # noqa: ANN401
        self._key, self._reader, self._next = key, reader, 0
        self.rows: pl.DataFrame = self._load() if rows is None else rows

    def _load(self) -> pl.DataFrame:
        self._next += 1
        loaded: Any = pl.from_arrow(self._reader.get_batch(self._next - 1))
        return loaded

    def take(self, last: int) -> pl.DataFrame:
        """Hand out the rows up to a key that the batch in memory reaches."""
        n = int(self.rows[self._key].search_sorted(last, side="right"))
        part, self.rows = self.rows[:n], self.rows[n:]
        if self.rows.is_empty() and self._reader is not None and self._next < self._reader.num_record_batches:
            self.rows = self._load()
        return part
