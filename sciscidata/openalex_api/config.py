"""ApiConfig: server, key, pace and limits of the client, from arguments, the environment or a file."""

from __future__ import annotations

import ipaddress
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
import platformdirs

from sciscidata.errors import ConfigError
from sciscidata.options.checks import Configuration, PositiveInt
from sciscidata.remote.urls import check_address
from sciscidata.storage.small_files import SETTINGS_BYTES, decode_text, read_whole

BASE_URL: Final = "https://api.openalex.org"
KEY_VARIABLE: Final = "OPENALEX_API_KEY"
URL_VARIABLE: Final = "OPENALEX_BASE_URL"
MOST_ANSWER_BYTES: Final = 256 << 20  # decompressed; 200 whole records have 6 MB

# OpenAlex enforces 10 requests a second without a key and 30 with one; the network bunches ours a little.
_RATE_KEYLESS = 9.0
_RATE_WITH_KEY = 25.0
_Positive = Annotated[float, msgspec.Meta(gt=0)]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ApiConfig(Configuration):
    """Where OpenAlex is, who asks, how fast, and for how much.

    Nothing here changes the answers, so no manifest holds any of it; ``api_key`` is never written anywhere.

    Attributes:
        base_url: address of the server, or OPENALEX_BASE_URL: scheme, host and perhaps a path. https; without a key, or
            on this machine, also http.
        api_key: key of OpenAlex, free at openalex.org/settings/api; better in OPENALEX_API_KEY. Sent as a header and
            nowhere else. None: the small budget without a key.
        email: address that OpenAlex may write to, a courtesy; sent in the User-Agent.
        requests_per_second: most requests per second over all threads. None: 25 with a key, 9 without one.
        concurrency: requests under way at the same time.
        timeout_s: seconds for one answer, from the connection to its last byte.
        max_attempts: attempts of one request, the first one included.
        max_sleep_s: longest single wait in seconds, whatever the server asks for.
        max_cost_usd: most dollars of a run; it stops before it spends more. None: whatever the daily budget allows.
        offline: use only what earlier runs have fetched.

    Raises:
        ConfigError: on construction, if a value does not fit its type, or the key would be sent unencrypted. The
            message never repeats the key.

    Example:
        >>> config = ApiConfig(api_key=" secret ", email="you@example.org")
        >>> config.api_key, config.rate
        ('secret', 25.0)
        >>> "secret" in repr(config)
        False
    """

    base_url: Annotated[str, msgspec.Meta(title="URL")] = field(default=BASE_URL, metadata={"secret": True})
    api_key: Annotated[str, msgspec.Meta(title="KEY")] | None = field(default=None, repr=False)
    email: Annotated[str, msgspec.Meta(title="ADDRESS")] | None = None
    requests_per_second: _Positive | None = None
    concurrency: PositiveInt = 8
    timeout_s: _Positive = 60.0
    max_attempts: PositiveInt = 8
    max_sleep_s: _Positive = 60.0
    max_cost_usd: Annotated[float, msgspec.Meta(ge=0, title="USD")] | None = None
    offline: bool = False

    def _check(self) -> None:
        object.__setattr__(self, "base_url", _checked_url(self.base_url))
        object.__setattr__(self, "api_key", _checked_word("api_key", self.api_key))
        object.__setattr__(self, "email", _checked_word("email", self.email))
        if self.api_key is not None:
            check_address(self.base_url, name="ApiConfig.base_url", key="the API key", secret=self.api_key)
        if self.email is not None and "@" not in self.email:
            raise ConfigError(f"ApiConfig.email is {self.email!r}, needs an address like you@example.org, or None.")

    @property
    def rate(self) -> float:
        """Requests per second at most, the default filled in."""
        if self.requests_per_second is not None:
            return self.requests_per_second
        return _RATE_WITH_KEY if self.api_key else _RATE_KEYLESS

    @property
    def server(self) -> str:
        """Whose answers these are: ``base_url`` in canonical form; on this machine, where ports change, without one."""
        import httpx  # it takes a while to import

        url = httpx.URL(self.base_url)
        return f"{url.scheme}://{url.host}" if is_loopback(url.host) else str(url)

    @classmethod
    def from_environment(
        cls,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        email: str | None = None,
        **others: Any,  # noqa: ANN401
    ) -> ApiConfig:
        """Fill in what is not given from the environment, then from the user's configuration file.

        ``OPENALEX_API_KEY`` and ``OPENALEX_BASE_URL`` come first, then ``api_key``, ``base_url`` and ``email`` of
        the file that :func:`config_file` names. A blank value counts as not given, everywhere. ``others`` are further
        fields. A ConfigError means an impossible value, or a file that cannot be read or has an unknown name.
        """
        file = _read_config_file(config_file())
        return cls(
            api_key=_first(api_key, os.environ.get(KEY_VARIABLE), file.get("api_key")),
            base_url=_first(base_url, os.environ.get(URL_VARIABLE), file.get("base_url")) or BASE_URL,
            email=_first(email, file.get("email")),
            **others,
        )


def config_file() -> Path:
    """Return the path of ``openalex.toml`` in the user's configuration folder, for ``api_key = "..."``."""
    return platformdirs.user_config_path("sciscidata") / "openalex.toml"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def _first(*candidates: Any) -> Any:  # noqa: ANN401 (check_fields says what is no text)
    return next((text for text in candidates if text and (not isinstance(text, str) or text.strip())), None)


def _read_config_file(path: Path) -> dict[str, str]:
    try:
        content = tomllib.loads(decode_text(read_whole(path, SETTINGS_BYTES)))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}. Correct its permissions, or remove it.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        # Without the parser's message, which may quote the line that holds the key.
        raise ConfigError(f'{path} is not a TOML file. It needs one line: api_key = "YOUR KEY".') from None
    except ValueError as error:  # in another encoding
        raise ConfigError(f"{path} is {error}.") from None
    for name, value in content.items():
        if name not in ("api_key", "base_url", "email") or not isinstance(value, str):
            raise ConfigError(
                f"{path}: {name} is unknown or no text. Write only api_key, base_url and email, in quotes."
            )
    return content


def _checked_url(text: str) -> str:
    url = text.strip().rstrip("/")
    if url == BASE_URL:
        return url
    import httpx  # it takes a while to import

    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is no number
        is_usable = parts.scheme in ("http", "https") and bool(httpx.URL(url).host)
    except (ValueError, httpx.InvalidURL):
        parts, is_usable = None, False
    # A user name in an address is a password in every log.
    if parts is None or not is_usable or parts.query or parts.fragment or "@" in parts.netloc or not _is_word(url):
        raise ConfigError(
            f"ApiConfig.base_url needs to be like {BASE_URL}: http or https, a valid host, no user, no '?', no '#'."
        )
    return url


def _checked_word(name: str, text: str | None) -> str | None:
    """Strip a value that goes into a header; None if nothing is left."""
    stripped = (text or "").strip()
    if not stripped:
        return None
    if not _is_word(stripped):
        raise ConfigError(
            f"ApiConfig.{name} holds a space, a control character or a letter beyond ASCII. Copy it again."
        )
    return stripped


def _is_word(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
