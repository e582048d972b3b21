"""A release: the drawn works as files that anyone can check. Written and read here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata.errors import (
    ONE_ROW_EACH,
    ConfigError,
    InputNotFoundError,
    ReleaseExistsError,
    VerificationError,
    WorkIdError,
)
from sciscidata.own_label import OwnLabel, stated_label
from sciscidata.records.ids import ORIGINAL_ID, released_id
from sciscidata.release.context import CONTEXT, released_schema
from sciscidata.release.documents import render_documents
from sciscidata.release.manifest import (
    DOCUMENTS,
    NOVELTY_COLUMNS,
    PICTURES,
    check_stated,
    complete_manifest,
    list_files,
)
from sciscidata.release.read import (
    SCORES_FILE,
    Release,
    list_data_files,
    read_manifest,
    read_release,
    read_settings,
    render_manifest,
)
from sciscidata.release.record import describe_record
from sciscidata.release.write_json_lines import render_jsonl
from sciscidata.schemas import EXAMPLE, MANIFEST, SCORES, WORKS, require_columns
from sciscidata.storage import atomic_folder, clear_leftovers, real_path, storage_error
from sciscidata.storage.parquet import ROWS_PER_GROUP
from sciscidata.terminal.messages import counted

_FROM_WORKS: Final = ("title", "abstract", "publication_year", "cited_by_count", "primary_field", "concepts")
#: What SCORES takes from the drawn frame and from WORKS, each as far as it is there.
_FROM_DRAW: Final = ("n_i", "n_j", "n_k", "n_references", "n_pairs", "z_p10", "z_median")
_ALSO_FROM_WORKS: Final = ("doi", "source_id", "source_name", "language", "work_type")
#: What ``draw_split`` returns and a release needs; the novelty columns are optional.
DRAWN: Final = pl.Schema(
    {
        "work_id": WORKS["work_id"],
        "split": pl.String(),
        "split_key": pl.UInt64(),
        "cd_index": EXAMPLE["cd_index"],
        "disruption_label": EXAMPLE["disruption_label"],
    }
)


class Target(NamedTuple):
    """Where a release goes, and which files it has beside its examples.

    Attributes:
        folder: it appears whole, or not at all.
        overwrite: replace what is there, if it is a release.
        scores_file: write scores.parquet.
        extra: adds files to the unfinished folder, such as pictures.
    """

    folder: str | Path
    overwrite: bool = False
    scores_file: bool = True
    extra: Callable[[Path], None] = lambda _: None


def write_release(
    drawn: pl.LazyFrame | pl.DataFrame,
    works: pl.LazyFrame | pl.DataFrame,
    manifest: Mapping[str, Any],
    target: Target,
    context: pl.DataFrame | None = None,
) -> Release:
    """Write a release folder, whole or not at all, of what ``draw_split`` returns and the texts in ``works``.

    The bytes of the JSON lines are the same everywhere, those of Parquet within one environment only: they name their
    writer's version. What SCORES and the novelty columns have and ``drawn`` lacks is null. ``manifest`` is the caller's
    part: ``thresholds`` and ``split`` (``dataclasses.asdict``), ``label`` (``OwnLabel.stated``) if ``drawn`` has one,
    and what else should be on record; no absolute paths. If it says that the rows have CONTEXT, ``context`` has these
    columns of all drawn works.
    """
    names = {"frame_name": "the drawn frame", "stage": "write_release"}
    lazy = require_columns(drawn, DRAWN, **names)
    require_columns(lazy, EXAMPLE, **names, columns=set(NOVELTY_COLUMNS) & set(lazy.collect_schema()))
    texts = require_columns(works, WORKS, frame_name="WORKS", stage="write_release", columns=("work_id", *_FROM_WORKS))
    check_stated(manifest)
    folder, overwrite = real_path(target.folder), target.overwrite
    check_target(folder, overwrite=overwrite)
    label = stated_label(manifest)
    if label is not None:
        require_columns(lazy, {label.name: pl.String()}, **names)
    rows = lazy.collect()
    joined = _join_texts(rows, texts, label)
    if context is not None:
        joined = joined.join(context.select("work_id", *CONTEXT), on="work_id", how="left", maintain_order="left")
    columns = released_schema(manifest).names()
    splits = read_settings(manifest)[1].sizes
    examples = {split: plain_numbers(joined.filter(split=split).select(columns)) for split in splits}
    recheck = partial(check_target, folder, overwrite=overwrite)  # hours may have passed
    with atomic_folder(folder, overwrite=overwrite, recheck=recheck) as unfinished:
        for split, frame in examples.items():
            (unfinished / f"{split}.jsonl").write_bytes(render_jsonl(frame))
            (unfinished / f"{split}.parquet").write_bytes(_render_parquet(frame))
        if target.scores_file:
            (unfinished / SCORES_FILE).write_bytes(_render_parquet(_make_scores(joined, splits)))
        target.extra(unfinished)
        whole = complete_manifest(manifest, examples, unfinished)
        record = describe_record(Release(unfinished, whole))
        for name, content in render_documents(whole, record=record).items():
            (unfinished / name).write_bytes(content)
        whole = complete_manifest(manifest, examples, unfinished)
        (unfinished / MANIFEST).write_bytes(render_manifest(whole))
        stated = read_release(unfinished).manifest  # once it has its name, another run may replace it
    return Release(folder, stated)


def check_target(folder: str | Path, *, overwrite: bool = False, can_replace: bool = True) -> None:
    """Check before any work that a release could be written to ``folder``, and mend what a killed run left there."""
    if not isinstance(overwrite, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"overwrite is {overwrite!r}, needs true or false.")
    folder = real_path(folder)
    try:
        if folder.parent.is_dir():
            clear_leftovers(folder)
        occupied = any(folder.iterdir()) if folder.is_dir() else os.path.lexists(folder)
    except FileNotFoundError:  # another run is about to replace it
        return
    except OSError as error:
        raise storage_error(error, folder) from error
    if not occupied:
        return
    if not can_replace:
        raise ReleaseExistsError(f"{folder} already exists. Choose another folder, or remove it yourself.")
    # The whole folder would be replaced, so a mistyped path must not cost anyone their files. A manifest may come from
    # somebody else: what it lists is ours only under a name that we give.
    refusal = "so it is not replaced. Choose another folder, or remove it yourself."
    try:
        manifest = read_manifest(folder)
        known = {
            MANIFEST,
            *(name for name in (*list_data_files(manifest), *PICTURES, *DOCUMENTS) if name in manifest["files"]),
        }
        foreign = [name for name in list_files(folder) if name not in known or (folder / name).is_symlink()]
        foreign += [".git"] if os.path.lexists(folder / ".git") else []
    except (InputNotFoundError, VerificationError, KeyError, TypeError, OSError) as error:
        if not os.path.lexists(folder):  # another run is about to replace it
            return
        raise ReleaseExistsError(f"{folder} already exists, and is not a release of this version, {refusal}") from error
    if foreign:
        raise ReleaseExistsError(
            f"{folder} also holds what is not part of the release ({', '.join(foreign[:3])}), {refusal}"
        )
    if not overwrite:
        raise ReleaseExistsError(f"{folder} already exists. Choose another folder, or replace it: overwrite=True.")


def _join_texts(rows: pl.DataFrame, texts: pl.LazyFrame, label: OwnLabel | None) -> pl.DataFrame:
    there = texts.collect_schema()
    original = ORIGINAL_ID in there
    joined = (
        texts.select("work_id", *_FROM_WORKS, *(name for name in (ORIGINAL_ID, *_ALSO_FROM_WORKS) if name in there))
        .join(rows.lazy().select("work_id"), on="work_id", how="semi")
        .collect(engine="streaming")
    )
    for ids, wrong in ((rows["work_id"], "drawn"), (joined["work_id"], "in WORKS")):
        if ids.n_unique() < len(ids):
            twice = ids.filter(ids.is_duplicated()).min()
            raise WorkIdError(f"W{twice} is {wrong} more than once. Keep one row each: {ONE_ROW_EACH}.")
    missing = rows["work_id"].filter(~rows["work_id"].is_in(joined["work_id"].implode()))
    if len(missing):
        raise WorkIdError(
            f"{counted(len(missing), 'drawn work is', 'drawn works are')} not in WORKS, for example W{missing.min()}. "
            "Give the frame that they were drawn from."
        )
    absent = [pl.lit(None, dtype=EXAMPLE[name]).alias(name) for name in NOVELTY_COLUMNS if name not in rows.columns]
    label_column = [] if label is None else [label.name]
    return (
        rows.with_columns(absent)
        .select(*DRAWN, *NOVELTY_COLUMNS, *label_column, *(name for name in _FROM_DRAW if name in rows.columns))
        .join(joined, on="work_id")
        .with_columns(released_id(original))
        .sort("split_key", "work_id")
    )


def _make_scores(joined: pl.DataFrame, splits: Iterable[str]) -> pl.DataFrame:
    """Return SCORES of the released works, in the order of the splits."""
    absent = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in SCORES.items() if name not in joined.columns]
    ordered = pl.concat([joined.filter(split=split) for split in splits])
    return plain_numbers(ordered.with_columns(absent).select(SCORES.names()).cast(SCORES))


def plain_numbers(rows: pl.DataFrame) -> pl.DataFrame:
    """Give every number one form: NaN is null, and minus zero is zero."""
    floats = [name for name, dtype in rows.schema.items() if dtype == pl.Float64]
    return rows.with_columns(
        pl.when(pl.col(name) == 0).then(0.0).otherwise(pl.col(name).fill_nan(None)).alias(name) for name in floats
    )


def _render_parquet(rows: pl.DataFrame) -> bytes:
    # Every option that shapes the bytes is named, so that a changed default of pyarrow changes nothing.
    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        version="2.6",
        data_page_version="1.0",
        row_group_size=ROWS_PER_GROUP["release"],
        compression="zstd",
        compression_level=3,
        use_dictionary=True,
        write_statistics=True,
        store_schema=False,
    )
    return sink.getvalue().to_pybytes()
