"""Record files are parsed once per session; changed ones again, and the first rows of a head alone."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest

from sciscidata.errors import CorruptRecordError, StorageError
from sciscidata.sources import parsed_once, records
from sciscidata.sources.records import RecordsConfig, scan_records


@pytest.fixture
def parses(monkeypatch) -> list[object]:
    """Grows with every reading of files."""
    begun: list[object] = []

    class Counted(records.Reading):
        def batches(self, advance=None):
            begun.append(self)
            yield from super().batches(advance)

    monkeypatch.setattr(records, "Reading", Counted)
    return begun


def write(path, n: int, text: str = "A dam") -> str:
    index = {"abstract_inverted_index": {"We": [0], "ask.": [1]}}
    works = [{"id": f"W{i + 2}", "title": text, "referenced_works": [f"W{i + 1}"], **index} for i in range(n)]
    path.write_text("".join(json.dumps(work) + "\n" for work in works))
    return str(path)


def test_all_queries_of_a_session_share_one_parse(tmp_path, parses, caplog):
    caplog.set_level(logging.INFO)
    corpus = scan_records(RecordsConfig(inputs=(write(tmp_path / "w.jsonl", 5_000),)))
    assert corpus.works.select("work_id").collect().height == 5_000
    with ThreadPoolExecutor(4) as pool:
        frames = [*pool.map(lambda engine: corpus.works.collect(engine=engine), ["streaming", "in-memory"] * 2)]
    assert all(frame["abstract"].unique().to_list() == ["We ask."] for frame in frames)
    assert frames[0].schema == records.WORKS
    pairs = corpus.works.join(corpus.citations, left_on="work_id", right_on="cited_id").select(pl.len())
    assert pairs.collect(engine="streaming").item() == 4_999
    again = scan_records(RecordsConfig(inputs=(str(tmp_path / "w.jsonl"),)))
    assert again.citations.collect().height == 5_000
    assert len(parses) == 1
    assert [r.getMessage() for r in caplog.records] == [
        "records: parsed 5,000 works of 1 file once; later queries of this session read the result"
    ]


def test_a_changed_file_is_parsed_again(tmp_path, parses):
    corpus = scan_records(RecordsConfig(inputs=(write(tmp_path / "w.jsonl", 3),)))
    assert corpus.works.collect()["title"].to_list() == ["A dam"] * 3
    write(tmp_path / "w.jsonl", 4, "A sea")
    assert corpus.works.collect()["title"].to_list() == ["A sea"] * 4
    assert len(parses) == 2


def test_what_was_cleaned_away_is_parsed_again(tmp_path, parses, monkeypatch):
    """Some systems remove temporary files after days. A notebook stays open longer."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(parsed_once, "_session", {})
    (tmp_path / "tmp").mkdir()
    corpora = [scan_records(RecordsConfig(inputs=(write(tmp_path / f"{n}.jsonl", n),))) for n in (3, 4)]
    assert [corpus.works.collect().height for corpus in corpora] == [3, 4]
    [gone, _] = (tmp_path / "tmp").rglob("works.parquet")
    gone.unlink()
    assert [corpus.works.collect().height for corpus in corpora] == [3, 4]
    assert [corpus.works.head(1).collect().height for corpus in corpora] == [1, 1]
    assert len(parses) == 3
    shutil.rmtree(tmp_path / "tmp")
    (tmp_path / "tmp").mkdir()
    assert corpora[0].works.head(1).collect().height == 1
    assert [corpus.works.collect().height for corpus in corpora] == [3, 4]
    assert len(parses) == 6


def test_a_full_disk_for_what_is_parsed_is_a_storage_error(tmp_path, monkeypatch):
    corpus = scan_records(RecordsConfig(inputs=(write(tmp_path / "w.jsonl", 3),)))

    def fill(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records, "_parse", fill)
    with pytest.raises((StorageError, pl.exceptions.ComputeError), match=r"No space left.*TMPDIR"):
        corpus.works.collect()


def test_a_head_reads_no_more_than_it_needs(tmp_path, parses):
    corpus = scan_records(RecordsConfig(inputs=(write(tmp_path / "w.jsonl", 9_000),)))
    assert corpus.works.head(2).collect().height == 2
    assert parses[0].counts[0].works < 9_000
    assert corpus.works.collect().height == 9_000
    assert corpus.works.head(2).collect().height == 2
    assert len(parses) == 2


def test_a_parse_that_failed_is_not_kept(tmp_path, parses):
    file = tmp_path / "w.jsonl"
    file.write_text('{"id": "W1"}\noops\n')
    corpus = scan_records(RecordsConfig(inputs=(str(file),), strict=True))
    for _ in range(2):
        with pytest.raises((CorruptRecordError, pl.exceptions.ComputeError), match="line 2"):
            corpus.works.collect()
    assert len(parses) == 2


def test_what_was_parsed_is_gone_when_python_ends(tmp_path):
    write(tmp_path / "w.jsonl", 3)
    program = """
import os, tempfile, sciscidata as ssd
corpus = ssd.scan_records(ssd.RecordsConfig(inputs=("w.jsonl",)))
print(corpus.works.collect().height, len(os.listdir(tempfile.gettempdir())) > 0)
"""
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["3", "True"]
    assert not list((tmp_path / "tmp").iterdir())
