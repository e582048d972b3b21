"""Every error a user of the learning half can cause. A command shows the message as one line and exits with 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sciscidata.errors import SciSciDataError

#: Names that tinker-cookbook has for options of ours. Training takes either; the others have the same name in both.
COOKBOOK: Final[Mapping[str, str]] = {
    "groups_per_batch": "batch_size",
    "model_name": "model",
    "renderer_name": "renderer",
    "num_epochs": "n_epochs",
    "load_checkpoint_path": "load_checkpoint",
}


def with_own_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Put our names of options in the place of the cookbook's."""
    return {COOKBOOK.get(name, name): value for name, value in options.items()}


class SciSciRLError(SciSciDataError):
    """Base class: catch it to catch every error of this package."""


class ReleaseError(SciSciRLError, ValueError):
    """A release cannot be used: it is missing, was changed, or lacks what the task needs."""


class PromptError(SciSciRLError, ValueError):
    """A prompt cannot be written: the style is unknown, or the paper is too long for the token cap."""


class RewardError(SciSciRLError, ValueError):
    """A reward table holds an impossible value, or an answer is scored against an unknown label."""


class PredictionsError(SciSciRLError, ValueError):
    """A table of predictions is empty, lacks a column, or contradicts itself."""


class LocalServerError(SciSciRLError, RuntimeError):
    """A local Tinker server cannot be set up or started: no network, no model, or a port in use."""


class FullServerError(SciSciRLError, RuntimeError):
    """A Tinker server has no place for another model now; it has one when another run ends."""


class RunFolderError(SciSciRLError, ValueError):
    """A folder does not hold a run, or not the evaluation or checkpoint that was asked for."""


class CollapseError(SciSciRLError, RuntimeError):
    """A model in training gives the same label to nearly every paper; ``step`` is that before which this was found."""

    exit_code: Final = 3

    def __init__(self, message: str, *, metrics: Mapping[str, float], step: int | None) -> None:
        super().__init__(message)
        self.metrics = dict(metrics)
        self.step = step
