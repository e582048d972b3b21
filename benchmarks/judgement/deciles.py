"""Print how well words tell disruptive from consolidating papers, by how sure their labels are: ``deciles.py PAPERS``.

PAPERS as for slices.py. TF-IDF and a logistic regression judge each paper once, fitted to four fifths of the titles. In
each cell of fold, field and five years there are equally many papers of both labels. Deciles of label confidence are
those within field and label, so that neither says anything about the decile. Needs scikit-learn. No text is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from slices import LABELS, draw, read_pool

FOLDS = 5
RESAMPLES = 2_000
GROUPS = (("1 to 3", 1, 3), ("4 to 7", 4, 7), ("8 to 10", 8, 10))


def judge(papers: pl.DataFrame) -> pl.Series:
    """Say for each paper whether the model of the other folds finds its label."""
    text, label = (papers["title"] + ". " + papers["abstract"]).to_numpy(), papers["disruption_label"].to_numpy()
    side, is_right = papers["side"].to_numpy(), np.zeros(papers.height, bool)
    for fold in range(FOLDS):
        train, test = side != fold, side == fold
        words = TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True, strip_accents="unicode")
        model = LogisticRegression(max_iter=1000).fit(words.fit_transform(text[train]), label[train])
        is_right[test] = model.predict(words.transform(text[test])) == label[test]
    return pl.Series("is_right", is_right)


def show(is_right: pl.Series) -> str:
    """Write the accuracy with its 95 % bootstrap interval."""
    drawn = np.random.default_rng(0).choice(is_right.to_numpy(), (RESAMPLES, is_right.len())).mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{is_right.mean():.2f} [{low:.2f}, {high:.2f}]"


def describe(judged: pl.DataFrame) -> Iterator[str]:
    """Write two tables of Markdown: by decile, and by field."""
    yield "| decile | papers | mean confidence: disruptive, consolidating | citers, median | accuracy |"
    yield "|---|---|---|---|---|"
    for name, low, high in [*((f"{n}", n, n) for n in range(1, 11)), ("all", 1, 10)]:
        rows = judged.filter(pl.col("decile").is_between(low, high))
        sure = [rows.filter(disruption_label=label)["label_confidence"].mean() for label in LABELS[:2]]
        citers = rows["n_citers"].median()
        yield f"| {name} | {rows.height:,} | {sure[0]:.2f}, {sure[1]:.2f} | {citers:.0f} | {show(rows['is_right'])} |"
    fields = judged["primary_field"].unique().sort()
    yield "\n| decile | " + " | ".join(fields) + " |\n" + "|---" * (len(fields) + 1) + "|"
    yield "| papers | " + " | ".join(f"{judged.filter(primary_field=field).height:,}" for field in fields) + " |"
    for name, low, high in GROUPS:
        rows = judged.filter(pl.col("decile").is_between(low, high))
        yield f"| {name} | " + " | ".join(show(rows.filter(primary_field=one)["is_right"]) for one in fields) + " |"


def main(papers: Path) -> None:
    pool = read_pool(papers).with_columns(side=pl.col("key") % FOLDS)
    drawn = draw(pool, LABELS[:2], 0.0)
    rank = pl.col("label_confidence").rank("ordinal").over("primary_field", "disruption_label")
    share = (rank - 1) / pl.len().over("primary_field", "disruption_label")
    judged = drawn.with_columns(judge(drawn), decile=1 + (10 * share).cast(pl.Int32))
    print("\n".join(describe(judged)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", type=Path)
    main(**vars(parser.parse_args()))
