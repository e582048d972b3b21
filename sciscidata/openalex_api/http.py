"""One HTTP exchange with OpenAlex: the key in a header only, redirects on the same host only, and a deadline."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Final

import httpx

from sciscidata.errors import ApiError, ConfigError, CorruptRecordError
from sciscidata.openalex_api.answers import Answer, TryAgainError
from sciscidata.openalex_api.config import ApiConfig, is_loopback
from sciscidata.storage.decompression import decompress_gzip

_MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
#: Errors before anything was sent, so that the server cannot have charged for the call.
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
#: Variables of the environment that httpx and OpenSSL read.
_VARIABLES: Final = frozenset({*_PROXIES, "ssl_cert_file", "ssl_cert_dir", "sslkeylogfile"})
_SHORTEST_SECRET: Final = 12  # OpenAlex's keys have 22 letters; a shorter word may occur by chance


class Connection:
    """Open connections for the threads of a client, at most one per thread.

    HTTP/1.1, because httpx's synchronous HTTP/2 mixes up streams of several threads
    (github.com/encode/httpx/issues/3324), and a lost answer is paid for twice.
    """

    def __init__(self, config: ApiConfig, clock: Callable[[], float] = time.monotonic) -> None:
        # They log URLs with the e-mail address at INFO, and headers with the key at DEBUG.
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._config = config
        self._clock = clock
        self._base = httpx.URL(config.base_url)
        agent = f"sciscidata/{version('sciscidata')}{f' (mailto:{config.email})' if config.email else ''}"
        # gzip only: other encodings are decoded by httpx, without a limit of memory.
        headers = {"User-Agent": agent, "Accept": "application/json", "Accept-Encoding": "gzip"}
        if config.api_key:
            headers["Authorization"] = f"Bearer {config.api_key}"
        key = config.api_key or ""
        self._key = _any_spelling(key) if len(key) >= _SHORTEST_SECRET else None
        self._email = _any_spelling(config.email) if config.email else None
        n_connections = config.concurrency + 1  # the threads of a client, and the one that started them
        is_here = is_loopback(self._base.host)
        try:
            self._http = httpx.Client(
                headers=headers,
                timeout=httpx.Timeout(config.timeout_s, pool=None),
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

    def close(self) -> None:
        """Close what is open."""
        self._http.close()

    def get(self, target: str) -> Answer:
        """Request a path with its query, follow redirects on the same host, and return the whole answer.

        A TryAgainError means no connection, no answer in time, or a broken answer; it holds the cost, if that arrived.
        """
        if self._config.email:  # not part of the request's key
            target += f"{'&' if '?' in target else '?'}{httpx.QueryParams(mailto=self._config.email)}"
        url = self._base.copy_with(raw_path=self._base.raw_path.rstrip(b"/") + target.encode())
        answer = self._exchange(url)
        for _ in range(_MOST_REDIRECTS + 1):
            if answer.status not in _REDIRECTS:
                if answer.status == 200 and self._key and self._key.search(answer.body):
                    raise ApiError(
                        "OpenAlex repeated the API key in an answer, so the answer is not kept. Send another request.",
                        status=200,
                    )
                return answer._replace(body=self._masked(answer.body))  # it is stored, or quoted in a message
            url = self._next_url(url, answer)
            answer = self._exchange(url)
        raise ApiError(
            f"OpenAlex redirects {target.partition('?')[0]} in circles. Ask for another work, or try again later.",
            status=answer.status,
        )

    def _exchange(self, url: httpx.URL) -> Answer:
        deadline = self._clock() + self._config.timeout_s
        head: Answer | None = None
        try:
            with self._http.stream("GET", url) as response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                head = Answer(response.status_code, headers, b"")
                chunks: list[bytes] = []
                n_bytes = 0
                is_late = False
                for chunk in _decoded(response, head):
                    if is_late:  # httpx's own limit starts anew with every byte
                        raise TryAgainError(f"the answer took longer than {self._config.timeout_s:g} s", answer=head)
                    chunks.append(chunk)
                    n_bytes += len(chunk)
                    if n_bytes > self._config.max_answer_mb << 20:
                        raise ApiError(
                            f"OpenAlex's answer to {self._shown(url.path)} has more than "
                            f"{self._config.max_answer_mb:,} MB; the rest is not read. If you trust the server, raise "
                            "ApiConfig.max_answer_mb.",
                            status=response.status_code,
                        )
                    is_late = self._clock() > deadline
        except (httpx.HTTPError, httpx.StreamError) as error:
            msg = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            is_lost = head is None and not isinstance(error, _NEVER_SENT)
            raise TryAgainError(self._shown(msg), answer=head, is_lost=is_lost) from None  # it may quote a Location
        except UnicodeError:  # in a host's name; base_url itself was checked
            raise ApiError(
                "The name of a host is impossible: of a proxy, or of a redirect by OpenAlex. Correct HTTPS_PROXY and "
                "similar variables if they are set; if not, try again later."
            ) from None
        return head._replace(body=b"".join(chunks))

    def _next_url(self, url: httpx.URL, answer: Answer) -> httpx.URL:
        try:
            goal = url.join(answer.headers.get("location", ""))
            where = "an address with a user name in it" if goal.userinfo else _origin(goal)
        except (ValueError, httpx.InvalidURL):  # a UnicodeError, of an impossible host, is a ValueError
            goal, where = url, "an impossible address"
        if where != _origin(self._base):
            raise ApiError(
                f"OpenAlex ({_origin(self._base)}) redirects to {self._shown(where)}; the key is never sent to another "
                "scheme, host or port. If OpenAlex has moved there, set ApiConfig.base_url.",
                status=answer.status,
            )
        return goal

    def _shown(self, text: str) -> str:
        return self._masked(text.encode(errors="replace")).decode()

    def _masked(self, text: bytes) -> bytes:
        for secret in (self._key, self._email):
            text = secret.sub(b"***", text) if secret else text
        return text


def _decoded(response: httpx.Response, head: Answer) -> Iterator[bytes]:
    """Read the body, a few MB at a time however far it expands."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        yield from response.iter_raw()
        return
    if encoding not in ("gzip", "x-gzip"):
        raise TryAgainError(f"the answer is compressed as {encoding[:40]!r}, which was not requested", answer=head)
    try:
        yield from decompress_gzip(response.iter_raw())
    except CorruptRecordError as error:
        raise TryAgainError(str(error), answer=head) from error


def _origin(url: httpx.URL) -> str:
    port = "" if url.port is None else f":{url.port}"  # httpx omits a scheme's default port
    return f"{url.scheme}://{url.host}{port}"


def _any_spelling(word: str) -> re.Pattern[bytes]:
    """Match an ASCII word as it is, percent-encoded (once or more often) or escaped as in JSON."""
    spellings = (
        letter if letter.isalnum() else rf"(?:{re.escape(letter)}|(?:%(?:25)*|\\u00){ord(letter):02x})"
        for letter in word
    )
    return re.compile("".join(spellings).encode(), re.IGNORECASE)
