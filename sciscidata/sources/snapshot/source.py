"""ingest_snapshot: read an OpenAlex snapshot into a corpus on disk, and later only its changed parts."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
import polars as pl

from sciscidata._support.short_repr import short_repr
from sciscidata._support.validate import Folder, Megabytes, PositiveInt, check_fields, require_config
from sciscidata.corpus.folder import INDEX, REMOVED_FILE, list_left_out, scan_corpus
from sciscidata.corpus.writer import (
    claim_folder,
    is_claimed,
    locked_folder,
    refuse_foreign,
    write_report,
    write_small,
)
from sciscidata.errors import CorruptRecordError, EmptyInputError, InputNotFoundError, StorageError
from sciscidata.records.read_lines import DEFAULT_LIMITS, ReadLimits
from sciscidata.records.work_row import PARSER_VERSION
from sciscidata.schemas import Corpus
from sciscidata.sources.snapshot.layout import Edition, Layout, find_layout
from sciscidata.sources.snapshot.parts import Job, Receipt, read_receipt, remove_leftovers, remove_part, run_jobs
from sciscidata.sources.snapshot.removals import find_removals, read_deleted_ids
from sciscidata.storage import expand_home, hash_file
from sciscidata.storage.parquet import write_parquet

_LOG = logging.getLogger(__name__)
_KIND = "openalex snapshot"
#: Without date or options: a newer copy, or one with other options, replaces the older one part by part.
_MADE_OF = json.dumps({"format_version": 1, "source": {"kind": _KIND}}, indent=1, sort_keys=True) + "\n"
_COUNTS = (
    "lines", "works", "citations", "xpac_works", "corrupt_lines", "duplicate_ids", "malformed_references",
    "without_venue",
)  # fmt: skip

#: Bytes written per byte read, at most: real records with long abstracts need 0.31 (jsonl) and 0.32 (parquet).
_DISK_RATIO = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotConfig:
    """Which snapshot to read, and what to leave out.

    Attributes:
        folder: copy of the OpenAlex snapshot; of all of ``s3://openalex``, its ``data``, or any folder down to
            ``works``.
        edition: file format to read. None: Parquet where both are there.
        include_xpac: keep the expansion corpus, about a third of the snapshot. The API leaves it out unless asked.
        corrupt: what to do about parts that are damaged, cut off or missing. ``"fail"``: read and keep all others, then
            raise. ``"skip"``: leave out such parts, and single corrupt lines, and count them.
        allow_missing_manifest: read the parts of an unfinished copy; the manifest is copied last.
        n_workers: processes that read. None: as many as Polars has threads.
        max_line_mb: longest record, in MB of 1,048,576 bytes, decompressed; a longer one is corrupt.
        max_gap_mb: most MB of a part in a row without a work, or 1,000 lines for each of them; with more the part is
            corrupt.

    Raises:
        ConfigError: on construction, if a value does not fit its type.

    Example:
        >>> SnapshotConfig(folder="openalex", corrupt="ignore")
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: SnapshotConfig.corrupt is 'ignore', needs one of fail, skip.
    """

    folder: Folder
    edition: Edition | None = None
    include_xpac: bool = False
    corrupt: Literal["fail", "skip"] = "fail"
    allow_missing_manifest: bool = False
    n_workers: PositiveInt | None = None
    max_line_mb: Megabytes = DEFAULT_LIMITS.max_line_mb
    max_gap_mb: Megabytes = DEFAULT_LIMITS.max_gap_mb

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_fields(self)


def ingest_snapshot(
    config: SnapshotConfig,
    out: str | Path,
    advance: Callable[[float], None] | None = None,
    *,
    overwrite: bool = False,
) -> Corpus:
    r"""Read a snapshot into Parquet. A second run reads only the parts that have changed.

    ``out`` gets one file per part, named after it, with rows in the order of the part: ``works/part-*.parquet`` (WORKS
    without title and abstract), ``texts/part-*.parquet`` (work_id, title, abstract: the same rows),
    ``citations/part-*.parquet`` (CITATIONS with repeats and self-citations), ``removed.parquet`` (rows that do not
    count: deleted works, and works that a newer part repeats) and the report ``corpus.json``, written last.

    ``n_workers`` processes read parts in bounded memory. Finished parts are kept: a killed run continues where it
    ended, with the same bytes for any number of workers. Parts that left the snapshot are removed; other files stay.

    ``advance`` gets the bytes of the snapshot that are read or already done. ``overwrite`` replaces a corpus of another
    source in ``out``; an earlier snapshot is updated in any case.

    Raises:
        InputNotFoundError: before a part is read: no snapshot, no manifest, or (with ``corrupt="fail"``) missing parts.
        ReleaseExistsError: before a part is read: ``out`` holds a corpus of another source, without ``overwrite``.
        StorageError: the disk is too small, ``out`` holds something else, another run works in it, or a worker was
            killed.
        CorruptRecordError: after all good parts are done, with the names of the corrupt ones.
        EmptyInputError: the parts hold no work.

    Source: https://help.openalex.org/access/snapshot

    Example:
        >>> import gzip
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     part = Path(home, "data/jsonl/works/updated_date=2026-06-01/part_0000.gz")
        ...     part.parent.mkdir(parents=True)
        ...     _ = part.write_bytes(gzip.compress(b'{"id":"W42","title":"Dams","referenced_works":["W7"]}\n'))
        ...     config = SnapshotConfig(folder=home, allow_missing_manifest=True)
        ...     works, citations, report = ingest_snapshot(config, Path(home, "out"))
        ...     works.select("work_id", "title").collect().rows(), citations.collect().rows(), report["works"]
        ([(42, 'Dams')], [(42, 7)], 1)
    """
    require_config(config, SnapshotConfig, "folder='openalex'")
    out = Path(out)
    layout = _find(config)
    _report_problems(layout, config)
    refuse_foreign(out)
    limits = ReadLimits(max_line_mb=config.max_line_mb, max_gap_mb=config.max_gap_mb)
    jobs = [Job(part, str(out), config.include_xpac, config.corrupt == "fail", limits) for part in layout.parts]
    if not is_claimed(out, _MADE_OF):
        _check_disk(jobs, out)  # before the folder is made
    with locked_folder(out):
        receipts: dict[str, Receipt] = {}
        if is_claimed(out, _MADE_OF):
            with ThreadPoolExecutor() as pool:
                found = zip(jobs, pool.map(read_receipt, jobs), strict=True)
                receipts = {job.part.name: receipt for job, receipt in found if receipt}
        todo = [job for job in jobs if job.part.name not in receipts]
        _check_disk(todo, out)
        if advance is not None:
            advance(sum(receipt.bytes for receipt in receipts.values()))
        claim_folder(out, _MADE_OF, overwrite=overwrite)
        (out / INDEX).unlink(missing_ok=True)  # until the end, the folder is no whole corpus
        for stem in remove_leftovers(out, {part.stem for part in layout.parts}):
            _LOG.info("removed %s: the snapshot no longer has it", stem)
        problems = dict(layout.problems)
        with closing(run_jobs(todo, config.n_workers or pl.thread_pool_size(), advance)) as results:
            for job, result in results:
                if isinstance(result, Receipt):
                    receipts[job.part.name] = result
                    continue
                problems[job.part.name] = str(result)
                remove_part(out, job.part.stem)
                _LOG.warning("%s: %s", job.part.name, result)
        named = sorted(problems.items() - layout.problems.items())
        corrupt = [f"{name}: {reason}" for name, reason in named]
        if corrupt and config.corrupt == "fail":
            msg = (
                f"{len(corrupt)} corrupt part(s): {'; '.join(corrupt)}. Copy them again and run again (all other parts "
                "are done and kept), or skip corrupt parts and lines with SnapshotConfig.corrupt='skip'."
            )
            raise CorruptRecordError(msg)
        _seal(layout, config, out, [receipts[name] for name in sorted(receipts)], problems)
    return scan_corpus(out)


def snapshot_bytes(config: SnapshotConfig) -> int:
    """Return the bytes of the parts that :func:`ingest_snapshot` would read: the total of its progress bar.

    Example:
        >>> snapshot_bytes(SnapshotConfig(folder="no/such/folder"))
        Traceback (most recent call last):
        ...
        sciscidata.errors.InputNotFoundError: snapshot folder no/such/folder does not exist. Set SnapshotConfig.folder
        to your copy of s3://openalex.
    """
    return sum(Path(part.path).stat().st_size for part in _find(config).parts)


def _find(config: SnapshotConfig) -> Layout:
    folder = Path(expand_home(config.folder))
    return find_layout(folder, config.edition, allow_missing_manifest=config.allow_missing_manifest)


def _report_problems(layout: Layout, config: SnapshotConfig) -> None:
    if layout.unlisted:
        left_over = "%d part(s) are not in the manifest and not read: they are from an older copy; the first: %s"
        _LOG.warning(left_over, len(layout.unlisted), layout.unlisted[0])
    if layout.problems and config.corrupt == "fail":
        name, reason = next(iter(layout.problems.items()))
        msg = (
            f"{len(layout.problems):,} of {len(layout.problems) + len(layout.parts):,} parts are missing or not whole; "
            f"the first: {name} {reason}. Finish the copy, or skip them with SnapshotConfig.corrupt='skip'."
        )
        raise InputNotFoundError(msg)
    for line in list_left_out(layout.problems):
        _LOG.warning("%s", line)


def _check_disk(jobs: Sequence[Job], out: Path) -> None:
    """Check before the first write that the disk is large enough."""
    needed = sum(Path(job.part.path).stat().st_size for job in jobs) * _DISK_RATIO
    there = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        msg = (
            f"{out} may need {needed / 1e9:,.1f} GB for {len(jobs):,} part(s), and the disk has {free / 1e9:,.1f} GB "
            "free. Free some disk space, or choose a folder on a larger disk."
        )
        raise StorageError(msg)


def _seal(layout: Layout, config: SnapshotConfig, out: Path, receipts: list[Receipt], problems: dict[str, str]) -> None:
    """Find the rows that do not count, and write the report that makes the folder a corpus."""
    totals = {name: sum(getattr(receipt, name) for receipt in receipts) for name in _COUNTS}
    if not totals["works"]:
        msg = (
            f"no work in {len(receipts):,} part(s) of {layout.folder}: {totals['lines']:,} lines, "
            f"{totals['xpac_works']:,} of the expansion corpus, {totals['corrupt_lines']:,} corrupt. Check the folder."
        )
        raise EmptyInputError(msg)
    stems = {part.name: part.stem for part in layout.parts}
    files = [(stems[receipt.part], out / "works" / f"{stems[receipt.part]}.parquet") for receipt in receipts]
    removed = find_removals(files, read_deleted_ids([Path(file) for file in layout.deleted]), totals["works"])
    write_small(out / REMOVED_FILE, partial(write_parquet, removed))
    deleted = int(removed["is_deleted"].sum())
    report = {
        "kind": _KIND,
        "edition": layout.edition,
        "snapshot_date": layout.date,
        "include_xpac": config.include_xpac,
        "parser_version": PARSER_VERSION,
        **totals,
        "deleted_works": deleted,
        "stale_copies": removed.height - deleted,
        "corrupt_parts": problems,
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
