"""A paper in two parts: what a model may see, and the labels it is judged by; and the tasks that ask for labels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from sciscidata.errors import ConfigError
from sciscidata.label_thresholds import DISRUPTION_LABELS, NOVELTY_LABELS
from sciscidata.own_label import OwnLabel
from sciscirl.errors import ReleaseError

#: The labels of each label column. The release decides by which thresholds they were given.
VOCABULARIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"disruption_label": DISRUPTION_LABELS, "novelty_label": NOVELTY_LABELS}
)
#: The scores of a released work, which a reward may use.
SCORES: Final = ("cd_index", "novelty_score", "conventionality_score")
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
    """The task that asks for an own label of a release, named after the label without its ending, as others are."""

    label: OwnLabel
    #: Fields that the release has of no training paper.
    unknown: tuple[str, ...] = ()

    def __new__(cls, label: OwnLabel, unknown: Sequence[str] = ()) -> OwnTarget:
        """Name the task after its label."""
        if not label.classes:
            raise ConfigError(
                "OwnLabel.classes is empty, needs the classes of a release. Name them, or take choose_target(...)."
            )
        target = super().__new__(cls, short_name(label.name))
        target.label, target.unknown = label, tuple(unknown)
        return target

    def __getnewargs__(self) -> tuple[OwnLabel, tuple[str, ...]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return what a copy, in another process too, is made from."""
        return self.label, self.unknown

    @property
    def hidden(self) -> set[str]:
        """Fields of a paper that are null in every prompt: not known, or the label follows from them."""
        return {*self.label.hidden, *self.unknown}

    def to_json(self) -> str:
        """Write the name and the classes of the label; ``read_own_target`` reads them."""
        return json.dumps({"name": self.label.name, "classes": [*self.label.classes]})


class PairTarget(OwnTarget):
    """The task that shows two papers and asks which is the more disruptive one; there is one, PAIRS."""

    def __new__(cls, label: OwnLabel, unknown: Sequence[str] = ()) -> PairTarget:
        """Name the task."""
        target = str.__new__(cls, "pairs")
        target.label = label
        return target


