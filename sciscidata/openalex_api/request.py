"""Requests to OpenAlex as canonical texts, without who asks; the text is the key in the store."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

from sciscidata.errors import ConfigError

#: What OpenAlex calls a credit: the price of a list or of counts, as of August 2026.
CREDIT_USD: Final = 0.0001
#: OpenAlex takes request lines of 8,190 bytes; the rest is for the method and the protocol.
MAX_REQUEST_BYTES: Final = 8_100

_SHOWN_CHARACTERS: Final = 80


def works_request(**params: str | int) -> str:
    """Make a request for a list of works, or for counts of them; the order of ``params`` makes no difference.

    Example:
        >>> works_request(select="id", filter="cites:W1")
        '/works?filter=cites%3AW1&select=id'
    """
    request = f"/works?{urlencode(sorted(params.items()), quote_via=quote, safe='')}"
    if len(request) > MAX_REQUEST_BYTES:
        raise ConfigError(
            f"{shown(request)} has {len(request):,} bytes, OpenAlex takes {MAX_REQUEST_BYTES:,}. Split it."
        )
    return request


def shown(request: str) -> str:
    """Shorten a request for a message."""
    return request if len(request) <= _SHOWN_CHARACTERS else request[:_SHOWN_CHARACTERS] + "…"
