"""The papers of a release, in two parts: what a model may see, and the labels it is judged by."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import polars as pl

from sciscidata.errors import SciSciDataError
from sciscidata.label_thresholds import DISRUPTION_LABELS, NOVELTY_LABELS
from sciscidata.own_label import OwnLabel, stated_label
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


class OwnTarget(str):
    """The task that asks for an own label of a release: the name of the task, with the label that it asks for.

    It is the name of the label without its ending, so logs, files and messages can name it as they name the others.

    Example:
        >>> target = OwnTarget(OwnLabel(name="impact_label", classes=("top", "rest"), column="impact_label"))
        >>> target, list_labels(target)
        ('impact', {'impact_label': ('top', 'rest')})
    """

    label: OwnLabel

    def __new__(cls, label: OwnLabel) -> OwnTarget:
        """Name the task after its label."""
        target = super().__new__(cls, short_name(label.name))
        target.label = label
        return target

    def __getnewargs__(self) -> tuple[OwnLabel]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return what a copy, in another process too, is made from."""
        return (self.label,)

    def to_json(self) -> str:
        """Write the name and the classes of the label; ``read_own_target`` reads them.

        Example:
            >>> target = OwnTarget(OwnLabel(name="impact_label", classes=("top", "rest"), column="impact_label"))
            >>> target.to_json()
            '{"name": "impact_label", "classes": ["top", "rest"]}'
        """
        return json.dumps({"name": self.label.name, "classes": [*self.label.classes]})


Target: TypeAlias = TargetName | OwnTarget


def read_own_target(facts: object) -> OwnTarget:
    """Make a task from what ``OwnTarget.to_json`` wrote, as text or read; a ValueError says that it is something else.

    Example:
        >>> read_own_target('{"name": "impact_label", "classes": ["top", "rest"]}').label.classes
        ('top', 'rest')
    """
    known = json.loads(facts) if isinstance(facts, str) else facts
    if not isinstance(known, dict) or set(cast("dict[str, object]", known)) != {"name", "classes"}:
        msg = "needs the name and the classes of a label"
        raise ValueError(msg)
    label = cast("dict[str, Any]", known)
    return OwnTarget(OwnLabel(name=label["name"], classes=label["classes"], column=label["name"]))


def list_labels(target: Target) -> dict[str, tuple[str, ...]]:
    """Return the label columns that an answer to a task names, in order, and the labels of each.

    Example:
        >>> list_labels("novelty")
        {'novelty_label': ('novel', 'balanced', 'conventional')}
    """
    if isinstance(target, OwnTarget):
        return {target.label.name: target.label.classes}
    return {column: VOCABULARIES[column] for column in TARGETS[target]}


def choose_target(name: str, release_folder: str | Path) -> Target:
    """Return the task of a name: ``"disruption"``, ``"novelty"``, ``"joint"``, or the own label of a release.

    An own label is named in full, without its ending, or as ``"label"``. A ReleaseError says that the release has no
    label of this name.

    Example:
        >>> choose_target("joint", "no-such-release")
        'joint'
    """
    if name in TARGETS:
        return cast("TargetName", name)
    try:
        label = stated_label(read_release(release_folder).manifest)
    except (SciSciDataError, OSError) as error:
        raise ReleaseError(str(error)) from error
    names = [*TARGETS] if label is None else [*TARGETS, short_name(label.name)]
    if label is None or name not in ("label", label.name, short_name(label.name)):
        msg = (
            f"target is {name!r}, and {release_folder} has {', '.join(names)}. Choose one of these, or build a release "
            "with a label of this name (OwnLabel)."
        )
        raise ReleaseError(msg)
    return OwnTarget(label)


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
    """The labels that answers are judged by; null where the score is undefined, and where there is no own label."""

    disruption_label: str | None
    novelty_label: str | None
    own_label: str | None = None

    def of(self, column: str) -> str | None:
        """Return the label of a column; any but disruption and novelty is the own label of the release."""
        return getattr(self, column if column in VOCABULARIES else "own_label")


_SEEN: Final = tuple(field.name for field in fields(PaperView))


@dataclass(frozen=True, slots=True)
class Paper:
    """One row of a release without its scores."""

    openalex_id: str
    view: PaperView
    gold: Gold

    def labels(self, target: Target) -> dict[str, str]:
        """Return the gold label of each label column of a task.

        Raises:
            ReleaseError: a label is null or unknown. This cannot happen after ``read_split(target=target)``.
        """
        return name_gold({column: self.gold.of(column) for column in list_labels(target)}, target)


def short_name(column: str) -> str:
    """Return the name of a label column without its ending.

    Example:
        >>> short_name("novelty_label")
        'novelty'
    """
    return column.removesuffix("_label")


def name_gold(labels: str | Mapping[str, str | None] | None, target: Target) -> dict[str, str]:
    """Return the gold label of each label column, checked (ReleaseError); for one column a label alone will do.

    Example:
        >>> name_gold("novel", "novelty")
        {'novelty_label': 'novel'}
    """
    columns = list_labels(target)
    given = labels if isinstance(labels, Mapping) else {next(iter(columns)): labels}
    named: dict[str, str] = {}
    for column, vocabulary in columns.items():
        label = given.get(column)
        if label is None or label not in vocabulary:
            msg = f"the {column} is {label!r}, needs one of: {', '.join(vocabulary)}."
            raise ReleaseError(msg)
        named[column] = label
    return named


def count_labels(papers: Iterable[Paper], target: Target) -> tuple[tuple[str, int], ...]:
    """Count the papers of each label of a task, in the order of the vocabularies. A label may have 0."""
    counts = Counter(label for paper in papers for label in paper.labels(target).values())
    return tuple((label, counts[label]) for labels in list_labels(target).values() for label in labels)


def read_split(
    release_folder: str | Path,
    split: SplitName,
    *,
    needs: tuple[str, ...] = ("disruption_label",),
    target: Target | None = None,
) -> list[Paper]:
    """Read one split of a release, after checking its Parquet file against the manifest.

    For the task of an own label, papers are shown without the columns that the label follows from (``hidden`` in the
    manifest), so that neither a prompt nor a baseline sees them.

    Args:
        release_folder: a folder that ``build`` wrote.
        split: ``"train"``, ``"test"`` or ``"dev"``.
        needs: label columns that every row must have; the others may be null.
        target: the task, which decides ``needs``.

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
    words: dict[str, tuple[str, ...]] = {**VOCABULARIES}
    if target is not None:
        words |= list_labels(target)
        needs = tuple(list_labels(target))
    rows: pl.DataFrame = getattr(release, split)
    own = target.label if isinstance(target, OwnTarget) else stated_label(release.manifest)
    hidden = own.hidden if own is not None and isinstance(target, OwnTarget) else ()
    for column in needs:
        if column not in rows.columns:
            msg = f"{path} has no {column}. Build a release with this label (OwnLabel)."
            raise ReleaseError(msg)
        strays = rows.filter(~rows[column].is_in(words[column]).fill_null(value=False))
        if len(strays):
            msg = (
                f"{path}: {len(strays):,} of {len(rows):,} rows have no {column}, first {strays['openalex_id'][0]}; "
                f"every row needs one of {', '.join(words[column])}. Build a release balanced by {column}."
            )
            raise ReleaseError(msg)
    return [
        Paper(
            row["openalex_id"],
            PaperView(**{name: None if name in hidden else row[name] for name in _SEEN}),
            Gold(row["disruption_label"], row["novelty_label"], row.get(own.name) if own is not None else None),
        )
        for row in rows.iter_rows(named=True)
    ]
