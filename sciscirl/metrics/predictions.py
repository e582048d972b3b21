"""Predictions as a table: one row per answer. Every metric can be recomputed from it without a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pyarrow as pa

from sciscidata.storage.parquet import read_parquet, write_parquet
from sciscidata.storage.sums import check_sealed, sealed_file
from sciscirl.errors import PredictionsError
from sciscirl.task.contracts import read_json
from sciscirl.task.papers import (
    VOCABULARIES,
    Target,
    list_labels,
    short_name,
)
from sciscirl.task.predictions import PER_LABEL, PREDICTIONS, TASK, column_ends, prediction_schema
from sciscirl.task.targets import read_own_target

if TYPE_CHECKING:
    from tinker_cookbook.rl.types import TrajectoryGroup


def find_target(predictions: pl.DataFrame) -> Target:
    """Return the task of a table of predictions, by its columns and the vocabulary of its gold labels."""
    if TASK in predictions.columns:
        try:
            (stated,) = predictions[TASK].unique(maintain_order=True)
            return read_own_target(stated)
        except (ValueError, TypeError) as error:
            raise PredictionsError(
                f"the column {TASK!r} does not name one own label ({error}). Use the table that an evaluation wrote."
            ) from error
    if "gold_disruption" in predictions.columns:
        return "joint"
    gold = predictions["gold"] if predictions.schema.get("gold") == pl.String else pl.Series([], dtype=pl.String)
    return "disruption" if set(gold.to_list()).isdisjoint(VOCABULARIES["novelty_label"]) else "novelty"


def split_by_label(predictions: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Split a table of predictions by label; in the joint task each lacks the columns that are about both."""
    ends = column_ends(find_target(predictions))
    if len(ends) == 1:
        return {short_name(column): predictions for column in ends}
    of_one = {f"{name}{end}" for name in PER_LABEL for end in ends.values()}
    of_both = {"confidence", "tolerant_confidence", *(name for name in PREDICTIONS if name.startswith("reward"))}
    shared = [name for name in predictions.columns if name not in of_one | of_both]
    tables: dict[str, pl.DataFrame] = {}
    for column, end in ends.items():
        own = {name: f"{name}{end}" for name in PER_LABEL if f"{name}{end}" in predictions.columns}
        tables[short_name(column)] = predictions.select(*shared, **own)
    return tables


def check_predictions(predictions: pl.DataFrame | Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Make a frame of predictions, and refuse a table that no evaluation can have written (PredictionsError)."""
    if not isinstance(predictions, pl.DataFrame):
        rows = [dict(row) for row in predictions]
        dtypes = {**PREDICTIONS, **prediction_schema("joint"), TASK: pl.String()}
        schema = {name: dtype for name, dtype in dtypes.items() if rows and name in rows[0]}
        try:
            predictions = pl.DataFrame(rows, schema=schema)
        except (pl.exceptions.PolarsError, TypeError) as error:
            raise PredictionsError(
                f"the predictions hold values of another type ({error}). Use rows that make_prediction made."
            ) from error
    if predictions.is_empty():
        raise PredictionsError("there are no predictions. Evaluate at least one paper.")
    target = find_target(predictions)
    schema = prediction_schema(target)
    ends = column_ends(target)
    labels = (f"{name}{end}" for name in ("gold", "label") for end in ends.values())
    needed = {"is_json", "is_valid", "confidence", *labels}
    wrong = [
        f"{name} {predictions.schema.get(name, 'missing')}, needs {schema[name]}"
        for name in schema
        if (name in needed or name in predictions.columns) and predictions.schema.get(name) != schema[name]
    ]
    if wrong:
        raise PredictionsError(f"the predictions have {'; '.join(wrong)}. Use the table that an evaluation wrote.")
    for column, end in ends.items():
        _check_values(predictions, end, list_labels(target)[column])
    return predictions


def _check_values(predictions: pl.DataFrame, end: str, vocabulary: tuple[str, ...]) -> None:
    gold, said, sure = pl.col(f"gold{end}"), pl.col(f"label{end}"), pl.col("confidence")
    rewards = [name for name in predictions.columns if name.startswith("reward")]
    known = ", ".join(vocabulary)
    problems = predictions.select(
        (~gold.is_in(vocabulary)).fill_null(value=True).sum().alias(f"have an unknown gold label, needs {known}"),
        (~said.is_in(vocabulary)).sum().alias(f"have an unknown label, needs {known}"),
        (~sure.is_between(0, 1)).sum().alias("have a confidence outside 0 to 1"),
        pl.any_horizontal(pl.col("is_json", "is_valid").is_null()).sum().alias("do not say whether they are valid"),
        pl.any_horizontal(said.is_null() == pl.col("is_valid"), sure.is_null() == pl.col("is_valid"))
        .sum()
        .alias("have a label or confidence without being valid, or are valid without"),
        (pl.col("is_valid") & ~pl.col("is_json")).sum().alias("are valid but not JSON"),
        pl.any_horizontal(pl.lit(value=False), *(~pl.col(name).is_finite().fill_null(value=False) for name in rewards))
        .sum()
        .alias("have no finite reward"),
    ).row(0, named=True)
    if f"forecast{end}" in predictions.columns:
        forecasts = predictions[f"forecast{end}"].drop_nulls()
        problems["have a forecast that is none"] = sum(not _is_forecast(text, vocabulary) for text in forecasts)
        problems["have a forecast without being valid"] = len(
            predictions.filter(pl.col(f"forecast{end}").is_not_null() & ~pl.col("is_valid"))
        )
    if "has_think" in predictions.columns:
        problems["do not say whether they hold <think>"] = predictions["has_think"].null_count()
    for problem, count in problems.items():
        if count:
            raise PredictionsError(
                f"{count:,} of {len(predictions):,} predictions {problem}. Use the table that an evaluation wrote."
            )


def _is_forecast(text: str, vocabulary: tuple[str, ...]) -> bool:
    value, _ = read_json(text)
    chances = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return set(chances) == set(vocabulary) and all(
        isinstance(chance, float) and 0 <= chance <= 1 for chance in chances.values()
    )


def collect_predictions(
    groups: Iterable[TrajectoryGroup], target: Target = "disruption", *, schema: pl.Schema | None = None
) -> pl.DataFrame:
    """Read the rows that the environments logged, in the order of groups and of the answers in each."""
    logged = [trajectory.transitions[-1].logs for group in groups for trajectory in group.trajectories_G]
    return tabulate_logs(logged, schema or prediction_schema(target))


def tabulate_logs(logged: Iterable[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """Make a table of rows that the environments logged without their nulls."""
    return pl.DataFrame([{name: logs.get(name) for name in schema} for logs in logged], schema=schema)


def write_predictions(predictions: pl.DataFrame, path: Path) -> None:
    """Write a table of predictions as Parquet, completely or not at all, and seal it."""
    with sealed_file(path) as unfinished:
        write_parquet(predictions, unfinished)


def read_predictions(path: Path) -> pl.DataFrame:
    """Read a file of predictions in its order; a ChangedFileError says that it was changed."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise PredictionsError(f"{path} {what}. Give a predictions file of a run.")
    check_sealed(path)
    try:
        return check_predictions(read_parquet(path))
    except PredictionsError as error:
        raise PredictionsError(f"{path} cannot be judged: {error}") from error
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as error:
        raise PredictionsError(
            f"{path} is no Parquet file that can be read ({type(error).__name__}). Give a predictions file of a run, "
            "or write labels of your own as a result file: write_result."
        ) from error
