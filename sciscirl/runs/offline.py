"""Without a network: nothing is waited for, and a dry run estimates the tokens of a tokenizer that is elsewhere."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final
from unittest.mock import patch

_is_dry: ContextVar[bool] = ContextVar("is_dry", default=False)
_reached: Final = set[str]()  # hubs, by this process
_TIMEOUT_SECONDS: Final = 5.0


@contextmanager
def dry_run() -> Generator[None]:
    """Ask no server in the block."""
    token = _is_dry.set(True)
    try:
        yield
    finally:
        _is_dry.reset(token)


def is_dry_run() -> bool:
    """Say whether no server may be asked."""
    return _is_dry.get()


@contextmanager
def never_waiting() -> Generator[None]:
    """If the hub cannot be reached, read only what is on this machine; asking would take a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or (not is_dry_run() and _reaches(constants.ENDPOINT)):
        yield
        return
    with patch.object(constants, "HF_HUB_OFFLINE", True):
        yield


def _reaches(hub: str) -> bool:
    import httpx

    if hub not in _reached:
        try:
            httpx.head(hub, timeout=_TIMEOUT_SECONDS)
        except (httpx.HTTPError, httpx.InvalidURL, ImportError, OSError, ValueError):  # of a proxy, too
            return False
        _reached.add(hub)
    return True


class EstimatedTokenizer:
    """Stands for a tokenizer that is not on this machine.

    A token is a mark, a sign, or some letters of a word.

    Example:
        >>> tokenizer = EstimatedTokenizer("Qwen/Qwen3-8B")
        >>> tokens = tokenizer.encode("<|im_start|>The assay is new.")
        >>> len(tokens), tokenizer.decode(tokens[:3])
        (6, '<|im_start|>The assay')
    """

    is_estimate: Final = True
    chat_template = bos_token = eos_token_id = None
    _PIECES: Final = re.compile(r"<[^<>\s]{1,40}>| ?[^\W\d_]{1,9}|\d| ?[^\w\s]{1,3}|\s+|.", re.DOTALL)

    def __init__(self, name: str) -> None:
        self.name_or_path = name
        self._numbers: dict[str, int] = {}
        self._words: list[str] = []

    def encode(self, text: str, **_: object) -> list[int]:
        """Divide a text."""
        pieces = self._PIECES.findall(text)
        for piece in pieces:
            if piece not in self._numbers:
                self._numbers[piece] = len(self._words)
                self._words.append(piece)
        return [self._numbers[piece] for piece in pieces]

    def convert_tokens_to_ids(self, token: str) -> int:
        """Return the number of a mark."""
        return self.encode(token)[0]

    def decode(self, tokens: Sequence[int] | int, **_: object) -> str:
        """Put a text together again."""
        return "".join(self._words[token] for token in ([tokens] if isinstance(tokens, int) else tokens))
