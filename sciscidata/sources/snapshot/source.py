"""ingest_snapshot: read an OpenAlex snapshot into a corpus on disk, and later only its changed parts."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import polars as pl

from sciscidata.corpus.folder import (
    INDEX,
    REMOVED_FILE,
    TABLES,
    UNFINISHED,
    WRITTEN_BY,
    describe_authors,
    list_left_out,
    scan_corpus,
)
from sciscidata.corpus.replacement import NEXT, home_of
from sciscidata.corpus.writer import (
    claim_folder,
    claim_next,
    is_claimed,
    locked_folder,
    refuse_foreign,
    write_report,
    write_small,
)
from sciscidata.engines.engine import Engine
from sciscidata.errors import ConfigError, CorruptRecordError, EmptyInputError, InputNotFoundError, StorageError
from sciscidata.options.checks import Configuration, FolderOrUrl, PositiveInt, require_config
from sciscidata.records.authors_table import AUTHORS
from sciscidata.records.dois import CHANGED_DOIS, describe_changed
from sciscidata.records.work_columns import PARSER_VERSION
from sciscidata.remote.object_store import RETRIES_AT_FIRST, StoredObject, is_url, refuse_credentials
from sciscidata.schemas import Corpus
from sciscidata.sources.kinds import REFERENCES_PER_WORK, Citations, Opening, ToRead, open_large
from sciscidata.sources.snapshot.downloads import Reach, downloaded, name_download, tidy_downloads
from sciscidata.sources.snapshot.layout import Edition, Layout, find_layout
from sciscidata.sources.snapshot.parts import (
    AUTHOR_IDS,
    Job,
    Receipt,
    remove_leftovers,
    remove_part,
    restate,
    run_jobs,
)
from sciscidata.sources.snapshot.plausibility import find_implausible
from sciscidata.sources.snapshot.removals import find_removals, read_deleted_ids
from sciscidata.sources.snapshot.update import find_known, put_in_place, tell_other_options, tell_read
from sciscidata.storage import expand_home, hash_file, real_path
from sciscidata.storage.parquet import write_parquet
from sciscidata.storage.paths import remove_folder
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import Advance, progress_bar

_LOG = logging.getLogger(__name__)
_KIND = "openalex snapshot"
_BYTES_PER_WORK = 1_300  # compressed, of a whole snapshot
#: Without date or options: a newer copy, or one with other options, replaces the older one part by part.
_MADE_OF = json.dumps({"format_version": 1, "source": {"kind": _KIND}}, indent=1, sort_keys=True) + "\n"
_COUNTS = (
    "lines", "works", "citations", "xpac_works", "corrupt_lines", "duplicate_ids", "malformed_references",
    "missing_values", "without_venue",
)  # fmt: skip

#: Bytes written per byte read, at most: real records with long abstracts need 0.31 (jsonl) and 0.32 (parquet).
_DISK_RATIO = 0.5


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class SnapshotConfig(Configuration):
    """Which snapshot to read, and what to leave out.

    Attributes:
        folder: the OpenAlex snapshot: a copy, or a URL of a store (``s3://openalex``, ``gs://``, ``az://``). All of the
            bucket, its ``data``, or any folder down to ``works``.
        edition: file format to read. None: Parquet where both are there.
        include_xpac: keep the expansion corpus, about a third of the snapshot. The API leaves it out unless asked.
        corrupt: what to do about parts that are damaged, cut off or missing. ``"fail"``: read and keep all others, then
            raise. ``"skip"``: leave out such parts, and single corrupt lines, and count them.
        implausible: what to do about parts whose shares of titles, years, types, languages or references are far from
            those of any real part. ``"skip"``: leave out such parts, name them and count them. ``"keep"``: only name
            them.
        allow_missing_manifest: read the parts of an unfinished copy; the manifest is copied last.
        n_workers: how many parts are read at once. None: as many as Polars has threads.
        store_options: settings of a store as obstore names them, such as ``region`` and ``endpoint``; never recorded.
            What is not given comes from the environment, and so do all credentials.

    Raises:
        ConfigError: on construction, if a value does not fit its type, or ``store_options`` holds a credential.

    Example:
        >>> SnapshotConfig(folder="openalex", corrupt="ignore")
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: SnapshotConfig.corrupt is 'ignore', needs one of fail, skip.
    """

    folder: FolderOrUrl
    edition: Edition | None = None
    include_xpac: bool = False
    corrupt: Literal["fail", "skip"] = "fail"
    implausible: Literal["skip", "keep"] = "skip"
    allow_missing_manifest: bool = False
    n_workers: PositiveInt | None = None
    store_options: Mapping[str, Any] | None = field(default=None, repr=False)

    def _check(self) -> None:
        refuse_credentials(self.store_options, name="SnapshotConfig.store_options")


def ingest_snapshot(
    config: SnapshotConfig,
    out: str | Path,
    advance: Advance | None = None,
    *,
    authors: bool = False,
    overwrite: bool = False,
    engine: Engine | None = None,
) -> Corpus:
    """Read a snapshot into Parquet, one file per part. A second run reads only the parts that have changed.

    ``works/part-*.parquet`` has WORKS without title and abstract, ``texts/part-*.parquet`` these of the same rows.
    ``citations/part-*.parquet`` has CITATIONS with repeats, and works that cite themselves. With ``authors``,
    ``authors/part-*.parquet`` has AUTHORS. ``removed.parquet`` has deleted works, and works that a newer part repeats.
    The report ``corpus.json`` is written last. A whole corpus stays as it is until all of the new one is there. A
    killed run continues with the same bytes for any number of workers. ``advance`` gets the bytes read or already done.
    After all good parts are done, a CorruptRecordError names the corrupt ones.
    """
    require_config(config, SnapshotConfig, "folder='openalex'")
    out = Path(out)
    layout = _find(config)
    report_problems(layout, config)
    refuse_foreign(out)
    strict, reach = config.corrupt == "fail", _reach(config)
    jobs = [Job(part, str(out), config.include_xpac, strict, reach, authors) for part in layout.parts]
    n_workers = config.n_workers or pl.thread_pool_size()
    if not is_claimed(out, _MADE_OF):
        _check_disk(jobs, out, n_workers)  # before the folder is made
    with locked_folder(out):
        begun = time.monotonic()
        folders = [out] if is_claimed(out, _MADE_OF) else []
        place = claim_folder(out, _MADE_OF, overwrite=overwrite)
        if not (out / INDEX).is_file():
            remove_folder(out / NEXT)
        else:  # it stays until all of the new one is there
            place = claim_next(out, _MADE_OF)
            options = {"edition": layout.edition, "include_xpac": config.include_xpac, "parser_version": PARSER_VERSION}
            if folders:
                tell_other_options(out, options, authors=authors)
        jobs = [msgspec.structs.replace(job, out=str(place)) for job in jobs]
        known = find_known(jobs, [place, *folders])
        todo = [job for job in jobs if job.part.name not in known]
        _check_disk(todo, out, n_workers)
        if advance is not None:
            advance(sum(one.receipt.bytes for one in known.values()))
        tables = TABLES.keys() | ({WRITTEN_BY} if authors else set())
        gone = remove_leftovers(place, {part.stem for part in layout.parts}, tables)
        lists = {name_download(file) for file in layout.deleted if isinstance(file, StoredObject)}
        tidy_downloads(place, lists | {name_download(job.part.stored) for job in todo if job.part.stored})
        for job in jobs:
            if (one := known.get(job.part.name)) and one.is_other:
                restate(job, one.receipt)
        parts = {name: (one.folder, one.receipt) for name, one in known.items()}
        problems = dict(layout.problems)
        with closing(run_jobs(todo, n_workers, advance, engine)) as results:
            for job, result in results:
                if isinstance(result, Receipt):
                    parts[job.part.name] = place, result
                    continue
                problems[job.part.name] = str(result)
                remove_part(place, job.part.stem)
                _LOG.warning("%s: %s", job.part.name, result)
        implausible = {
            name: reason for name, (_, one) in sorted(parts.items()) if (reason := find_implausible(one.counts))
        }
        named = sorted(problems.items() - layout.problems.items())
        corrupt = [f"{name}: {reason}" for name, reason in named]
        if corrupt and config.corrupt == "fail":
            again = "Run again to download them again" if is_url(config.folder) else "Copy them again and run again"
            raise CorruptRecordError(
                f"{counted(len(corrupt), 'corrupt part')}: {'; '.join(corrupt)}. {again} (all other parts "
                "are done and kept), or skip corrupt parts and lines with SnapshotConfig.corrupt='skip'."
            )
        _report_implausible(implausible, config)
        is_kept = config.implausible == "keep"
        taken = {name: parts[name] for name in sorted(parts) if is_kept or name not in implausible}
        _seal(layout, config, place, taken, _LeftOut(problems, implausible))
        if place != out:
            gone = put_in_place(out, known, jobs)
        for stem in gone:
            _LOG.info("removed %s: the snapshot no longer has it", stem)
        tidy_downloads(out, lists)
        remove_folder(out / UNFINISHED)
        tell_read(jobs, known, gone, begun)
    return scan_corpus(out)


def snapshot_bytes(config: SnapshotConfig) -> int:
    """Return the bytes of the parts that :func:`ingest_snapshot` would read: the total of its progress bar."""
    return sum(part.size for part in _find(config).parts)


def _find(config: SnapshotConfig) -> Layout:
    if is_url(config.folder):
        place = _reach(config).open(config.folder, n_retries=RETRIES_AT_FIRST)
    else:
        if config.store_options is not None:
            raise ConfigError(
                "SnapshotConfig.store_options has no effect on a folder of this machine. Leave it out, or name a "
                "store: s3://openalex."
            )
        place = Path(expand_home(config.folder))
    return find_layout(place, config.edition, allow_missing_manifest=config.allow_missing_manifest)


def _reach(config: SnapshotConfig) -> Reach:
    return Reach(dict(config.store_options or {}))


def report_problems(layout: Layout, config: SnapshotConfig) -> None:
    """Log which parts are not read; raise for missing ones unless they may be skipped."""
    if layout.unlisted:
        left_over = "%s not in the manifest and not read, of an older copy; the first: %s"
        _LOG.warning(left_over, counted(len(layout.unlisted), "part is", "parts are"), layout.unlisted[0])
    if layout.problems and config.corrupt == "fail":
        name, reason = next(iter(layout.problems.items()))
        raise InputNotFoundError(
            f"{len(layout.problems):,} of {len(layout.problems) + len(layout.parts):,} parts are missing or not whole; "
            f"the first: {name} {reason}. Finish the copy, or skip them with SnapshotConfig.corrupt='skip'."
        )
    for line in list_left_out(layout.problems):
        _LOG.warning("%s", line)


def _report_implausible(implausible: Mapping[str, str], config: SnapshotConfig) -> None:
    if not implausible:
        return
    remedy = "kept, as SnapshotConfig.implausible='keep' says"
    if config.implausible == "skip":
        remedy = "left out; if you trust them, set SnapshotConfig.implausible='keep', which reads nothing again"
    parts = counted(len(implausible), "part with implausible works is", "parts with implausible works are")
    _LOG.warning("%s %s", parts, remedy)
    for line in list_left_out(implausible):
        _LOG.warning("%s", line)


def _check_disk(jobs: Sequence[Job], out: Path, n_workers: int) -> None:
    """Check before the first write that the disk is large enough; each worker has at most one downloaded part there."""
    copies = sorted((job.part.size for job in jobs if job.part.stored), reverse=True)[:n_workers]
    needed = sum(job.part.size for job in jobs) * _DISK_RATIO + sum(copies)
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise StorageError(
            f"{out} may need {needed / 1e9:,.1f} GB for {counted(len(jobs), 'part')}, and the disk has "
            f"{free / 1e9:,.1f} GB free. Free some disk space, or choose a folder on a larger disk."
        )


class _LeftOut(NamedTuple):
    """Parts that cannot be read, and parts with implausible works: names and reasons."""

    problems: dict[str, str]
    implausible: dict[str, str]


def _seal(
    layout: Layout,
    config: SnapshotConfig,
    out: Path,
    parts: Mapping[str, tuple[Path, Receipt]],
    left_out: _LeftOut,
) -> None:
    """Find the rows that do not count, and write the report that makes the folder a corpus.

    ``parts`` names the folder in which the files of each part lie.
    """
    receipts = [receipt for _, receipt in parts.values()]
    problems, implausible = left_out
    totals = {name: sum(getattr(receipt, name) for receipt in receipts) for name in _COUNTS}
    n_changed = sum(receipt.changed_dois for receipt in receipts)
    if not totals["works"]:
        raise EmptyInputError(
            f"no work in {counted(len(receipts), 'part')} of {layout.folder}: {counted(totals['lines'], 'line')}, "
            f"{totals['xpac_works']:,} of the expansion corpus, {totals['corrupt_lines']:,} corrupt; "
            f"{counted(len(implausible), 'part')} implausible. Check the folder."
        )
    stems = {part.name: part.stem for part in layout.parts}
    files = [(stems[name], folder / "works" / f"{stems[name]}.parquet") for name, (folder, _) in parts.items()]
    with _lists_of(layout, config, home_of(out)) as lists:
        removed = find_removals(files, read_deleted_ids(lists), totals["works"])
    write_small(out / REMOVED_FILE, partial(write_parquet, removed))
    deleted = int(removed["is_deleted"].sum())
    with_authors = [receipt.counts for receipt in receipts if WRITTEN_BY in receipt.tables]
    n_authors = sum(counts[WRITTEN_BY] for counts in with_authors)
    if with_authors and not any(counts[AUTHOR_IDS] for counts in with_authors):
        raise EmptyInputError(
            f"no work of {layout.folder} has an author with an id of OpenAlex. Ingest it without keep_authors."
        )
    report = {
        "kind": _KIND,
        "edition": layout.edition,
        "snapshot_date": layout.date,
        "include_xpac": config.include_xpac,
        "parser_version": PARSER_VERSION,
        **totals,
        **({CHANGED_DOIS: n_changed} if n_changed else {}),
        **(describe_authors(n_authors, AUTHORS) if with_authors else {}),
        "deleted_works": deleted,
        "stale_copies": removed.height - deleted,
        "corrupt_parts": problems,
        **({"implausible_parts": implausible, "implausible": config.implausible} if implausible else {}),
        "data_date": max((receipt.data_date for receipt in receipts if receipt.data_date), default=None),
        "parts": [
            {
                "name": receipt.part,
                "bytes": receipt.bytes,
                "works": receipt.works,
                "citations": receipt.citations,
                "first_corrupt_lines": receipt.first_corrupt_lines,
                "files": {
                    f"{name}/{stems[receipt.part]}.parquet": {
                        fact: value for fact, value in msgspec.structs.asdict(table).items() if value is not None
                    }
                    for name, table in receipt.tables.items()
                },
            }
            for receipt in receipts
        ],
        "removed_sha256": hash_file(out / REMOVED_FILE),
    }
    write_report(out, report)
    for name in ("corrupt_lines", "duplicate_ids", "malformed_references"):
        if totals[name]:
            _LOG.warning("snapshot: skipped %d %s", totals[name], name.replace("_", " "))
    if n := totals["missing_values"]:
        _LOG.warning("snapshot: %s values are NA or another word for a missing value (now null)", f"{n:,}")
    if n_changed:
        _LOG.warning("snapshot: %s", describe_changed(n_changed))


@contextmanager
def _lists_of(layout: Layout, config: SnapshotConfig, out: Path) -> Generator[list[Path]]:
    """Give the lists of deleted works as files. Downloaded ones stay for the next run."""
    with ExitStack() as stack:
        reach = _reach(config)
        yield [
            stack.enter_context(downloaded(file, out, reach, lambda amount: None, keep=True))
            if isinstance(file, StoredObject)
            else file
            for file in layout.deleted
        ]


def open_snapshot(config: SnapshotConfig, opening: Opening) -> Citations:
    """Read the snapshot into a corpus in the cache: one folder each, where later runs read only what has changed."""
    place = config.folder if is_url(config.folder) else real_path(config.folder)
    folder = opening.cache_dir / f"snapshot-{hashlib.sha256(os.fsencode(place)).hexdigest()[:16]}"
    with progress_bar("read snapshot", snapshot_bytes(config), unit="bytes") as advance:
        return open_large(ingest_snapshot(config, folder, advance))


def write_snapshot(
    config: SnapshotConfig, out: str | Path, *, texts: bool, authors: bool, overwrite: bool, engine: Engine | None
) -> Corpus:
    """Write the snapshot as a corpus on disk, with a progress bar."""
    if not texts:
        raise ConfigError("a snapshot is always read with its texts, in one pass. Leave out texts=False.")
    with progress_bar("read snapshot", snapshot_bytes(config), unit="bytes") as advance:
        return ingest_snapshot(config, out, advance, authors=authors, overwrite=overwrite, engine=engine)


def measure_snapshot(config: SnapshotConfig) -> ToRead:
    """Estimate the works from the size of the parts."""
    n_bytes = snapshot_bytes(config)
    works = round(n_bytes / _BYTES_PER_WORK)
    name = f"the snapshot {config.folder}, {n_bytes:,} bytes: about {works:,} works"
    return ToRead(name, works, works * REFERENCES_PER_WORK, n_bytes)