class NarrowTarget(str):
    """The task disruption or novelty where an answer can name some labels only: those that a release was drawn of."""

    labels: tuple[str, ...]

    def __new__(cls, name: str, labels: Sequence[str]) -> NarrowTarget:
        """Name the task as if it asked for every label."""
        target = super().__new__(cls, name)
        target.labels = tuple(labels)
        return target

    def __getnewargs__(self) -> tuple[str, tuple[str, ...]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return what a copy, in another process too, is made from."""
        return str(self), self.labels


#: The answer to a pair of papers is a label like others: the letter of the more disruptive one.
PAIRS: Final = PairTarget(OwnLabel(name="choice_label", classes=("A", "B"), column="choice_label", hidden=()))
Target: TypeAlias = TargetName | OwnTarget | NarrowTarget


def list_labels(target: Target) -> dict[str, tuple[str, ...]]:
    """Return the label columns that an answer to a task names, in order, and the labels of each."""
    if isinstance(target, OwnTarget):
        return {target.label.name: target.label.classes}
    if isinstance(target, NarrowTarget):
        return {f"{target}_label": target.labels}
    return {column: VOCABULARIES[column] for column in TARGETS[target]}


class Reference(NamedTuple):
    """What a prompt may say about a work that a paper cites; None where the corpus does not know it."""

    title: str
    publication_year: int | None = None
    source_name: str | None = None  # the journal or venue


@dataclass(frozen=True, slots=True)
class PaperView:
    """What a prompt may say about a paper. There is no field for a score or a label, so none can leak."""

    title: str | None  # plain text; None where the release has none, as for the others
    abstract: str | None
    publication_year: int | None
    # When the release was made, whatever the citation window of the score: what came after publication.
    cited_by_count: int | None = field(metadata={"known": "later"})
    primary_field: str | None  # of OpenAlex, for example "Neuroscience"
    # What the paper built on, in a release that was built with its context; None in any other.
    references: tuple[Reference, ...] | None = None  # newest first
    # Columns of PUBLICATION_FEATURES.
    at_publication: Mapping[str, float | None] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Gold:
    """The labels that answers are judged by; null where the score is undefined, and where there is no own label.

    ``chances`` says how likely each of DISRUPTION_LABELS is if the work is cited anew. None: it was not read.
    ``scores`` are those of the release, by column (SCORES).
    """

    disruption_label: str | None
    novelty_label: str | None
    own_label: str | None = None
    chances: tuple[float, ...] | None = None
    # Not in its repr, so that no log line has them.
    scores: Mapping[str, float | None] = field(default_factory=dict[str, float | None], compare=False, repr=False)

    def of(self, column: str) -> str | None:
        """Return the label of a column; any but disruption and novelty is the own label of the release."""
        return getattr(self, column if column in VOCABULARIES else "own_label")


@dataclass(frozen=True, slots=True)
class PairView:
    """What a prompt may say about two papers. The names are the letters that an answer has."""

    A: PaperView
    B: PaperView


View: TypeAlias = PaperView | PairView
Context = Literal["references", "at_publication"]
#: What a prompt shows of a paper only if it is asked to (``show``): what the paper built on, known at publication.
CONTEXT: Final[tuple[Context, ...]] = get_args(Context)
#: What a prompt shows of a paper else.
SEEN: Final = tuple(one.name for one in fields(PaperView) if one.name not in CONTEXT)
#: What of it became known only after publication. The citers that it counts are those that make the label.
LATER: Final = tuple(one.name for one in fields(PaperView) if one.metadata.get("known") == "later")
#: publication: nothing of LATER is seen. release: all that the release says.
AsOf = Literal["publication", "release"]


def change_view(view: View, change: Callable[[PaperView], PaperView]) -> View:
    """Change what is shown of a paper, or of each of two."""
    return PairView(change(view.A), change(view.B)) if isinstance(view, PairView) else change(view)


def list_hidden(hide: Sequence[str], as_of: str) -> tuple[str, ...]:
    """List what is not seen of a paper, in the order of its fields: what ``hide`` names, and what came later."""
    hidden = {*hide, *(LATER if as_of == "publication" else ())}
    return tuple(name for name in (*SEEN, *CONTEXT) if name in hidden)


def hide_fields(view: View, hidden: Sequence[str]) -> View:
    """Return what is left to see; a hidden field is None."""
    return change_view(view, lambda one: replace(one, **dict.fromkeys(hidden))) if hidden else view


@dataclass(frozen=True, slots=True)
class Paper:
    """One row of a release without its scores, or two, with both ids and a plus sign between."""

    openalex_id: str
    view: View
    gold: Gold

    def labels(self, target: Target) -> dict[str, str]:
        """Return the gold label of each label column of a task.

        Raises:
            ReleaseError: a label is null or unknown. This cannot happen after ``read_split(target=target)``.
        """
        return name_gold({column: self.gold.of(column) for column in list_labels(target)}, target)


def short_name(column: str) -> str:
    """Return the name of a label column without its ending."""
    return column.removesuffix("_label")


def name_gold(labels: str | Mapping[str, str | None] | None, target: Target) -> dict[str, str]:
    """Return the gold label of each label column, checked (ReleaseError); for one column a label alone will do."""
    columns = list_labels(target)
    given = labels if isinstance(labels, Mapping) else {next(iter(columns)): labels}
    named: dict[str, str] = {}
    for column, vocabulary in columns.items():
        label = given.get(column)
        if label is None or label not in vocabulary:
            raise ReleaseError(f"the {column} is {label!r}, needs one of: {', '.join(vocabulary)}.")
        named[column] = label
    return named


def count_labels(papers: Iterable[Paper], target: Target) -> tuple[tuple[str, int], ...]:
    """Count the papers of each label of a task, in the order of the vocabularies. A label may have 0."""
    counts = Counter(label for paper in papers for label in paper.labels(target).values())
    return tuple((label, counts[label]) for labels in list_labels(target).values() for label in labels)


def class_of(paper: Paper, target: Target) -> tuple[str, ...]:
    """Return the class of a paper: the labels that the task asks for."""
    return tuple(paper.labels(target).values())
