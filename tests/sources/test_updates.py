"""A corpus that is updated, again and again, has the bytes of one that is made at once."""

from __future__ import annotations

import filecmp
import gzip
import json
import os
import random
import shutil
import subprocess
import sys

import pytest
from polars.testing import assert_frame_equal

from benchmarks.make_snapshot import export_record, json_lines, write_deleted, write_manifest, write_part
from sciscidata.corpus.folder import CorpusConfig, open_corpus_graph, scan_corpus
from sciscidata.errors import CorruptRecordError, EmptyInputError, InputNotFoundError
from sciscidata.graph.graph import graph_folder
from sciscidata.sources.authors import scan_authors
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot
from sciscidata.sources.synthetic.source import SyntheticConfig
from sciscidata.stages import ingest
from tests.conftest import REPOSITORY


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


def test_authors_of_record_files_are_parsed_once_and_are_those_of_all_files_read_again(tmp_path, caplog):
    lists = {
        "a.jsonl": [(1, [7, 8], False), (2, [], False), (3, [9], True), (3, [8], False)],
        "b.jsonl": [(2, [7], True), (4, [7, None, 7], True), (1, [5], True)],  # 1 and 2 were in the file before
    }
    folder, places = tmp_path / "records", {"out": tmp_path / "corpus", "cache_dir": tmp_path / "cache"}
    folder.mkdir()

    def record(number, authors, is_cut):
        at = {"institutions": [{"id": "https://openalex.org/I5", "country_code": "NL"}], "raw_author_name": "P. Poe"}
        written = [{"author": {"id": one and f"https://openalex.org/A{one}"}} | at for one in authors]
        more = {"authorships": written, "is_authors_truncated": is_cut, "publication_year": 2020}
        return {"id": f"https://openalex.org/W{number}"} | more

    def ingest_and_compare():
        caplog.clear()
        source = RecordsConfig(inputs=(str(folder),))
        ingest(source, **places, keep_authors=True, overwrite=True)
        told = [message for message in caplog.messages if message.startswith("scan_authors")]
        caplog.clear()
        expected = scan_authors(source).collect()
        assert told == [message for message in caplog.messages if message.startswith("scan_authors")]
        assert_frame_equal(scan_authors(CorpusConfig(folder=str(places["out"]))).collect(), expected)
        kept = {path: path.stat().st_ino for path in (tmp_path / "cache/record-files").glob("parsed-*-authors")}
        return expected["work_id"].to_list(), kept, told

    caplog.set_level("INFO")
    for name, works in lists.items():
        (folder / name).write_text("".join(json.dumps(record(*one)) + "\n" for one in works))
    works, kept, told = ingest_and_compare()
    assert works == [1, 1, 3, 4, 4]
    assert "is null of 1 author with no id" in told[0]
    assert "2 works have only the first 100 authors" in told[1]
    (folder / "0.json").write_text(json.dumps({"results": [record(4, [3], False)]}, indent=1))  # a page of the API
    works, more, told = ingest_and_compare()
    assert works == [4, 1, 1, 3]
    assert kept.items() < more.items()
    assert len(more) == 3
    assert "1 work has only the first 100 authors" in told[0]
    (folder / "a.jsonl").unlink()
    works, fewer, _ = ingest_and_compare()
    assert works == [4, 2, 1]
    assert fewer.items() < more.items()


KILLED = """
import os, signal, sys
from sciscidata.corpus import replacement
from sciscidata.sources.snapshot import parts
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot
owner, name, n_calls = {"parts": parts, "replacement": replacement}[sys.argv[3]], sys.argv[4], int(sys.argv[5])
plain, calls = getattr(owner, name), []
def killed(*words):
    calls.append(words)
    if len(calls) > n_calls:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(*words)
setattr(owner, name, killed)
ingest_snapshot(SnapshotConfig(folder=sys.argv[1], n_workers=1), sys.argv[2])
"""


