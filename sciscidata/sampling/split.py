"""The split hash and the draw: a work's place depends on its id and the seed, and on nothing else.

Seeded draws of Polars and NumPy may change between versions; SHA-256 does not.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from sciscidata.errors import (
    ONE_ROW_EACH,
    ConfigError,
    NotEnoughWorksError,
    SchemaMismatchError,
    WorkIdError,
)
from sciscidata.frames import AnyFrame
from sciscidata.label_thresholds import FIELD_YEAR, VOCABULARIES
from sciscidata.options.checks import checked_config
from sciscidata.options.did_you_mean import suggest
from sciscidata.own_label import OwnLabel, example_schema, vocabularies, with_classes
from sciscidata.sampling.balance import BALANCED, check_choices, class_quotas, quota_cells, share_quotas
from sciscidata.sampling.config import BOTH, WITHIN, SplitConfig
from sciscidata.schemas import SPLITS, WORKS, require_columns
from sciscidata.terminal.messages import counted, list_names

logger = logging.getLogger(__name__)

_KEYS: Final = 1 << 64
_FEW_EACH: Final = 5  # works of each class, as few as a split of use has

_CUT_OFFS: Final = {
    "disruption_label": "move the cut-offs (LabelThresholds.disruptive_min, LabelThresholds.consolidating_max)",
    "novelty_label": "move LabelThresholds.novelty_margin",
}
_NOVELTY_REMEDY: Final = (
    "If novelty is labelled by the margin rule, most works are often conventional: Uzzi's rule "
    "(LabelThresholds.novelty_rule='uzzi'), or the margin rule over ranks "
    "(NoveltyConfig.score='rank'), spreads novelty more evenly."
)
_NO_BALANCE: Final = (
    "classes cannot be balanced within fields. Name the column of fields, or balance without them: "
    "SplitConfig.balance={balance!r}."
)
_NO_NOVELTY: Final = (
    "no eligible work has a novelty label, so novelty cannot be balanced: a work needs two references whose venue "
    "(source_id) and year are in WORKS. Read the cited works too, or use SplitConfig.balance='disruption'. "
    "If the null model is that of a background, it has to hold their years and pairs of venues: take another, or none."
)


def balanced_columns(config: SplitConfig, label: OwnLabel | None = None) -> tuple[str, ...]:
    """Return the label columns whose classes are drawn in equal numbers."""
    balance = config.balance.removesuffix(WITHIN)
    if balance != "label":
        return BALANCED[balance]
    if label is None:
        raise ConfigError(
            f"SplitConfig.balance is {config.balance!r}, but there is no label of your own. Set "
            "BuildConfig.label=OwnLabel(...), or choose SplitConfig.balance='disruption'."
        )
    return (label.name,)


def needed_columns(config: SplitConfig, label: OwnLabel | None = None) -> tuple[str, ...]:
    """Return the label columns that a work needs to be drawn: those that are balanced, and the own label."""
    columns = balanced_columns(config, label) or ("disruption_label" if label is None else label.name,)
    return columns if label is None or label.name in columns else (*columns, label.name)


def list_cells(config: SplitConfig, label: OwnLabel | None = None) -> list[tuple[str, ...]]:
    """List the classes of the balanced labels that are drawn, in the order in which quotas are handed out."""
    columns = balanced_columns(config, label)
    check_choices(config.labels, config.balance, label=label)
    return quota_cells(columns, label, config.labels)


def is_drawn(config: SplitConfig, label: OwnLabel | None = None) -> list[pl.Expr]:
    """Say of each work whether its classes are among those that are drawn; empty if all are."""
    columns = zip(*list_cells(config, label), strict=True) if config.labels else ()
    return [
        pl.col(name).cast(pl.String).is_in([*{*words}])
        for name, words in zip(balanced_columns(config, label), columns, strict=False)
    ]


def find_quotas(counts: pl.DataFrame, config: SplitConfig, label: OwnLabel | None = None) -> pl.DataFrame:
    """Return how many works of each cell are drawn: the columns of ``counts`` but ``found``, and ``quota``."""
    columns = balanced_columns(config, label)
    cells, within = list_cells(config, label), ["field_year"] if config.cell_columns else []
    rows: list[tuple[str | int, ...]] = []
    for group, size in config.groups.items():
        if not within:
            rows += [(group, *cell, quota) for cell, quota in class_quotas(size, cells).items()]
            continue
        found: dict[str, list[int]] = {}
        for cell, word, n in counts.filter(split=group).select(*within, *columns, "found").iter_rows():
            found.setdefault(cell, [0] * len(cells))[cells.index((word,))] = n
        rows += [
            (group, field_year, *cell, quota)
            for field_year, quotas in share_quotas(size, found).items()
            for cell, quota in zip(cells, quotas, strict=True)
        ]
    texts = dict.fromkeys(["split", *within, *columns], pl.String())
    return pl.DataFrame(rows, schema={**texts, "quota": pl.Int64()}, orient="row")


def split_keys(work_ids: pl.Series, seed: int = 0) -> pl.Series:
    """Hash every id: the first 8 bytes, big-endian, of SHA-256 of ``f"{seed}:{work_id}"``; a million a second."""
    if work_ids.null_count():
        raise WorkIdError(
            f"{counted(work_ids.null_count(), 'work has', 'works have')} no work_id. Drop them: .drop_nulls('work_id')."
        )
    sha256, from_bytes = hashlib.sha256, int.from_bytes
    digests = (sha256(f"{seed}:{work_id}".encode()).digest() for work_id in work_ids)
    keys = np.fromiter((from_bytes(digest[:8], "big") for digest in digests), np.uint64, len(work_ids))
    return pl.Series("split_key", keys)


def group_of_keys(keys: pl.Series, config: SplitConfig, fields: pl.Series | None = None) -> pl.Series:
    """Say of each key (UInt64) from which of ``config.groups`` (String) it may be drawn; sizes and balance are read.

    dev: the highest keys, as large a share of all as ``n_dev`` is of all works wanted. Below them test if ``key %
    (n_train + n_test) < n_test``, else train; or BOTH. With ``config.test_fields`` the primary ``fields`` decide what
    test is, and the rest is train or dev; null where the field is unknown.
    """
    key, size = pl.col("key"), config.n_train + config.n_test
    group = pl.repeat(BOTH, pl.len())
    if config.is_stratified:
        is_test = pl.lit(value=False) if config.test_fields else key % size < config.n_test
        group = pl.when(is_test).then(pl.lit("test")).otherwise(pl.lit("train"))
    if config.n_dev:
        first = _KEYS * size // (size + config.n_dev)
        group = pl.when(key >= pl.lit(first, pl.UInt64)).then(pl.lit("dev")).otherwise(group)
    columns = [keys.alias("key")]
    if config.test_fields:
        assert fields is not None
        is_test = pl.col("field").is_in(config.test_fields)
        group = pl.when(is_test).then(pl.lit("test")).when(~is_test).then(group)
        columns.append(fields.alias("field"))
    return pl.DataFrame(columns).select(group.alias("split"))["split"]


def draw_order() -> pl.Expr:
    """Return the number by which works of a group are drawn, lowest first: the key, for dev its distance from the top.

    So a larger dev split holds all works of a smaller one.
    """
    key = pl.col("split_key")
    return pl.when(pl.col("split") == "dev").then(pl.lit(_KEYS - 1, pl.UInt64) - key).otherwise(key)


def divide_pool(keyed: pl.DataFrame, config: SplitConfig) -> pl.Series:
    """Divide works drawn for BOTH (``work_id``, ``split_key``) between train and test, in the order of their rows.

    ``"none"``: the lowest keys are train. ``"pool"``: the lowest last 32 bits of the keys are, since the key itself
    tells the classes apart: a rare class reaches to higher ones.
    """
    order = pl.col("split_key") % (1 << 32) if config.balance == "pool" else pl.col("split_key")
    ordered = keyed.with_row_index("row").sort(order, "split_key", "work_id")
    is_train = pl.int_range(pl.len()) < config.n_train
    divided = ordered.with_columns(pl.when(is_train).then(pl.lit("train")).otherwise(pl.lit("test")).alias("split"))
    return divided.sort("row")["split"]


def draw_split(labelled: AnyFrame, config: SplitConfig | None = None, *, label: OwnLabel | None = None) -> pl.DataFrame:
    """Draw the train, test and development works of a release, with equal class counts.

    A work is in the test split if ``split_key % (n_train + n_test) < n_test``. In each split, each class gets its quota
    of works with the lowest keys. So more data, or other data, never moves a work to the other split. (With
    ``balance`` of ``"pool"`` or ``"none"`` it can: there the place is a rank among many works.) With ``test_fields``
    the field decides instead: test has works of these fields only, and train and dev works of others.

    With ``n_dev``, works with the highest keys are kept for the development split: ``n_dev / (n_train + n_test +
    n_dev)`` of all keys. Each class gets its quota of these, with the highest keys. No data move a work between dev and
    the others. Train and test are those of ``n_dev=0``, or the draw raises an error.

    Args:
        labelled: eligible works, one row each: ``work_id`` Int64 and the label columns (String) that ``balance`` names;
            for ``"none"``, ``disruption_label``. Within cells, ``primary_field`` and ``publication_year``; unknown
            ones are a cell. Works without these labels are never drawn. Other columns pass
            through. The frame is collected once, so leave out texts.
        config: ``SplitConfig()`` when None.
        label: a label of your own, if ``labelled`` has one: works without it are never drawn. Needed for the balance
            ``"label"``; its name and classes are read, and where it comes from is not.

    Returns:
        The drawn rows with ``split`` String (``"train"``, ``"test"``, ``"dev"``) and ``split_key`` UInt64 added. They
        are train first, then test, each split in the order of its keys.

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
    columns = needed_columns(settings, label)
    needed = {"work_id": WORKS["work_id"], **example_schema(label)}
    names = {"frame_name": "the labelled frame", "stage": "draw_split"}
    frame = require_columns(labelled, needed, **names, columns=["work_id", *columns, *settings.columns_read])
    schema = {**frame.collect_schema(), "split": pl.String(), "split_key": pl.UInt64()}

    works = frame.filter(pl.col(column).is_not_null() for column in columns).collect()
    label = label and with_classes(label, works)
    _check_works(works, columns, label)
    _check_fields(works, settings)
    fields = ["primary_field"] if settings.test_fields else []
    within = [FIELD_YEAR] if settings.cell_columns else []
    works = works.filter(is_drawn(settings, label)) if settings.labels else works
    keys = split_keys(works["work_id"], settings.seed)
    keyed = works.select("work_id", *columns, *fields, *within, keys)
    drawn = _draw_groups(keyed, settings, label)
    in_order = pl.col("split").replace_strict({split: place for place, split in enumerate(SPLITS)})
    return (
        works.drop("split", "split_key", strict=False)
        .join(drawn.select("work_id", "split", "split_key"), on="work_id")
        .sort(in_order, "split_key", "work_id")
        .select(list(schema))
    )


