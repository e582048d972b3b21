"""Object stores (``s3://``, ``gs://``, ``az://``): check their address; list and download objects by obstore.

Settings and credentials come from the environment, as the tools of each store read them, or from options. A task that
goes to another process carries no credential: the environment of that process has it.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

import msgspec

from sciscidata.errors import (
    ConfigError,
    CorruptRecordError,
    InputNotFoundError,
    import_extra,
)
from sciscidata.remote.retries import Patience, keep_trying
from sciscidata.remote.urls import NO_NETWORK, check_address, show_address

_Result = TypeVar("_Result")

#: The remedy for an object store that fails.
STORE_REMEDY: Final = (
    "Check the address, the network, and the settings and credentials of the store: in the environment (of s3:// "
    "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL; of gs:// GOOGLE_SERVICE_ACCOUNT, or "
    "GOOGLE_SKIP_SIGNATURE=true for an open bucket; of az:// AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY; of "
    "hf:// HF_TOKEN), or among the options of the store."
)


def store_remedy(reason: str) -> str:
    """Return the remedy for what a store says; with that of a missing network, if nothing was answered."""
    return f"{STORE_REMEDY} {NO_NETWORK}" if "error sending request" in reason else STORE_REMEDY


_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.I)
_URL_AS_PATH: Final = re.compile(r"(s3a?|gc?s|az|azure|adl|abfss?):/(?!/)", re.I)  # a Path loses a slash
#: The provider of a URL's scheme: options and, in capitals, environment variables begin with its name.
_OWNERS: Final = {
    **dict.fromkeys(("s3", "s3a"), "aws"),
    **dict.fromkeys(("gs", "gcs"), "google"),
    **dict.fromkeys(("az", "azure", "adl", "abfs", "abfss"), "azure"),
}
#: Names of addresses that receive credentials, without those that only hand them out, such as metadata_endpoint.
_ENDPOINT: Final = re.compile(
    r"(?:^|_)(?:(?<!metadata_)(?<!msi_)(?<!identity_)endpoint(?:_url(?:_s3|_sts)?)?|base_url|authority_host)$"
)
_CREDENTIAL: Final = re.compile("token|key|secret|password|auth|credential|header|cookie")
#: Settings that say who asks. Without one of them a request is not signed: open buckets need none.
_IDENTITY: Final = re.compile(
    "access_key|web_identity_token_file|container_credentials|service_account|application_credentials"
    "|account_key|master_key|sas_|client_secret|federated_token|_token$|use_azure_cli|managed_identity"
)
_PROOF: Final = "the credentials (a signature, a token)"
_ASKED: Final = re.compile(r"\b(GET|PUT|POST|HEAD|DELETE) (\S+) in [^ ,]+(?:,.*?retry_timeout: \S+)?\s+- (.*)", re.S)

RETRIES: Final = 10
RETRIES_AT_FIRST: Final = 4  # a wrong address is more likely than a store that fails
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 30.0
_TIMEOUT_S: Final = 600.0  # of a request with its answer
_SILENCE_S: Final = 60.0  # of a store in the middle of an answer
_REQUEST_BYTES: Final = 32 << 20
_CHUNK_BYTES: Final = 1 << 20
_LARGEST_TEXT: Final = 1 << 28  # of a manifest
_FOLDER: Final = "SnapshotConfig.folder"


def is_url(place: str | os.PathLike[str]) -> bool:
    """Whether a folder or file is named by a URL."""
    return isinstance(place, str) and _URL.match(place) is not None


def refuse_url(place: str | os.PathLike[str], name: str) -> None:
    """Raise a ConfigError for a URL where only a disk will do."""
    if is_url(place) or _URL_AS_PATH.match(str(place)):
        scheme = str(place).partition(":")[0]
        raise ConfigError(
            f"{name} is a URL ({scheme}://), needs a path on a disk. Write it there, and copy it into the store: aws "
            "s3 cp, gcloud storage cp, or azcopy."
        )


def check_store(folder: str, options: Mapping[str, Any], *, name: str, field: str = "storage_options") -> None:
    """Refuse a store that would get credentials unencrypted, and a URL with a password, which would be recorded."""
    if not is_url(folder):
        return
    scheme, rest = folder.split("://", 1)
    if "@" in re.split(r"[/?#]", rest, maxsplit=1)[0]:
        raise ConfigError(
            f"{name} is {show_address(folder)}, needs a URL without a user name or password, because "
            "it is recorded. Put credentials into the environment."
        )
    owner = _OWNERS.get(scheme.lower(), "")
    if scheme.lower() == "http" and any(_CREDENTIAL.search(str(option).lower()) for option in options):
        check_address(folder, name=name, key=_PROOF)
    settings = _settings(owner, options, field)
    if _skips_signature(owner, settings):
        return
    for url, setting in _endpoints(settings):
        check_address(url, name=setting, key=_PROOF)


def refuse_credentials(options: Mapping[str, Any] | None, *, name: str) -> None:
    """Raise a ConfigError for an option that is a credential: tasks carry the options, and may be written to disk."""
    for option in options or {}:
        if _CREDENTIAL.search(str(option).lower()):
            raise ConfigError(
                f"{name} holds {option}, a credential, which would be written into tasks. Put it "
                "into the environment, for example AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )


def _settings(owner: str, options: Mapping[str, Any], field: str) -> dict[str, tuple[str, str]]:
    """Return value and name of each setting by its name in lower case; options beat the environment."""
    read = ((name, value) for name, value in os.environ.items() if owner and name.startswith(f"{owner.upper()}_"))
    read_there = {name.lower(): (value, name) for name, value in read}
    named = ((str(option).lower(), str(value)) for option, value in options.items())
    return read_there | {option: (value, f"{field}[{option!r}]") for option, value in named}


def _skips_signature(owner: str, settings: Mapping[str, tuple[str, str]]) -> bool:
    unsigned = (f"{owner}_skip_signature", "skip_signature")
    return any(settings[option][0].lower() in ("true", "1") for option in unsigned if option in settings)


def _endpoints(settings: Mapping[str, tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the addresses that are asked instead of the provider's, each with the name of its setting."""
    endpoints = (settings[option] for option in settings if _ENDPOINT.search(option))
    return [(url.strip(), name) for url, name in endpoints if url.strip()]


