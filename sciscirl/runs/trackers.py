"""Send the metrics of a run to Weights & Biases and trackio as well, by the cookbook's loggers."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sciscirl.errors import SciSciRLError
from sciscirl.runs.record import name_run, read_facts

if TYPE_CHECKING:
    from tinker_cookbook.utils.ml_log import Logger

_PACKAGES: Final = {"wandb": "WandbLogger", "trackio": "TrackioLogger"}
_log = logging.getLogger(__name__)


def check_trackers() -> None:
    """Refuse a project where no tracker is installed (SciSciRLError)."""
    if not _list_installed():
        raise SciSciRLError(
            "wandb_project is set, but neither trackio nor wandb is installed. pip install trackio, or leave it out."
        )


def _list_installed() -> list[str]:
    return [kind for package, kind in _PACKAGES.items() if importlib.util.find_spec(package) is not None]


@contextmanager
def open_trackers(folder: Path, project: str, name: str | None) -> Generator[Callable[[Mapping[str, Any]], None]]:
    """Open the trackers that are installed; yield what sends them a row. One that fails later is left out."""
    from tinker_cookbook.utils import ml_log

    trackers: list[Logger] = []
    try:
        for kind in _list_installed():
            config = read_facts(folder)["settings"]
            trackers.append(getattr(ml_log, kind)(project, config, str(folder), name or name_run(folder.resolve())))
    except Exception as error:
        raise SciSciRLError(f"wandb_project is {project!r}, which cannot be opened: {error}") from error

    def send(row: Mapping[str, Any]) -> None:
        for tracker in [*trackers]:
            try:
                tracker.log_metrics({key: value for key, value in row.items() if key != "step"}, row.get("step"))
            except Exception as error:  # the run does not depend on it
                trackers.remove(tracker)
                _log.warning("%s fails (%s); metrics.jsonl goes on.", type(tracker).__name__, error)

    try:
        yield send
    finally:
        for tracker in trackers:
            tracker.close()
