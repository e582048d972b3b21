"""An answer as tokens behind its prompt, and which of these tokens say the label."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tinker_cookbook.exceptions import RendererError
from tinker_cookbook.renderers import Message, Renderer
from tinker_cookbook.tokenizer_utils import Tokenizer

from sciscirl.envs.env import read_action
from sciscirl.errors import SciSciRLError


def place_answer(question: Sequence[Message], answer: str, renderer: Renderer) -> tuple[list[int], list[int]]:
    """Return the tokens of a prompt, and of an answer behind it with its turn's end.

    SciSciRLError if the chat format writes anything else there: a model would be asked for, or would learn, that.
    """
    prompt = renderer.build_generation_prompt([*question]).to_ints()
    try:
        tokens = renderer.build_supervised_example([*question, Message(role="assistant", content=answer)])[0].to_ints()
    except RendererError as error:
        raise _unfit(renderer) from error
    # Some renderers put thinking between the two, or mark turns differently.
    if tokens[: len(prompt)] != prompt or read_action(tokens[len(prompt) :], renderer) != (answer, True):
        raise _unfit(renderer)
    return prompt, tokens[len(prompt) :]


def find_label_tokens(answer: Sequence[int], columns: Iterable[str], tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the places of the tokens that say the labels, with their closing quotes; none under ``probabilities``."""
    tokens = list(answer)
    text = str(tokenizer.decode(tokens))
    ends = [len(str(tokenizer.decode(tokens[: n + 1]))) for n in range(len(tokens))]
    starts = [0, *ends[:-1]]
    places: list[int] = []
    for column in columns:
        if said := re.search(rf'"{re.escape(column)}":\s*"((?:[^"\\]|\\.)*")', text):
            low, high = said.span(1)
            places += [n for n, (start, end) in enumerate(zip(starts, ends, strict=True)) if start < high and end > low]
    return tuple(places)


def _unfit(renderer: Renderer) -> SciSciRLError:
    return SciSciRLError(
        f"{type(renderer).__name__} does not write exactly the answer behind the prompt that it samples from. A model "
        "would learn, or be asked for, something else. Name another: renderer=, without thinking if there is one."
    )
