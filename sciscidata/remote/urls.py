"""Check the address that an API key is sent to: it has to be https, or this machine itself."""

from __future__ import annotations

import re
from typing import Final

from sciscidata.errors import ConfigError

#: What to do where a server is not reached. A command names ``--source``.
NO_NETWORK: Final = (
    "Check the address and the network: behind a proxy, set HTTPS_PROXY. Files on a disk, ExampleConfig (real papers) "
    "and SyntheticConfig need no network."
)
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
# Only these spellings, and only a port between host and path. Two parsers could disagree about any other host:
# "http://127.0.0.1@a.org", "http://127.0.0.1\.a.org", "http://2130706433".
_HERE: Final = re.compile(rf"http://(?:localhost|127(?:\.{_BYTE}){{3}}|\[::1\])(?::\d{{1,5}})?(?:/|\Z)", re.A | re.I)
_ENCRYPTED: Final = re.compile(r"https://(?P<authority>[^/?#]+)", re.A | re.I)
_ADDRESS: Final = re.compile(r"([a-z][a-z0-9+.-]*://)([^/?#\\]*@)?([a-z0-9.:_\[\]-]*)", re.A | re.I)


def may_carry_key(url: str) -> bool:
    """Whether a key sent to an address stays secret: encrypted, or on this machine. No name is looked up."""
    encrypted = _ENCRYPTED.match(url)
    if encrypted is not None:
        return not {"@", "\\"} & set(encrypted["authority"])
    return _HERE.match(url) is not None


def check_address(url: str, *, name: str, key: str, secret: str | None = None) -> None:
    """Raise a ConfigError for an address that holds a user name, or would get a key in the open.

    ``name`` and ``key`` are the user's words for address and key. ``secret`` is masked: an address may hold it by
    mistake.
    """
    if not may_carry_key(url):
        raise ConfigError(
            f"{name} is {show_address(url, secret)}: {key} would be sent there unencrypted. A key needs https://, or "
            "this machine: http://localhost, http://127.0.0.1 or http://[::1], without a user name. Use https, or a "
            "tunnel: ssh -L 8000:localhost:8000 HOST, and then http://localhost:8000."
        )


def show_address(url: str, secret: str | None = None) -> str:
    """Return scheme, host and port of an address for a message, without anything that may be a password."""
    match = _ADDRESS.match(url)
    if match is None:
        return "no address"
    shown = f"{match[1]}{'***@' if match[2] else ''}{match[3]}"
    return re.sub(re.escape(secret), "***", shown, flags=re.I) if secret else shown
