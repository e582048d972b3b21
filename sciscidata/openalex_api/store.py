"""The SQLite store of answers: a run is a pure function of this store and its configuration."""

from __future__ import annotations

import hashlib
import math
import sqlite3
import threading
import time
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import zstandard

from sciscidata.errors import StorageError
from sciscidata.openalex_api.config import MOST_ANSWER_BYTES
from sciscidata.storage import refuse_link, storage_error

FILE_NAME: Final = "responses.sqlite"
#: Raised when another version would misread the store.
FORMAT_VERSION: Final = 3

_LEVEL = 9  # JSON shrinks about tenfold at any level, and compression is fast beside the network
_WAIT_FOR_OTHERS_S = 30.0
_TABLES = """
CREATE TABLE IF NOT EXISTS blobs (
    sha256 TEXT PRIMARY KEY,
    n_bytes INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS requests (
    key TEXT PRIMARY KEY,
    sha256 TEXT NOT NULL REFERENCES blobs,
    cost_usd REAL NOT NULL,
    fetched_on TEXT NOT NULL,
    checksum TEXT NOT NULL
);
"""
_ROWS = "SELECT key, sha256, cost_usd, fetched_on, checksum, n_bytes, body FROM requests LEFT JOIN blobs USING (sha256)"


class StoreSummary(NamedTuple):
    """The sum of a set of answers, whatever their order."""

    n_requests: int
    n_bytes: int  # every distinct answer once, uncompressed
    cost_usd: float
    first_fetched_on: str | None  # UTC, ISO 8601; None without answers
    last_fetched_on: str | None
    sha256: str  # of every request and its answer


def _code_of(error: sqlite3.Error) -> int:
    # The lowest byte is the primary code; Python sets no code when its API is misused.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


