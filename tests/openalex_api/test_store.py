"""The store keeps every answer once, whatever happens to the process, and says clearly when it cannot."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.errors import StorageError
from sciscidata.openalex_api.store import FILE_NAME, ResponseStore

answers = st.dictionaries(st.text(min_size=1, max_size=30), st.binary(max_size=200), max_size=8)

#: Between two answers midnight may pass.
UNDATED = {"first_fetched_on": None, "last_fetched_on": None}

WRITER = """
import sys
from pathlib import Path
from sciscidata.openalex_api.store import ResponseStore
name, n = sys.argv[2], int(sys.argv[3])
with ResponseStore(Path(sys.argv[1])) as store:
    for i in range(n):
        store.put(f"/works/{name}-{i}", f"{name} {i}".encode() * 50, cost_usd=0.0001)
        print(i, flush=True)
"""


@pytest.fixture
def store(tmp_path):
    with ResponseStore(tmp_path) as store:
        yield store


def start_writer(folder: Path, name: str, n: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), name, str(n)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@given(answers)
def test_what_is_put_is_there_after_reopening(bodies):
    with TemporaryDirectory() as folder:
        with ResponseStore(Path(folder)) as store:
            for key, body in bodies.items():
                assert store.put(key, body, 0.0) == body
        with ResponseStore(Path(folder)) as store:
            assert {key: store.get(key) for key in bodies} == bodies
            assert store.get("never put, and longer than thirty characters") is None


@given(answers, st.randoms(use_true_random=False))
def test_the_summary_does_not_depend_on_the_order_of_arrival(bodies, random):
    summaries = []
    for _ in range(2):
        keys = list(bodies)
        random.shuffle(keys)
        with TemporaryDirectory() as folder, ResponseStore(Path(folder)) as store:
            for key in keys:
                store.put(key, bodies[key], 0.1 * len(key))
            summaries.append(store.summary()._replace(**UNDATED))
    assert summaries[0] == summaries[1]
    assert summaries[0].n_requests == len(bodies)
    assert summaries[0].n_bytes == sum(map(len, set(bodies.values())))


def test_the_first_answer_stays(store):
    assert store.put("a", b"first", 0.0001) == b"first"
    assert store.put("a", b"second", 0.0001) == b"first"
    assert store.get("a") == b"first"
    assert store.summary().cost_usd == 0.0001


def test_a_removed_answer_leaves_nothing_and_makes_room_for_another(store):
    for key in ("a", "b", "c"):
        store.put(key, b"shared" if key < "c" else b"own", 0.1)
    store.remove(["a", "c", "never put"])
    assert [store.get(key) for key in ("a", "b", "c")] == [None, b"shared", None]
    assert (store.summary().n_requests, store.summary().n_bytes) == (1, 6)
    assert store.put("a", b"another", 0.1) == b"another"
    with sqlite3.connect(store.path) as database:
        assert database.execute("SELECT count(*) FROM blobs").fetchone() == (2,)
    database.close()


def test_a_summary_of_some_keys_is_that_of_a_store_with_only_those(store, tmp_path):
    for i in range(9):
        store.put(f"{i}", f"body {i}".encode(), 0.1)
    with ResponseStore(tmp_path / "other") as other:
        for i in (7, 2):
            other.put(f"{i}", f"body {i}".encode(), 0.1)
        found = store.summary({"2", "7"})
        assert found._replace(**UNDATED) == other.summary()._replace(**UNDATED)
    assert store.summary(()).first_fetched_on is None
    with pytest.raises(StorageError, match="are missing or repeated"):
        store.summary({"2", "not there"})


def test_threads_share_a_store(store):
    def work(name: str) -> None:
        for i in range(40):
            store.put(f"{name}{i}", f"{i}".encode(), 0.0001)
            assert store.get(f"{name}{i}") == f"{i}".encode()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, "abcdefgh"))
    assert store.summary().n_requests == 320
    assert store.summary().cost_usd == pytest.approx(0.032, abs=0)


def test_processes_share_a_store_from_its_first_moment(tmp_path):
    writers = [start_writer(tmp_path, name, 50) for name in "abcd"]
    for writer in writers:
        _, errors = writer.communicate(timeout=600)
        assert writer.returncode == 0, errors
    with ResponseStore(tmp_path) as store:
        assert store.summary().n_requests == 200


def test_a_store_that_another_process_is_making_is_waited_for(tmp_path):
    with sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None, check_same_thread=False) as other:
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.3, other.rollback).start()
        with ResponseStore(tmp_path) as store:
            store.put("a", b"1", 0)
            assert store.get("a") == b"1"


def test_a_killed_process_loses_nothing_that_it_had_put(tmp_path):
    for n_seen in (1, 7, 30):
        writer = start_writer(tmp_path / str(n_seen), "w", 100_000)
        lines = list(itertools.islice(writer.stdout, n_seen))
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.stdout.readlines()
        writer.wait()
        writer.stdout.close()
        writer.stderr.close()
        with ResponseStore(tmp_path / str(n_seen)) as store:
            n = len(lines)
            assert n >= n_seen
            assert all(store.get(f"/works/w-{i}") == f"w {i}".encode() * 50 for i in range(n))
            assert store.summary().n_requests in (n, n + 1)


def test_a_file_that_is_no_database_is_called_damaged(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(b"this is not SQLite, far from it" * 100)
    with pytest.raises(StorageError, match=r"damaged.*requested and paid for again"):
        ResponseStore(tmp_path)


def test_no_damage_goes_unnoticed(tmp_path):
    draw = random.Random(0)
    with ResponseStore(tmp_path) as store:
        for i in range(200):
            store.put(f"/works/W{i}", draw.randbytes(500), 0.0)
    path = tmp_path / FILE_NAME
    intact = path.read_bytes()
    n_noticed = 0
    for place in range(5000, len(intact), 4999):
        path.write_bytes(intact[:place] + bytes([intact[place] ^ 0x55]) + intact[place + 1 :])
        try:
            with ResponseStore(tmp_path) as store:
                n_found = sum(store.get(f"/works/W{i}") is not None for i in range(200))
            n_noticed += n_found < 200  # its key is not found any more: it is asked again
        except StorageError as error:
            assert "damaged" in str(error)  # noqa: PT017
            n_noticed += 1
    assert n_noticed > 10


def test_a_full_disk_is_named_and_earlier_answers_stay(store):
    store.put("a", b"kept", 0.0)
    (n_pages,) = store._database.execute("PRAGMA page_count").fetchone()
    store._database.execute(f"PRAGMA max_page_count = {n_pages + 2}")
    with pytest.raises(StorageError, match="Free some disk space"):
        store.put("b", os.urandom(100_000), 0.0)
    assert store.get("a") == b"kept"
    assert store.get("b") is None


def test_a_store_that_somebody_holds_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("sciscidata.openalex_api.store._WAIT_FOR_OTHERS_S", 0.05)
    with ResponseStore(tmp_path) as store:
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="other process has written"):
            store.put("a", b"", 0.0)
        other.execute("ROLLBACK")
        other.close()
        assert store.put("a", b"", 0.0) == b""


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="in the way"):
        ResponseStore(tmp_path / "file")


def test_a_store_of_a_newer_version_is_refused(tmp_path):
    ResponseStore(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StorageError, match="Update sciscidata"):
        ResponseStore(tmp_path)


@pytest.mark.parametrize(
    "change", ["cost_usd = 0.25", "fetched_on = '2026-01-02'", "key = 'b'", "cost_usd = 'x'", "sha256 = '77'"]
)
def test_an_altered_request_is_refused(tmp_path, change):
    with ResponseStore(tmp_path) as store:
        store.put("a", b"1", 0.5)
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute(f"UPDATE requests SET {change}")
    database.close()
    with ResponseStore(tmp_path) as store:
        key = "b" if "key" in change else "a"
        for ask in (lambda: store.get(key), store.summary):
            with pytest.raises(StorageError, match=rf"is damaged \({key}: its checksum differs"):
                ask()
