"""The Hugging Face Hub: a data set repository, written by one commit and read at one revision."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import httpx

from sciscidata.errors import ConfigError, HubError, how_to_install
from sciscidata.hubs.exchange import (
    Access,
    TryAgainError,
    asked_wait_s,
    check_answer,
    find_access,
    keep_trying,
    open_answer,
    read_answer,
    read_limited,
)
from sciscidata.storage.small_files import parse_json

_Result = TypeVar("_Result")
_HUB: Final = "https://huggingface.co"
_NAME: Final = re.compile(r"hf:(?P<name>[\w.-]{1,96}/[\w.-]{1,96})(?:@(?P<revision>[\w][\w./-]{0,120}))?", re.ASCII)
#: Another commit came first, or too many requests did.
_MAY_PASS: Final = (409, 412, 429)
_PARTIAL: Final = 206
_NO_SUCH_RANGE: Final = 416
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


class HubName(NamedTuple):
    """A data set on the hub: ``owner/name``, and a branch, tag or commit; None: the newest one."""

    name: str
    revision: str | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, which never changes."""
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None


def read_hub_name(address: str) -> HubName:
    """Read ``hf:owner/name`` or ``hf:owner/name@revision``; a ConfigError for anything else.

    Example:
        >>> read_hub_name("hf:ada/slices@v1")
        HubName(name='ada/slices', revision='v1')
    """
    match = _NAME.fullmatch(address)
    if match is None or ".." in address:
        msg = f"{address!r} names no data set on the hub. Write hf:OWNER/NAME, or hf:OWNER/NAME@REVISION."
        raise ConfigError(msg)
    return HubName(match["name"], match["revision"])


class Hub:
    """A connection to the Hugging Face Hub; every call is repeated after a fault.

    What is read is fetched here and not by huggingface_hub. That has no limits, sends the token to other ports of the
    same host, and makes paths of what a server says.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._key = {"Authorization": f"Bearer {access.token}"} if access.token else {}

    def send(self, name: str, files: Mapping[str, Path | bytes], message: str, *, private: bool) -> str:
        """Make the repository if need be, send its files in one commit, and return the commit.

        Large files that the hub has already are not sent again, and without a change there is no new commit.
        """
        try:
            from huggingface_hub import CommitOperationAdd, HfApi
            from huggingface_hub.utils import disable_progress_bars
            from huggingface_hub.utils.logging import disable_propagation
        except ImportError as error:
            msg = f"huggingface_hub is not installed. Run {how_to_install('hub')}."
            raise ConfigError(msg) from error
        disable_progress_bars()
        disable_propagation()  # it prints its warnings by itself
        # A token that is False is none: one that lies in the user's home is not used.
        api = HfApi(endpoint=self.access.url, token=self.access.token or False)

        def act() -> str:
            api.create_repo(name, repo_type="dataset", private=private, exist_ok=True)
            operations = [CommitOperationAdd(file, content) for file, content in sorted(files.items())]
            commit: Any = api.create_commit(name, operations, commit_message=message, repo_type="dataset")
            return str(commit.oid)

        return self._keep_trying(act, f"take {name}")

    def find_commit(self, name: str, revision: str | None) -> tuple[str, list[str]]:
        """Return the commit that a revision names, and the files in it; a HubError for a commit that is none."""
        path = f"/api/datasets/{name}" + (f"/revision/{quote(revision, safe='')}" if revision else "")

        def act() -> bytes:
            with open_answer(self.access.url + path, self._key) as answer:
                return check_answer(read_answer(answer)).content

        described = keep_trying(act, self.access, f"find {name}")
        try:
            description = parse_json(described)
            commit, files = description["sha"], [str(file["rfilename"]) for file in description["siblings"] or ()]
        except (KeyError, TypeError, ValueError) as error:
            msg = f"{self.access.url} does not describe {name} as the Hugging Face Hub does ({error}). {_ADDRESS}"
            raise HubError(msg) from None
        # It names a folder.
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            shown = self.access.mask(repr(commit))
            msg = f"{self.access.url} says that {name} is at commit {shown}, needs 40 hexadecimal digits. {_ADDRESS}"
            raise HubError(msg)
        return commit, files

    def download(self, name: str, file: str, commit: str, path: Path, most_bytes: int) -> None:
        """Download a file of a commit, of at most so many bytes; a try continues the one before."""
        address = f"{self.access.url}/datasets/{name}/resolve/{commit}/{quote(file)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)

        def act() -> None:
            at = path.stat().st_size if path.exists() else 0
            headers = {"Range": f"bytes={at}-"} if at else {}
            with open_answer(address, self._key, headers) as answer:
                if not answer.is_success:
                    if answer.status_code == _NO_SUCH_RANGE:
                        path.unlink()
                        msg = "it has fewer bytes than before"
                        raise TryAgainError(msg)
                    check_answer(read_answer(answer))
                goes_on = answer.status_code == _PARTIAL
                with path.open("ab" if goes_on else "wb") as out:
                    for piece in read_limited(answer, most_bytes - at if goes_on else most_bytes):
                        out.write(piece)

        keep_trying(act, self.access, f"give out {file}")

    def _keep_trying(self, act: Callable[[], _Result], what: str) -> _Result:
        from huggingface_hub.errors import HfHubHTTPError

        def attempt() -> _Result:
            try:
                return act()
            except HfHubHTTPError as error:
                status = error.response.status_code
                if status in _MAY_PASS or status >= 500:
                    raise TryAgainError(self.access.mask(error), asked_wait_s(error.response)) from None
                msg = f"{self.access.url} refused to {what} ({self.access.mask(error)}). {_REMEDY}"
                raise ConfigError(msg) from None
            except httpx.TransportError:
                raise
            except _transport_errors() as error:
                raise TryAgainError(self.access.mask(error)) from None
            except (OSError, RuntimeError, ValueError) as error:  # a cut connection comes as one of these too
                if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
                    raise  # the disk
                cause = error.__cause__ or error  # huggingface_hub names the file alone
                msg = f"{type(cause).__name__}: {self.access.mask(cause)}"
                raise TryAgainError(msg) from None

        return keep_trying(attempt, self.access, what)


def _transport_errors() -> tuple[type[Exception], ...]:
    """Name what a cut connection raises in huggingface_hub 2, which uses httpx2 instead of httpx."""
    try:
        httpx2: Any = import_module("httpx2")
    except ImportError:
        return ()
    return (httpx2.TransportError,)


_ADDRESS: Final = "Check HF_ENDPOINT."
_REMEDY: Final = "Check the name and HF_TOKEN, and what this token may do."


def find_hub(*, needed: bool) -> Access:
    """Find the address (HF_ENDPOINT, else huggingface.co) and the token (HF_TOKEN)."""
    return find_access(_HUB, "HF_ENDPOINT", "HF_TOKEN", needed=needed)
