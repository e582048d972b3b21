"""Classes balanced within cells of field and five years: field and year say nothing about the label."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata import (
    BuildConfig,
    EligibilityConfig,
    LabelThresholds,
    OpenAlexConfig,
    SplitConfig,
    SyntheticConfig,
    build,
    scan_synthetic,
)
from sciscidata.cli.dry_run import describe_plan
from sciscidata.errors import ConfigError, NotEnoughWorksError, VerificationError
from sciscidata.label_thresholds import DISRUPTION_LABELS
from sciscidata.release.release import Target, write_release
from sciscidata.release.verify import verify_release
from sciscidata.sampling.split import draw_split
from sciscidata.schemas import WORKS, Corpus
from sciscidata.sources.kinds import STRUCTURE
from tests.sampling.drawing import demand_of, draw_late
from tests.sampling.test_split import key_of

WITHIN = "disruption_within_field_year"


def make_world(n: int, seed: int = 0) -> pl.DataFrame:
    """Works whose label depends on field and year, some of them without a field."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for work_id in draw.sample(range(10**10), n):
        field, year = draw.choice(["Art", "Law", "Physics", None]), draw.randrange(1990, 2004)
        weights = [1 + (field == "Art"), 2 + (year > 1996), 1]
        label = draw.choices(DISRUPTION_LABELS, weights)[0]
        rows.append({"work_id": work_id, "primary_field": field, "publication_year": year, "disruption_label": label})
    return pl.DataFrame(rows, schema_overrides={"publication_year": pl.Int32})


