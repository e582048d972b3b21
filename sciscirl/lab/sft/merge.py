"""Merge what a run has trained into its base model, in sixteen bits that any server takes, with a card.

From top to bottom: the merging, the download of an adapter from a Tinker server, and the card.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final

from sciscidata.storage import atomic_folder
from sciscidata.storage.small_files import read_whole
from sciscidata.terminal.messages import one_line
from sciscirl.envs.model_folder import find_base_model
from sciscirl.envs.models import ADAPTER_FILES
from sciscirl.envs.tokenizer import load_errors, load_tokenizer
from sciscirl.errors import RunFolderError, SciSciRLError
from sciscirl.lab.hardware_options import MergeOptions
from sciscirl.lab.models.adapter_archive import download_archive
from sciscirl.lab.models.adapter_files import find_adapter
from sciscirl.lab.models.local_model import load_local_model
from sciscirl.runs.checkpoints import ADAPTER, find_step, list_weights, read_checkpoints, read_judgement
from sciscirl.runs.lineage import render_start
from sciscirl.runs.logs import METRICS_FILE, read_rows
from sciscirl.runs.record import RUN_FILE, find_eval_split, is_local, is_supervised, name_run, read_facts
from sciscirl.runs.server_checks import clear_errors, find_server, is_tinker

if TYPE_CHECKING:
    from tinker_cookbook.checkpoint_utils import CheckpointRecord

logger = logging.getLogger(__name__)
_CARD = "README.md"
_HALVES = (".lora_A.weight", ".lora_B.weight")
#: The metrics of the card.
_SHOWN: Final = (
    "n", "label_match", "macro_f1", "balanced_accuracy", "min_class_recall", "parse_ok", "format_strict_ok", "invalid",
)  # fmt: skip


def merge_adapter(adapter: Path, out: Path, options: MergeOptions) -> Path:
    """Merge an adapter, or that of a run, also on a Tinker server, into the weights that it was trained on.

    A quantised base is dequantised to sixteen bits first: merged into four bits, the adapter would be rounded away.
    Unmerged, inference with DoRA takes more than twice as long, and vLLM does not support it. The whole model has to
    fit on the device. A run gets a card with its release, step and metrics. Source:
    https://github.com/AnswerDotAI/fsdp_qlora, on merging.
    """
    if out.exists():
        raise SciSciRLError(f"{out} exists already. Remove it, or merge into another folder.")
    run, step, base_url = adapter if (adapter / RUN_FILE).is_file() else None, options.step, options.base_url
    if run is not None and not (run / ADAPTER).exists() and not is_local(read_facts(run)["settings"]):
        if options.device != "cpu":
            raise SciSciRLError(
                f"device is {options.device!r}, but an adapter from a server is merged on the CPU. Leave it out."
            )
        return _merge_from_server(run, out, options)
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
    merged = load_local_model(adapter, dtype=options.dtype, device=options.device).merge_and_unload(safe_merge=True)
    with atomic_folder(out) as folder:
        merged.save_pretrained(folder)
        load_tokenizer(base).save_pretrained(folder)
        if run is not None:
            card = render_card(run, step=step, weights=adapter.relative_to(run).as_posix(), dtype=options.dtype)
            (folder / _CARD).write_text(card, "utf-8")
    logger.info("merged %s into %s", adapter, out)
    return out


def _merge_from_server(run: Path, out: Path, options: MergeOptions) -> Path:
    records = {find_step(run, record): record for record in read_checkpoints(run)}
    if not records:
        raise RunFolderError(f"{run} has no checkpoint to merge. Wait for one, or resume the run.")
    step = [*records][-1] if options.step is None else options.step
    if step is not None and step not in records:
        raise _no_step(run, step, records)
    from tinker_cookbook.weights import build_hf_model

    base = str(read_facts(run)["settings"].get("model"))
    with tempfile.TemporaryDirectory(prefix="sciscirl-") as place, atomic_folder(out) as folder:
        weights = download_adapter(records[step], Path(place), options.base_url)
        folder.rmdir()  # the cookbook makes it
        with load_errors("model", base):
            _check_tensors(Path(place) / ADAPTER_FILES[1], Path(base))
            build_hf_model(
                base_model=base,
                adapter_path=place,
                output_path=str(folder),
                dtype=options.dtype,
                merge_strategy="full",
            )
        (folder / _CARD).write_text(render_card(run, step=step, weights=weights, dtype=options.dtype), "utf-8")
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


def download_adapter(record: CheckpointRecord, folder: Path, base_url: str | None = None) -> str:
    """Fill ``folder`` with ``adapter_config.json`` and ``adapter_model.safetensors``; return the path on the server.

    Tinker exports the state of the checkpoint. SDK 0.38 has no request for an archive any more, but servers of one's
    own (SkyRL) have; they archive only what can be sampled from.
    """
    url = find_server(base_url)
    from_tinker = is_tinker(base_url)
    path = record.state_path if from_tinker else record.sampler_path
    if path is None or "://" not in path:
        kind = "state_path" if from_tinker else "sampler_path"
        raise SciSciRLError(
            f"checkpoint {record.name} has no {kind} on a server, which is what {url} gives out. Choose another step."
        )
    if from_tinker:
        _export(path, folder, base_url)
    else:
        with clear_errors(base_url):
            download_archive(url, path, folder)
    if missing := [name for name in ADAPTER_FILES if not (folder / name).is_file()]:
        raise SciSciRLError(
            f"what {url} gave out as {path} has no {missing[0]}. Download it again, or choose another step."
        )
    return path


def _export(path: str, folder: Path, base_url: str | None) -> None:
    from tinker_cookbook.exceptions import WeightsDownloadError
    from tinker_cookbook.weights import download

    try:
        download(tinker_path=path, output_dir=str(folder), base_url=base_url)
    except WeightsDownloadError as error:
        raise SciSciRLError(
            f"{path} could not be downloaded: {one_line(error)}. Check the key, and that Tinker still keeps this "
            "checkpoint."
        ) from error


def render_card(run: Path, *, step: int | None, weights: str, dtype: str) -> str:
    """Write the card of a run's model at a step (None: not known), as Markdown with the hub's YAML header."""
    facts = read_facts(run)
    settings: dict[str, Any] = facts["settings"]
    base, is_sft = str(settings.get("model")), is_supervised(settings)
    is_on_hub = not PurePath(base).is_absolute()
    shown = base if is_on_hub else PurePath(base).name
    header = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        **({"base_model": base} if is_on_hub else {}),
        "tags": ["sciscirl", "sft" if is_sft else "rl"],
    }
    trained_by = "supervised fine-tuning" if is_sft else "reinforcement learning"
    rows = {
        "base model": shown,
        "trained by": f"{trained_by}, preset {settings.get('name') or settings.get('preset')}",
        "task": settings.get("target", "disruption"),
        "prompt and answer": f"style {settings.get('style')}, contract {settings.get('contract')}",
        "chat format": settings.get("renderer"),
        "run": f"{name_run(run.resolve())}, SHA-256 of {RUN_FILE} "
        f"`{hashlib.sha256(read_whole(run / RUN_FILE)).hexdigest()}`",
        "step": "unknown" if step is None else f"{step:,}",
        "begun from": render_start(facts.get("begun_from")) or "the base model",
        "release": f"{facts.get('release_folder')}, SHA-256 of manifest.json "
        f"`{facts['release'].get('manifest_sha256')}`",
        "weights": f"`{weights}`, merged in {dtype}",
        "code": facts.get("commit"),
    }
    rows_of_step = [row for row in read_rows(run / METRICS_FILE) if step is not None and row.get("step") == step]
    judged = {
        name: value
        for name, value in next(filter(None, map(read_judgement, reversed(rows_of_step))), {}).items()
        if (name.rpartition("/")[2] in _SHOWN or "recall/" in name) and isinstance(value, int | float)
    }
    metrics = [
        f"On papers of {find_eval_split(run)} in this release. An answer that is not valid counts as wrong. Where "
        "these papers chose the step, they flatter it.",
        "",
        *_table({name: f"{value:,.{0 if name.rpartition('/')[2] == 'n' else 4}f}" for name, value in judged.items()}),
    ]
    return "\n".join(
        [
            "---",
            *(f"{name}: {json.dumps(value)}" for name, value in header.items()),
            "---\n",
            f"# {shown}, trained on {facts.get('release_folder')}\n",
            "Says from the record of a paper what its label is. The label follows from citations, not from reading the "
            "paper: do not take it for a judgement of quality.\n",
            *_table(rows),
            "\n## Metrics\n",
            *(metrics if judged else ["The run did not evaluate this step."]),
            "\n## Use\n",
            "Ask it with the prompt and chat format above, as `sciscirl evaluate --local-model FOLDER` does.\n",
        ]
    )


def _table(rows: dict[str, Any]) -> list[str]:
    cells = {name: str(value).replace("|", "\\|").replace("\n", " ") for name, value in rows.items()}
    return ["| | |", "|---|---|", *(f"| {name} | {cell} |" for name, cell in cells.items())]
