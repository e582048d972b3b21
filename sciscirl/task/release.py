"""Read the papers of a release: a split of it, or the part that a run trains on or is judged by."""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

import polars as pl

from sciscidata.errors import SciSciDataError
from sciscidata.label_thresholds import DISRUPTION_LABELS
from sciscidata.options.checks import File, PositiveInt, check_fields
from sciscidata.own_label import stated_label
from sciscidata.release.read import Release, read_release
from sciscirl.errors import ReleaseError, SciSciRLError
from sciscirl.task.papers import (
    CONTEXT,
    SCORES,
    SEEN,
    VOCABULARIES,
    Gold,
    NarrowTarget,
    OwnTarget,
    PairTarget,
    Paper,
    PaperView,
    Reference,
    Target,
    class_of,
    list_labels,
    short_name,
)

_warn_once = cache(logging.getLogger(__name__).warning)
SplitName = Literal["train", "test", "dev"]
#: By which papers a training run is judged on its way. ``held_out``: training papers that are kept out.
EvalSplit = Literal["dev", "held_out", "test"]
EVAL_SPLITS: Final[tuple[EvalSplit, ...]] = get_args(EvalSplit)
PartName = Literal["train", "dev", "held_out", "test"]
#: Without a development split, one in so many training papers is kept out, and one batch at least.
_HELD_OUT_DIVISOR: Final = 10
#: Of the hash that keeps papers out. All runs have one, so that they are judged by the same papers.
HELD_OUT_SEED: Final = 0


def read_split(
    release_folder: str | Path,
    split: SplitName,
    *,
    needs: tuple[str, ...] = ("disruption_label",),
    target: Target | None = None,
    with_chances: bool = False,
) -> list[Paper]:
    """Read one split of a release, after checking its Parquet file against the manifest.

    For an own label, papers are shown without the columns that the label follows from (``hidden`` in the manifest). So
    neither a prompt nor a baseline sees them.

    Args:
        release_folder: a folder that ``build`` wrote.
        split: ``"train"``, ``"test"`` or ``"dev"``.
        needs: label columns that every row must have; the others may be null.
        target: the task, which decides ``needs``.
        with_chances: also read how likely each disruption label is (``Release.label_confidence``).

    Returns:
        One Paper per row, in the order of the release.

    Raises:
        ReleaseError: the folder is not a release or cannot be read, or there is no split of this name. Or the split's
            Parquet file does not have the SHA-256 in the manifest, or a needed label is null or unknown. Or chances are
            asked for, and the release has no counts of citers.

    Example:
        >>> read_split("no-such-release", "test")
        Traceback (most recent call last):
        ...
        sciscirl.errors.ReleaseError: no-such-release is not a release: no such folder is there. Check the path,
        or build one: sciscidata build.
    """
    if split not in get_args(SplitName):
        raise ReleaseError(f"split is {split!r}, needs one of: {', '.join(get_args(SplitName))}.")
    release = open_release(release_folder)
    if split not in release.splits:
        raise ReleaseError(f"{release_folder} has no development split. Build one with it: sciscidata build --n-dev N.")
    words: dict[str, tuple[str, ...]] = {**VOCABULARIES}
    if target is not None:
        words |= list_labels(target)
        needs = ("disruption_label",) if isinstance(target, PairTarget) else tuple(list_labels(target))
    rows = read_rows(release, split)
    asked = target.label if isinstance(target, OwnTarget) and not isinstance(target, PairTarget) else None
    stated = stated_label(release.manifest)
    own, hidden = asked or stated, asked.hidden if asked is not None else ()
    if asked is not None and stated is not None and asked.name == stated.name:
        hidden = stated.hidden  # what a run or a table of predictions recalls of a label is its name and its classes
    for column in needs:
        if column not in rows.columns:
            raise ReleaseError(
                f"{split} of {release_folder} has no {column}. Build a release with this label (OwnLabel)."
            )
        strays = rows.filter(~rows[column].is_in(words[column]).fill_null(value=False))
        if len(strays):
            balance = short_name(column) if column in VOCABULARIES else "label"
            only = f" --only-label {' '.join(words[column])}" if isinstance(target, NarrowTarget) else ""
            other = "Build"
            if stated is not None and stated.name != column:
                other = f"Ask for its own label: target={short_name(stated.name)}. Or build"
            raise ReleaseError(
                f"{split} of {release_folder}: {len(strays):,} of {len(rows):,} rows have no {column}, first "
                f"{strays['openalex_id'][0]}; every row needs one of {', '.join(words[column])}. {other} a release "
                f"where every work has it: sciscidata build ... --balance {balance}{only}."
            )
    chances = _read_chances(release) if with_chances else {}
    return [
        Paper(
            row["openalex_id"],
            PaperView(**{name: None if name in hidden else row[name] for name in SEEN}, **_read_context(row)),
            Gold(
                row["disruption_label"],
                row["novelty_label"],
                row.get(own.name) if own is not None else None,
                chances.get(row["openalex_id"]),
                {name: row[name] for name in SCORES if name in row},
            ),
        )
        for row in rows.iter_rows(named=True)
    ]