def count_cells(works: pl.DataFrame) -> dict[tuple[str | None, int], Counter[str]]:
    found: dict[tuple[str | None, int], Counter[str]] = defaultdict(Counter)
    for field, year, label in works.select("primary_field", "publication_year", "disruption_label").rows():
        found[field, year // 5][label] += 1
    return found


def expect(works: pl.DataFrame, n: int) -> list[int] | None:
    """Draw n works of one split, in plain Python; None where they do not fit."""
    columns = ("primary_field", "publication_year", "work_id", "disruption_label")
    cells: dict[tuple[str, int], dict[str, list[int]]] = defaultdict(lambda: {name: [] for name in DISRUPTION_LABELS})
    for field, year, work_id, label in works.select(columns).rows():
        cells[field or "", year // 5 * 5][label].append(work_id)
    for classes in cells.values():
        for ids in classes.values():
            ids.sort(key=lambda work_id: key_of(work_id, 0))
    room = {cell: min(map(len, classes.values())) for cell, classes in cells.items()}
    each, rest = n // 3, n % 3
    if sum(room.values()) < each:
        return None
    exact = {cell: Fraction(each * n_there, max(sum(room.values()), 1)) for cell, n_there in room.items()}
    quotas = {cell: int(share) for cell, share in exact.items()}
    by_rest = sorted(cells, key=lambda cell: (quotas[cell] - exact[cell], cell))
    for cell in by_rest[: each - sum(quotas.values())]:
        quotas[cell] += 1
    drawn = [ids[:quota] for cell, quota in quotas.items() for ids in cells[cell].values()]
    if rest:
        first = DISRUPTION_LABELS[:rest]
        roomy = [cell for cell in cells if all(len(cells[cell][label]) > quotas[cell] for label in first)]
        if not roomy:
            return None
        cell = min(roomy, key=lambda cell: (-room[cell], cell))
        drawn += [[cells[cell][label][quotas[cell]]] for label in first]
    return sorted(work_id for ids in drawn for work_id in ids)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.integers(0, 90), st.integers(1, 40), st.integers(0, 10**6))
def test_cells_get_the_shares_that_plain_python_gives_them_whatever_the_order_of_rows(
    n: int, n_train: int, n_test: int, seed: int
) -> None:
    world = make_world(n, seed)
    is_test = [key_of(work_id, 0) % (n_train + n_test) < n_test for work_id in world["work_id"]]
    sides = {"train": world.filter(~pl.Series(is_test, dtype=pl.Boolean)), "test": world.filter(is_test)}
    expected = {side: expect(works, size) for (side, works), size in zip(sides.items(), (n_train, n_test), strict=True)}
    config = SplitConfig(n_train=n_train, n_test=n_test, balance=WITHIN)
    if world["primary_field"].count() == 0 or None in expected.values():
        with pytest.raises(NotEnoughWorksError, match=r"(?s)field.*SplitConfig\.balance='disruption'"):
            draw_split(world, config)
        return
    drawn = draw_split(world, config)
    for side, size in {"train": n_train, "test": n_test}.items():
        there = drawn.filter(split=side)
        assert sorted(there["work_id"]) == expected[side]
        uneven = [counts for counts in count_cells(there).values() if len({counts[x] for x in DISRUPTION_LABELS}) > 1]
        assert len(uneven) == bool(size % 3)
    assert drawn.equals(draw_split(world.sample(fraction=1, shuffle=True, seed=seed), config))


def test_an_error_says_how_many_works_fit() -> None:
    world = make_world(300)
    room = sum(3 * min(counts[label] for label in DISRUPTION_LABELS) for counts in count_cells(world).values())
    message = f"train needs 300 works, found {room} of 300 eligible: each of {len(count_cells(world))} cells"
    with pytest.raises(NotEnoughWorksError, match=message):
        draw_split(world, SplitConfig(n_train=300, n_test=0, balance=WITHIN))
    assert draw_split(world, SplitConfig(n_train=room, n_test=0, balance=WITHIN)).height == room


@pytest.mark.parametrize("n_without", [0, 3])
@pytest.mark.parametrize("n_dev", [0, 20])
def test_with_late_texts_cells_stay_balanced_where_texts_rule_works_out(
    n_dev: int, n_without: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(3_000)
    facts = {"n_references": 9, "n_citers": 3, "cd_index": 0.5, "is_retracted": False}
    absent = {name: dtype for name, dtype in STRUCTURE.items() if name not in {*world.columns, *facts}}
    structure = world.with_columns(
        *(pl.lit(value).alias(name) for name, value in facts.items()),
        *(pl.lit(None, dtype).alias(name) for name, dtype in absent.items()),
    ).cast(STRUCTURE)
    # Of one field the texts of most works are missing, so its cells cannot fill the shares that they would have.
    is_missing = pl.col("primary_field").eq_missing("Law") & (pl.col("work_id") % 4 < n_without)
    works = world.select(
        "work_id",
        "primary_field",
        title=pl.format("On {}", "work_id"),
        abstract=pl.when(~is_missing).then(pl.lit("We ask.")),
    )
    absent = {name: dtype for name, dtype in WORKS.items() if name not in works.columns}
    works = works.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in absent.items()).select(*WORKS)
    split = SplitConfig(n_train=300, n_test=91, n_dev=n_dev, balance=WITHIN)
    wanted = EligibilityConfig(last_year=2024)

    def read(ids: pl.Series) -> pl.DataFrame:
        return works.filter(pl.col("work_id").is_in(ids.implode()))

    late = draw_late(structure, read, demand_of(split, wanted))
    drawn = late.drawn.select("work_id", "split")
    joined = drawn.join(world, on="work_id")
    for side, size in split.sizes.items():
        assert sum(map(Counter.total, count_cells(joined.filter(split=side)).values())) == size
        uneven = [
            set(map(counts.__getitem__, DISRUPTION_LABELS))
            for counts in count_cells(joined.filter(split=side)).values()
        ]
        assert sum(len(counts) > 1 for counts in uneven) == bool(size % 3)
    assert late.counts["filters"]["no_abstract"] > 0 or not n_without
    if not n_without:
        assert draw_split(world, split).select("work_id", "split").equals(drawn)
    # Larger readings leave no trace.
    monkeypatch.setattr("sciscidata.sampling.late_texts._SPARE", 900)
    again = draw_late(structure, read, demand_of(split, wanted))
    assert again.drawn.select("work_id", "split").equals(drawn)
    with pytest.raises(NotEnoughWorksError, match="train needs 3,000 works"):
        draw_late(structure, read, demand_of(SplitConfig(n_train=3_000, balance=WITHIN), wanted))


def test_a_build_is_verified_says_so_in_the_card_and_a_moved_field_is_found(tmp_path: Path) -> None:
    synthetic, citations, _ = scan_synthetic(SyntheticConfig(n_works=4_000))
    fields = pl.when(pl.col("work_id") % 3 > 0).then(pl.lit("Law")).otherwise(pl.lit("Art"))
    works = synthetic.with_columns(primary_field=fields)
    split = SplitConfig(n_train=60, n_test=9, balance=WITHIN)
    places: dict[str, Any] = {"cache_dir": tmp_path / "cache", "out": tmp_path / "slice"}
    release = build(BuildConfig(source=Corpus(works, citations, {}), split=split, novelty=None, **places))
    verify_release(release.folder)
    for frame in (release.train, release.test):
        assert all(len({*counts.values()}) == 1 for counts in count_cells(frame).values())
    assert "In each cell of field and five years the classes are equal" in (release.folder / "README.md").read_text()
    plan = describe_plan(BuildConfig(source=SyntheticConfig(n_works=4_000), split=split, **places))
    assert any(line.startswith("within field and years: ") for line in plan)

    ids = pl.col("openalex_id").str.slice(1).cast(pl.Int64).alias("work_id")
    drawn = draw_split(pl.concat([release.train, release.test]).with_columns(ids), split)
    moved = works.with_columns(
        primary_field=pl.when(pl.col("work_id") == drawn["work_id"][0]).then(pl.lit("Physics")).otherwise(fields)
    )
    stated = {"split": asdict(split), "thresholds": asdict(LabelThresholds())}
    write_release(drawn, moved, stated, Target(tmp_path / "moved", scores_file=False))
    with pytest.raises(VerificationError, match="train: the classes of 2 cells of field and five years are not equal"):
        verify_release(tmp_path / "moved")


def test_cells_are_refused_where_they_cannot_be_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs all works of a field.*set SplitConfig\.balance='disruption'"):
        BuildConfig(source=OpenAlexConfig(), out=tmp_path, split=SplitConfig(balance=WITHIN))
    without = make_world(300).with_columns(primary_field=pl.lit(None, pl.String))
    with pytest.raises(NotEnoughWorksError, match="no eligible work has a primary_field"):
        draw_split(without, SplitConfig(n_train=9, n_test=3, balance=WITHIN))
