"""A development split changes no other split, and no data move a work between it and them; a pool is split blindly."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.eligibility import EligibilityConfig
from sciscidata.errors import NotEnoughWorksError
from sciscidata.label_thresholds import DISRUPTION_LABELS, VOCABULARIES
from sciscidata.sampling.balance import BALANCED, class_quotas, quota_cells
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.split import draw_split
from sciscidata.schemas import WORKS
from sciscidata.sources.kinds import STRUCTURE
from tests.sampling.drawing import demand_of, draw_late
from tests.sampling.test_split import key_of, make_world

BALANCES = st.sampled_from([cast("Any", balance) for balance in BALANCED])
SIZES = st.fixed_dictionaries({"n_train": st.integers(0, 90), "n_test": st.integers(1, 30), "seed": st.integers(0, 9)})


def others(drawn: pl.DataFrame) -> pl.DataFrame:
    return drawn.filter(pl.col("split") != "dev")


@settings(max_examples=40)
@given(BALANCES, SIZES, st.integers(1, 60), st.integers(200, 2_000))
def test_train_and_test_are_those_of_a_draw_without_dev(
    balance: Any, sizes: dict[str, int], n_dev: int, n_works: int
) -> None:
    world = make_world(n_works)
    try:
        drawn = draw_split(world, SplitConfig(**sizes, balance=balance, n_dev=n_dev))
    except NotEnoughWorksError:
        return
    assert others(drawn).equals(draw_split(world, SplitConfig(**sizes, balance=balance)))
    dev = drawn.filter(split="dev")
    columns = BALANCED[balance]
    found = {tuple(cell): n for *cell, n in dev.group_by(*columns).len().rows()} if columns else {(): dev.height}
    assert found == {cell: n for cell, n in class_quotas(n_dev, quota_cells(columns)).items() if n}
    total = sum(sizes[name] for name in ("n_train", "n_test"))
    assert dev["split_key"].min() >= 2**64 * total // (total + n_dev) > (others(drawn)["split_key"].max() or 0)
    assert dev["split_key"].is_sorted()
    assert drawn["work_id"].is_unique().all()


@settings(max_examples=40)
@given(BALANCES, SIZES, st.integers(1, 40), st.integers(400, 1_500))
def test_more_data_move_no_work_into_dev_or_out_of_it(
    balance: Any, sizes: dict[str, int], n_dev: int, n_works: int
) -> None:
    config = SplitConfig(**sizes, balance=balance, n_dev=n_dev)
    try:
        small, large = (draw_split(make_world(n), config) for n in (n_works, 3_000))
    except NotEnoughWorksError:
        return
    both = small.join(large, on="work_id")
    is_dev = [both[name] == "dev" for name in ("split", "split_right")]
    assert is_dev[0].equals(is_dev[1], check_names=False)


@pytest.mark.parametrize("balance", BALANCED)
def test_a_larger_dev_split_holds_the_smaller_one(balance: Any) -> None:
    devs = [
        draw_split(make_world(), SplitConfig(n_train=90, n_test=18, balance=balance, n_dev=n)).filter(split="dev")
        for n in (9, 50)
    ]
    assert set(devs[0]["work_id"]) < set(devs[1]["work_id"])


def test_dev_works_by_hand() -> None:
    world = make_world(900)
    drawn = draw_split(world, SplitConfig(n_train=60, n_test=15, n_dev=25))
    expected: list[int] = []
    for label, quota in class_quotas(25, DISRUPTION_LABELS).items():
        works = world.filter(disruption_label=label)["work_id"]
        expected += sorted(works, key=lambda work_id: -key_of(work_id, 0))[:quota]
    assert sorted(drawn.filter(split="dev")["work_id"]) == sorted(expected)


def test_a_dev_split_that_would_take_works_of_train_is_refused() -> None:
    config = {"n_train": 450, "n_test": 45}
    assert draw_split(make_world(900), SplitConfig(n_train=450, n_test=45)).height == 495
    with pytest.raises(NotEnoughWorksError, match=r"n_test and SplitConfig\.n_dev \(for example") as caught:
        draw_split(make_world(900), SplitConfig(**config, n_dev=300))
    assert "train needs 150 'disruptive' works" in str(caught.value)
    with pytest.raises(NotEnoughWorksError, match=r"dev needs 40 works, found 3 of 50 eligible"):
        draw_split(make_world(50).head(50), SplitConfig(n_train=450, n_test=0, n_dev=40, balance="none"))


def test_a_pool_is_balanced_in_all_and_divided_without_regard_to_class() -> None:
    world = make_world(3_000)  # a fifth disruptive, three tenths consolidating, half neutral
    drawn = draw_split(world, SplitConfig(n_train=900, n_test=100, balance="pool"))
    assert Counter(drawn["disruption_label"]) == class_quotas(1_000, DISRUPTION_LABELS)
    found = Counter(drawn.filter(split="test")["disruption_label"])
    assert sum(found.values()) == 100
    assert max(found.values()) != min(found.values())  # as a blind draw has it
    assert all(20 <= n <= 47 for n in found.values())  # three standard deviations; by key alone, 0 neutral works
    stratified = draw_split(world, SplitConfig(n_train=900, n_test=100))
    assert not stratified["work_id"].equals(drawn["work_id"])


@pytest.mark.parametrize("balance", BALANCED)
@pytest.mark.parametrize("named", [True, False])
def test_with_late_texts_dev_changes_no_other_split_either(balance: Any, *, named: bool) -> None:
    world = make_world(2_500)
    work = {"publication_year": 2001, "n_references": 9, "n_citers": 3, "cd_index": 0.5, "is_retracted": False}
    structure = world.with_columns(**{name: pl.lit(value) for name, value in work.items()})
    absent = [pl.lit(None).alias(name) for name in STRUCTURE if name not in structure.columns]
    structure = structure.with_columns(absent).select(STRUCTURE.names()).cast(dict(STRUCTURE))
    # Every title is that of several works, and a third have no abstract.
    texts = [
        {"work_id": i, "title": f"On {i % 1_999}", "abstract": "We ask." if i % 3 else None} for i in world["work_id"]
    ]
    works = pl.DataFrame(texts, schema=WORKS)
    names = works.lazy().select("work_id", "title", "doi") if named else None

    def draw(n_dev: int) -> pl.DataFrame:
        split = SplitConfig(n_train=60, n_test=12, balance=balance, n_dev=n_dev)
        demand = demand_of(split, EligibilityConfig(last_year=2024))
        late = draw_late(structure, lambda ids: works.filter(pl.col("work_id").is_in(ids.implode())), demand, names)
        assert late.works.collect().height == 72 + n_dev
        return late.drawn.select("work_id", "split", "split_key", *VOCABULARIES)

    with_dev = draw(18)
    assert others(with_dev).equals(draw(0))
    titles = with_dev.join(works, on="work_id")["title"]
    assert titles.is_unique().all()
    if named:  # as if everything had been filtered first
        passing = works.filter(pl.col("abstract").is_not_null()).sort("work_id").unique("title", keep="first")
        labelled = structure.join(passing, on="work_id", how="semi").select("work_id", *VOCABULARIES)
        early = draw_split(labelled, SplitConfig(n_train=60, n_test=12, balance=balance, n_dev=18))
        assert early.select("work_id", "split").equals(with_dev.select("work_id", "split"))
