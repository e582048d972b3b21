"""The client: answer a request from the store, or from the network at a pace, within a budget, with retries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import msgspec

from sciscidata._support.parallel import StoppedError, map_in_order
from sciscidata.errors import OfflineError
from sciscidata.openalex_api.answer_checks import compare_pages, other_pages
from sciscidata.openalex_api.answers import TryAgainError, how_to_get_a_key, read_answer, without_timing
from sciscidata.openalex_api.config import BASE_URL, ApiConfig
from sciscidata.openalex_api.request import shown, works_request
from sciscidata.openalex_api.retries_and_limits import Bill, Pacer, ask_until_answered
from sciscidata.openalex_api.store import ResponseStore, StoreSummary

if TYPE_CHECKING:
    from sciscidata.openalex_api.http import Connection

__all__ = ["ApiConfig", "Check", "OpenAlexClient", "works_request"]

#: Checks the answer to a request, a JSON object of any shape: returns what is wrong, or None. Must not raise.
Check = Callable[[str, dict[str, Any]], str | None]

_log = logging.getLogger(__name__)


class OpenAlexClient:
    """A client of the OpenAlex API that pays for each answer once: it is stored before it is returned.

    The next run with the same store continues one that ended early. Passing errors are retried after growing waits: too
    many requests, HTTP 5xx, lost connections, broken JSON, answers that fail their check. Threads may share a client;
    equal simultaneous requests become one call. The owner of ``store`` closes it.
    """

    def __init__(
        self,
        config: ApiConfig,
        store: ResponseStore,
        *,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.config = config
        self._store = store
        # Answers of another server are kept apart.
        self._prefix = "" if config.server == BASE_URL else f"{config.server} "
        self._connection = None if config.offline else _connect(config)
        self._pacer = Pacer(config.rate, time.monotonic)
        self._bill = Bill(config.max_cost_usd)
        self._sleep = sleep
        self._turn = threading.Condition()
        self._in_flight: set[str] = set()
        self._answered: set[str] = set()
        self._told_about_keys = False
        self._was_reached = False

    @property
    def cost_usd(self) -> float:
        """Dollars spent by this client: as stated by the answers, else by the price list."""
        return self._bill.cost_usd

    @property
    def remaining_usd(self) -> float | None:
        """Rest of today's budget in dollars, as OpenAlex last stated it; None if it never did."""
        return self._bill.remaining_usd

    @property
    def n_calls(self) -> int:
        """Calls over the network, including failed ones."""
        return self._bill.n_calls

    def watch(self, callback: Callable[[float], None] | None) -> None:
        """Call ``callback`` with ``cost_usd`` after every call, one at a time. It must be quick and must not raise."""
        self._bill.watch(callback)

    def summary(self) -> StoreSummary:
        """Sum up the answers that this client returned; equal for a resumed and for an offline run."""
        return self._store.summary(self._answered)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the store stays open."""
        if self._connection:
            self._connection.close()

    def fetch(self, request: str, check: Check | None = None) -> dict[str, Any]:
        """Return the answer to one request, a JSON object.

        An answer that fails ``check`` is requested again, and not stored; a stored one is replaced. Offline, a store
        without a good answer is an OfflineError. DailyBudgetError and CostLimitError are a clean stop: every paid
        answer is stored. An ApiError means that OpenAlex refused the request, or kept failing.
        """
        content = self._answer(request, check, threading.Event())
        self._answered.add(self._prefix + request)
        return content

    def fetch_all(
        self, requests: Iterable[str], check: Check | None = None, *, n_listed: int = 0
    ) -> Generator[dict[str, Any]]:
        """Yield the answers in the order of the requests, as :meth:`fetch` does, with several calls at a time.

        A list of up to ``n_listed`` works is one answer, of all its pages. Pages that contradict each other are all
        requested again: the index may have changed between them.

        Requests are taken as needed, two per thread ahead. Running calls end and are stored, also when one fails (its
        error comes in its turn) or the caller stops early.
        """
        stop = threading.Event()

        def answer(request: str) -> tuple[str, dict[str, Any]]:
            return request, self._answer_in_full(request, check, stop, n_listed)

        with closing(map_in_order(answer, requests, self.config.concurrency, stop=stop)) as answers:
            for request, content in answers:
                # Note it here and not on arrival: an answer requested ahead and never used is no part of the result.
                for page in (request, *(other_pages(request, content, n_listed) if n_listed else ())):
                    self._answered.add(self._prefix + page)
                yield content

    def _answer_in_full(
        self, request: str, check: Check | None, stop: threading.Event, n_listed: int
    ) -> dict[str, Any]:
        def attempt() -> dict[str, Any]:
            first = self._answer(request, check, stop)
            asked, pages = [request], [first]
            for other in other_pages(request, first, n_listed) if n_listed else ():
                pages.append(self._answer(other, check, stop))
                asked.append(other)
                problem = compare_pages(pages)
                if problem is not None:
                    self._distrust(asked, problem)
                    raise TryAgainError(f"the answer is wrong: {problem}")
            return (
                first | {"results": [work for page in pages for work in page["results"]]} if len(pages) > 1 else first
            )

        with self._claimed(f"pages of {request}"):
            return self._keep_asking(attempt, request, stop)

    def _answer(self, request: str, check: Check | None, stop: threading.Event) -> dict[str, Any]:
        with self._claimed(request):
            body = self._store.get(self._prefix + request)
            if body is not None:
                content = msgspec.json.decode(body)
                problem = check(request, content) if check else None
                if problem is None:
                    return content
                self._distrust([request], problem)
            if self._connection is None:
                raise OfflineError(
                    f"The store has no answer to {shown(request)}. Run once with ApiConfig.offline=False."
                )
            return self._ask_the_network(self._connection, request, check, stop)

    def _distrust(self, requests: Sequence[str], problem: str) -> None:
        """Remove stored answers that are wrong, so that they are requested again."""
        if self._connection is None:
            raise OfflineError(
                f"The stored answer to {shown(requests[-1])} is wrong: {problem}. Run once with "
                "ApiConfig.offline=False."
            )
        self._store.remove([self._prefix + request for request in requests])

    @contextmanager
    def _claimed(self, key: str) -> Generator[None]:
        """Let one thread at a time work on a key; the next thread finds the answer in the store."""
        with self._turn:
            self._turn.wait_for(lambda: key not in self._in_flight)
            self._in_flight.add(key)
        try:
            yield
        finally:
            with self._turn:
                self._in_flight.discard(key)
                self._turn.notify_all()

    def _ask_the_network(
        self, connection: Connection, request: str, check: Check | None, stop: threading.Event
    ) -> dict[str, Any]:
        def attempt() -> dict[str, Any]:
            self._pacer.wait(self._sleep or stop.wait)
            if stop.is_set():
                raise StoppedError
            return self._ask(connection, request, check)

        return self._keep_asking(attempt, request, stop)

    def _keep_asking(
        self, attempt: Callable[[], dict[str, Any]], request: str, stop: threading.Event
    ) -> dict[str, Any]:
        def sleep(seconds: float) -> None:
            (self._sleep or stop.wait)(seconds)

        return ask_until_answered(attempt, request, self.config, was_reached=lambda: self._was_reached, sleep=sleep)

    def _ask(self, connection: Connection, request: str, check: Check | None) -> dict[str, Any]:
        """Make one call, check the answer, and store it before anything else can fail."""
        with self._turn:
            is_news = self.config.api_key is None and not self._told_about_keys
            self._told_about_keys = True
        if is_news:
            _log.warning("no OpenAlex API key: 1,000 list calls a day instead of 10,000. %s", how_to_get_a_key())
        self._bill.reserve()
        try:
            answer = without_timing(connection.get(request))
        except BaseException as error:
            partial = error.answer if isinstance(error, TryAgainError) else None  # its head states the cost
            self._was_reached |= partial is not None
            if not (isinstance(error, TryAgainError) and error.is_lost):  # else its price stays reserved
                self._bill.settle(partial)
            raise
        self._was_reached = True
        cost = self._bill.settle(answer)
        try:
            content = read_answer(answer, request, has_key=self.config.api_key is not None, now=datetime.now(UTC))
        except TryAgainError as error:
            if error.is_too_fast:
                self._pacer.pause(min(error.wait_s, self.config.max_sleep_s))
            raise
        problem = check(request, content) if check else None
        if problem is not None:
            raise TryAgainError(f"the answer is wrong: {problem}", answer=answer)
        kept = self._store.put(self._prefix + request, answer.body, cost)
        return content if kept is answer.body else msgspec.json.decode(kept)


def _connect(config: ApiConfig) -> Connection:
    from sciscidata.openalex_api.http import Connection  # httpx takes a while to import

    return Connection(config)
