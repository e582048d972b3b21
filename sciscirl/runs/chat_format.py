"""Choose and load the tokenizer and the chat format (renderer) of a model."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tinker_cookbook import model_info, tokenizer_utils
from tinker_cookbook.exceptions import ConfigurationError, RendererError
from tinker_cookbook.renderers import Renderer, get_renderer
from tinker_cookbook.tokenizer_utils import Tokenizer, get_tokenizer

from sciscirl.errors import SciSciRLError
from sciscirl.runs.model_files import SHORT_NAMES, load_errors, may_run_code
from sciscirl.runs.offline import EstimatedTokenizer, is_dry_run
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

    The cookbook may not know a folder by name. Then it is the format that writes a prompt as the model's own chat
    template does.

    Example:
        >>> choose_renderer("Qwen/Qwen3-8B")
        'qwen3_disable_thinking'
    """
    try:
        names = model_info.get_recommended_renderer_names(model_name)
    except (ConfigurationError, KeyError, ValueError) as error:
        if model_name in SHORT_NAMES:
            return SHORT_NAMES[model_name]
        is_folder = Path(model_name).is_dir()
        if is_folder and (found := match_template(load_tokenizer(model_name))):
            return found
        keys = {key: name for name in list_known_models() for key in (name.lower(), name.rpartition("/")[2].lower())}
        near = ", ".join(dict.fromkeys(keys[key] for key in get_close_matches(model_name.lower(), keys, cutoff=0.7)))
        if is_folder:
            told = (
                f"the cookbook knows no chat format for {model_name!r}, and none writes a prompt as its chat template "
                "does."
            )
        else:
            told = (
                f"{model_name!r} is neither a known model name nor a folder.{f' Did you mean {near}?' if near else ''}"
            )
            told += " Another model of the hub needs its chat format."
        msg = (
            f"{told} Name one: renderer=qwen3, renderer=llama3, renderer=role_colon or another of "
            "tinker_cookbook.renderers.get_renderer."
        )
        raise SciSciRLError(msg) from error
    return next((name for name in names if name.endswith("_disable_thinking")), names[0])


def list_known_models() -> list[str]:
    """List the models whose chat format is known, and those that ``sciscirl model`` brings by a short name."""
    tables = [make() for name, make in vars(model_info).items() if re.fullmatch(r"get_\w+_info", name)]
    return [*SHORT_NAMES, *(f"{about.organization}/{name}" for table in tables for name, about in table.items())]


def match_template(tokenizer: Tokenizer) -> str | None:
    """Name the first chat format whose prompt has the tokens of the tokenizer's own chat template; None: there is none.

    Both write the same instructions for an invented paper.
    """
    if not getattr(tokenizer, "chat_template", None):
        return None
    return next((name for name in _FORMATS if writes_as_template(tokenizer, name)), None)


def warn_of_renderer(model_name: str, renderer_name: str | None) -> None:
    """Warn if a chat format that was given by hand writes another prompt than the model's own chat template.

    None is warned of where the cookbook recommends the format for the model, or where the tokenizer has no template.
    """
    if renderer_name is None:
        return
    try:
        recommended = model_info.get_recommended_renderer_names(model_name)
    except (ConfigurationError, KeyError, ValueError):
        recommended = []
    tokenizer = load_tokenizer(model_name)
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
    """Stop a chat template, which is a program of a stranger, when it computes for too long.

    It runs as Python code in this thread, so a trace function can end it.
    """
    end = time.thread_time() + _TEMPLATE_S

    def trace(_: FrameType, __: str, ___: object) -> Any:  # noqa: ANN401
        if time.thread_time() > end:
            msg = (
                f"the chat template of this model computes for more than {_TEMPLATE_S} s over one prompt. Name a chat "
                "format instead: renderer=role_colon, and remove the template."
            )
            raise SciSciRLError(msg)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def load_tokenizer(model_name: str) -> Tokenizer:
    """Load a tokenizer from the Hugging Face hub, its cache, or a folder.

    The cookbook, which runs the code of every folder, gets it by the same way from now on.
    """
    tokenizer_utils._get_hf_tokenizer = _load  # pyright: ignore[reportPrivateUsage]
    with load_errors("tokenizer of", model_name):
        return get_tokenizer(model_name)


_load_with_code: Final = tokenizer_utils._get_hf_tokenizer  # pyright: ignore[reportPrivateUsage]


def _load(model_name: str) -> Tokenizer:
    return _load_with_code(model_name) if may_run_code() else _load_without_code(model_name)


@cache
def _load_without_code(model_name: str) -> Tokenizer:
    from transformers import AutoTokenizer

    name = model_name.partition(":")[0]
    if name.startswith("moonshotai/Kimi-K2"):
        msg = f"the tokenizer of {name} is code (trust_remote_code)"
        raise ValueError(msg)
    if name.startswith("meta-llama/Llama-3"):  # as the cookbook does, because Meta's own needs an account
        name = "thinkingmachineslabinc/meta-llama-3-instruct-tokenizer"
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if "auto_map" in getattr(tokenizer, "init_kwargs", {}):
        _log.warning("%s brings a tokenizer of its own as code, which was not run: one of Transformers is used.", name)
    return tokenizer


def say_estimate(renderer: Renderer) -> list[str]:
    """Say that the tokens of a dry run are estimated, if they are."""
    if not isinstance(renderer.tokenizer, EstimatedTokenizer):
        return []
    return [f"all numbers of tokens are estimates: the tokenizer of {renderer.tokenizer.name_or_path} is not here yet"]


def make_renderer(model_name: str, renderer_name: str) -> Renderer:
    """Make the renderer of a model; it can be pickled. A dry run estimates a tokenizer that is not on this machine."""
    try:
        tokenizer: Any = load_tokenizer(model_name)
    except SciSciRLError as error:
        if not is_dry_run() or Path(model_name).is_dir() or "--trust-remote-code" in str(error):
            raise
        tokenizer = EstimatedTokenizer(model_name)
    try:
        return get_renderer(renderer_name, tokenizer, model_name=model_name)
    except (RendererError, AssertionError) as error:
        reason = " ".join(str(error).split())[:200]
        msg = (
            f"renderer {renderer_name!r} does not work with {model_name!r} ({reason}). Name another: renderer=, see "
            "tinker_cookbook.renderers.get_renderer."
        )
        raise SciSciRLError(msg) from error
