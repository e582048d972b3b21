"""The folder of a run: on record what was run on what."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from sciscirl.errors import SciSciRLError

RUN_FILE: Final = "run.json"
METRICS_FILE: Final = "metrics.jsonl"
#: Where a run that trains an adapter on this machine leaves it.
ADAPTER: Final = "adapter"
#: Settings that make a run what it is; one that goes on has to have the same.
_FIXED: Final = ("release", "settings")
_PACKAGES: Final = (
    "sciscidata", "tinker", "tinker-cookbook", "torch", "transformers", "tokenizers", "peft", "accelerate",
    "bitsandbytes", "polars", "scikit-learn",
)  # fmt: skip


def begin_run(
    folder: Path, release: Path, settings: Mapping[str, Any], *, resume: bool, steps_per_epoch: int = 0
) -> int:
    """Write ``run.json`` into a fresh folder, or check that an older run there is the same one.

    Metrics of steps that were taken after the last checkpoint are dropped: a run that goes on takes them again.

    Args:
        folder: of the run.
        release: the slice.
        settings: whatever decides what the run does, in JSON types.
        resume: go on where an older run stopped. With nothing to go on from, the run begins at step 0.
        steps_per_epoch: of a loop that numbers the steps of each epoch from 0.

    Returns:
        The step at which training begins.

    Raises:
        SciSciRLError: if the folder holds a run and ``resume`` is not set, or that one had other settings.
    """
    from tinker_cookbook.checkpoint_utils import get_last_checkpoint  # loads torch, which readers of a folder need not

    facts = describe_run(release, settings)
    path = folder / RUN_FILE
    if not path.exists():
        if (folder / METRICS_FILE).exists() or (folder / "checkpoints.jsonl").exists():
            msg = f"{folder} holds a run of something else. Choose another log_path."
            raise SciSciRLError(msg)
        write_json(path, facts)
        return 0
    if not resume:
        msg = f"{folder} holds a run. Go on with it: resume=True. Or choose another log_path."
        raise SciSciRLError(msg)
    older = json.loads(path.read_text("utf-8"))
    for section in _FIXED:
        for name in facts[section]:
            if older.get(section, {}).get(name) != facts[section][name]:
                msg = (
                    f"{folder} was begun with {name}={older.get(section, {}).get(name)!r}, now it is "
                    f"{facts[section][name]!r}. Resume with what it was begun with, or choose another log_path."
                )
                raise SciSciRLError(msg)
    checkpoint = get_last_checkpoint(str(folder))
    step = (checkpoint.epoch or 0) * steps_per_epoch + (checkpoint.batch or 0) if checkpoint else 0
    _drop_metrics(folder / METRICS_FILE, step)
    return step


def find_adapter(folder: Path) -> Path:
    """Find what a run of ``train_sft.py --backend peft`` has trained.

    Raises:
        SciSciRLError: if the run has not ended.
    """
    if not (folder / ADAPTER).is_dir():
        msg = f"{folder} has no {ADAPTER} yet: the run has not ended. Resume it: resume=True."
        raise SciSciRLError(msg)
    return folder / ADAPTER


def describe_run(release: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Say in JSON types what is run: settings, the slice's hash, the commit of this code, versions."""
    return {
        "settings": dict(settings),
        "release": {"manifest_sha256": hashlib.sha256((release / "manifest.json").read_bytes()).hexdigest()},
        "release_folder": release.name,
        "commit": find_commit(),
        "versions": {name: _version(name) for name in _PACKAGES} | {"python": platform.python_version()},
    }


def find_commit() -> str | None:
    """Return the commit of this code, with ``+changes`` if it was edited since; None outside a checkout."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != here.parent:  # installed below some other project
            return None
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def write_json(path: Path, content: object) -> None:
    """Write a JSON file, whole or not at all."""
    _write(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _drop_metrics(path: Path, step: int) -> None:
    if not path.exists():
        return
    kept = []
    for line in path.read_text("utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # the line that a killed run was writing
            continue
        if row.get("step") is None or row["step"] < step:
            kept.append(line)
    _write(path, "".join(f"{line}\n" for line in kept))


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text, "utf-8")
    unfinished.replace(path)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