def _check_works(works: pl.DataFrame, columns: Sequence[str], label: OwnLabel | None) -> None:
    repeated = works.filter(pl.col("work_id").is_duplicated())["work_id"]
    if len(repeated):
        raise WorkIdError(
            f"draw_split: {counted(repeated.n_unique(), 'work appears', 'works appear')} more than once, for example "
            f"W{repeated.min()}. Keep one row each: {ONE_ROW_EACH}."
        )
    if works.is_empty() and "novelty_label" in columns:
        raise NotEnoughWorksError(_NO_NOVELTY)
    for column in columns:
        vocabulary = vocabularies(label)[column]
        strange = works.filter(~pl.col(column).is_in(vocabulary))[column]
        if len(strange):
            remedy = "Label with compute_disruption_labels or compute_novelty_labels."
            if column not in VOCABULARIES:
                remedy = "Name it in OwnLabel.classes, or mend the values."
            raise SchemaMismatchError(
                f"draw_split: {column} holds {strange.sort()[0]!r}, needs one of: {', '.join(vocabulary)}. {remedy}"
            )


def _check_fields(works: pl.DataFrame, config: SplitConfig) -> None:
    if not config.columns_read:
        return
    if works["primary_field"].null_count() == works.height:
        why = (
            "no field can be held out. Name the column of fields."
            if config.test_fields
            else _NO_BALANCE.format(balance=config.balance.removesuffix(WITHIN))
        )
        raise NotEnoughWorksError(f"no eligible work has a primary_field, so {why}")
    known = works["primary_field"].drop_nulls().unique().sort()
    if strange := [name for name in config.test_fields if name not in known]:
        near = suggest(strange[0], known)
        raise ConfigError(
            f"SplitConfig.test_fields names {strange[0]!r}, and no work that may be drawn is of that field.{near} The "
            f"fields are {list_names(known.to_list())}."
        )
    if not config.test_fields:
        return
    others = known.filter(~known.is_in(config.test_fields))
    if others.is_empty() and (config.n_train or config.n_dev):
        raise ConfigError(
            f"SplitConfig.test_fields names every field of the works that may be drawn "
            f"({list_names(known.to_list())}), so train has no field. Leave one out of it."
        )
    if alike := sorted({_plain(name) for name in config.test_fields} & {_plain(name) for name in others}):
        names = known.filter([_plain(name) in alike for name in known])
        logger.warning(
            "SplitConfig.test_fields holds %s out, and train may have works of %s: names of fields differ by case or "
            "blanks only. Name each, or mend the table.",
            ", ".join(repr(name) for name in config.test_fields),
            ", ".join(repr(name) for name in names if name not in config.test_fields),
        )


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())


