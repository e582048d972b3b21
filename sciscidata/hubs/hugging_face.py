"""The Hugging Face Hub: a data set repository, written by one commit and read at one revision."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from sciscidata.errors import ConfigError, HubError, import_extra
from sciscidata.hubs.exchange import Access, TryAgainError, find_access, keep_trying
from sciscidata.remote.retries import asked_wait_s

_Result = TypeVar("_Result")
_HUB: Final = "https://huggingface.co"
_NAME: Final = re.compile(r"hf:(?P<name>[\w.-]{1,96}/[\w.-]{1,96})(?:@(?P<revision>[\w][\w./-]{0,120}))?", re.ASCII)
#: Another commit came first, or too many requests did.
_MAY_PASS: Final = (409, 412, 429)
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
    """Read ``hf:owner/name`` or ``hf:owner/name@revision``; a ConfigError for anything else."""
    match = _NAME.fullmatch(address)
    if match is None or ".." in address:
        raise ConfigError(f"{address!r} names no data set on the hub. Write hf:OWNER/NAME, or hf:OWNER/NAME@REVISION.")
    return HubName(match["name"], match["revision"])


class Hub:
    """A connection to the Hugging Face Hub by huggingface_hub; every call is repeated after a fault."""

    def __init__(self, access: Access) -> None:
        import_extra("huggingface_hub", "hub", "the Hugging Face Hub")
        from huggingface_hub import HfApi
        from huggingface_hub.utils import disable_progress_bars
        from huggingface_hub.utils.logging import disable_propagation

        disable_progress_bars()
        disable_propagation()  # it prints its warnings by itself
        self.access = access
        # A token that is False is none: one that lies in the user's home is not used.
        self._api = HfApi(endpoint=access.url, token=access.token or False)

    def send(self, name: str, files: Mapping[str, Path | bytes], message: str, *, private: bool) -> str:
        """Make the repository if need be, send changed files in one commit, and return the commit."""
        from huggingface_hub import CommitOperationAdd

        def act() -> str:
            self._api.create_repo(name, repo_type="dataset", private=private, exist_ok=True)
            operations = [CommitOperationAdd(file, content) for file, content in sorted(files.items())]
            commit: Any = self._api.create_commit(name, operations, commit_message=message, repo_type="dataset")
            return str(commit.oid)

        return self._keep_trying(act, f"take {name}")

    def find_commit(self, name: str, revision: str | None) -> tuple[str, list[str]]:
        """Return the commit that a revision names, and the files in it; a HubError for a commit that is none."""
        info: Any = self._keep_trying(lambda: self._api.dataset_info(name, revision=revision), f"find {name}")
        if not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):  # it names a folder
            shown = self.access.mask(repr(info.sha))
            raise HubError(
                f"{self.access.url} says that {name} is at commit {shown}, needs 40 hexadecimal digits. {_ADDRESS}"
            )
        return info.sha, [file.rfilename for file in info.siblings or ()]

    def download(self, name: str, file: str, commit: str, folder: Path) -> None:
        """Download a file of a commit into a folder."""
        where: dict[str, Any] = {"repo_type": "dataset", "revision": commit, "local_dir": folder}
        self._keep_trying(lambda: str(self._api.hf_hub_download(name, file, **where)), f"give out {file}")

    def _keep_trying(self, act: Callable[[], _Result], what: str) -> _Result:
        from huggingface_hub.errors import HfHubHTTPError

        def attempt() -> _Result:
            try:
                return act()
            except HfHubHTTPError as error:
                status = error.response.status_code
                if status in _MAY_PASS or status >= 500:
                    raise TryAgainError(self.access.mask(error), asked_wait_s(error.response)) from None
                raise ConfigError(
                    f"{self.access.url} refused to {what} ({self.access.mask(error)}). {_REMEDY}"
                ) from None
            except httpx.TransportError:
                raise
            except _transport_errors() as error:
                raise TryAgainError(self.access.mask(error)) from None
            except (OSError, RuntimeError, ValueError) as error:  # a cut connection comes as one of these too
                if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
                    raise  # the disk
                cause = error.__cause__ or error  # huggingface_hub names the file alone
                raise TryAgainError(f"{type(cause).__name__}: {self.access.mask(cause)}") from None

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
