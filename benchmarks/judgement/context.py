"""What does it help to see what a paper built on, without a language model? ``context.py PAPERS SLICES OUT``.

Each row sees some of: words (TF-IDF of title and abstract), titles (TF-IDF of the titles of references), MiniLM (the
embedding of title and abstract), MiniLM of titles (the mean over titles of references), and numbers (all columns of
``at_publication.py``). References are works of the corpus, newest first, 50 at most: those of ``build --context``.
A logistic regression, a strength that dev chooses, intervals of 95 % over papers. OUT is ``results/context.json``.
Needs what ``baselines.py`` needs, and takes its MiniLM vectors from SLICES if they are there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from at_publication import ALL, Papers, count_words, judge, list_kept, make_inputs, read_pool, read_slice, write_rows
from baselines import embed_slices, embed_titles
from scipy.sparse import csr_matrix, hstack
from slices import SLICES, run

MOST = 50
#: The parts that each row sees, beside those of its first words.
ROWS = {
    "words": ("words",),
    "words and titles of references": ("words", "titles"),
    "numbers": ("numbers",),
    "words and numbers": ("words", "numbers"),
    "words, titles of references, numbers": ("words", "titles", "numbers"),
    "MiniLM": ("MiniLM",),
    "MiniLM of text and titles of references": ("MiniLM", "MiniLM of titles"),
    "MiniLM and numbers": ("MiniLM", "numbers"),
    "MiniLM of text and titles of references, numbers": ("MiniLM", "MiniLM of titles", "numbers"),
}


def read_references(papers: Path, own: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each reference of these papers that is a work of the corpus, in order of papers and references.

    Newest first, then by id. A year after that of the paper was not known then: such references come last.
    """
    works = pl.read_parquet(papers / "works.parquet", columns=["work_id", "publication_year", "title"])
    cited = works.select(cited_id="work_id", cited_year="publication_year", title="title").drop_nulls("title")
    year = pl.when(pl.col("cited_year") <= pl.col("publication_year")).then("cited_year")
    return (
        own.lazy()
        .select("row", "publication_year", citing_id="work_id")
        .join(pl.scan_parquet(papers / "citations.parquet"), on="citing_id")
        .join(cited.lazy(), on="cited_id")
        .with_columns(cited_year=year)
        .sort("row", "cited_year", "cited_id", descending=[False, True, False], nulls_last=True)
        .group_by("row", maintain_order=True)
        .head(MOST)
        .sort("row", maintain_order=True)
        .collect()
    )


def average(papers: Papers, references: pl.DataFrame, vectors: dict[str, np.ndarray]) -> np.ndarray:
    """Return the mean vector of the titles of each paper's references, and a mark for those without one."""
    at = {row: place for place, row in enumerate(papers.own["row"])}
    n_parts = next(iter(vectors.values())).size
    total, number = np.zeros((len(at), n_parts)), np.zeros(len(at))
    for row, title in references.select("row", "title").iter_rows():
        total[at[row]] += vectors[title]
        number[at[row]] += 1
    return np.column_stack([total / np.maximum(number, 1)[:, None], number == 0])


def main(papers: Path, slices: Path, out: Path) -> None:
    pool = read_pool(papers, slices)
    text_vectors = embed_slices(slices, (pool["title"] + ". " + pool["abstract"]).to_list())
    drawn = {name: read_slice(pool, slices / f"{name}.parquet") for name in SLICES}
    needed = pool.filter(pl.col("row").is_in(pl.concat([one.own["row"] for one in drawn.values()]).unique().implode()))
    all_references = read_references(papers, needed)
    vectors = embed_titles(slices, all_references["title"].unique().sort().to_list())
    rows: list[dict[str, Any]] = []
    for name, one in drawn.items():
        references = all_references.filter(pl.col("row").is_in(one.own["row"].implode()))
        joined = references.group_by("row", maintain_order=True).agg(pl.col("title").str.join(". "))
        titles = one.own.select("row").join(joined, on="row", how="left", maintain_order="left")["title"].fill_null("")
        made = make_inputs(one)
        parts = {
            "words": made["words"],
            "numbers": made[ALL],
            "titles": count_words(titles.to_numpy(), one.sides["train"]),
            "MiniLM": csr_matrix(text_vectors[one.own["row"].to_numpy()]),
            "MiniLM of titles": csr_matrix(average(one, references, vectors)),
        }
        inputs = {row: hstack([parts[part] for part in of]).tocsr() for row, of in ROWS.items()}
        rows += list_kept(name, judge(inputs, one, ("words", "numbers", "MiniLM")))
    write_rows(rows, out)


if __name__ == "__main__":
    run(main, __doc__, "papers", "slices", "out")
