"""Find the chat format that writes a prompt as the chat template of a tokenizer does."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.tokenizer_utils import Tokenizer

from sciscirl.errors import SciSciRLError
from sciscirl.task.prompts import MINI_EXAMPLES, render_prompt

#: The cookbook's chat formats that may be a model's own: first those that let it answer at once.
_FORMATS: Final = (
    "qwen3_instruct", "llama3", "qwen3_disable_thinking", "qwen3_5_disable_thinking", "qwen3_8_disable_thinking",
    "deepseekv3", "deepseekv4_1_disable_thinking", "kimi_k25_disable_thinking", "kimi_k26_disable_thinking",
    "nemotron3_disable_thinking", "nemotron3_ultra_disable_thinking", "gpt_oss_no_sysprompt", "qwen3", "qwen3_5",
    "kimi_k2", "kimi_k25", "nemotron3", "deepseekv3_thinking", "role_colon",
)  # fmt: skip

_TEMPLATE_S: Final = 3  # a real one takes milliseconds


def match_template(tokenizer: Tokenizer) -> str | None:
    """Name the first chat format that writes an invented paper as the tokenizer's own chat template does, or None."""
    if not getattr(tokenizer, "chat_template", None):
        return None
    return next((name for name in _FORMATS if writes_as_template(tokenizer, name)), None)


def writes_as_template(tokenizer: Tokenizer, renderer_name: str) -> bool:
    """Say whether a chat format writes a prompt with the same tokens as the tokenizer's chat template."""
    messages: list[Any] = render_prompt(MINI_EXAMPLES[0].view, "plain", "two_keys")
    try:
        with _limited_time():
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        own = tokenizer.encode(str(text), add_special_tokens=False)
        return get_renderer(renderer_name, tokenizer).build_generation_prompt(messages).to_ints() == own
    except SciSciRLError:
        raise
    except Exception:  # formats of other models fail in ways of their own
        return False


@contextmanager
def _limited_time() -> Generator[None]:
    """Stop a chat template that computes for too long, by a trace function: it is a program of a stranger."""
    end = time.thread_time() + _TEMPLATE_S

    def trace(_: FrameType, __: str, ___: object) -> Any:  # noqa: ANN401
        if time.thread_time() > end:
            raise SciSciRLError(
                f"the chat template of this model computes for more than {_TEMPLATE_S} s over one prompt. Name a chat "
                "format instead: renderer=role_colon, and remove the template."
            )
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
