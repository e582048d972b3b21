"""The logs of a run: rows of metrics, rollouts, and the sums that seal them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from sciscidata.storage.small_files import parse_json, read_whole
from sciscidata.storage.sums import check_sealed, is_listed, seal_file, sealed_file

if TYPE_CHECKING:
    from tinker_cookbook.stores.training_store import TrainingRunStore


METRICS_FILE: Final = "metrics.jsonl"
CHECKPOINTS_FILE: Final = "checkpoints.jsonl"
#: Files that the cookbook's loops add lines to.
LOGS: Final = (METRICS_FILE, CHECKPOINTS_FILE)
#: Largest log that is read; a step takes some KB, so this is tens of thousands of steps.
LOG_BYTES: Final = 256 << 20


def open_store(folder: str | Path) -> TrainingRunStore:
    """Return the cookbook's store, which writes a run's records."""
    from tinker_cookbook.stores.storage import LocalStorage  # loads torch, which reading a folder does not need
    from tinker_cookbook.stores.training_store import TrainingRunStore

    return TrainingRunStore(LocalStorage(folder))


def read_answers(folder: Path, step: int) -> list[dict[str, Any]]:
    """Read what the environments logged of the answers of a training step."""
    return [rollout["steps"][-1]["logs"] for rollout in read_rows(find_rollouts(folder, step))]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the objects in a file of JSON lines; skips half-written lines, and a missing file is empty."""
    try:
        rows = map(parse_row, read_lines(path))
    except FileNotFoundError:
        return []
    return [row for row in rows if row is not None]


def read_lines(path: Path) -> Iterator[str]:
    """Read the lines of a log of at most LOG_BYTES; a ChangedFileError if it was changed since it was sealed."""
    if path.name in LOGS or is_listed(path):
        check_sealed(path, grows=path.name in LOGS)
    return (line.decode("utf-8", "replace") for line in io.BytesIO(read_whole(path, LOG_BYTES)))


def parse_row(line: str) -> dict[str, Any] | None:
    """Read a line of JSON; None if it is no object."""
    try:
        row: Any = parse_json(line)
    except ValueError:
        return None
    return cast("dict[str, Any]", row) if isinstance(row, dict) else None


def keep_rows(path: Path, is_kept: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Keep some rows of a file of JSON lines, and return them; half-written lines go."""
    if not path.exists():
        return []
    every = [*read_lines(path)]
    lines: list[str] = []
    rows: list[dict[str, Any]] = []
    for line in every:
        row = parse_row(line)  # None: the line that a killed run was writing
        if row is not None and is_kept(row):
            lines.append(line.rstrip("\r\n") + "\n")
            rows.append(row)
    if lines != every:
        write_text(path, "".join(lines))
    return rows


def write_json(path: Path, content: object) -> None:
    """Write a JSON file, whole or not at all, and seal it."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file of text, whole or not at all, and seal it."""
    with sealed_file(path) as unfinished:
        unfinished.write_text(text, "utf-8")


def find_rollouts(folder: Path, step: int, name: str = "train") -> Path:
    """Return the file with the answers of a step."""
    return folder / f"iteration_{step:06d}" / f"{name}_rollout_summaries.jsonl"


def seal_new(*paths: Path) -> None:
    """Enter files in SHA256SUMS that the cookbook's loops have written, unless they are there or missing."""
    for path in paths:
        if path.is_file() and not is_listed(path):
            seal_file(path)


def seal_logs(folder: Path) -> None:
    """Enter the logs of a run and its last answers, when its loop has ended."""
    for path in (folder / name for name in LOGS):
        if path.is_file():
            seal_file(path)
    seal_new(*folder.glob("iteration_*/*_rollout_summaries.jsonl"))
