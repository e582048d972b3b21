"""The Hugging Face Hub: a data set repository, written by one commit and read at one revision."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import httpx

from sciscidata.errors import ConfigError, HubError, SciSciDataError, VerificationError, import_extra
from sciscidata.remote import retries
from sciscidata.remote.answers import AnswerError, TooLargeError, ask, origin, read_body
from sciscidata.remote.urls import check_address
from sciscidata.storage.small_files import REPORT_BYTES, parse_json
from sciscidata.terminal.messages import printable

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
_UPLOAD_S: Final = 600.0  # of silence, while a hub takes what was sent


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


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, _TryAgainError)


def _n_attempts(error: BaseException) -> int:
    return _FIRST_ATTEMPTS if getattr(error, "is_unreached", False) else _ATTEMPTS


class Hub:
    """A connection to the Hugging Face Hub: writes by huggingface_hub, reads within bounds; faults are tried again."""

    def __init__(self, access: Access) -> None:
        self.access = access
        for name in ("httpx", "httpcore"):  # they log addresses at INFO, and headers at DEBUG
            logging.getLogger(name).setLevel(logging.WARNING)

    def send(self, name: str, files: Mapping[str, Path | bytes], message: str, *, private: bool) -> str:
        """Make the repository if need be, send changed files in one commit, and return the commit."""
        import_extra("huggingface_hub", "hub", "the Hugging Face Hub")
        from huggingface_hub import CommitOperationAdd, HfApi, set_client_factory
        from huggingface_hub.utils import disable_progress_bars
        from huggingface_hub.utils.logging import disable_propagation

        disable_progress_bars()
        disable_propagation()  # it prints its warnings by itself
        set_client_factory(self._make_client)
        # A token that is False is none: one that lies in the user's home is not used.
        api = HfApi(endpoint=self.access.url, token=self.access.token or False)

        def act() -> str:
            api.create_repo(name, repo_type="dataset", private=private, exist_ok=True)
            operations = [CommitOperationAdd(file, content) for file, content in sorted(files.items())]
            commit: Any = api.create_commit(name, operations, commit_message=message, repo_type="dataset")
            return str(commit.oid)

        return self._keep_trying(act, f"take {name}")

    def _make_client(self) -> httpx.Client:
        """Make what huggingface_hub asks by: it sends the token wherever the hub says that an upload is checked."""

        def keep_token(request: httpx.Request) -> None:
            is_elsewhere = origin(request.url) != origin(httpx.URL(self.access.url))
            if is_elsewhere and (self.access.token or " ") in request.headers.get("Authorization", ""):
                del request.headers["Authorization"]

        return httpx.Client(follow_redirects=True, timeout=_UPLOAD_S, event_hooks={"request": [keep_token]})

    def find_commit(self, name: str, revision: str | None) -> tuple[str, list[str]]:
        """Return the commit that a revision names, and the files in it; a HubError for a commit that is none."""
        at = "" if revision is None else f"/revision/{quote(revision, safe='')}"
        url = f"{self.access.url}/api/datasets/{name}{at}"

        def act() -> bytes:
            with self._ask(url) as answer:
                return b"".join(read_body(answer, REPORT_BYTES))

        content = self._keep_trying(act, f"find {name}")
        try:
            info: Any = parse_json(content)
            sha, files = info["sha"], [str(file["rfilename"]) for file in info.get("siblings") or ()]
        except (ValueError, LookupError, TypeError, AttributeError):
            shown = self.access.mask(printable(content[:60].decode("utf-8", "replace")))
            raise HubError(f"{url} gives no facts of a data set, but {shown!r}. Check HF_ENDPOINT.") from None
        if not isinstance(sha, str) or not _COMMIT.fullmatch(sha):  # it names a folder
            raise HubError(
                f"{self.access.url} says that {name} is at commit {self.access.mask(repr(sha))}, needs 40 hexadecimal "
                "digits. Check HF_ENDPOINT."
            )
        return sha, files

    def address(self, name: str, commit: str) -> str:
        """Return where the files of a commit are; their names come behind."""
        return f"{self.access.url}/datasets/{name}/resolve/{commit}"

    def download(self, url: str, target: Path, most_bytes: int) -> None:
        """Download a file of at most so many bytes; after a fault go on from its end. A larger one is removed."""

        def act() -> None:
            have = target.stat().st_size if target.is_file() else 0
            with self._ask(url, {"Range": f"bytes={have}-"} if have else {}) as answer:
                have = have if answer.headers.get("Content-Range", "").startswith(f"bytes {have}-") else 0
                try:
                    with target.open("ab" if have else "wb") as file:
                        for piece in read_body(answer, most_bytes - have):
                            file.write(piece)
                except TooLargeError:
                    raise VerificationError(
                        f"{url} is larger than {most_bytes:,} bytes, which is all that it may have. Ask its owner."
                    ) from None

        try:
            self._keep_trying(act, f"give out {url.rpartition('/')[2]}")
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    @contextmanager
    def _ask(self, url: str, headers: Mapping[str, str] | None = None) -> Generator[httpx.Response]:
        key = {"Authorization": f"Bearer {self.access.token}"} if self.access.token else {}
        with ask(url, key=key, headers=headers) as answer:
            if not answer.is_success:
                answer.raise_for_status()
            yield answer

    def _keep_trying(self, act: Callable[[], _Result], what: str) -> _Result:
        """Do what may be done twice without harm until it works: the hub may act and lose its answer."""
        url, mask = self.access.url, self.access.mask

        def attempt() -> _Result:
            try:
                return act()
            except SciSciDataError:
                raise
            except AnswerError as error:
                raise HubError(
                    f"{url} fails to {what}: the answer {mask(error)}. Check HF_ENDPOINT and the network. Run the "
                    "same command later: it goes on where it stopped."
                ) from None
            except Exception as error:  # a cut connection comes as one of many
                answer = getattr(error, "response", None)
                if isinstance(answer, httpx.Response):
                    if answer.status_code not in _MAY_PASS and answer.status_code < 500:
                        raise ConfigError(
                            f"{url} refused to {what} ({mask(error)}). Check the name and HF_TOKEN, and what this "
                            "token may do."
                        ) from None
                    raise _TryAgainError(mask(error), wait_s=retries.asked_wait_s(answer)) from None
                if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
                    raise  # the disk
                cause = error.__cause__ or error  # huggingface_hub names the file alone
                reason, is_unreached = f"{type(cause).__name__}: {mask(cause)}", isinstance(error, httpx.ConnectError)
                raise _TryAgainError(reason, is_unreached=is_unreached) from None

        patience = retries.Patience(_may_pass, _n_attempts, _FIRST_WAIT_S, _LONGEST_WAIT_S)
        try:
            return retries.keep_trying(
                attempt,
                patience,
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
