"""Split rows that exceed memory into numbered files on disk, to be read again file by file."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa


class RowSpool:
    """Writes rows to Arrow files ``{stem}-{number}.arrow``, one for each number. Those of a number keep their order.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     with RowSpool(Path(home), "rows") as spool:
        ...         spool.add(pl.DataFrame({"a": [7, 8, 9]}), np.array([1, 0, 1]))
        ...     pl.read_ipc(spool.path(1))["a"].to_list(), spool.path(2).exists()
        ([7, 9], False)
    """

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
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                file = pa.ipc.new_file(self.path(number), part.schema, options=options)
                self._writers[number] = self._files.enter_context(file)
            self._writers[number].write_table(part)