class StoredObject(msgspec.Struct, frozen=True):
    """One object as its store lists it. ``version`` is its ETag, which differs when the bytes differ; or empty."""

    url: str
    size: int  # bytes
    modified_ns: int  # since 1970
    version: str


class Store:
    """A bucket that holds a snapshot. Errors 429, 408 and 5xx, timeouts and cut connections are tried again by obstore.

    Waits grow exponentially with jitter up to half a minute; what a store asks for in ``Retry-After`` is not read.
    What fails for good is an InputNotFoundError.
    """

    def __init__(self, url: str, store_options: Mapping[str, Any], n_retries: int = RETRIES) -> None:
        scheme, _, rest = url.partition("://")
        owner = _OWNERS.get(scheme.lower())
        bucket, _, inside = rest.partition("/")
        if owner is None or not bucket:
            raise ConfigError(
                f"{_FOLDER} is {show_address(url)}, needs a path, or a URL of a store: "
                "s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or az://CONTAINER/FOLDER."
            )
        settings = _settings(owner, store_options, "store_options")
        options = {str(name): value for name, value in store_options.items() if "allow_http" not in str(name).lower()}
        has_say = any("skip_signature" in name for name in settings)
        if not has_say and not any(map(_IDENTITY.search, settings)):
            options["skip_signature"] = "true"
        check_store(url, options, name=_FOLDER, field="store_options")
        import_extra("obstore", "store", "an object store")
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        seconds = datetime.timedelta
        n_retries = int(options.pop("max_retries", n_retries))
        self._n_retries = max(n_retries, RETRIES) if n_retries else 0  # of a store that has begun to answer
        self.bucket, self.folder = f"{scheme}://{bucket}", inside.strip("/")
        self._endpoints = _endpoints(settings)
        try:
            connect: Any = from_url  # its overloads know options one by one
            self._store: Any = connect(
                self.bucket,
                config=options,
                client_options={
                    "allow_http": any(address.lower().startswith("http:") for address, _ in self._endpoints),
                    "timeout": seconds(seconds=_TIMEOUT_S),
                    "read_timeout": seconds(seconds=_SILENCE_S),
                },
                retry_config={
                    "max_retries": n_retries,
                    "retry_timeout": seconds(seconds=_TIMEOUT_S),
                    "backoff": {
                        "init_backoff": seconds(seconds=_FIRST_WAIT_S),
                        "max_backoff": seconds(seconds=_LONGEST_WAIT_S),
                    },
                },
            )
        except (BaseError, ValueError) as error:
            raise ConfigError(f"{url} cannot be opened: {_reason(error)}. {store_remedy(str(error))}") from None

    def list_below(self, folder: str) -> dict[str, StoredObject]:
        """List all objects below a folder by their key."""
        return {stored.url[len(self.bucket) + 1 :]: stored for stored in self._list(folder, below=True)}

    def list_in(self, folder: str) -> dict[str, StoredObject]:
        """List the objects in a folder itself by their name there."""
        return {PurePosixPath(stored.url).name: stored for stored in self._list(folder, below=False)}

    def _list(self, folder: str, *, below: bool) -> list[StoredObject]:
        import obstore

        prefix = "" if folder in ("", ".") else f"{folder}/"

        def act() -> list[StoredObject]:
            if below:
                listed = [meta for chunk in obstore.list(self._store, prefix) for meta in chunk]
            else:
                listed = list(obstore.list_with_delimiter(self._store, prefix)["objects"])
            return [self._describe(meta) for meta in listed]

        return self._keep_trying(act, f"{self.bucket}/{prefix}")

    def _describe(self, meta: Any) -> StoredObject:  # noqa: ANN401
        modified = meta["last_modified"]
        elapsed = modified - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        modified_ns = (elapsed // datetime.timedelta(microseconds=1)) * 1_000
        tag = meta["e_tag"] or ""
        version = tag if not tag or tag.startswith(('"', "W/")) else f'"{tag}"'  # Azure lists it without quotes
        return StoredObject(f"{self.bucket}/{meta['path']}", meta["size"], modified_ns, version)

    def read(self, stored: StoredObject) -> bytes:
        """Read a small object whole."""
        import obstore

        if stored.size > _LARGEST_TEXT:
            raise InputNotFoundError(
                f"{stored.url} has {stored.size:,} bytes, more than any manifest. Check the address."
            )
        key = stored.url[len(self.bucket) + 1 :]
        return self._keep_trying(lambda: bytes(obstore.get(self._store, key).bytes()), stored.url)

    def download(
        self,
        stored: StoredObject,
        target: Path,
        advance: Callable[[float], None],
    ) -> None:
        """Download an object into a file, from its end on. ``advance`` gets bytes, those of an earlier run too.

        A CorruptRecordError (its message is only the reason) means that the object is another one by now.
        """
        import obstore
        from obstore.exceptions import PreconditionError

        key = stored.url[len(self.bucket) + 1 :]
        with target.open("ab") as file:
            have = file.tell()
            if have > stored.size:
                file.truncate(have := 0)
            advance(have)
            n_empty = 0
            while have < stored.size:
                size = min(stored.size - have, _REQUEST_BYTES)

                def act(first: int = have, end: int = have + size) -> None:
                    if (first := max(first, file.tell())) >= end:  # repeated, but only the end of the answer was lost
                        return
                    options: Any = {"range": (first, end), "if_match": stored.version or None}
                    try:
                        answer = obstore.get(self._store, key, options=options)
                    except PreconditionError:
                        raise CorruptRecordError(_CHANGED) from None
                    meta = self._describe(answer.meta)
                    if (meta.size, meta.version) != (stored.size, stored.version):
                        raise CorruptRecordError(_CHANGED)
                    for chunk in answer.stream(_CHUNK_BYTES):
                        file.write(chunk)
                        advance(len(chunk))

                self._keep_trying(act, stored.url)
                n_empty = n_empty + 1 if have == file.tell() else 0
                have = file.tell()
                if n_empty > self._n_retries:
                    raise InputNotFoundError(
                        f"{stored.url} ends after {have:,} of {stored.size:,} bytes. {STORE_REMEDY}"
                    )

    def _keep_trying(self, act: Callable[[], _Result], url: str) -> _Result:
        """Repeat what a cut answer spoilt, which obstore does not repeat everywhere; explain any other error."""
        from obstore.exceptions import BaseError

        def may_pass(error: BaseException) -> bool:
            return "response body" in str(error)

        patience = Patience(may_pass, lambda _: self._n_retries + 1, _FIRST_WAIT_S, _LONGEST_WAIT_S)
        try:
            return keep_trying(act, patience)
        except (BaseError, FileNotFoundError) as error:
            raise self._explain(error, url) from None

    def _explain(self, error: Exception, url: str) -> InputNotFoundError:
        """Turn an error of obstore into one of ours: what, got, needed."""
        place = f" at {show_address(self._endpoints[0][0])}" if self._endpoints else ""
        text = str(error)
        if isinstance(error, FileNotFoundError) or "404 Not Found" in text:
            return InputNotFoundError(f"{url}{place} does not exist. {STORE_REMEDY}")
        if "403 Forbidden" in text or "401 Unauthorized" in text:
            return InputNotFoundError(
                f"{url}{place} may not be read: {_reason(error)}. An open bucket needs no credentials: set "
                "AWS_SKIP_SIGNATURE=true (or GOOGLE_, AZURE_). For any other, check the credentials in the environment."
            )
        return InputNotFoundError(f"{url}{place} cannot be read: {_reason(error)}. {store_remedy(text)}")


_CHANGED: Final = "has changed in the store while it was read. Run again"


def _reason(error: BaseException) -> str:
    """Return what an error of obstore says, on one line, without its retries and without the query of an address."""
    text = str(error).split("\n\nDebug source:")[0]
    if match := _ASKED.search(text):
        text = f"{match[1]} {match[2].partition('?')[0]}: {match[3]}"
    if code := re.search(r"<Code>(\w+)</Code>", text):
        text = f"{text.partition('<')[0].rstrip(': ')} ({code[1]})"
    text = re.sub(r"\?\S*", "", text)  # the query of an address may hold a signature
    return " ".join(text.split()).rstrip(".: ")[:300]
