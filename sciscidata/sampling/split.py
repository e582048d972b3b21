"""The split hash, quotas and the draw: a work's place depends on its id and the seed, and on nothing else.

Seeded draws of Polars and NumPy may change between versions; SHA-256 does not.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeVar

import msgspec
import numpy as np
import polars as pl

from sciscidata._support.short_repr import html_repr, short_repr
from sciscidata._support.validate import check_fields, checked_config
from sciscidata.errors import (
    ONE_ROW_EACH,
    ConfigError,
    NotEnoughWorksError,
    SchemaMismatchError,
    WorkIdError,
)
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.schemas import EXAMPLE, WORKS, require_columns

Label = TypeVar("Label")


def class_quotas(n: int, labels: Sequence[Label]) -> dict[Label, int]:
    """Divide ``n`` works over the classes: equal shares, and the remainder goes to the first in label order.

    Example:
        >>> class_quotas(5000, ("disruptive", "consolidating", "neutral"))
        {'disruptive': 1667, 'consolidating': 1667, 'neutral': 1666}
    """
    share, rest = divmod(n, len(labels))
    return {label: share + (place < rest) for place, label in enumerate(labels)}


def quota_cells(columns: Sequence[str]) -> list[tuple[str, ...]]:
    """List the cells that label columns make up, in the order in which ``class_quotas`` hands out the remainder.

    One column: its classes, in label order. Two: by the diagonals of their table, so that a draw that nine does not
    divide is still as even as possible in each of the two labels.

    Example:
        >>> quota_cells(["novelty_label"])
        [('novel',), ('balanced',), ('conventional',)]
        >>> quota_cells(["disruption_label", "novelty_label"])[:3]
        [('disruptive', 'novel'), ('consolidating', 'balanced'), ('neutral', 'conventional')]
    """
    vocabularies = [VOCABULARIES[column] for column in columns]
    if len(vocabularies) < 2:
        return list(itertools.product(*vocabularies))
    rows, across = vocabularies
    return [
        (label, across[(i + diagonal) % len(across)]) for diagonal in range(len(across)) for i, label in enumerate(rows)
    ]


Balance = Literal["disruption", "novelty", "joint", "none"]

#: The label columns whose classes are drawn in equal numbers.
BALANCED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "disruption": ("disruption_label",),
        "novelty": ("novelty_label",),
        "joint": ("disruption_label", "novelty_label"),
        "none": (),
    }
)
SPLITS: Final = ("train", "test")
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]

_REMEDY: Final = (
    "Lower n_train and n_test, move the cut-offs of LabelThresholds, relax EligibilityConfig, or read more works."
)
_NOVELTY_REMEDY: Final = (
    "If novelty is labelled by the margin rule, most works are conventional: Uzzi's rule "
    "(LabelThresholds.novelty_rule='uzzi'), or the margin rule over ranks "
    "(NoveltyConfig.score='rank'), spreads novelty more evenly."
)
_NO_NOVELTY: Final = (
    "no eligible work has a novelty label, so novelty cannot be balanced: a work needs two references whose venue "
    "(source_id) and year are in WORKS. Read the cited works too, or use SplitConfig.balance='disruption'. "
    "If the null model is that of a background, it has to hold their years and pairs of venues: take another, or none."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitConfig:
    """How many works each split gets, and which classes get equal counts.

    Attributes:
        n_train: works in the train split. One of the two sizes may be 0.
        n_test: works in the test split.
        seed: seed of the draw.
        balance: label whose classes get equal counts. ``"joint"``: the nine pairs of disruption and novelty label.
            ``"none"``: natural prevalence; all works in the order of their keys, the first ``n_train`` and the next
            ``n_test``.

    Raises:
        ConfigError: on construction, if a value does not fit its type, or both sizes are 0.

    Example:
        >>> SplitConfig(n_train=0, n_test=0)
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: SplitConfig.n_train and SplitConfig.n_test are both 0, so there is nothing to
        draw. Raise one.
    """

    n_train: _Size = 5000
    n_test: _Size = 500
    seed: int = 0
    balance: Balance = "disruption"

    __repr__ = short_repr
    _repr_html_ = html_repr

    def __post_init__(self) -> None:
        check_fields(self)
        if self.n_train + self.n_test == 0:
            msg = "SplitConfig.n_train and SplitConfig.n_test are both 0, so there is nothing to draw. Raise one."
            raise ConfigError(msg)

    @property
    def sizes(self) -> dict[str, int]:
        """The number of works in each split, train first."""
        return dict(zip(SPLITS, (self.n_train, self.n_test), strict=True))


def split_keys(work_ids: pl.Series, seed: int = 0) -> pl.Series:
    """Hash every id: the first 8 bytes, big-endian, of SHA-256 of ``f"{seed}:{work_id}"``.

    The result is ``split_key`` UInt64, in the order of ``work_ids``; a WorkIdError if an id is null. About a million
    ids a second on one core.

    Example:
        >>> split_keys(pl.Series([2741809807]), seed=0).to_list()
        [16563466640324700710]
    """
    if work_ids.null_count():
        msg = f"{work_ids.null_count():,} works have no work_id. Drop them: .drop_nulls('work_id')."
        raise WorkIdError(msg)
    sha256, from_bytes = hashlib.sha256, int.from_bytes
    digests = (sha256(f"{seed}:{work_id}".encode()).digest() for work_id in work_ids)
    keys = np.fromiter((from_bytes(digest[:8], "big") for digest in digests), np.uint64, len(work_ids))
    return pl.Series("split_key", keys)


def split_of_keys(keys: pl.Series, config: SplitConfig) -> pl.Series:
    """Say in which split (String) each key (UInt64) lies: test if ``key % (n_train + n_test) < n_test``, else train.

    Of ``config`` only the sizes are read; for ``balance="none"``, where the split is a matter of rank, do not ask.

    Example:
        >>> split_of_keys(pl.Series([5499, 5500], dtype=pl.UInt64), SplitConfig()).to_list()
        ['train', 'test']
    """
    is_test = keys % (config.n_train + config.n_test) < config.n_test
    splits = pl.select(pl.when(is_test).then(pl.lit("test")).otherwise(pl.lit("train")).alias("split"))
    return splits["split"]


def draw_split(labelled: pl.LazyFrame | pl.DataFrame, config: SplitConfig | None = None) -> pl.DataFrame:
    """Draw the train and test works of a release, with equal class counts.

    A work is in the test split if ``split_key % (n_train + n_test) < n_test``. In each split, each class gets its quota
    of works with the lowest keys. So more data, or other data, never moves a work to the other split. (With
    ``balance="none"`` it can: there the place is the rank among all works.)

    Args:
        labelled: eligible works, one row each: ``work_id`` Int64 and the label columns (String) that ``balance`` names;
            for ``"none"``, ``disruption_label``. Works without these labels are never drawn. Other columns pass
            through. The frame is collected once, so leave out texts.
        config: ``SplitConfig()`` when None.

    Returns:
        The drawn rows with ``split`` String (``"train"`` or ``"test"``) and ``split_key`` UInt64 added; train first,
        each split in the order of its keys.

    Raises:
        SchemaMismatchError: a column is missing or mistyped, or a label is not in its vocabulary.
        WorkIdError: a ``work_id`` is null or repeated.
        NotEnoughWorksError: a class of a split is too small; the message names all of them.

    Example:
        >>> labels = ["disruptive", "consolidating", "neutral"] * 20
        >>> works = pl.LazyFrame({"work_id": range(60), "disruption_label": labels})
        >>> drawn = draw_split(works, SplitConfig(n_train=6, n_test=3))
        >>> drawn["split"].value_counts(sort=True).rows()
        [('train', 6), ('test', 3)]
        >>> sorted(drawn.filter(split="test")["disruption_label"])
        ['consolidating', 'disruptive', 'neutral']
    """
    settings = checked_config(config, SplitConfig)
    columns = BALANCED[settings.balance] or ("disruption_label",)
    needed = {"work_id": WORKS["work_id"], **EXAMPLE}
    names = {"frame_name": "the labelled frame", "stage": "draw_split"}
    frame = require_columns(labelled, needed, **names, columns=["work_id", *columns])
    schema = {**frame.collect_schema(), "split": pl.String(), "split_key": pl.UInt64()}

    works = frame.filter(pl.col(column).is_not_null() for column in columns).collect()
    _check_works(works, columns)
    keyed = works.select("work_id", *columns, split_keys(works["work_id"], settings.seed))
    drawn = _draw_classes(keyed, settings) if BALANCED[settings.balance] else _draw_any(keyed, settings)
    train_before_test = pl.col("split") == "test"
    return (
        works.drop("split", "split_key", strict=False)
        .join(drawn.select("work_id", "split", "split_key"), on="work_id")
        .sort(train_before_test, "split_key", "work_id")
        .select(list(schema))
    )


def _check_works(works: pl.DataFrame, columns: Sequence[str]) -> None:
    repeated = works.filter(pl.col("work_id").is_duplicated())["work_id"]
    if len(repeated):
        msg = (
            f"draw_split: {repeated.n_unique():,} works appear more than once, for example "
            f"W{repeated.min()}. Keep one row each: {ONE_ROW_EACH}."
        )
        raise WorkIdError(msg)
    if works.is_empty() and "novelty_label" in columns:
        raise NotEnoughWorksError(_NO_NOVELTY)
    for column in columns:
        vocabulary = VOCABULARIES[column]
        strange = works.filter(~pl.col(column).is_in(vocabulary))[column]
        if len(strange):
            msg = (
                f"draw_split: {column} holds {strange.sort()[0]!r}, needs one of: {', '.join(vocabulary)}. "
                "Label with compute_disruption_labels or compute_novelty_labels."
            )
            raise SchemaMismatchError(msg)


def _draw_classes(keyed: pl.DataFrame, config: SplitConfig) -> pl.DataFrame:
    columns = BALANCED[config.balance]
    cells = quota_cells(columns)
    placed = keyed.with_columns(split_of_keys(keyed["split_key"], config).alias("split"))
    quotas = pl.DataFrame(
        [
            (split, *cell, quota)
            for split, size in config.sizes.items()
            for cell, quota in class_quotas(size, cells).items()
        ],
        schema=["split", *columns, "quota"],
        orient="row",
    )
    _check_quotas(placed, quotas, columns)
    rank = pl.int_range(pl.len()).over("split", *columns)
    return (
        placed.sort("split_key", "work_id")
        .with_columns(rank.alias("rank"))
        .join(quotas, on=["split", *columns])
        .filter(pl.col("rank") < pl.col("quota"))
    )


def _draw_any(keyed: pl.DataFrame, config: SplitConfig) -> pl.DataFrame:
    needed = config.n_train + config.n_test
    if keyed.height < needed:
        msg = f"train and test need {needed:,} works, found {keyed.height:,} eligible.\n{_REMEDY}"
        raise NotEnoughWorksError(msg)
    is_train = pl.int_range(pl.len()) < config.n_train
    return (
        keyed.sort("split_key", "work_id")
        .head(needed)
        .with_columns(pl.when(is_train).then(pl.lit("train")).otherwise(pl.lit("test")).alias("split"))
    )


def _check_quotas(placed: pl.DataFrame, quotas: pl.DataFrame, columns: Sequence[str]) -> None:
    keys = ["split", *columns]
    found = quotas.join(placed.group_by(keys).len("found"), on=keys, how="left", maintain_order="left").with_columns(
        pl.col("found").fill_null(0)
    )
    short = found.filter(pl.col("found") < pl.col("quota"))
    if short.is_empty():
        return
    lines = [
        f"{split} needs {quota:,} {_name(cell)} works, found {count:,} of {placed.height:,} eligible."
        for split, *cell, quota, count in short.rows()
    ]
    in_all = found.group_by(columns, maintain_order=True).agg(pl.col("found").sum())
    *rarest, count = in_all.sort("found", maintain_order=True).row(0)
    lines.append(
        f"The rarest class, {_name(rarest)}, has {count:,} works in both splits together, so a balanced draw "
        f"holds {count * in_all.height:,} at most.\n{_REMEDY}"
    )
    if "novelty_label" in columns:
        lines.append(_NOVELTY_REMEDY)
    raise NotEnoughWorksError("\n".join(lines))


def _name(cell: Sequence[str]) -> str:
    return " + ".join(repr(label) for label in cell)
