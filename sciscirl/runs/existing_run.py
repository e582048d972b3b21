"""What happens to a run that is in the folder of a new one: the cookbook's ``behavior_if_log_dir_exists``."""

from __future__ import annotations

import logging
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, Literal

from sciscidata.storage.paths import remove_folder
from sciscidata.storage.sums import SUMS
from sciscirl.errors import SciSciRLError
from sciscirl.runs.checkpoints import ADAPTER, LOOKS_FILE
from sciscirl.runs.logs import CHECKPOINTS_FILE, METRICS_FILE

LogdirBehavior = Literal["raise", "resume", "delete", "ask"]
_log = logging.getLogger(__name__)
_LOCK, _FACTS = ".lock", "run.json"
#: What training writes, and no user: names of files and folders, or patterns of them.
_OF_TRAINING: Final = (
    _LOCK, _FACTS, "config.json", METRICS_FILE, CHECKPOINTS_FILE, LOOKS_FILE, "iteration_*", "predictions",
    "checkpoints", ADAPTER, "code.diff", "logs.log", "timing_spans.jsonl", "trace_events.jsonl",
    SUMS, "wandb", ".*.tmp-" + "[0-9a-f]" * 16,  # the last is of a write that was killed
)  # fmt: skip


def choose_behavior(folder: Path, behavior: LogdirBehavior) -> LogdirBehavior:
    """Ask a user who wants to be asked what to do with the run in a folder; a SystemExit if it is to leave."""
    if behavior != "ask":
        return behavior
    refuse_to_ask(folder)
    while True:
        try:
            answer = input(f"{folder} holds a run. What do you want to do? [delete, resume, exit]: ").strip()
        except EOFError:  # Ctrl-D
            answer = "exit"
        if answer == "exit":
            sys.exit(0)
        if answer in ("delete", "resume"):
            return answer


def refuse_to_ask(folder: Path) -> None:
    """Make sure that somebody can be asked (SciSciRLError)."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise SciSciRLError(
            f"{folder} holds a run, and behavior_if_log_dir_exists=ask needs a terminal. Say what to do with it: "
            "behavior_if_log_dir_exists=resume or delete. Or choose another log_path."
        )


def refuse_to_delete(folder: Path) -> None:
    """Make sure that a folder holds what training wrote, and nothing else (SciSciRLError)."""
    for path in sorted(folder.iterdir()):
        if not any(fnmatch(path.name, name) for name in _OF_TRAINING):
            raise SciSciRLError(
                f"{folder} holds {path.name}, which no training wrote, so that nothing is deleted. Move it, or choose "
                "another log_path."
            )


def delete_run(folder: Path) -> None:
    """Delete the run in a folder, its record last; the lock stays, which the caller holds."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == _FACTS):
        if path.name != _LOCK:
            remove_folder(path)
            path.unlink(missing_ok=True)
    _log.warning("the run that was in %s is deleted", folder)
