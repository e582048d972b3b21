"""Does what was learnt on some fields hold on another? Two labels: ``fields.py PAPERS SLICES OUT``.

Each of the five fields is left out once: words, numbers (all columns of ``at_publication.py``) and both learn from the
other four, dev chooses the strength, and the test papers of the field are judged. Over the five fields together there
is an interval of 95 % over papers. A sixth field is the example of the package (OpenAlex, CC0), judged by what learnt
from all five. OUT is JSON: ``results/fields.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from at_publication import ALL, WITH_WORDS, Papers, judge, make_inputs, read_pool, read_slice, say_interval
from slices import LABELS, draw, find_pool, run

import sciscidata as ssd
from sciscidata.indicators import compute_publication_features

WAYS = {"words": "words", ALL: "numbers", WITH_WORDS: "words and numbers"}


def leave_out(papers: Papers, field: str) -> Papers:
    """Return the papers with a field on test, and all others on train and dev."""
    is_field = (papers.own["primary_field"] == field).to_numpy()
    sides = {side: of & (is_field if side == "test" else ~is_field) for side, of in papers.sides.items()}
    return papers._replace(sides=sides)


def judge_ways(papers: Papers) -> dict[str, dict[str, Any]]:
    """Return for each way which label it says of each test paper (``said``), and its ``strength``."""
    made = make_inputs(papers)
    return {WAYS[row["set"]]: row for row in judge({key: made[key] for key in WAYS}, papers, ())}


def draw_example() -> pl.DataFrame:
    """Return works of the example that can be judged: in each five years, equally many papers of both labels."""
    works, citations, _ = ssd.scan_example()
    known = compute_publication_features(works, citations).drop("publication_year", "primary_field").collect()
    last = pl.col("publication_year").max() - 1  # the last year was not over when the works were collected
    own = works.with_columns(primary_field=pl.lit("example"), last_full_year=last).collect()
    pool = find_pool(own, citations).drop("n_references").join(known, on="work_id")
    return draw(pool.with_columns(side=pl.lit("test")), LABELS[:2], 0.0)


def main(papers: Path, slices: Path, out: Path) -> None:
    pool = read_pool(papers, slices)
    two = read_slice(pool, slices / "two.parquet")
    fields = two.own["primary_field"].unique().sort().to_list()
    judged: dict[str, dict[str, dict[str, Any]]] = {way: {} for way in WAYS.values()}
    gold = {}
    for field in fields:
        own = leave_out(two, field)
        gold[field] = two.gold[own.sides["test"]]
        for way, row in judge_ways(own).items():
            judged[way][field] = row
    rows = []
    for way, of in judged.items():
        right = {field: (of[field]["said"] == gold[field]).astype(float) for field in fields}
        row = {"way": way, "accuracy": say_interval(np.concatenate([right[field] for field in fields]))}
        row |= {"fields": {field: round(float(one.mean()), 4) for field, one in right.items()}}
        row |= {"strengths": {field: of[field]["strength"] for field in fields}}
        rows.append(row | {"said": {field: of[field]["said"].tolist() for field in fields}})

    example = draw_example()
    shared = [name for name in two.own.columns if name in example.columns]
    is_learnt = ~two.sides["test"]
    both = pl.concat([two.own.filter(is_learnt).select(shared), example.select(shared)], how="vertical_relaxed")
    sides = {side: np.append(of[is_learnt], np.full(example.height, side == "test")) for side, of in two.sides.items()}
    carried = Papers(both, sides, np.array([LABELS.index(label) for label in both["disruption_label"]]))
    test = carried.gold[sides["test"]]
    sixth = []
    for way, row in judge_ways(carried).items():
        is_right = (row["said"] == test).astype(float)
        sixth.append({"way": way, "accuracy": say_interval(is_right), "said": row["said"].tolist()})
    found = {"papers": {field: gold[field].size for field in fields}, "pooled": rows,
             "example": {"papers": test.size, "test": test.tolist(), "rows": sixth}}  # fmt: skip
    out.write_text(json.dumps(found) + "\n", "utf-8")
    for row in (*rows, *sixth):
        print({key: value for key, value in row.items() if key != "said"})


if __name__ == "__main__":
    run(main, __doc__, "papers", "slices", "out")
