"""The checkpoints of a run, on a server or in its folder, and what they were judged by: evaluations, looks at test."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sciscidata.options.checks import is_whole
from sciscidata.storage import path_inside
from sciscirl.envs.models import ADAPTER_FILES
from sciscirl.runs.logs import CHECKPOINTS_FILE, METRICS_FILE, read_rows, write_text
from sciscirl.task.release import EVAL_SPLITS

if TYPE_CHECKING:
    from tinker_cookbook.checkpoint_utils import CheckpointRecord

#: The folder of a trained adapter within that of its run.
ADAPTER: Final = "adapter"
#: One line for each time that the run was judged by test after training.
LOOKS_FILE: Final = "test_looks.jsonl"


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


def is_judged(folder: Path, step: int | None) -> bool:
    """Say whether a run logged an evaluation of this step."""
    return any(row.get("step") == step and read_judgement(row) for row in read_rows(folder / METRICS_FILE))


def is_over(folder: Path) -> bool:
    """Say whether a run has its final weights and was judged with them, or was ended by a collapse."""
    rows = read_rows(folder / METRICS_FILE)
    if any(row.get("collapse_stop") for row in rows):
        return True
    final = find_checkpoint(folder, "sampler_path") or find_checkpoint(folder)
    if final is None or not (final.name == "final" or (folder / ADAPTER).is_dir()):
        return False
    return is_judged(folder, find_step(folder, final))


def read_judgement(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of an evaluation in a row of ``metrics.jsonl``, without the name of the split; {} if none."""
    for split in EVAL_SPLITS:
        if f"{split}/label_match" in row:
            return {name.removeprefix(f"{split}/"): row[name] for name in row if name.startswith(f"{split}/")}
    return {}


def list_evaluations(folder: Path, split: str) -> dict[int, Path]:
    """List the predictions of a run's evaluations by their step, earliest first."""
    pattern = re.compile(rf"{re.escape(split)}_(\d+)\.parquet")
    files = {path: pattern.fullmatch(path.name) for path in sorted((folder / "predictions").glob("*"))}
    return dict(sorted((int(match[1]), path) for path, match in files.items() if match))


def note_test_look(folder: Path, **facts: object) -> int:
    """Write down that a run was judged by test outside its own evaluations. Return how often it was so far."""
    looks = [*read_rows(folder / LOOKS_FILE), facts]
    write_text(folder / LOOKS_FILE, "".join(json.dumps(look) + "\n" for look in looks))
    return count_test_looks(folder)


def count_test_looks(folder: Path) -> int:
    """Count how often a run was judged by test: by its own evaluations, and by those that ``note_test_look`` noted."""
    return len([*(folder / "predictions").glob("test_*.parquet")]) + len(read_rows(folder / LOOKS_FILE))
