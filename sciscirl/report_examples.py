"""Answers to read: right, wrong and invalid ones of every run, with the papers where the slice is at hand."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import polars as pl

from sciscidata.release import MANIFEST
from sciscidata.storage.small_files import read_whole
from sciscirl.metrics import find_right
from sciscirl.predictions import INVALID, split_by_label
from sciscirl.report_layout import ABSENT, Example, Section, show
from sciscirl.report_runs import SIDE, Run
from sciscirl.task import Paper, Side, read_split

_LONGEST: Final = 2000  # characters of an abstract or an answer that are shown
_SHOWN: Final = ("reward_parse", "reward_contract", "reward_task", "reward_think")


def view_examples(runs: Sequence[Run], *, n_each: int, release: Path | None) -> Section | None:
    """Show answers of each run's last evaluation; None where no run kept any.

    Args:
        runs: of which.
        n_each: how many right, how many wrong, how many invalid ones of each run: spread over the gold labels, of each
            of them the first in the order of the evaluation.
        release: the slice, for titles and abstracts of the runs that are of it.

    Raises:
        SliceError: if that is no release, or was altered.
    """
    examples: dict[str, Sequence[Example]] = {}
    texts: dict[Side, Mapping[str, Paper]] = {}
    digest = None if release is None else _hash_of(release)
    n_without = 0
    for run in runs:
        table = run.last.predictions if run.last else None
        if table is None or "text" not in table.columns:
            continue
        papers: Mapping[str, Paper] = {}
        stated = cast("Any", run.facts.get("release") or {}).get("manifest_sha256")
        if release is not None and stated == digest:
            side = cast("Side", run.settings.get("side", SIDE))
            if side not in texts:
                texts[side] = {paper.openalex_id: paper for paper in read_split(release, side, needs=())}
            papers = texts[side]
        else:
            n_without += 1
        chosen = _choose(table, n_each)
        if chosen:
            examples[run.name] = [_make_example(outcome, row, papers) for outcome, row in chosen]
    if not examples:
        return None
    text = "Answers of the last evaluation as they were written, spread over the gold labels and not otherwise chosen."
    if release is None:
        text += " With --release, the papers are shown too."
    elif n_without:
        text += f" The papers of {n_without:,} runs are not shown: {release.name} is not their slice."
    return Section("examples", "Examples", text, examples=examples)


def _hash_of(release: Path) -> str | None:
    try:
        return hashlib.sha256(read_whole(release / MANIFEST)).hexdigest()
    except OSError:
        read_split(release, SIDE, needs=())  # says what is the matter with it
        return None


def _choose(table: pl.DataFrame, n_each: int) -> list[tuple[str, dict[str, Any]]]:
    first = next(iter(split_by_label(table).values()))
    numbered = table.with_columns(
        _gold=first["gold"],
        _outcome=pl.select(
            pl.when(~table["is_valid"]).then(pl.lit(INVALID)).when(find_right(table)).then(pl.lit("right"))
            .otherwise(pl.lit("wrong"))
        ).to_series(),
    ).with_columns(_turn=pl.int_range(pl.len()).over("_outcome", "_gold"), _place=pl.int_range(pl.len()))  # fmt: skip
    return [
        (outcome, row)
        for outcome in ("right", "wrong", INVALID)
        for row in numbered.filter(pl.col("_outcome") == outcome).sort("_turn", "_place").head(n_each).to_dicts()
    ]


def _make_example(outcome: str, row: Mapping[str, Any], papers: Mapping[str, Paper]) -> Example:
    golds = [value for name, value in row.items() if name.startswith("gold")]
    labels = [value for name, value in row.items() if name.startswith("label")]
    view = papers[row["openalex_id"]].view if row.get("openalex_id") in papers else None
    facts = {
        "paper": str(row.get("openalex_id", ABSENT)),
        "gold": ", ".join(golds),
        "answered": ", ".join(label for label in labels if label is not None)
        or f"{INVALID}: {row.get('problem') or ''}",
        "confidence": show(row.get("confidence"), 2),
    }
    if row.get("reward") is not None:
        parts = {name.removeprefix("reward_"): row[name] for name in _SHOWN if row.get(name)}
        said = ", ".join(f"{name} {value:+.2f}" for name, value in parts.items())
        facts["reward"] = f"{row['reward']:.2f}" + (f" ({said})" if said else "")
    if view is not None:
        facts |= {
            "year": str(view.publication_year or ABSENT),
            "cited by": ABSENT if view.cited_by_count is None else f"{view.cited_by_count:,}",
            "field": view.primary_field or ABSENT,
        }
    title = f"{view.title or row['openalex_id']}" if view else ""
    abstract = "" if view is None else _cut(view.abstract or "(no abstract)")
    return Example(outcome, title, facts, abstract, _cut(row.get("text") or "(nothing)"))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} \N{HORIZONTAL ELLIPSIS}"
