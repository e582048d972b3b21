"""What every exchange with a hub needs: a token from the environment, and another try after a fault."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import httpx

from sciscidata.errors import ConfigError, HubError
from sciscidata.remote import retries
from sciscidata.remote.urls import check_address

logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_TOO_MANY: Final = 429
_ATTEMPTS: Final = 8
_FIRST_ATTEMPTS: Final = 3  # without a connection: the network or the address is wrong
_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 60.0
_LONGEST_SHOWN: Final = 300


class Access(NamedTuple):
    """Where a hub is, and the token for it; None: without one."""

    url: str
    token: str | None = None

    def mask(self, text: object) -> str:
        """Write what a hub said in one line, without the token, and without httpx's pointer to a manual."""
        line = " ".join(str(text).split()).partition(" For more information check: ")[0]
        line = line.replace(self.token, "***") if self.token else line
        return line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}..."


def find_access(url: str, address_variable: str, token_variable: str, *, needed: bool = True) -> Access:
    """Find the address of a hub, and the token, in the environment; a ConfigError if it would be sent in the open."""
    url = os.environ.get(address_variable, "").strip().rstrip("/") or url
    token = os.environ.get(token_variable, "").strip() or None
    if token is None and needed:
        raise ConfigError(
            f"{token_variable} is not set. Make a token that may write on {url}, and export it under this name."
        )
    if token is not None:
        check_address(url, name=address_variable, key=token_variable, secret=token)
    for name in ("httpx", "httpcore"):  # they log addresses at INFO, and headers at DEBUG
        logging.getLogger(name).setLevel(logging.WARNING)
    return Access(url, token)


class TryAgainError(Exception):
    """A fault that may be over soon; ``wait_s`` is what the hub asks for."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


def check_answer(answer: httpx.Response) -> httpx.Response:
    """Return an answer that is good; a TryAgainError for 429 and 5xx, an HTTPStatusError for anything else."""
    if answer.status_code == _TOO_MANY or answer.is_server_error:
        raise TryAgainError(f"status {answer.status_code}", retries.asked_wait_s(answer))
    return answer.raise_for_status()


def keep_trying(act: Callable[[], _Result], access: Access, what: str) -> _Result:
    """Do what may be done twice without harm until it works, at most eight times: a hub may act and lose its answer."""

    def tell(error: BaseException, attempt: int, _: float) -> None:
        logger.info("%s failed to %s (%s); attempt %d", access.url, what, access.mask(error), attempt)

    try:
        return retries.keep_trying(
            act,
            lambda error: isinstance(error, TryAgainError | httpx.TransportError),
            lambda error: _FIRST_ATTEMPTS if isinstance(error, httpx.ConnectError) else _ATTEMPTS,
            first_wait_s=_FIRST_WAIT_S,
            longest_wait_s=_LONGEST_WAIT_S,
            sleep=time.sleep,
            tell=tell,
        )
    except httpx.HTTPStatusError as error:
        reason = access.mask(error.response.text)
        raise ConfigError(
            f"{access.url} refused to {what} (status {error.response.status_code}: {reason}). {_REMEDY}"
        ) from None  # its text may hold a header
    except (TryAgainError, httpx.TransportError) as error:
        if isinstance(error, httpx.ConnectError):
            raise HubError(
                f"{access.url} was not reached, to {what} ({access.mask(error)}). {_NOT_REACHED} {_LATER}"
            ) from None
        raise HubError(f"{access.url} failed to {what}, {_ATTEMPTS} times ({access.mask(error)}). {_LATER}") from None


_NOT_REACHED: Final = "Check the address and the network: behind a proxy, set HTTPS_PROXY."
_LATER: Final = "Run the same command later: it goes on where it stopped."
_REMEDY: Final = "Check the name, the token and what it may do."
