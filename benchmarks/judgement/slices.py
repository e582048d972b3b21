"""Draw the slices of the ladder from tables of works and citations: ``slices.py PAPERS OUT``.

PAPERS holds works.parquet (work_id, publication_year, title, abstract, primary_field, last_full_year) and
citations.parquet. A paper counts if it has a title, an abstract, a reference, a citer, and a whole window of five
years. Papers with the same title lie on the same side: 70 of 100 titles are for training, 10 for dev, 20 for test,
in every slice alike. A slice holds equally many papers of each label in each cell of field and five years.

``second`` is a second test for what was chosen on the first one: its papers were all for training.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from pathlib import Path

import polars as pl

import sciscidata as ssd

WINDOW = 5
SURE = 0.6
LABELS = ("disruptive", "consolidating", "neutral")
#: The labels of each slice, and the least confidence in a label.
SLICES = {
    "three": (LABELS, 0.0),
    "two": (LABELS[:2], 0.0),
    "two_sure": (LABELS[:2], SURE),
}
#: The sides of ``second`` by the last digit of a title's key. Its labels are those of ``two``.
SECOND = {2: "dev", **dict.fromkeys(range(3, 8), "train"), 8: "test", 9: "test"}


def read_pool(papers: Path) -> pl.DataFrame:
    return find_pool(pl.read_parquet(papers / "works.parquet"), pl.scan_parquet(papers / "citations.parquet"))


def find_pool(works: pl.DataFrame, citations: pl.LazyFrame) -> pl.DataFrame:
    """Return one row for each paper that counts, with its scores, label, confidence, and side."""
    scores = ssd.compute_cd_index(works.select("work_id", "publication_year"), citations)
    labelled = ssd.compute_label_confidence(ssd.compute_labels(scores))
    n_citers = (pl.col("n_i") + pl.col("n_j")).alias("n_citers")
    references = citations.group_by(work_id="citing_id").agg(n_references=pl.len())
    cited = citations.group_by(work_id="cited_id").agg(cited_by_count=pl.len())
    pool = (
        works.lazy()
        .join(labelled.with_columns(n_citers), on="work_id")
        .join(references, on="work_id")
        .join(cited, on="work_id")
        .filter(
            pl.col("title").is_not_null() & pl.col("abstract").is_not_null() & pl.col("disruption_label").is_not_null(),
            pl.col("n_citers") > 0,
            pl.col("publication_year") + WINDOW <= pl.col("last_full_year"),
        )
        .collect()
    )
    plain = pl.col("title").str.to_lowercase().str.replace_all(r"[^\p{L}\p{N}]+", " ").str.strip_chars()
    keys = pool.select(plain.alias("plain")).with_columns(
        key=pl.col("plain").map_elements(lambda title: hash_key(title), return_dtype=pl.UInt64)
    )
    side = pl.when(pl.col("key") % 10 < 2).then(pl.lit("test")).when(pl.col("key") % 10 == 2).then(pl.lit("dev"))
    return (
        pool.with_columns(key=keys["key"])
        .with_columns(side=side.otherwise(pl.lit("train")), years=pl.col("publication_year") // 5 * 5)
        .unique("key", keep="none")  # several works of one title cannot be told apart
        .sort("key")
        .with_row_index("row")
    )


def hash_key(title: str) -> int:
    return int.from_bytes(hashlib.sha256(f"0:{title}".encode()).digest()[:8], "big")


def draw(pool: pl.DataFrame, labels: tuple[str, ...], least: float) -> pl.DataFrame:
    """Keep, in each cell of side, field and five years, equally many papers of each label: those of the lowest keys."""
    cell = ["side", "primary_field", "years"]
    fit = pool.filter(pl.col("disruption_label").is_in(labels), pl.col("label_confidence") >= least)
    counts = (
        fit.group_by(*cell, "disruption_label")
        .len()
        .group_by(cell)
        .agg(n_each=pl.when(pl.len() == len(labels)).then(pl.col("len").min()).otherwise(0))
    )
    rank = pl.col("key").rank("ordinal").over(*cell, "disruption_label")
    return fit.join(counts, on=cell).filter(rank <= pl.col("n_each")).sort("key").drop("n_each")


def draw_second(pool: pl.DataFrame) -> pl.DataFrame:
    """Draw the second test, with its own train and dev, from papers that the first test left for training."""
    side = (pl.col("key") % 10).replace_strict(SECOND, default=None, return_dtype=pl.String)
    labels, least = SLICES["two"]
    return draw(pool.with_columns(side=side).drop_nulls("side"), labels, least)


def main(papers: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    pool = read_pool(papers)
    pool.write_parquet(out / "pool.parquet")
    print(f"{pool.height:,} papers;", dict(pool["disruption_label"].value_counts().sort("disruption_label").rows()))
    slices = {name: draw(pool, labels, least) for name, (labels, least) in SLICES.items()}
    for name, drawn in (slices | {"second": draw_second(pool)}).items():
        drawn.select("row", "side").write_parquet(out / f"{name}.parquet")
        print(name, dict(drawn["side"].value_counts().rows()), dict(drawn["primary_field"].value_counts().rows()))


def run(main: Callable[..., None], text: str | None, *names: str) -> None:
    """Call the main function of a script with the paths on its command line."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in names:
        parser.add_argument(name, type=Path)
    main(**vars(parser.parse_args()))


if __name__ == "__main__":
    run(main, __doc__, "papers", "out")