@pytest.mark.parametrize(
    ("owner", "name", "n_calls", "is_readable"),
    [("parts", "_move", 6, True), ("replacement", "finish_take_over", 0, True), ("replacement", "flush", 0, False),
     ("replacement", "flush", 2, False), ("replacement", "remove_folder", 0, True)],
)  # fmt: skip
def test_an_update_that_is_killed_leaves_the_old_corpus_or_is_finished_by_the_next_run(
    tmp_path, owner, name, n_calls, is_readable
):
    release, out = Release(tmp_path / "s", "jsonl", 5), tmp_path / "corpus"
    before = read(release.write(), out).provenance["report_sha256"]
    for part in [*release.parts][:3]:
        release.parts[part] = [work(release.chance, number) for number in range(1, 15)]
    release.parts.pop(max(release.parts))
    words = [str(release.write()), str(out), owner, name, str(n_calls)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    assert subprocess.run([sys.executable, "-c", KILLED, *words], env=environment, check=False).returncode < 0
    fresh = read(release.folder, tmp_path / "fresh")
    if is_readable:
        report = scan_corpus(out)
        assert report.works.collect().height
        assert report.provenance["report_sha256"] in (before, fresh.provenance["report_sha256"])
    else:
        with pytest.raises(InputNotFoundError, match="Run the same ingest again"):
            scan_corpus(out)
    read(release.folder, out)
    assert differences(out, tmp_path / "fresh") == []


def test_a_failed_update_leaves_the_old_corpus_and_keeps_what_it_has_read(tmp_path, caplog):
    release, out = Release(tmp_path / "s", "jsonl", 6), tmp_path / "corpus"
    before = read(release.write(), out).works.collect()
    names = sorted(release.parts)
    for part in names[:2]:
        release.parts[part] = [work(release.chance, number) for number in range(1, 15)]
    path = (release.write() / "data/jsonl/works" / names[1]).with_suffix(".gz")
    path.write_bytes(path.read_bytes()[:-9] + bytes(9))
    with pytest.raises(CorruptRecordError, match="1 corrupt part"):
        read(release.folder, out)
    assert scan_corpus(out).works.collect().equals(before)
    caplog.set_level("INFO")
    read(release.write(), out)
    assert any(message.startswith("snapshot: read 1 of ") for message in caplog.messages)
    read(release.folder, tmp_path / "fresh")
    assert differences(out, tmp_path / "fresh") == []


def test_other_options_are_told_and_read_everything_again(tmp_path, caplog):
    release, out = Release(tmp_path / "s", "jsonl", 7), tmp_path / "corpus"
    read(release.write(), out, authors=True)
    caplog.set_level("INFO")
    read(release.folder, out, include_xpac=True, authors=True)
    assert "include_xpac was False, is True; every part is read again" in caplog.text
    read(release.folder, out, include_xpac=True)
    assert "the corpus had authors; they are left out now" in caplog.text


def test_damaged_files_that_were_parsed_before_are_parsed_again(tmp_path, caplog):
    files, places = Files(tmp_path / "records", 8), {"out": tmp_path / "corpus", "cache_dir": tmp_path / "cache"}
    source = RecordsConfig(inputs=(str(files.folder),))
    ingest(source, **places)
    parsed = sorted((tmp_path / "cache/record-files").glob("parsed-*"))[1] / "rows.parquet"
    parsed.write_bytes(parsed.read_bytes()[:-20] + bytes(20))
    index = tmp_path / "cache/record-files/files.json"
    index.write_text(index.read_text().replace('"bytes": 1', '"bytes": 2'))
    files.add()
    caplog.set_level("INFO")
    ingest(source, **places, overwrite=True)
    assert f"{parsed.parent} is damaged" in caplog.text
    assert f"records: read 2 of {len(list(files.folder.iterdir()))} files" in caplog.text
    ingest(source, tmp_path / "fresh", cache_dir=tmp_path / "other")
    assert differences(tmp_path / "corpus", tmp_path / "fresh") == []


def test_another_source_replaces_a_corpus_when_all_of_it_is_there(tmp_path):
    places = {"out": tmp_path / "corpus", "cache_dir": tmp_path / "cache"}
    ingest(SyntheticConfig(n_works=60), **places)
    before = scan_corpus(tmp_path / "corpus").works.collect()
    empty = tmp_path / "works.jsonl"
    empty.write_text("nothing\n")
    with pytest.raises(EmptyInputError):
        ingest(RecordsConfig(inputs=(str(empty),)), **places, overwrite=True)
    assert scan_corpus(tmp_path / "corpus").works.collect().equals(before)
    release = Release(tmp_path / "s", "jsonl", 9)
    config = SnapshotConfig(folder=str(release.write()), n_workers=1)
    for source in (config, SyntheticConfig(n_works=90), config):
        ingest(source, **places, overwrite=True)
        shutil.rmtree(tmp_path / "fresh", ignore_errors=True)
        ingest(source, tmp_path / "fresh", cache_dir=tmp_path / "cache")
        assert differences(tmp_path / "corpus", tmp_path / "fresh") == []


def test_a_graph_of_the_corpus_as_it_was_is_named(tmp_path, caplog):
    places = {"out": tmp_path / "corpus", "cache_dir": tmp_path / "cache", "overwrite": True}
    ingest(SyntheticConfig(n_works=60), **places)
    graph = graph_folder(open_corpus_graph(tmp_path / "corpus", cache_dir=tmp_path / "corpus/cache"))
    caplog.set_level("INFO")
    ingest(SyntheticConfig(n_works=60), **places)
    assert "a graph of the corpus as it was" not in caplog.text
    ingest(SyntheticConfig(n_works=70), **places)
    assert f"{graph} is a graph of the corpus as it was" in caplog.text
