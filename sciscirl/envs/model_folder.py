"""A folder with a model or an adapter: the model below it, and what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from sciscidata.storage.small_files import is_special
from sciscidata.storage.sums import read_json
from sciscirl.envs.models import ADAPTER_FILES, REMEDY
from sciscirl.errors import SciSciRLError


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


def read_facts(path: Path, *names: str) -> dict[str, Any]:
    """Read some texts of a JSON file beside an adapter (SciSciRLError if one is not there)."""
    try:
        facts: Any = read_json(path)
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or not all(isinstance(cast("Any", facts).get(name), str) for name in names):
        raise SciSciRLError(f"{path} is damaged: it does not say {' and '.join(names)}. {REMEDY}")
    return cast("dict[str, Any]", facts)
