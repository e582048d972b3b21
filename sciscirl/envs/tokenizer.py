"""The tokenizer and the renderer of a model, and what is said where they cannot be loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tinker_cookbook import tokenizer_utils
from tinker_cookbook.exceptions import RendererError
from tinker_cookbook.renderers import Renderer, get_renderer
from tinker_cookbook.tokenizer_utils import Tokenizer, get_tokenizer

from sciscidata.terminal.messages import one_line
from sciscirl.envs.models import MODEL_CODE, may_run_code
from sciscirl.errors import SciSciRLError

_log = logging.getLogger(__name__)
#: In a dry run: makes an estimate of a tokenizer that is not on this machine.
_estimate: ContextVar[Callable[[str], Any] | None] = ContextVar("estimate", default=None)
_reached: Final = set[str]()  # hubs, by this process
_TIMEOUT_SECONDS: Final = 5.0


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
        estimate = _estimate.get()
        if estimate is None or Path(model_name).is_dir() or "--trust-remote-code" in str(error):
            raise
        tokenizer = estimate(model_name)
    try:
        return get_renderer(renderer_name, tokenizer, model_name=model_name)
    except (RendererError, AssertionError) as error:
        raise SciSciRLError(
            f"renderer {renderer_name!r} does not work with {model_name!r} ({one_line(error)}). Name another: "
            "renderer=, see tinker_cookbook.renderers.get_renderer."
        ) from error


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
            from sciscirl.envs.model_folder import advise_on_folder  # where a folder is damaged only

            remedy = advise_on_folder(Path(name))
        else:
            remedy = (
                "Check the name, the connection to huggingface.co (HTTPS_PROXY for a proxy, HF_TOKEN for a model that "
                "wants an account) and the free memory. Without a network, give a folder that holds the model."
            )
        raise SciSciRLError(
            f"the {what} {name!r} could not be loaded ({type(error).__name__}: {one_line(error)}). {remedy}"
        ) from error


@contextmanager
def estimating_tokenizers(estimate: Callable[[str], Any]) -> Generator[None]:
    """Ask no server in the block; ``estimate`` makes what stands for a tokenizer that is not on this machine."""
    token = _estimate.set(estimate)
    try:
        yield
    finally:
        _estimate.reset(token)


@contextmanager
def never_waiting() -> Generator[None]:
    """If the hub cannot be reached, read only what is on this machine; asking would take a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or (_estimate.get() is None and _reaches(constants.ENDPOINT)):
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
