"""Files of records in every shape they travel in are read whole, and what is skipped is named by file and line."""

from __future__ import annotations

import gzip
import json
import logging
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.errors import CorruptRecordError, EmptyInputError, InputNotFoundError, StorageError
from sciscidata.schemas import CITATIONS, WORKS
from sciscidata.sources import record_files
from sciscidata.sources.example.source import WORKS_FILE
from sciscidata.sources.record_files import find_files
from sciscidata.sources.records import RecordsConfig, pull_records, scan_records
from tests.conftest import example_lines

ONE, TWO, THREE = ({"id": f"https://openalex.org/W{n}", "referenced_works": ["W9", f"W{n}"]} for n in (1, 2, 3))


def write(file: Path, *records, content: bytes | None = None) -> Path:
    if content is None:
        content = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def scan(*files, strict=False):
    return scan_records(RecordsConfig(inputs=tuple(map(str, files)), strict=strict))


def pull(folder, *files, strict=False, **options):
    return pull_records(RecordsConfig(inputs=tuple(map(str, files)), strict=strict), folder, **options)


def ids(corpus):
    return corpus.works.collect()["work_id"].to_list()


LINES = json.dumps(ONE).encode() + b"\n" + json.dumps(TWO).encode() + b"\n"
SHAPES = {
    "lines": LINES,
    "no newline at the end": LINES.rstrip(),
    "windows line ends": LINES.replace(b"\n", b"\r\n"),
    "empty lines": b"\n\n \n" + LINES.replace(b"\n", b"\n\r\n"),
    "a byte order mark": b"\xef\xbb\xbf" + LINES,
    "an array": json.dumps([ONE, TWO]).encode(),
    "a pretty array": json.dumps([ONE, TWO], indent=2).encode(),
    "an array, one work a line": b"[\n" + json.dumps(ONE).encode() + b",\n" + json.dumps(TWO).encode() + b"\n]\n",
    "a page": json.dumps({"meta": {"count": 2}, "results": [ONE, TWO]}).encode(),
    "a pretty page": b"\xef\xbb\xbf\n" + json.dumps({"meta": {}, "results": [ONE, TWO]}, indent=1).encode(),
    "a page a line": b"".join(json.dumps({"results": [work]}).encode() + b"\n" for work in (ONE, TWO)),
    "pages and an empty last page": json.dumps({"results": [ONE, TWO]}).encode() + b'\n{"meta":{},"results":[]}\n',
    "a page that only Python reads": json.dumps({"meta": {"score": float("nan")}, "results": [ONE, TWO]}).encode(),
}
ZSTD = zstandard.ZstdCompressor()
SKIPPABLE = b"\x5f\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"  # as pzstd writes it, with any of 16 numbers


PACKINGS = {
    "plain": lambda content: content,
    "gzip": gzip.compress,
    "zstd": ZSTD.compress,
    "gzip members": lambda content: gzip.compress(content[:70]) + gzip.compress(content[70:]),
    "zstd frames": lambda content: ZSTD.compress(content[:70]) + ZSTD.compress(content[70:]),
    "padded gzip": lambda content: gzip.compress(content) + b"\0" * 512,
    "zstd behind a skippable frame": lambda content: SKIPPABLE + ZSTD.compress(content),
}


