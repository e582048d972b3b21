"""The papers of a release, in two parts: what a model may see, and the labels it is judged by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, get_args

import polars as pl

from sciscidata.errors import SciSciDataError
from sciscidata.label_thresholds import DISRUPTION_LABELS, NOVELTY_LABELS
from sciscidata.release.release import read_release
from sciscidata.storage import hash_file
from sciscirl.errors import ReleaseError

SplitName = Literal["train", "test", "dev"]
#: The labels of each label column. The release decides by which thresholds they were given.
VOCABULARIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"disruption_label": DISRUPTION_LABELS, "novelty_label": NOVELTY_LABELS}
)
TargetName = Literal["disruption", "novelty", "joint"]
#: The label columns that an answer to each task names, in order. No label is in two vocabularies.
TARGETS: Final[Mapping[TargetName, tuple[str, ...]]] = MappingProxyType(
    {
        "disruption": ("disruption_label",),
        "novelty": ("novelty_label",),
        "joint": ("disruption_label", "novelty_label"),
    }
)


@dataclass(frozen=True, slots=True)
class PaperView:
    """What a prompt may say about a paper. There is no field for a score or a label, so none can leak."""

    title: str | None  # plain text; None where the release has none, as for the others
    abstract: str | None
    publication_year: int | None
    cited_by_count: int | None  # when the release was made, whatever the citation window of the score
    primary_field: str | None  # of OpenAlex, for example "Neuroscience"


@dataclass(frozen=True, slots=True)
class Gold:
    """The two labels that answers are judged by; null where the score is undefined."""

    disruption_label: str | None
    novelty_label: str | None


_SEEN: Final = tuple(field.name for field in fields(PaperView))
_JUDGED: Final = tuple(field.name for field in fields(Gold))


@dataclass(frozen=True, slots=True)
class Paper:
    """One row of a release without its scores."""

    openalex_id: str
    view: PaperView
    gold: Gold

    def labels(self, target: TargetName) -> dict[str, str]:
        """Return the gold label of each label column of a task.

        Raises:
            ReleaseError: a label is null or unknown. This cannot happen after ``read_split(needs=TARGETS[target])``.
        """
        return name_gold({column: getattr(self.gold, column) for column in TARGETS[target]}, target)


def short_name(column: str) -> str:
    """Return the name of a label column without its ending.

    Example:
        >>> short_name("novelty_label")
        'novelty'
    """
    return column.removesuffix("_label")


def name_gold(labels: str | Mapping[str, str | None] | None, target: TargetName) -> dict[str, str]:
    """Return the gold label of each label column, checked (ReleaseError); for one column a label alone will do.

    Example:
        >>> name_gold("novel", "novelty")
        {'novelty_label': 'novel'}
    """
    columns = TARGETS[target]
    given = labels if isinstance(labels, Mapping) else {columns[0]: labels}
    named: dict[str, str] = {}
    for column in columns:
        label = given.get(column)
        if label is None or label not in VOCABULARIES[column]:
            msg = f"the {column} is {label!r}, needs one of: {', '.join(VOCABULARIES[column])}."
            raise ReleaseError(msg)
        named[column] = label
    return named


def count_labels(papers: Iterable[Paper], target: TargetName) -> tuple[tuple[str, int], ...]:
    """Count the papers of each label of a task, in the order of the vocabularies. A label may have 0."""
    counts = Counter(label for paper in papers for label in paper.labels(target).values())
    return tuple((label, counts[label]) for column in TARGETS[target] for label in VOCABULARIES[column])


def read_split(
    release_folder: str | Path, split: SplitName, *, needs: tuple[str, ...] = ("disruption_label",)
) -> list[Paper]:
    """Read one split of a release, after checking its Parquet file against the manifest.

    Args:
        release_folder: a folder that ``build`` wrote.
        split: ``"train"``, ``"test"`` or ``"dev"``.
        needs: label columns that every row must have; the others may be null.

    Returns:
        One Paper per row, in the order of the release.

    Raises:
        ReleaseError: the folder is not a release or cannot be read; the split's Parquet file does not have the SHA-256
            in the manifest; a needed label is null or unknown; or there is no split of this name.

    Example:
        >>> read_split("no-such-release", "test")
        Traceback (most recent call last):
        ...
        sciscirl.errors.ReleaseError: no-such-release is not a release: it has no manifest.json. Build one with
        scripts/build_slice.py.
    """
    if split not in get_args(SplitName):
        msg = f"split is {split!r}, needs one of: {', '.join(get_args(SplitName))}."
        raise ReleaseError(msg)
    path = Path(release_folder) / f"{split}.parquet"
    try:
        release = read_release(release_folder)
        if split not in release.splits:
            msg = f"{release_folder} has no development split. Build a release with SplitConfig.n_dev."
            raise ReleaseError(msg)
        found = hash_file(path)
    except (SciSciDataError, OSError) as error:
        raise ReleaseError(str(error)) from error
    stated = release.manifest.get("files", {}).get(path.name, {}).get("sha256")
    if found != stated:
        msg = (
            f"{path} was altered after it was released: its SHA-256 is {found}, the manifest states {stated}. "
            "Copy the release again, or rebuild it."
        )
        raise ReleaseError(msg)
    rows: pl.DataFrame = getattr(release, split).select("openalex_id", *_SEEN, *_JUDGED)
    for column in needs:
        strays = rows.filter(~rows[column].is_in(VOCABULARIES[column]).fill_null(value=False))
        if len(strays):
            msg = (
                f"{path}: {len(strays):,} of {len(rows):,} rows have no {column}, first {strays['openalex_id'][0]}; "
                f"every row needs one of {', '.join(VOCABULARIES[column])}. Build a release balanced by {column}."
            )
            raise ReleaseError(msg)
    return [
        Paper(
            row["openalex_id"],
            PaperView(**{name: row[name] for name in _SEEN}),
            Gold(**{name: row[name] for name in _JUDGED}),
        )
        for row in rows.iter_rows(named=True)
    ]
