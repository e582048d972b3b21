"""The task: papers of a release, parted into what a model may see and what it is judged by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from sciscidata.errors import SciSciDataError
from sciscidata.labels import DISRUPTION_LABELS, NOVELTY_LABELS
from sciscidata.release.release import read_release
from sciscidata.storage import hash_file
from sciscirl.errors import ReleaseError

SplitName = Literal["train", "test"]
#: The vocabulary of every label column; the thresholds behind the labels are the release's own affair.
VOCABULARIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"disruption_label": DISRUPTION_LABELS, "novelty_label": NOVELTY_LABELS}
)
TargetName = Literal["disruption", "novelty", "joint"]
#: The label columns that an answer to each task names, in order. No label name is in two vocabularies.
TARGETS: Final[Mapping[TargetName, tuple[str, ...]]] = MappingProxyType(
    {
        "disruption": ("disruption_label",),
        "novelty": ("novelty_label",),
        "joint": ("disruption_label", "novelty_label"),
    }
)

_SPLITS: Final = ("train", "test")


@dataclass(frozen=True, slots=True)
class PaperView:
    """What a prompt may say of a paper. There is no field for a score or a label, so none can leak.

    Attributes:
        title: plain text, null where the release has none.
        abstract: likewise.
        publication_year: calendar year.
        cited_by_count: citations when the release was made, whatever the window of the score.
        primary_field: OpenAlex field, for example ``"Neuroscience"``.
    """

    title: str | None
    abstract: str | None
    publication_year: int | None
    cited_by_count: int | None
    primary_field: str | None


@dataclass(frozen=True, slots=True)
class Gold:
    """What an answer is judged by: the two labels, null where the score is undefined."""

    disruption_label: str | None
    novelty_label: str | None


@dataclass(frozen=True, slots=True)
class Paper:
    """One row of a release without its scores."""

    openalex_id: str
    view: PaperView
    gold: Gold

    def labels(self, target: TargetName) -> dict[str, str]:
        """Return what an answer to the task is judged by, the label of each label column.

        Raises:
            ReleaseError: if a label is null or unknown; of papers that ``read_split`` returned with
                ``needs=TARGETS[target]``, none is.
        """
        return name_gold({column: getattr(self.gold, column) for column in TARGETS[target]}, target)


def short_name(column: str) -> str:
    """Name a label column by what it says of a paper.

    Example:
        >>> short_name("novelty_label")
        'novelty'
    """
    return column.removesuffix("_label")


def name_gold(labels: str | Mapping[str, str | None] | None, target: TargetName) -> dict[str, str]:
    """Give each label column of a task its label.

    Args:
        labels: by label column; or the label itself, where the task has one.
        target: the task.

    Raises:
        ReleaseError: if a label is missing or not in its vocabulary.

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
    """Count the papers of each label of a task, in the order of the vocabularies; a label may have none.

    Example:
        >>> view = PaperView("On sleep", None, 2001, 3, None)
        >>> count_labels([Paper("W1", view, Gold("neutral", None))], "disruption")
        (('disruptive', 0), ('consolidating', 0), ('neutral', 1))
    """
    counts = Counter(label for paper in papers for label in paper.labels(target).values())
    return tuple((label, counts[label]) for column in TARGETS[target] for label in VOCABULARIES[column])


_SEEN: Final = tuple(field.name for field in fields(PaperView))
_JUDGED: Final = tuple(field.name for field in fields(Gold))


def read_split(
    release_folder: str | Path, split: SplitName, *, needs: tuple[str, ...] = ("disruption_label",)
) -> list[Paper]:
    """Read one split of a release, after checking that its file is the one that the manifest describes.

    Args:
        release_folder: what ``scripts/build_slice.py`` made.
        split: ``"train"`` or ``"test"``.
        needs: label columns that every row must have; the others may be null.

    Returns:
        One Paper per row, in the order of the release.

    Raises:
        ReleaseError: if the folder is no release or cannot be read, the split's Parquet file does not have the SHA-256
            that the manifest states, a needed label is null or unknown, or there is no such split.

    Example:
        >>> read_split("no-such-slice", "test")
        Traceback (most recent call last):
        ...
        sciscirl.errors.ReleaseError: no-such-slice is not a release: it has no manifest.json. Build one with
        scripts/build_slice.py.
    """
    if split not in _SPLITS:
        msg = f"split is {split!r}, needs one of: {', '.join(_SPLITS)}."
        raise ReleaseError(msg)
    path = Path(release_folder) / f"{split}.parquet"
    try:
        release = read_release(release_folder)
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
    rows = (release.train if split == "train" else release.test).select("openalex_id", *_SEEN, *_JUDGED)
    for column in needs:
        strays = rows.filter(~rows[column].is_in(VOCABULARIES[column]).fill_null(value=False))
        if len(strays):
            msg = (
                f"{path}: {len(strays):,} of {len(rows):,} rows have no {column}, first {strays['openalex_id'][0]}. "
                f"The task needs one of {', '.join(VOCABULARIES[column])} in each: build a slice balanced by it."
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
