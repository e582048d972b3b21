"""Update a corpus to the next snapshot, or to newer records, beside a fresh ingest: python benchmarks/update.py FOLDER.

The snapshot is made of the real works of the package, under other ids in each part. For the next one a part in twenty
changes: one comes, one goes, the others have corrected years; some works are deleted. Both ways must give equal bytes.
"""

from __future__ import annotations

import filecmp
import logging
import os
import re
import shutil
import sys
from pathlib import Path

from isal import igzip

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks import measure
from benchmarks.make_snapshot import write_deleted, write_manifest
from sciscidata.sources.example.source import WORKS_FILE
from sciscidata.sources.record_files import decompressed_chunks

WORKS = Path("data/jsonl/works")
ID = re.compile(rb"openalex\.org/W([0-9]+)")


def day_of(number: int) -> str:
    """Return the date of a part."""
    return f"2026-{1 + number // 28:02}-{1 + number % 28:02}"


def write_part(folder: Path, number: int, copies: int, *, year: bytes = b"2010") -> None:
    """Write one part: the works of the package, ``copies`` times, with one year in place of 2010."""
    path = folder / WORKS / f"updated_date={day_of(number)}" / "part_0000.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = b"".join(decompressed_chunks(WORKS_FILE)).replace(b'"publication_year":2010', b'"publication_year":' + year)
    with igzip.IGzipFile(path, "wb", 2) as file:
        for copy in range(copies):
            shift = (number * copies + copy) << 34
            file.write(ID.sub(lambda found, shift=shift: b"openalex.org/W%d" % (int(found[1]) + shift), lines))


def finish(folder: Path, copies: int, deleted: range) -> None:
    """Write the manifest and the list of deleted works."""
    n_records = copies * sum(chunk.count(b"\n") for chunk in decompressed_chunks(WORKS_FILE))
    names = [path.relative_to(folder / WORKS).as_posix().split(".")[0] for path in folder.rglob("part_*")]
    write_deleted(folder, "jsonl", [2_000_000_000 + number for number in deleted])
    write_manifest(folder, "jsonl", dict.fromkeys(names, n_records))


def is_same(one: Path, other: Path) -> bool:
    """Whether two corpora have the same files with the same bytes."""
    compared = filecmp.dircmp(one, other, ignore=[".lock"])
    files = filecmp.cmpfiles(one, other, compared.common_files, shallow=False)
    is_alike = not (compared.left_only or compared.right_only or files[1] or files[2])
    return is_alike and all(is_same(one / name, other / name) for name in compared.common_dirs)


def ingest(home: Path, out: str, kind: str) -> None:
    """Ingest, and print as the last line what it took, and what the log says of parts and bytes."""
    source = ssd.SnapshotConfig(folder=str(home / "openalex"))
    if kind == "records":
        source = ssd.RecordsConfig(inputs=(str(home / "openalex" / WORKS / "updated_date=*" / "part_*"),))
    told: list[str] = []
    log = logging.getLogger("sciscidata")
    log.setLevel("INFO")
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    log.addHandler(handler)
    took, _ = measure.timed(lambda: ssd.ingest(source, home / out, cache_dir=home / f"cache-{out}", overwrite=True))
    measure.report(**took, note=next(line for line in told if ": read " in line))


def change(folder: Path, n_parts: int, copies: int) -> None:
    """Make the next month: of every twenty parts one is another, one of all comes and one goes."""
    shutil.rmtree(folder / WORKS / f"updated_date={day_of(0)}")
    write_part(folder, n_parts, copies)
    for number in range(1, max(n_parts // 20, 2)):
        write_part(folder, number * 20 % n_parts, copies, year=b"2011")
    finish(folder, copies, deleted=range(300))


def take(home: Path, kind: str, tool: str, out: str) -> measure.Row:
    """Ingest in a new process."""
    return measure.try_process(kind, tool, __file__, str(home), "--part", f"{out}:{kind}")


def main() -> None:
    """Make the snapshot, ingest, change it, update, and ingest afresh; both kinds in turn."""
    parser = measure.parser(__doc__)
    parser.add_argument("folder", type=Path, help="for the snapshot and the corpora")
    parser.add_argument("--parts", type=int, default=120, help="of the snapshot [120]")
    parser.add_argument("--copies", type=int, default=4, help="of the works of the package in a part [4: 26 MB]")
    parser.add_argument("--kinds", nargs="+", choices=("snapshot", "records"), default=("snapshot", "records"))
    options = parser.parse_args()
    home = options.folder
    if options.part:
        ingest(home, *options.part.split(":"))
        return
    shutil.rmtree(home, ignore_errors=True)
    for number in range(options.parts):
        write_part(home / "openalex", number, options.copies)
    finish(home / "openalex", options.copies, deleted=range(100))
    kinds = options.kinds
    rows = {kind: [take(home, kind, "first", kind)] for kind in kinds}
    change(home / "openalex", options.parts, options.copies)
    for kind in kinds:
        rows[kind].append(take(home, kind, "update", kind))
        rows[kind].append(take(home, kind, "fresh", f"fresh-{kind}"))
        if not is_same(home / kind, home / f"fresh-{kind}"):
            rows[kind][-1]["note"] = f"OTHER BYTES; {rows[kind][-1].get('note')}"
    for path in home.rglob("part_*.gz"):
        os.utime(path)
    for kind in kinds:
        rows[kind].append(take(home, kind, "the same with other times", kind))
    measure.show([row for kind in kinds for row in rows[kind]], options)


if __name__ == "__main__":
    main()
