"""An export: every labelled work in one file of JSON lines, the rows of a release, in any number."""

from __future__ import annotations

import hashlib
import json
import keyword
import threading
from collections import Counter, deque
from collections.abc import Generator, Mapping
from contextlib import closing, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from sciscidata._support.parallel import StoppedError, map_in_order
from sciscidata.corpus.folder import read_report, scan_corpus
from sciscidata.engines.engine import Engine
from sciscidata.engines.task import Task, name_of, task
from sciscidata.errors import (
    InputNotFoundError,
    SchemaMismatchError,
    StorageError,
    VerificationError,
    WorkIdError,
)
from sciscidata.options.checks import check_threads
from sciscidata.own_label import OwnLabel, example_schema, vocabularies
from sciscidata.records.ids import ORIGINAL_ID, released_id
from sciscidata.release.manifest import NOVELTY_COLUMNS
from sciscidata.release.release import check_target, plain_numbers
from sciscidata.release.write_json_lines import render_lines
from sciscidata.schemas import EXAMPLE, WORKS, require_columns
from sciscidata.storage import (
    BLANK_SEAL,
    atomic_folder,
    hash_file,
    is_sealed_text,
    real_path,
    seal_text,
    whole_when_done,
)
from sciscidata.storage.paths import remove_folder
from sciscidata.storage.small_files import read_whole
from sciscidata.terminal.progress import Advance, progress_bar

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


LINES: Final = "labelled.jsonl"
REPORT: Final = "labelled.json"

_LINE_BYTES: Final = 512 << 20  # twice the longest record that is read; a longer line is no row
_BLOCK: Final = 1 << 22
_BATCH_ROWS: Final = 2_048  # a few megabytes of text: buffers that the allocator uses again
_FROM_WORKS: Final = ("work_id", *(name for name in EXAMPLE if name in WORKS))


