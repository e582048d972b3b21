"""A limit on the tokens of an answer, checked before a run against the shortest valid answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sciscirl.errors import SciSciRLError
from sciscirl.task.rules import TaskRules, find_shortest_answers

if TYPE_CHECKING:
    from tinker_cookbook.renderers import Renderer

#: A word with a sign before it, a number, or signs.
_PIECES: Final = re.compile(r"[^A-Za-z\d]?[A-Za-z]+|\d+|[^A-Za-z\d]+")


def check_max_tokens(max_tokens: int, rules: TaskRules, renderer: Renderer | None = None) -> None:
    """Refuse a limit under which no valid answer fits."""

    def count(text: str) -> int:
        # Without a tokenizer, words, numbers and signs: the tokenizers of today do not put two of these into one token.
        return len(_PIECES.findall(text) if tokenizer is None else tokenizer.encode(text, add_special_tokens=False))

    tokenizer: Any = renderer.tokenizer if renderer is not None else None
    tokenizer = None if getattr(tokenizer, "is_estimate", False) else tokenizer
    ends = renderer.get_stop_sequences() if renderer is not None and tokenizer is not None else [0]
    answer = min(find_shortest_answers(rules), key=count)
    needed = count(answer) + min(1 if isinstance(end, int) else count(end) for end in ends)
    if max_tokens < needed:
        who = f", counted by the tokenizer of {tokenizer.name_or_path}" if tokenizer is not None else ""
        raise SciSciRLError(
            f"max_tokens is {max_tokens}, needs at least {needed}: so many tokens has the shortest valid answer under "
            f"the contract {rules.contract}, {answer}, with the end of its turn{who}."
        )