def _read_context(row: Mapping[str, Any]) -> dict[str, Any]:
    """Read what a paper built on, {} in a release that was built without it."""
    context = {name: row[name] for name in CONTEXT if name in row}
    if "references" in context:
        context["references"] = tuple(Reference(**one) for one in context["references"])
    return context


def read_rows(release: Release, split: str) -> pl.DataFrame:
    """Read a split as a table (ReleaseError)."""
    try:
        return getattr(release, split)  # which compares the file with its SHA-256 in the manifest
    except (SciSciDataError, OSError) as error:
        raise ReleaseError(str(error)) from error


def _read_chances(release: Release) -> dict[str, tuple[float, ...]]:
    try:
        found = release.label_confidence
    except (SciSciDataError, OSError) as error:
        raise ReleaseError(f"{error} Or let every paper count alike: weight=equal.") from error
    rows = found.select("openalex_id", *(f"p_{label}" for label in DISRUPTION_LABELS)).drop_nulls()
    return {name: tuple(chances) for name, *chances in rows.iter_rows()}


def take_head(papers: Sequence[Paper], n_papers: int | None, target: Target) -> list[Paper]:
    """Return a stratified sample of this size, in the order given; all papers if it is None or as many.

    Each class has its share, rounded up or down; in it the lowest SHA-256 of the id decide, so a larger head contains a
    smaller one. The first rows of a release are no sample: a class with many works fills its quota with low keys.
    Source: the quota method, Balinski & Young 1975, American Mathematical Monthly 82(7), 701-730.

    Example:
        >>> from sciscirl.task.papers import count_labels
        >>> view = PaperView("On sleep", "We sleep.", 2001, 3, "Neuroscience")
        >>> papers = [Paper(f"W{n}", view, Gold("neutral" if n < 6 else "disruptive", None)) for n in range(9)]
        >>> count_labels(take_head(papers, 3, "disruption"), "disruption")
        (('disruptive', 1), ('consolidating', 0), ('neutral', 2))
    """
    if n_papers is None or n_papers >= len(papers):
        return list(papers)
    chosen = _draw(papers, n_papers, "head", lambda paper: class_of(paper, target))
    return [paper for paper in papers if paper.openalex_id in chosen]


