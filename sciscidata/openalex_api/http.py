"""One HTTP exchange with OpenAlex: the key in a header only, no redirect, and a deadline."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import Future
from importlib.metadata import version
from typing import Any, Final

import httpx

from sciscidata.errors import ApiError, ConfigError
from sciscidata.openalex_api.answers import Answer, TryAgainError
from sciscidata.openalex_api.config import MOST_ANSWER_BYTES, ApiConfig, is_loopback

_SHORTEST_SECRET: Final = 12  # OpenAlex's keys have 22 letters; a shorter word may occur by chance
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
#: Variables of the environment that httpx and OpenSSL read.
_VARIABLES: Final = frozenset({*_PROXIES, "ssl_cert_file", "ssl_cert_dir", "sslkeylogfile"})


class Connection:
    """Open connections for the threads of a client, at most one per thread.

    One thread runs an event loop, whose deadline bounds a whole exchange: a limit of a socket starts anew at each byte.
    """

    def __init__(self, config: ApiConfig) -> None:
        # They log URLs at INFO, and headers with the key at DEBUG.
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._config = config
        self._base = httpx.URL(config.base_url)
        agent = f"sciscidata/{version('sciscidata')}{f' (mailto:{config.email})' if config.email else ''}"
        headers = {"User-Agent": agent, "Accept": "application/json", "Accept-Encoding": "gzip"}
        if config.api_key:
            headers["Authorization"] = f"Bearer {config.api_key}"
        n_connections = config.concurrency + 1  # the threads of a client, and the one that started them
        is_here = is_loopback(self._base.host)
        try:
            self._http = httpx.AsyncClient(
                headers=headers,
                timeout=None,  # of single steps; see _exchange
                limits=httpx.Limits(max_connections=n_connections, max_keepalive_connections=n_connections),
                trust_env=not is_here,  # a proxy has no way back to this machine
                verify=not (is_here and self._base.scheme == "http"),  # loading certificates takes 60 ms
            )
        except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
            named = sorted(name for name in os.environ if name.lower() in _VARIABLES)
            reason = f" ({error})" if isinstance(error, ImportError | OSError) else ""
            raise ConfigError(
                f"Cannot open a connection with {', '.join(named) or 'the proxies of this system'}: "
                f"{type(error).__name__}{reason}. Correct or unset it: a proxy is like http://host:3128, certificates "
                "are one file."
            ) from None  # its message may quote a proxy's password
        self._opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._stay_open()), daemon=True)
        self._thread.start()

    async def _stay_open(self) -> None:
        closing = asyncio.Event()
        self._opened.set_result((asyncio.get_running_loop(), closing))
        async with self._http:
            await closing.wait()

    def close(self) -> None:
        """Close what is open."""
        if self._thread.is_alive():
            loop, closing = self._opened.result()
            loop.call_soon_threadsafe(closing.set)
            self._thread.join()

    def get(self, target: str) -> Answer:
        """Request a path with its query, and return the whole answer.

        A TryAgainError means no connection, no answer in time, or a broken answer; it holds the cost, if that arrived.
        """
        loop, _ = self._opened.result()
        answer = asyncio.run_coroutine_threadsafe(self._exchange(target), loop)
        try:
            return answer.result()
        finally:
            answer.cancel()  # after an interrupt; it does nothing to one that is here

    async def _exchange(self, target: str) -> Answer:
        head: Answer | None = None
        chunks: list[bytes] = []
        n_bytes, was_sent = 0, False

        async def trace(event: str, _: dict[str, Any]) -> None:
            nonlocal was_sent
            was_sent |= event == "http11.send_request_headers.started"

        try:
            url = self._base.copy_with(raw_path=self._base.raw_path.rstrip(b"/") + target.encode())
            async with (
                asyncio.timeout(self._config.timeout_s),
                self._http.stream("GET", url, extensions={"trace": trace}) as response,
            ):
                headers = {name.lower(): value for name, value in response.headers.items()}
                head = Answer(response.status_code, headers, b"")
                async for chunk in response.aiter_bytes():
                    chunks.append(chunk)
                    n_bytes += len(chunk)
                    if n_bytes > MOST_ANSWER_BYTES:
                        raise ApiError(
                            f"OpenAlex's answer to {url.path} has more than {MOST_ANSWER_BYTES >> 20:,} MB; the rest "
                            "is not read. Check ApiConfig.base_url.",
                            status=response.status_code,
                        )
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError) as error:
            msg = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            if isinstance(error, TimeoutError):
                msg = f"the answer took longer than {self._config.timeout_s:g} s"
            reason = self._masked(msg.encode(errors="replace")).decode()
            raise TryAgainError(reason, answer=head, is_lost=was_sent and head is None) from None
        return head._replace(body=self._masked(b"".join(chunks)))  # it is stored, or quoted in a message

    def _masked(self, text: bytes) -> bytes:
        key = (self._config.api_key or "").encode()
        return text.replace(key, b"***") if len(key) >= _SHORTEST_SECRET else text
