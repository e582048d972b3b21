"""Files and servers that mean harm: memory and time stay bounded, and one clear error says what the limit was."""

from __future__ import annotations

import gzip
import json
import os
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import tracemalloc
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.cli.settings import read_toml
from sciscidata.errors import (
    ApiError,
    ConfigError,
    CorruptRecordError,
    EmptyInputError,
    InputNotFoundError,
    StorageError,
    VerificationError,
)
from sciscidata.openalex_api.client import ApiConfig, OpenAlexClient, works_request
from sciscidata.openalex_api.store import FILE_NAME, ResponseStore
from sciscidata.records import json_record
from sciscidata.records.abstracts import decode_inverted_indexes
from sciscidata.records.json_record import TooLongToMendError, entries_one_by_one, read_records
from sciscidata.records.read_lines import DEFAULT_LIMITS, Gap, ReadLimits, split_lines, whole_lines
from sciscidata.release import export as labelled
from sciscidata.release.manifest import read_manifest
from sciscidata.sources import records
from sciscidata.sources.records import RecordsConfig, pull_records
from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot, read_deleted_ids
from sciscidata.storage.decompression import PIECE_BYTES, decompress_gzip, decompress_zstd

MB = 1 << 20
ONE, TWO = b'{"id":"W1"}', b'{"id":"W2"}'
SMALL = {"max_line_mb": 1, "max_document_mb": 2, "max_gap_mb": 8}


def gzipped(block: bytes, n: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join(packer.compress(block) for _ in range(n)) + packer.flush()


def zstandarded(block: bytes, n: int) -> bytes:
    packer = zstandard.ZstdCompressor().compressobj()
    return b"".join(packer.compress(block) for _ in range(n)) + packer.flush()


PACKERS = {"gzip": gzipped, "zstd": zstandarded, "plain": lambda block, n: block * n}


def pull(tmp_path, content, **options):
    file = tmp_path / "works"
    file.write_bytes(content)
    return pull_records(RecordsConfig(inputs=(str(file),), **options), tmp_path / "cache").provenance


def part_of(home: Path, name: str = "part_0000.gz") -> Path:
    part = home / "data" / "jsonl" / "works" / "updated_date=2026-06-01" / name
    part.parent.mkdir(parents=True, exist_ok=True)
    return part


def ingest(tmp_path, content, **options):
    part_of(tmp_path / "s").write_bytes(content)
    config = SnapshotConfig(folder=str(tmp_path / "s"), allow_missing_manifest=True, n_workers=1, **options)
    return ingest_snapshot(config, tmp_path / "out").provenance


pieces = st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 300_000).map(bytes)), min_size=1, max_size=5)


@settings(max_examples=40)
@given(
    parts=pieces,
    size=st.sampled_from([1_000, 4_096, 1 << 18]),
    level=st.sampled_from([1, 19]),
    checksum=st.booleans(),
    sized=st.booleans(),
)
def test_decompression_restores_the_input_in_small_pieces(parts, size, level, checksum, sized):
    packer = zstandard.ZstdCompressor(level=level, write_checksum=checksum, write_content_size=sized)
    skippable = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    zstd = b"".join(packer.compress(part) + skippable for part in parts)
    zipped = b"".join(map(gzip.compress, parts)) + bytes(100)
    for unpack, data in ((decompress_zstd, zstd), (decompress_gzip, zipped)):
        found = list(unpack(data[at : at + size] for at in range(0, len(data), size)))
        assert b"".join(found) == b"".join(parts)
        assert max(map(len, found), default=0) <= PIECE_BYTES


@settings(max_examples=60)
@given(st.lists(st.sampled_from([b"", b"", b" ", b"\r", b"x", b" y ", b"z" * 70]), max_size=40), st.integers(1, 9))
def test_lines_are_those_of_a_plain_split_and_empty_ones_come_together(lines, size):
    text = b"\n".join(lines)
    cut = [text[at : at + size] for at in range(0, len(text), size)]
    found = [line for block in whole_lines(cut, DEFAULT_LIMITS, Gap()) for line in split_lines(block)]
    assert b"\n".join(found) == (text[:-1] if text.endswith(b"\n") else text)
    assert [line for line in found if line.strip()] == [line for line in lines if line.strip()]


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_a_line_that_is_too_long_is_one_corrupt_line_and_the_others_are_read(tmp_path, pack):
    content = pack(ONE + b"\n\n" + b"a" * (5 * MB) + b"\n" + TWO + b"\n", 1)
    report = pull(tmp_path, content, **SMALL)
    assert (report["works"], report["corrupt"], report["lines"], report["empty_lines"]) == (2, 1, 4, 1)
    [problem] = report["first_corrupt_lines"]
    assert problem["line"] == 3
    assert "more than 1 MB" in problem["reason"]
    assert "RecordsConfig.max_line_mb" in problem["reason"]
    with pytest.raises(CorruptRecordError, match=r"works, line 3: the line has more than 1 MB"):
        pull(tmp_path, content, strict=True, **SMALL)
    assert pull(tmp_path, content, max_line_mb=8)["first_corrupt_lines"][0]["reason"].startswith("not JSON")


