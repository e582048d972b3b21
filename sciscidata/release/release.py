"""A release: the drawn works as files that anyone can check. Written and read here."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata.disruption.label_confidence import compute_label_confidence
from sciscidata.errors import (
    ONE_ROW_EACH,
    ConfigError,
    InputNotFoundError,
    ReleaseExistsError,
    SciSciDataError,
    VerificationError,
    WorkIdError,
)
from sciscidata.own_label import OwnLabel, example_schema, stated_label
from sciscidata.records.ids import ORIGINAL_ID, released_id
from sciscidata.release.documents import render_documents
from sciscidata.release.manifest import (
    DOCUMENTS,
    MANIFEST,
    NOVELTY_COLUMNS,
    PICTURES,
    REMEDY,
    SCORES_FILE,
    check_stated,
    complete_manifest,
    list_data_files,
    list_files,
    list_splits,
    read_manifest,
    read_settings,
    render_manifest,
)
from sciscidata.release.write_json_lines import render_jsonl
from sciscidata.schemas import EXAMPLE, SCORES, WORKS, require_columns
from sciscidata.storage import atomic_folder, clear_leftovers, real_path, storage_error
from sciscidata.storage.parquet import ROWS_PER_GROUP
from sciscidata.storage.replaced import read_steadily
from sciscidata.terminal.messages import counted

_FROM_WORKS: Final = ("title", "abstract", "publication_year", "cited_by_count", "primary_field", "concepts")
#: What SCORES takes from the drawn frame and from WORKS, each as far as it is there.
_FROM_DRAW: Final = ("n_i", "n_j", "n_k", "n_references", "n_pairs", "z_p10", "z_median")
_COUNTS: Final = ("n_i", "n_j", "n_k")
_ALSO_FROM_WORKS: Final = ("doi", "source_id", "source_name", "language", "work_type")
#: For the prior of label confidence, a work of the label that is drawn most counts so often, and others more.
_REPEATS: Final = 4
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


@dataclass(frozen=True)
class Release:
    """A release on disk. Its frames are read, and compared with the manifest, when first asked for.

    ``manifest`` is ``manifest.json``: config, source, thresholds, counts, hashes, versions. ``train``, ``test`` and
    ``dev`` are the works of each split (EXAMPLE), in the order of their split keys. ``scores`` is what their scores
    follow from (SCORES), ``label_confidence`` how sure their disruption labels are.
    """

    folder: Path
    manifest: dict[str, Any] = field(repr=False, hash=False)

    def __repr__(self) -> str:
        """Name the folder, and the works of each split by class."""
        lines = [
            f"  {split}: {self.manifest['sides'][split]['rows']:,} works"
            + "".join(
                "; " + ", ".join(f"{n:,} {label}" for label, n in classes.items())
                for classes in self.manifest["class_counts"][split].values()
                if any(classes.values())
            )
            for split in self.splits
        ]
        lines += [f"  {name}: what the scores follow from" for name in self.manifest["files"] if name == SCORES_FILE]
        return "\n".join([f"Release({self.folder})", *lines])

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of its splits, train first."""
        return list_splits(self.manifest)

    @cached_property
    def train(self) -> pl.DataFrame:
        """The training works: EXAMPLE, in the order of their split keys. A VerificationError: the file was changed."""
        return self._read("train")

    @cached_property
    def test(self) -> pl.DataFrame:
        """The test works, as ``train``."""
        return self._read("test")

    @cached_property
    def dev(self) -> pl.DataFrame:
        """The development works, as ``train``; an InputNotFoundError if the release was made without them."""
        if "dev" not in self.splits:
            raise InputNotFoundError(f"{self.folder} has no development split. Build a release with SplitConfig.n_dev.")
        return self._read("dev")

    @cached_property
    def scores(self) -> pl.DataFrame:
        """What the scores of all works follow from: SCORES, one row each; the splits in their order, train first."""
        if SCORES_FILE not in list_data_files(self.manifest):
            remedy = "Build a release with BuildConfig.scores_file=True."
            if not any(self._read(split)["cd_index"].count() for split in self.splits):
                remedy = (
                    "Its works have no CD index, only another label, so label confidence has nothing to follow from."
                )
            raise InputNotFoundError(f"{self.folder} has no {SCORES_FILE}. {remedy}")
        return self._read("scores")

    @cached_property
    def label_confidence(self) -> pl.DataFrame:
        """How sure the disruption label of each work is, by the counts in ``scores``, one row each in their order.

        openalex_id, split, and the columns of ``compute_label_confidence``, null without a label. Their prior is that
        of these works. A balanced draw has too many of rare labels, so each label counts as often as it is eligible,
        which the manifest says. Against the prior of all works, a confidence is off by 0.02 on average.
        """
        thresholds = read_settings(self.manifest)[0]
        read = ("openalex_id", "disruption_label", "cd_index", *thresholds.cell_columns)
        rows = pl.concat([self._read(split).select(read) for split in self.splits])
        rows = self.scores.select("openalex_id", "split", *_COUNTS).join(rows, on="openalex_id", maintain_order="left")
        labelled = rows.drop_nulls("disruption_label")
        if len(unknown := labelled.filter(pl.any_horizontal(pl.col(_COUNTS).is_null()))):
            raise InputNotFoundError(
                f"{self.folder} lacks n_i, n_j or n_k of {len(unknown):,} of {len(labelled):,} works, first "
                f"{unknown['openalex_id'][0]}. Label confidence follows from these. Build a release from citations: "
                "a snapshot, files of works, tables, or SciSciNet with SciSciNetConfig.recompute=True."
            )
        drawn = dict(labelled["disruption_label"].value_counts().iter_rows())
        eligible = self.manifest.get("counts", {}).get("eligible", {}).get("disruption_label", {})
        stands_for = {label: eligible.get(label, n) / n for label, n in drawn.items()}
        least = min(stands_for.values(), default=1) or 1
        more = {label: max(1, round(_REPEATS * n / least) - 1) for label, n in stands_for.items()}
        times = pl.col("disruption_label").replace_strict(more, return_dtype=pl.UInt32)
        counts = [*_COUNTS, *read[2:]]
        repeated = labelled.select(pl.col(counts).repeat_by(times)).explode(counts)
        found = compute_label_confidence(pl.concat([rows.select(counts), repeated]), thresholds).collect()
        return rows.select("openalex_id", "split").hstack(found.head(len(rows)).drop(counts))

    def _read(self, split: str) -> pl.DataFrame:
        try:
            return read_steadily(self.folder, partial(self._read_now, split))
        except (InputNotFoundError, VerificationError):
            if self._is_replaced():
                raise VerificationError(
                    f"{self.folder} was replaced by another release after it was opened. Open it again."
                ) from None
            raise

    def _is_replaced(self) -> bool:
        try:
            return read_release(self.folder).manifest != self.manifest
        except SciSciDataError:
            return False

    def _read_now(self, split: str) -> pl.DataFrame:
        path = self.folder / f"{split}.parquet"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputNotFoundError(f"{path} cannot be read: {error.strerror}. {REMEDY}") from error
        if hashlib.sha256(content).hexdigest() != self.manifest["files"][path.name]["sha256"]:
            raise VerificationError(f"{path} is damaged: its SHA-256 is not the one that {MANIFEST} states. {REMEDY}")
        return pl.read_parquet(io.BytesIO(content), glob=False)


