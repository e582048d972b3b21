"""The tokenizer and the chat format (renderer) of a model."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tinker_cookbook import model_info, tokenizer_utils
from tinker_cookbook.exceptions import ConfigurationError, RendererError
from tinker_cookbook.renderers import Renderer, get_renderer
from tinker_cookbook.tokenizer_utils import Tokenizer, get_tokenizer

from sciscidata.options.did_you_mean import find_close
from sciscidata.terminal.messages import one_line
from sciscirl.errors import SciSciRLError
from sciscirl.lab_parts import MODEL_CODE, SHORT_NAMES, load_part

_log = logging.getLogger(__name__)
#: What helps where a file of an adapter is damaged.
REMEDY: Final = (
    "Put the files back as they were; the adapter of a run is made anew where the run is resumed: resume=True."
)
_is_dry: ContextVar[bool] = ContextVar("is_dry", default=False)
_reached: Final = set[str]()  # hubs, by this process
_TIMEOUT_SECONDS: Final = 5.0


def choose_renderer(model_name: str) -> str:
    """Name the chat format of a model, without thinking if possible: the contracts allow nothing before the JSON.

    Of a folder it is the format that writes a prompt as the model's own chat template does.
    """
    if recommended := _recommend(model_name):
        return next((name for name in recommended if name.endswith("_disable_thinking")), recommended[0])
    if model_name in SHORT_NAMES:
        return SHORT_NAMES[model_name]
    if Path(model_name).is_dir():
        if found := load_part("match_template")(load_tokenizer(model_name)):
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
    if not has_template or renderer_name in recommended or load_part("writes_as_template")(tokenizer, renderer_name):
        return
    better = next(iter(recommended), None) or load_part("match_template")(tokenizer)
    _log.warning(
        "renderer %r writes another prompt than the chat template of %s. The model may answer worse than it can.%s",
        renderer_name,
        model_name,
        f" Its own is renderer={better}." if better else "",
    )


def load_tokenizer(model_name: str) -> Tokenizer:
    """Load a tokenizer from the Hugging Face hub, its cache, or a folder; from now on, so does the cookbook."""
    tokenizer_utils._get_hf_tokenizer = _load  # pyright: ignore[reportPrivateUsage]
    with load_errors("tokenizer of", model_name):
        tokenizer = get_tokenizer(model_name)
        # Without the tokenizer's own files, Transformers makes one that knows nothing.
        if "{" not in str(tokenizer.decode(tokenizer.encode("{", add_special_tokens=False))):
            raise ValueError("it cannot write a brace, so its vocabulary is missing")
        return tokenizer


_load_with_code: Final = tokenizer_utils._get_hf_tokenizer  # pyright: ignore[reportPrivateUsage]


def _load(model_name: str) -> Tokenizer:
    return _load_with_code(model_name) if may_run_code() else _load_without_code(model_name)


@cache
def _load_without_code(model_name: str) -> Tokenizer:
    from transformers import AutoTokenizer

    name = model_name.partition(":")[0]
    if name.startswith("moonshotai/Kimi-K2"):
        raise ValueError(f"the tokenizer of {name} is code (trust_remote_code)")
    if name.startswith("meta-llama/Llama-3"):  # as the cookbook does, because Meta's own needs an account
        name = "thinkingmachineslabinc/meta-llama-3-instruct-tokenizer"
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if "auto_map" in getattr(tokenizer, "init_kwargs", {}):
        _log.warning("%s brings a tokenizer of its own as code, which was not run: one of Transformers is used.", name)
    return tokenizer


def make_renderer(model_name: str, renderer_name: str) -> Renderer:
    """Make the renderer of a model; it can be pickled. A dry run estimates a tokenizer that is not on this machine."""
    try:
        tokenizer: Any = load_tokenizer(model_name)
    except SciSciRLError as error:
        if not is_dry_run() or Path(model_name).is_dir() or "--trust-remote-code" in str(error):
            raise
        tokenizer = load_part("EstimatedTokenizer")(model_name)
    try:
        return get_renderer(renderer_name, tokenizer, model_name=model_name)
    except (RendererError, AssertionError) as error:
        raise SciSciRLError(
            f"renderer {renderer_name!r} does not work with {model_name!r} ({one_line(error)}). Name another: "
            "renderer=, see tinker_cookbook.renderers.get_renderer."
        ) from error


def may_run_code() -> bool:
    """Say whether code that a model brings may be run; the cookbook reads the same variable."""
    return os.environ.get(MODEL_CODE, "").lower() in ("1", "true", "yes")


@contextmanager
def load_errors(what: str, name: str) -> Generator[None]:
    """Say in one line that a model, tokenizer or adapter (``what``) is not there, or damaged."""
    try:
        with never_waiting() if name.count("/") < 2 and not Path(name).is_dir() else nullcontext():
            yield
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise SciSciRLError(
                f"the {what} {name!r} needs Python code that it brings, which is not run unasked. If you have read it "
                f"and trust it, give --trust-remote-code, or set {MODEL_CODE}=1. Else choose another model."
            ) from error
        if Path(name).is_dir():
            remedy = load_part("advise_on_folder")(Path(name))
        else:
            remedy = (
                "Check the name, the connection to huggingface.co (HTTPS_PROXY for a proxy, HF_TOKEN for a model that "
                "wants an account) and the free memory. Without a network, give a folder that holds the model."
            )
        raise SciSciRLError(
            f"the {what} {name!r} could not be loaded ({type(error).__name__}: {one_line(error)}). {remedy}"
        ) from error


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
