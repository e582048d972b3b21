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
import numpy as np
import numpy.typing as npt
import polars as pl

from sciscidata._support.parallel import StoppedError, map_in_order
from sciscidata.corpus.folder import read_report, scan_corpus
from sciscidata.engines.arrays import hand_over
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
from sciscidata.release.release import check_target
from sciscidata.release.write_json_lines import render_lines
from sciscidata.schemas import EXAMPLE, WORKS, require_columns
from sciscidata.storage import BLANK_SEAL, atomic_folder, hash_file, is_sealed_text, real_path, seal_text
from sciscidata.storage.paths import remove_folder
from sciscidata.storage.small_files import read_whole
from sciscidata.terminal.progress import Advance, progress_bar

_NEEDED: Final = ("work_id", "cd_index", "disruption_label")
_SCORES: Final = tuple(name for name in ("cd_index", *NOVELTY_COLUMNS) if EXAMPLE[name] == pl.Float64())
_STAGE: Final = "write_labelled"
_NONE, _UNKNOWN = 255, 254  # codes of labels


class LabelLookup:
    """Scores and labels of all works, found by id: 34 bytes a work, whatever the order of the works is.

    ``labelled``, one row per work, is collected immediately: ``work_id``, ``cd_index`` and ``disruption_label``, and
    the novelty columns of EXAMPLE, null where there are none. Rows without an id do not count. A SchemaMismatchError
    says that a column is missing or mistyped, or a label is not in its vocabulary. A WorkIdError says that a work is
    named twice. ``label`` is the own label of the works, if they have one.

    Example:
        >>> row = {"work_id": [7], "cd_index": [-0.0], "disruption_label": ["neutral"]}
        >>> LabelLookup(pl.LazyFrame(row)).add_to(pl.DataFrame({"work_id": [9, 7]})).row(0, named=True)
        {'work_id': 7, 'cd_index': 0.0, 'novelty_score': None, 'conventionality_score': None,
        'disruption_label': 'neutral', 'novelty_label': None}
    """

    def __init__(self, labelled: pl.LazyFrame | pl.DataFrame, label: OwnLabel | None = None) -> None:
        kept = check_labelled(labelled, label)
        self._words = vocabularies(label)
        self._columns: dict[str, npt.NDArray[Any]] = {}
        there = kept.collect_schema()
        columns = [pl.col(name).fill_null(float("nan")) for name in _SCORES if name in there]
        columns += [_encode(name, words) for name, words in self._words.items() if name in there]
        rows = kept.drop_nulls("work_id").select("work_id", *columns).collect(engine="streaming")
        ids = rows.drop_in_place("work_id").to_numpy()
        is_sorted = bool((ids[1:] > ids[:-1]).all())
        order = np.empty(0, np.int64) if is_sorted else np.argsort(ids)
        self._ids: npt.NDArray[np.int64] = ids if is_sorted else ids[order]
        for name in rows.columns:  # one after the other, to hold no second copy of all of them
            values = rows.drop_in_place(name).to_numpy()
            self._columns[name] = values if is_sorted else values[order]
        twice = np.flatnonzero(self._ids[1:] == self._ids[:-1])
        if twice.size:
            msg = f"{_STAGE}: the labelled frame names W{self._ids[twice[0]]} twice. Keep one row for each work."
            raise WorkIdError(msg)
        for name, words in self._words.items():
            if (self._columns.get(name, ids[:0]) == _UNKNOWN).any():
                msg = f"{_STAGE}: {name} of the labelled frame holds other labels than {', '.join(words)}, or null."
                raise SchemaMismatchError(msg)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], label: OwnLabel | None) -> LabelLookup:
        """Return the lookup whose ``arrays`` these are."""
        lookup = cls.__new__(cls)
        lookup._ids, lookup._words = arrays["work_id"], vocabularies(label)
        lookup._columns = {name: array for name, array in arrays.items() if name != "work_id"}
        return lookup

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that it holds: ids in ascending order, and a value for each in every other array."""
        return {"work_id": self._ids, **self._columns}

    def add_to(self, works: pl.DataFrame) -> pl.DataFrame:
        """Keep the rows of ``works`` that are labelled, in order, and add their scores and labels.

        Numbers have one form, as in a release: NaN is null, and minus zero is zero.
        """
        works = works.drop_nulls("work_id")
        wanted = works["work_id"].to_numpy()
        positions = np.searchsorted(self._ids, wanted)
        is_known = np.zeros(len(wanted), np.bool_)
        inside = positions < len(self._ids)
        is_known[inside] = self._ids[positions[inside]] == wanted[inside]
        positions = positions[is_known]
        columns = [self._look_up(name, positions) for name in (*_SCORES, *self._words)]
        return (works if is_known.all() else works.filter(is_known)).with_columns(columns)

    def _look_up(self, name: str, places: npt.NDArray[np.int64]) -> pl.Series:
        if name not in self._columns:
            return pl.repeat(None, len(places), dtype=EXAMPLE[name], eager=True).alias(name)
        values = self._columns[name][places]
        if name not in self._words:
            return pl.Series(name, values + 0.0).fill_nan(None)
        words = self._words[name]
        rows = np.where(values == _NONE, len(words), values).astype(np.uint32)
        return pl.Series(name, [*words, None], pl.String).gather(rows)


def check_labelled(labelled: pl.LazyFrame | pl.DataFrame, label: OwnLabel | None = None) -> pl.LazyFrame:
    """Raise a SchemaMismatchError if ``LabelLookup`` could not read a frame, before any row is read."""
    needed: Mapping[str, pl.DataType] = {"work_id": WORKS["work_id"], **example_schema(label)}
    names = {"frame_name": "the labelled frame", "stage": _STAGE}
    columns = _NEEDED if label is None else (*_NEEDED, label.name)
    frame = require_columns(labelled, needed, **names, columns=columns)
    there = frame.collect_schema()
    return require_columns(frame, needed, **names, columns=[name for name in NOVELTY_COLUMNS if name in there])


def _encode(name: str, words: tuple[str, ...]) -> pl.Expr:
    codes: dict[str | None, int] = {word: code for code, word in enumerate(words)}
    return pl.col(name).replace_strict({None: _NONE, **codes}, default=_UNKNOWN, return_dtype=pl.UInt8)


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

    ``labelled.jsonl`` holds EXAMPLE rows with the bytes that a release has, in the order of ``works``.
    ``labelled.json`` is the report, with ``source`` in it, which is also returned. An own label of the works
    (``label``) follows after the columns of EXAMPLE, and is described in the report. Both appear whole or not at all.
    Texts pass through in batches. The bytes do not depend on ``n_threads``, or on ``parts``. With ``parts``, ``works``
    are those of a corpus on disk, and the tasks of an engine write the lines of each of its parts.

    Columns and ``folder`` are checked immediately, labels when read. Errors are those of ``LabelLookup``, a
    ReleaseExistsError if ``folder`` holds anything, and a StorageError if it cannot be written.

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
    columns = _columns_read(texts)
    check_labelled(labelled, label)
    check_target(folder, can_replace=False)
    digest = hashlib.sha256()
    classes = {column: dict.fromkeys((*words, None), 0) for column, words in vocabularies(label).items()}
    n_rows = n_bytes = 0
    lookup = LabelLookup(labelled, label)
    if parts is None:
        batches = _render(texts.select(columns), lookup, label, n_threads)
        bar = progress_bar("write labelled works", unit="works")
    else:  # tasks have a bar of their own
        batches, bar = _render_by_tasks(lookup, label, parts), nullcontext(_show_nothing)
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
    """Read the report of an export.

    An InputNotFoundError says that there is none that can be read; a VerificationError, that it differs from its
    SHA-256.
    """
    try:
        content = read_whole(Path(folder) / REPORT)
        report = msgspec.structs.asdict(msgspec.json.decode(content, type=_Report))
        if report["label"] is None:
            del report["label"]
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
    """Compare an export with its report: size, SHA-256, rows and classes. Reads all of it, and returns the report.

    Errors are as of read_labelled, for the lines too.
    """
    report, path = read_labelled(folder), Path(folder) / LINES
    if not path.is_file():
        msg = f"{path} is missing, or no file. Write the export anew with `sciscidata export`."
        raise InputNotFoundError(msg)
    measured = {"bytes": path.stat().st_size, "sha256": "", "rows": 0, "classes": report["classes"]}
    if measured["bytes"] == report["bytes"]:  # else it need not be read: it may be of any size
        measured |= {"sha256": hash_file(path), **_count(path, report["classes"])}
    wrong = [name for name in measured if measured[name] != report[name]]
    if wrong:
        msg = (
            f"{path} is not what {REPORT} says: {', '.join(wrong)} differ. Write the export anew with `sciscidata "
            "export`."
        )
        raise VerificationError(msg)
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


def _render_by_tasks(labelled: LabelLookup, label: OwnLabel | None, parts: PartTasks) -> Generator[_Batch]:
    """Have tasks write the lines of each part of a corpus, and give them in order."""
    report, digest = read_report(parts.corpus)
    shared = {
        "corpus": str(parts.corpus.absolute()),
        "corpus_sha256": digest,
        "arrays": {name: hand_over(array, parts.home / f"{name}.npy") for name, array in labelled.arrays().items()},
        "label": None if label is None else {"name": label.name, "classes": [*label.classes]},
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
def _lookup_in_task(given: str) -> tuple[LabelLookup, OwnLabel | None]:
    arguments = json.loads(given)
    arrays = {name: np.load(path, mmap_mode="r") for name, path in arguments["arrays"].items()}
    # Where the classes came from does not matter any more.
    label = None if arguments["label"] is None else OwnLabel(**arguments["label"], column=arguments["label"]["name"])
    return LabelLookup.of_arrays(arrays, label), label


@task
def render_part(
    advance: Advance,
    *,
    corpus: str,
    corpus_sha256: str,
    arrays: dict[str, str],
    label: dict[str, Any] | None,
    part: int,
    n_threads: int,
    out: Path,
) -> dict[str, Any]:
    """Write the lines of the labelled works in one part of a corpus, and count them."""
    lookup, parsed = _lookup_in_task(json.dumps({"arrays": arrays, "label": label}, sort_keys=True))
    works, _, provenance = scan_corpus(corpus, part=part)
    if provenance["report_sha256"] != corpus_sha256:
        msg = f"the corpus in {corpus} was replaced while it was read. Run again."
        raise StorageError(msg)
    n_rows, classes = 0, {name: Counter[str | None]() for name in vocabularies(parsed)}
    columns = _columns_read(works)
    with out.open("wb") as file, closing(_render(works.select(columns), lookup, parsed, n_threads)) as rendered:
        for batch in rendered:
            file.write(batch.lines)
            n_rows += batch.n_rows
            for name, counts in batch.classes.items():
                classes[name].update(counts)
    return {"rows": n_rows, "classes": {name: [*counts.items()] for name, counts in classes.items()}}


def _columns_read(works: pl.LazyFrame) -> list[str]:
    return [*_FROM_WORKS, *({ORIGINAL_ID} & {*works.collect_schema()})]


def _render(
    works: pl.LazyFrame, labelled: LabelLookup, label: OwnLabel | None, n_threads: int | None
) -> Generator[_Batch]:
    """Render batches on several threads, a few at a time, and give them in order."""
    n_threads = n_threads or pl.thread_pool_size()
    names, words = example_schema(label).names(), vocabularies(label)

    def render(rows: pl.DataFrame) -> _Batch:
        rows = labelled.add_to(rows)
        rows = rows.with_columns(released_id(ORIGINAL_ID in rows.columns)).select(names)
        classes = {name: dict(rows[name].value_counts().rows()) for name in words}
        return _Batch(render_lines(rows), rows.height, classes)

    with closing(_batches(works)) as batches:
        yield from map_in_order(render, batches, n_threads, n_held=n_threads + 1)


def _batches(rows: pl.LazyFrame) -> Generator[pl.DataFrame]:
    """Run a query batch by batch; stopping early stops the query too.

    Polars would read on in its own threads. One that is in Python when the interpreter ends aborts it.
    """
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
