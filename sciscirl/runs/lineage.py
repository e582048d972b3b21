"""Start a run from the weights of another one, and record which."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from sciscidata.release.release import MANIFEST
from sciscidata.storage import hash_file, real_path
from sciscidata.storage.small_files import read_whole
from sciscirl.errors import SciSciRLError
from sciscirl.runs.checkpoints import find_checkpoint, find_step
from sciscirl.runs.folder import expand_home
from sciscirl.runs.logs import CHECKPOINTS_FILE
from sciscirl.runs.record import RUN_FILE, is_local, is_supervised, name_run, read_facts
from sciscirl.task.experiment import Preset

_log = logging.getLogger(__name__)
_WANTED = "the folder of a run that was trained on a server, or a state_path of its checkpoints.jsonl"
_WANTED_HERE = "the folder of a run that was trained on your own hardware"


def find_start(
    load_checkpoint: str, log_path: Path, preset: Preset, own: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Find the weights that a run starts from, and describe them as ``run.json`` does under ``begun_from``.

    ``load_checkpoint`` is the folder of a run, whose last state is taken, or a path on the server. ``own``: settings
    that must be those of the weights on your own hardware; None: on a server.
    """
    if own is None and "/sampler_weights/" in load_checkpoint:
        state = load_checkpoint.replace("/sampler_weights/", "/weights/")
        raise SciSciRLError(
            f"load_checkpoint is {load_checkpoint!r}, from which a server only samples. Give the state_path of the "
            f"same checkpoint, {state!r}, or the folder of its run."
        )
    if own is None and re.fullmatch(r"tinker://[^/]+/weights/.+", load_checkpoint):
        return {"path": load_checkpoint}
    folder = expand_home(load_checkpoint)
    if "://" in load_checkpoint or not (folder / RUN_FILE).is_file():
        wanted = f"{_WANTED} (tinker://MODEL/weights/CHECKPOINT)" if own is None else _WANTED_HERE
        raise SciSciRLError(f"load_checkpoint is {load_checkpoint!r}, needs {wanted}.")
    if real_path(folder) == real_path(log_path):
        raise SciSciRLError(
            f"load_checkpoint is {folder}, the run itself. Go on with it: behavior_if_log_dir_exists=resume. Or choose "
            "another log_path."
        )
    facts = read_facts(folder)
    settings = facts["settings"]
    if own is None and is_local(settings):
        raise SciSciRLError(
            f"load_checkpoint is {folder}, a run of PEFT: its adapter lies on this machine, and no server can load it. "
            f"Go on here: backend=local. Or merge it (sciscirl merge {folder} --out MERGED), serve that (sciscirl "
            "serve --model MERGED), and train with model=MERGED."
        )
    if own is not None and not is_local(settings):
        raise SciSciRLError(
            f"load_checkpoint is {folder}, a run on a server, where its weights lie. Merge it (sciscirl merge {folder} "
            "--out MERGED), and train with model=MERGED."
        )
    record = find_checkpoint(folder)
    if record is None or record.state_path is None:
        raise SciSciRLError(
            f"load_checkpoint is {folder}, which has no checkpoint to train on in {CHECKPOINTS_FILE}. Wait for one, "
            f"resume that run, or give {_WANTED if own is None else _WANTED_HERE}."
        )
    for name, ours in {"model": preset.model, "lora_rank": preset.optimiser.lora_rank, **(own or {})}.items():
        theirs = settings.get(name)
        if theirs is not None and theirs != ours:
            raise SciSciRLError(
                f"{name} is {ours!r}, but the weights of {folder} were trained with {theirs!r}, which training from "
                f"them keeps. Set {name}={theirs}."
            )
    changed = [name for name in ("style", "contract") if settings.get(name) not in (None, getattr(preset.rules, name))]
    if changed:
        theirs = " ".join(f"{name}={settings[name]}" for name in changed)
        ours = " ".join(f"{name}={getattr(preset.rules, name)}" for name in changed)
        _log.warning("%s was trained with %s, and this run asks with %s.", folder, theirs, ours)
    described = {
        "path": record.state_path,
        "folder": name_run(real_path(folder)),
        "kind": "sft" if is_supervised(settings) else "rl",
        "run_sha256": hashlib.sha256(read_whole(folder / RUN_FILE)).hexdigest(),
        "step": find_step(folder, record),
        "manifest_sha256": facts["release"].get("manifest_sha256"),
    }
    older = facts.get("begun_from")
    return described | ({"begun_from": older} if older else {})


def warn_of_other_release(trained_on: str | None, release: Path, name: object) -> None:
    """Warn if weights were trained on another release, whose training papers may be held-out papers of this one."""
    if trained_on not in (None, hash_file(release / MANIFEST)):
        _log.warning(
            "%s was trained on another release: its training papers may be among the held-out papers of %s. Train and "
            "judge on one release, or judge on papers that it has not seen.",
            name,
            release,
        )


def render_start(begun_from: object) -> str | None:
    """Say which weights a run started from; None for the base model.

    Example:
        >>> render_start({"folder": "rl", "step": 50, "path": "p", "begun_from": {"folder": "sft-exp4", "step": 40}})
        'rl, step 50, itself from sft-exp4, step 40'
        >>> render_start({"path": "tinker://run/weights/000040"})
        'tinker://run/weights/000040'
    """
    said: list[str] = []
    while isinstance(begun_from, Mapping):
        start = cast("Mapping[str, object]", begun_from)
        step = "" if start.get("step") is None else f", step {start['step']}"
        said.append(f"{start['folder']}{step}" if start.get("folder") else str(start.get("path", "unknown weights")))
        begun_from = start.get("begun_from")
    return ", itself from ".join(said) or None
