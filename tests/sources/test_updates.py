"""A corpus that is updated, again and again, has the bytes of one that is made at once."""

from __future__ import annotations

import filecmp
import gzip
import os
import random
import shutil

import pytest

from benchmarks.make_snapshot import export_record, json_lines, write_deleted, write_manifest, write_part
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot
from sciscidata.stages import ingest


def work(chance, number):
    cited = sorted({chance.randint(1, 60) for _ in range(chance.randint(0, 5))})
    year, words = chance.randint(1990, 2026), ["dams", "leak", "when", f"day{chance.randint(0, 9)}"]
    return export_record(
        {"id": f"https://openalex.org/W{number}", "publication_year": year, "is_xpac": chance.random() < 0.1,
         "title": f"Work {number} of {year}", "abstract_inverted_index": {word: [at] for at, word in enumerate(words)},
         "referenced_works": [f"https://openalex.org/W{one}" for one in cited],
         "authorships": [{"author": {"id": f"https://openalex.org/A{chance.randint(1, 9)}"}}]}
    )  # fmt: skip


class Release:
    """A snapshot that changes: parts come, change and go, works move, are repeated, deleted or merged."""

    def __init__(self, folder, edition, seed):
        self.folder, self.edition, self.chance = folder, edition, random.Random(seed)
        self.parts, self.deleted, self.day = {}, set(), 0
        for _ in range(5):
            self.add_part()

    def add_part(self):
        self.day += 1
        name = f"updated_date=2026-06-{self.day:02}/part_{self.chance.randint(0, 1):04}"
        self.parts[name] = [work(self.chance, self.chance.randint(1, 60)) for _ in range(12)]

    def change(self):
        for _ in range(self.chance.randint(1, 4)):
            kind, name = self.chance.randint(0, 5), self.chance.choice([*self.parts])
            rows = self.parts[name]
            if kind == 0:
                self.add_part()
            elif kind == 1 and len(self.parts) > 2:
                del self.parts[name]
            elif kind == 2:  # corrected
                self.parts[name] = [work(self.chance, int(row["id"].rpartition("W")[2])) for row in rows]
            elif kind == 3 and len(rows) > 1:  # moved to the newest part
                self.parts[max(self.parts)] = [*self.parts[max(self.parts)], rows[0]]
                self.parts[name] = rows[1:]
            elif kind == 4:
                self.deleted.add(self.chance.randint(1, 60))
            else:  # merged, and later split again
                self.deleted ^= {self.chance.randint(1, 60)}

    def write(self):
        works = self.folder / "data" / self.edition / "works"
        suffix = ".gz" if self.edition == "jsonl" else ".parquet"
        for path in works.glob("updated_date=*/part_*"):
            if path.relative_to(works).as_posix().removesuffix(suffix) not in self.parts:
                path.unlink()
        for name, rows in self.parts.items():
            path = (works / name).with_suffix(suffix)
            before = (path.read_bytes(), path.stat()) if path.exists() else None
            write_part(self.folder, self.edition, name, rows)
            if before and before[0] == path.read_bytes() and self.chance.random() < 0.7:  # else a copy of another time
                os.utime(path, ns=(before[1].st_atime_ns, before[1].st_mtime_ns))
        write_deleted(self.folder, self.edition, sorted(self.deleted))
        write_manifest(self.folder, self.edition, {name: len(rows) for name, rows in self.parts.items()})
        return self.folder


def read(folder, out, *, authors=False, **options):
    return ingest_snapshot(SnapshotConfig(folder=str(folder), **{"n_workers": 1} | options), out, authors=authors)


def differences(one, other):
    """Name what is not the same to the byte in two folders, locks and caches apart."""
    found = filecmp.dircmp(one, other, ignore=[".lock", "cache"])
    names = [*found.left_only, *found.right_only, *found.funny_files]
    names += [name for name in found.common_files if (one / name).read_bytes() != (other / name).read_bytes()]
    return names + [name for folder in found.common_dirs for name in differences(one / folder, other / folder)]


@pytest.mark.parametrize(("edition", "seed"), [("jsonl", 1), ("jsonl", 2), ("parquet", 3), ("parquet", 4)])
def test_updates_of_updates_have_the_bytes_of_a_fresh_ingest(tmp_path, edition, seed, caplog):
    release, n_read = Release(tmp_path / "s", edition, seed), 0
    authors = seed % 2 == 0
    caplog.set_level("INFO")
    for turn in range(6):
        if turn:
            release.change()
        read(release.write(), tmp_path / "corpus", authors=authors)
        told = [line for line in caplog.messages if line.startswith("snapshot: read ")][-1]
        n_read += int(told.split()[2]) if turn else 0
        fresh = tmp_path / f"fresh-{turn}"
        read(release.folder, fresh, authors=authors)
        assert differences(tmp_path / "corpus", fresh) == []
    assert n_read < 5 * len(release.parts)


class Files:
    """Files of records that change: files come, change, are renamed and go; of a repeated work the first counts."""

    def __init__(self, folder, seed):
        self.folder, self.chance = folder, random.Random(seed)
        folder.mkdir()
        for _ in range(4):
            self.add()

    def add(self):
        name = f"works-{self.chance.randint(0, 99):02}.jsonl"
        lines = json_lines(work(self.chance, self.chance.randint(1, 80)) for _ in range(12))
        lines += b"no record\n" * self.chance.randint(0, 30) + b"\n" * self.chance.randint(0, 2)
        (self.folder / name).write_bytes(lines if self.chance.random() < 0.5 else gzip.compress(lines))

    def change(self):
        for _ in range(self.chance.randint(1, 3)):
            file, kind = self.chance.choice(sorted(self.folder.iterdir())), self.chance.randint(0, 4)
            if kind == 0:
                self.add()
            elif kind == 1 and len(list(self.folder.iterdir())) > 2:
                file.unlink()
            elif kind == 2:
                file.write_bytes(json_lines(work(self.chance, self.chance.randint(1, 80)) for _ in range(9)))
            elif kind == 3:  # the order decides which of two records counts
                file.rename(self.folder / f"works-{self.chance.randint(0, 99):02}.jsonl")
            else:
                os.utime(file)


@pytest.mark.parametrize("seed", range(4))
def test_an_ingest_of_newer_records_has_the_bytes_of_a_fresh_one(tmp_path, seed, caplog):
    files, options = Files(tmp_path / "records", seed), {"keep_authors": seed % 2 == 0, "overwrite": True}
    caplog.set_level("INFO")
    for turn in range(6):
        if turn:
            files.change()
        source = RecordsConfig(inputs=(str(files.folder),), dates=seed == 3)
        ingest(source, tmp_path / "corpus", cache_dir=tmp_path / "cache", **options)
        ingest(source, tmp_path / f"fresh-{turn}", cache_dir=tmp_path / f"cache-{turn}", **options)
        assert differences(tmp_path / "corpus", tmp_path / f"fresh-{turn}") == []
        kept = [sorted(path.name for path in home.glob("record-files/parsed-*"))
                for home in (tmp_path / "cache", tmp_path / f"cache-{turn}")]  # fmt: skip
        assert kept[0] == kept[1]
        shutil.rmtree(tmp_path / f"cache-{turn}")
    assert any("as before" in message for message in caplog.messages)
