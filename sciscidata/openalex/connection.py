"""One HTTP exchange with OpenAlex: the key in a header and nowhere else, no redirect to strangers, a deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Final

import httpx

from sciscidata.errors import ApiError
from sciscidata.openalex.answers import Answer, TryAgainError
from sciscidata.openalex.config import ApiConfig

_MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_SHORTEST_SECRET: Final = 12  # OpenAlex's keys have 22 letters; a shorter word occurs by chance


class Connection:
    """Connections kept open, one per thread at most, to be shared by the threads of a client.

    HTTP/1.1 on purpose: httpx's synchronous HTTP/2 mixes up streams when threads share it
    (github.com/encode/httpx/issues/3324), every answer lost that way would be paid for twice, and at 25 requests
    a second one connection per thread is never the bottleneck.

    Example:
        >>> with Connection(ApiConfig(base_url="http://127.0.0.1:9", timeout_s=1)) as connection:
        ...     connection.get("/works")
        Traceback (most recent call last):
        sciscidata.openalex.answers.TryAgainError: ...
    """

    def __init__(self, config: ApiConfig, clock: Callable[[], float] = time.monotonic) -> None:
        # They log every URL, and so the e-mail address, at INFO, and headers, where a key may be, at DEBUG.
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._config = config
        self._clock = clock
        self._base = httpx.URL(config.base_url)
        headers = {"User-Agent": _user_agent(config), "Accept": "application/json"}
        if config.api_key:
            headers["Authorization"] = f"Bearer {config.api_key}"
        n_connections = config.concurrency + 1  # the threads of a client, and the one that started them
        self._http = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(config.timeout_s, pool=None),
            limits=httpx.Limits(max_connections=n_connections, max_keepalive_connections=n_connections),
            trust_env=self._base.host not in _LOOPBACK,  # a proxy has no way back to this machine
        )

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open."""
        self._http.close()

    def get(self, target: str) -> Answer:
        """Ask for a path with its query, and return the whole answer, redirects on the same host followed.

        Raises:
            TryAgainError: no connection, no answer in time, or one that broke off; ``answer`` holds its head if
                that much arrived, for what it cost.
            ApiError: a redirect to another host, or in circles, or an answer that repeats the key.
        """
        url = self._base.copy_with(raw_path=self._base.raw_path.rstrip(b"/") + self._signed(target).encode())
        answer = self._exchange(url)
        for _ in range(_MOST_REDIRECTS + 1):
            if answer.status not in _REDIRECTS:
                return self._without_key(answer)
            url = self._next_url(url, answer)
            answer = self._exchange(url)
        msg = f"OpenAlex redirects {target.partition('?')[0]} in circles. Ask for another work, or try again later."
        raise ApiError(msg, status=answer.status)

    def _exchange(self, url: httpx.URL) -> Answer:
        deadline = self._clock() + self._config.timeout_s
        head: Answer | None = None
        try:
            with self._http.stream("GET", url) as response:
                headers = {name.lower(): value for name, value in response.headers.items()}
                head = Answer(response.status_code, headers, b"")
                chunks: list[bytes] = []
                is_late = False
                for chunk in response.iter_bytes():
                    if is_late:  # and still not the end of it; httpx's own limit starts anew with every byte
                        msg = f"the answer took longer than {self._config.timeout_s:g} s"
                        raise TryAgainError(msg, answer=head)
                    chunks.append(chunk)
                    is_late = self._clock() > deadline
        except (httpx.HTTPError, httpx.StreamError) as error:
            msg = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise TryAgainError(msg, answer=head) from error
        return head._replace(body=b"".join(chunks))

    def _next_url(self, url: httpx.URL, answer: Answer) -> httpx.URL:
        try:
            goal = url.join(answer.headers.get("location", ""))
        except httpx.InvalidURL:
            goal = None
        if goal is None or _origin(goal) != _origin(self._base):
            where = goal.host if goal is not None else "an impossible address"
            msg = (
                f"OpenAlex ({self._base.host}) redirects to {where!r}; the key is never sent to another host. "
                "If that is its new address, name it as base_url."
            )
            raise ApiError(msg, status=answer.status)
        return goal

    def _signed(self, target: str) -> str:
        """Add the e-mail address; here, because it is no part of the question."""
        if not self._config.email:
            return target
        return f"{target}{'&' if '?' in target else '?'}{httpx.QueryParams(mailto=self._config.email)}"

    def _without_key(self, answer: Answer) -> Answer:
        key = (self._config.api_key or "").encode()
        if len(key) < _SHORTEST_SECRET or key not in answer.body:
            return answer
        if answer.status == 200:
            msg = "OpenAlex repeated the API key in an answer, so the answer is not kept. Ask for something else."
            raise ApiError(msg, status=200)
        return answer._replace(body=answer.body.replace(key, b"***"))


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port  # httpx leaves a scheme's own port out


def _user_agent(config: ApiConfig) -> str:
    who = f" (mailto:{config.email})" if config.email else ""
    return f"sciscidata/{version('sciscidata')}{who}"
