"""Files that mean harm: memory and time stay bounded, and one clear error says what the limit was."""

from __future__ import annotations

import gzip
import json
import os
import socket
import sqlite3
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.cli.build_options import read_toml
from sciscidata.errors import (
    ConfigError,
    CorruptRecordError,
    EmptyInputError,
    InputNotFoundError,
    StorageError,
    VerificationError,
)
from sciscidata.openalex_api.store import FILE_NAME, ResponseStore
from sciscidata.records import json_record, read_lines
from sciscidata.records.abstracts import decode_inverted_indexes
from sciscidata.records.read_lines import split_lines, whole_lines
from sciscidata.release.read import read_manifest
from sciscidata.sources import record_files, records
from sciscidata.sources.records import RecordsConfig, pull_records
from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot
from sciscidata.storage.decompression import PIECE_BYTES, decompress_gzip, decompress_zstd

MB = 1 << 20
ONE, TWO = b'{"id":"W1"}', b'{"id":"W2"}'


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
    found = [line for block in whole_lines(cut) for line in split_lines(block)]
    assert b"\n".join(found) == (text[:-1] if text.endswith(b"\n") else text)
    assert [line for line in found if line.strip()] == [line for line in lines if line.strip()]


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_a_line_that_is_too_long_is_named_and_the_rest_of_the_file_is_read(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(read_lines, "MOST_LINE_BYTES", MB)
    content = pack(ONE + b"\n\n" + b"a" * (9 * MB) + b"\n" + TWO + b"\n", 1)
    report = pull(tmp_path, content)
    assert (report["works"], report["corrupt"], report["lines"], report["empty_lines"]) == (2, 1, 4, 1)
    [problem] = report["first_corrupt_lines"]
    assert problem["line"] == 3
    assert "more than 1 MB" in problem["reason"]
    with pytest.raises(CorruptRecordError, match=r"works, line 3: the line has more than 1 MB"):
        pull(tmp_path, content, strict=True)


@pytest.mark.parametrize("pack", [gzipped, zstandarded])
def test_empty_lines_are_counted_right_and_quickly(tmp_path, pack):
    content = pack(ONE + b"\n" + b"\n" * (6 * MB) + b" \n" + TWO + b"\noops", 1)
    report = pull(tmp_path, content)
    assert (report["works"], report["empty_lines"], report["lines"]) == (2, 6 * MB + 1, 6 * MB + 4)
    assert report["first_corrupt_lines"][0]["line"] == 6 * MB + 4


def test_a_document_that_is_too_large_is_named_and_the_next_file_is_read(tmp_path, monkeypatch):
    large, small = tmp_path / "a.json", tmp_path / "b.json"
    works = [{"id": f"W{n}", "title": "x" * 1_000} for n in range(10, 2_500)]
    large.write_text(json.dumps({"results": works}, indent=1))
    small.write_text(json.dumps([{"id": "W1"}, {"id": "W2"}], indent=1))
    config = RecordsConfig(inputs=(str(large), str(small)))
    with monkeypatch.context() as patch:
        patch.setattr(record_files, "_MOST_DOCUMENT_BYTES", 2 * MB)
        report = pull_records(config, tmp_path / "cache").provenance
    assert (report["works"], report["corrupt"]) == (2, 1)
    assert report["first_corrupt_lines"][0]["line"] == 1
    assert "more than 2 MB" in report["first_corrupt_lines"][0]["reason"]
    assert pull_records(RecordsConfig(inputs=(str(large),)), tmp_path / "cache").provenance["works"] == 2_490


def test_lines_behind_a_first_one_that_was_cut_off_are_no_document(tmp_path):
    many = b"".join(b'{"id":"W%d","title":"%s"}\n' % (n, b"x" * 1_000) for n in range(10, 4_000))
    report = pull(tmp_path, b'{"id":"W3",\n' + many)
    assert (report["works"], report["corrupt"]) == (3_990, 1)


def test_a_window_of_zstandard_that_is_too_large_is_refused_with_a_remedy(tmp_path):
    frame = b"\x28\xb5\x2f\xfd" + bytes((0, (28 - 10) << 3)) + (1 | len(ONE) << 3).to_bytes(3, "little") + ONE
    with pytest.raises(EmptyInputError, match=r"window of more than 128 MB.*zstd -d --long=31"):
        pull(tmp_path, frame)


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


def test_a_line_of_a_part_that_is_too_long_is_named_and_the_rest_of_the_part_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(read_lines, "MOST_LINE_BYTES", MB)
    content = gzip.compress(ONE + b"\n" + b"a" * (9 * MB) + b"\n\n" + TWO + b"\n")
    with pytest.raises(CorruptRecordError, match=r"part_0000\.gz.*line 2: the line has more than 1 MB"):
        ingest(tmp_path, content)
    report = ingest(tmp_path, content, corrupt="skip")
    assert (report["works"], report["corrupt_lines"]) == (2, 1)


@given(st.lists(st.sampled_from([b"", b" ", b"a", b"bb", b"c" * 5, b"e" * 40]), max_size=12), st.integers(1, 9))
def test_only_lines_that_are_too_long_are_replaced(lines, size):
    text = b"\n".join(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_lines, "MOST_LINE_BYTES", 20)
        blocks = whole_lines(text[at : at + size] for at in range(0, len(text), size))
        found = b"\n".join(blocks).split(b"\n")
    right = [b"the line has more than 0 MB" if line.startswith(b"e") else line for line in lines]
    assert [line for line in found if line] == [line for line in right if line]


def test_lines_of_a_part_keep_their_numbers_behind_millions_of_empty_ones(tmp_path):
    content = gzip.compress(ONE + b"\n" + b"\n" * (9 * MB) + b"oops\n" + TWO)
    report = ingest(tmp_path, content, corrupt="skip")
    assert report["works"] == 2
    receipt = json.loads((tmp_path / "out" / "receipts" / "part-2026-06-01-0000.json").read_bytes())
    assert receipt["first_corrupt_lines"][0].startswith(f"line {9 * MB + 2:,}: not JSON")


@pytest.mark.parametrize("indent", [None, 1], ids=["a line", "a document"])
@pytest.mark.parametrize("shape", [lambda works: works, lambda works: {"results": works, "meta": 1}])
def test_what_only_python_reads_is_mended_up_to_a_size(tmp_path, shape, indent, monkeypatch):
    works = [{"id": f"W{n}", "title": "x" * n, "fwci": float("nan")} for n in range(1, 61)]
    content = json.dumps(shape(works), indent=indent).encode()
    report = pull(tmp_path, content)
    assert (report["works"], report["corrupt"]) == (60, 0)
    monkeypatch.setattr(json_record, "MOST_MENDED_BYTES", 1_000)
    reason = "not JSON" if indent else "not strict JSON, and with .* MB too long"
    with pytest.raises(EmptyInputError, match=f"line 1: .*{reason}"):
        pull(tmp_path, content + b"\n")


MEASURED = """
import re, sys
from pathlib import Path
from sciscidata.sources.records import RecordsConfig, pull_records
from sciscidata.errors import SciSciDataError
try:
    pull_records(RecordsConfig(inputs=(sys.argv[1],)), sys.argv[2])
except SciSciDataError as error:
    print(f"{type(error).__name__}: {error}")
# Unlike ru_maxrss without what the parent held when this process was forked.
print(int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("block", [b"a" * MB, b"\n" * MB], ids=["one line", "newlines"])
def test_a_gigabyte_out_of_thirty_kilobytes_takes_little_memory(tmp_path, block):
    path = tmp_path / "bomb.zst"
    one = zstandarded(block * 16, 16)  # 256 MB
    path.write_bytes(one * 4)
    assert path.stat().st_size < 40_000
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path), str(tmp_path / "cache")], capture_output=True, text=True, check=True
    )
    said, peak_mb = done.stdout.splitlines()
    assert said.startswith("EmptyInputError: no OpenAlex work")
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
    with pytest.raises(InputNotFoundError, match="no file and no folder"):
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