def write_release(
    drawn: pl.LazyFrame | pl.DataFrame,
    works: pl.LazyFrame | pl.DataFrame,
    folder: str | Path,
    *,
    manifest: Mapping[str, Any],
    overwrite: bool = False,
    scores_file: bool = True,
    extra: Callable[[Path], None] | None = None,
) -> Release:
    """Write a release folder, whole or not at all, of what ``draw_split`` returns and the texts in ``works``.

    The bytes of the JSON lines are the same everywhere, those of Parquet within one environment only: they name their
    writer's version. What SCORES and the novelty columns have and ``drawn`` lacks is null. ``manifest`` is the caller's
    part: ``thresholds`` and ``split`` (``dataclasses.asdict``), ``label`` (``OwnLabel.stated``) if ``drawn`` has one,
    and what else should be on record; no absolute paths. ``overwrite`` replaces only a release. ``extra`` adds files to
    the unfinished folder.
    """
    names = {"frame_name": "the drawn frame", "stage": "write_release"}
    lazy = require_columns(drawn, DRAWN, **names)
    require_columns(lazy, EXAMPLE, **names, columns=set(NOVELTY_COLUMNS) & set(lazy.collect_schema()))
    texts = require_columns(works, WORKS, frame_name="WORKS", stage="write_release", columns=("work_id", *_FROM_WORKS))
    check_stated(manifest)
    folder = real_path(folder)
    check_target(folder, overwrite=overwrite)
    label = stated_label(manifest)
    if label is not None:
        require_columns(lazy, {label.name: pl.String()}, **names)
    rows = lazy.collect()
    joined = _join_texts(rows, texts, label)
    columns = example_schema(label).names()
    splits = read_settings(manifest)[1].sizes
    examples = {split: plain_numbers(joined.filter(split=split).select(columns)) for split in splits}
    recheck = partial(check_target, folder, overwrite=overwrite)  # hours may have passed
    with atomic_folder(folder, overwrite=overwrite, recheck=recheck) as unfinished:
        for split, frame in examples.items():
            (unfinished / f"{split}.jsonl").write_bytes(render_jsonl(frame))
            (unfinished / f"{split}.parquet").write_bytes(_render_parquet(frame))
        if scores_file:
            (unfinished / SCORES_FILE).write_bytes(_render_parquet(_make_scores(joined, splits)))
        if extra is not None:
            extra(unfinished)
        whole = complete_manifest(manifest, examples, unfinished)
        for name, content in render_documents(whole).items():
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


def read_release(folder: str | Path) -> Release:
    """Open a release folder and read its manifest. ``verify`` checks everything that the manifest states.

    Args:
        folder: what ``build`` made.

    Returns:
        A Release. ``.train``, ``.test`` and ``.dev`` are its works (EXAMPLE), in the order of their split keys, read
        when first asked for. ``.scores`` is what their scores follow from (SCORES). ``.manifest`` has configuration,
        source, counts and hashes; ``.folder`` is the path.

    Raises:
        InputNotFoundError: there is no release, or it lacks one of its files.
        VerificationError: this version cannot read the manifest, or it was changed after it was written.

    Example:
        >>> read_release(Path("no-such-slice"))
        Traceback (most recent call last):
        ...
        sciscidata.errors.InputNotFoundError: no-such-slice is not a release: no such folder is there. Check
        the path, or build one: sciscidata build.
    """
    return read_steadily(Path(folder), partial(_open, Path(folder)))


def _open(folder: Path) -> Release:
    manifest = read_manifest(folder)
    missing = [name for name in list_data_files(manifest) if not (folder / name).is_file()]
    if missing:
        raise InputNotFoundError(f"{folder} lacks {', '.join(missing)}. {REMEDY}")
    return Release(folder, manifest)


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