def test_a_line_of_exactly_the_limit_is_read(tmp_path):
    line = b'{"id":"W3","title":"' + b"a" * (MB - 22) + b'"}'
    assert len(line) == MB
    content = line + b"\n" + line.replace(b"W3", b"W34") + b"\n" + ONE
    report = pull(tmp_path, content, **SMALL)
    assert (report["works"], [problem["line"] for problem in report["first_corrupt_lines"]]) == (2, [2])


@pytest.mark.parametrize(
    ("pack", "block"),
    [(gzipped, b"a" * MB), (zstandarded, b"\n" * MB), (gzipped, b" \n\r\n" * (MB // 4)), (PACKERS["plain"], bytes(MB))],
)
def test_a_file_that_goes_on_and_on_without_a_work_is_given_up_with_one_clear_error(tmp_path, pack, block):
    with pytest.raises(EmptyInputError, match=r"works, line .*8 MB or 8,000 lines in a row hold no work.*max_gap_mb"):
        pull(tmp_path, pack(block, 20), **SMALL)
    report = pull(tmp_path, ONE + b"\n" + block * 30 + b"\n" + TWO, **SMALL)
    assert report["works"] == 1
    assert "hold no work" in report["first_corrupt_lines"][-1]["reason"]


def test_lines_that_hold_no_work_are_given_up_by_their_number(tmp_path):
    report = pull(tmp_path, ONE + b"\n" + b"x\n" * 9_000 + TWO, **SMALL)
    assert (report["works"], report["lines"]) == (1, 9_002)
    assert pull(tmp_path, ONE + b"\n" + b"x\n" * 7_999 + TWO, **SMALL)["works"] == 2


@pytest.mark.parametrize("pack", [gzipped, zstandarded])
def test_empty_lines_are_counted_right_and_quickly(tmp_path, pack):
    content = pack(ONE + b"\n" + b"\n" * (6 * MB) + b" \n" + TWO + b"\noops", 1)
    report = pull(tmp_path, content, **SMALL)
    assert (report["works"], report["empty_lines"], report["lines"]) == (2, 6 * MB + 1, 6 * MB + 4)
    assert report["first_corrupt_lines"][0]["line"] == 6 * MB + 4


def test_a_document_that_is_too_large_is_named_and_the_next_file_is_read(tmp_path):
    large, small = tmp_path / "a.json", tmp_path / "b.json"
    works = [{"id": f"W{n}", "title": "x" * 1_000} for n in range(10, 2_500)]
    large.write_text(json.dumps({"results": works}, indent=1))
    small.write_text(json.dumps([{"id": "W1"}, {"id": "W2"}], indent=1))
    config = RecordsConfig(inputs=(str(large), str(small)), **SMALL)
    report = pull_records(config, tmp_path / "cache").provenance
    assert (report["works"], report["corrupt"]) == (2, 1)
    assert report["first_corrupt_lines"][0]["line"] == 1
    assert "more than 2 MB" in report["first_corrupt_lines"][0]["reason"]
    assert pull_records(RecordsConfig(inputs=(str(large),)), tmp_path / "cache").provenance["works"] == 2_490


def test_lines_behind_a_first_one_that_was_cut_off_are_no_document(tmp_path):
    many = b"".join(b'{"id":"W%d","title":"%s"}\n' % (n, b"x" * 1_000) for n in range(10, 4_000))
    report = pull(tmp_path, b'{"id":"W3",\n' + many, **SMALL)
    assert (report["works"], report["corrupt"]) == (3_990, 1)


def test_a_window_of_zstandard_that_is_too_large_is_refused_with_a_remedy(tmp_path):
    frame = b"\x28\xb5\x2f\xfd" + bytes((0, (28 - 10) << 3)) + (1 | len(ONE) << 3).to_bytes(3, "little") + ONE
    with pytest.raises(EmptyInputError, match=r"window of more than 128 MB.*zstd -d --long=31"):
        pull(tmp_path, frame)


def test_other_limits_are_another_pull_and_the_usual_ones_are_not(tmp_path):
    pull(tmp_path, ONE)
    pull(tmp_path, ONE, max_line_mb=256)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    pull(tmp_path, ONE, max_line_mb=255)
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_many_members_and_frames_without_content_are_passed_over(tmp_path):
    empty = zstandard.ZstdCompressor().compress(b"")
    skippable = struct.pack("<II", 0x184D2A50, 0)
    for content in (
        gzip.compress(b"") * 30_000 + gzip.compress(ONE),
        empty * 30_000 + zstandard.ZstdCompressor().compress(ONE),
        skippable * 30_000 + zstandard.ZstdCompressor().compress(ONE),
    ):
        assert pull(tmp_path, content)["works"] == 1


def test_large_works_are_not_held_together(tmp_path):
    lines = b"".join(b'{"id":"W%d","title":"%s"}\n' % (n, b"x" * (2 * MB)) for n in range(1, 21))
    content = b'{"id":"W30"}\n' + lines + b'{"id":"W31"}\n'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_PART_BYTES", 5 * MB)
        file = tmp_path / "works"
        file.write_bytes(content)
        corpus = pull_records(RecordsConfig(inputs=(str(file),)), tmp_path / "cache")
    assert corpus.works.collect()["work_id"].to_list() == [*range(1, 21), 30, 31]
    [made] = (tmp_path / "cache").iterdir()
    groups = pq.ParquetFile(made / "works.parquet").metadata
    assert max(groups.row_group(n).num_rows for n in range(groups.num_row_groups)) <= 4


@pytest.mark.parametrize("limit", ["max_line_mb", "max_document_mb", "max_gap_mb"])
@pytest.mark.parametrize("value", [0, True, 1 << 30])
def test_a_limit_that_is_none_is_refused(limit, value):
    with pytest.raises(ConfigError, match=limit):
        RecordsConfig(inputs=("x",), **{limit: value})
    if limit != "max_document_mb":
        with pytest.raises(ConfigError, match=limit):
            SnapshotConfig(folder="x", **{limit: value})


def test_a_part_with_a_line_that_is_too_long_is_corrupt_or_read_without_it(tmp_path):
    content = gzip.compress(ONE + b"\n" + b"a" * (3 * MB) + b"\n\n" + TWO + b"\n")
    with pytest.raises(CorruptRecordError, match=r"line 2: the line has more than 1 MB.*SnapshotConfig.max_line_mb"):
        ingest(tmp_path, content, max_line_mb=1)
    report = ingest(tmp_path, content, max_line_mb=1, corrupt="skip")
    assert (report["works"], report["corrupt_lines"]) == (2, 1)


@pytest.mark.parametrize("block", [b"a" * MB, b"\n" * MB, b"x\n" * (MB // 2)])
def test_a_part_that_goes_on_without_a_work_is_given_up(tmp_path, block):
    content = gzip.compress(ONE + b"\n" + block * 20)
    options = {"max_line_mb": 1, "max_gap_mb": 8}
    with pytest.raises(CorruptRecordError, match=r"8 MB or 8,000 lines in a row hold no work|line 2: "):
        ingest(tmp_path, content, **options)
    with pytest.raises(EmptyInputError, match="no work"):
        ingest(tmp_path, content, corrupt="skip", **options)


def test_lines_of_a_part_keep_their_numbers_behind_millions_of_empty_ones(tmp_path):
    content = gzip.compress(ONE + b"\n" + b"\n" * (9 * MB) + b"oops\n" + TWO)
    report = ingest(tmp_path, content, corrupt="skip")
    assert report["works"] == 2
    receipt = json.loads((tmp_path / "out" / "receipts" / "part-2026-06-01-0000.json").read_bytes())
    assert receipt["first_corrupt_lines"][0].startswith(f"line {9 * MB + 2:,}: not JSON")


def test_other_limits_read_the_parts_again_and_the_usual_ones_do_not(tmp_path):
    receipt = tmp_path / "out" / "receipts" / "part-2026-06-01-0000.json"
    ingest(tmp_path, gzip.compress(ONE))
    assert json.loads(receipt.read_bytes())["made_by"][2:] == [False]
    ingest(tmp_path, gzip.compress(ONE), max_line_mb=1)
    assert json.loads(receipt.read_bytes())["made_by"][2:] == [False, 1, 1_024, 4_096]


def test_a_record_of_parquet_that_is_too_long_is_corrupt(tmp_path):
    part = tmp_path / "s" / "data" / "parquet" / "works" / "updated_date=2026-06-01" / "part_0000.parquet"
    part.parent.mkdir(parents=True)
    columns = {"id": ["W1", "W2"], "publication_year": [2000, 2001], "referenced_works": [["W1"], ["W1"]]}
    pl.DataFrame({**columns, "title": ["x", "x" * (2 * MB)]}).write_parquet(part)
    config = SnapshotConfig(
        folder=str(tmp_path / "s"), allow_missing_manifest=True, n_workers=1, max_line_mb=1, corrupt="skip"
    )
    report = ingest_snapshot(config, tmp_path / "out").provenance
    assert (report["works"], report["corrupt_lines"]) == (1, 1)


def test_a_list_of_deleted_works_that_expands_without_end_is_refused(tmp_path):
    path = tmp_path / "deleted_ids.csv.gz"
    path.write_bytes(gzip.compress(b"work_id,deleted_date\n" + b"a" * (20 * MB)))
    with pytest.raises(CorruptRecordError, match="is no list of deleted works"):
        read_deleted_ids([path])


def test_lines_that_are_too_long_count_as_bytes_without_a_work(tmp_path):
    content = b"".join(bytes([97 + n % 26]) * (2 * MB) + b"\n" for n in range(20)) + ONE
    report = pull(tmp_path, ONE.replace(b"1", b"3") + b"\n" + content, **SMALL)
    assert report["works"] == 1
    assert report["first_corrupt_lines"][-1]["reason"].startswith("8 MB or 8,000 lines in a row hold no work")
    gap = Gap(ReadLimits(max_line_mb=1))
    assert len(list(whole_lines([content], ReadLimits(max_line_mb=1), gap))) == 21
    assert gap.n_bytes == 40 * MB


@pytest.mark.parametrize("pretty", [False, True], ids=["one line", "a document"])
@pytest.mark.parametrize("shape", [lambda works: works, lambda works: {"results": works}], ids=["list", "page"])
def test_a_large_piece_with_works_is_no_gap(tmp_path, pretty, shape):
    works = [{"id": f"W{n}", "title": "x" * 50_000} for n in range(60)[1:]]
    content = json.dumps(shape(works), indent=1 if pretty else None).encode()
    assert pull(tmp_path, content, max_gap_mb=1)["works"] == 59
    part = b"".join(json.dumps(work).encode() + b"\n" for work in works)
    assert ingest(tmp_path, gzip.compress(part), max_gap_mb=1)["works"] == 59


def test_tiny_entries_end_the_reading_early_and_take_little_memory(tmp_path):
    zeros = b"0," * (2 * MB) + b"0"
    for content in (b'{"results":[' + zeros + b"]}", b"[" + zeros + b"]"):
        with pytest.raises(EmptyInputError, match="result 1: not a JSON object"):
            pull(tmp_path, zstandarded(content, 1), max_gap_mb=8)
        report = pull(tmp_path, ONE + b"\n" + content + b"\n" + TWO, max_gap_mb=8)
        assert (report["works"], report["corrupt"]) == (1, 8_192)


@pytest.mark.parametrize("entry", [b"{}", b"[]", b'{"id":1}', b"null"])
def test_a_list_of_many_entries_that_are_too_short_for_works_is_left(entry):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_record, "_MANY_ENTRIES", 1_000)
        patch.setattr(json_record, "_FEW_BYTES", 1_000)
        found = list(read_records(b"[" + (entry + b",") * 2_000 + ONE + b"]"))
    assert str(found[-1]).startswith("a list of more than 1,000 entries, of less than 16 bytes each")
    assert len(found) == 1_001


@pytest.mark.parametrize("shape", [lambda works: works, lambda works: {"results": works, "meta": 1}])
def test_a_document_of_any_size_is_repaired_entry_by_entry(tmp_path, shape):
    works = [{"id": f"W{n}", "title": "x" * n, "fwci": float("nan")} for n in range(1, 61)]
    content = json.dumps(shape(works), indent=1).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_record, "_MOST_MENDED_BYTES", 1_000)
        report = pull(tmp_path, content)
        assert (report["works"], report["corrupt"]) == (60, 0)
        works[30]["title"] *= 100
        long = json.dumps(shape(works), indent=1).encode()
        with pytest.raises(EmptyInputError, match=r"line 1: a value that begins at byte .* too long .* null for NaN"):
            pull(tmp_path, long)
    assert pull(tmp_path, long)["works"] == 60


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=40)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200)
@given(
    entries=st.lists(values, max_size=8), indent=st.none() | st.just(1), size=st.integers(20, 300), cut=st.floats(0, 1)
)
def test_entries_equal_those_of_json_for_every_window(entries, indent, size, cut):
    for whole in (entries, {"meta": 1.5e300, "results": entries, "x": [[]]}):
        text = json.dumps(whole, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_record, "_MOST_MENDED_BYTES", size)
            try:
                found = [json.loads(entry) for entry in entries_one_by_one(text)]
            except TooLongToMendError:
                assert len(text) > size
            else:
                inside = json.loads(text)
                assert repr(found) == repr(inside if isinstance(inside, list) else inside["results"])
        broken = text[: int(cut * (len(text) - 1))]
        with pytest.raises(CorruptRecordError, match="JSON"):
            list(entries_one_by_one(broken))


BATCHES = """
import re, sys
from pathlib import Path
from sciscidata.sources.snapshot.layout import Part
from sciscidata.sources.snapshot.reading import read_batches
part = Part("updated_date=2026-06-01/part_0000.parquet", sys.argv[1], "parquet")
print(sum(batch.rows.height for batch in read_batches(part)))
print(int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize(
    ("options", "most_mb"),  # measured were 960 and 1,170 MB; 1,430 and 1,820 where all rows are read at once
    [({}, 1_200), ({"use_dictionary": False, "column_encoding": {"title": "DELTA_BYTE_ARRAY"}}, 1_500)],
    ids=["as a dictionary", "as prefixes"],
)
def test_one_text_in_every_row_of_parquet_takes_little_memory(tmp_path, options, most_mb):
    path = tmp_path / "part_0000.parquet"
    columns = {"id": [f"W{n}" for n in range(2_048)], "publication_year": [2000] * 2_048}
    others = {"referenced_works": [["W1"]] * 2_048, "title": ["x" * 200_000] * 2_048}
    pq.write_table(pa.table(columns | others), path, compression="zstd", **options)
    assert path.stat().st_size < 50_000
    done = subprocess.run([sys.executable, "-c", BATCHES, str(path)], capture_output=True, text=True, check=True)
    n_works, peak_mb = map(int, done.stdout.split())
    assert n_works == 2_047  # not W0
    assert peak_mb < most_mb


MEASURED = """
import re, sys
from pathlib import Path
from sciscidata.sources.records import RecordsConfig, pull_records
from sciscidata.errors import SciSciDataError
try:
    pull_records(RecordsConfig(inputs=(sys.argv[1],), max_gap_mb=1_024), sys.argv[2])
except SciSciDataError as error:
    print(f"{type(error).__name__}: {error}")
# Unlike ru_maxrss without what the parent held when this process was forked.
print(int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("block", [b"a" * MB, b"\n" * MB], ids=["one line", "newlines"])
def test_ten_gigabytes_out_of_three_hundred_kilobytes_take_little_memory(tmp_path, block):
    path = tmp_path / "bomb.zst"
    one = zstandarded(block * 16, 16)  # 256 MB
    path.write_bytes(one * 40)
    assert path.stat().st_size < 400_000
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path), str(tmp_path / "cache")], capture_output=True, text=True, check=True
    )
    said, peak_mb = done.stdout.splitlines()
    assert said.startswith("EmptyInputError: no OpenAlex work")
    assert "1,024 MB or 1,024,000 lines in a row hold no work" in said or "more than 256 MB" in said
    assert int(peak_mb) < 900


