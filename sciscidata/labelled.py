"""Every labelled work in one file of JSON lines: the rows of a release, any number of them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from collections.abc import Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import polars as pl

from sciscidata.checks import check_threads
from sciscidata.json_lines import render_lines
from sciscidata.labels import VOCABULARIES
from sciscidata.manifest import NOVELTY_COLUMNS
from sciscidata.progress import progress_bar
from sciscidata.release import check_target
from sciscidata.schemas import EXAMPLE, WORKS, require_columns
from sciscidata.storage import atomic_folder

LINES: Final = "labelled.jsonl"
REPORT: Final = "labelled.json"

_BATCH_ROWS: Final = 2_048  # a few megabytes of text: buffers that the allocator uses again
_SCORED: Final = ("work_id", "cd_index", "disruption_label")
_FROM_WORKS: Final = tuple(name for name in EXAMPLE if name in WORKS)


def write_labelled(
    works: pl.LazyFrame,
    labelled: pl.LazyFrame,
    folder: str | Path,
    *,
    source: Mapping[str, Any] | None = None,
    n_threads: int | None = None,
) -> dict[str, Any]:
    """Write a row for every work that is in both frames, in bounded memory. Executes.

    ``labelled.jsonl`` holds EXAMPLE rows with the bytes that a release has, in the order of ``works``;
    ``labelled.json`` their number, classes and SHA-256. Both appear whole or not at all. Texts pass through in
    batches; ``labelled`` lies in memory.

    Args:
        works: WORKS. Of SciSciNet, ``SciSciNet.in_text_order()``.
        labelled: ``work_id``, ``cd_index`` and ``disruption_label``, and the novelty columns if there are any. Filter
            it for the rows that you want.
        folder: made here.
        source: where the works come from, for the report; JSON types only.
        n_threads: as many as Polars uses (POLARS_MAX_THREADS) when None. The bytes do not depend on it.

    Returns:
        The report: ``rows``, ``classes`` (works by label; ``null`` for those without), ``bytes``, ``sha256``,
        ``source``.

    Raises:
        SchemaMismatchError: at once, if a column is missing or mistyped.
        ReleaseExistsError: at once, if ``folder`` holds anything.
        StorageError: the disk is full, or the folder cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> works = pl.LazyFrame([{"work_id": 7, "title": "On sleep", "concepts": ["Sleep"]}], schema=WORKS)
        >>> labelled = pl.LazyFrame({"work_id": [7], "cd_index": [0.5], "disruption_label": ["disruptive"]})
        >>> with TemporaryDirectory() as home:
        ...     report = write_labelled(works, labelled, Path(home) / "all")
        ...     print((Path(home) / "all" / "labelled.jsonl").read_text()[:50])
        ...     report["rows"], report["classes"]["disruption_label"]["disruptive"]
        {"openalex_id":"W7","title":"On sleep","abstract":
        (1, 1)
    """
    check_threads(n_threads)
    folder = Path(folder).resolve()
    rows = _examples(works, labelled)
    check_target(folder)
    digest = hashlib.sha256()
    counts: dict[str, dict[str, int]] = {column: {} for column in VOCABULARIES}
    n_rows = n_bytes = 0
    with (
        atomic_folder(folder) as unfinished,
        (unfinished / LINES).open("wb") as file,
        progress_bar("write labelled works", unit="works") as advance,
        closing(_render(rows, n_threads or pl.thread_pool_size())) as rendered,
    ):
        for frame, lines in rendered:
            file.write(lines)
            digest.update(lines)
            n_rows, n_bytes = n_rows + frame.height, n_bytes + len(lines)
            for column, found in counts.items():
                for label, count in frame[column].value_counts().rows():
                    found[str(label or "null")] = found.get(str(label or "null"), 0) + count
            advance(frame.height)
        file.close()
        report: dict[str, Any] = {
            "rows": n_rows,
            "classes": {
                column: {label: counts[column].get(label, 0) for label in (*words, "null")}
                for column, words in VOCABULARIES.items()
            },
            "bytes": n_bytes,
            "sha256": digest.hexdigest(),
            "source": dict(source or {}),
        }
        (unfinished / REPORT).write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return report


def _examples(works: pl.LazyFrame, labelled: pl.LazyFrame) -> pl.LazyFrame:
    stage = "write_labelled"
    texts = require_columns(works, WORKS, frame_name="WORKS", stage=stage, columns=("work_id", *_FROM_WORKS))
    needed = {"work_id": WORKS["work_id"], **EXAMPLE}
    names = {"frame_name": "the labelled frame", "stage": stage}
    scored = require_columns(labelled, needed, **names, columns=_SCORED)
    novelty = [name for name in NOVELTY_COLUMNS if name in scored.collect_schema()]
    require_columns(scored, needed, **names, columns=novelty)
    floats = [name for name, dtype in EXAMPLE.items() if dtype == pl.Float64]
    return (
        texts.select("work_id", *_FROM_WORKS)
        .join(scored.select(*_SCORED, *novelty), on="work_id", how="inner", maintain_order="left")
        .with_columns(pl.lit(None, dtype=EXAMPLE[name]).alias(name) for name in NOVELTY_COLUMNS if name not in novelty)
        .with_columns(pl.format("W{}", "work_id").alias("openalex_id"))
        # One form of every number, as in a release: NaN is null, and minus zero is zero.
        .with_columns(
            pl.when(pl.col(name) == 0).then(0.0).otherwise(pl.col(name).fill_nan(None)).alias(name) for name in floats
        )
        .select(EXAMPLE.names())
    )


def _render(rows: pl.LazyFrame, n_threads: int) -> Generator[tuple[pl.DataFrame, bytes]]:
    """Render batches on several threads, a few at a time, and give them in order."""
    waiting: deque[tuple[pl.DataFrame, Future[bytes]]] = deque()
    with closing(_batches(rows)) as batches, ThreadPoolExecutor(n_threads) as pool:
        for frame in batches:
            waiting.append((frame, pool.submit(render_lines, frame)))
            if len(waiting) > n_threads:
                done, lines = waiting.popleft()
                yield done, lines.result()
        for done, lines in waiting:
            yield done, lines.result()


def _batches(rows: pl.LazyFrame) -> Generator[pl.DataFrame]:
    """Run a query batch by batch; who stops early stops the query too.

    Polars would read on in threads of its own, and one that is in Python when the interpreter ends aborts it.
    """
    stopped = threading.Event()

    def check(frame: pl.DataFrame) -> pl.DataFrame:
        if stopped.is_set():
            raise _StoppedError
        return frame

    batches = rows.map_batches(check, streamable=True).collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True)
    try:
        yield from batches
    finally:
        stopped.set()
        with suppress(Exception):  # whatever it was, the caller has an error of its own
            deque(batches, maxlen=0)


class _StoppedError(Exception):
    """Ends a query that nobody waits for."""
