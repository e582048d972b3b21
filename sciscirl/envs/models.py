"""Models: their short names, the files of an adapter, and whether code that one brings may be run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

#: Models that ``sciscirl model`` brings by a short name, and their chat format.
SHORT_NAMES: Final[Mapping[str, str]] = MappingProxyType({"smollm2": "qwen3_instruct"})
#: The variable that says whether code that a model brings may be run; the cookbook reads it, too.
MODEL_CODE: Final = "HF_TRUST_REMOTE_CODE"
#: The files of an adapter that was trained on one's own hardware.
ADAPTER_FILES: Final = ("adapter_config.json", "adapter_model.safetensors")
#: What helps where a file of an adapter is damaged.
REMEDY: Final = (
    "Put the files back as they were. A run that is resumed makes its adapter anew: behavior_if_log_dir_exists=resume."
)


def may_run_code() -> bool:
    """Say whether code that a model brings may be run."""
    return os.environ.get(MODEL_CODE, "").lower() in ("1", "true", "yes")