class ResponseStore:
    """Answers by request, compressed, one copy per content, in ``FOLDER/responses.sqlite``.

    Threads and processes may share a store (SQLite's write-ahead log; a writer waits up to 30 s for another). After
    kill -9 an answer is in the store whole or not at all. A power cut may lose the last answers, never the store.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._lock = threading.Lock()
        with self._explained():
            for path in (folder, *(Path(f"{self.path}{end}") for end in ("", "-wal", "-shm", "-journal"))):
                refuse_link(path)
            folder.mkdir(parents=True, exist_ok=True)
            # One connection behind one lock: answers arrive a few dozen times a second at most.
            self._database = sqlite3.connect(
                self.path, timeout=_WAIT_FOR_OTHERS_S, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise

    def _prepare(self) -> None:
        version: int = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, FORMAT_VERSION):
            raise StorageError(
                f"{self.path} has format {version}, this version reads {FORMAT_VERSION}. Update sciscidata, or set "
                "another cache_dir."
            )
        self._keep_a_log()
        self._database.execute("PRAGMA synchronous = NORMAL")
        if version == 0:
            with self._transaction("BEGIN IMMEDIATE") as database:  # another process may do the same
                for statement in f"{_TABLES} PRAGMA user_version = {FORMAT_VERSION};".split(";"):
                    database.execute(statement)

    def _keep_a_log(self) -> None:
        """Switch to a write-ahead log. SQLite does not wait where another process does so at the same moment."""
        end = time.monotonic() + _WAIT_FOR_OTHERS_S
        while True:
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if _code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.01)
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Fold the log into the file and close it; a second call does nothing."""
        with self._lock:
            self._database.close()

    def get(self, key: str) -> bytes | None:
        """Return an answer, or None if there is none; an altered one: StorageError."""
        with self._transaction() as database:
            row = database.execute(f"{_ROWS} WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        self._check_row(row)
        _, digest, _, _, _, n_bytes, blob = row
        try:
            # Zstandard reserves the size that a frame states before it reads a byte of it.
            if not 0 <= n_bytes <= MOST_ANSWER_BYTES or zstandard.frame_content_size(blob) != n_bytes:
                raise self._damaged(key, "its size is not the one on record")
            body = zstandard.ZstdDecompressor().decompress(blob)
        except (zstandard.ZstdError, TypeError, ValueError) as error:
            raise self._damaged(key, str(error)) from error
        if _sha256(body) != digest:
            raise self._damaged(key, "its checksum differs")
        return body

    def put(self, key: str, body: bytes, cost_usd: float) -> bytes:
        """Store an answer, and return the stored one: the first to a request stays, so that every run sees the same."""
        digest = _sha256(body)
        compressed = zstandard.ZstdCompressor(level=_LEVEL).compress(body)
        today = datetime.now(UTC).date().isoformat()
        with self._transaction("BEGIN IMMEDIATE") as database:
            is_kept = database.execute(
                "INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?, ?)",
                (key, digest, cost_usd, today, _checksum_of(key, digest, cost_usd, today, len(body))),
            ).rowcount
            if is_kept:
                database.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?, ?)", (digest, len(body), compressed))
        return body if is_kept else (self.get(key) or body)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove answers, so that the next ones to these requests are stored."""
        with self._transaction("BEGIN IMMEDIATE") as database:
            for key in keys:
                database.execute("DELETE FROM requests WHERE key = ?", (key,))
            database.execute("DELETE FROM blobs WHERE sha256 NOT IN (SELECT sha256 FROM requests)")

    def summary(self, keys: Collection[str] | None = None) -> StoreSummary:
        """Sum up the answers to ``keys`` (all must be there), or all; an altered one: StorageError."""
        with self._transaction() as database:
            rows = database.execute(_ROWS.replace(", body", "")).fetchall()
        wanted = None if keys is None else frozenset(keys)
        for row in rows:  # all of them, because an altered key looks like one that is not wanted
            self._check_row(row)
        rows = sorted(row for row in rows if wanted is None or row[0] in wanted)
        if wanted is not None and [row[0] for row in rows] != sorted(wanted):
            raise self._damaged("requests of this run", "they are missing or repeated")
        dates = [row[3] for row in rows]
        lines = "".join(f"{key}\n{digest}\n" for key, digest, *_ in rows)
        return StoreSummary(
            n_requests=len(rows),
            n_bytes=sum({row[1]: row[5] for row in rows}.values()),
            cost_usd=math.fsum(row[2] for row in rows),
            first_fetched_on=min(dates, default=None),
            last_fetched_on=max(dates, default=None),
            sha256=_sha256(lines.encode()),
        )

    def _check_row(self, row: Sequence[Any]) -> None:
        """Refuse a request that was altered or has no answer; ``get`` checks the answer's content."""
        key, digest, cost_usd, fetched_on, checksum, n_bytes = row[:6]
        try:
            is_whole = _checksum_of(key, digest, cost_usd, fetched_on, n_bytes) == checksum
        except (TypeError, ValueError):
            is_whole = False
        if not is_whole:
            raise self._damaged(str(key), "its checksum differs")

    @contextmanager
    def _transaction(self, begin: str = "BEGIN") -> Generator[sqlite3.Connection]:
        with self._lock, self._explained():
            self._database.execute(begin)
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Generator[None]:
        """Turn errors of SQLite and of the disk into a StorageError with a remedy."""
        try:
            yield
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise storage_error(error, self.path) from error
        except sqlite3.Error as error:
            code = _code_of(error)
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise self._damaged("its tables", str(error)) from error
            remedy = "Check the disk, or set another cache_dir."
            if code == sqlite3.SQLITE_FULL:
                remedy = "Free some disk space, or set a cache_dir on a larger disk, and run again."
            elif code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                remedy = "Wait until the other process has written, and run again."
            elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                remedy = "Correct its permissions, or set another cache_dir."
            raise StorageError(f"Cannot use the response store {self.path}: {error}. {remedy}") from error

    def _damaged(self, what: str, reason: str) -> StorageError:
        return StorageError(
            f"The response store {self.path} is damaged ({what}: {reason}). Restore a copy, or repair it with "
            f"'sqlite3 {FILE_NAME} .recover'. If you move it away, its answers are requested and paid for again."
        )


def _checksum_of(key: str, digest: str, cost_usd: float, fetched_on: str, n_bytes: int) -> str:
    return _sha256("\n".join([key, digest, float(cost_usd).hex(), fetched_on, f"{n_bytes:d}"]).encode())


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
