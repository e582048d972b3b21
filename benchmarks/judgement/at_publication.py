"""How well does what is known at publication tell labels apart? ``at_publication.py PAPERS SLICES OUT``.

PAPERS and SLICES are those of ``slices.py``. Each set of columns gets a logistic regression, with a strength that dev
chooses, and is judged by test once. The sets were fixed before test was looked at. What they hold goes back to
some 14 sets that were tried on the same test papers, so a second test has to confirm what they reach. Intervals of 95 %
draw the test papers anew. OUT is JSON, with each answer: ``results/at_publication.json`` is that of the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from baselines import fit_best
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import roc_auc_score
from slices import LABELS, SLICES, run

from sciscidata.indicators import compute_publication_features

REFERENCES = (
    *("n_references", "n_references_dated", "share_references_uncited"),
    *(f"reference_age_{what}" for what in ("mean", "median", "min", "max")),
    *("reference_citations", *(f"reference_citations_{what}" for what in ("mean", "median", "max"))),
    *("reference_recent_citations", "reference_recent_citations_mean"),
)
COUPLING = ("n_coupled", "n_coupled_twice", "coupling_max", "coupling_mean")
CD = ("n_references_with_cd", "reference_cd_mean")
#: The columns of each set, beside field and year.
SETS = {"field and year": (), "references": REFERENCES, "references, coupling and CD": REFERENCES + COUPLING + CD}
ALL = [*SETS][-1]
WITH_WORDS = f"words, {ALL}"
#: The others have a long tail.
NO_TAIL = ("publication_year", "share_references_uncited", "reference_cd_mean")
N_DRAWS = 2_000


def to_matrix(features: pl.DataFrame, names: tuple[str, ...], is_train: np.ndarray) -> np.ndarray:
    """Return columns for a regression: logarithms of what has a tail, scaled by train; null is the mean, and a mark."""
    columns = []
    for name in ("publication_year", *names):
        values = features[name].cast(pl.Float64).to_numpy()
        is_known = np.isfinite(values)
        values = values if name in NO_TAIL else np.log1p(values)
        known = values[is_train & is_known]
        scaled = (values - known.mean()) / (known.std() or 1)
        columns += [np.where(is_known, scaled, 0), 1.0 - is_known]
    return np.column_stack([*columns, features["primary_field"].to_dummies().to_numpy()])


def say_interval(values: np.ndarray) -> list[float]:
    """Return the mean and its interval over papers."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(0, values.size, (N_DRAWS, values.size))].mean(axis=1)
    return [round(float(x), 3) for x in (values.mean(), *np.percentile(means, (2.5, 97.5)))]


def read_pool(papers: Path, slices: Path) -> pl.DataFrame:
    """Return the papers of SLICES with the columns that are known at publication."""
    works = pl.read_parquet(papers / "works.parquet", columns=["work_id", "publication_year", "primary_field"])
    known = compute_publication_features(works, pl.scan_parquet(papers / "citations.parquet"))
    pool = pl.read_parquet(slices / "pool.parquet").drop("publication_year", "primary_field", "n_references")
    return pool.join(known.collect(), on="work_id", how="left", maintain_order="left")


class Papers(NamedTuple):
    """The papers of a slice by row, which of them are on each side, and the number of each one's label."""

    own: pl.DataFrame
    sides: dict[str, np.ndarray]
    gold: np.ndarray


def read_slice(pool: pl.DataFrame, file: Path) -> Papers:
    drawn = pl.read_parquet(file).sort("row")
    own = pool[drawn["row"]]
    sides = {side: (drawn["side"] == side).to_numpy() for side in ("train", "dev", "test")}
    return Papers(own, sides, np.array([LABELS.index(label) for label in own["disruption_label"]]))


def count_words(texts: np.ndarray, is_train: np.ndarray) -> csr_matrix:
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True, strip_accents="unicode")
    return words.fit(texts[is_train]).transform(texts)


def make_inputs(papers: Papers) -> dict[str, Any]:
    """Return a matrix for each set of columns, a row for each paper."""
    is_train = papers.sides["train"]
    words: Any = count_words((papers.own["title"] + ". " + papers.own["abstract"]).to_numpy(), is_train)
    inputs: dict[str, Any] = {"words": words}
    inputs |= {key: csr_matrix(to_matrix(papers.own, names, is_train)) for key, names in SETS.items()}
    return inputs | {WITH_WORDS: hstack([words, inputs[ALL]]).tocsr()}


def judge(inputs: dict[str, csr_matrix], papers: Papers, bases: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Judge the test papers by each set of columns. ``chances`` has a row for each paper, a column for each label."""
    is_right = {}
    gold = papers.gold[papers.sides["test"]]
    for key, matrix in inputs.items():
        of_sides = [{side: column[of] for side, of in papers.sides.items()} for column in (matrix, papers.gold)]
        model, strength = fit_best(*of_sides)
        chances = model.predict_proba(matrix[papers.sides["test"]])
        said = model.classes_[chances.argmax(1)]
        is_right[key] = (said == gold).astype(float)
        row = {"set": key, "strength": strength, "accuracy": say_interval(is_right[key])}
        row |= {f"over {base}": say_interval(is_right[key] - is_right[base]) for base in bases
                if base in is_right and base != key}  # fmt: skip
        if chances.shape[1] == 2:
            row["auc"] = round(float(roc_auc_score(gold, chances[:, 1])), 3)
        yield row | {"said": said, "chances": chances}


def list_kept(name: str, judged: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Print the rows of ``judge`` on a slice, and return what is kept of them."""
    for row in judged:
        del row["chances"]
        kept = {"slice": name} | row | {"said": row["said"].tolist()}
        print({key: value for key, value in kept.items() if key != "said"}, flush=True)
        yield kept


def write_rows(rows: list[dict[str, Any]], out: Path) -> None:
    """Write rows as JSON, one a line."""
    out.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", "utf-8")


def main(papers: Path, slices: Path, out: Path) -> None:
    """Judge every set on every slice; write them as JSON."""
    pool = read_pool(papers, slices)
    rows = []
    for name in SLICES:
        drawn = read_slice(pool, slices / f"{name}.parquet")
        rows += list_kept(name, judge(make_inputs(drawn), drawn, ("words", ALL)))
    write_rows(rows, out)


if __name__ == "__main__":
    run(main, __doc__, "papers", "slices", "out")
