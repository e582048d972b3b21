"""Every error a user of the learning half can cause. Scripts show the message as one line and exit with 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sciscidata.errors import SciSciDataError


class SciSciRLError(SciSciDataError):
    """Base class: catch this to catch every error a user's input can cause here."""


class ReleaseError(SciSciRLError, ValueError):
    """A release is missing, was altered, or does not hold what the task needs."""


class PromptError(SciSciRLError, ValueError):
    """A prompt cannot be made: an unknown style, or a paper that does not fit under the token cap."""


class RewardError(SciSciRLError, ValueError):
    """A reward table has an impossible value, or an answer is scored against a label that does not exist."""


class PredictionsError(SciSciRLError, ValueError):
    """A table of predictions is empty, lacks a column, or contradicts itself."""


class LocalServerError(SciSciRLError, RuntimeError):
    """A Tinker server of one's own cannot be set up or started: no network, no model, a port in use."""


class RunFolderError(SciSciRLError, ValueError):
    """A folder does not hold what is asked of it: no run, or no evaluation to choose a checkpoint by."""


class CollapseError(SciSciRLError, RuntimeError):
    """A model in training answers with one label whatever the paper, and the run is to end at that.

    Attributes:
        metrics: of the answers that showed it.
        step: before which they were looked at, where it is known.
        exit_code: of a script whose run this ended; what the run has is kept.
    """

    exit_code: Final = 3

    def __init__(self, message: str, *, metrics: Mapping[str, float], step: int | None) -> None:
        super().__init__(message)
        self.metrics = dict(metrics)
        self.step = step
