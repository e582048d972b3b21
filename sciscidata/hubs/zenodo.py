"""Zenodo: a deposition with a reserved DOI, its files and metadata, through the REST API.

Source: https://developers.zenodo.org (deposit and file APIs), as of November 2026.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

import httpx

from sciscidata.errors import HubError
from sciscidata.hubs.exchange import Access, TryAgainError, check_answer, find_access, keep_trying

logger = logging.getLogger(__name__)

ZENODO, SANDBOX = "https://zenodo.org", "https://sandbox.zenodo.org"
_DEPOSITIONS: Final = "/api/deposit/depositions"
_MOST_LISTED: Final = 100


def find_zenodo(*, sandbox: bool, needed: bool = True) -> Access:
    """Find the address (ZENODO_URL, else Zenodo or its sandbox) and the token (ZENODO_TOKEN)."""
    return find_access(SANDBOX if sandbox else ZENODO, "ZENODO_URL", "ZENODO_TOKEN", needed=needed)


class Deposition(NamedTuple):
    """What Zenodo says of one deposition."""

    number: int
    doi: str
    page: str
    bucket: str
    is_submitted: bool


class Zenodo:
    """A connection to Zenodo; every call is repeated after a fault."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {access.token}", "Accept": "application/json"},
            timeout=httpx.Timeout(60.0, read=300.0),
            trust_env=not access.url.startswith("http://"),  # a proxy has no way back to this machine
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def find_or_create(self, number: int | None, key: str) -> Deposition:
        """Return deposition ``number``, else the draft with ``key``, else a new one: a lost answer leaves no second."""

        def act() -> Deposition:
            if number is not None:
                return self._describe(self._ask("GET", f"{_DEPOSITIONS}/{number}"))
            drafts = self._ask("GET", _DEPOSITIONS, list, params={"status": "draft", "size": _MOST_LISTED})
            for draft in drafts:
                if key in str(draft.get("metadata")) and isinstance(draft.get("id"), int):
                    return self._describe(self._ask("GET", f"{_DEPOSITIONS}/{draft['id']}"))
            return self._describe(self._ask("POST", _DEPOSITIONS, json={"metadata": {"notes": key}}))

        return keep_trying(act, self._access, "find or make the deposition")

    def list_files(self, deposition: Deposition) -> dict[str, str]:
        """Return the MD5 of every file that a deposition has, by name."""
        where = f"{_DEPOSITIONS}/{deposition.number}/files"
        files = keep_trying(lambda: self._ask("GET", where, list), self._access, "list the files")
        return {str(file.get("filename")): str(file.get("checksum")).removeprefix("md5:") for file in files}

    def upload(self, deposition: Deposition, name: str, content: Path | bytes) -> None:
        """Put a file into a deposition, in place of one of that name, and compare its MD5."""
        md5 = md5_of(content)

        def act() -> None:
            where = f"{deposition.bucket}/{quote(name)}"
            if isinstance(content, bytes):
                answer = self._send("PUT", where, content=content)
            else:
                with content.open("rb") as file:
                    size = str(content.stat().st_size)
                    answer = self._send("PUT", where, content=file, headers={"Content-Length": size})
            if str(answer.get("checksum")).removeprefix("md5:") != md5:
                raise TryAgainError("it arrived damaged")

        keep_trying(act, self._access, f"take {name}")

    def describe(self, deposition: Deposition, metadata: Mapping[str, Any]) -> None:
        """Give a deposition its metadata."""
        where = f"{_DEPOSITIONS}/{deposition.number}"
        body = {"metadata": dict(metadata)}
        keep_trying(lambda: self._ask("PUT", where, json=body), self._access, "take the metadata")

    def submit(self, deposition: Deposition) -> None:
        """Publish a deposition for good. If an answer is lost, the next try finds it submitted."""

        def act() -> None:
            now = self._describe(self._ask("GET", f"{_DEPOSITIONS}/{deposition.number}"))
            if not now.is_submitted:
                self._ask("POST", f"{_DEPOSITIONS}/{deposition.number}/actions/publish")

        keep_trying(act, self._access, "publish the deposition")

    def _send(self, method: str, url: str, kind: type = dict, **details: Any) -> Any:  # noqa: ANN401 (JSON)
        return _read_objects(check_answer(self._http.request(method, url, **details)), kind)

    def _ask(self, method: str, path: str, kind: type = dict, **details: Any) -> Any:  # noqa: ANN401 (JSON)
        return self._send(method, f"{self._access.url}{path}", kind, **details)

    def _describe(self, facts: Any) -> Deposition:  # noqa: ANN401 (JSON)
        try:
            links, metadata = facts["links"], facts["metadata"]
            reserved = metadata.get("prereserve_doi") or {}
            doi, bucket = str(facts.get("doi") or reserved["doi"]), str(links["bucket"])
            deposition = Deposition(int(facts["id"]), doi, str(links["html"]), bucket, bool(facts["submitted"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise HubError(
                f"{self._access.url} described a deposition without {error}. Zenodo's API may have changed."
            ) from None
        if urlsplit(bucket)[:2] != urlsplit(self._access.url)[:2]:
            raise HubError(
                f"{self._access.url} names {self._access.mask(bucket)} for files; the token is sent to no other host."
            )
        return deposition


def _read_objects(answer: httpx.Response, kind: type) -> Any:  # noqa: ANN401 (JSON)
    """Return an answer that is an object, or a list of objects; else, as for a page, TryAgainError."""
    try:
        content: Any = answer.json()
    except ValueError:
        content = None
    objects: list[Any] = content if isinstance(content, list) else [content]
    if not isinstance(content, kind) or not all(isinstance(one, dict) for one in objects):
        raise TryAgainError("the answer is no JSON of its API")
    return content


def md5_of(content: Path | bytes) -> str:
    """Return the MD5 of a file or of bytes, which Zenodo compares."""
    if isinstance(content, bytes):
        return hashlib.md5(content, usedforsecurity=False).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
