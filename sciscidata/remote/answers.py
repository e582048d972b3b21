"""Read the body of an answer within bounds of size and time, whatever the server does; a key stays where it belongs.

``ask`` gives an answer whose headers are there, ``read_body`` its body, decoded.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import httpx

from sciscidata.errors import CorruptRecordError
from sciscidata.storage.decompression import decompress_gzip

#: A server has to send so many bytes in each span of so many seconds, and its headers within one span.
_SPAN_S: Final = 30.0
_LEAST_BYTES: Final = 30 << 10
_MOST_REDIRECTS: Final = 5
_SLOW: Final = f"comes at less than {_LEAST_BYTES / _SPAN_S / 1024:.0f} KB a second"


class AnswerError(Exception):
    """What is wrong with an answer, after the words "the answer"."""


class TooLargeError(AnswerError):
    """A body is larger than it may be."""


@contextmanager
def ask(
    url: str,
    *,
    key: Mapping[str, str],
    headers: Mapping[str, str] | None = None,
    trust_env: bool = True,
    patience_s: float | None = None,
) -> Generator[httpx.Response]:
    """Send a GET and follow redirects. The headers in ``key`` go only to the scheme, host and port of ``url``.

    ``patience_s``: how long a server may take until its headers have come, 30 seconds if None.
    """
    address = home = httpx.URL(url)
    patience_s = _SPAN_S if patience_s is None else patience_s
    with httpx.Client(timeout=patience_s, trust_env=trust_env) as client:
        for _ in range(_MOST_REDIRECTS + 1):
            own = key if origin(address) == origin(home) else {}
            sent = {"Accept-Encoding": "identity", **(headers or {}), **own}
            answer = _send(client, client.build_request("GET", address, headers=sent), patience_s)
            try:
                if not answer.has_redirect_location:
                    yield answer
                    return
                address = address.join(answer.headers["Location"])
            finally:
                answer.close()
            if address.scheme not in ("https", home.scheme):
                raise AnswerError("leads to an address that is not encrypted")
    raise AnswerError("leads from one address to the next, without end")


def origin(url: httpx.URL) -> tuple[str, str, int | None]:
    """Return scheme, host and port: where a key for an address may go."""
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def _send(client: httpx.Client, request: httpx.Request, patience_s: float) -> httpx.Response:
    """Return an answer as soon as its headers are there. httpx bounds each read, but not how many there are."""
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        client.close()

    watch = threading.Timer(patience_s, give_up)
    watch.daemon = True
    watch.start()
    try:
        return client.send(request, stream=True)
    except Exception as error:
        if is_late.is_set():
            raise AnswerError(_SLOW) from error
        raise
    finally:
        watch.cancel()


def read_body(answer: httpx.Response, most_bytes: int) -> Iterator[bytes]:
    """Give the body in pieces of at most 4 MB; an AnswerError as soon as it is too large or too slow."""
    coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    raw = _in_time(answer, most_bytes + most_bytes // 8 + (64 << 10))  # gzip of noise is a little larger
    if coding not in ("", "identity", "gzip"):
        raise AnswerError(f"is packed as {coding[:40]!r}, which was not asked for")
    n_bytes = 0
    try:
        for piece in decompress_gzip(raw) if coding == "gzip" else raw:
            n_bytes += len(piece)
            if n_bytes > most_bytes:
                raise _too_large(most_bytes)
            yield piece
    except CorruptRecordError as error:
        raise AnswerError(f"is damaged ({error})") from error


def _in_time(answer: httpx.Response, most_bytes: int) -> Iterator[bytes]:
    """Give what arrives. A thread watches it: a head of a piece that drips is no piece yet."""
    n_bytes, is_over, is_late = 0, threading.Event(), threading.Event()

    def watch() -> None:
        n_before = 0
        while not is_over.wait(_SPAN_S):
            if n_bytes - n_before < _LEAST_BYTES:
                is_late.set()
                answer.extensions["network_stream"].close()
                return
            n_before = n_bytes

    threading.Thread(target=watch, daemon=True).start()
    try:
        for piece in answer.iter_raw():
            n_bytes += len(piece)
            if n_bytes > most_bytes:
                raise _too_large(most_bytes)
            yield piece
    except httpx.HTTPError as error:
        if is_late.is_set():
            raise AnswerError(_SLOW) from error
        raise
    finally:
        is_over.set()


def _too_large(most_bytes: int) -> TooLargeError:
    return TooLargeError(f"is larger than {most_bytes:,} bytes")
