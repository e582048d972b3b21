"""How much do the words of titles say of two labels? ``titles.py SLICES OUT``.

They have no memory of later years. OUT is JSON: ``results/titles.json`` has the accuracy, its interval over papers,
and each answer.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
from at_publication import count_words, judge, read_slice
from slices import run


def main(slices: Path, out: Path) -> None:
    papers = read_slice(pl.read_parquet(slices / "pool.parquet"), slices / "two.parquet")
    words = count_words(papers.own["title"].to_numpy(), papers.sides["train"])
    (row,) = judge({"words of titles": words}, papers, ())
    del row["chances"]
    out.write_text(json.dumps(row | {"said": row["said"].tolist()}) + "\n", "utf-8")


if __name__ == "__main__":
    run(main, __doc__, "slices", "out")