def _keys_of_groups(keyed: pl.DataFrame, config: SplitConfig) -> pl.DataFrame:
    """Add ``split``, and leave out works that no group may have."""
    fields = keyed["primary_field"] if config.test_fields else None
    return keyed.with_columns(group_of_keys(keyed["split_key"], config, fields)).drop_nulls("split")


def _draw_groups(keyed: pl.DataFrame, config: SplitConfig, label: OwnLabel | None) -> pl.DataFrame:
    columns = balanced_columns(config, label)
    placed = _keys_of_groups(keyed, config)
    keys = ["split", *(["field_year"] if config.cell_columns else []), *columns]
    counts = placed.group_by(keys).len("found")
    quotas = find_quotas(counts, config, label)
    if not _fits(counts, quotas, config):
        problems = _lacking_room if config.cell_columns else _lacking_works
        kept = config.stated_sizes
        if config.test_fields:  # the sides share no work, so a side that is full stays
            short = _find_short(counts, quotas, config)
            kept = {split: size for split, size in config.sizes.items() if split not in short}
        smaller = _find_smaller(keyed, config, label, kept) or _find_smaller(keyed, config, label, {})
        lines = [*problems(counts, quotas, columns, config), *_name_remedy(columns, config, smaller)]
        raise NotEnoughWorksError("\n".join(lines), smaller)
    rank = pl.int_range(pl.len()).over(keys)
    drawn = (
        placed.sort(draw_order(), "work_id")
        .with_columns(rank.alias("rank"))
        .join(quotas, on=keys)
        .filter(pl.col("rank") < pl.col("quota"))
    )
    pool = drawn.filter(split=BOTH)
    return pl.concat([pool.with_columns(divide_pool(pool, config)), drawn.filter(pl.col("split") != BOTH)])