def write_labelled(
    works: pl.LazyFrame,
    labelled: pl.LazyFrame,
    folder: str | Path,
    *,
    source: Mapping[str, Any] | None = None,
    label: OwnLabel | None = None,
    n_threads: int | None = None,
    parts: PartTasks | None = None,
) -> dict[str, Any]:
    """Write a row for every work that is in both frames, in bounded memory; used by ``pipeline.export_labelled``.

    ``labelled.jsonl`` holds EXAMPLE rows with the bytes of a release, in the order of ``works``. ``labelled.json`` is
    the report, which is also returned. With ``parts``, tasks of an engine write the lines of each part, with the same
    bytes. ``folder`` is checked immediately, labels when read.
    """
    check_threads(n_threads)
    folder = real_path(folder)
    texts = require_columns(works, WORKS, frame_name="WORKS", stage="write_labelled", columns=_FROM_WORKS)
    columns = _columns_read(texts)
    check_labelled(labelled, label)
    check_target(folder, can_replace=False)
    digest = hashlib.sha256()
    classes = {column: dict.fromkeys((*words, None), 0) for column, words in vocabularies(label).items()}
    n_rows = n_bytes = 0
    labels = index_labels(labelled, label)
    if parts is None:
        batches = _render(texts.select(columns), labels, n_threads)
        bar = progress_bar("write labelled works", unit="works")
    else:  # tasks have a bar of their own
        batches, bar = _render_by_tasks(labels, parts), nullcontext(_show_nothing)
    with (
        atomic_folder(folder) as unfinished,
        (unfinished / LINES).open("wb") as file,
        bar as advance,
        closing(batches) as rendered,
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
        text = json.dumps({**report, **BLANK_SEAL}, indent=2, ensure_ascii=False)
        (unfinished / REPORT).write_bytes(seal_text(f"{text}\n"))
    if parts is not None:
        remove_folder(parts.home)
    return report


class _Report(msgspec.Struct):
    rows: int
    classes: dict[str, dict[str, int]]
    bytes: int
    sha256: str
    source: dict[str, Any]
    label: dict[str, Any] | None = None


def read_labelled(folder: str | Path) -> dict[str, Any]:
    """Read the report of an export; a VerificationError says that it differs from its SHA-256."""
    try:
        content = read_whole(Path(folder) / REPORT)
        report = msgspec.structs.asdict(msgspec.json.decode(content, type=_Report))
        if report["label"] is None:
            del report["label"]
    except (OSError, msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputNotFoundError(
            f"the export in {folder} has no readable {REPORT}. Write it anew with `sciscidata export`."
        ) from error
    if not is_sealed_text(content):
        raise VerificationError(
            f"{Path(folder) / REPORT} is damaged: it differs from the SHA-256 that it holds. Copy the export again, or "
            "remove it and write it anew with `sciscidata export`."
        )
    return report


def verify_labelled(folder: str | Path) -> dict[str, Any]:
    """Compare an export with its report: size, SHA-256, rows and classes. Reads all of it, and returns the report."""
    report, path = read_labelled(folder), Path(folder) / LINES
    if not path.is_file():
        raise InputNotFoundError(f"{path} is missing, or no file. Write the export anew with `sciscidata export`.")
    measured = {"bytes": path.stat().st_size, "sha256": "", "rows": 0, "classes": report["classes"]}
    if measured["bytes"] == report["bytes"]:  # else it need not be read: it may be of any size
        measured |= {"sha256": hash_file(path), **_count(path, report["classes"])}
    wrong = [name for name in measured if measured[name] != report[name]]
    if wrong:
        raise VerificationError(
            f"{path} is not what {REPORT} says: {', '.join(wrong)} differ. Write the export anew with `sciscidata "
            "export`."
        )
    return report


def _count(path: Path, stated: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Count rows, and works by label; both None where a line is no row."""
    # A key that is no name of a field is no column of ours, and no row has it.
    names = [(name, str | None) for name in stated if name.isidentifier() and not keyword.iskeyword(name)]
    decoder, n_rows = msgspec.json.Decoder(msgspec.defstruct("Labels", names)), 0
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


class PartTasks(NamedTuple):
    """Who writes the lines of each part of the corpus in ``corpus``; ``home`` is where, until all are done."""

    engine: Engine
    corpus: Path
    home: Path


class _Batch(NamedTuple):
    lines: bytes
    n_rows: int
    classes: dict[str, dict[str | None, int]]


def _show_nothing(amount: float, note: str = "", /) -> None:
    """Advance no bar."""


def _render_by_tasks(labels: pl.DataFrame, parts: PartTasks) -> Generator[_Batch]:
    """Have tasks write the lines of each part of a corpus, and give them in order."""
    report, digest = read_report(parts.corpus)
    path = parts.home.absolute() / "labels.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_when_done(path) as unfinished:
        labels.write_ipc(unfinished)
    shared = {
        "corpus": str(parts.corpus.absolute()),
        "corpus_sha256": digest,
        "labels": str(path),
        "labels_sha256": hash_file(path),
        "n_threads": parts.engine.config.threads,
    }
    sizes = [sum(file["bytes"] for file in part["files"].values()) for part in report["parts"]]
    tasks = [
        Task(
            name=f"lines of part {number + 1} of {len(sizes)}",
            work=name_of(render_part),
            arguments=shared | {"part": number},
            out=str(parts.home.absolute() / f"{number:06}.jsonl"),
            cost=float(size),
        )
        for number, size in enumerate(sizes)
    ]
    facts = parts.engine.do_all(tasks, parts.home, what="write labelled works", unit="bytes")
    return _batches_of(tasks, facts)


def _batches_of(tasks: list[Task], facts: list[dict[str, Any]]) -> Generator[_Batch]:
    for done, found in zip(tasks, facts, strict=True):
        yield _Batch(b"", found["rows"], {name: dict(counts) for name, counts in found["classes"].items()})
        with Path(done.out).open("rb") as file:
            while block := file.read(_BLOCK):
                yield _Batch(block, 0, {})


@lru_cache(maxsize=1)
def _read_labels(path: str, sha256: str) -> pl.DataFrame | None:
    """Read the labels for tasks, once in a process; None if the file is another one by now."""
    if hash_file(Path(path)) != sha256:
        return None
    return pl.scan_ipc(path, glob=False).collect(engine="in-memory")


@task
def render_part(
    advance: Advance,
    *,
    corpus: str,
    corpus_sha256: str,
    labels: str,
    labels_sha256: str,
    part: int,
    n_threads: int,
    out: Path,
) -> dict[str, Any]:
    """Write the lines of the labelled works in one part of a corpus, and count them."""
    works, _, provenance = scan_corpus(corpus, part=part)
    known = _read_labels(labels, labels_sha256)
    if provenance["report_sha256"] != corpus_sha256 or known is None:
        raise StorageError(f"the corpus in {corpus}, or its labels, were replaced while they were read. Run again.")
    n_rows, classes = 0, {name: Counter[str | None]() for name in known.select(pl.col(pl.Enum)).columns}
    columns = _columns_read(works)
    with out.open("wb") as file, closing(_render(works.select(columns), known, n_threads)) as rendered:
        for batch in rendered:
            file.write(batch.lines)
            n_rows += batch.n_rows
            for name, counts in batch.classes.items():
                classes[name].update(counts)
    return {"rows": n_rows, "classes": {name: [*counts.items()] for name, counts in classes.items()}}


def _columns_read(works: pl.LazyFrame) -> list[str]:
    return [*_FROM_WORKS, *({ORIGINAL_ID} & {*works.collect_schema()})]


def _render(works: pl.LazyFrame, labels: pl.DataFrame, n_threads: int | None) -> Generator[_Batch]:
    """Render batches on several threads, a few at a time, and give them in order."""
    n_threads = n_threads or pl.thread_pool_size()
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
