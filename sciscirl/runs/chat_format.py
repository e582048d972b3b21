"""Choose and load the tokenizer and the chat format (renderer) of a model."""

from __future__ import annotations

from tinker_cookbook import model_info
from tinker_cookbook.exceptions import ConfigurationError, RendererError
from tinker_cookbook.renderers import Renderer, get_renderer
from tinker_cookbook.tokenizer_utils import Tokenizer, get_tokenizer

from sciscirl.errors import SciSciRLError
from sciscirl.runs.local_model import load_errors


def choose_renderer(model_name: str) -> str:
    """Name the chat format of a model, without thinking if possible: the contracts allow nothing before the JSON.

    Example:
        >>> choose_renderer("Qwen/Qwen3-8B")
        'qwen3_disable_thinking'
    """
    try:
        names = model_info.get_recommended_renderer_names(model_name)
    except (ConfigurationError, KeyError, ValueError) as error:
        msg = (
            f"the cookbook knows no chat format for {model_name!r}. Name one: renderer=qwen3, renderer=llama3, "
            "renderer=role_colon or another of tinker_cookbook.renderers.get_renderer."
        )
        raise SciSciRLError(msg) from error
    return next((name for name in names if name.endswith("_disable_thinking")), names[0])


def load_tokenizer(model_name: str) -> Tokenizer:
    """Load a tokenizer from the Hugging Face hub, its cache, or a folder."""
    with load_errors("tokenizer of", model_name):
        return get_tokenizer(model_name)


def make_renderer(model_name: str, renderer_name: str) -> Renderer:
    """Make the renderer of a model; it can be pickled."""
    tokenizer = load_tokenizer(model_name)
    try:
        return get_renderer(renderer_name, tokenizer, model_name=model_name)
    except (RendererError, AssertionError) as error:
        reason = " ".join(str(error).split())[:200]
        msg = (
            f"renderer {renderer_name!r} does not work with {model_name!r} ({reason}). Name another: renderer=, see "
            "tinker_cookbook.renderers.get_renderer."
        )
        raise SciSciRLError(msg) from error
