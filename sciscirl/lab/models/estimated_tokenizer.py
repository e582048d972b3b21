"""An estimate of a tokenizer that is not on this machine, for a dry run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final


class EstimatedTokenizer:
    """Stands for a tokenizer that is not on this machine: a token is a mark, a sign, or some letters of a word.

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