@pytest.mark.parametrize("packing", PACKINGS.values(), ids=PACKINGS.keys())
@pytest.mark.parametrize("content", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_in_every_packing_gives_the_same_rows(tmp_path, content, packing, caplog):
    corpus = scan(write(tmp_path / "works", content=packing(content)), strict=True)
    assert ids(corpus) == [1, 2]
    assert corpus.citations.collect().rows() == [(1, 9), (1, 1), (2, 9), (2, 2)]
    assert not caplog.records


def test_a_single_pretty_printed_work_is_one_work(tmp_path):
    assert ids(scan(write(tmp_path / "w.json", content=json.dumps(ONE, indent=2).encode()), strict=True)) == [1]


SPREAD = {
    "objects": lambda text: "\n".join(map(text, (ONE, TWO))),
    "objects without a line end between": lambda text: "".join(map(text, (ONE, TWO))),
    "objects with commas": lambda text: ",\n\n".join(map(text, (ONE, TWO))) + ",\n",
    "objects with other line ends": lambda text: "\n".join(map(text, (ONE, TWO))).replace("\n", "\r\n"),
    "lists": lambda text: "\n".join((text([ONE]), text([TWO]))),
    "a list with commas first": lambda text: f"[{text(ONE)}\n,{text(TWO)}\n]",
    "pages": lambda text: "\n".join((text({"meta": {}, "results": [ONE]}), text({"results": [TWO]}))),
}


@pytest.mark.parametrize("indent", [2, 4, "\t", None], ids=str)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "byte order mark"])
@pytest.mark.parametrize("shape", SPREAD.values(), ids=SPREAD.keys())
def test_values_of_json_behind_each_other_are_read_on_one_line_or_several(tmp_path, shape, mark, indent, caplog):
    content = mark + shape(lambda value: json.dumps(value, indent=indent))
    assert ids(scan(write(tmp_path / "works", content=content.encode()), strict=True)) == [1, 2]
    assert not caplog.records


def test_one_damaged_object_of_several_on_several_lines_costs_no_other(tmp_path):
    texts = [json.dumps(work, indent=2) for work in (ONE, TWO, THREE)]
    texts[0] = texts[0].replace('"id":', "id:")
    report = pull(tmp_path / "cache", write(tmp_path / "w.json", content="\n".join(texts).encode())).provenance
    assert (report["works"], report["corrupt"]) == (2, 1)
    assert report["lines"] == sum(text.count("\n") + 1 for text in texts)
    assert report["first_corrupt_lines"][0]["line"] == 1


def test_a_scan_that_finds_nothing_but_damage_is_an_error_that_says_one_work_on_a_line(tmp_path):
    file = write(tmp_path / "w.json", content=json.dumps([ONE, TWO], indent=2).encode()[:-20])
    for corpus in (scan(file).works, scan(file).citations, scan(file).works.head(1)):
        with pytest.raises(EmptyInputError, match=r"w\.json, line 1.*one work on each line"):
            corpus.collect()


def test_lines_end_at_the_newline_only(tmp_path):
    odd = {"id": "W1", "title": "a\u2028b\u0085c\x0bd\x0ce\rf"}
    file = write(tmp_path / "w.jsonl", content=json.dumps(odd, ensure_ascii=False).encode() + b"\n" + LINES[-60:])
    assert scan(file).works.collect()["title"][0] == "a b c d e f"


@given(st.integers(2, 80), st.sampled_from(["gzip", "gzip members", "padded gzip"]))
@settings(max_examples=40)
def test_the_size_of_a_read_changes_nothing(tmp_path_factory, size, packing):
    content = PACKINGS[packing](SHAPES["windows line ends"])
    file = write(tmp_path_factory.mktemp("w") / "w.jsonl.gz", content=content)
    before = record_files._CHUNK_BYTES
    record_files._CHUNK_BYTES = size
    try:
        assert ids(scan(file, strict=True)) == [1, 2]
    finally:
        record_files._CHUNK_BYTES = before


DAMAGED = {
    "a corrupt line": (LINES[:30] + b"\n" + LINES, 1, "not JSON"),
    "a line that is no work": (LINES + b'{"id":"https://openalex.org/A5"}\n', 3, "no OpenAlex id"),
    "an error of the API": (b'{"error":"Invalid query"}\n' + LINES, 1, "no OpenAlex id"),
    "a last line cut off": (LINES + json.dumps(THREE).encode()[:40], 3, "not JSON"),
    "a first line cut off behind a comma": (b'{"id":"W3",\n' + LINES, 1, "not JSON"),
    "bytes that are not text": (b"\xff\xfe\0\n" + LINES, 1, "not JSON"),
    "gzip cut off": (gzip.compress(LINES + random.Random(0).randbytes(99).hex().encode())[:-30], 3, "cut off"),
    "gzip without its check sum": (gzip.compress(LINES)[:-8], 3, "cut off"),
    "gzip with other bytes behind": (gzip.compress(LINES) + b"rubbish" * 9, 3, "damaged"),
    "zstd cut off": (ZSTD.compress(LINES) + ZSTD.compress(LINES * 50)[:-20], None, "cut off"),
    "a page with one bad result": (json.dumps({"results": [ONE, {"id": None}, TWO]}).encode(), 1, "result 2"),
}