def special_files(home: Path) -> dict[str, Path]:
    home.mkdir(parents=True, exist_ok=True)
    os.mkfifo(home / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(home / "socket"))
    listening.close()
    (home / "zero").symlink_to("/dev/zero")
    return {name: home / name for name in ("pipe", "socket", "zero")}


@pytest.mark.parametrize("kind", ["pipe", "socket", "zero"])
def test_a_pipe_or_device_is_refused_for_every_input(tmp_path, kind):
    path = special_files(tmp_path / "x")[kind]
    with pytest.raises(InputNotFoundError, match="neither a file nor a folder"):
        pull_records(RecordsConfig(inputs=(str(path),)), tmp_path / "cache")
    with pytest.raises(InputNotFoundError, match="a pipe or a device"):
        read_toml(path)
    home = tmp_path / "s"
    part_of(home).write_bytes(gzip.compress(ONE))
    path.rename(part_of(home, "part_0001.gz"))
    config = SnapshotConfig(folder=str(home), allow_missing_manifest=True, n_workers=1)
    with pytest.raises(InputNotFoundError, match="a pipe, a device or a folder"):
        ingest_snapshot(config, tmp_path / "out")
    works = part_of(home).parent.parent
    part_of(home, "part_0001.gz").rename(works / "deleted_ids.csv.gz")
    with pytest.raises(InputNotFoundError, match=r"list of deleted works .* a pipe or a device"):
        ingest_snapshot(config, tmp_path / "out")
    (works / "deleted_ids.csv.gz").rename(works / "manifest.json")
    with pytest.raises(InputNotFoundError, match=r"the manifest .* a pipe or a device"):
        ingest_snapshot(config, tmp_path / "out")
    (works / "manifest.json").rename(works / "sciscinet_papers.parquet")
    with pytest.raises(InputNotFoundError, match="a pipe or a device"):
        scan_sciscinet(SciSciNetConfig(folder=str(works)))
    (works / "sciscinet_papers.parquet").rename(tmp_path / "manifest.json")
    with pytest.raises(InputNotFoundError, match="a pipe or a device"):
        read_manifest(tmp_path)


