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
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from sciscidata.checks import check_threads
from sciscidata.errors import InputNotFoundError, VerificationError
from sciscidata.json_lines import render_lines
from sciscidata.label_lookup import LabelLookup, check_labelled
from sciscidata.labels import VOCABULARIES
from sciscidata.progress import progress_bar
from sciscidata.release import check_target
from sciscidata.schemas import EXAMPLE, WORKS, require_columns
from sciscidata.storage import (
    BLANK_SEAL,
    atomic_folder,
    hash_file,
    is_sealed_text,
    real_path,
    seal_text,
)
from sciscidata.storage.small_files import read_whole

LINES: Final = "labelled.jsonl"
REPORT: Final = "labelled.json"

_LINE_BYTES: Final = 512 << 20  # twice the longest record that is read; a longer line is no row
_BATCH_ROWS: Final = 2_048  # a few megabytes of text: buffers that the allocator uses again
_FROM_WORKS: Final = ("work_id", *(name for name in EXAMPLE if name in WORKS))


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
    batches; of ``labelled`` 34 bytes a work lie in memory.

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
        SchemaMismatchError: at once, if a column is missing or mistyped; when read, if a label is none of ours.
        WorkIdError: ``labelled`` names a work twice.
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
    folder = real_path(folder)
    texts = require_columns(works, WORKS, frame_name="WORKS", stage="write_labelled", columns=_FROM_WORKS)
    check_labelled(labelled)
    check_target(folder, can_replace=False)
    digest = hashlib.sha256()
    classes = {column: dict.fromkeys((*words, None), 0) for column, words in VOCABULARIES.items()}
    n_rows = n_bytes = 0
    with (
        atomic_folder(folder) as unfinished,
        (unfinished / LINES).open("wb") as file,
        progress_bar("write labelled works", unit="works") as advance,
        closing(_render(texts.select(_FROM_WORKS), LabelLookup(labelled), n_threads)) as rendered,
    ):
        for batch in rendered:
            file.write(batch.lines)
            digest.update(batch.lines)
            n_rows, n_bytes = n_rows + batch.n_rows, n_bytes + len(batch.lines)
            for column, counts in batch.classes.items():
                for label, count in counts.items():
                    classes[column][label] += count
            advance(batch.n_rows)
        file.close()
        report: dict[str, Any] = {
            "rows": n_rows,
            "classes": {
                column: {label or "null": count for label, count in counts.items()}
                for column, counts in classes.items()
            },
            "bytes": n_bytes,
            "sha256": digest.hexdigest(),
            "source": dict(source or {}),
        }
        text = json.dumps({**report, **BLANK_SEAL}, indent=2, ensure_ascii=False)
        (unfinished / REPORT).write_bytes(seal_text(f"{text}\n"))
    return report


class _Report(msgspec.Struct):
    rows: int
    classes: dict[str, dict[str, int]]
    bytes: int
    sha256: str
    source: dict[str, Any]


def read_labelled(folder: str | Path) -> dict[str, Any]:
    """Read what an export says of itself.

    Returns:
        The report of ``write_labelled``.

    Raises:
        InputNotFoundError: there is no export, or its report cannot be read.
        VerificationError: the report differs from the SHA-256 that it holds.

    Example:
        >>> read_labelled("no/such/folder")
        Traceback (most recent call last):
        ...
        sciscidata.errors.InputNotFoundError: the export in no/such/folder has no readable labelled.json. Write it anew
        with `sciscidata export`.
    """
    try:
        content = read_whole(Path(folder) / REPORT)
        report = msgspec.structs.asdict(msgspec.json.decode(content, type=_Report))
    except (OSError, msgspec.DecodeError, ValueError, RecursionError) as error:
        msg = f"the export in {folder} has no readable {REPORT}. Write it anew with `sciscidata export`."
        raise InputNotFoundError(msg) from error
    if not is_sealed_text(content):
        msg = (
            f"{Path(folder) / REPORT} is damaged: it differs from the SHA-256 that it holds. Copy the export again, or "
            "remove it and write it anew with `sciscidata export`."
        )
        raise VerificationError(msg)
    return report


def verify_labelled(folder: str | Path) -> dict[str, Any]:
    """Compare an export with its report: size, SHA-256, rows and classes. Reads all of it.

    Returns:
        The report.

    Raises:
        InputNotFoundError: as read_labelled; or the lines are not there.
        VerificationError: as read_labelled; or the lines are not what the report says.
    """
    report, path = read_labelled(folder), Path(folder) / LINES
    if not path.is_file():
        msg = f"{path} is missing, or no file. Write the export anew with `sciscidata export`."
        raise InputNotFoundError(msg)
    found = {"bytes": path.stat().st_size, "sha256": "", "rows": 0, "classes": report["classes"]}
    if found["bytes"] == report["bytes"]:  # else it need not be read: it may be of any size
        found |= {"sha256": hash_file(path), **_count(path, report["classes"])}
    wrong = [name for name in found if found[name] != report[name]]
    if wrong:
        msg = (
            f"{path} is not what {REPORT} says: {', '.join(wrong)} differ. Write the export anew with `sciscidata "
            "export`."
        )
        raise VerificationError(msg)
    return report


class _Labels(msgspec.Struct):
    disruption_label: str | None
    novelty_label: str | None


def _count(path: Path, stated: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Count rows, and works by label."""
    decoder, n_rows = msgspec.json.Decoder(_Labels), 0
    classes: dict[str, dict[str, int]] = {column: dict.fromkeys(labels, 0) for column, labels in stated.items()}
    try:
        with path.open("rb") as file:
            while line := file.readline(_LINE_BYTES):
                labels = decoder.decode(line)
                n_rows += 1
                for column, counts in classes.items():
                    label = getattr(labels, column) or "null"
                    counts[label] = counts.get(label, 0) + 1
    except (msgspec.MsgspecError, UnicodeDecodeError, AttributeError, RecursionError):
        return {"rows": None, "classes": None}
    return {"rows": n_rows, "classes": classes}


class _Batch(NamedTuple):
    lines: memoryview
    n_rows: int
    classes: dict[str, dict[str | None, int]]


def _render(works: pl.LazyFrame, labelled: LabelLookup, n_threads: int | None) -> Generator[_Batch]:
    """Render batches on several threads, a few at a time, and give them in order."""
    n_threads = n_threads or pl.thread_pool_size()

    def render(rows: pl.DataFrame) -> _Batch:
        rows = labelled.add_to(rows).with_columns(openalex_id=pl.format("W{}", "work_id")).select(EXAMPLE.names())
        return _Batch(
            render_lines(rows), rows.height, {name: dict(rows[name].value_counts().rows()) for name in VOCABULARIES}
        )

    waiting: deque[Future[_Batch]] = deque()
    with closing(_batches(works)) as batches, ThreadPoolExecutor(n_threads) as pool:
        for rows in batches:
            waiting.append(pool.submit(render, rows))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


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
