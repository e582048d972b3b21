"""An export: every labelled work in one file of JSON lines, the rows of a release, in any number."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from sciscidata._support.parallel import StoppedError, map_in_order
from sciscidata.errors import (
    InputNotFoundError,
    SchemaMismatchError,
    VerificationError,
    WorkIdError,
)
from sciscidata.own_label import OwnLabel, example_schema, vocabularies
from sciscidata.records.ids import ORIGINAL_ID, released_id
from sciscidata.release.release import check_target, plain_numbers
from sciscidata.release.write_json_lines import render_lines
from sciscidata.schemas import EXAMPLE, LINES, NOVELTY_COLUMNS, WORKS, require_columns
from sciscidata.storage import (
    BLANK_SEAL,
    atomic_folder,
    hash_file,
    is_sealed_text,
    real_path,
    seal_json,
)
from sciscidata.storage.small_files import parse_json, read_whole
from sciscidata.terminal.progress import progress_bar

_NEEDED: Final = ("work_id", "cd_index", "disruption_label")
_SCORES: Final = tuple(name for name in ("cd_index", *NOVELTY_COLUMNS) if EXAMPLE[name] == pl.Float64())
_STAGE: Final = "write_labelled"


def index_labels(labelled: pl.LazyFrame | pl.DataFrame, label: OwnLabel | None = None) -> pl.DataFrame:
    """Collect scores and labels of all works, by id in ascending order, without rows that lack one: 34 bytes a work."""
    kept, words = check_labelled(labelled, label), vocabularies(label)
    there = kept.collect_schema()
    absent = [pl.lit(None, EXAMPLE[name]).alias(name) for name in (*_SCORES, *words) if name not in there]
    encoded = [pl.col(name).cast(pl.Enum(known), strict=False).alias(name) for name, known in words.items()]
    is_other = [
        (pl.col(name).is_not_null() & code.is_null()).alias(f"other_{name}")
        for name, code in zip(words, encoded, strict=True)
    ]
    rows = (
        kept.with_columns(absent)
        .drop_nulls("work_id")
        .select("work_id", *_SCORES, *encoded, *is_other)
        .collect(engine="streaming")
        .rechunk()
    )
    for name, known in words.items():
        if rows.drop_in_place(f"other_{name}").any():
            raise SchemaMismatchError(
                f"{_STAGE}: {name} of the labelled frame holds other labels than {', '.join(known)}, or null."
            )
    if not rows["work_id"].is_sorted():
        order = rows["work_id"].arg_sort()
        for at, name in enumerate(rows.columns):  # one after the other, to hold no second copy of all of them
            rows.replace_column(at, rows[name].gather(order))
    twice = (rows["work_id"] == rows["work_id"].shift()).arg_true()
    if len(twice):
        raise WorkIdError(
            f"{_STAGE}: the labelled frame names W{rows['work_id'][twice[0]]} twice. Keep one row for each work."
        )
    return rows


def add_labels(works: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows of ``works`` that are labelled, in order, and add scores and labels; no NaN and no minus zero."""
    works = works.drop_nulls("work_id")
    places = labels["work_id"].search_sorted(works["work_id"])
    found = labels.select(pl.all().gather(places, null_on_oob=True))
    is_known = (found["work_id"] == works["work_id"]).fill_null(value=False)
    return plain_numbers(works.hstack(found.drop("work_id")).filter(is_known)).with_columns(
        pl.col(pl.Enum).cast(pl.String)
    )


def check_labelled(labelled: pl.LazyFrame | pl.DataFrame, label: OwnLabel | None = None) -> pl.LazyFrame:
    """Raise a SchemaMismatchError if ``index_labels`` could not read a frame, before any row is read."""
    needed: Mapping[str, pl.DataType] = {"work_id": WORKS["work_id"], **example_schema(label)}
    names = {"frame_name": "the labelled frame", "stage": _STAGE}
    columns = _NEEDED if label is None else (*_NEEDED, label.name)
    frame = require_columns(labelled, needed, **names, columns=columns)
    there = frame.collect_schema()
    return require_columns(frame, needed, **names, columns=[name for name in NOVELTY_COLUMNS if name in there])


REPORT: Final = "labelled.json"
_REPORTED: Final = {"rows": int, "classes": dict, "bytes": int, "sha256": str, "source": dict}

_BATCH_ROWS: Final = 2_048  # a few megabytes of text: buffers that the allocator uses again
_FROM_WORKS: Final = ("work_id", *(name for name in EXAMPLE if name in WORKS))


