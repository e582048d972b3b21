"""Checkpoints of a PEFT run: record them with SHA-256, check them, and find the last one that is whole."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tinker_cookbook.checkpoint_utils import CheckpointRecord

from sciscidata.storage import hash_file, path_inside
from sciscidata.storage.atomic import flush_tree
from sciscidata.storage.small_files import is_special
from sciscidata.storage.sums import seal_file
from sciscirl.envs.models import ADAPTER_FILES
from sciscirl.errors import RunFolderError
from sciscirl.lab.models.adapter_files import TRAINED_ON_FILE
from sciscirl.runs.checkpoints import find_weights, read_checkpoints
from sciscirl.runs.logs import CHECKPOINTS_FILE, keep_rows, open_store, write_json

CHECKPOINTS: Final = "checkpoints"

_SUMS: Final = "sha256"
_UNREAD: Final = "README.md"  # PEFT's card of a model: nothing is loaded from it, and people write into it
_log = logging.getLogger(__name__)


def enter_checkpoint(run: Path, step: int, trained_on: Mapping[str, str]) -> None:
    """Record in ``checkpoints.jsonl`` what Transformers' loop has saved after a step, when all of it is on disk.

    The loop writes files under their final names: what a kill has left gets no line. ``trained_on``: the number format.
    """
    path = f"{CHECKPOINTS}/checkpoint-{step}"
    write_json(run / path / TRAINED_ON_FILE, dict(trained_on))
    for name in ADAPTER_FILES:
        if (run / path / name).is_file():
            seal_file(run / path / name)
    flush_tree(run / path)
    names = sorted(file.relative_to(run / path).as_posix() for file in (run / path).rglob("*") if file.is_file())
    sums = {name: hash_file(run / path / name) for name in names if name != _UNREAD}
    record = CheckpointRecord(name=f"{step:06d}", batch=step, state_path=path, extra={_SUMS: sums})
    open_store(run).write_checkpoint(record.to_dict())


def recover_checkpoint(run: Path) -> CheckpointRecord | None:
    """Return the last whole checkpoint, or None without any. Warn of damaged ones; raise if all are damaged."""
    damaged: dict[str, str] = {}
    for record in reversed(read_checkpoints(run)):
        place = find_weights(run, record)
        if place is None:
            continue
        damage = find_damage(place, record.get(_SUMS, {}))
        if damage is None:
            if damaged:
                _log.warning("%s. %s goes on from %s, which is whole.", _tell(damaged), run, record.state_path)
                keep_rows(run / CHECKPOINTS_FILE, lambda row: row["name"] not in damaged)
            return record
        damaged[record.name] = f"{record.state_path} is damaged: {damage}"
    if damaged:
        raise RunFolderError(
            f"no checkpoint of {run} is whole. {_tell(damaged)}. Put the files back as they were, or start anew: "
            f"delete the folder {run}, or choose another log_path."
        )
    return None


def find_damage(checkpoint: Path, sums: Mapping[str, str]) -> str | None:
    """Describe the first damage of a checkpoint, None if whole; ``sums`` are SHA-256 by path in its folder."""
    if not checkpoint.is_dir():
        return "it is gone"
    if not isinstance(sums, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (read from a file)
        return "the SHA-256 of its files are not readable"
    for name, written in sums.items():
        path = path_inside(checkpoint, name, stated_by=CHECKPOINTS_FILE)
        if is_special(path):
            return f"{name} is a pipe or a device"
        try:
            found = hash_file(path)
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        if found != written:
            return f"{name} is not what was written"
    return None


def _tell(damaged: Mapping[str, str]) -> str:
    return "; ".join(damaged.values())