def _fits(counts: pl.DataFrame, quotas: pl.DataFrame, config: SplitConfig) -> bool:
    """Whether there are works for every quota, and the quotas add up to what is wanted."""
    return not _find_short(counts, quotas, config)


def _find_short(counts: pl.DataFrame, quotas: pl.DataFrame, config: SplitConfig) -> set[str]:
    """Find the groups that cannot have the works that are wanted."""
    keys = [name for name in quotas.columns if name != "quota"]
    there = quotas.join(counts, on=keys, how="left").select(
        "split", n=pl.min_horizontal("quota", pl.col("found").fill_null(0))
    )
    fits = dict(there.group_by("split").agg(pl.col("n").sum()).rows())
    return {group for group, size in config.groups.items() if fits.get(group, 0) < size}


def _find_smaller(
    keyed: pl.DataFrame, config: SplitConfig, label: OwnLabel | None, kept: Mapping[str, int]
) -> SplitConfig | None:
    """Find sizes that fit, as large a share of what was wanted, with those ``kept``; None if there are none.

    Other sizes deal the works anew to the splits, so each pair is tried.
    """
    columns = balanced_columns(config, label)
    keys = ["split", *(["field_year"] if config.cell_columns else []), *columns]
    n_classes = len(list_cells(config, label))
    free = {name: size for name, size in config.sizes.items() if name not in kept}
    share = min(1, (keyed.height - sum(kept.values())) / max(sum(free.values()), 1))
    while True:
        sizes: dict[str, int] = {}
        for name, wanted in free.items():
            size = int(wanted * share)
            round_size = size - size % 10 ** max(len(str(size)) - 2, 0)
            if wanted:
                sizes[f"n_{name}"] = max(round_size, min(wanted, _FEW_EACH * n_classes))
        if max(free.values(), default=0) * share < n_classes:
            return None
        smaller = replace(config, **sizes)
        counts = _keys_of_groups(keyed, smaller).group_by(keys).len("found")
        if _fits(counts, find_quotas(counts, smaller, label), smaller):
            return smaller
        share *= 0.9


