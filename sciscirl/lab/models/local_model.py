"""Load a model into this process: as saved, quantised, or with an adapter."""

from __future__ import annotations

import importlib.util
import logging
import os
import pickle
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from warnings import catch_warnings, simplefilter

from sciscidata.errors import how_to_install
from sciscidata.storage.sums import check_sealed, read_json
from sciscirl.envs.model_folder import find_base_model, read_facts
from sciscirl.envs.models import ADAPTER_FILES, REMEDY, may_run_code
from sciscirl.envs.tokenizer import load_errors
from sciscirl.errors import SciSciRLError
from sciscirl.lab.hardware_options import Quantization
from sciscirl.lab.models.adapter_files import RUN_CONFIG, TRAINED_ON_FILE
from sciscirl.options import Precision

_SECONDS_WATCHED: Final = 0.5
_log = logging.getLogger(__name__)


def require_packages(*names: str, extras: str = "rl sft") -> None:
    """Make sure that packages of some extras are installed."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise SciSciRLError(f"{', '.join(missing)} is not installed. Run {how_to_install(*extras.split())}.")


def count_threads() -> int:
    """Count the cores at rest, or take OMP_NUM_THREADS: threads that wait for each other are many times slower."""
    import psutil
    import torch

    if "OMP_NUM_THREADS" in os.environ or torch.cuda.is_available():
        return torch.get_num_threads()
    # The load of the last minute would count what this process itself has just done.
    cores_at_rest = (os.cpu_count() or 1) * (1 - psutil.cpu_percent(_SECONDS_WATCHED) / 100)
    return max(1, min(torch.get_num_threads(), round(cores_at_rest)))


def set_threads(folder: Path, *, resume: bool) -> int:
    """Compute with as many threads as cores are at rest, or as a resumed run began with: so its sums stay."""
    import torch

    began_with = None
    if resume and "OMP_NUM_THREADS" not in os.environ:
        with suppress(OSError, ValueError, AttributeError):  # then it is a run from before this was recorded
            began_with = read_json(folder / RUN_CONFIG).get("n_threads")
    if not isinstance(began_with, int) or not 0 < began_with <= (os.cpu_count() or 1):
        began_with = count_threads()
    torch.set_num_threads(began_with)
    return began_with


def load_base_model(
    name: str, *, quantize: Quantization = "none", dtype: Precision | None = None, device: str | None = None
) -> Any:  # noqa: ANN401 (PreTrainedModel)
    """Load a causal language model, from the Hugging Face hub or a folder; ``dtype`` of None: as saved.

    Four bits are NF4 with double quantisation as in QLoRA (Dettmers et al. 2023, arXiv:2305.14314).
    """
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    from transformers.utils.logging import disable_progress_bar

    if not sys.stderr.isatty():
        disable_progress_bar()
    more: dict[str, Any] = {"dtype": getattr(torch, dtype) if dtype else "auto", "trust_remote_code": may_run_code()}
    if quantize == "nf4":
        require_packages("bitsandbytes")
        kind = getattr(torch, dtype or "bfloat16")
        more["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=kind,
            bnb_4bit_quant_storage=kind,
        )
    if device is not None and device.startswith("cuda") and not torch.cuda.is_available():
        raise SciSciRLError(f"PyTorch sees no CUDA device here, so not {device}: choose another")
    try:
        torch.device(device or "cpu")
    except RuntimeError as error:
        raise SciSciRLError(f"device is {device!r}, needs one that PyTorch knows: cpu, cuda, cuda:1") from error
    if device:
        require_packages("accelerate")  # Transformers needs it to place weights
    with load_errors("model", name):
        if Path(name).is_dir():  # an adapter trained on it records the name, and is used from other folders
            name = str(Path(name).absolute())
        more |= {"device_map": {"": device}} if device else {}
        loaded: Any = AutoModelForCausalLM.from_pretrained(name, **more, output_loading_info=True)
        model, loading = loaded
        if lacking := sorted(loading["missing_keys"]):
            raise ValueError(f"its files lack {len(lacking):,} tensors, for example {lacking[0]}")
    for module in model.modules():
        # Where a CPU has AVX512-BF16, bitsandbytes 0.50 repacks four-bit weights in the first pass without gradients.
        # A later one with gradients then has none, and DoRA reads the packed weights as if they were not.
        if hasattr(module, "support_avx512bf16_for_cpu"):
            vars(module)["support_avx512bf16_for_cpu"] = False
    return model


def load_local_model(folder: Path, *, dtype: Precision | None = None, device: str | None = None) -> Any:  # noqa: ANN401
    """Load a model, or an adapter on its base model, to be asked; ``dtype`` of None: as saved, or as it was trained.

    An adapter trained on a quantised base corrects its rounding, and DoRA's magnitudes are measured on it. So it gets
    the rounded weights, dequantised.
    """
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    base, trained_on = find_base_model(folder), folder / TRAINED_ON_FILE
    if base == str(folder):
        return load_base_model(base, dtype=dtype, device=device).eval()
    require_packages("peft")
    # PEFT would take the folder's name for one on the hub, and ask there.
    if not any((folder / name).is_file() for name in ("adapter_model.safetensors", "adapter_model.bin")):
        raise SciSciRLError(f"{folder} is an adapter without weights: it has no {ADAPTER_FILES[1]}. {REMEDY}")
    form: dict[str, Any] = {"quantize": "none", "dtype": dtype}
    if not trained_on.is_file():
        _log.warning("%s does not say what it was trained on: its base model is taken as saved, not quantised.", folder)
    else:
        form = read_facts(trained_on, *form)
    model = load_base_model(base, quantize=form["quantize"], dtype=form["dtype"], device=device)
    if form["quantize"] != "none":
        model = model.dequantize(dtype=getattr(torch, form["dtype"]))
    model = load_adapter(model, folder)
    return (model.to(getattr(torch, dtype)) if dtype else model).eval()


def load_adapter(model: Any, folder: Path, *, is_trainable: bool = False) -> Any:  # noqa: ANN401 (PeftModel)
    """Put an adapter on its base model; SciSciRLError if its tensors are not those that it needs."""
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import safe_open

    weights = folder / ADAPTER_FILES[1]
    check_sealed(weights)
    with load_errors("adapter", str(folder)):
        with catch_warnings():
            simplefilter("ignore")  # of missing tensors, which is an error below
            model = PeftModel.from_pretrained(model, folder, is_trainable=is_trainable)
        if weights.is_file():
            with safe_open(weights, "pt") as file:
                names = {name for name in file.keys() if ".lora_" in name or "embed" not in name}  # noqa: SIM118
            needed = set(get_peft_model_state_dict(model, save_embedding_layers=False))
            if wrong := sorted(names ^ needed):
                what = "lacks" if wrong[0] in needed else "has the strange"
                raise ValueError(f"{weights.name} {what} tensor {wrong[0]}, one of {len(wrong):,} that do not fit")
    return model


@contextmanager
def refuse_pickles(run: Path) -> Generator[None]:
    """Say in one line that a checkpoint has a pickle that PyTorch does not load, because it could run code."""
    try:
        yield
    except pickle.UnpicklingError as error:
        raise SciSciRLError(
            f"a file of the last checkpoint in {run} was not written by this run, and is not loaded: it could run "
            "code. Remove this checkpoint, and resume from the one before: behavior_if_log_dir_exists=resume."
        ) from error
