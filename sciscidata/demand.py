"""What a draw still needs, so that a source that pays for every score asks for no more than that."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from sciscidata.eligibility import EligibilityConfig, join_candidates, mark_ineligible
from sciscidata.labels import DISRUPTION_LABELS, LabelThresholds, label_disruption
from sciscidata.splits import SIDES, SplitConfig, class_quotas, side_of_keys, split_keys

_ORDERED = ("consolidating", "neutral", "disruptive")  # by rising cd_index


@dataclass
class Demand:
    """Class quotas of both sides, filled by scored works.

    Attributes:
        labels: of every work that may be drawn of those scored so far, by work_id.
    """

    thresholds: LabelThresholds
    eligibility: EligibilityConfig
    split: SplitConfig
    window_years: int | None

    def __post_init__(self) -> None:
        labels: list[str] = list(DISRUPTION_LABELS)
        self._need: dict[tuple[str, str], int] = {
            (str(side), label): quota
            for side, size in self.split.sizes.items()
            for label, quota in class_quotas(size, labels).items()
        }
        self._have: dict[tuple[str, str], int] = dict.fromkeys(self._need, 0)
        self._total = 0
        self._possible: dict[float, frozenset[str]] = {}
        self.labels: dict[int, str] = {}

    @property
    def open_classes(self) -> dict[str, frozenset[str]]:
        """For each side, the labels that still have room; all of them until a natural draw has enough works."""
        if self.split.balance == "none":
            is_open = self._total < self.split.n_train + self.split.n_test
            return dict.fromkeys(SIDES, frozenset(DISRUPTION_LABELS if is_open else ()))
        return {
            side: frozenset(label for label in DISRUPTION_LABELS if self.missing(side, label) > 0) for side in SIDES
        }

    @property
    def filled(self) -> int:
        """Works that the draw would take of those scored so far."""
        if self.split.balance == "none":
            return min(self._total, self.split.n_train + self.split.n_test)
        return sum(min(self._have[cell], need) for cell, need in self._need.items())

    @property
    def is_met(self) -> bool:
        """Whether every quota on both sides is full."""
        return not any(self.open_classes.values())

    def missing(self, side: str, label: str) -> int:
        """Works that a class of a side still lacks."""
        return max(0, self._need[side, label] - self._have[side, label])

    @property
    def still_missing(self) -> dict[tuple[str, str], int]:
        """What the draw still lacks, by side and label; for a natural draw in all, as ``("", "")``."""
        if self.split.balance == "none":
            n = max(0, self.split.n_train + self.split.n_test - self._total)
            return {("", ""): n}
        return {cell: self.missing(*cell) for cell in self._need}

    def update(self, works: pl.DataFrame, citations: pl.DataFrame, scores: pl.DataFrame) -> None:
        """Count what is eligible among all works scored so far, by the rules of the draw itself.

        Of texts only whether they are blank matters here, and of titles whether they repeat.
        """
        candidates = join_candidates(works, label_disruption(scores, self.thresholds), citations)
        marked = mark_ineligible(candidates, self.eligibility, window_years=self.window_years)
        eligible = marked.filter(pl.col("removed_by").is_null(), pl.col("disruption_label").is_not_null()).collect()
        sided = eligible.select("disruption_label", side=self.sides(eligible["work_id"]))
        counts: dict[tuple[str, str], int] = dict.fromkeys(self._need, 0)
        counts |= {(side, label): n for side, label, n in sided.group_by("side", "disruption_label").len().rows()}
        self._have, self._total = counts, eligible.height
        self.labels = dict(zip(eligible["work_id"].to_list(), eligible["disruption_label"].to_list(), strict=True))

    def sides(self, work_ids: pl.Series) -> pl.Series:
        """Say on which side each work would be."""
        return side_of_keys(split_keys(work_ids, self.split.seed), self.split)

    def possible_labels(self, n_i: int, n_j: int) -> frozenset[str]:
        """Say which labels a work may still get once n_k is known, which can only draw its index towards 0."""
        furthest = (n_i - n_j) / (n_i + n_j) if n_i + n_j else 0.0
        if furthest not in self._possible:
            ends = label_disruption(pl.DataFrame({"cd_index": [0.0, furthest]}), self.thresholds).collect()
            low, high = sorted(_ORDERED.index(label) for label in ends["disruption_label"])
            self._possible[furthest] = frozenset(_ORDERED[low : high + 1])
        return self._possible[furthest]
