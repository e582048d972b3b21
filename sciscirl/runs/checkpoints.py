"""The checkpoints of a run, on a server or in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sciscidata.options.checks import is_whole
from sciscidata.storage import path_inside
from sciscirl.envs.models import ADAPTER_FILES
from sciscirl.runs.logs import CHECKPOINTS_FILE, METRICS_FILE, read_rows

if TYPE_CHECKING:
    from tinker_cookbook.checkpoint_utils import CheckpointRecord

#: The folder of a trained adapter within that of its run.
ADAPTER: Final = "adapter"


def find_checkpoint(folder: Path, key: str = "state_path") -> CheckpointRecord | None:
    """Return the last checkpoint that has ``state_path`` (to resume) or ``sampler_path`` (to sample), or None."""
    return next((record for record in reversed(read_checkpoints(folder)) if record.has(key)), None)


def read_checkpoints(folder: Path) -> list[CheckpointRecord]:
    """Read the checkpoints of a run, oldest first; unreadable lines are skipped."""
    from tinker_cookbook.checkpoint_utils import CheckpointRecord  # loads torch, which reading does not need

    return [CheckpointRecord.from_dict(row) for row in read_rows(folder / CHECKPOINTS_FILE) if is_checkpoint(row)]


def is_checkpoint(row: Mapping[str, Any]) -> bool:
    """Say whether a row of ``checkpoints.jsonl`` is one: a killed or damaged run may have left something else."""
    texts, numbers = (row.get("state_path"), row.get("sampler_path")), (row.get("batch"), row.get("epoch"))
    return (
        isinstance(row.get("name"), str)
        and all(isinstance(text, str | None) for text in texts)
        and all(number is None or is_whole(number) for number in numbers)
    )


def find_weights(folder: Path, record: CheckpointRecord) -> Path | None:
    """Return the folder of a checkpoint within the run's; None if it lies on a server."""
    if record.state_path is None or "://" in record.state_path:
        return None
    return path_inside(folder, record.state_path, stated_by=folder / CHECKPOINTS_FILE)


def find_step(folder: Path, record: CheckpointRecord) -> int | None:
    """Return the number of training steps behind a checkpoint; None if its record names none."""
    if not record.epoch:
        return record.batch
    # The cookbook's supervised loop counts batches from 0 again in each epoch.
    rows = [row for row in read_rows(folder / METRICS_FILE) if is_whole(row.get("step")) and is_whole(row.get("epoch"))]
    return 1 + max((row["step"] for row in rows if row["epoch"] < record.epoch), default=-1) + (record.batch or 0)


def list_weights(folder: Path) -> dict[int | None, str]:
    """List the weights to sample from, by training step: a path on the server, or a local adapter's folder."""
    kept: dict[int | None, str] = {}
    for record in read_checkpoints(folder):
        step, here = find_step(folder, record), find_weights(folder, record)
        if record.sampler_path is not None:
            kept[step] = record.sampler_path
        elif here is not None and (here / ADAPTER_FILES[0]).is_file():
            kept[step] = str(here)
    return kept
