"""What a run was judged by: its own evaluations, and looks at the test split."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sciscirl.runs.checkpoints import ADAPTER, find_checkpoint, find_step
from sciscirl.runs.logs import METRICS_FILE, read_rows, write_text
from sciscirl.task.release import EVAL_SPLITS

#: One line for each time that the run was judged by test after training.
LOOKS_FILE: Final = "test_looks.jsonl"


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
