"""The authors of a snapshot are those of its corpus: of the newest copies, without deleted and merged works."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from benchmarks.make_snapshot import export_record, write_deleted, write_manifest, write_part
from sciscidata.corpus.folder import CorpusConfig
from sciscidata.errors import CorruptRecordError, InputNotFoundError
from sciscidata.sources.authors import scan_authors
from sciscidata.sources.snapshot.newest_authors import WorksSeen
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot
from tests.sources.test_updates import Release

_PAIR = ("work_id", "author_id")


def record(number, authors):
    people = [{"author": {"id": f"https://openalex.org/A{one}"}} for one in authors]
    facts = {"id": f"https://openalex.org/W{number}", "publication_year": 2000, "title": f"Work {number}"}
    return export_record(facts | {"referenced_works": ["https://openalex.org/W2"], "authorships": people})


def write(folder, edition, parts, deleted=()):
    for name, records in parts.items():
        write_part(folder, edition, name, records)
    write_deleted(folder, edition, deleted)
    write_manifest(folder, edition, {name: len(records) for name, records in parts.items()})


def read_both(folder, out, **options):
    config = SnapshotConfig(folder=str(folder), n_workers=1, **options)
    ingest_snapshot(config, out, authors=True)
    return scan_authors(config).collect(), scan_authors(CorpusConfig(folder=str(out))).collect()


@pytest.mark.parametrize("edition", ["jsonl", "parquet"])
def test_of_a_work_in_two_parts_the_newest_counts_and_a_deleted_one_does_not(tmp_path, edition):
    parts = {
        "updated_date=2026-06-01/part_0000": [record(1, [1, 2]), record(2, [5]), record(9, [7])],
        "updated_date=2026-06-05/part_0000": [record(1, [3, 2]), record(3, [4])],
    }
    write(tmp_path / "s", edition, parts, deleted=[9])
    scanned, kept = read_both(tmp_path / "s", tmp_path / "out")
    assert scanned.select(_PAIR).rows() == [(1, 3), (1, 2), (3, 4), (2, 5)]
    assert_frame_equal(scanned, kept, check_row_order=False)


@pytest.mark.parametrize("edition", ["jsonl", "parquet"])
def test_of_a_work_twice_in_one_part_the_first_copy_counts(tmp_path, edition):
    records = [record(1, [1]), record(2, [5]), record(1, [3, 1])]
    write(tmp_path / "s", edition, {"updated_date=2026-06-01/part_0000": records})
    scanned, kept = read_both(tmp_path / "s", tmp_path / "out")
    assert scanned.select(*_PAIR, "author_number").rows() == [(1, 1, 1), (2, 5, 1)]
    assert_frame_equal(scanned, kept)


@pytest.mark.parametrize(("edition", "seed"), [("jsonl", 1), ("jsonl", 2), ("parquet", 3), ("parquet", 4)])
def test_the_authors_of_a_snapshot_are_those_of_its_corpus_however_it_changes(tmp_path, edition, seed):
    release = Release(tmp_path / "s", edition, seed)
    for turn in range(5):
        release.change()
        scanned, kept = read_both(release.write(), tmp_path / f"out-{turn}", include_xpac=turn % 2 == 0)
        assert_frame_equal(scanned.sort(_PAIR), kept.sort(_PAIR))
        assert scanned.select(pl.struct(_PAIR).is_unique().all()).item()


@pytest.mark.parametrize("edition", ["jsonl", "parquet"])
def test_a_damaged_part_is_an_error_or_is_skipped_as_ingest_skips_it(tmp_path, edition):
    parts = {f"updated_date=2026-06-0{day}/part_0000": [record(day, [day]), record(7, [day])] for day in (1, 2)}
    write(tmp_path / "s", edition, parts)
    path = max(tmp_path.glob("s/data/*/works/updated_date=*/part_*"))
    whole = path.read_bytes()
    at = len(whole) // 2 if edition == "jsonl" else len(whole) - 20
    path.write_bytes(whole[:at] + bytes(20) + whole[at + 20 :])
    config = SnapshotConfig(folder=str(tmp_path / "s"))
    with pytest.raises(CorruptRecordError, match=r"2026-06-02.*skip corrupt parts with SnapshotConfig.corrupt='skip'"):
        scan_authors(config).collect()
    scanned, kept = read_both(tmp_path / "s", tmp_path / "out", corrupt="skip")
    assert scanned.select(_PAIR).rows() == [(1, 1), (7, 1)]
    assert_frame_equal(scanned, kept)
    path.unlink()
    with pytest.raises(InputNotFoundError, match="1 of 2 parts are missing"):
        scan_authors(config)


@given(st.lists(st.lists(st.integers(0, 40) | st.sampled_from([2**34 - 1, 2**34, 10**17]), max_size=9), max_size=12))
def test_works_that_were_seen_are_those_of_a_set(batches):
    seen, expected = WorksSeen(np.empty(0, np.int64)), set()
    for batch in batches:
        assert seen.has(np.array(batch, np.int64)).tolist() == [one in expected for one in batch]
        seen.add(np.array(sorted(set(batch)), np.int64))
        expected.update(batch)
