"""Pre-flight checks, readable errors and clean shutdown for a Tinker server."""

from __future__ import annotations

import concurrent.futures
import logging
import os
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from difflib import get_close_matches
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpx
import tinker
from tinker.lib.base_url import resolve_base_url

from sciscidata.remote.urls import check_address, show_address
from sciscidata.terminal.messages import one_line
from sciscirl.errors import FullServerError, SciSciRLError
from sciscirl.runs.prices import PRICES, say_retired

_TIMEOUT_SECONDS = 30.0
_log = logging.getLogger(__name__)
_LOCAL_HINT = (
    "or start a server of your own: sciscirl serve --tiny. No server is needed by train and sweep --backend local, "
    "sft --backend peft and evaluate --local-model"
)
_FULL: Final = "Maximum number of LoRA adapters"
#: Words in an answer of SkyRL, and what they mean for the user.
_SKYRL_ANSWERS: Final = {
    _FULL: "cannot take another model: all its adapter slots are taken. One is the base "
    "model's; each run, and each other model that is sampled from, needs one. Wait for another run to end (of one that "
    "was killed, 90 s), or start the server with a higher --max-lora-adapters",
    " not loaded": "does not hold the model that was asked for. It was restarted, or heard nothing of the run for too "
    "long, or had no adapter slot free. Ask for it again",
}


def find_server(base_url: str | None = None) -> str:
    """Return the address of a Tinker server, if a key may be sent there: the SDK sends it with each request."""
    url = resolve_base_url(base_url)
    name = "base_url" if base_url else "TINKER_BASE_URL"
    check_address(url, name=name, key="the key", secret=os.environ.get("TINKER_API_KEY"))
    return url


def check_server(model_name: str, base_url: str | None = None, *, needs_training: bool = True) -> None:
    """Make sure that the server answers, accepts the key, and offers the model. The SDK would retry for minutes."""
    url = find_server(base_url)
    with clear_errors(base_url):
        models = list_models(base_url)
    offered = [
        model.model_name
        for model in models
        if model.model_name is not None and (model.trainable if needs_training else model.sampleable) is not False
    ]
    if model_name in offered:
        return
    retired = f" ({said})" if (said := say_retired(model_name)) else ""
    near = get_close_matches(model_name, offered)
    # After names like this one, cheapest first: what is tried out first should be.
    others = sorted(offered, key=lambda name: (PRICES[name].sample if name in PRICES else float("inf"), name))
    ranked = [*dict.fromkeys([*near, *others])]
    choice = ", ".join(f"model={name}" for name in ranked[:5]) or "it offers none"
    more = f" ({len(ranked) - 5} more)" if len(ranked) > 5 else ""
    raise SciSciRLError(f"{url} does not offer {model_name!r}{retired}. Choose one that it offers: {choice}{more}")


