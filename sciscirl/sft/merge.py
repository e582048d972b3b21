"""From a base model and an adapter to one model in sixteen bits that any server takes."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from sciscidata.storage import atomic_folder
from sciscirl.chat_format import load_tokenizer
from sciscirl.errors import SciSciRLError
from sciscirl.local_model import require_packages
from sciscirl.run_folder import RUN_FILE
from sciscirl.sft.base_model import Precision, load_trained_on

logger = logging.getLogger(__name__)

ADAPTER = "adapter"


def merge_adapter(run: Path, out: Path, *, dtype: Precision = "bfloat16", device: str = "cpu") -> Path:
    """Merge what a run of the ``peft`` backend has trained into its base model.

    Inference with DoRA unmerged takes more than twice as long, and vLLM takes no DoRA adapter at all.

    Args:
        run: the run's folder.
        out: a folder that does not exist yet; gets weights, configuration, tokenizer and chat template.
        dtype: of the merged weights.
        device: where to compute; the whole model has to fit there in ``dtype``.

    Returns:
        ``out``.

    Raises:
        SciSciRLError: if the folder holds no finished run of this backend, ``out`` exists, or the base model cannot
            be loaded.
        StorageError: if ``out`` cannot be written.
    """
    require_packages("peft")
    from peft import PeftModel

    settings = read_adapter_settings(run)
    if out.exists():
        msg = f"{out} exists already. Remove it, or merge into another folder."
        raise SciSciRLError(msg)
    base = load_trained_on(settings["model"], quantize=settings["quantize"], dtype=dtype, device=device)
    merged: Any = PeftModel.from_pretrained(base, run / ADAPTER)
    merged = merged.merge_and_unload(safe_merge=True)
    with atomic_folder(out) as folder:
        merged.save_pretrained(folder)
        load_tokenizer(settings["model"]).save_pretrained(folder)
    logger.info("merged %s into %s", run / ADAPTER, out)
    return out


def read_adapter_settings(run: Path) -> dict[str, Any]:
    """Read the settings of a run that has an adapter.

    Raises:
        SciSciRLError: if it is not the folder of such a run, or not finished.
    """
    file = run / RUN_FILE
    settings: dict[str, Any] = json.loads(file.read_text("utf-8"))["settings"] if file.is_file() else {}
    if settings.get("backend") != "peft":
        msg = f"{run} is not the folder of a run of train_sft.py --backend peft. Give the log_path of one."
        raise SciSciRLError(msg)
    if not (run / ADAPTER).is_dir():
        msg = f"{run} has no {ADAPTER} yet: the run has not ended. Resume it: resume=True."
        raise SciSciRLError(msg)
    return settings
