"""Read a release: its manifest, checked, and the works of its splits, each file against its SHA-256."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from sciscidata.errors import (
    ConfigError,
    InputNotFoundError,
    SciSciDataError,
    VerificationError,
)
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.options.did_you_mean import find_close
from sciscidata.own_label import stated_label, stated_where
from sciscidata.sampling.config import SplitConfig
from sciscidata.schemas import MANIFEST, SPLITS
from sciscidata.storage.lock import read_steadily
from sciscidata.storage.small_files import read_json, render_json

if TYPE_CHECKING:
    from sciscidata.disruption.label_prior import LabelPrior

#: Grows when a reader of older releases would misread a newer one.
FORMAT_VERSION: Final = 1
#: What every release holds; ``list_data_files`` names the files of a development split too.
DATA_FILES: Final = ("train.jsonl", "train.parquet", "test.jsonl", "test.parquet")
#: What the scores follow from, in every release but those made without it, and before it was known.
SCORES_FILE: Final = "scores.parquet"
SELF_HASH: Final = "manifest_sha256"
REMEDY: Final = "Copy the release again, or rebuild it."


def list_splits(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the splits of a release, train first; dev only where its rows are on record."""
    return tuple(split for split in SPLITS if split != "dev" or split in manifest.get("sides", {}))


