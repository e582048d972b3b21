"""Merge what a run has trained into its base model, in sixteen bits that any server takes, with a card."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sciscidata.storage import atomic_folder
from sciscirl.errors import RunFolderError, SciSciRLError
from sciscirl.lab.models.adapter_files import find_adapter, find_base_model
from sciscirl.lab.models.local_model import load_local_model
from sciscirl.lab.sft.download import download_adapter
from sciscirl.lab.sft.model_card import render_card
from sciscirl.options import Precision
from sciscirl.runs.chat_format import load_errors, load_tokenizer
from sciscirl.runs.folder import (
    ADAPTER,
    ADAPTER_FILES,
    RUN_FILE,
    find_step,
    is_local,
    list_weights,
    read_checkpoints,
    read_facts,
)

logger = logging.getLogger(__name__)
_CARD = "README.md"
_HALVES = (".lora_A.weight", ".lora_B.weight")


def merge_adapter(
    adapter: Path,
    out: Path,
    *,
    dtype: Precision = "bfloat16",
    device: str = "cpu",
    step: int | None = None,
    base_url: str | None = None,
) -> Path:
    """Merge an adapter, or that of a run, also on a Tinker server, into the weights that it was trained on.

    A quantised base is dequantised to sixteen bits first: merged into four bits, the adapter would be rounded away.
    Unmerged, inference with DoRA takes more than twice as long, and vLLM does not support it. The whole model has to
    fit on the device. A run gets a card with its release, step and metrics. Source:
    https://github.com/AnswerDotAI/fsdp_qlora, on merging.
    """
    if out.exists():
        raise SciSciRLError(f"{out} exists already. Remove it, or merge into another folder.")
    run = adapter if (adapter / RUN_FILE).is_file() else None
    if run is not None and not (run / ADAPTER).exists() and not is_local(read_facts(run)["settings"]):
        return _merge_from_server(run, out, dtype=dtype, device=device, step=step, base_url=base_url)
    if base_url is not None or (step is not None and run is None):
        name = "base_url" if base_url is not None else "step"
        raise SciSciRLError(f"{name} has no effect: the adapter of {adapter} lies on this machine. Leave it out.")
    if run is not None:
        weights = list_weights(run)
        if step is not None and step not in weights:
            raise _no_step(run, step, weights)
        adapter = find_adapter(run) if step is None else Path(weights[step])
        step = step if step is not None else max((one for one in weights if one is not None), default=None)
    base = find_base_model(adapter)
    if base == str(adapter):
        raise SciSciRLError(
            f"{adapter} is a whole model, with nothing to merge. Give the folder of an adapter, or of a run."
        )
    merged = load_local_model(adapter, dtype=dtype, device=device).merge_and_unload(safe_merge=True)
    with atomic_folder(out) as folder:
        merged.save_pretrained(folder)
        load_tokenizer(base).save_pretrained(folder)
        if run is not None:
            card = render_card(run, step=step, weights=adapter.relative_to(run).as_posix(), dtype=dtype)
            (folder / _CARD).write_text(card, "utf-8")
    logger.info("merged %s into %s", adapter, out)
    return out


def _merge_from_server(
    run: Path, out: Path, *, dtype: Precision, device: str, step: int | None, base_url: str | None
) -> Path:
    if device != "cpu":
        raise SciSciRLError(f"device is {device!r}, but an adapter from a server is merged on the CPU. Leave it out.")
    records = {find_step(run, record): record for record in read_checkpoints(run)}
    if not records:
        raise RunFolderError(f"{run} has no checkpoint to merge. Wait for one, or resume the run.")
    if step is not None and step not in records:
        raise _no_step(run, step, records)
    chosen = [*records][-1] if step is None else step
    from tinker_cookbook.weights import build_hf_model

    base = str(read_facts(run)["settings"].get("model"))
    with tempfile.TemporaryDirectory(prefix="sciscirl-") as place, atomic_folder(out) as folder:
        weights = download_adapter(records[chosen], Path(place), base_url)
        folder.rmdir()  # the cookbook makes it
        with load_errors("model", base):
            _check_tensors(Path(place) / ADAPTER_FILES[1], Path(base))
            build_hf_model(
                base_model=base, adapter_path=place, output_path=str(folder), dtype=dtype, merge_strategy="full"
            )
        (folder / _CARD).write_text(render_card(run, step=chosen, weights=weights, dtype=dtype), "utf-8")
    logger.info("merged %s into %s", weights, out)
    return out


def _check_tensors(adapter: Path, base: Path) -> None:
    """Check that no half of a pair is missing, nor any layer of the adapter's kinds (ValueError)."""
    held = _list_tensors(adapter)
    left, right = ({name.removesuffix(end) for name in held if name.endswith(end)} for end in _HALVES)
    whole = left & right
    wrong = {name for name in held if name.removesuffix(_HALVES[0]).removesuffix(_HALVES[1]) not in whole}
    kinds = {name.rpartition(".")[2] for name in whole if ".layers." in name}
    for path in base.glob("*.safetensors"):  # a model on the hub is not looked into
        layers = {f"base_model.model.{name.removesuffix('.weight')}" for name in _list_tensors(path)}
        wrong |= {name for name in layers - whole if ".layers." in name and name.rpartition(".")[2] in kinds}
    if wrong:
        raise ValueError(
            f"the adapter lacks a tensor, or one has a strange name: {min(wrong)} is one of {len(wrong):,}"
        )


def _list_tensors(path: Path) -> set[str]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return set(file.keys())


def _no_step(run: Path, step: int, kept: Iterable[int | None]) -> RunFolderError:
    steps = ", ".join(f"{one:,}" for one in kept if one is not None)
    return RunFolderError(f"{run} kept no weights at step {step:,}. Choose one of {steps or 'none'}.")
