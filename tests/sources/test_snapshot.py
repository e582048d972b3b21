"""Both editions of a snapshot give the tables that the records themselves give, whatever happens on the way."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from benchmarks.make_snapshot import export_index, export_record, json_lines, write_deleted, write_manifest, write_part
from sciscidata.by_id.score_ids import score_ids
from sciscidata.corpus.folder import scan_corpus
from sciscidata.disruption.index import compute_cd_index
from sciscidata.errors import CorruptRecordError, EmptyInputError, InputNotFoundError, ReleaseExistsError, StorageError
from sciscidata.records.abstracts import decode_inverted_indexes
from sciscidata.schemas import CITATIONS, WORKS
from sciscidata.sources.snapshot import removals
from sciscidata.sources.snapshot import source as snapshot
from sciscidata.sources.snapshot.layout import find_layout
from sciscidata.sources.snapshot.removals import find_removals, read_deleted_ids
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot
from sciscidata.storage.parquet import CheckedGroups
from tests.conftest import REPOSITORY, example_lines
from tests.records.test_work import tables

DAYS = ("updated_date=2026-06-01/part_0000", "updated_date=2026-06-01/part_0001", "updated_date=2026-06-09/part_0000")


def record(number, **fields):
    return {"id": f"https://openalex.org/W{number}", "publication_year": 2000 + number % 20, "is_xpac": False,
            "title": f"Work {number}", "abstract_inverted_index": {"dams": [0], "leak": [1]},
            "referenced_works": [f"https://openalex.org/W{max(number - 1, 1)}"]} | fields  # fmt: skip


def make(folder, parts, edition="jsonl", deleted=()):
    """Write a snapshot: part name -> records."""
    for name, records in parts.items():
        write_part(folder, edition, name, [export_record(entry) for entry in records])
    if deleted:
        write_deleted(folder, edition, deleted)
    write_manifest(folder, edition, {name: len(records) for name, records in parts.items()})
    return folder


def three_parts():
    return {name: [record(100 * place + n) for n in range(1, 31)] for place, name in enumerate(DAYS)}


def read(folder, out, **options):
    return ingest_snapshot(SnapshotConfig(folder=str(folder), **{"n_workers": 1} | options), out)


def made(out):
    """Every released byte below ``out``."""
    files = sorted(path for path in Path(out).rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


def ids(corpus):
    return corpus.works.select("work_id").collect().to_series().to_list()


@pytest.fixture(scope="session")
def real_records():
    return [*map(json.loads, example_lines()[:240])]


@pytest.fixture(scope="session")
def real(tmp_path_factory, real_records):
    """The real records as a snapshot of both editions, in three parts."""
    folder = tmp_path_factory.mktemp("snapshot")
    parts = {name: real_records[place::3] for place, name in enumerate(DAYS)}
    for edition in ("jsonl", "parquet"):
        make(folder, parts, edition)
    return folder, parts


@pytest.mark.parametrize("edition", ["jsonl", "parquet"])
def test_both_editions_give_what_the_real_records_give(real, tmp_path, edition):
    folder, parts = real
    corpus = read(folder, tmp_path, edition=edition)
    plain = [line for rows in parts.values() for line in json_lines(map(export_record, rows)).splitlines()]
    works, citations = tables(*plain)
    assert_frame_equal(corpus.works.collect(), works)
    assert_frame_equal(corpus.citations.collect(), citations)
    assert (corpus.works.collect_schema(), corpus.citations.collect_schema()) == (WORKS, CITATIONS)
    assert works["abstract"].null_count() < works.height / 2
    assert corpus.provenance["works"] == works.height
    assert corpus.provenance["edition"] == edition
    assert corpus.provenance["snapshot_date"] == "2026-06-25"
    assert citations.height > 3000


def test_the_legacy_layout_is_read_and_its_missing_parts_are_named(shared_data, tmp_path, caplog):
    folder = shared_data / "openalex" / "snapshot_legacy"
    with pytest.raises(InputNotFoundError, match=r"464 of 465 parts.*updated_date=.*not here.*Config.corrupt='skip'"):
        read(folder, tmp_path / "none")
    assert not (tmp_path / "none").exists()
    corpus = read(folder, tmp_path / "out", corrupt="skip")
    lines = gzip.decompress((folder / "works/updated_date=2023-05-16/part_000.gz").read_bytes()).splitlines()
    assert_frame_equal(corpus.works.collect(), tables(*lines)[0])
    assert len(corpus.provenance["corrupt_parts"]) == 464
    told = [message for message in caplog.messages if "not here" in message]
    assert (len(told), caplog.messages[len(told)]) == (20, "and 444 more, all listed in corpus.json")
    assert corpus.provenance["data_date"] == "2023-05-16"


def test_graph_work_reads_no_text(real, tmp_path):
    corpus = read(real[0], tmp_path)
    whole = compute_cd_index(corpus.works, corpus.citations).sort("work_id").collect()
    recent = pl.col("publication_year") > 2015
    n_recent = corpus.works.filter(recent).select("work_id").collect().height
    for path in (tmp_path / "texts").iterdir():
        path.unlink()
    assert_frame_equal(compute_cd_index(corpus.works, corpus.citations).sort("work_id").collect(), whole)
    assert corpus.works.filter(recent).select("work_id").collect().height == n_recent > 0
    # And that they are gone is no secret to who asks for text.
    with pytest.raises(StorageError, match=r"texts.part-.*parquet is missing"):
        corpus.works.select("title").collect()


def test_text_is_read_only_of_row_groups_in_which_a_drawn_work_stands(tmp_path, monkeypatch):
    parts = {DAYS[0]: [record(n) for n in range(1, 9001)], DAYS[2]: [record(n) for n in range(10_001, 10_011)]}
    corpus = read(make(tmp_path / "s", parts), tmp_path / "out")
    seen = []
    read_group = CheckedGroups.read
    monkeypatch.setattr(CheckedGroups, "read", lambda *args: seen.append(args[1:]) or read_group(*args))
    drawn = corpus.works.filter(pl.col("work_id").is_in([5000, 5001])).select("work_id", "title").collect()
    assert drawn.rows() == [(5000, "Work 5000"), (5001, "Work 5001")]
    assert [group for group, columns in seen if "title" in columns] == [1]  # of four in all
    assert corpus.works.filter(pl.col("title") == "Work 8999").select("work_id").collect().item() == 8999
    assert corpus.works.select("abstract").head(3).collect().to_series().to_list() == ["dams leak"] * 3


def test_a_query_has_the_same_rows_with_and_without_text(tmp_path):
    corpus = read(make(tmp_path / "s", three_parts(), deleted=[105, 222]), tmp_path / "out")
    with_text, without = corpus.works.collect(), corpus.works.select("work_id", "publication_year").collect()
    assert_frame_equal(with_text.select("work_id", "publication_year"), without)
    assert corpus.works.collect(engine="streaming").sort("work_id").equals(with_text.sort("work_id"))
    odd = pl.col("work_id") % 2 == 1
    assert_frame_equal(corpus.works.filter(odd, pl.col("title").is_not_null()).collect(), with_text.filter(odd))


def test_a_rerun_reads_only_what_has_changed(tmp_path, monkeypatch):
    folder, out = make(tmp_path / "s", three_parts()), tmp_path / "out"
    read(folder, out)
    before = made(out)
    asked = []
    run = snapshot.run_jobs
    monkeypatch.setattr(snapshot, "run_jobs", lambda jobs, *rest: asked.extend(jobs) or run(jobs, *rest))
    read(folder, out)
    assert asked == []
    assert made(out) == before
    write_part(folder, "jsonl", DAYS[1], [export_record(record(7))])
    write_manifest(folder, "jsonl", {DAYS[0]: 30, DAYS[1]: 1, DAYS[2]: 30})
    corpus = read(folder, out)
    assert [job.part.name for job in asked] == [DAYS[1] + ".gz"]
    assert ids(corpus)[29] == 7
    fresh = read(folder, tmp_path / "fresh")
    assert_frame_equal(corpus.works.collect(), fresh.works.collect())
    (out / "citations" / "part-2026-06-09-0000.parquet").write_bytes(b"damaged")
    asked.clear()
    read(folder, out)
    assert [job.part.stem for job in asked] == ["part-2026-06-09-0000"]
    changed = folder / "data/jsonl/works" / (DAYS[0] + ".gz")
    os.utime(changed, ns=(0, changed.stat().st_mtime_ns + 1))  # a copy: its SHA-256 says that it is the same
    asked.clear()
    read(folder, out)
    assert asked == []
    content = changed.read_bytes()
    changed.write_bytes(content[:4] + bytes([content[4] ^ 1]) + content[5:])  # another time in the head of the gzip
    read(folder, out)
    assert [job.part.name for job in asked] == [DAYS[0] + ".gz"]


def test_other_options_read_everything_again(tmp_path):
    parts = {DAYS[0]: [record(1), record(2, is_xpac=True)]}
    folder = make(tmp_path / "s", parts)
    corpus = read(folder, tmp_path / "out")
    assert ids(corpus) == [1]
    assert corpus.citations.collect()["citing_id"].to_list() == [1]
    assert corpus.provenance["xpac_works"] == 1
    assert ids(read(folder, tmp_path / "out", include_xpac=True)) == [1, 2]


def test_parts_that_are_gone_are_removed(tmp_path):
    folder, out = make(tmp_path / "s", three_parts()), tmp_path / "out"
    read(folder, out)
    (folder / "data/jsonl/works" / (DAYS[0] + ".gz")).unlink()
    corpus = read(make(folder, {name: three_parts()[name] for name in DAYS[1:]}), out)
    assert min(ids(corpus)) == 101
    assert not [name for name in made(out) if "part-2026-06-01-0000" in name]


def test_parts_that_the_manifest_does_not_list_are_not_read(tmp_path, caplog):
    folder = make(tmp_path / "s", three_parts())
    write_part(folder, "jsonl", "updated_date=2020-01-01/part_0000", [export_record(record(999))])
    assert 999 not in ids(read(folder, tmp_path / "out"))
    assert "updated_date=2020-01-01/part_0000.gz" in caplog.text


def test_the_newest_copy_of_a_work_counts_and_deleted_works_do_not(tmp_path):
    old = [record(1, title="old"), record(2), record(3)]
    new = [record(1, title="new", referenced_works=["https://openalex.org/W3"]), record(1, title="repeated")]
    folder = make(tmp_path / "s", {DAYS[0]: old, DAYS[2]: new}, deleted=[2, 77])
    corpus = read(folder, tmp_path / "out")
    assert corpus.works.select("work_id", "title").collect().rows() == [(3, "Work 3"), (1, "new")]
    assert ids(corpus) == [3, 1]
    assert corpus.citations.collect().rows() == [(3, 2), (1, 3)]  # a citation to a deleted work is still a reference
    report = corpus.provenance
    assert (report["deleted_works"], report["stale_copies"], report["duplicate_ids"]) == (1, 1, 1)
    write_deleted(folder, "jsonl", [])
    assert ids(read(folder, tmp_path / "out")) == [2, 3, 1]  # no part is read again for that


def test_a_snapshot_counts_its_works_without_a_venue_and_knows_the_ids_of_venues_until_2022(tmp_path):
    venue = {"id": "https://openalex.org/V137773608", "display_name": "Nature"}
    then = [record(1, host_venue=venue, abstract_inverted_index=None), record(2, abstract_inverted_index=None)]
    folder = tmp_path / "s"
    write_part(folder, "jsonl", DAYS[0], then)  # as they are: the layout of today has no host_venue
    write_manifest(folder, "jsonl", {DAYS[0]: 2})
    corpus = read(folder, tmp_path / "out")
    assert corpus.works.select("work_id", "source_id").sort("work_id").collect().rows() == [(1, 137773608), (2, None)]
    assert corpus.provenance["without_venue"] == 1


def test_merged_ids_of_the_old_layout_are_removed_too(tmp_path):
    home = tmp_path / "data"
    part = home / "works" / (DAYS[0] + ".gz")
    part.parent.mkdir(parents=True)
    part.write_bytes(gzip.compress(json_lines([export_record(record(n)) for n in (1, 2)])))
    merged = home / "merged_ids" / "works" / "2022-08-03.csv.gz"
    merged.parent.mkdir(parents=True)
    merged.write_bytes(gzip.compress(b"merge_date,id,merge_into_id\n2022-08-03,W2,W1\n"))
    assert ids(read(tmp_path, tmp_path / "out", allow_missing_manifest=True)) == [1]
    later = merged.with_name("2022-09-01.csv.gz")
    later.write_bytes(gzip.compress(b"merge_date,id,merge_into_id\n,W9,W2\n,W8,W7\n,W6,W5\n,W5,W6\n"))
    source = SnapshotConfig(folder=str(tmp_path), allow_missing_manifest=True)
    found = score_ids(["W2", "W1", "W9", "W8", "W6"], source, prior="shipped", cache_dir=tmp_path)
    assert found.select("openalex_id", "reason").rows()[:3] == [
        ("W1", "merged"),
        ("W1", "no references"),
        ("W1", "merged"),
    ]
    assert found["openalex_id"].to_list()[3:] == [None, None]


@given(
    st.lists(st.lists(st.integers(1, 12), max_size=8, unique=True), min_size=1, max_size=4), st.sets(st.integers(1, 12))
)
@settings(max_examples=25)
def test_removals_agree_with_a_plain_dictionary(parts, deleted):
    last = {number: place for place, part in enumerate(parts) for number in part}
    expected = sorted(
        (f"p{place}", number, number in deleted)
        for place, part in enumerate(parts)
        for number in part
        if number in deleted or last[number] != place
    )
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        files = [(f"p{place}", Path(home, f"{place}.parquet")) for place in range(len(parts))]
        for (_, path), part in zip(files, parts, strict=True):
            pl.DataFrame({"work_id": part}, schema={"work_id": pl.Int64}).write_parquet(path)
        # All at once; as bits; some as bits, and the others in several rounds.
        for at_once, large in ((1_000, 1), (3, 100), (3, 7), (3, 0)):
            patch.setattr(removals, "_IDS_AT_ONCE", at_once)
            patch.setattr(removals, "_LARGE", large)
            found = find_removals(files, np.array(sorted(deleted), np.int64), sum(map(len, parts)))
            assert found.rows() == expected


def test_a_list_of_deleted_works_that_is_none_is_refused(tmp_path):
    path = tmp_path / "deleted_ids.csv"
    path.write_text("number,date\n1,2\n")
    with pytest.raises(CorruptRecordError, match="no column work_id or id"):
        read_deleted_ids([path])


def damage(part, how):
    data = part.read_bytes()
    part.write_bytes({"cut": data[:-20], "bytes": data[:60] + bytes(10) + data[70:]}[how])


@pytest.mark.parametrize("edition", ["jsonl", "parquet"])
@pytest.mark.parametrize("how", ["cut", "bytes"])
def test_a_corrupt_part_is_named_and_fatal_or_skipped_by_choice(tmp_path, edition, how):
    folder, out = make(tmp_path / "s", three_parts(), edition), tmp_path / "out"
    part = next(folder.glob(f"data/{edition}/works/{DAYS[1]}*"))
    damage(part, how)
    (folder / "data" / edition / "works" / "manifest.json").unlink()
    with pytest.raises(CorruptRecordError, match=rf"1 corrupt part.*{DAYS[1]}.*(damaged|cut off).*corrupt='skip'"):
        read(folder, out, allow_missing_manifest=True)
    assert len(list((out / "works").iterdir())) == 2  # the good ones are kept
    with pytest.raises(InputNotFoundError, match="is not finished"):
        scan_corpus(out)
    corpus = read(folder, out, allow_missing_manifest=True, corrupt="skip")
    assert list(corpus.provenance["corrupt_parts"]) == [part.relative_to(part.parents[1]).as_posix()]
    assert len(ids(corpus)) == 60
    make(folder, three_parts(), edition)
    assert len(ids(read(folder, out))) == 90


@pytest.mark.parametrize("column", ["id", "publication_year", "referenced_works"])
def test_a_parquet_part_without_a_column_that_counts_is_corrupt_and_not_full_of_nulls(tmp_path, column):
    folder = make(tmp_path / "s", three_parts(), "parquet")
    part = next(folder.glob(f"data/parquet/works/{DAYS[1]}*"))
    (part.parents[1] / "manifest.json").unlink()
    pq.write_table(pq.ParquetFile(part).read().drop_columns([column]), part)
    with pytest.raises(CorruptRecordError, match=f"1 corrupt part.*{DAYS[1]}.* has no column {column}"):
        read(folder, tmp_path / "out", allow_missing_manifest=True)


def test_a_changed_bit_is_found_where_pages_have_checksums(tmp_path):
    folder = make(tmp_path / "s", three_parts(), "parquet")
    part = next(folder.glob(f"data/parquet/works/{DAYS[1]}*"))
    table = pq.ParquetFile(part).read()
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, part, **options, write_page_checksum=True)
    whole = part.read_bytes()
    place = whole.index(b"openalex.org/W") + len(b"openalex.org/W")
    part.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    (part.parents[1] / "manifest.json").unlink()
    with pytest.raises(CorruptRecordError, match=f"1 corrupt part.*{DAYS[1]}.*the Parquet file is damaged"):
        read(folder, tmp_path / "out", allow_missing_manifest=True)


def test_parts_of_another_size_or_number_of_records_than_the_manifest_says_are_corrupt(tmp_path):
    folder = make(tmp_path / "s", three_parts())
    manifest = folder / "data/jsonl/works/manifest.json"
    said = json.loads(manifest.read_text())
    said["files"][0]["meta"]["content_length"] += 1
    said["files"][1]["meta"]["record_count"] += 1
    manifest.write_text(json.dumps(said))
    with pytest.raises(InputNotFoundError, match=r"1 of 3 parts.*part_0000.gz has .* bytes, the manifest says"):
        read(folder, tmp_path / "out")
    problems = read(folder, tmp_path / "out", corrupt="skip").provenance["corrupt_parts"]
    assert problems[DAYS[1] + ".gz"] == "has 30 records, the manifest says 31"
    assert len(problems) == 2


# Text that is no UTF-8 makes a line no JSON in whatever field it is.
@pytest.mark.parametrize("line", [b'{"id":', b'{"id":"W2","unread":"\xe9"}'])
def test_a_corrupt_line_is_counted_or_fatal_by_choice(tmp_path, line):
    folder = make(tmp_path / "s", {DAYS[0]: [record(1)]})
    path = folder / "data/jsonl/works" / (DAYS[0] + ".gz")
    path.write_bytes(gzip.compress(json_lines([export_record(record(1))]) + b"\n" + line + b"\n"))
    (folder / "data/jsonl/works/manifest.json").unlink()
    corpus = read(folder, tmp_path / "out", corrupt="skip", allow_missing_manifest=True)
    assert (ids(corpus), corpus.provenance["corrupt_lines"]) == ([1], 1)
    with pytest.raises(CorruptRecordError, match=r"part_0000.gz: line 3: not JSON"):
        read(folder, tmp_path / "out", allow_missing_manifest=True)


def test_a_missing_manifest_means_an_unfinished_copy(tmp_path):
    folder = make(tmp_path / "s", three_parts())
    manifest = folder / "data/jsonl/works/manifest.json"
    said = json.loads(manifest.read_text())
    manifest.unlink()
    with pytest.raises(InputNotFoundError, match=r"unfinished.*allow_missing_manifest"):
        read(folder, tmp_path / "out")
    combined = {
        "date": "2026-06-25",
        "entities": [{"entity": "authors"}, {key: said[key] for key in ("entity", "files")}],
    }
    (manifest.parents[1] / "manifest.json").write_text(json.dumps(combined))
    assert read(folder, tmp_path / "out").provenance["snapshot_date"] == "2026-06-25"
    manifest.write_text("[]")
    with pytest.raises(InputNotFoundError, match="no manifest of works"):
        read(folder, tmp_path / "out")


@pytest.mark.parametrize("inside", ["", "data", "data/jsonl", "data/jsonl/works"])
def test_any_folder_on_the_way_to_the_works_will_do(tmp_path, inside):
    make(tmp_path, {DAYS[0]: [record(1)]})
    layout = find_layout(tmp_path / inside, "jsonl", allow_missing_manifest=False)
    assert [part.stem for part in layout.parts] == ["part-2026-06-01-0000"]


def test_a_folder_without_works_is_refused_with_what_is_needed(tmp_path):
    with pytest.raises(InputNotFoundError, match="does not exist"):
        read(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(InputNotFoundError, match=r"data/jsonl/works/updated_date=.*aws s3 sync"):
        read(tmp_path, tmp_path / "out")
    with pytest.raises(EmptyInputError, match="1 of the expansion corpus"):
        read(make(tmp_path, {DAYS[0]: [record(1, is_xpac=True)]}), tmp_path / "out")


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    folder = make(tmp_path / "s", three_parts())
    usage = snapshot.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(snapshot.shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(StorageError, match=r"may need .* GB for 3 part.*Free some"):
        read(folder, tmp_path / "deep" / "out")
    assert not (tmp_path / "deep").exists()


def long_index(n_words, n_common=200):
    """An abstract of new words with common ones between them, too long for the export."""
    index = {}
    for place in range(n_words):
        word = f"common{place % n_common}" if place % 3 else f"neuwort{place}"
        index.setdefault(word, []).append(place)
    return index


def test_a_cut_off_index_keeps_the_words_before_the_first_missing_one_in_both_editions(tmp_path):
    index = long_index(6000)
    kept = json.loads(export_index(index))
    first_missing = min(set(range(6000)) - {place for places in kept.values() for place in places})
    words = {place: word for word, places in index.items() for place in places}
    expected = " ".join(words[place] for place in range(first_missing))
    assert 500 < first_missing < 5000
    for edition in ("jsonl", "parquet"):
        corpus = read(make(tmp_path / edition, {DAYS[0]: [record(1, abstract_inverted_index=index)]}, edition),
                      tmp_path / f"out-{edition}")  # fmt: skip
        assert corpus.works.select("abstract").collect().item() == expected


def test_what_is_left_of_a_broken_or_hopeless_index():
    whole = json.dumps(long_index(3000))
    cut = whole[:20_000]
    text, nothing, short = decode_inverted_indexes(pl.Series([cut, cut.replace('"neuwort0": [0], ', ""), cut[:9_000]]))
    assert text.startswith("neuwort0 common1 common2 neuwort3")
    assert nothing is None  # the first word is missing: nothing precedes the gap
    assert short is None  # too short to have been cut off by the snapshot: broken for some other reason
    complete = long_index(3000)
    del complete["neuwort1500"]
    odd = decode_inverted_indexes(pl.Series([json.dumps(complete)])).item()
    assert odd.split()[-1] == "common199"  # one missing word is an oddity, not a cut


@pytest.mark.parametrize("processes_from", [0, 1_000_000])
def test_workers_report_progress_and_what_went_wrong(tmp_path, caplog, monkeypatch, processes_from):
    monkeypatch.setattr("sciscidata.sources.snapshot.parts._PROCESSES_FROM", processes_from)
    folder = make(tmp_path / "s", three_parts())
    part = folder / "data/jsonl/works" / (DAYS[1] + ".gz")
    damage(part, "bytes")
    read_bytes = []
    config = SnapshotConfig(folder=str(folder), n_workers=2, corrupt="skip")
    corpus = ingest_snapshot(config, tmp_path / "out", read_bytes.append)
    assert list(corpus.provenance["corrupt_parts"]) == [DAYS[1] + ".gz"]
    assert "compressed data is damaged" in caplog.text
    assert sum(read_bytes) == sum(path.stat().st_size for path in folder.rglob("part_*"))
    shutil.copytree(tmp_path / "out", tmp_path / "full", ignore=shutil.ignore_patterns("part-*"))
    (tmp_path / "full" / "works" / "part-2026-06-01-0000.parquet" / "in the way").mkdir(parents=True)
    with pytest.raises(StorageError, match="cannot write"):
        ingest_snapshot(config, tmp_path / "full")


RUN = """
import sys
from sciscidata.sources.snapshot import parts
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot
parts._PROCESSES_FROM = int(sys.argv[3])
ingest_snapshot(SnapshotConfig(folder=sys.argv[1], n_workers=2), sys.argv[2])
"""


def test_a_killed_run_is_completed_with_the_same_bytes_on_any_number_of_workers(tmp_path):
    parts = {f"updated_date=2026-06-01/part_{n:04}": [record(1000 * n + k) for k in range(1, 300)] for n in range(12)}
    folder = make(tmp_path / "s", parts, deleted=[5])
    read(folder, tmp_path / "plain")
    expected = made(tmp_path / "plain")
    chance = random.Random(5)
    finished = 0
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", RUN, str(folder), str(tmp_path / "out")]
    for processes_from in ("0", "1000000"):
        run = subprocess.Popen([*command, processes_from], env=environment)
        deadline = time.monotonic() + 600  # until the next part is done, and a little longer
        while run.poll() is None and time.monotonic() < deadline:
            if len(list((tmp_path / "out").glob("receipts/*"))) > finished:
                break
            time.sleep(0.002)
        time.sleep(chance.random() * 0.02)
        run.send_signal(signal.SIGKILL)
        run.wait()
        finished = len(list((tmp_path / "out").glob("receipts/*")))
    assert finished > 0
    subprocess.run([*command, "1000000"], env=environment, check=True)
    assert made(tmp_path / "out") == expected


def test_a_snapshot_whose_claim_was_damaged_is_made_again_when_asked(tmp_path):
    folder, out = make(tmp_path / "s", three_parts()), tmp_path / "out"
    whole = read(folder, out).works.collect()
    (out / "made_of.json").write_text((out / "made_of.json").read_text().replace("openalex", "openalez"))
    config = SnapshotConfig(folder=str(folder), n_workers=1)
    with pytest.raises(ReleaseExistsError, match="overwrite=True"):
        ingest_snapshot(config, out)
    assert ingest_snapshot(config, out, overwrite=True).works.collect().equals(whole)