def list_data_files(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the files of the splits of a release, and the file of scores if the manifest lists it."""
    scores = (SCORES_FILE,) if SCORES_FILE in manifest["files"] else ()
    return (*DATA_FILES, *(("dev.jsonl", "dev.parquet") if "dev" in list_splits(manifest) else ()), *scores)


def hash_manifest(manifest: Mapping[str, Any]) -> str:
    """Compute ``manifest_sha256``: the SHA-256 of the manifest as written, without that line."""
    return sha256_of(render_manifest({key: value for key, value in manifest.items() if key != SELF_HASH}))


def render_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Write a manifest as JSON: UTF-8, sorted keys, two spaces; a ConfigError if it is not JSON."""
    return render_json(manifest, "manifest")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read ``manifest.json`` alone; a VerificationError says that it was changed, or is of another version."""
    try:
        manifest = read_json(folder / MANIFEST)
    except (FileNotFoundError, NotADirectoryError) as error:
        is_file = "it is a file, and a release is a folder" if folder.is_file() else "no such folder is there"
        why = f"it has no {MANIFEST}" if folder.is_dir() else is_file
        beside = [] if folder.exists() else [one.parent.name for one in folder.parent.glob(f"*/{MANIFEST}")]
        near = f" Did you mean {folder.with_name(close)}?" if (close := find_close(folder.name, beside)) else ""
        raise InputNotFoundError(
            f"{folder} is not a release: {why}.{near} Check the path, or build one: sciscidata build."
        ) from error
    except OSError as error:
        raise InputNotFoundError(
            f"{folder / MANIFEST} cannot be read: {error.strerror}. Check what lies there, and its permissions."
        ) from error
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"{folder / MANIFEST} is not JSON ({error}). {REMEDY}") from error
    found = manifest.get("format_version") if isinstance(manifest, dict) else None
    if found != FORMAT_VERSION:
        raise VerificationError(
            f"{folder / MANIFEST} has format_version {found!r}, this version of sciscidata reads "
            f"{FORMAT_VERSION}. Install the version of sciscidata that it names under 'versions'."
        )
    stated = manifest.get(SELF_HASH)
    try:
        digest = hash_manifest(manifest)
    except ConfigError as error:  # NaN, or half of a surrogate pair: never written here
        digest = str(error)
    if digest != stated:
        what = f"was changed after it was written: {SELF_HASH} is {stated!r}, found {digest!r}"
        raise VerificationError(f"{folder / MANIFEST} {what}. {REMEDY}")
    try:
        read_settings(manifest)
        stated_label(manifest)
        stated_where(manifest)
        stated_prior(manifest)
        lacks = {*list_data_files(manifest)} - manifest["files"].keys()
    except (AttributeError, ConfigError, KeyError, TypeError) as error:
        why = str(error).rstrip(".")
        raise VerificationError(f"{folder / MANIFEST} was not written by sciscidata: {why}. {REMEDY}") from error
    if lacks:
        raise VerificationError(f"{folder / MANIFEST} was not written by sciscidata: no {min(lacks)}. {REMEDY}")
    return manifest


def read_settings(manifest: Mapping[str, Any]) -> tuple[LabelThresholds, SplitConfig]:
    """Read the thresholds and the split of a manifest; a ConfigError if either is missing or impossible."""
    try:
        return LabelThresholds(**manifest["thresholds"]), SplitConfig(**manifest["split"])
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"the manifest's thresholds and split cannot be read ({error!r}). Give both, as "
            "dataclasses.asdict of LabelThresholds and SplitConfig."
        ) from error


def stated_prior(manifest: Mapping[str, Any]) -> LabelPrior | None:
    """Read the prior of all works that a manifest states; a ConfigError if it is none."""
    if "label_prior" not in manifest:
        return None
    from sciscidata.disruption.label_prior import LabelPrior

    return LabelPrior.from_stated(manifest["label_prior"])


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()


_COUNTS: Final = ("n_i", "n_j", "n_k")
#: For the prior of label confidence, a work of the label that is drawn most counts so often, and others more.
_REPEATS: Final = 4


@dataclass(frozen=True)
class Release:
    """A release on disk. Its frames are read, and compared with the manifest, when first asked for.

    ``manifest`` is ``manifest.json``: config, source, thresholds, counts, hashes, versions. ``train``, ``test`` and
    ``dev`` are the works of each split (EXAMPLE), in the order of their split keys. An own label, and the columns of
    ``BuildConfig.context``, come after these. ``scores`` is what their scores follow from (SCORES),
    ``label_confidence`` how sure their disruption labels are.
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

    @property
    def label_prior(self) -> LabelPrior | None:
        """The prior of all works that the draw is from, for ``compute_label_confidence``; None if it is not known."""
        return stated_prior(self.manifest)

    @cached_property
    def label_confidence(self) -> pl.DataFrame:
        """How sure the disruption label of each work is, by the counts in ``scores``, one row each in their order.

        openalex_id, split, and the columns of ``compute_label_confidence``, null without a label. Their prior is that
        of all works, ``label_prior``. Releases made before it was kept take that of their own works. A balanced draw
        has too many of rare labels, so each label then counts as often as it is eligible, which the manifest says.
        Against the prior of all works, a confidence is then off by 0.01 to 0.06 on average (four graphs).
        """
        # Who reads a split computes nothing.
        from sciscidata.disruption.label_confidence import compute_label_confidence
        from sciscidata.disruption.label_prior import choose_prior

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
        counts = [*_COUNTS, *read[2:]]
        prior = self.label_prior or choose_prior(self._repeat(labelled).select(counts))
        found = compute_label_confidence(rows.select(counts), thresholds, prior=prior).collect()
        return rows.select("openalex_id", "split").hstack(found.drop(counts))

    def _repeat(self, labelled: pl.DataFrame) -> pl.DataFrame:
        """Repeat works by label, so that each label is there about as often as it is eligible."""
        drawn = dict(labelled["disruption_label"].value_counts().iter_rows())
        eligible = self.manifest.get("counts", {}).get("eligible", {}).get("disruption_label", {})
        stands_for = {label: eligible.get(label, n) / n for label, n in drawn.items()}
        least = min(stands_for.values(), default=1) or 1
        times = {label: max(2, round(_REPEATS * n / least)) for label, n in stands_for.items()}
        more = pl.col("disruption_label").replace_strict(times, return_dtype=pl.UInt32)
        repeated = labelled.select(pl.exclude("disruption_label").repeat_by(more))
        return repeated.explode(repeated.columns)

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


def read_release(folder: str | Path) -> Release:
    """Open a release folder and read its manifest. ``verify`` checks everything that the manifest states.

    Args:
        folder: what ``build`` made.

    Returns:
        A Release. ``.train``, ``.test`` and ``.dev`` are its works (EXAMPLE), in the order of their split keys, read
        when first asked for; an own label, then ``references`` and ``at_publication`` of ``BuildConfig.context`` come
        after its columns. ``.scores`` is what their scores follow from (SCORES). ``.manifest`` has configuration,
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
