"""The model under an adapter: loaded as it is, or quantised to four bits, and back to sixteen for a merge."""

from __future__ import annotations

from typing import Any, Literal

import torch

from sciscirl.errors import SciSciRLError
from sciscirl.local_model import require_packages

Quantization = Literal["nf4", "none"]
Precision = Literal["bfloat16", "float16", "float32"]


def load_base_model(
    name: str,
    *,
    quantize: Quantization,
    dtype: Precision,
    device: str | None,
) -> Any:  # noqa: ANN401 (PreTrainedModel)
    """Load a model for training an adapter on it, or for merging one into it.

    Four bits are NF4 with double quantisation, as QLoRA has them, and stored in tensors of ``dtype``: FSDP shards only
    what has the type of the other weights, and a mixed precision with another one would turn them into noise.

    Args:
        name: on the Hugging Face hub, or a folder.
        quantize: ``"nf4"`` or ``"none"``.
        dtype: of the weights that are not quantised, and of what is computed.
        device: where to put it; None leaves it to whoever distributes it.

    Raises:
        SciSciRLError: if it cannot be loaded, or bitsandbytes is not installed.

    Source: Dettmers et al. 2023, QLoRA, arXiv:2305.14314; https://huggingface.co/docs/bitsandbytes/fsdp_qlora.
    """
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    more: dict[str, Any] = {}
    if quantize == "nf4":
        require_packages("bitsandbytes")
        more["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=getattr(torch, dtype),
            bnb_4bit_quant_storage=getattr(torch, dtype),
        )
    if device is not None:
        more["device_map"] = {"": device}
    try:
        return AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, dtype), **more)
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        msg = (
            f"the model {name!r} could not be loaded ({type(error).__name__}: {reason}). Check the name, the connection "
            "to huggingface.co and the free memory, or give a folder that holds the model."
        )
        raise SciSciRLError(msg) from error


def load_trained_on(name: str, *, quantize: Quantization, dtype: Precision, device: str) -> Any:  # noqa: ANN401
    """Load the weights that an adapter was trained on, unquantised: what four bits left of them.

    An adapter makes up for the rounding of its base, DoRA's magnitudes even are measured on it, so it belongs into the
    rounded weights, not into those from before. And not into four bits again, which would round the adapter away.

    Raises:
        SciSciRLError: as ``load_base_model``.

    Source: https://github.com/AnswerDotAI/fsdp_qlora, on merging.
    """
    model = load_base_model(name, quantize=quantize, dtype=dtype, device=device)
    return model.dequantize(dtype=getattr(torch, dtype)) if quantize != "none" else model