def _lacking_room(counts: pl.DataFrame, quotas: pl.DataFrame, _: Sequence[str], config: SplitConfig) -> Generator[str]:
    """Say of each split how much room the cells of field and five years have for it."""
    for split, size in config.sizes.items():
        cells, fit = counts.filter(split=split), int(quotas.filter(split=split)["quota"].sum())
        if fit < size:
            yield (
                f"{split} needs {size:,} works, found {fit:,} of {cells['found'].sum():,} eligible: each of "
                f"{cells['field_year'].n_unique():,} cells of field and five years gives as many works of each class "
                "as it has of its rarest."
            )


def _lacking_works(
    counts: pl.DataFrame, quotas: pl.DataFrame, columns: Sequence[str], config: SplitConfig
) -> Generator[str]:
    """Say which classes fall short."""
    filled = quotas.join(counts, on=["split", *columns], how="left", maintain_order="left").with_columns(
        pl.col("found").fill_null(0)
    )
    eligible = f" of {counts['found'].sum():,}" if columns or config.n_dev else ""
    for split, *cell, quota, count in filled.filter(pl.col("found") < pl.col("quota")).rows():
        yield (
            f"{split} {'need' if split == BOTH else 'needs'} {quota:,} {_name(cell)}{' ' if cell else ''}works, "
            f"found {count:,}{eligible} eligible."
        )


def _name_remedy(columns: Sequence[str], config: SplitConfig, smaller: SplitConfig | None) -> Generator[str]:
    """Say what lets a draw succeed; ``smaller`` has sizes that fit."""
    sizes = smaller.sizes if smaller else {}
    apart = bool(config.test_fields and smaller)
    names = [f"SplitConfig.n_{name}" for name, n in config.sizes.items() if not apart or sizes[name] < n]
    example = f" (for example {', '.join(f'n_{name}={size}' for name, size in sizes.items() if size)})" if sizes else ""
    cut_offs = [_CUT_OFFS.get(column, "widen the classes of the label") for column in columns]
    lower = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    ways = [f"Lower {lower}{example}", *cut_offs, "read more works"]
    if config.cell_columns:
        ways.append(f"balance without cells: SplitConfig.balance={config.balance.removesuffix(WITHIN)!r}")
    yield f"{', '.join(ways[:-1])}, or {ways[-1]}."
    if "novelty_label" in columns and not config.cell_columns:
        yield _NOVELTY_REMEDY


def _name(cell: Sequence[str]) -> str:
    return " + ".join(repr(label) for label in cell)
