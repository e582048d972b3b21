"""What baselines know of papers, as columns: text, what was known at publication, and counts that came later.

No score and no label is among it. The citers n_i + n_j of a release stand in for ``cited_by_count`` where it has none,
rounded to doublings: exact, they nearly tell *neutral*, which an odd number cannot have (on five fields, an accuracy of
0.65 of three labels, and 0.48 rounded; ``cited_by_count`` has 0.49).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np
import polars as pl
from scipy import sparse

from sciscidata.disruption.publication_features import PUBLICATION_FEATURES
from sciscidata.errors import InputNotFoundError, SciSciDataError
from sciscidata.own_label import stated_label
from sciscirl.errors import ReleaseError
from sciscirl.lab.analysis.seen import CITERS
from sciscirl.task.papers import OwnTarget, PairTarget, PairView, Paper, PaperView, Target, hide_fields
from sciscirl.task.release import open_release
from sciscirl.task.rules import TaskRules

#: What was known of the references at publication.
OF_REFERENCES: Final = tuple(
    name for name in PUBLICATION_FEATURES if name not in ("work_id", "publication_year", "primary_field")
)
#: The other numbers have a long tail.
_NO_TAIL: Final = ("publication_year", "share_references_uncited", "reference_cd_mean", CITERS)


class Counts(NamedTuple):
    """What scores.parquet says of a work."""

    n_references: int | None = None
    n_citers: int | None = None


class Known(NamedTuple):
    """What baselines may know of one paper."""

    view: PaperView
    counts: Counts = Counts()

    def of(self, name: str) -> Any:  # noqa: ANN401 (a number, a word, or None)
        """Return one column."""
        if name == CITERS:
            n = self.counts.n_citers
            return None if n is None else (n + 1).bit_length() - 1  # 0, 1 to 2, 3 to 6, 7 to 14
        if name in OF_REFERENCES:
            stated = self.view.at_publication
            own = None if stated is None else stated.get(name)
            return self.counts.n_references if own is None and name == "n_references" else own
        return getattr(self.view, name)


#: Papers, or of pairs the first ones and the second ones.
Sides = Sequence[Sequence[Known]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


def read_counts(release_folder: str | Path, target: Target) -> dict[str, Counts]:
    """Read the counts of all works of a release by id; {} if it has none (ReleaseError: it was changed).

    Citers are not read for an own label that hides citations, because it may follow from them.
    """
    release = open_release(release_folder)
    try:
        scores = release.scores
    except InputNotFoundError:
        return {}
    except (SciSciDataError, OSError) as error:
        raise ReleaseError(str(error)) from error
    n_citers = pl.col("n_i").cast(pl.Int64) + pl.col("n_j").cast(pl.Int64)
    if isinstance(target, OwnTarget) and not isinstance(target, PairTarget):
        stated = stated_label(release.manifest)  # what a run recalls of its label is no more than name and classes
        label = stated if stated is not None and stated.name == target.label.name else target.label
        n_citers = pl.lit(None, pl.Int64).alias("n_i") if "cited_by_count" in label.hidden else n_citers
    rows = scores.select("openalex_id", "n_references", n_citers)
    return {name: Counts(*counts) for name, *counts in rows.iter_rows()}


def know(papers: Sequence[Paper], counts: Mapping[str, Counts], rules: TaskRules) -> Sides:
    """Return what ``hide`` leaves of papers. Counts stand in for what a release lacks, never for what is hidden."""

    def one(name: str, view: PaperView) -> Known:
        n_references, n_citers = counts.get(name, Counts())
        kept = Counts(
            None if "at_publication" in rules.hide else n_references,
            None if "cited_by_count" in rules.hide else n_citers,
        )
        return Known(cast("PaperView", hide_fields(view, rules.hide)), kept)

    if not any(isinstance(paper.view, PairView) for paper in papers):
        return [[one(paper.openalex_id, cast("PaperView", paper.view)) for paper in papers]]
    sides: tuple[list[Known], list[Known]] = ([], [])
    for paper in papers:
        pair, names = cast("PairView", paper.view), paper.openalex_id.partition("+")[::2]
        for side, name, view in zip(sides, names, (pair.A, pair.B), strict=True):
            side.append(one(name, view))
    return sides


def list_known(train: Sides, names: Sequence[str]) -> tuple[str, ...]:
    """List the columns that at least one training paper has."""
    return tuple(name for name in names if any(one.of(name) not in (None, "", ()) for side in train for one in side))


def join_text(paper: Known, names: Sequence[str]) -> str:
    """Join title, abstract and titles of references, as far as they are named."""
    words = [getattr(paper.view, name) or "" for name in names if name != "references"]
    return " ".join([*words, *(one.title for one in (paper.view.references or ()) if "references" in names)])


def to_numbers(papers: Sequence[Known], names: Sequence[str]) -> Floats:
    """Return a row for each paper and a column for each name; NaN where unknown, log(1 + n) of what has a long tail."""
    rows = [[np.nan if (value := paper.of(name)) is None else float(value) for name in names] for paper in papers]
    numbers = np.array(rows, np.float64).reshape(len(papers), len(names))
    has_tail = [name not in _NO_TAIL for name in names]
    numbers[:, has_tail] = np.log1p(numbers[:, has_tail])
    return numbers


class Scaled:
    """Columns for a regression, scaled by training papers: unknown is their mean, and a mark. And a column a field."""

    def __init__(self, train: Sequence[Known], names: Sequence[str]) -> None:
        self.names = [name for name in names if name != "primary_field"]
        numbers = to_numbers(train, self.names)
        self.mean = np.nanmean(numbers, axis=0)
        spread = np.nanstd(numbers, axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        known = {paper.view.primary_field for paper in train if "primary_field" in names}
        self.fields = sorted(field for field in known if field is not None)

    def __call__(self, papers: Sequence[Known]) -> sparse.csr_matrix:
        """Return the columns of papers."""
        scaled = (to_numbers(papers, self.names) - self.mean) / self.spread
        fields = [[float(paper.view.primary_field == field) for field in self.fields] for paper in papers]
        dummies = np.array(fields, np.float64).reshape(len(papers), len(self.fields))
        return sparse.csr_matrix(np.hstack([np.nan_to_num(scaled), np.isnan(scaled), dummies]))


class Coded:
    """Columns for trees: NaN is unknown, and the field is a code; ``categorical`` is its place."""

    def __init__(self, train: Sequence[Known], names: Sequence[str], most_fields: int) -> None:
        self.names = [name for name in names if name != "primary_field"]
        known = {paper.view.primary_field for paper in train if "primary_field" in names}
        self.fields = sorted(field for field in known if field is not None)[:most_fields]
        self.categorical = [len(self.names)] if self.fields else []

    def __call__(self, papers: Sequence[Known]) -> Floats:
        """Return the columns of papers."""
        numbers = to_numbers(papers, self.names)
        codes = {field: float(code) for code, field in enumerate(self.fields)}
        own = np.array([codes.get(paper.view.primary_field or "", np.nan) for paper in papers], np.float64)
        return np.column_stack([numbers, own]) if self.fields else numbers