def write_labelled(
    works: pl.LazyFrame,
    labelled: pl.LazyFrame,
    folder: str | Path,
    *,
    source: Mapping[str, Any] | None = None,
    label: OwnLabel | None = None,
) -> dict[str, Any]:
    """Write a row for every work that is in both frames, in bounded memory; used by ``pipeline.export_labelled``.

    ``labelled.jsonl`` holds EXAMPLE rows with the bytes of a release, in the order of ``works``. ``labelled.json`` is
    the report, which is also returned. ``folder`` is checked immediately, labels when read.
    """
    folder = real_path(folder)
    texts = require_columns(works, WORKS, frame_name="WORKS", stage="write_labelled", columns=_FROM_WORKS)
    columns = _columns_read(texts)
    check_labelled(labelled, label)
    check_target(folder, can_replace=False)
    digest = hashlib.sha256()
    classes = {column: dict.fromkeys((*words, None), 0) for column, words in vocabularies(label).items()}
    n_rows = n_bytes = 0
    labels = index_labels(labelled, label)
    with (
        atomic_folder(folder) as unfinished,
        (unfinished / LINES).open("wb") as file,
        progress_bar("write labelled works", unit="works") as advance,
        closing(_render(texts.select(columns), labels)) as rendered,
    ):
        for batch in rendered:
            file.write(batch.lines)
            digest.update(batch.lines)
            n_rows, n_bytes = n_rows + batch.n_rows, n_bytes + len(batch.lines)
            for column, counts in batch.classes.items():
                for word, count in counts.items():
                    classes[column][word] += count
            advance(batch.n_rows)
        file.close()
        report: dict[str, Any] = {
            "rows": n_rows,
            "classes": {column: {word or "null": n for word, n in found.items()} for column, found in classes.items()},
            "bytes": n_bytes,
            "sha256": digest.hexdigest(),
            "source": dict(source or {}),
            **({} if label is None else {"label": label.stated()}),
        }
        (unfinished / REPORT).write_bytes(seal_json(report, indent=2, ensure_ascii=False))
    return report


def read_labelled(folder: str | Path) -> dict[str, Any]:
    """Read the report of an export; a VerificationError says that it differs from its SHA-256."""
    try:
        content = read_whole(Path(folder) / REPORT)
        report = parse_json(content)
        if not all(isinstance(report[name], kind) for name, kind in _REPORTED.items()):
            raise TypeError("an entry is of another type")
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise InputNotFoundError(
            f"the export in {folder} has no readable {REPORT}. Write it anew with `sciscidata export`."
        ) from error
    if not is_sealed_text(content):
        raise VerificationError(
            f"{Path(folder) / REPORT} is damaged: it differs from the SHA-256 that it holds. Copy the export again, or "
            "remove it and write it anew with `sciscidata export`."
        )
    return {name: value for name, value in report.items() if name not in BLANK_SEAL}


def verify_labelled(folder: str | Path) -> dict[str, Any]:
    """Compare an export with its report: size and SHA-256. Reads all of it, and returns the report."""
    report, path = read_labelled(folder), Path(folder) / LINES
    if not path.is_file():
        raise InputNotFoundError(f"{path} is missing, or no file. Write the export anew with `sciscidata export`.")
    # Of another size it need not be read.
    if path.stat().st_size != report["bytes"] or hash_file(path) != report["sha256"]:
        raise VerificationError(
            f"{path} is not what {REPORT} says: its size or SHA-256 differs. Write the export anew with `sciscidata "
            "export`."
        )
    return report


class _Batch(NamedTuple):
    lines: bytes
    n_rows: int
    classes: dict[str, dict[str | None, int]]


def _columns_read(works: pl.LazyFrame) -> list[str]:
    return [*_FROM_WORKS, *({ORIGINAL_ID} & {*works.collect_schema()})]


def _render(works: pl.LazyFrame, labels: pl.DataFrame) -> Generator[_Batch]:
    """Render batches on several threads, a few at a time, and give them in order."""
    n_threads = pl.thread_pool_size()
    words = labels.select(pl.col(pl.Enum)).columns
    names = list(dict.fromkeys((*EXAMPLE, *words)))

    def render(rows: pl.DataFrame) -> _Batch:
        rows = add_labels(rows, labels)
        rows = rows.with_columns(released_id(ORIGINAL_ID in rows.columns)).select(names)
        classes = {name: dict(rows[name].value_counts().rows()) for name in words}
        return _Batch(render_lines(rows), rows.height, classes)

    with closing(_batches(works)) as batches:
        yield from map_in_order(render, batches, n_threads, n_held=n_threads + 1)


def _batches(rows: pl.LazyFrame) -> Generator[pl.DataFrame]:
    """Run a query batch by batch, and stop it at the end: else Polars' threads abort the interpreter at its end."""
    stopped = threading.Event()

    def check(frame: pl.DataFrame) -> pl.DataFrame:
        if stopped.is_set():
            raise StoppedError
        return frame

    batches = rows.map_batches(check, streamable=True).collect_batches(chunk_size=_BATCH_ROWS, maintain_order=True)
    try:
        yield from batches
    finally:
        stopped.set()
        with suppress(Exception):  # whatever it was, the caller has an error of its own
            deque(batches, maxlen=0)
