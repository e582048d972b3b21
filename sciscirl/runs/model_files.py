"""The files of models and adapters: their names, the model below an adapter, and what keeps one from being loaded."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from sciscidata.storage.small_files import is_special
from sciscidata.storage.sums import read_json
from sciscirl.errors import SciSciRLError
from sciscirl.runs.offline import never_waiting

Quantization = Literal["nf4", "none"]  # under an adapter that is trained
Precision = Literal["bfloat16", "float16", "float32"]
#: The number format of the base model in training, which PEFT does not record.
TRAINED_ON_FILE: Final = "trained_on.json"

#: Models that ``sciscirl model`` brings by a short name, and their chat format.
SHORT_NAMES: Final = {"smollm2": "qwen3_instruct"}

ADAPTER_FILES: Final = ("adapter_config.json", "adapter_model.safetensors")

#: What helps where a file of an adapter is damaged.
REMEDY: Final = (
    "Put the files back as they were; the adapter of a run is made anew where the run is resumed: resume=True."
)
_CONFIG: Final = ADAPTER_FILES[0]
#: All options of a run on one's own hardware, and its number of threads.
RUN_CONFIG: Final = "config.json"
_CODE: Final = "HF_TRUST_REMOTE_CODE"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCodeOptions:
    """Options of a model that brings code.

    Attributes:
        trust_remote_code: run Python files that the model brings, with all that you may do on this machine; without it,
            a model that needs them is refused. HF_TRUST_REMOTE_CODE=1 in the environment does the same.
    """

    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.trust_remote_code:
            os.environ[_CODE] = "1"


def may_run_code() -> bool:
    """Say whether code that a model brings may be run; the cookbook reads the same variable."""
    return os.environ.get(_CODE, "").lower() in ("1", "true", "yes")


def find_base_model(folder: Path) -> str:
    """Name the model with the tokenizer: the model itself, or the base model of an adapter."""
    if (folder / _CONFIG).is_file():
        base = read_facts(folder / _CONFIG, "base_model_name_or_path")["base_model_name_or_path"]
        for place in (Path(base), folder / base):  # a relative path is one from here, or from the adapter
            if place.is_dir():
                return str(place)
        if base.startswith((".", "/", "~", "\\")) or base.count("/") > 1:
            msg = (
                f"the adapter {folder} names the base model {base!r}, and no such folder is there. Write its full path "
                f"into {_CONFIG}, as base_model_name_or_path."
            )
            raise SciSciRLError(msg)
        return base
    if (folder / "config.json").is_file():
        return str(folder)
    msg = (
        f"{folder} holds no model: neither config.json nor {_CONFIG}. Give a folder as Transformers or PEFT "
        "saves it, for example the merged one of a run."
    )
    raise SciSciRLError(msg)


@contextmanager
def load_errors(what: str, name: str) -> Generator[None]:
    """Say in one line that a model, tokenizer or adapter (``what``) is not there, or damaged.

    Example:
        >>> with load_errors("model", "models/mine/model"):
        ...     raise KeyError("model_type")
        Traceback (most recent call last):
        ...
        sciscirl.errors.SciSciRLError: the model 'models/mine/model' could not be loaded (KeyError: 'model_type').
        Check the name, the connection to huggingface.co (HTTPS_PROXY for a proxy, HF_TOKEN for a model that ...
    """
    try:
        with never_waiting() if name.count("/") < 2 and not Path(name).is_dir() else nullcontext():
            yield
    except Exception as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        if "trust_remote_code" in str(error):
            msg = (
                f"the {what} {name!r} needs Python code that it brings, which is not run unasked. If you have read it "
                f"and trust it, give --trust-remote-code, or set {_CODE}=1. Else choose another model."
            )
            raise SciSciRLError(msg) from error
        if Path(name).is_dir():
            broken = _find_broken(Path(name))
            what_else = "A file there may be damaged or missing, or the memory too short"
            remedy = f"{f'{broken} is damaged' if broken else what_else}. {REMEDY}"
        else:
            remedy = (
                "Check the name, the connection to huggingface.co (HTTPS_PROXY for a proxy, HF_TOKEN for a model that "
                "wants an account) and the free memory. Without a network, give a folder that holds the model."
            )
        msg = f"the {what} {name!r} could not be loaded ({type(error).__name__}: {reason}). {remedy}"
        raise SciSciRLError(msg) from error


def _find_broken(folder: Path) -> str | None:
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
        msg = f"{path} is damaged: it does not say {' and '.join(names)}. {REMEDY}"
        raise SciSciRLError(msg)
    return cast("dict[str, Any]", facts)