def size_held_out(n_papers: int, batch_size: int) -> int:
    """Return how many of the training papers are kept out where a release has no development split."""
    return max(-(-n_papers // _HELD_OUT_DIVISOR), batch_size)


def hold_out(papers: Sequence[Paper], n_held_out: int) -> tuple[list[Paper], list[Paper]]:
    """Divide training papers into those that are trained on and those that are kept out, in the order given.

    Every label of the release has its share. Neither seed nor task changes the choice, so runs are judged by the same
    papers, and weights that a run starts from have not seen them.
    """
    every = ("disruption_label", "novelty_label", "own_label")
    kept = _draw(
        papers, n_held_out, f"held_out:{HELD_OUT_SEED}", lambda paper: tuple(paper.gold.of(one) or "" for one in every)
    )
    parts: tuple[list[Paper], list[Paper]] = ([], [])
    for paper in papers:
        parts[paper.openalex_id in kept].append(paper)
    return parts


def _draw(papers: Sequence[Paper], n: int, stream: str, find_class: Callable[[Paper], tuple[str, ...]]) -> set[str]:
    """Return the ids of a stratified sample; ``stream`` keeps it apart from the split and from other samples."""
    by_class: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for paper in papers:
        by_class[find_class(paper)].append(paper.openalex_id)
    sizes = {own: len(by_class[own]) for own in sorted(by_class)}
    taken = dict.fromkeys(sizes, 0)
    for size in range(1, min(n, len(papers)) + 1):
        below = [own for own, count in sizes.items() if taken[own] * len(papers) < size * count]
        taken[max(below, key=lambda own: sizes[own] / (taken[own] + 1))] += 1
    return {
        name
        for own, names in by_class.items()
        for name in sorted(names, key=lambda name: hashlib.sha256(f"{stream}:{name}".encode()).digest())[: taken[own]]
    }


@dataclass(frozen=True, kw_only=True)
class Order:
    """Which papers come in which step.

    Attributes:
        batch_size: papers in a step.
        seed: of the order of the papers. On your own hardware also of new weights and of sampled answers, which a
            Tinker server draws by itself.
        interleave: spread the classes evenly over the batches.
    """

    batch_size: PositiveInt = 16
    seed: int = 0
    interleave: bool = False

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)


@dataclass(frozen=True, kw_only=True)
class ListedPapers:
    """Papers by their ids.

    Attributes:
        ids: use only papers whose ids this file lists, one a line: of each split those that are in it.
    """

    ids: File | None = None


@dataclass(frozen=True, kw_only=True)
class PaperChoice(ListedPapers):
    """Which papers of a release a run sees.

    Attributes:
        eval_split: papers that evaluations judge by and checkpoints are chosen by: dev, held_out (training papers that
            are kept out) or test; None: dev, or held_out if the release has no dev. Reinforcement learning of
            disruption with a published preset then takes test, as its notes did.
        n_train: use so many training papers, each class in its share; None: all.
        n_test: judge by so many papers, each class in its share; None: all.
        n_epochs: how often each training paper is shown, each time in another order.
    """

    eval_split: EvalSplit | None = None
    n_train: PositiveInt | None = None
    n_test: PositiveInt | None = None
    n_epochs: PositiveInt | None = None

    def __post_init__(self) -> None:
        check_fields(self, SciSciRLError)


def settle_choice(choice: PaperChoice, release_folder: str | Path, without_dev: EvalSplit = "held_out") -> PaperChoice:
    """Settle by what a run is judged: as chosen, else by the development split, else ``without_dev``."""
    if choice.eval_split is not None:
        return choice
    return replace(choice, eval_split="dev" if "dev" in open_release(release_folder).splits else without_dev)


def open_release(release_folder: str | Path) -> Release:
    """Open a release; nothing but its manifest is read yet. Raises ReleaseError if it is none, or cannot be read."""
    try:
        return read_release(release_folder)
    except (SciSciDataError, OSError) as error:
        raise ReleaseError(str(error)) from error


class Part(NamedTuple):
    """Papers of a release that a run trains on or is judged by.

    ``n_held_out`` training papers are kept out (``hold_out``). ``ids`` names a file of ids, one a line, and
    ``n_papers`` takes a stratified head of what is left (``take_head``).
    """

    release: str | Path
    name: PartName
    n_held_out: int = 0
    ids: str | Path | None = None
    n_papers: int | None = None

    @property
    def split(self) -> SplitName:
        """The split that has them."""
        return "train" if self.name == "held_out" else self.name

    def read(self, target: Target, *, with_chances: bool = False) -> list[Paper]:
        """Read them from the release (ReleaseError)."""
        return self.choose(read_split(self.release, self.split, target=target, with_chances=with_chances), target)

    def choose(self, papers: Sequence[Paper], target: Target) -> list[Paper]:
        """Choose them from the papers of their split (ReleaseError)."""
        if self.name == "held_out" and not self.n_held_out:
            raise ReleaseError(
                "split is held_out, and no run says which papers it kept out. Give such a run, or choose another split."
            )
        if self.n_held_out and self.split == "train":
            papers = hold_out(papers, self.n_held_out)[self.name == "held_out"]
        if self.ids is not None:
            from sciscirl.task.listed_papers import read_ids  # which few runs need

            release = open_release(self.release)
            known = {one for split in release.splits for one in read_rows(release, split)["openalex_id"]}
            listed = read_ids(Path(self.ids), known, self.release)
            papers = [paper for paper in papers if paper.openalex_id in listed]
        if isinstance(target, PairTarget):
            from sciscirl.task.pairs import pair_papers  # which no other task needs

            papers = pair_papers(papers, f"{self.name} in {self.release}")
        if self.n_papers is not None and self.n_papers > len(papers):
            _warn_once(
                f"{self.n_papers:,} papers of {self.name} are asked for, and it has {len(papers):,}: all are taken."
            )
        return take_head(papers, self.n_papers, target)
