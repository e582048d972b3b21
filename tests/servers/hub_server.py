"""The Hugging Face Hub on this machine, as far as a release needs it, with faults at will.

Written after huggingface_hub 1.33 (what it asks and reads). Large files go through Git LFS; the hub's other protocol,
Xet, is not here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.servers.serving import Handler, Server

FAULTS = ("503", "429", "cut before", "cut after")


class HubServer(Server):
    """The hub. ``faults`` is the share of requests that fail; ``token`` is asked for what writes.

    ``stop_at`` answers no more once so many files have arrived: whoever waits then can be killed.
    """

    def __init__(self, token: str, faults: float = 0.0, stop_at: int | None = None) -> None:
        super().__init__(_Handler)
        self.token, self.faults, self.stop_at = token, faults, stop_at
        self.stopped, self.lock = threading.Event(), threading.RLock()
        self.requests: list[str] = []
        self.injected: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self.random = random.Random(7)
        self.stored: dict[str, bytes] = {}  # of LFS, by SHA-256
        self.commits: list[tuple[str, dict[str, bytes]]] = []
        self.repositories: set[str] = set()
        self.arrived: list[str] = []  # what was uploaded or fetched, in this order
        self.n_busy = 0  # so many requests are answered by 429 and Retry-After: 1
        self.keys: list[str | None] = []  # of all requests
        # What a hostile hub does: another commit, another address for all it gives out.
        self.sha: object = None
        self.leads_to = ""
        self.gives: dict[str, Callable[[_Handler], None]] = {}  # how it answers what ends so
        self.checks_at = ""  # where it says that an upload is to be checked


class _Handler(Handler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def _run(self) -> None:
        body = self.body()
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        here = self.server
        with here.lock:
            if here.stop_at is not None and len(here.arrived) >= here.stop_at:
                return self._stall()
            here.requests.append(f"{self.command} {self.path}")
            here.keys.append(self.headers.get("Authorization"))
            give = next((give for end, give in here.gives.items() if self.path.endswith(end)), None)
        if give is not None:
            self.close_connection = True
            with suppress(OSError):  # the client has had enough
                give(self)
            return None
        with here.lock:
            if here.leads_to and self.command in ("GET", "HEAD"):
                return self.send(307, b"", {"Location": here.leads_to + self.path})
            if here.n_busy:
                here.n_busy -= 1
                return self.send(429, b"busy", {"Retry-After": "1"})
            fault = here.random.choice(FAULTS) if here.random.random() < here.faults else ""
            if fault:
                here.injected[fault] += 1
            if fault in ("503", "429"):
                return self.send(int(fault), b"busy", {"Retry-After": "0"})
            if fault == "cut before":
                return self._cut()
            answer = self._answer(unquote(urlsplit(self.path).path), body)
            if fault == "cut after":
                return self._cut()
            if here.stop_at is not None and len(here.arrived) >= here.stop_at:
                return self._stall()
        return self.send(*answer)

    do_GET = do_HEAD = do_POST = do_PUT = _run

    def _stall(self) -> None:
        """Hold the lock, and so every other request, until whoever waits has been killed."""
        self.server.stopped.set()
        while self.server.stop_at is not None:
            time.sleep(0.01)
        self._cut()

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(2)

    def _answer(self, path: str, body: bytes) -> tuple[Any, ...]:
        is_known = self.headers.get("Authorization") == f"Bearer {self.server.token}"
        if self.command in ("POST", "PUT") and not path.startswith("/lfs/") and not is_known:
            return 401, {"error": f"bad token {self.headers.get('Authorization')}"}
        here = self.server
        if path == "/api/repos/create":
            facts = json.loads(body)
            name = f"{facts['organization']}/{facts['name']}"
            is_new = name not in here.repositories
            here.repositories.add(name)
            return (200 if is_new else 409), {"url": f"{here.url}/datasets/{name}", "name": name, "id": name}
        if path in ("/api/validate-yaml", "/checked"):
            return 200, {"errors": [], "warnings": []}
        if found := re.fullmatch(r"/api/datasets/ada/slices/preupload/main", path):
            files = json.loads(body)["files"]
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".parquet") else "regular",
                    "shouldIgnore": False,
                    "oid": self._oid(file["path"]),
                }
                for file in files
            ]
            return 200, {"files": modes}
        if path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{here.url}/lfs/{one['oid']}"}} | self._check()}
                if one["oid"] not in here.stored
                else one
                for one in json.loads(body)["objects"]
            ]
            return 200, {"transfer": "basic", "objects": objects}
        if path.startswith("/lfs/"):
            oid = path.removeprefix("/lfs/")
            assert hashlib.sha256(body).hexdigest() == oid
            here.stored[oid] = body
            here.arrived.append(oid)
            return 200, b""
        if path == "/api/datasets/ada/slices/commit/main":
            files = dict(here.commits[-1][1]) if here.commits else {}
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
                elif entry["key"] == "lfsFile":
                    files[entry["value"]["path"]] = here.stored[entry["value"]["oid"]]
            sha = hashlib.sha1(body, usedforsecurity=False).hexdigest()
            here.commits.append((sha, files))
            return 200, {"success": True, "commitUrl": f"{here.url}/c/{sha}", "commitOid": sha, "hookOutput": ""}
        if found := re.fullmatch(r"/api/datasets/ada/slices(?:/revision/(\S+))?", path):
            commit = self._find(found[1])
            if commit is None:
                return 404, {"error": "Revision Not Found"}, {"X-Error-Code": "RevisionNotFound"}
            siblings = [{"rfilename": name} for name in commit[1]]
            sha = here.sha or commit[0]
            return 200, {"id": "ada/slices", "sha": sha, "siblings": siblings, "tags": [], "private": False}
        if found := re.fullmatch(r"/datasets/ada/slices/resolve/([^/]+)/(.+)", path):
            commit = self._find(found[1]) or (here.sha and here.commits[-1])
            if not commit or found[2] not in commit[1]:
                return 404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"}
            content = commit[1][found[2]]
            if self.command == "GET":
                here.arrived.append(found[2])
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            start = int((self.headers.get("Range") or "bytes=0-")[6:].partition("-")[0])
            return (206 if start else 200), content[start:], {"ETag": etag, "X-Repo-Commit": commit[0]}
        return 404, {"error": f"nothing at {path}"}, {"X-Error-Code": "RepoNotFound"}

    def _check(self) -> dict[str, Any]:
        return {"verify": {"href": f"{self.server.checks_at}/checked"}} if self.server.checks_at else {}

    def _find(self, revision: str | None) -> tuple[str, dict[str, bytes]] | None:
        if revision in (None, "main"):
            return self.server.commits[-1] if self.server.commits else None
        return next((commit for commit in self.server.commits if commit[0] == revision), None)

    def _oid(self, path: str) -> str | None:
        """The id by which Git knows the present content, so that unchanged files are not committed again."""
        content = self.server.commits[-1][1].get(path) if self.server.commits else None
        if content is None:
            return None
        if path.endswith(".parquet"):
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()
