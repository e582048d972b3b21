"""The HTTP around the answers: connections, bytes, and one log entry per exchange."""

from __future__ import annotations

import dataclasses
import logging
import socket
import struct
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.servers.openalex.answers import HTML, Answer
from tests.servers.openalex.gate import KEY_NAMES

logger = logging.getLogger(__name__)

Params = list[tuple[str, str]]

#: The edge's limit on the request line, counted after it has written each | as %7C.
MAX_REQUEST_LINE = 8_190


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogEntry:
    """One exchange. ``request`` is the same for the same question: sorted parameters, no key, no e-mail address."""

    time: float
    method: str
    target: str  # path and query as they came, without the key
    request: str
    status: int
    fault: str | None
    credits: int
    served_bytes: int

    @property
    def delivered(self) -> bool:
        """Whether the client got a whole and true answer."""
        return self.status == 200 and self.fault in (None, "slow")


class Loopback(Protocol):
    """What stands behind the connections."""

    def clock(self) -> float:
        """Seconds since the epoch."""
        ...

    def respond(
        self, path: str, params: Params, headers: Mapping[str, str], request: str
    ) -> tuple[Answer, str | None, int]:
        """The answer to a GET, the fault dealt to it, and its price."""
        ...

    def record(self, entry: LogEntry) -> None:
        """Keep a log entry."""
        ...


class HttpServer(ThreadingHTTPServer):
    """Threads per connection, and a way to end connections that clients keep open."""

    daemon_threads = False  # so that closing waits for them
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], loopback: Loopback) -> None:
        self.loopback = loopback
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        with self._open_lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    logger.debug("a client was quicker to hang up")

    def handle_error(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        logger.debug("connection from %s ended by its client", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "loopback-openalex", ""
    disable_nagle_algorithm = True
    wbufsize = 1 << 16  # headers and body leave in one piece
    server: HttpServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        params = parse_qsl(parts.query, keep_blank_values=True)
        request = _canonical(self.command, parts.path, params)
        line = len(self.requestline) + 2 * self.requestline.count("|")
        if line > MAX_REQUEST_LINE:
            message = f"Request Line is too large ({line} > {MAX_REQUEST_LINE})"
            payload = {"error": "Bad Request", "error_source": "edge", "message": message}
            self._finish(request, Answer(400, payload, headers={"x-openalex-edge-reject": "1"}))
        else:
            self._finish(request, *self.server.loopback.respond(parts.path, params, self.headers, request))

    def _other_method(self) -> None:
        """OpenAlex takes queries by POST too (alpha); this server does not."""
        length = self.headers.get("Content-Length", "0")
        self.rfile.read(int(length) if length.isdigit() else 0)
        request = f"{self.command} {urlsplit(self.path).path}"
        self._finish(request, Answer(405, "Method Not Allowed", content_type=HTML))

    do_POST = do_PUT = do_DELETE = do_PATCH = _other_method

    def _finish(self, request: str, answer: Answer, fault: str | None = None, credits: int = 0) -> None:
        """Log, then send: a client that has its answer finds it in the log."""
        body = answer.body()
        sent = body[: len(body) // 2] if fault in ("reset", "truncated") else body
        loopback = self.server.loopback
        entry = LogEntry(
            time=loopback.clock(),
            method=self.command,
            target=_without_key(self.path),
            request=request,
            status=answer.status,
            fault=fault,
            credits=credits,
            served_bytes=len(sent),
        )
        loopback.record(entry)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(body if fault == "reset" else sent)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)
        self.wfile.flush()
        if fault == "reset":
            self._reset()

    def _reset(self) -> None:
        """Close so that the peer sees a reset, not an end: drop what is unsent, and send RST instead of FIN."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.close(self.connection.detach())

    def log_message(self, format: str, *args: object) -> None:
        """Silence the access log on stderr; there is a better one."""


def _without_key(target: str) -> str:
    path, _, query = target.partition("?")
    kept = [part for part in query.split("&") if part and unquote(part.partition("=")[0]) not in KEY_NAMES]
    return path + ("?" + "&".join(kept) if kept else "")


def _canonical(method: str, path: str, params: Params) -> str:
    kept = sorted((name.replace("-", "_"), value) for name, value in params if name not in (*KEY_NAMES, "mailto"))
    return f"{method} {path}?" + "&".join(f"{name}={value}" for name, value in kept)