def test_files_that_are_read_whole_are_not_read_beyond_a_limit_or_any_depth(tmp_path):
    deep = "[" * 200_000
    settings_file = tmp_path / "slice.toml"
    settings_file.write_text("a = " + deep)
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_toml(settings_file)
    settings_file.write_bytes(b"#" * (2 * MB))
    with pytest.raises(InputNotFoundError, match="more than 1,048,576 bytes"):
        read_toml(settings_file)
    (tmp_path / "manifest.json").write_text(deep)
    with pytest.raises(VerificationError, match="nested too deep"):
        read_manifest(tmp_path)
    part_of(tmp_path / "s").write_bytes(gzip.compress(ONE))
    manifest = part_of(tmp_path / "s").parent.parent / "manifest.json"
    manifest.write_text(deep)
    config = SnapshotConfig(folder=str(tmp_path / "s"), n_workers=1)
    with pytest.raises(InputNotFoundError, match="is no manifest of works"):
        ingest_snapshot(config, tmp_path / "out")
    with manifest.open("wb") as file:
        file.truncate(5_000 * MB)  # a hole, which takes no room
    for read in (lambda: ingest_snapshot(config, tmp_path / "out"), lambda: read_manifest(manifest.parent)):
        with pytest.raises(InputNotFoundError, match="more than 67,108,864 bytes"):
            read()


