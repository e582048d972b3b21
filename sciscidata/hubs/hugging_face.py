"""The Hugging Face Hub: a data set repository, written by one commit and read at one revision."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from sciscidata.errors import ConfigError, HubError, import_extra
from sciscidata.remote import retries
from sciscidata.remote.urls import check_address

logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_HUB: Final = "https://huggingface.co"
_NAME: Final = re.compile(r"hf:(?P<name>[\w.-]{1,96}/[\w.-]{1,96})(?:@(?P<revision>[\w][\w./-]{0,120}))?", re.ASCII)
#: Another commit came first, or too many requests did.
_MAY_PASS: Final = (409, 412, 429)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_ATTEMPTS: Final = 8
_FIRST_ATTEMPTS: Final = 3  # without a connection: the network or the address is wrong
_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 60.0
_LONGEST_SHOWN: Final = 300


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


class Access(NamedTuple):
    """Where the hub is, and the token for it; None: without one."""

    url: str
    token: str | None = None

    def mask(self, text: object) -> str:
        """Write what the hub said in one line, without the token, and without httpx's pointer to a manual."""
        line = " ".join(str(text).split()).partition(" For more information check: ")[0]
        line = line.replace(self.token, "***") if self.token else line
        return line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}..."


def find_access(*, needed: bool) -> Access:
    """Find the address (HF_ENDPOINT, else huggingface.co) and the token (HF_TOKEN), which is not sent in the open."""
    url = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or _HUB
    token = os.environ.get("HF_TOKEN", "").strip() or None
    if token is None and needed:
        raise ConfigError(f"HF_TOKEN is not set. Make a token that may write on {url}, and export it under this name.")
    if token is not None:
        check_address(url, name="HF_ENDPOINT", key="HF_TOKEN", secret=token)
    return Access(url, token)


class _TryAgainError(Exception):
    """A fault that may be over soon; ``wait_s`` is what the hub asks for."""

    def __init__(self, reason: str, *, wait_s: float = 0.0, is_unreached: bool = False) -> None:
        super().__init__(reason)
        self.wait_s, self.is_unreached = wait_s, is_unreached


class Hub:
    """A connection to the Hugging Face Hub by huggingface_hub; every call is repeated after a fault."""

    def __init__(self, access: Access) -> None:
        import_extra("huggingface_hub", "hub", "the Hugging Face Hub")
        from huggingface_hub import HfApi
        from huggingface_hub.utils import disable_progress_bars
        from huggingface_hub.utils.logging import disable_propagation

        disable_progress_bars()
        disable_propagation()  # it prints its warnings by itself
        for name in ("httpx", "httpcore"):  # they log addresses at INFO, and headers at DEBUG
            logging.getLogger(name).setLevel(logging.WARNING)
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
                f"{self.access.url} says that {name} is at commit {shown}, needs 40 hexadecimal digits. Check "
                "HF_ENDPOINT."
            )
        return info.sha, [file.rfilename for file in info.siblings or ()]

    def download(self, name: str, file: str, commit: str, *, anew: bool) -> Path:
        """Return a file of a commit in the cache of huggingface_hub; download it if it is not there, or ``anew``."""
        options: dict[str, Any] = {"repo_type": "dataset", "revision": commit, "force_download": anew}
        api: Any = self._api  # its overloads know options one by one
        return Path(self._keep_trying(lambda: str(api.hf_hub_download(name, file, **options)), f"give out {file}"))

    def _keep_trying(self, act: Callable[[], _Result], what: str) -> _Result:
        """Do what may be done twice without harm until it works: the hub may act and lose its answer."""
        from huggingface_hub.errors import HfHubHTTPError

        url, mask = self.access.url, self.access.mask

        def attempt() -> _Result:
            try:
                return act()
            except HfHubHTTPError as error:
                status = error.response.status_code
                if status not in _MAY_PASS and status < 500:
                    raise ConfigError(
                        f"{url} refused to {what} ({mask(error)}). Check the name and HF_TOKEN, and what this token "
                        "may do."
                    ) from None
                raise _TryAgainError(mask(error), wait_s=retries.asked_wait_s(error.response)) from None
            except Exception as error:  # a cut connection comes as one of many
                if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
                    raise  # the disk
                cause = error.__cause__ or error  # huggingface_hub names the file alone
                reason, is_unreached = f"{type(cause).__name__}: {mask(cause)}", isinstance(error, httpx.ConnectError)
                raise _TryAgainError(reason, is_unreached=is_unreached) from None

        try:
            return retries.keep_trying(
                attempt,
                lambda error: isinstance(error, _TryAgainError),
                lambda error: _FIRST_ATTEMPTS if getattr(error, "is_unreached", False) else _ATTEMPTS,
                first_wait_s=_FIRST_WAIT_S,
                longest_wait_s=_LONGEST_WAIT_S,
                tell=lambda error, n, _: logger.info("%s failed to %s (%s); attempt %d", url, what, error, n),
            )
        except _TryAgainError as error:
            later = "Run the same command later: it goes on where it stopped."
            if error.is_unreached:
                raise HubError(
                    f"{url} was not reached, to {what} ({error}). Check the address and the network: behind a proxy, "
                    f"set HTTPS_PROXY. {later}"
                ) from None
            raise HubError(f"{url} failed to {what}, {_ATTEMPTS} times ({error}). {later}") from None