@pytest.mark.parametrize(("content", "line", "reason"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_counted_and_named_and_costs_nothing_else(tmp_path, content, line, reason, caplog):
    file = write(tmp_path / "works.jsonl", content=content)
    with caplog.at_level(logging.WARNING):
        assert ids(scan(file)) == [1, 2]
    assert "1 corrupt" in caplog.text
    assert reason in caplog.text
    report = pull(tmp_path / "cache", file).provenance
    assert (report["works"], report["corrupt"]) == (2, 1)
    [problem] = report["first_corrupt_lines"]
    assert problem["file"] == "works.jsonl"
    assert line is None or problem["line"] == line
    assert reason in problem["reason"]


MANY = b"".join(json.dumps({"id": f"W{n}", "title": "x" * n}).encode() + b"\n" for n in range(1, 3_001))
MANY_ZSTD = zstandard.ZstdCompressor(write_checksum=True).compress(MANY)
BROKEN_CHECKSUMS = {
    "gzip": gzip.compress(MANY)[:-8] + bytes(4) + gzip.compress(MANY)[-4:],
    "zstd": MANY_ZSTD[:-4] + bytes(4),
}


@pytest.mark.parametrize("content", BROKEN_CHECKSUMS.values(), ids=BROKEN_CHECKSUMS.keys())
@pytest.mark.parametrize("size", [200, 1 << 18])
def test_every_line_before_the_damage_is_read(tmp_path, content, size, monkeypatch):
    monkeypatch.setattr(record_files, "_CHUNK_BYTES", size)
    report = pull(tmp_path / "cache", write(tmp_path / "works", content=content)).provenance
    assert (report["works"], report["corrupt"]) == (3_000, 1)
    assert "damaged" in report["first_corrupt_lines"][0]["reason"]


def test_lines_before_damage_in_the_middle_are_read_once_each(tmp_path):
    packed = gzip.compress(MANY)
    middle = len(packed) // 2
    file = write(tmp_path / "works", content=packed[:middle] + bytes(64) + packed[middle:])
    report = pull(tmp_path / "cache", file).provenance
    assert report["duplicate_ids"] == 0
    assert report["works"] > 1_000
    assert ids(scan(file)) == list(range(1, report["works"] + 1))


@pytest.mark.parametrize(("content", "line", "reason"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_fatal_when_strict(tmp_path, content, line, reason):
    file = write(tmp_path / "works.jsonl", content=content)
    message = rf"works.jsonl, line {line or '.*'}: .*{reason}.*strict=False"
    for corpus in (scan(file, strict=True).works, scan(file, strict=True).citations):
        with pytest.raises(CorruptRecordError, match=message):
            corpus.collect()
    with pytest.raises(CorruptRecordError, match=message):
        pull(tmp_path / "cache", file, strict=True)
    assert not list((tmp_path / "cache").iterdir())


def test_all_corrupt_lines_are_counted_and_twenty_are_kept(tmp_path):
    file = write(tmp_path / "w.jsonl", content=LINES + b"oops\n" * 30)
    report = pull(tmp_path / "cache", file).provenance
    assert report["corrupt"] == 30
    assert [problem["line"] for problem in report["first_corrupt_lines"]] == list(range(3, 23))


def test_the_first_of_two_records_with_one_id_counts(tmp_path):
    first = write(tmp_path / "a.jsonl", {"id": "W1", "title": "first"}, {"id": "w1", "title": "again"})
    second = write(tmp_path / "b.jsonl", {"id": "W1", "title": "second", "referenced_works": ["W2"]}, TWO)
    corpus = scan(first, second)
    assert corpus.works.sort("work_id").collect()["title"].to_list() == ["first", None]
    assert corpus.citations.collect()["citing_id"].to_list() == [2, 2]
    assert scan(second, first).works.sort("work_id").collect()["title"].to_list() == ["second", None]
    report = pull(tmp_path / "cache", first, second).provenance
    assert (report["works"], report["duplicate_ids"]) == (2, 2)
    assert [file["duplicate_ids"] for file in report["inputs"]] == [1, 1]


def test_two_ids_with_one_doi_are_both_kept(tmp_path):
    file = write(tmp_path / "w.jsonl", {"id": "W1", "doi": "https://doi.org/10.1/a"}, {"id": "W2", "doi": "10.1/A"})
    assert scan(file).works.collect()["doi"].to_list() == ["10.1/a", "10.1/a"]


def test_folders_and_patterns_are_sorted_and_files_are_named_once(tmp_path):
    for name in ("b/part_000.gz", "a/z.jsonl", "a/c.ndjson.zst", "b/readme.md", "b/.hidden.json", "c.txt"):
        write(tmp_path / name, content=b"")
    listed = find_files((str(tmp_path / "c.txt"), str(tmp_path), str(tmp_path / "*" / "*")), "inputs", in_folders=True)
    names = [str(file.relative_to(tmp_path)) for file in listed]
    assert names == ["c.txt", "a/c.ndjson.zst", "a/z.jsonl", "b/part_000.gz", "b/readme.md"]


def test_missing_inputs_are_named_when_called(tmp_path):
    with pytest.raises(InputNotFoundError, match="does not exist"):
        scan(tmp_path / "none.jsonl")
    (tmp_path / "link.jsonl").symlink_to("none.jsonl")
    with pytest.raises(InputNotFoundError, match="does not exist"):
        scan(tmp_path / "link.jsonl")
    with pytest.raises(InputNotFoundError, match="matches no file"):
        scan(tmp_path / "*.jsonl")
    with pytest.raises(InputNotFoundError, match="holds no file"):
        scan(tmp_path)


def test_a_file_name_that_is_not_text_is_reported_with_a_replacement(tmp_path):
    try:
        file = write(tmp_path / os.fsdecode(b"w\xff.jsonl"), ONE, TWO)
    except OSError:
        pytest.skip("this disk takes UTF-8 only")
    corpus = pull(tmp_path / "cache", file)
    assert ids(corpus) == [1, 2]
    for provenance in (corpus.provenance, scan(file).provenance):
        assert provenance["inputs"][0]["name"] == "w\ufffd.jsonl"


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_scan_gives_the_columns_and_rows_that_a_query_asks_for(tmp_path, engine):
    work = {"publication_year": 2000, "abstract_inverted_index": {"a": [0]}}
    corpus = scan(write(tmp_path / "w.jsonl", *({"id": f"W{n}", **work} for n in range(1, 6000))))
    assert corpus.works.collect_schema() == WORKS
    assert corpus.citations.collect_schema() == CITATIONS
    years = corpus.works.select("publication_year", "work_id").filter(pl.col("work_id") > 4000)
    assert years.collect(engine=engine).height == 1999
    assert corpus.works.select("work_id").head(3).collect(engine=engine).height == 3
    assert corpus.works.select(pl.len()).collect(engine=engine).item() == 5999
    assert corpus.works.select("work_id").collect(engine=engine)["work_id"].n_unique() == 5999
    assert corpus.citations.collect(engine=engine).height == 0


def test_a_file_without_works_scans_to_empty_frames_and_is_refused_by_a_pull(tmp_path):
    file = write(tmp_path / "w.jsonl", content=b"\n\n")
    corpus = scan(file)
    assert (corpus.works.collect().schema, corpus.citations.collect().schema) == (WORKS, CITATIONS)
    with pytest.raises(EmptyInputError, match=r"no OpenAlex work in w.jsonl"):
        pull(tmp_path / "cache", file)
    with pytest.raises(EmptyInputError, match=r"t.csv is a table .*TablesConfig.works"):
        pull(tmp_path / "cache", write(tmp_path / "t.csv", content=b"title,text\nA,b\n"))
    assert not list((tmp_path / "cache").iterdir())


def test_a_pull_is_sorted_and_equal_to_a_scan(tmp_path, monkeypatch):
    monkeypatch.setattr("sciscidata.sources.records._PART_WORKS", 7)
    monkeypatch.setattr("sciscidata.sources.records._PART_BYTES", 2_000)  # several runs
    records = [
        {"id": f"W{n * 37 % 101 + 1}", "referenced_works": [f"W{n}", "W3"], "title": f"t{n}"} for n in range(100)
    ]
    file = write(tmp_path / "w.jsonl", *records)
    pulled, scanned = pull(tmp_path / "cache", file), scan(file)
    assert pulled.works.collect().equals(scanned.works.collect().sort("work_id"))
    assert pulled.citations.collect().equals(scanned.citations.collect().sort("citing_id", "cited_id"))
    assert pulled.works.collect_schema() == WORKS
    assert pulled.citations.collect_schema() == CITATIONS


def test_a_pull_without_any_reference_has_an_empty_citations_file(tmp_path):
    corpus = pull(tmp_path / "cache", write(tmp_path / "w.jsonl", {"id": "W1"}))
    assert corpus.citations.collect().schema == CITATIONS


def test_a_second_pull_reads_no_record(tmp_path, monkeypatch):
    file = write(tmp_path / "w.jsonl", ONE, TWO)
    advanced = []
    first = pull(tmp_path / "cache", file, progress=advanced.append)
    assert sum(advanced) == file.stat().st_size
    monkeypatch.delattr("sciscidata.sources.records.Reading")
    moved = shutil.copy(file, write(tmp_path / "elsewhere" / "w.jsonl", content=b""))
    for again in (pull(tmp_path / "cache", file), pull(tmp_path / "cache", moved)):
        assert again.provenance == first.provenance
        assert ids(again) == [1, 2]


@pytest.mark.parametrize("name", ["ingest.json", "works.parquet", "citations.parquet"])
def test_a_damaged_pull_is_made_again_with_a_warning(tmp_path, name, caplog):
    file = write(tmp_path / "w.jsonl", ONE, TWO)
    first = pull(str(tmp_path / "cache"), file)
    (folder,) = (tmp_path / "cache").iterdir()
    for damage in (lambda path: os.truncate(path, path.stat().st_size // 2), os.unlink):
        damage(folder / name)
        caplog.clear()
        again = pull(tmp_path / "cache", file)
        assert "damaged" in caplog.text
        assert again.provenance == first.provenance
        assert ids(again) == [1, 2]
        assert again.citations.collect().height == 4


def test_other_bytes_names_or_strictness_are_another_pull(tmp_path):
    file = write(tmp_path / "w.jsonl", ONE, TWO)
    pull(tmp_path / "cache", file)
    pull(tmp_path / "cache", file, strict=True)
    pull(tmp_path / "cache", shutil.copy(file, tmp_path / "v.jsonl"))
    pull(tmp_path / "cache", write(file, ONE, TWO, THREE))
    assert len(list((tmp_path / "cache").iterdir())) == 4


def test_the_report_is_json_with_base_names_and_the_date_of_the_data(tmp_path):
    dated = [{**ONE, "updated_date": "2024-05-06T01:02:03"}, {**TWO, "created_date": "2023-01-01"}]
    file = write(tmp_path / "w.jsonl", *dated, {"id": "W3", "referenced_works": ["W1", 5]})
    report = pull(tmp_path / "cache", file).provenance
    assert json.loads(json.dumps(report)) == report
    assert str(tmp_path) not in json.dumps(report)
    assert report["kind"] == "records"
    assert report["data_date"] == "2024-05-06"
    assert report["malformed_references"] == 1
    assert [entry["name"] for entry in report["inputs"]] == ["w.jsonl"]
    assert len(report["inputs"][0]["sha256"]) == 64


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path):
    blocked = write(tmp_path / "cache", content=b"")
    with pytest.raises(StorageError, match=r"cannot write .*cache"):
        pull(blocked, write(tmp_path / "w.jsonl", ONE))


def test_a_full_disk_is_a_storage_error_and_leaves_nothing(tmp_path):
    """The limit on the size of a file stands in for the end of the disk."""
    pytest.importorskip("resource")
    draw = random.Random(0)
    words = [draw.randbytes(300).hex() for _ in range(300)]
    file = write(tmp_path / "w.jsonl", *({"id": f"W{n}", "title": word} for n, word in enumerate(words, 1)))
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from sciscidata.errors import StorageError\n"
        "from sciscidata.sources.records import RecordsConfig, pull_records\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "try: pull_records(RecordsConfig(inputs=(sys.argv[1],)), Path(sys.argv[2]))\n"
        "except StorageError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program, file, tmp_path / "cache"], capture_output=True, text=True)
    assert "cannot write" in run.stdout, run.stderr
    assert not list((tmp_path / "cache").iterdir())


def test_a_killed_pull_leaves_no_result_and_the_next_one_is_complete(tmp_path):
    file = write(tmp_path / "w.jsonl", ONE, TWO)
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from sciscidata.sources import records\n"
        "records._write_sorted = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "records.pull_records(records.RecordsConfig(inputs=(sys.argv[1],)), Path(sys.argv[2]))\n"
    )
    subprocess.run([sys.executable, "-c", program, file, tmp_path / "cache"], check=False)
    assert all(".tmp-" in entry.name for entry in (tmp_path / "cache").iterdir())
    assert ids(pull(tmp_path / "cache", file)) == [1, 2]
    assert [".tmp-" in entry.name for entry in (tmp_path / "cache").iterdir()] == [False]


def test_records_of_2021_and_22_have_the_venues_that_they_have_today_and_those_without_are_counted(tmp_path):
    """Real records, their venues named as then: ``host_venue`` alone, with a V for the S of today."""
    then = tmp_path / "then.jsonl"
    with then.open("wb") as out:
        for line in example_lines():
            record = json.loads(line)
            source = (record.pop("primary_location") or {}).get("source") or record["host_venue"]
            venue = {**source, "id": source["id"] and source["id"].replace("/S", "/V")}
            out.write(json.dumps({**record, "host_venue": venue}).encode() + b"\n")
    found = [pull(tmp_path / "cache", file) for file in (WORKS_FILE, then)]
    venues = [corpus.works.select("work_id", "source_id").collect() for corpus in found]
    assert venues[0].equals(venues[1])
    without = [corpus.provenance["without_venue"] for corpus in found]
    assert without == [venues[0]["source_id"].null_count()] * 2
    assert 0 < without[0] < 500
    assert found[1].provenance["inputs"][0]["without_venue"] == without[0]


def test_the_real_files_of_other_forms_are_read_without_a_skip(tmp_path, shared_data):
    folder = shared_data / "openalex"
    files = [folder / "openalexpro_A.works.jsonl.gz", folder / "cassettes" / "*.json"]
    report = pull(tmp_path, *files, folder / "snapshot_legacy" / "works").provenance
    works = {entry["name"]: entry["works"] + entry["duplicate_ids"] for entry in report["inputs"]}
    assert works == {
        "openalexpro_A.works.jsonl.gz": 248, "W-api-response.json": 1,
        "W2741809807.json": 1, "results_page_1.json": 2, "results_page_2.json": 0, "part_000.gz": 27,
    }  # fmt: skip
    assert (report["corrupt"], report["malformed_references"]) == (0, 0)


def test_records_of_other_entities_are_not_works(tmp_path, caplog):
    (tmp_path / "sources.jsonl").write_text('{"id": "https://openalex.org/S4210231680", "works_count": 1}\n' * 2)
    with pytest.raises(EmptyInputError, match="corrupt"):
        pull(tmp_path / "cache", tmp_path / "sources.jsonl")
