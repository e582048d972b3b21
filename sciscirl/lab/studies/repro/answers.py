"""The answers of one run to all prompts: how they are stored, and compared with those of the reference."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import polars as pl
import pyarrow as pa

from sciscidata.errors import ChangedFileError
from sciscidata.storage import path_inside
from sciscidata.storage.parquet import read_parquet, write_parquet
from sciscidata.storage.small_files import is_special
from sciscidata.storage.sums import check_sealed, read_json, sealed_file

CELLS: Final = "cells"

#: One row for each prompt and mode of a run.
ANSWERS: Final = pl.Schema(
    {
        "mode": pl.String(),  # greedy or sampled
        "openalex_id": pl.String(),
        "text": pl.String(),
        "label": pl.String(),  # invalid, where the answer is; of two labels, both
        "tokens": pl.List(pl.Int64()),
        "logprobs": pl.List(pl.Float64()),  # of tokens, while they were decoded; natural logarithms, temperature 1
        "reference_logprobs": pl.List(pl.Float64()),  # of the reference's tokens, in one pass; null: not to be had
    }
)
#: A comparison, one row for each mode.
DIVERGENCE: Final = pl.Schema(
    {
        "mode": pl.String(),
        "n": pl.Int64(),
        "identical_share": pl.Float64(),
        "first_divergence_median": pl.Float64(),
        "first_divergence_min": pl.Int64(),
        "logprob_difference_mean": pl.Float64(),
        "logprob_difference_max": pl.Float64(),
        "label_flip_share": pl.Float64(),
    }
)


def first_divergence(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the place, from 0, of the first token that differs, or after the shorter answer; None if equal.

    Example:
        >>> first_divergence([5, 6, 7], [5, 9]), first_divergence([5], [5, 6]), first_divergence([5], [5])
        (1, 1, None)
    """
    for place, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return place
    return None if len(left) == len(right) else min(len(left), len(right))


def compare_answers(answers: pl.DataFrame, reference: pl.DataFrame) -> pl.DataFrame:
    """Compare a run with the reference, ANSWERS of the same prompts in the same order (ValueError).

    Returns DIVERGENCE, a row for each mode in the order of the reference:

    - ``n``: prompts.
    - ``identical_share``: share of prompts with the same tokens.
    - ``first_divergence_median``, ``first_divergence_min``: place of the first token that differs, from 0, among
      answers that differ; null without any.
    - ``logprob_difference_mean``, ``logprob_difference_max``: absolute difference in the log-probability (nats) of the
      reference's tokens, over all tokens. Both come from one pass over prompt and answer. Null where one was not to be
      had. This is what moves before any token does.
    - ``label_flip_share``: share of prompts with another label; an invalid answer counts as one more label.

    Example:
        >>> row = {"mode": "greedy", "openalex_id": "W1", "text": "", "logprobs": [-0.5, -0.5]}
        >>> row |= {"label": "neutral"}
        >>> one = pl.DataFrame([row | {"tokens": [1, 2], "reference_logprobs": [-0.5, -0.5]}], schema=ANSWERS)
        >>> other = pl.DataFrame([row | {"tokens": [1, 3], "reference_logprobs": [-0.5, -0.75]}], schema=ANSWERS)
        >>> compared = compare_answers(other, one)
        >>> compared.select("identical_share", "first_divergence_min", "logprob_difference_max").row(0)
        (0.0, 1, 0.25)
    """
    keys = ["mode", "openalex_id"]
    if not answers.select(keys).equals(reference.select(keys)):
        msg = "the runs are of other prompts, or of these in another order"
        raise ValueError(msg)
    return pl.DataFrame(
        [
            {"mode": mode} | _compare(answers.filter(mode=mode), reference.filter(mode=mode))
            for mode in reference["mode"].unique(maintain_order=True)
        ],
        schema=DIVERGENCE,
    )


def _compare(answers: pl.DataFrame, reference: pl.DataFrame) -> dict[str, Any]:
    pairs = zip(answers["tokens"].to_list(), reference["tokens"].to_list(), strict=True)
    places = [place for left, right in pairs if (place := first_divergence(left, right)) is not None]
    flips = (answers["label"] != reference["label"]).sum()
    return {
        "n": len(reference),
        "identical_share": (len(reference) - len(places)) / len(reference),
        "first_divergence_median": float(statistics.median(places)) if places else None,
        "first_divergence_min": min(places, default=None),
        "label_flip_share": flips / len(reference),
    } | compare_logprobs(answers["reference_logprobs"], reference["reference_logprobs"])


def compare_logprobs(left: pl.Series, right: pl.Series) -> dict[str, float | None]:
    """Compare log-probabilities of the same tokens, a list for each prompt; None if a list is null.

    Example:
        >>> compare_logprobs(pl.Series([[-1.0, -2.0]]), pl.Series([[-1.5, -2.0]]))
        {'logprob_difference_mean': 0.25, 'logprob_difference_max': 0.5}
    """
    differences: list[float] = []
    if not (left.has_nulls() or right.has_nulls()):
        for ours, theirs in zip(left.to_list(), right.to_list(), strict=True):
            differences += [abs(one - other) for one, other in zip(ours, theirs, strict=True)]
    return {
        "logprob_difference_mean": math.fsum(differences) / len(differences) if differences else None,
        "logprob_difference_max": max(differences, default=None),
    }


def read_answers(folder: Path, name: str) -> tuple[dict[str, Any], pl.DataFrame | None]:
    """Read the record of one run, and its ANSWERS if measured; an empty record and None if absent or damaged."""
    try:
        record = read_json(_place(folder, f"{name}.json"))
        if not isinstance(record, dict) or record["status"] not in ("measured", "unsupported"):
            return {}, None
        known = cast("dict[str, Any]", record)
        if not isinstance(known["reason"], str | None):
            return {}, None
        is_measured = known["status"] == "measured"
        path = _place(folder, f"{name}.parquet")
        if is_measured and is_special(path):
            return {}, None
        if is_measured:
            check_sealed(path)
        answers = read_parquet(path) if is_measured else None
    except (ChangedFileError, OSError, ValueError, LookupError, TypeError, pa.ArrowException):
        return {}, None
    return (known, answers) if answers is None or answers.schema == ANSWERS else ({}, None)


def _place(folder: Path, name: str) -> Path:
    # A device may be cuda:1, which names in general may not hold.
    path_inside(folder / CELLS, name.replace(":", "-"), stated_by="an option of the sweep")
    return folder / CELLS / name


def write_answers(folder: Path, name: str, record: Mapping[str, Any], answers: pl.DataFrame | None) -> None:
    """Write a run; its record comes last, and says that all of it is there."""
    if answers is not None:
        with sealed_file(_place(folder, f"{name}.parquet")) as path:
            write_parquet(answers, path)
    with sealed_file(_place(folder, f"{name}.json")) as path:
        path.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
