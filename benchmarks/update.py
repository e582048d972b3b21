"""Update a corpus to the next snapshot, or to newer records, beside a fresh ingest.

    python benchmarks/update.py FOLDER [--edition jsonl|parquet]
    python benchmarks/update.py --size S    # or M: four times as many small parts in Parquet, for all.py

The snapshot is made of the real works of the package, under other ids in each part. For the next one a part in twenty
changes: one comes, one goes, the others have corrected years; some works are deleted. Both ways must give equal bytes.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import logging
import os
import re
import shutil
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import igzip

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import sciscidata as ssd
from benchmarks import measure
from benchmarks.make_snapshot import arrow_table, export_record, write_deleted, write_manifest
from benchmarks.snapshot import fingerprint
from sciscidata.sources.example.source import WORKS_FILE
from sciscidata.sources.record_files import decompressed_chunks

ID = re.compile(rb"openalex\.org/W([0-9]+)")
#: Parts of each size; a part has the works of the package once.
SIZES = {"S": 20, "M": 80}


def works_of(folder: Path, edition: str) -> Path:
    """Return where the parts of a snapshot lie."""
    return folder / "data" / edition / "works"


def day_of(number: int) -> str:
    """Return the date of a part."""
    return f"2026-{1 + number // 28:02}-{1 + number % 28:02}"


def write_part(folder: Path, edition: str, number: int, copies: int, *, year: int = 2010) -> None:
    """Write one part: the works of the package, ``copies`` times, with one year in place of 2010."""
    home = works_of(folder, edition) / f"updated_date={day_of(number)}"
    home.mkdir(parents=True, exist_ok=True)
    first = number * copies
    if edition == "parquet":
        with pq.ParquetWriter(home / "part_0000.parquet", real_table(year).schema, compression="snappy") as writer:
            for copy in range(first, first + copies):
                writer.write_table(with_other_ids(real_table(year), copy))
        return
    lines = b"".join(decompressed_chunks(WORKS_FILE))
    lines = lines.replace(b'"publication_year":2010', b'"publication_year":%d' % year)
    with igzip.IGzipFile(home / "part_0000.gz", "wb", 2) as file:
        for copy in range(first, first + copies):
            shift = copy << 34
            file.write(ID.sub(lambda found, shift=shift: b"openalex.org/W%d" % (int(found[1]) + shift), lines))


@cache
def real_table(year: int) -> pa.Table:
    """Return the works of the package as the Parquet edition has them, with one year in place of 2010."""
    lines = b"".join(decompressed_chunks(WORKS_FILE)).split(b"\n")
    rows = [export_record(json.loads(line)) for line in lines if line]
    return arrow_table([row | {"publication_year": year} if row["publication_year"] == 2010 else row for row in rows])


def with_other_ids(table: pa.Table, copy: int) -> pa.Table:
    """Put the number of the copy, and a digit that is no zero, before every number of a work."""

    def renamed(texts: pa.Array) -> pa.Array:
        return pc.replace_substring(texts, "openalex.org/W", f"openalex.org/W{10_000 + copy}")

    table = table.combine_chunks()
    lists = table["referenced_works"].chunk(0)
    cited = pa.ListArray.from_arrays(lists.offsets, renamed(lists.values), mask=lists.is_null())
    columns = {"id": renamed(table["id"]), "referenced_works": cited}
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    return table


def finish(folder: Path, edition: str, copies: int, deleted: range) -> None:
    """Write the manifest and the list of deleted works."""
    n_records = copies * sum(chunk.count(b"\n") for chunk in decompressed_chunks(WORKS_FILE))
    works = works_of(folder, edition)
    names = [path.relative_to(works).as_posix().split(".")[0] for path in folder.rglob("part_*")]
    write_deleted(folder, edition, [2_000_000_000 + number for number in deleted])
    write_manifest(folder, edition, dict.fromkeys(names, n_records))


def is_same(one: Path, other: Path) -> bool:
    """Whether two corpora have the same files with the same bytes."""
    compared = filecmp.dircmp(one, other, ignore=[".lock"])
    files = filecmp.cmpfiles(one, other, compared.common_files, shallow=False)
    is_alike = not (compared.left_only or compared.right_only or files[1] or files[2])
    return is_alike and all(is_same(one / name, other / name) for name in compared.common_dirs)


def ingest(home: Path, edition: str, out: str, kind: str, n_workers: str) -> None:
    """Ingest, and print as the last line what it took, and what the log says of parts and bytes."""
    source = ssd.SnapshotConfig(folder=str(home / "openalex"), edition=edition, n_workers=int(n_workers))
    if kind == "records":
        source = ssd.RecordsConfig(inputs=(str(works_of(home / "openalex", edition) / "updated_date=*" / "part_*"),))
    told: list[str] = []
    log = logging.getLogger("sciscidata")
    log.setLevel("INFO")
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    log.addHandler(handler)
    took, _ = measure.timed(lambda: ssd.ingest(source, home / out, cache_dir=home / f"cache-{out}", overwrite=True))
    note = next(line for line in told if ": read " in line).partition(", in ")[0]
    measure.report(**took, note=f"{note}; fingerprint {fingerprint(home / out)}")


def change(folder: Path, edition: str, n_parts: int, copies: int) -> None:
    """Make the next month: of every twenty parts one is another, one of all comes and one goes."""
    shutil.rmtree(works_of(folder, edition) / f"updated_date={day_of(0)}")
    write_part(folder, edition, n_parts, copies)
    for number in range(1, max(n_parts // 20, 2)):
        write_part(folder, edition, number * 20 - 1, copies, year=2011)
    finish(folder, edition, copies, deleted=range(300))


def main() -> None:
    """Make the snapshot, ingest, change it, update, and ingest afresh; both kinds in turn."""
    parser = measure.parser(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="for the snapshot and the corpora [a temporary one]")
    parser.add_argument("--size", choices=SIZES, help="a snapshot for all.py, instead of the next four options")
    parser.add_argument("--parts", type=int, default=120, help="of the snapshot [120]")
    parser.add_argument("--copies", type=int, default=4, help="of the works of the package in a part [4: 26 MB]")
    parser.add_argument("--edition", choices=("jsonl", "parquet"), default="jsonl", help="[jsonl]")
    parser.add_argument("--kinds", nargs="+", choices=("snapshot", "records"), default=("snapshot", "records"))
    options = parser.parse_args()
    if options.part:
        ingest(options.folder, *options.part.split(":"))
        return
    with ExitStack() as stack:
        home = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        measure.show(compare(home, options), options)


def compare(home: Path, options: argparse.Namespace) -> list[measure.Row]:
    """Return what each ingest took."""
    n_parts, copies, edition, kinds = options.parts, options.copies, options.edition, options.kinds
    tasks = {kind: kind for kind in kinds}
    if options.size:
        n_parts, copies, edition, kinds = SIZES[options.size], 1, "parquet", ("snapshot",)
        tasks = {"snapshot": f"{options.size}: the next month of a snapshot in Parquet"}
    snapshot = home / "openalex"

    def take(kind: str, tool: str, out: str, n_workers: int = 2) -> measure.Row:
        part = f"{edition}:{out}:{kind}:{n_workers}"
        return measure.try_process(tasks[kind], tool, __file__, str(home), "--part", part)

    shutil.rmtree(home, ignore_errors=True)
    for number in range(n_parts):
        write_part(snapshot, edition, number, copies)
    finish(snapshot, edition, copies, deleted=range(100))
    for kind in kinds:
        take(kind, "the month before", kind)
    change(snapshot, edition, n_parts, copies)
    rows: dict[str, list[measure.Row]] = {}
    for kind in kinds:
        rows[kind] = [take(kind, "fresh", f"fresh-{kind}"), take(kind, "update", kind)]
        if not is_same(home / kind, home / f"fresh-{kind}"):
            rows[kind][-1]["note"] = f"OTHER BYTES; {rows[kind][-1].get('note')}"
    for path in home.rglob("part_*.*"):
        os.utime(path)
    for kind in kinds:
        rows[kind].append(take(kind, "the same with other times", kind))
    if options.size:
        rows["snapshot"].append(take("snapshot", "fresh, 1 process", "alone", 1))
    return [row for kind in kinds for row in rows[kind]]


if __name__ == "__main__":
    main()
