"""The programs behind the judgement run on a made world, and a second program that shares no code finds the same."""

from __future__ import annotations

import gzip
import importlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.conftest import REPOSITORY

_FOLDER = REPOSITORY / "benchmarks" / "judgement"
_FIELDS = ("history", "physics")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import a program of the folder by name; its modules are beside it."""
    monkeypatch.syspath_prepend(str(_FOLDER))
    yield importlib.import_module
    for file in _FOLDER.glob("*.py"):
        sys.modules.pop(file.stem, None)


def write_world(folder: Path, n_works: int = 4_000) -> None:
    """Write works and citations as ``slices.py`` wants them. Authors prefer what others cite, some of them with it."""
    draw = random.Random(0)
    words = [f"word{number}" for number in range(120)]
    years = sorted(draw.randint(1990, 2016) for _ in range(n_works))
    works = [
        {
            "work_id": 10_000 + number,
            "publication_year": year,
            "title": f"{' '.join(draw.sample(words, 5))} {number}",
            "abstract": " ".join(draw.choices(words, k=25)),
            "primary_field": draw.choice(_FIELDS),
            "last_full_year": 2016,
        }
        for number, year in enumerate(years)
    ]
    pairs = set[tuple[int, int]]()
    refs: list[list[int]] = []
    for number in range(n_works):
        own = {draw.randrange(max(0, number - 600), number) for _ in range(draw.randint(1, 4)) if number}
        own |= {other for one in [*own] for other in refs[one] if draw.random() < 0.3}
        refs.append(sorted(own))
        pairs |= {(10_000 + number, 10_000 + one) for one in own}
    schema = {"publication_year": pl.Int32, "last_full_year": pl.Int32}
    pl.DataFrame(works, schema_overrides=schema).write_parquet(folder / "works.parquet")
    pl.DataFrame(sorted(pairs), schema=["citing_id", "cited_id"], orient="row").write_parquet(
        folder / "citations.parquet"
    )


def keep_answers(program: Callable[[str], ModuleType], slices: Path, results: Path) -> None:
    """Keep labels, and answers of models that know a little, as ``show.py keep`` does."""
    pool, draw = pl.read_parquet(slices / "pool.parquet"), np.random.default_rng(0)
    labels, golds, lines = program("slices").LABELS, {}, []
    for name, (own, _) in program("slices").SLICES.items():
        drawn = pl.read_parquet(slices / f"{name}.parquet")
        test = pool[drawn.filter(side="test")["row"].sort()]
        gold = np.array([labels.index(label) for label in test["disruption_label"]])
        sizes = {side: drawn.filter(side=side).height for side in ("train", "dev", "test")}
        golds[name] = {"papers": sizes, "test": gold.tolist(), "field": test["primary_field"].to_list()}
        jobs = [(f"{program('stack').MODELS[name]}_{seed}", np.full(gold.size, True)) for seed in range(3)]
        if name == "two":
            fields = test["primary_field"].to_numpy()
            names = (
                f"{way}_without_{field}{end}" for field in _FIELDS for way, end in (("sft", "_0"), ("minilm_two", ""))
            )
            jobs += [(job, fields == next(one for one in _FIELDS if one in job)) for job in names]
        for job, there in jobs:
            odds = draw.normal(size=(gold[there].size, 3)) + 0.5 * np.eye(3)[gold[there]]
            odds[:, len(own) :] = -9
            chances = np.exp(odds) / np.exp(odds).sum(1, keepdims=True)
            judged = {"side": "test", "said": chances.argmax(1).tolist(), "chances": chances.round(4).tolist()}
            lines.append({"job": {"name": job, "way": "sft", "contract": "two_keys"}, "judged": [judged]})
    (results / "slices.json").write_text(json.dumps(golds))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (results / "ladder.jsonl.gz").write_bytes(gzip.compress(text.encode()))


def test_two_programs_find_the_same_rows_in_a_made_world(
    program: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    papers, slices, results = (tmp_path / name for name in ("papers", "slices", "results"))
    for folder in (papers, results):
        folder.mkdir()
    write_world(papers)
    program("slices").main(papers, slices)
    keep_answers(program, slices, results)
    pool = pl.read_parquet(slices / "pool.parquet")
    draw, titles = np.random.default_rng(0), program("context").read_references(papers, pool)["title"].n_unique()
    np.save(slices / "minilm.npy", draw.normal(size=(pool.height, 8)))  # in place of embeddings, which take a model
    drawn = pl.concat([pl.read_parquet(slices / f"{name}.parquet")["row"] for name in program("slices").SLICES])
    needed = pool.filter(pl.col("row").is_in(drawn.unique().implode()))
    titles = program("context").read_references(papers, needed)["title"].n_unique()
    np.save(slices / "minilm_titles.npy", draw.normal(size=(titles, 8)))

    monkeypatch.setattr(program("stack"), "KEPT", results / "ladder.jsonl.gz")
    for name in ("at_publication", "second", "context", "fields", "stack"):
        program(name).main(papers, slices, results / f"{name}.json")

    again = program("recompute_rows")
    monkeypatch.setattr(again, "RESULTS", results)
    # A test split of this world has about 100 papers, so a paper is 0.01, and an interval's ends are less sure.
    monkeypatch.setattr(again, "REFIT", 0.031)
    monkeypatch.setattr(again, "ENDS", 0.03)
    page = tmp_path / "page.md"
    page.write_text("No table.\n")
    with pytest.raises(SystemExit) as ended:
        again.main(papers, slices, tmp_path / "rows.tsv", page)
    lines = (tmp_path / "rows.tsv").read_text().splitlines()
    assert not [line for line in lines if line.endswith("DIFFERS")]
    assert ended.value.code == 0
    assert len(lines) > 200

    second = json.loads((results / "second.json").read_text())
    second["rows"][3]["accuracy"][0] += 0.1
    (results / "second.json").write_text(json.dumps(second))
    with pytest.raises(SystemExit) as ended:
        again.main(papers, slices, tmp_path / "rows.tsv", page)
    assert ended.value.code == 1


def test_the_second_test_has_no_paper_of_the_first(program: Callable[[str], ModuleType], tmp_path: Path):
    write_world(tmp_path)
    program("slices").main(tmp_path, tmp_path / "slices")
    drawn = {name: pl.read_parquet(tmp_path / f"slices/{name}.parquet") for name in ("three", "two", "second")}
    first = pl.concat([drawn["three"], drawn["two"]]).filter(side="test")["row"]
    assert first.len() > 100
    assert not drawn["second"].filter(pl.col("row").is_in(first.implode())).height
    pool = pl.read_parquet(tmp_path / "slices/pool.parquet")
    counts = drawn["second"].join(pool.drop("side"), on="row").group_by("side", "disruption_label").len()
    assert counts.group_by("side").agg(pl.col("len").n_unique())["len"].to_list() == [1, 1, 1]


def test_the_slices_of_the_kept_results_come_out_again(
    program: Callable[[str], ModuleType], shared_data: Path, tmp_path: Path
):
    program("slices").main(shared_data / "papers", tmp_path)
    kept: dict[str, Any] = json.loads((_FOLDER / "results/slices.json").read_text("utf-8"))
    kept["second"] = json.loads((_FOLDER / "results/second.json").read_text("utf-8"))
    pool = pl.read_parquet(tmp_path / "pool.parquet")
    for name, of in kept.items():
        drawn = pl.read_parquet(tmp_path / f"{name}.parquet").sort("row")
        test = pool[drawn.filter(side="test")["row"]]
        assert [program("slices").LABELS.index(label) for label in test["disruption_label"]] == of["test"]
        assert test["primary_field"].to_list() == of["field"]
        if name != "two_sure":  # label confidence has changed since; its test papers have not
            assert {side: drawn.filter(side=side).height for side in ("train", "dev", "test")} == of["papers"]