class _Endless(BaseHTTPRequestHandler):
    """Answers of any size: what follows the headers is up to ``server.body``."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.n_requests += 1
        self.send_response(200)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        chunked = "Transfer-Encoding" in self.server.headers
        try:
            for block in self.server.body():
                self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block) if chunked else block)
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.server.was_cut_off = True
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hostile_server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endless)
    server.headers, server.body, server.n_requests, server.was_cut_off = {}, lambda: [], 0, False
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


CHUNKED = {"Transfer-Encoding": "chunked"}
BOMB = gzipped(bytes(MB), 20)
ENDLESS = {
    "an answer without end": (CHUNKED, lambda: repeat(b" " * 65_536)),
    "an answer of gigabytes": ({"Content-Length": str(1 << 40)}, lambda: repeat(b"[" * 65_536)),
    "gzip that expands": ({"Content-Length": str(len(BOMB)), "Content-Encoding": "gzip"}, lambda: [BOMB]),
    "gzip members without end": ({**CHUNKED, "Content-Encoding": "gzip"}, lambda: repeat(BOMB)),
}


@pytest.mark.parametrize(("headers", "body"), ENDLESS.values(), ids=ENDLESS)
def test_an_answer_that_is_too_large_is_cut_off_with_one_clear_error(tmp_path, hostile_server, headers, body):
    hostile_server.headers, hostile_server.body = headers, body
    config = ApiConfig(base_url=f"http://127.0.0.1:{hostile_server.server_port}", max_answer_mb=2)
    with (
        ResponseStore(tmp_path) as store,
        OpenAlexClient(config, store) as client,
        pytest.raises(ApiError, match=r"answer to /works has more than 2 MB.*ApiConfig.max_answer_mb"),
    ):
        client.fetch(works_request(filter="cites:W1"))
    assert hostile_server.n_requests == 1  # asked again it would be as large


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "deflate"])
def test_an_answer_compressed_in_a_way_that_was_not_asked_for_is_not_read(tmp_path, hostile_server, encoding):
    hostile_server.headers = {**CHUNKED, "Content-Encoding": encoding}
    hostile_server.body = lambda: [zstandarded(bytes(MB), 100)]
    config = ApiConfig(base_url=f"http://127.0.0.1:{hostile_server.server_port}", max_attempts=2)
    with (
        ResponseStore(tmp_path) as store,
        OpenAlexClient(config, store, sleep=lambda _: None) as client,
        pytest.raises(ApiError, match="which was not requested"),
    ):
        client.fetch(works_request(1))


def test_an_answer_compressed_as_asked_for_is_read(tmp_path, hostile_server):
    body = gzip.compress(b'{"id": "https://openalex.org/W1"}')
    hostile_server.headers = {"Content-Length": str(len(body)), "Content-Encoding": "gzip"}
    hostile_server.body = lambda: [body]
    config = ApiConfig(base_url=f"http://127.0.0.1:{hostile_server.server_port}")
    with ResponseStore(tmp_path) as store, OpenAlexClient(config, store) as client:
        assert client.fetch(works_request(1)) == {"id": "https://openalex.org/W1"}


def test_a_kept_answer_that_claims_another_size_is_not_decompressed(tmp_path):
    with ResponseStore(tmp_path) as store:
        store.put("/works/W1", b'{"id": 1}', cost_usd=0)
    claims = b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\x00\x00"
    database = sqlite3.connect(tmp_path / FILE_NAME)
    for n_bytes in (9, 1 << 40):
        database.execute("UPDATE blobs SET body = ?, n_bytes = ?", (claims, n_bytes))
        database.commit()
        with ResponseStore(tmp_path) as store, pytest.raises(StorageError, match=r"is damaged \(/works/W1"):
            store.get("/works/W1")
    database.close()


@pytest.mark.parametrize("extra", ["", '"a\\ud800": [0], '], ids=["by the loop", "exactly"])
def test_an_abstract_that_would_be_the_square_of_its_index_is_null(extra):
    def index(n: int) -> str:
        return "{" + extra + json.dumps({"x" * n: list(range(n))})[1:]

    small, bomb = index(200), index(60_000)  # 40 KB of text, and 3.6 GB
    found = decode_inverted_indexes(pl.Series([small, bomb, small]))
    assert (found[1], found[2]) == (None, found[0])
    assert found[0].split().count("x" * 200) == 200


def test_an_index_that_is_no_abstract_by_its_size_is_null():
    long = "{" + '"w":[0],' * 2_200_000 + '"a":[1]}'
    assert len(long) > 16 * MB
    assert decode_inverted_indexes(pl.Series([long, None, '{"a":[0]}'])).to_list() == [None, None, "a"]


def test_an_export_with_a_line_of_any_size_is_not_read_further(tmp_path, monkeypatch):
    monkeypatch.setattr(labelled, "_LINE_BYTES", MB)
    row, stated = b'{"disruption_label":"disruptive","novelty_label":null}', {"disruption_label": {"disruptive": 1}}
    path = tmp_path / "labelled.jsonl"
    path.write_bytes(row + b"\n")
    assert labelled._count(path, stated) == {"rows": 1, "classes": stated}
    for end in (b"\0" * MB, b'{"a":' + b"[" * 200_000):
        path.write_bytes(row + b"\n" + end)
        with path.open("r+b") as file:
            file.truncate(5_000 * MB)  # a hole, which takes no room
        tracemalloc.start()
        try:
            assert labelled._count(path, stated) == {"rows": None, "classes": None}
            assert tracemalloc.get_traced_memory()[1] < 4 * MB
        finally:
            tracemalloc.stop()
