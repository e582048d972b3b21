"""One request to OpenAlex: its canonical text, which is its key in the store, and its price."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlencode

from sciscidata.errors import ConfigError

#: What OpenAlex calls a credit.
CREDIT_USD: Final = 0.0001
#: OpenAlex takes request lines of 8,190 bytes; the rest is for the method, the protocol and the e-mail address.
MAX_KEY_BYTES: Final = 8_100

_WHO_ASKS: Final = frozenset({"api_key", "api-key", "mailto"})
_SHOWN_CHARACTERS: Final = 80


@dataclass(frozen=True, slots=True)
class Request:
    """A path and its unquoted parameters, without who asks. ``key`` decides what is equal; ``str`` is for messages."""

    path: str
    params: tuple[tuple[str, str], ...] = ()
    #: The canonical text: path and sorted parameters, percent-encoded, exactly as they are sent.
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or "?" in self.path or "#" in self.path:
            needed = "needs to begin with '/', like /works, without parameters: they go into params."
            raise ConfigError(f"path is {self.path!r}, {needed}")
        for name, _ in self.params:
            if name.lower() in _WHO_ASKS:
                raise ConfigError(f"a request cannot hold {name}: it would end up in the store. Give it to ApiConfig.")
        # Sorted by name only: the order of repeated parameters may have a meaning.
        query = urlencode(sorted(self.params, key=lambda pair: pair[0]), quote_via=quote, safe="")
        object.__setattr__(self, "key", quote(self.path, safe="/:") + (f"?{query}" if query else ""))
        if len(self.key) > MAX_KEY_BYTES:
            raise ConfigError(f"{self} has {len(self.key):,} bytes, OpenAlex takes {MAX_KEY_BYTES:,}. Split it.")

    @property
    def is_single(self) -> bool:
        """Whether this asks for one entity instead of a list."""
        return "/" in self.path.strip("/")

    @property
    def price_usd(self) -> float:
        """The price by the list of August 2026: single entities are free, lists cost 1 credit, searches 10."""
        if self.is_single:
            return 0.0
        is_search = any(
            name.split(".")[0] == "search" or (name == "filter" and ".search" in value) for name, value in self.params
        )
        return 10 * CREDIT_USD if is_search and "group_by" not in dict(self.params) else CREDIT_USD

    def __str__(self) -> str:
        key = self.key
        return key if len(key) <= _SHOWN_CHARACTERS else key[:_SHOWN_CHARACTERS] + "…"


def works_request(work: str | int | None = None, /, **params: str | int | bool | None) -> Request:
    """Make a request for a list of works, or for one work: the number after W, ``"W42"`` or ``"doi:10.1000/1"``."""
    path = "/works" if work is None else f"/works/{f'W{work}' if isinstance(work, int) else work}"
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in params.items()}
    return Request(path, tuple((name, text) for name, text in texts.items() if params[name] is not None))
