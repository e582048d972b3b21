"""Check that a release on disk holds what its manifest says, and that this obeys the project's rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata._kernels.portable_math import sigmoid
from sciscidata.errors import ConfigError, VerificationError
from sciscidata.labels import (
    NOVELTY_LABELS,
    VOCABULARIES,
    LabelThresholds,
    label_disruption,
    label_novelty,
    uzzi_label,
)
from sciscidata.release.manifest import (
    DATA_FILES,
    MANIFEST,
    describe_examples,
    describe_file,
    list_files,
    read_manifest,
    read_settings,
)
from sciscidata.release.release import Release, render_jsonl
from sciscidata.sampling.duplicates import normalise_title
from sciscidata.sampling.split import BALANCED, SIDES, SplitConfig, class_quotas, quota_cells, side_of_keys, split_keys
from sciscidata.schemas import EXAMPLE

_CLEAR: Final = 1e-12  # how far a score must be from that of a cut to decide: more than a sigmoid is rounded by


def verify_release(folder: str | Path) -> Release:
    """Recompute everything that a manifest states and everything that makes a release one.

    Of the manifest: its own SHA-256. Of the files: none missing or extra, size, SHA-256. Of the rows: schema,
    number, list of ids, class counts, Parquet equal to JSONL and JSONL canonical; labels that follow from the
    scores and thresholds (novelty by Uzzi's rule only as far as the scores tell, see below); the order and the side
    that follow from ids and seed (without balance the side follows from all eligible works, which a release does not
    hold); the class quotas; no id and no normalised title on both sides. Of the counts of works that are not in the
    release, that they add up.

    Uzzi's rule labels by z, which a release does not hold. A sigmoid at that of a cut decides nothing about this cut,
    and z beyond ±8 have one sigmoid: where a cut lies beyond, no score above it can be told from one below. Ranks
    only tell whether the labels of one side and year agree with one another. What is not decided is not checked.

    Args:
        folder: what ``write_release`` made, perhaps elsewhere and long ago.

    Returns:
        The release, if nothing differs.

    Raises:
        InputNotFoundError: if there is no manifest.
        VerificationError: listing every difference; or at once, if the manifest itself was changed.

    Example:
        >>> verify_release(Path("no-such-slice"))
        Traceback (most recent call last):
        ...
        sciscidata.errors.InputNotFoundError: no-such-slice is not a release: it has no manifest.json. Build
        one with scripts/build_slice.py.
    """
    folder = Path(folder)
    release = Release(folder, read_manifest(folder))
    differences = list(_differences(release))
    if differences:
        found = "".join(f"\n- {difference}" for difference in differences)
        msg = (
            f"{folder} differs from its {MANIFEST} in {len(differences)} points:{found}\n"
            "Copy the release again, or rebuild it."
        )
        raise VerificationError(msg)
    return release


def _differences(release: Release) -> Iterator[str]:
    folder, manifest = release.folder, release.manifest
    strange = [name for name in list_files(folder) if not (folder / name).is_file()]
    if strange:  # a pipe would be waited for, and a device never ends
        yield from (f"{name} is no file" for name in strange)
        return
    yield from _compare_files(folder, manifest)
    examples: dict[str, pl.DataFrame] = {}
    for side in SIDES:
        try:
            examples[side] = _read_parquet(folder / f"{side}.parquet")
        except (OSError, ValueError, pa.ArrowException, pl.exceptions.PolarsError) as error:
            yield f"{side}.parquet cannot be read: {error}"
            continue
        yield from _compare_schema(side, examples[side])
    if list(examples) != list(SIDES) or any(frame.schema != EXAMPLE for frame in examples.values()):
        return
    described = describe_examples(examples)
    for key, found in described.items():
        yield from _compare(found, manifest.get(key), key)
    try:
        yield from _check_counts(manifest.get("counts", {}), described["class_counts"])
    except (AttributeError, KeyError, TypeError) as error:
        yield f"counts cannot be read: {error!r}"
    try:
        thresholds, split = read_settings(manifest)
    except ConfigError as error:
        yield str(error)
        return
    for side, frame in examples.items():
        yield from _compare_jsonl(folder / f"{side}.jsonl", frame)
        yield from _check_labels(side, frame, thresholds, manifest.get("atypicality"))
        yield from _check_places(side, frame, split)
    yield from _check_apart(examples["train"], examples["test"])


def _read_parquet(path: Path) -> pl.DataFrame:
    # Damaged bytes may decode to names, texts and metadata that are not UTF-8, on which Polars panics: pyarrow
    # looks at the first two, and the third is not needed.
    table = pq.ParquetFile(path).read().replace_schema_metadata(None)
    table.validate(full=True)
    fields = [field.remove_metadata() for field in table.schema]
    return pl.DataFrame(pl.from_arrow(table.cast(pa.schema(fields))))


def _compare_files(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    files = manifest.get("files")
    stated = cast("dict[str, Any]", files) if isinstance(files, dict) else {}
    there = set(list_files(folder)) - {MANIFEST}
    expected = {*DATA_FILES, *stated}
    yield from (f"{name} is missing" for name in sorted(expected - there))
    yield from (f"{name} is not part of the release" for name in sorted(there - expected))
    for name in sorted(there & expected):
        yield from _compare(describe_file(folder / name), stated.get(name), name)


def _compare(found: Any, stated: Any, where: str) -> Iterator[str]:  # noqa: ANN401 (JSON)
    """Compare what was recomputed with what the manifest states, leaf by leaf."""
    if isinstance(found, dict) and isinstance(stated, dict):
        left, right = cast("dict[str, Any]", found), cast("dict[str, Any]", stated)
        for key in {**left, **right}:
            yield from _compare(left.get(key), right.get(key), f"{where}: {key}")
    elif found != stated:
        yield f"{where}: the manifest says {stated!r}, found {found!r}"


def _compare_schema(side: str, frame: pl.DataFrame) -> Iterator[str]:
    if frame.schema != EXAMPLE:
        wrong = [f"{name} {dtype}" for name, dtype in frame.schema.items() if EXAMPLE.get(name) != dtype] + [
            f"no {name}" for name in EXAMPLE if name not in frame.schema
        ]
        yield f"{side}.parquet has other columns than EXAMPLE: {', '.join(wrong) or 'another order'}"


def _compare_jsonl(path: Path, frame: pl.DataFrame) -> Iterator[str]:
    try:
        expected = render_jsonl(frame)
        with path.open("rb") as file:
            got = file.read(len(expected) + 1)  # whatever else is there differs anyway
    except (ValueError, OSError) as error:
        yield f"{path.name} cannot be compared with {path.stem}.parquet: {error}"
        return
    if got != expected:
        lines = zip_longest(got.split(b"\n"), expected.split(b"\n"))
        first = next(number for number, (left, right) in enumerate(lines, start=1) if left != right)
        yield f"{path.name} line {first} is not the canonical form of row {first} of {path.stem}.parquet"


def _check_counts(
    counts: Mapping[str, Mapping[str, Any]], drawn: Mapping[str, Mapping[str, Mapping[str, int]]]
) -> Iterator[str]:
    """Check how the numbers of works add up, as far as whoever wrote the release has stated them."""
    if "filters" in counts:
        works, *parts = counts["filters"]["works"], *(n for name, n in counts["filters"].items() if name != "works")
        if sum(parts) != works:
            yield f"counts: filters: removals and eligible add up to {sum(parts):,}, not to {works:,} works"
    if "eligible" in counts:
        total = sum(counts["eligible"]["disruption_label"].values())
        if "filters" in counts and total != counts["filters"]["eligible"]:
            yield f"counts: eligible: the classes add up to {total:,}, not to {counts['filters']['eligible']:,}"
        for column, labels in counts["eligible"].items():
            for label, eligible in labels.items():
                n_drawn = sum(side[column][label] for side in drawn.values())
                scored = counts.get("scored", counts["eligible"])[column][label]
                if not n_drawn <= eligible <= scored:
                    yield f"counts: {label}: {n_drawn:,} drawn of {eligible:,} eligible of {scored:,} scored works"


def _check_labels(
    side: str, frame: pl.DataFrame, thresholds: LabelThresholds, atypicality: Mapping[str, Any] | None
) -> Iterator[str]:
    relabelled = label_disruption(frame, thresholds)
    if thresholds.novelty_rule == "uzzi":
        relabelled = relabelled.with_columns(_uzzi_label(thresholds, atypicality or {}))
    else:
        relabelled = label_novelty(relabelled, thresholds)
    expected = relabelled.collect()
    for column in VOCABULARIES:
        wrong = frame.filter(~frame[column].eq_missing(expected[column]))["openalex_id"]
        if len(wrong):
            yield f"{side}: {column} of {len(wrong):,} rows contradicts their score, first {wrong[0]}"


def _uzzi_label(thresholds: LabelThresholds, atypicality: Mapping[str, Any]) -> pl.Expr:
    """Derive the label of Uzzi's rule from the scores, as far as they decide; else take the one that stands there.

    A work without both scores has none. Of a work of which one half is decided, the label that contradicts this half is
    called balanced, so that it differs.
    """
    label = pl.col("novelty_label")
    is_scored = pl.col("novelty_score").is_not_null() & pl.col("conventionality_score").is_not_null()
    tail, high = _halves(thresholds, atypicality)
    novel, balanced, conventional = map(pl.lit, NOVELTY_LABELS)
    contradicts_a_half = ((label == novel) & (~tail | high)) | ((label == conventional) & (tail | ~high))
    stated = pl.when(contradicts_a_half | ~label.is_in(NOVELTY_LABELS)).then(balanced).otherwise(label)
    label_there = pl.when(label.is_null()).then(balanced).otherwise(stated)
    return pl.when(is_scored).then(pl.coalesce(uzzi_label(tail, high), label_there)).alias("novelty_label")


def _halves(thresholds: LabelThresholds, atypicality: Mapping[str, Any]) -> tuple[pl.Expr, pl.Expr]:
    """Say of every work of a side whether it has tail novelty, and whether high conventionality; null: undecided."""
    novelty, conventionality, label = pl.col("novelty_score"), pl.col("conventionality_score"), pl.col("novelty_label")
    cut = atypicality.get("conventionality_cut")
    if cut is None:
        return pl.lit(None, pl.Boolean), pl.lit(None, pl.Boolean)
    if (atypicality["config"] or atypicality["published"])["score"] == "sigmoid":  # which keeps the order of z
        at_tail, at_middle = sigmoid(np.array([-thresholds.uzzi_tail_max, cut]))
        return _above(novelty, at_tail), _above(conventionality, at_middle)
    # Ranks keep the order within a year, so the works with a half lie above those without: novel ones, say, have tail
    # novelty, and so has any work of their year with as high a score.
    novel, conventional = label == "novel", label == "conventional"
    return _from_neighbours(novelty, novel, conventional), _from_neighbours(conventionality, conventional, novel)


def _above(score: pl.Expr, cut: float) -> pl.Expr:
    return pl.when((score - cut).abs() > _CLEAR).then(score > cut)


def _from_neighbours(score: pl.Expr, has: pl.Expr, has_not: pl.Expr) -> pl.Expr:
    lowest, highest = score.filter(has).min(), score.filter(has_not).max()
    year = "publication_year"
    return pl.when(score >= lowest.over(year)).then(True).when(score <= highest.over(year)).then(False)


def _check_places(side: str, frame: pl.DataFrame, split: SplitConfig) -> Iterator[str]:
    ids = frame["openalex_id"].str.extract("^W([0-9]+)$").cast(pl.Int64, strict=False)
    if ids.null_count():
        yield f"{side}: {ids.null_count():,} ids are not 'W' and a number"
        return
    keys = split_keys(ids, split.seed)
    places = pl.DataFrame([keys, ids.alias("work_id")])
    if not places.equals(places.sort("split_key", "work_id")):
        yield f"{side}: rows are not in the order of their split keys"
    columns = BALANCED[split.balance]
    if columns:
        strays = frame.filter(side_of_keys(keys, split) != side)["openalex_id"]
        if len(strays):
            yield f"{side}: {len(strays):,} rows belong to the other side by their id, first {strays[0]}"
    drawn = frame.group_by(*columns).len().rows() if columns else [(frame.height,)]
    found = {tuple(cell): count for *cell, count in drawn}
    for cell, quota in class_quotas(split.sizes[side], quota_cells(columns)).items():
        if found.get(cell, 0) != quota:
            name = " + ".join(cell) or "any"
            yield f"{side}: {found.get(cell, 0):,} rows of class {name}, the split asks for {quota:,}"


def _check_apart(train: pl.DataFrame, test: pl.DataFrame) -> Iterator[str]:
    for what, key in (("id", pl.col("openalex_id")), ("normalised title", normalise_title(pl.col("title")))):
        left, right = (frame.select(key).to_series().drop_nulls().unique() for frame in (train, test))
        shared = left.filter(left.is_in(right.implode())).sort()
        if len(shared):
            yield f"{len(shared):,} works lie on both sides by {what}, first {shared[0]!r}"
