"""Servers of the standard library on this machine, in a thread of the tests."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


def choose_port() -> int:
    """Return a free port that no other program is given meanwhile: systems hand out ports above these only."""
    while True:
        port = random.SystemRandom().randrange(15_000, 30_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class Server(ThreadingHTTPServer):
    """A server on ``port``; 0 takes a free one. It serves until its ``with`` block ends."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that a client drops."""


class Handler(BaseHTTPRequestHandler):
    """Reads and answers whole bodies. A connection ends with its answer, but where a handler speaks HTTP/1.1."""

    def log_message(self, *_: object) -> None: ...

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def send(self, status: int, content: Any = b"", headers: Mapping[str, str] | None = None) -> None:
        """Answer with bytes, with text, or with anything else as JSON."""
        text = content if isinstance(content, (str, bytes)) else json.dumps(content)
        data = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
