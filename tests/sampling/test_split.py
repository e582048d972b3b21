"""Frozen means frozen: ids and seed decide, not order, threads, engine, versions, or other works."""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import replace
from itertools import product
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.errors import ONE_ROW_EACH, ConfigError, NotEnoughWorksError, SchemaMismatchError, WorkIdError
from sciscidata.label_thresholds import DISRUPTION_LABELS, NOVELTY_LABELS
from sciscidata.sampling.balance import class_quotas, quota_cells
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.split import draw_split, split_keys

WORLD_SIZE = 3000


def make_world(n: int = WORLD_SIZE) -> pl.DataFrame:
    """Ids beyond 2^32 and labels in unequal shares, by arithmetic that no library can change."""
    ids = [(i * 2_654_435_761) % 4_999_999_937 for i in range(1, n + 1)]
    return pl.DataFrame(
        {
            "work_id": ids,
            "disruption_label": [DISRUPTION_LABELS[0 if i % 10 < 2 else 1 if i % 10 < 5 else 2] for i in ids],
            "novelty_label": [NOVELTY_LABELS[i // 10 % 3] for i in ids],
        }
    )


def digest(drawn: pl.DataFrame) -> str:
    rows = drawn.select("split", "work_id", "split_key").rows()
    return hashlib.sha256("\n".join(map(str, rows)).encode()).hexdigest()


def key_of(work_id: int, seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{work_id}".encode()).digest()[:8], "big")


CONFIG = SplitConfig(n_train=500, n_test=50)
PINNED_DRAW = "8848dbd81b2f4afb7db61f533873f532b9629184e7dc25a0f33f1414277adc09"


def test_one_draw_is_pinned() -> None:
    drawn = draw_split(make_world(), CONFIG)
    assert digest(drawn) == PINNED_DRAW


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers())
def test_keys_are_the_first_eight_bytes_of_the_hash(ids: list[int], seed: int) -> None:
    got = split_keys(pl.Series("work_id", ids, dtype=pl.Int64), seed)
    assert got.dtype == pl.UInt64
    assert got.name == "split_key"
    assert got.to_list() == [key_of(work_id, seed) for work_id in ids]


@given(st.integers(0, 10_000), st.lists(st.text(), min_size=1, max_size=9, unique=True))
def test_quotas_add_up_differ_by_one_at_most_and_favour_the_first(n: int, labels: list[str]) -> None:
    quotas = class_quotas(n, labels)
    sizes = list(quotas.values())
    assert list(quotas) == labels
    assert sum(sizes) == n
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


balances = st.sampled_from([("disruption", ["disruption_label"]), ("novelty", ["novelty_label"])])


@settings(max_examples=25)
@given(balances, st.integers(0, 150), st.integers(0, 30), st.integers(0, 2**40))
def test_each_side_and_class_holds_the_lowest_keys_of_its_quota(
    balance: tuple[Any, list[str]], n_train: int, n_test: int, seed: int
) -> None:
    name, columns = balance
    if n_train + n_test == 0:
        return
    config = SplitConfig(n_train=n_train, n_test=n_test, seed=seed, balance=name)
    world = make_world()
    try:
        drawn = draw_split(world, config)
    except NotEnoughWorksError:
        return
    expected: list[tuple[str, int, int]] = []
    for split, size in (("train", n_train), ("test", n_test)):
        chosen: list[tuple[int, int]] = []
        vocabulary = DISRUPTION_LABELS if name == "disruption" else NOVELTY_LABELS
        for label, quota in class_quotas(size, vocabulary).items():
            keyed = sorted((key_of(w, seed), w) for w in world.filter(pl.col(columns[0]) == label)["work_id"])
            chosen += [k for k in keyed if (k[0] % (n_train + n_test) < n_test) == (split == "test")][:quota]
        expected += [(split, work_id, key) for key, work_id in sorted(chosen)]
    assert drawn.select("split", "work_id", "split_key").rows() == expected


def test_joint_balance_fills_nine_cells() -> None:
    drawn = draw_split(make_world(), SplitConfig(n_train=130, n_test=20, balance="joint"))
    cells = quota_cells(["disruption_label", "novelty_label"])
    assert sorted(cells) == sorted(product(DISRUPTION_LABELS, NOVELTY_LABELS))
    for split, size in (("train", 130), ("test", 20)):
        found = drawn.filter(split=split).group_by("disruption_label", "novelty_label").len().rows()
        assert {(d, n): count for d, n, count in found} == class_quotas(size, cells)


@given(st.integers(0, 10_000))
def test_a_joint_draw_is_as_even_as_can_be_in_each_label_too(n: int) -> None:
    quotas = class_quotas(n, quota_cells(["disruption_label", "novelty_label"]))
    assert sum(quotas.values()) == n
    for place, labels in enumerate((DISRUPTION_LABELS, NOVELTY_LABELS)):
        of_label = [sum(quota for cell, quota in quotas.items() if cell[place] == label) for label in labels]
        assert max(of_label) - min(of_label) <= 1


def test_no_balance_is_a_shuffle_cut_in_two() -> None:
    world = make_world()
    drawn = draw_split(world, SplitConfig(n_train=100, n_test=20, seed=3, balance="none"))
    shuffled = sorted(world["work_id"], key=lambda work_id: key_of(work_id, 3))
    assert drawn["work_id"].to_list() == shuffled[:120]
    assert drawn["split"].to_list() == ["train"] * 100 + ["test"] * 20


def test_no_balance_still_leaves_unlabelled_works_out() -> None:
    world = make_world(30).with_columns(
        pl.when(pl.int_range(pl.len()) < 10).then("disruption_label").alias("disruption_label")
    )
    config = SplitConfig(n_train=10, n_test=0, balance="none")
    assert draw_split(world, config)["disruption_label"].null_count() == 0
    with pytest.raises(NotEnoughWorksError, match="train and test need 11 works, found 10 eligible"):
        draw_split(world, SplitConfig(n_train=10, n_test=1, balance="none"))


@settings(max_examples=25)
@given(st.randoms(), st.integers(0, 2**63))
def test_the_order_of_rows_changes_nothing(rng: random.Random, seed: int) -> None:
    world = make_world(900)
    order = list(range(world.height))
    rng.shuffle(order)
    config = SplitConfig(n_train=60, n_test=12, seed=seed)
    assert draw_split(world[order], config).equals(draw_split(world, config))


@settings(max_examples=25)
@given(st.integers(700, 2900), st.sampled_from(["disruption", "novelty", "joint"]))
def test_more_data_never_moves_a_work_across_sides(n: int, balance: Any) -> None:
    config = SplitConfig(n_train=90, n_test=18, balance=balance)
    world = make_world()
    small = draw_split(world.head(n), config)
    large = draw_split(world, config)
    both = small.join(large, on="work_id")
    assert both.height > 0
    assert both["split"].equals(both["split_right"], check_names=False)


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("balance", ["disruption", "novelty", "joint", "pool", "none"])
def test_the_draw_is_equal_on_both_engines(balance: Any, engine: Any) -> None:
    config = SplitConfig(n_train=90, n_test=18, balance=balance)
    world = make_world().with_columns(cd_index=0.5)
    with pl.Config() as polars:
        polars.set_engine_affinity(engine)
        got = draw_split(world.lazy(), config)
    assert got.columns == [*world.columns, "split", "split_key"]
    assert got.equals(draw_split(world, config))


def test_every_class_that_falls_short_is_named_with_a_remedy() -> None:
    world = make_world(900).filter(pl.col("disruption_label") != "neutral")
    with pytest.raises(NotEnoughWorksError) as caught:
        draw_split(world, SplitConfig(n_train=900, n_test=90))
    message = str(caught.value)
    n_test_disruptive = sum(
        1 for work_id, label, _ in world.rows() if label == "disruptive" and key_of(work_id, 0) % 990 < 90
    )
    assert f"test needs 30 'disruptive' works, found {n_test_disruptive} of {world.height} eligible." in message
    assert f"train needs 300 'neutral' works, found 0 of {world.height} eligible." in message
    assert "Lower SplitConfig.n_train and SplitConfig.n_test, move the cut-offs" in message  # no pair fits
    assert "consolidating' works" in message


@pytest.mark.parametrize("balance", ["disruption", "joint", "pool", "none", "novelty_within_field_year"])
@pytest.mark.parametrize("n_dev", [0, 400])
def test_the_sizes_that_an_error_names_can_be_drawn(balance: Any, n_dev: int) -> None:
    world = make_world(2_000).with_columns(primary_field=pl.lit("Art"), publication_year=2000 + pl.col("work_id") % 9)
    world = world.cast({"publication_year": pl.Int32})
    wanted = SplitConfig(n_train=5_000, n_test=500, n_dev=n_dev, balance=balance)
    with pytest.raises(NotEnoughWorksError) as caught:
        draw_split(world, wanted)
    named = re.search(r"\(for example ([^)]*)\)", str(caught.value))
    assert named
    sizes = {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", named[1])}
    assert len(sizes) == 2 + bool(n_dev)
    assert draw_split(world, replace(wanted, **sizes)).height == sum(sizes.values()) > 200


@pytest.mark.parametrize("balance", ["novelty", "joint"])
def test_without_a_novelty_label_novelty_cannot_be_balanced(balance: Any) -> None:
    config = SplitConfig(n_train=9, n_test=3, balance=balance)
    with pytest.raises(SchemaMismatchError, match="lacks column 'novelty_label'"):
        draw_split(make_world().drop("novelty_label"), config)
    empty = make_world().with_columns(novelty_label=pl.lit(None, dtype=pl.String))
    with pytest.raises(NotEnoughWorksError, match=r"no eligible work has a novelty label.*SplitConfig\.balance="):
        draw_split(empty, config)


def test_works_without_a_novelty_label_are_drawn_only_where_novelty_is_not_balanced() -> None:
    world = make_world().with_columns(
        pl.when(pl.int_range(pl.len()) % 2 == 0).then("novelty_label").alias("novelty_label")
    )
    by_novelty = draw_split(world, SplitConfig(n_train=90, n_test=18, balance="novelty"))
    assert by_novelty["novelty_label"].null_count() == 0
    by_disruption = draw_split(world, SplitConfig(n_train=90, n_test=18))
    assert 0 < by_disruption["novelty_label"].null_count() < 108


def test_a_remedy_does_not_claim_what_a_draw_cannot_know() -> None:
    """A draw sees labels: neither by which rule they were made, nor under which null model."""
    rare = make_world().filter(pl.col("novelty_label") != "novel")
    with pytest.raises(NotEnoughWorksError, match="If novelty is labelled by the margin rule, most works"):
        draw_split(rare, SplitConfig(n_train=90, n_test=9, balance="novelty"))
    empty = make_world().with_columns(novelty_label=pl.lit(None, dtype=pl.String))
    with pytest.raises(NotEnoughWorksError, match="If the null model is that of a background, it has to hold"):
        draw_split(empty, SplitConfig(n_train=90, n_test=9, balance="novelty"))


def test_a_work_that_appears_twice_is_refused() -> None:
    world = make_world(600)
    with pytest.raises(WorkIdError, match="2 works appear more than once"):
        draw_split(pl.concat([world, world.head(2)]), CONFIG)
    without_id = world.with_columns(pl.when(pl.int_range(pl.len()) > 0).then("work_id").alias("work_id"))
    with pytest.raises(WorkIdError, match="no work_id"):
        draw_split(without_id, CONFIG)


def test_columns_of_the_input_pass_through_whatever_their_names() -> None:
    world = make_world(900).with_columns(rank=pl.col("work_id") * 2, quota=pl.lit(-1), found=pl.lit("x"))
    again = world.with_columns(split=pl.lit("before"), split_key=pl.lit(0, dtype=pl.UInt64))
    config = SplitConfig(n_train=60, n_test=12)
    drawn = draw_split(again, config)
    assert (drawn["rank"] == drawn["work_id"] * 2).all()
    assert drawn.select("work_id", "split", "split_key").equals(
        draw_split(world, config).select("work_id", "split", "split_key")
    )


def test_a_label_that_is_no_label_is_refused() -> None:
    world = make_world(600).with_columns(pl.col("disruption_label").str.to_titlecase())
    with pytest.raises(SchemaMismatchError, match="holds 'Consolidating'"):
        draw_split(world, CONFIG)


@pytest.mark.parametrize("kind", [pl.DataFrame, pl.LazyFrame])
def test_a_missing_label_column_is_named_before_anything_runs(kind: Any) -> None:
    with pytest.raises(SchemaMismatchError, match="disruption_label"):
        draw_split(kind({"work_id": [1]}))


def test_two_empty_splits_are_refused() -> None:
    with pytest.raises(ConfigError, match="both 0"):
        SplitConfig(n_train=0, n_test=0)


def test_the_remedy_for_works_that_appear_twice_keeps_the_same_rows_whatever_their_order():
    rows = {
        "work_id": [7, 7, 8, 7],
        "disruption_label": ["neutral", None, "neutral", "disruptive"],
        "extra": [[2], [1], [3], []],
    }
    works = pl.DataFrame(rows)
    with pytest.raises(WorkIdError) as caught:
        draw_split(works, SplitConfig(n_train=1, n_test=0, balance="none"))
    assert ONE_ROW_EACH in str(caught.value)
    orders = [works, works.reverse(), works.sample(fraction=1, shuffle=True, seed=3)]
    kept = [eval(f"works{ONE_ROW_EACH}", {"works": frame, "pl": pl}) for frame in orders]
    assert all(frame.equals(kept[0]) for frame in kept)
    assert kept[0]["work_id"].to_list() == [7, 8]
    for frame in orders:
        assert eval(f"works{ONE_ROW_EACH}", {"works": frame.lazy(), "pl": pl}).collect().equals(kept[0])
