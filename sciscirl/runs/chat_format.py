"""The chat format (renderer) of a model: the one that the cookbook recommends, or that writes as its template."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tinker_cookbook import model_info
from tinker_cookbook.exceptions import ConfigurationError
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.tokenizer_utils import Tokenizer

from sciscidata.options.did_you_mean import find_close
from sciscirl.envs.models import SHORT_NAMES
from sciscirl.envs.tokenizer import load_tokenizer
from sciscirl.errors import SciSciRLError
from sciscirl.task.prompts import MINI_EXAMPLES, render_prompt

_log = logging.getLogger(__name__)
#: The cookbook's chat formats that may be a model's own: first those that let it answer at once.
_FORMATS: Final = (
    "qwen3_instruct", "llama3", "qwen3_disable_thinking", "qwen3_5_disable_thinking", "qwen3_8_disable_thinking",
    "deepseekv3", "deepseekv4_1_disable_thinking", "kimi_k25_disable_thinking", "kimi_k26_disable_thinking",
    "nemotron3_disable_thinking", "nemotron3_ultra_disable_thinking", "gpt_oss_no_sysprompt", "qwen3", "qwen3_5",
    "kimi_k2", "kimi_k25", "nemotron3", "deepseekv3_thinking", "role_colon",
)  # fmt: skip
_TEMPLATE_S: Final = 3  # a real one takes milliseconds


def choose_renderer(model_name: str) -> str:
    """Name the chat format of a model, without thinking if possible: the contracts allow nothing before the JSON.

    For a folder it is the format that writes a prompt as the model's own chat template does.
    """
    if recommended := _recommend(model_name):
        return next((name for name in recommended if name.endswith("_disable_thinking")), recommended[0])
    if model_name in SHORT_NAMES:
        return SHORT_NAMES[model_name]
    if Path(model_name).is_dir():
        if found := match_template(load_tokenizer(model_name)):
            return found
        unlike = "none writes a prompt as its chat template does."
        why = f"the cookbook knows no chat format for {model_name!r}, and {unlike}"
    else:
        tables = [make() for name, make in vars(model_info).items() if re.fullmatch(r"get_\w+_info", name)]
        known = [*SHORT_NAMES, *(f"{about.organization}/{name}" for table in tables for name, about in table.items())]
        names = {key: name for name in known for key in (name, name.rpartition("/")[2])}
        close = find_close(model_name, names)
        near = f" Did you mean {names[close]}?" if close else ""
        why = f"{model_name!r} is neither a known model name nor a folder.{near} Another model of the hub needs its "
        why += "chat format."
    raise SciSciRLError(
        f"{why} Name one: renderer=qwen3, renderer=llama3, renderer=role_colon or another of "
        "tinker_cookbook.renderers.get_renderer."
    )


def _recommend(model_name: str) -> list[str]:
    try:
        return model_info.get_recommended_renderer_names(model_name)
    except (ConfigurationError, KeyError, ValueError):
        return []


def warn_of_renderer(model_name: str, renderer_name: str | None) -> None:
    """Warn if a chat format that was given by hand writes another prompt than the model's own chat template."""
    if renderer_name is None:
        return
    recommended, tokenizer = _recommend(model_name), load_tokenizer(model_name)
    has_template = bool(getattr(tokenizer, "chat_template", None))
    if not has_template or renderer_name in recommended or writes_as_template(tokenizer, renderer_name):
        return
    better = next(iter(recommended), None) or match_template(tokenizer)
    _log.warning(
        "renderer %r writes another prompt than the chat template of %s. The model may answer worse than it can.%s",
        renderer_name,
        model_name,
        f" Its own is renderer={better}." if better else "",
    )


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
