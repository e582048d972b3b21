"""Predictions as a table on disk: from rollouts to Parquet, and back to metrics without any model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from sciscirl.errors import PredictionsError
from sciscirl.metrics import PREDICTIONS, check_predictions

if TYPE_CHECKING:
    from tinker_cookbook.rl.types import TrajectoryGroup


def collect_predictions(groups: Iterable[TrajectoryGroup]) -> pl.DataFrame:
    """Read the rows that the environments logged.

    Returns:
        PREDICTIONS, in the order of groups and of the answers in each.
    """
    logged = [trajectory.transitions[-1].logs for group in groups for trajectory in group.trajectories_G]
    return pl.DataFrame([{name: logs.get(name) for name in PREDICTIONS} for logs in logged], schema=PREDICTIONS)


def write_predictions(predictions: pl.DataFrame, path: Path) -> None:
    """Write a table of predictions as Parquet, whole or not at all.

    Raises:
        PredictionsError: if it cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        predictions.write_parquet(unfinished)
        unfinished.replace(path)
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror or error}). Choose another folder, or make room."
        raise PredictionsError(msg) from error


def read_predictions(path: Path) -> pl.DataFrame:
    """Read what ``write_predictions`` wrote, and check it.

    Returns:
        PREDICTIONS, at least the columns that the metrics need, in the order of the file.

    Raises:
        PredictionsError: if there is no such file, or it holds no table of predictions.

    Example:
        >>> read_predictions(Path("no-such.parquet"))
        Traceback (most recent call last):
        ...
        sciscirl.errors.PredictionsError: no-such.parquet does not exist. Give a predictions file of a run.
    """
    if not path.is_file():
        msg = f"{path} does not exist. Give a predictions file of a run."
        raise PredictionsError(msg)
    try:
        return check_predictions(pl.read_parquet(path, glob=False))
    except (pl.exceptions.PolarsError, OSError) as error:
        msg = f"{path} is no Parquet file that can be read ({type(error).__name__}). Give a predictions file of a run."
        raise PredictionsError(msg) from error
