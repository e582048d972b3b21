"""A proxy in front of any HTTP server of the tests that spoils a share of the answers, and notes what was asked for."""

from __future__ import annotations

import http.client
import random
import re
import threading
from collections.abc import Callable, Sequence
from urllib.parse import unquote, urlsplit

from tests.servers.serving import Handler, Server

FAULTS = ("500", "503", "429", "no answer", "cut", "short")
_PASSED_ON = re.compile("etag$|last-modified$|content-range$|content-type$|accept-ranges$|x-amz-")


class FaultyProxy(Server):
    """Passes requests on to ``url``; of all answers, ``share`` are ``faults``.

    Attributes:
        asked: method, path without query, and range of every request.
        n_faults: how many answers were spoiled.
        decide: names a fault for an address and its query, or leaves it to chance.
    """

    def __init__(self, url: str, share: float = 0.2, faults: Sequence[str] = FAULTS) -> None:
        super().__init__(_Handler)
        self.upstream, self.share, self.faults = urlsplit(url).netloc, share, faults
        self.asked, self.n_faults = list[tuple[str, str, str | None]](), 0
        self.decide: Callable[[str], str | None] = lambda address: None
        self._random, self._lock = random.Random(5), threading.Lock()

    def draw_fault(self, address: str) -> str | None:
        with self._lock:
            fault = self.decide(address)
            if fault is None and self._random.random() < self.share:
                fault = self._random.choice(self.faults)
            self.n_faults += fault is not None
            return fault


class _Handler(Handler):
    server: FaultyProxy
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        sent = self.body()
        fault = self.server.draw_fault(self.path)
        self.server.asked.append((self.command, unquote(urlsplit(self.path).path), self.headers.get("Range")))
        if fault and fault.isdigit():
            return self.send(int(fault), headers={"Retry-After": "0"})
        if fault == "no answer":
            self.close_connection = True
            return None
        connection = http.client.HTTPConnection(self.server.upstream)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        connection.request(self.command, self.path, sent or None, headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        passed = {name: value for name, value in answer.getheaders() if _PASSED_ON.match(name.lower())}
        if fault == "short" and self.command == "GET" and answer.status == 206:
            return self.send(206, body[: len(body) // 2], passed)
        if fault == "cut":
            self.close_connection = True
            passed["Content-Length"] = str(len(body))
            body = body[: len(body) // 2]
        return self.send(answer.status, body, passed)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on
