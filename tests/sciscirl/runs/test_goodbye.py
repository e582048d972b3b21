"""Leave is taken of a server, and whatever becomes of that, nobody waits for ever and nothing done is lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress

import pytest
import tinker
from tinker.lib.internal_client_holder import InternalClientHolder

import sciscirl.runs.server_checks
from sciscirl.errors import ReleaseError
from sciscirl.runs.server_checks import closed_sessions, open_service
from tests.sciscirl.tinker_stub import KEY, serve_models


@pytest.fixture(autouse=True)
def key(monkeypatch, caplog):
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    caplog.set_level(logging.INFO, "sciscirl.runs.server_checks")


def test_a_goodbye_that_is_heard_ends_without_a_word(caplog):
    with serve_models([]) as url, open_service(url) as service:
        assert service.holder.get_session_id() == "session"
    assert "goodbye" not in caplog.text


def test_a_sign_of_life_that_misses_that_it_was_cancelled_is_not_waited_for(monkeypatch, caplog):
    begun, over = threading.Event(), threading.Event()

    async def deaf(*_: object) -> None:
        begun.set()
        while not over.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    monkeypatch.setattr(InternalClientHolder, "_session_heartbeat", deaf)
    monkeypatch.setattr(sciscirl.runs.server_checks, "_TIMEOUT_SECONDS", 0.2)
    with serve_models([]) as url, open_service(url) as service:
        assert service.holder.get_session_id() == "session"  # asked for when it is first needed
        begun.wait()
    over.set()
    assert f"goodbye to {url} failed: TimeoutError" in caplog.text


@pytest.mark.parametrize("error", [None, ReleaseError("full")])
def test_what_a_loop_opens_and_leaves_open_is_closed(error, monkeypatch):
    heard = list[str]()
    close = tinker.ServiceClient.close
    monkeypatch.setattr(tinker.ServiceClient, "close", lambda self, how: heard.append(how) or close(self, how))
    with serve_models([]) as url:
        with suppress(ReleaseError), closed_sessions(url):
            service = tinker.ServiceClient(base_url=url)
            assert service.holder.get_session_id() == "session"
            if error:
                raise error
        assert heard == ["errored" if error else "success"]
        with open_service(url):
            pass
        assert len(heard) == 2  # what is opened later is not its affair


def test_a_refused_goodbye_costs_nothing_that_was_done(caplog):
    with serve_models([], goodbye=404) as url, open_service(url) as service:
        assert service.holder.get_session_id() == "session"
    assert "failed: NotFoundError" in caplog.text


def test_what_went_wrong_before_the_goodbye_is_what_is_raised():
    with pytest.raises(ReleaseError), serve_models([], goodbye=404) as url, open_service(url) as service:
        raise ReleaseError(service.holder.get_session_id())
