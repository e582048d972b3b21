"""Which parts of a snapshot a corpus has already, and what reading the others took."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sciscidata.corpus.folder import INDEX, RECEIPTS, REMOVED_FILE, WRITTEN_BY, own_files, read_report
from sciscidata.corpus.replacement import NEXT, take_over
from sciscidata.errors import SciSciDataError
from sciscidata.sources.record_files import describe_read
from sciscidata.sources.snapshot.parts import Job, Known, find_receipt
from sciscidata.storage.paths import remove_folder

_LOG = logging.getLogger(__name__)


def find_known(jobs: Sequence[Job], folders: Sequence[Path]) -> dict[str, Known]:
    """Find which parts need not be read, by name: those in the first of some folders that has them."""

    def find(job: Job) -> Known | None:
        return next((known for folder in folders if (known := find_receipt(job, folder))), None)

    with ThreadPoolExecutor() as pool:
        found = zip(jobs, pool.map(find, jobs), strict=True)
        return {job.part.name: known for job, known in found if known}


def tell_other_options(out: Path, now: Mapping[str, Any], *, authors: bool) -> None:
    """Log which other options the corpus in a folder was made with, so that its parts are read again."""
    try:
        before, _ = read_report(out)
    except SciSciDataError:
        return
    other = [f"{name} was {before.get(name)}, is {value}" for name, value in now.items() if before.get(name) != value]
    if authors and WRITTEN_BY not in before:
        other.append("authors were not kept")
    if other:
        _LOG.info("snapshot: %s; every part is read again", ", ".join(other))
    elif WRITTEN_BY in before and not authors:
        _LOG.warning("snapshot: the corpus had authors; they are left out now. Keep them: keep_authors=True")


def put_in_place(out: Path, known: Mapping[str, Known], jobs: Sequence[Job]) -> list[str]:
    """Let the version in NEXT become the corpus, with the known parts of the old one; return the stems that are gone.

    If nothing has changed, the old files are not touched.
    """
    new, stems = out / NEXT, {job.part.name: job.part.stem for job in jobs}
    stay: set[str] = set()
    for name, one in known.items():
        if one.folder == out:
            stay |= {f"{table}/{stems[name]}.parquet" for table in one.receipt.tables}
            stay.add(f"{RECEIPTS}/{stems[name]}.json")
    before = {path.stem for path in own_files(out, RECEIPTS)}
    is_same = before == set(stems.values()) and len(known) == len(jobs) and not own_files(new, RECEIPTS)
    if is_same and all((out / name).read_bytes() == (new / name).read_bytes() for name in (INDEX, REMOVED_FILE)):
        remove_folder(new)
    else:
        take_over(out, stay)
    return sorted(before - set(stems.values()))


def tell_read(jobs: Sequence[Job], known: Mapping[str, Known], gone: Sequence[str], begun: float) -> None:
    """Log how many parts and bytes were read, of how many, since ``begun``, in seconds of ``time.monotonic``."""
    read = [job.part.size for job in jobs if job.part.name not in known]
    told = describe_read("part", read, [job.part.size for job in jobs], time.monotonic() - begun)
    if n_compared := sum(one.is_compared for one in known.values()):
        told += f", {n_compared:,} of them by SHA-256, since their time is another"
    if gone:
        told += f"; {len(gone):,} no longer in the snapshot"
    _LOG.info("snapshot: %s", told)
