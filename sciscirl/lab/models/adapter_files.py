"""The files of models and adapters on this machine: the model below an adapter, what a run left, what is damaged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sciscidata.storage.paths import hash_file
from sciscidata.storage.sums import SUMS, read_json
from sciscirl.envs.models import ADAPTER_FILES
from sciscirl.errors import SciSciRLError
from sciscirl.runs.checkpoints import ADAPTER, read_checkpoints
from sciscirl.runs.folder import expand_home

#: The number format of the base model in training, which PEFT does not record.
TRAINED_ON_FILE: Final = "trained_on.json"
#: All options of a run on one's own hardware, and its number of threads.
RUN_CONFIG: Final = "config.json"


def find_local_weights(folder: Path, facts: Mapping[str, Any], step: int | None, kept: str | None) -> Path:
    """Find the weights of a run on this machine: those it ended with, began with (step 0), or ``kept`` at a step."""
    if step == 0:
        return _find_begin_here(folder, facts)
    return find_adapter(folder) if kept is None else Path(kept)


def find_adapter(folder: Path) -> Path:
    """Return the adapter that a run on your own hardware has trained."""
    if not (folder / ADAPTER).is_dir():
        raise SciSciRLError(
            f"{folder} has no {ADAPTER}: a run with --backend peft or local leaves one at its end. Resume it if it "
            "is one: behavior_if_log_dir_exists=resume. The weights of other runs lie on their server."
        )
    for name in (*ADAPTER_FILES, TRAINED_ON_FILE):
        if not (folder / ADAPTER / name).is_file():
            raise SciSciRLError(
                f"{folder / ADAPTER} has lost {name}. Put it back, or resume the run, which makes it anew: "
                "behavior_if_log_dir_exists=resume."
            )
    sums = [record.get("sha256") for record in read_checkpoints(folder)]
    known = [one[SUMS] for one in sums if isinstance(one, dict) and SUMS in one]
    sums_file = folder / ADAPTER / SUMS
    if known and not (sums_file.is_file() and hash_file(sums_file) in known):
        raise SciSciRLError(
            f"{folder / ADAPTER} is of another run: no checkpoint here has its {SUMS}. Put the folder back as it was."
        )
    return folder / ADAPTER


def _find_begin_here(folder: Path, facts: Mapping[str, Any]) -> Path:
    """Find what a run on this machine began with: weights of another run, or the base model as it is."""
    settings, begun_from = facts["settings"], facts.get("begun_from")
    if begun_from:
        start = expand_home(str(read_json(folder / RUN_CONFIG)["load_checkpoint"])) / begun_from["path"]
        if start.is_dir():
            return start
        msg = f"{folder} began with {start}, which is gone. Put it back, or choose another step."
    elif settings.get("quantize") == "none" and Path(settings["model"]).is_dir():
        return Path(settings["model"])
    else:
        how = " in four bits" if settings.get("quantize") == "nf4" else ""
        msg = (
            f"{folder} began with {settings['model']}{how}, which cannot be asked without an adapter. Choose another "
            "step, or evaluate a folder with the whole model: local_model=..."
        )
    raise SciSciRLError(msg)
