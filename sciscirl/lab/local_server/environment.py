"""Set up the server's own virtual environment from pinned packages, once, in the user's cache folder."""

from __future__ import annotations

import hashlib
import logging
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import platformdirs
from filelock import FileLock

from sciscidata.terminal.progress import begin_step
from sciscirl.errors import LocalServerError
from sciscirl.lab.models.pip import find_interpreter, make_environment, run_pip

logger = logging.getLogger(__name__)

_REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
_CUDA: Final = Path(__file__).with_name("cuda.txt")
_TORCH_CPU: Final = Path(__file__).with_name("torch_cpu.txt")
#: What pip says where it finds no such build: the second where its own constraints pin another one.
_NOT_THERE: Final = ("No matching distribution found", "ResolutionImpossible")
_COMPLETE: Final = "complete"  # made last: an environment without it is the rest of a killed set-up


#: What a set-up does.
_VENV, _TORCH, _SKYRL, _REST = SET_UP = (
    "make the server's environment", "fetch and install torch", "fetch and install SkyRL and what it needs",
    "fetch and install what torch and JAX need here",
)  # fmt: skip


def is_set_up(*, cuda: bool = False, cache: Path | None = None) -> bool:
    """Say whether the server's environment is there."""
    return (_place(cuda=cuda, cache=cache) / _COMPLETE).exists()


def set_up_environment(*, cuda: bool = False, cache: Path | None = None) -> Path:
    """Make the server's environment, unless it is there; return the interpreter to start the server with.

    The folder's name holds a hash of the pins and Python's version. A set-up that was killed starts again; two at a
    time wait for each other. Each file must have its pinned SHA-256, and nothing is built from source. ``cuda`` is JAX
    with CUDA 13.
    """
    folder = _place(cuda=cuda, cache=cache)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not (folder / _COMPLETE).exists():
                logger.warning("setting up the server's environment in %s, once: about 2 GB, some minutes", folder)
                _install(folder, _REQUIREMENTS.read_text("utf-8"), _list_extra(cuda=cuda))
    except OSError as error:
        raise LocalServerError(
            f"the server's environment cannot be set up in {folder}: {error}. Free some space, or name another cache."
        ) from error
    return find_interpreter(folder)


def _place(*, cuda: bool, cache: Path | None) -> Path:
    lists = "".join(file.read_text("utf-8") for file in (_REQUIREMENTS, _CUDA, _TORCH_CPU))
    made_from = hashlib.sha256(f"{lists}{_list_extra(cuda=cuda)}{sys.version}{platform.machine()}".encode()).hexdigest()
    return (cache or platformdirs.user_cache_path("sciscirl")) / f"skyrl-{made_from[:12]}"


def _list_extra(*, cuda: bool) -> list[str]:
    return [f"jax[cuda13]=={_pinned_version(_REQUIREMENTS.read_text('utf-8'), 'jax')}"] if cuda else []


def _install(folder: Path, pins: str, extra: Sequence[str]) -> None:
    begin_step(_VENV)
    shutil.rmtree(folder, ignore_errors=True)
    python, reason = make_environment(folder)
    if reason:
        _give_up(folder, "venv", reason)
    listed = ["--constraint", str(_REQUIREMENTS), "--constraint", str(_CUDA)]
    for step, packages in (
        # A CPU build of torch, if pip finds one; else the one of the list.
        (_TORCH, ["--no-deps", "--requirement", str(_TORCH_CPU)]),
        # SkyRL and all that it needs, pinned.
        (_SKYRL, ["--no-deps", "--ignore-requires-python", "--requirement", str(_REQUIREMENTS)]),
        # What torch's wheel needs on this platform: nothing on a CPU, else CUDA's libraries.
        (_REST, [*listed, f"torch=={_pinned_version(pins, 'torch')}", *extra]),
    ):
        begin_step(step)
        reason = run_pip("install", "--no-compile", *packages, python=str(python))
        if reason and not (str(_TORCH_CPU) in packages and any(said in reason for said in _NOT_THERE)):
            _give_up(folder, "pip install", reason)
    (folder / _COMPLETE).touch()


def _pinned_version(pins: str, package: str) -> str:
    return next(line.split("==")[1].split()[0] for line in pins.splitlines() if line.startswith(f"{package}=="))


def _give_up(folder: Path, command: str, reason: str) -> NoReturn:
    shutil.rmtree(folder, ignore_errors=True)
    raise LocalServerError(
        f"the server's environment cannot be set up: {command} failed: {reason} It needs the network once, and about "
        "3 GB; run again when that is mended, nothing half made is kept."
    )