def list_models(base_url: str | None = None) -> list[tinker.types.SupportedModel]:
    """Return the models that a server offers."""
    url = find_server(base_url)
    if is_tinker(base_url) and not (os.environ.get("TINKER_API_KEY") or tinker.auth.tinker_has_credentials()):
        raise SciSciRLError(
            f"TINKER_API_KEY is not set, and {url} wants a key. Make one at https://tinker-console.thinkingmachines.ai "
            f"and set it, {_LOCAL_HINT}."
        )
    try:
        answer = httpx.get(f"{url}/api/v1/healthz", timeout=_TIMEOUT_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _no_server(url, error) from error
    if answer.has_redirect_location:  # the SDK would follow, with the key, to whatever host and scheme it names
        goal = show_address(str(answer.next_request.url)) if answer.next_request else "another address"
        raise SciSciRLError(
            f"{url} redirects to {goal}; the key is not sent there. If that is its new address, name it as base_url."
        )

    def ask() -> tinker.types.GetServerCapabilitiesResponse:
        # The client's constructor asks the server too, and blocks while it retries.
        return tinker.RestClient(base_url=base_url).get_server_capabilities().result()

    pool = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    try:
        return pool.submit(ask).result(timeout=_TIMEOUT_SECONDS).supported_models
    except TimeoutError as error:
        raise _no_server(url, error) from error
    finally:
        pool.shutdown(wait=False)


def is_tinker(base_url: str | None = None) -> bool:
    """Say whether a server is Tinker itself, not a server of your own."""
    host = urlsplit(resolve_base_url(base_url)).hostname or ""
    return host.endswith(".thinkingmachines.dev")


@contextmanager
def open_service(base_url: str | None = None) -> Generator[tinker.ServiceClient]:
    """Open a client of a server and close its session at the end, which frees its adapter slots immediately.

    ``with tinker.ServiceClient()`` of SDK 0.38 may wait forever: its heartbeat task can miss its cancellation (1 of
    40).
    """
    service = tinker.ServiceClient(base_url=find_server(base_url))
    with _closed_at_the_end([service], base_url):
        yield service


@contextmanager
def closed_sessions(base_url: str | None = None) -> Generator[None]:
    """Close at the end what a loop of the cookbook opens in this block and leaves open.

    Else the heartbeats of its session keep an adapter slot for as long as this process lives.
    """
    client: Any = tinker.ServiceClient
    begin, opened = client.__init__, list[tinker.ServiceClient]()

    def note(self: tinker.ServiceClient, *args: Any, **options: Any) -> None:  # noqa: ANN401
        begin(self, *args, **options)
        opened.append(self)

    client.__init__ = note
    try:
        with _closed_at_the_end(opened, base_url):
            yield
    finally:
        client.__init__ = begin


@contextmanager
def _closed_at_the_end(services: Sequence[tinker.ServiceClient], base_url: str | None) -> Generator[None]:
    status: Literal["success", "errored", "interrupted"] = "interrupted"
    try:
        yield
        status = "success"
    except Exception:
        status = "errored"
        raise
    finally:
        for service in services:
            try:
                service.close(status).result(timeout=_TIMEOUT_SECONDS)
            except (TimeoutError, tinker.TinkerError) as error:  # the server frees it when its heartbeats stop
                url = resolve_base_url(base_url)
                _log.info("the goodbye to %s failed: %s %s", url, type(error).__name__, error)


@contextmanager
def clear_errors(base_url: str | None = None, hint: str = "") -> Generator[None]:
    """Turn the errors of the SDK that a user can solve into one line, with ``hint`` if a run had begun."""
    url, end = resolve_base_url(base_url), f".{hint}" if hint else ""
    try:
        yield
    except tinker.APIConnectionError as error:
        raise _no_server(url, error, end) from error
    except (tinker.AuthenticationError, tinker.PermissionDeniedError) as error:
        raise SciSciRLError(
            f"{url} refuses the key ({error.status_code}). Set TINKER_API_KEY to one of its keys."
        ) from error
    except (tinker.APIStatusError, tinker.RequestFailedError) as error:
        raise _refused(url, error, end) from error
    except tinker.TinkerError as error:  # the key is missing or malformed
        raise SciSciRLError(f"the Tinker SDK refuses: {one_line(error)}. Set TINKER_API_KEY, {_LOCAL_HINT}") from error
    except ValueError as error:  # of work that the server failed at, where it says so by an HTTP status, as SkyRL does
        if not isinstance(error.__cause__, tinker.APIStatusError):
            raise
        raise _refused(url, error.__cause__, end) from error


@asynccontextmanager
async def open_sampling(
    model: str, checkpoint: str | None = None, base_url: str | None = None
) -> AsyncGenerator[tinker.SamplingClient]:
    """Open a sampling client of the base model, or of a checkpoint."""
    with clear_errors(base_url), open_service(base_url) as service:
        if checkpoint is None:
            yield await service.create_sampling_client(base_model=model)
        else:
            yield await service.create_sampling_client(model_path=checkpoint)


def _no_server(url: str, error: BaseException, end: str = "") -> SciSciRLError:
    return SciSciRLError(
        f"no Tinker server answers at {url} ({type(error).__name__}). Check TINKER_BASE_URL and the connection "
        f"(behind a proxy, set HTTPS_PROXY), {_LOCAL_HINT}{end or '.'}"
    )


def _refused(url: str, error: tinker.APIStatusError | tinker.RequestFailedError, end: str) -> SciSciRLError:
    said = one_line(error)
    for words, meaning in _SKYRL_ANSWERS.items():
        if words in said:
            kind = FullServerError if words == _FULL else SciSciRLError
            return kind(f"{url} {meaning} ({said}){end or '.'}")
    what = (
        f"answered {error.status_code}" if isinstance(error, tinker.APIStatusError) else "could not do what was asked"
    )
    return SciSciRLError(f"{url} {what}: {said}{end}")
