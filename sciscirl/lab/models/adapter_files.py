"""The files of models and adapters on this machine: the model below an adapter, what a run left, what is damaged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from sciscidata.storage.paths import hash_file
from sciscidata.storage.small_files import is_special
from sciscidata.storage.sums import SUMS, read_json
from sciscirl.errors import SciSciRLError
from sciscirl.runs.chat_format import REMEDY
from sciscirl.runs.folder import ADAPTER, ADAPTER_FILES, expand_home, read_checkpoints

#: The number format of the base model in training, which PEFT does not record.
TRAINED_ON_FILE: Final = "trained_on.json"
#: All options of a run on one's own hardware, and its number of threads.
RUN_CONFIG: Final = "config.json"


def find_local_weights(folder: Path, facts: Mapping[str, Any], step: int | None, kept: str | None) -> Path:
    """Find the weights of a run on this machine: those it ended with, began with (step 0), or ``kept`` at a step."""
    if step == 0:
        return _find_begin_here(folder, facts)
    return find_adapter(folder) if kept is None else Path(kept)


def find_base_model(folder: Path) -> str:
    """Name the model with the tokenizer: the model itself, or the base model of an adapter."""
    if (folder / ADAPTER_FILES[0]).is_file():
        base = read_facts(folder / ADAPTER_FILES[0], "base_model_name_or_path")["base_model_name_or_path"]
        for place in (Path(base), folder / base):  # a relative path is one from here, or from the adapter
            if place.is_dir():
                return str(place)
        if base.startswith((".", "/", "~", "\\")) or base.count("/") > 1:
            raise SciSciRLError(
                f"the adapter {folder} names the base model {base!r}, and no such folder is there. Write its full path "
                f"into {ADAPTER_FILES[0]}, as base_model_name_or_path."
            )
        return base
    if (folder / "config.json").is_file():
        return str(folder)
    raise SciSciRLError(
        f"{folder} holds no model: neither config.json nor {ADAPTER_FILES[0]}. Give a folder as Transformers or PEFT "
        "saves it, for example the merged one of a run."
    )


def advise_on_folder(folder: Path) -> str:
    """Say what is wrong with a folder whose model or adapter cannot be loaded, and what helps."""
    try:
        find_base_model(folder)
    except SciSciRLError as error:
        return str(error)
    broken = find_broken(folder)
    cause = f"{broken} is damaged" if broken else "A file there may be damaged or missing, or the memory too short"
    is_adapter = (folder / ADAPTER_FILES[0]).is_file()
    return f"{cause}. {REMEDY if is_adapter else 'Put the files back as they were, or give another folder.'}"


def find_broken(folder: Path) -> str | None:
    """Name a file of weights that was cut or cannot be read; its reader does not say which one."""
    from safetensors import SafetensorError, safe_open

    for path in sorted(folder.glob("*.safetensors")):
        if is_special(path):  # opening a pipe would wait for a writer
            return path.name
        try:
            with safe_open(path, "pt"):
                pass
        except (SafetensorError, OSError):  # a link to what is gone, too
            return path.name
    return None


def find_adapter(folder: Path) -> Path:
    """Return the adapter that a run on your own hardware has trained."""
    if not (folder / ADAPTER).is_dir():
        raise SciSciRLError(
            f"{folder} has no {ADAPTER}: a run with --backend peft or local leaves one at its end. Resume it if it "
            "is one: resume=True. The weights of other runs lie on their server."
        )
    for name in (*ADAPTER_FILES, TRAINED_ON_FILE):
        if not (folder / ADAPTER / name).is_file():
            raise SciSciRLError(
                f"{folder / ADAPTER} has lost {name}. Put it back, or resume the run, which makes it anew: resume=True."
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


def read_facts(path: Path, *names: str) -> dict[str, Any]:
    """Read some texts of a JSON file beside an adapter (SciSciRLError if one is not there)."""
    try:
        facts: Any = read_json(path)
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or not all(isinstance(cast("Any", facts).get(name), str) for name in names):
        raise SciSciRLError(f"{path} is damaged: it does not say {' and '.join(names)}. {REMEDY}")
    return cast("dict[str, Any]", facts)
