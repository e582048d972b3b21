"""Merge an adapter into its base model: one model in sixteen bits that any server takes."""

from __future__ import annotations

import logging
from pathlib import Path

from sciscidata.storage import atomic_folder
from sciscirl.errors import SciSciRLError
from sciscirl.runs.chat_format import load_tokenizer
from sciscirl.runs.folder import RUN_FILE, find_adapter
from sciscirl.runs.local_model import Precision, find_base_model, load_local_model

logger = logging.getLogger(__name__)


def merge_adapter(adapter: Path, out: Path, *, dtype: Precision = "bfloat16", device: str = "cpu") -> Path:
    """Merge an adapter, or that of a run, into the weights that it was trained on; ``out`` must not exist yet.

    A quantised base is dequantised to sixteen bits first: merged into four bits, the adapter would be rounded away.
    Unmerged, inference with DoRA takes more than twice as long, and vLLM does not support it. The whole model has to
    fit on the device in ``dtype``. ``out`` gets weights, configuration, tokenizer and chat template.

    Source: https://github.com/AnswerDotAI/fsdp_qlora, on merging.
    """
    if (adapter / RUN_FILE).is_file():
        adapter = find_adapter(adapter)
    base = find_base_model(adapter)
    if base == str(adapter):
        msg = f"{adapter} is a whole model, with nothing to merge. Give the folder of an adapter, or of a run."
        raise SciSciRLError(msg)
    if out.exists():
        msg = f"{out} exists already. Remove it, or merge into another folder."
        raise SciSciRLError(msg)
    merged = load_local_model(adapter, dtype=dtype, device=device).merge_and_unload(safe_merge=True)
    with atomic_folder(out) as folder:
        merged.save_pretrained(folder)
        load_tokenizer(base).save_pretrained(folder)
    logger.info("merged %s into %s", adapter, out)
    return out
