"""Write any corpus into a folder of Parquet, text apart from structure."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import polars as pl

from sciscidata.corpus.folder import (
    FOLDERS,
    FORMAT_VERSION_OF_CORPUS,
    INDEX,
    KEYS_BESIDE,
    MADE_OF,
    ORIGINAL_KEY,
    RECEIPTS,
    REMOVED_FILE,
    REMOVED_ROWS,
    TABLES,
    UNFINISHED,
    WRITTEN_BY,
    describe_authors,
    describe_part,
    options_of,
    own_files,
    read_report,
    recorded_sums,
    scan_corpus,
)
from sciscidata.corpus.replacement import NEXT, finish_take_over, take_over
from sciscidata.errors import EmptyInputError, InputNotFoundError, ReleaseExistsError, StorageError, UnsafeNameError
from sciscidata.records.authors_table import AUTHORS
from sciscidata.records.ids import ORIGINAL_ID
from sciscidata.schemas import BESIDE, CITATIONS, WORKS, Corpus, require_columns
from sciscidata.storage import find_damaged, hash_file, refuse_link, seal_json, storage_error, whole_when_done
from sciscidata.storage.lock import hold_folder
from sciscidata.storage.parquet import ROWS_PER_GROUP, write_parquet
from sciscidata.storage.paths import list_visible, remove_folder
from sciscidata.storage.small_files import read_whole

logger = logging.getLogger(__name__)

_PART_ROWS: Final = {"works": 1 << 16, "citations": 1 << 22, WRITTEN_BY: 1 << 22}
_Part = tuple[str, str, dict[str, Any]]  # the stem of a file, its name in the corpus, and what it holds


def write_corpus(
    corpus: Corpus,
    out: str | Path,
    *,
    texts: bool = True,
    authors: pl.LazyFrame | None = None,
    inputs: Sequence[Path] = (),
    overwrite: bool = False,
    advance: Callable[[float], None] | None = None,
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> Corpus:
    """Write works, citations and texts as Parquet, in bounded memory beyond that of the frames; scan the result.

    Each file appears whole, ``corpus.json`` last. A finished corpus is used as it is, after all SHA-256 were compared.
    The frames have to give the same rows in the same order every time. When the size or time of one of ``inputs``
    changes, it is another corpus, which ``overwrite`` replaces when all of the new one is there. A failure leaves no
    corpus, or the old one. ``advance`` gets numbers of rows. ``facts``, more of them for the report, may be filled
    while the frames are read. ``authors`` is what ``scan_authors`` gives of the same source.
    """
    out = Path(out)
    stage = "write_corpus"
    frames = {
        "works": require_columns(corpus.works, WORKS, frame_name="WORKS", stage=stage),
        "citations": require_columns(corpus.citations, CITATIONS, frame_name="CITATIONS", stage=stage),
    }
    sizes = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in inputs]
    made_of: dict[str, Any] = {"format_version": FORMAT_VERSION_OF_CORPUS, "texts": texts, "inputs": sizes}
    made_of["source"] = corpus.provenance
    of_authors = None if authors is None else authors.collect_schema()
    if of_authors is not None:
        made_of[WRITTEN_BY] = of_authors.names() if of_authors.keys() >= AUTHORS.keys() else True
    identity = json.dumps(made_of, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    refuse_foreign(out)
    with locked_folder(out), _claimed(out, identity, overwrite=overwrite) as place:
        if place == out and (out / INDEX).exists() and _is_whole(out):
            return scan_corpus(out)
        tables = ["works", "texts"] if texts else ["works"]
        columns = list(WORKS) if texts else TABLES["works"].names()
        there, of_columns = frames["works"].collect_schema(), dict[str, Any]()
        if (original := there.get(ORIGINAL_ID)) is not None:
            columns.append(ORIGINAL_ID)
            of_columns[ORIGINAL_KEY] = str(original)
        for key, own in KEYS_BESIDE.items():
            if own.items() <= there.items():
                columns += own
                of_columns[key] = True
        n_works, works = _write_parts(frames["works"].select(columns), place, tables, advance)
        n_citations, citations = _write_parts(
            frames["citations"].select(CITATIONS.names()), place, ["citations"], advance
        )
        if not n_works:
            raise EmptyInputError("the source holds no work. Check its files and options.")
        written: list[_Part] = []
        if authors is not None and of_authors is not None:
            (place / WRITTEN_BY).mkdir(exist_ok=True)
            n_rows, written = _write_parts(authors, place, [WRITTEN_BY], advance)
            if not n_rows:
                raise EmptyInputError("the source names no author of any work. Check it, or leave authors out.")
            of_columns |= describe_authors(n_rows, of_authors)
        write_small(place / REMOVED_FILE, partial(write_parquet, pl.DataFrame(schema=REMOVED_ROWS)))
        files: dict[str, dict[str, Any]] = {}
        for stem, name, described in works + citations + written:
            files.setdefault(stem, {})[name] = described
        report = {
            **corpus.provenance,
            **of_columns,
            **facts,
            "works": n_works,
            "citations": n_citations,
            "parts": [{"name": stem, "files": named} for stem, named in sorted(files.items())],
            "removed_sha256": hash_file(place / REMOVED_FILE),
        }
        write_report(place, report)
        if place != out:
            take_over(out, stay=())
    return scan_corpus(out)


def refuse_foreign(out: Path) -> None:
    """Raise StorageError for a folder that holds anything, unless a file of this package says that it is a corpus."""
    if _holds(out / MADE_OF, "source") or _holds(out / INDEX, "parts") or own_files(out, RECEIPTS):
        return
    try:
        entries = list_visible(out.iterdir()) if out.is_dir() else []
        folders = [out / name for name in (*FOLDERS, RECEIPTS) if (out / name).is_dir()]
        empty = {folder.name for folder in folders if not list_visible(folder.iterdir())}
    except OSError as error:
        raise storage_error(error, out) from error
    foreign = [path for path in entries if path.name not in {*empty, "cache"}]
    if foreign:
        inside = min(foreign[0].iterdir(), default=foreign[0]) if foreign[0].is_dir() else foreign[0]
        raise StorageError(
            f"{out} holds {inside.relative_to(out)}, which is no part of a corpus. Choose a folder of its own."
        )


def is_claimed(out: Path, identity: str) -> bool:
    """Whether the corpus in a folder, finished or not, is made of what ``identity`` says."""
    try:
        return read_whole(out / MADE_OF).decode() == identity
    except (OSError, UnicodeDecodeError):
        return False


def claim_folder(out: Path, identity: str, *, overwrite: bool) -> Path:
    """State in a locked folder what its corpus is made of, and return where to make it; it may be there already.

    If ``overwrite``, another corpus is replaced, else it is a ReleaseExistsError. A whole one stays until its successor
    is made in another folder. Then ``take_over`` puts that in its place.
    """
    if is_claimed(out, identity):
        return out
    if not overwrite and any(own_files(out, name) for name in TABLES):
        raise ReleaseExistsError(
            f"{out} holds another corpus: of another source or version, with other options, or of files that have "
            "changed since. Choose another folder, or replace it: overwrite=True."
        )
    if (out / INDEX).is_file():
        return claim_next(out, identity)
    _remove_parts(out)
    write_small(out / MADE_OF, lambda path: path.write_text(identity, "utf-8"))
    return out


def claim_next(out: Path, identity: str) -> Path:
    """Return the folder in which the next version of a corpus is made, with what a killed run for it has left."""
    place = out / NEXT
    if not is_claimed(place, identity):
        remove_folder(place)
        try:
            for name in TABLES:
                (place / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, place) from error
        write_small(place / MADE_OF, lambda path: path.write_text(identity, "utf-8"))
    return place


def _remove_parts(out: Path) -> None:
    (out / INDEX).unlink(missing_ok=True)  # first; what this package has not written stays
    for path in (path for name in (*FOLDERS, RECEIPTS) for path in own_files(out, name)):
        path.unlink()
    with suppress(OSError):  # none, or not empty
        (out / RECEIPTS).rmdir()


@contextmanager
def _claimed(out: Path, identity: str, *, overwrite: bool) -> Generator[Path]:
    """Claim a folder. If the block fails, remove what it wrote: a second run would not go on from it."""
    place = claim_folder(out, identity, overwrite=overwrite)
    if place == out:
        remove_folder(out / NEXT)  # of a killed run for another corpus
    try:
        yield place
    except Exception:
        if place != out:
            remove_folder(place)
        elif not (out / INDEX).exists():
            with suppress(OSError):  # the failure itself says more; other files stay
                _remove_parts(out)
                for name in (MADE_OF, ".lock"):
                    (out / name).unlink(missing_ok=True)
                for name in (*(name for name in FOLDERS if (out / name).is_dir()), ""):
                    (out / name).rmdir()
        raise


def write_small(target: Path, write: Callable[[Path], Any]) -> None:
    """Write one file of a corpus whole or not at all; raise StorageError if that fails."""
    try:
        with whole_when_done(target) as unfinished:
            write(unfinished)
    except OSError as error:
        raise storage_error(error, target) from error


@contextmanager
def locked_folder(out: Path) -> Generator[None]:
    """Make the folder of a corpus and keep a second run out until the block or the process ends.

    What a killed run has begun to replace is finished first.
    """
    for name in (*FOLDERS, RECEIPTS, UNFINISHED, NEXT):
        refuse_link(out / name)
    in_use = StorageError(f"another run is at work in {out}. Wait until it has ended, or choose another folder.")
    with ExitStack() as stack:
        try:
            for name in TABLES:
                (out / name).mkdir(parents=True, exist_ok=True)
            stack.enter_context(hold_folder(out, in_use))
            finish_take_over(out)
        except StorageError:
            raise
        except OSError as error:
            raise storage_error(error, out) from error
        yield


def _is_whole(out: Path) -> bool:
    """Whether a finished corpus is as it was written; else it is not finished any more."""
    try:
        damaged = find_damaged(out, recorded_sums(read_report(out)[0]))
    except (InputNotFoundError, StorageError, UnsafeNameError):  # the report itself
        damaged = [INDEX]
    if damaged:
        logger.warning("%s is damaged in %s of its files; it is made again", out, f"{len(damaged):,}")
        (out / INDEX).unlink(missing_ok=True)
    return not damaged


def _holds(path: Path, key: str) -> bool:
    """Whether a file is JSON of ours."""
    try:
        facts: Any = json.loads(read_whole(path))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(facts, dict) and key in facts


def _write_parts(
    frame: pl.LazyFrame, out: Path, tables: Sequence[str], advance: Callable[[float], None] | None
) -> tuple[int, list[_Part]]:
    """Write a frame in files of a fixed number of rows. Checksums are of memory: so a failure of the disk shows."""
    n_rows, parts = 0, list[_Part]()
    for number, part in enumerate(_parts(frame, _PART_ROWS[tables[0]])):
        stem = f"part-{number:06}"
        for name in tables:
            target, content = out / name / f"{stem}.parquet", io.BytesIO()
            own = [own for own in (ORIGINAL_ID, *BESIDE) if own in part.columns and name == "works"]
            rows = part if name == WRITTEN_BY else part.select(*TABLES[name], *own)
            write_parquet(rows, content, **options_of(name), row_group_size=ROWS_PER_GROUP[name])
            write_small(target, lambda path, content=content: path.write_bytes(content.getbuffer()))
            parts.append((stem, f"{name}/{target.name}", describe_part(content, name)))
        n_rows += part.height
        if advance is not None:
            advance(part.height)
    written = {out / name for _, name, _ in parts}
    for path in (path for name in tables for path in own_files(out, name)):
        if path not in written:  # it would count as a part
            path.unlink()
    return n_rows, parts


def _parts(frame: pl.LazyFrame, size: int) -> Iterator[pl.DataFrame]:
    """Cut the rows of a frame into parts of ``size`` rows."""
    waiting: list[pl.DataFrame] = []
    for batch in frame.collect_batches(chunk_size=min(size, 1 << 18), maintain_order=True):
        waiting.append(batch)
        while sum(part.height for part in waiting) >= size:
            rows = pl.concat(waiting)
            yield rows[:size].rechunk()
            waiting = [rows[size:]]
    rest = pl.concat(waiting) if waiting else pl.DataFrame()
    if rest.height:
        yield rest.rechunk()


def write_report(out: Path, report: dict[str, Any]) -> None:
    """Write ``corpus.json``, sealed: it makes the folder a corpus. Raise StorageError if that fails."""
    versioned = {"format_version": FORMAT_VERSION_OF_CORPUS, **report}
    text = seal_json(versioned, indent=1, ensure_ascii=False)
    write_small(out / INDEX, lambda path: path.write_bytes(text))
