"""What of a release follows from its ``scores.parquet``, and whether it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import add_indices
from sciscidata.novelty.atypicality import add_scores
from sciscidata.own_label import stated_label, stated_where
from sciscidata.release.context import CONTEXT, has_context
from sciscidata.release.documents import name_source
from sciscidata.release.manifest import lacks_scores
from sciscidata.release.read import SCORES_FILE, list_data_files, read_settings
from sciscidata.schemas import has_own_scores
from sciscidata.terminal.messages import counted

#: Each score of novelty, the z that it follows from, and whether it rises with it.
_Z_OF: Final = {"novelty_score": ("z_p10", False), "conventionality_score": ("z_median", True)}


class Recomputed(NamedTuple):
    """Columns of a release: ``done`` says from what each one was recomputed, ``left`` why another one was not."""

    done: dict[str, str]
    left: dict[str, str]


def list_recomputed(manifest: Mapping[str, Any]) -> Recomputed:
    """Say by a manifest alone which scores and labels of its release follow from other numbers in it."""
    done, left = dict[str, str](), dict[str, str]()
    thresholds, label = read_settings(manifest)[0], stated_label(manifest)
    if label is not None:
        left[label.name] = "only compared with its classes"
    if has_context(manifest):
        left |= dict.fromkeys(CONTEXT, "it follows from all citations of the source, which are not here")
    left |= {f"filter {name}": "a manifest has its text only; the numbers add up" for name in stated_where(manifest)}
    if lacks_scores(manifest):
        return Recomputed(done, left)
    has_file = SCORES_FILE in list_data_files(manifest)
    missing = f"there is no {SCORES_FILE}"
    source = manifest.get("source", {})
    if has_file and "cd" in manifest and not has_own_scores(source):
        done["cd_index"] = "n_i, n_j, n_k"
    else:
        left["cd_index"] = "its counts are not known" if has_file else missing
    has_trusted_labels = source.get("labels") == "trust"
    if not has_trusted_labels:
        done["disruption_label"] = ", ".join(["cd_index", *thresholds.cell_columns])
    if manifest["novelty"]["available"]:
        atypicality = manifest.get("atypicality")
        has_z = has_file and bool(atypicality)
        unknown = "z is not known" if has_file else missing
        is_rank = has_file and bool(atypicality) and score_of(atypicality) == "rank"
        for name, (z, _) in _Z_OF.items():
            if has_z and not is_rank:
                done[name] = z
            else:
                left[name] = (
                    f"a rank among all works of a year; its order was compared with {z}" if is_rank else unknown
                )
        if thresholds.novelty_rule == "margin" and not has_trusted_labels:
            done["novelty_label"] = ", ".join(_Z_OF)
        elif has_z:
            done["novelty_label"] = "z_p10, z_median, conventionality_cut of the manifest"
        elif not has_trusted_labels:
            left["novelty_label"] = unknown
    if has_trusted_labels:
        files = name_source(source, "labelled files")
        left |= dict.fromkeys(("disruption_label", "novelty_label"), f"taken from {files} as it was")
    return Recomputed(done, left)


def score_of(atypicality: Mapping[str, Any]) -> str:
    """Return how z became a score: ``"sigmoid"`` or ``"rank"``."""
    return (atypicality["config"] or atypicality["published"])["score"]


def check_rows(scores: pl.DataFrame, examples: Mapping[str, pl.DataFrame]) -> Iterator[str]:
    """Check that the scores are those of the released works, in their order."""
    of_splits = [frame.select("openalex_id", pl.lit(split).alias("split")) for split, frame in examples.items()]
    expected, scored = pl.concat(of_splits), scores.select("openalex_id", "split")
    if scored.height != expected.height:
        yield f"{SCORES_FILE}: {counted(scored.height, 'row')}, the splits have {expected.height:,}"
    common = min(scored.height, expected.height)
    same = [scored[name][:common].eq_missing(expected[name][:common]) for name in scored.columns]
    wrong = (~(same[0] & same[1])).arg_true()
    if len(wrong):
        row = wrong[0]
        (is_id, is_split), (id_, split) = scored.row(row), expected.row(row)
        yield f"{SCORES_FILE} row {row + 1} is {is_id} of {is_split}, needs {id_} of {split}"


def check_scores(rows: pl.DataFrame, manifest: Mapping[str, Any], done: Mapping[str, str]) -> Iterator[str]:
    """Recompute the scores of the rows of a split: EXAMPLE, with the columns of SCORES beside it."""
    expected: dict[str, pl.Series] = {}
    if "cd_index" in done:
        expected["cd_index"] = _cd_index(rows, manifest["cd"])
    again = add_scores(rows, "sigmoid")
    for name, (z, rises) in _Z_OF.items():
        if name in done:
            expected[name] = again[name]
        elif manifest.get("atypicality"):
            order = pl.col(z) if rises else -pl.col(z)
            ranks = rows.select(found=_place(pl.col(name)), by_z=_place(order))
            wrong = rows.filter(~ranks["found"].eq_missing(ranks["by_z"]))["openalex_id"]
            if len(wrong):
                yield f"{name} of {counted(len(wrong), 'row')} is not in the order of {z}, first {wrong[0]}"
    for name, column in expected.items():
        wrong = rows.filter(~rows[name].eq_missing(column))["openalex_id"]
        if len(wrong):
            n_wrong = counted(len(wrong), "row")
            yield f"{name} of {n_wrong} does not follow from {done[name]} in {SCORES_FILE}, first {wrong[0]}"


def _cd_index(rows: pl.DataFrame, stated: Mapping[str, Any]) -> pl.Series:
    # A released index is defined: its work was cited at some time, if the convention asks for that.
    n_k = pl.when(pl.col("n_i") == pl.col("n_j")).then(pl.col("n_k").fill_null(0)).otherwise("n_k").alias("n_k")
    counts = rows.with_columns(n_k, pl.lit(0).alias("work_id"), n_refs="n_references", n_ever=1)
    return add_indices(counts, replace(CDConfig(**stated), family=False, di_l=5, windows=()))["cd_index"]


def _place(number: pl.Expr) -> pl.Expr:
    return number.rank("dense").over("publication_year")
