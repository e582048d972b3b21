"""Compute every row of the judgement again by other code: ``recompute_rows.py PAPERS SLICES OUT``.

Exits 1 if a figure differs. This program shares no code with the others, and does not import the package. It reads the
tables, counts citers by sets, labels, hashes titles, draws the slices, finds what was known at publication, splits
texts into words, fits logistic regressions by its own objective (L-BFGS of SciPy), and measures. Intervals come from
formulas instead of draws. Boosted trees are those of scikit-learn, on columns counted here. What was trained on a GPU,
and MiniLM's vectors, it cannot make again: such rows are named, and measured from their kept answers. SLICES says which
papers are sure (``two_sure.parquet``, checked against the kept labels); all other slices are drawn here.

OUT gets a line for each figure: where it stands, the figure, this program's, their difference, and the tolerance. Half
a unit of the last digit is always allowed; beyond it 1e-9 for accuracies of kept answers, REFIT for those fitted here
(three papers of the smallest test; twice that between two fits), and ENDS for the ends of intervals. Strengths are the
kept ones. On dev they may be DEV less right than the best here: several are nearly as good, and a solver that stops
earlier chooses another.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import re
import sys
import unicodedata
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, hstack
from scipy.stats import t as student
from sklearn.ensemble import HistGradientBoostingClassifier

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "notes" / "judgement.md"
LABELS = ("disruptive", "consolidating", "neutral")
SHOWN = {"three": 3, "two": 2, "two_sure": 2, "second": 2}
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
REFIT, ENDS, DEV = 0.007, 0.005, 0.01
Z = 1.959964
AGES = ("reference_age_mean", "reference_age_median", "reference_age_min", "reference_age_max")
COLUMNS = {
    "field and year": (),
    "references": (
        "n_references", "n_references_dated", "share_references_uncited", *AGES, "reference_citations",
        "reference_citations_mean", "reference_citations_median", "reference_citations_max",
        "reference_recent_citations", "reference_recent_citations_mean",
    ),
}  # fmt: skip
ALL, BOTH = "references, coupling and CD", "words, references, coupling and CD"
COLUMNS[ALL] = (*COLUMNS["references"], "n_coupled", "n_coupled_twice", "coupling_max", "coupling_mean",
                "n_references_with_cd", "reference_cd_mean")  # fmt: skip
#: What is added to what in ``stack.json``: the row with it, and without.
ADDED = {
    "model to words": ("words and model", "words"),
    "model to numbers": ("numbers and model", "numbers"),
    "model to words and numbers": ("words and numbers, and model", "words and numbers"),
    "numbers to model": ("numbers and model", "model"),
    "words and numbers to model": ("words and numbers, and model", "model"),
}
PLAIN = ("publication_year", "share_references_uncited", "reference_cd_mean")

Row = dict[str, Any]


class Check(NamedTuple):
    where: str
    figure: float
    own: float
    tolerance: float
    how: str

    @property
    def differs(self) -> bool:
        return not abs(self.figure - self.own) <= self.tolerance


# ---------------------------------------------------------------------------------------------------- tables and labels


class Graph:
    """Works by id, and who cites whom: each citation once, and no work that cites itself."""

    def __init__(self, works: list[Row], citations: np.ndarray) -> None:
        self.works = {work["work_id"]: work for work in works}
        self.year = {key: work["publication_year"] for key, work in self.works.items() if work["publication_year"]}
        self.refs: dict[int, set[int]] = defaultdict(set)
        self.citers: dict[int, list[int]] = defaultdict(list)
        self.times_cited: Counter[int] = Counter()
        for citing, cited in np.unique(citations[citations[:, 0] != citations[:, 1]], axis=0).tolist():
            self.refs[citing].add(cited)
            self.times_cited[cited] += 1
            if citing in self.year:
                self.citers[cited].append(citing)
        for citers in self.citers.values():
            citers.sort(key=self.year.__getitem__)
        self.citing_years = {cited: [self.year[one] for one in citers] for cited, citers in self.citers.items()}

    def cut(self, cited: int, first: float, last: float) -> list[int]:
        """Return those who cite a work in these years."""
        years = self.citing_years.get(cited, ())
        low, high = np.searchsorted(years, first), np.searchsorted(years, last, "right")
        return self.citers[cited][low:high] if high > low else []

    def count(self, work: int, first: float, last: float) -> tuple[int, int, int]:
        """Return n_i, n_j and n_k of a work, by citers of these years."""
        of_refs: set[int] = set()
        for one in self.refs.get(work, ()):
            of_refs.update(self.cut(one, first, last))
        own = set(self.cut(work, first, last))
        n_j = len(own & of_refs)
        return len(own) - n_j, n_j, len(of_refs - own - {work})


def find_label(n_i: int, n_j: int, n_k: int) -> str:
    index = (n_i - n_j) / (n_i + n_j + n_k)
    return "disruptive" if index >= 0.001 else "consolidating" if index <= -0.001 else "neutral"


def hash_title(title: str) -> int:
    kept = "".join(one if unicodedata.category(one)[0] in "LN" else " " for one in title.lower())
    return int.from_bytes(hashlib.sha256(("0:" + " ".join(kept.split())).encode()).digest()[:8], "big")


def find_pool(graph: Graph) -> list[Row]:
    """Return the papers that count, in the order of their hashed titles."""
    pool: list[Row] = []
    for key, work in graph.works.items():
        year = graph.year.get(key)
        if year is None or not graph.refs.get(key) or year + 5 > work["last_full_year"]:
            continue
        if work["title"] is None or work["abstract"] is None or not graph.cut(key, year + 1, year + 5):
            continue
        label = find_label(*graph.count(key, year + 1, year + 5))
        pool.append({**work, "label": label, "key": hash_title(work["title"])})
    often = Counter(paper["key"] for paper in pool)
    return sorted((paper for paper in pool if often[paper["key"]] == 1), key=lambda paper: paper["key"])


def draw(pool: list[Row], labels: tuple[str, ...], sides: dict[int, str]) -> dict[str, list[Row]]:
    """Return equally many papers of each label in each cell of side, field and five years."""
    cells: dict[tuple[str, str, int], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for paper in pool:
        side = sides.get(paper["key"] % 10)
        if side and paper["label"] in labels:
            cells[side, paper["primary_field"], paper["publication_year"] // 5][paper["label"]].append(paper)
    drawn: dict[str, list[Row]] = {"train": [], "dev": [], "test": []}
    for (side, *_), cell in cells.items():
        n_each = min(len(cell[label]) for label in labels)
        drawn[side] += [paper for label in labels for paper in cell[label][:n_each]]
    return {side: sorted(papers, key=lambda paper: paper["key"]) for side, papers in drawn.items()}


# ------------------------------------------------------------------------------------------------- known at publication


def describe(graph: Graph, work: int) -> dict[str, float | None]:
    """Return what was known of a work when it appeared, by sets."""
    year, refs = graph.year[work], graph.refs[work]
    ages = [year - graph.year[one] for one in refs if one in graph.year and graph.year[one] <= year]
    earlier = {one: graph.cut(one, -math.inf, year - 1) for one in refs}
    counts = [len(citers) for citers in earlier.values()]
    recent = sum(len(graph.cut(one, year - 5, year - 1)) for one in refs)
    shared = Counter(citer for citers in earlier.values() for citer in citers)
    indices = []
    for one in refs:
        own = graph.year.get(one)
        if own is not None and own < year and graph.refs.get(one) and graph.cut(one, own + 1, year - 1):
            n_i, n_j, n_k = graph.count(one, own + 1, year - 1)
            indices.append((n_i - n_j) / (n_i + n_j + n_k))
    return {
        "n_references": len(refs),
        "n_references_dated": len(ages),
        "reference_age_mean": float(np.mean(ages)) if ages else None,
        "reference_age_median": float(np.median(ages)) if ages else None,
        "reference_age_min": min(ages, default=None),
        "reference_age_max": max(ages, default=None),
        "reference_citations": sum(counts),
        "reference_citations_mean": float(np.mean(counts)),
        "reference_citations_median": float(np.median(counts)),
        "reference_citations_max": max(counts),
        "share_references_uncited": counts.count(0) / len(counts),
        "reference_recent_citations": recent,
        "reference_recent_citations_mean": recent / len(counts),
        "n_references_with_cd": len(indices),
        "reference_cd_mean": float(np.mean(indices)) if indices else None,
        "n_coupled": len(shared),
        "n_coupled_twice": sum(n > 1 for n in shared.values()),
        "coupling_max": max(shared.values(), default=None),
        "coupling_mean": sum(shared.values()) / len(shared) if shared else None,
    }


def list_titles(graph: Graph, work: int) -> list[str]:
    """Return the titles of the references that are works of the corpus, the newest first, 50 at most."""
    year = graph.year[work]

    def newest_first(one: int) -> tuple[bool, int, int]:
        own = graph.year[one] if graph.year[one] <= year else None
        return own is None, -(own or 0), one

    known = [one for one in graph.refs[work] if one in graph.year and graph.works[one]["title"] is not None]
    return [graph.works[one]["title"] for one in sorted(known, key=newest_first)[:50]]


# -------------------------------------------------------------------------------------------------- columns and fitting


def to_columns(papers: list[Row], names: tuple[str, ...], n_train: int) -> csr_matrix:
    made = []
    for name in ("publication_year", *names):
        values = [paper[name] for paper in papers]
        values = [one if one is None or name in PLAIN else math.log(1 + one) for one in values]
        known = [one for one in values[:n_train] if one is not None]
        middle, spread = np.mean(known), np.std(known) or 1
        made.append([0 if one is None else (one - middle) / spread for one in values])
        made.append([float(one is None) for one in values])
    fields = sorted({paper["primary_field"] for paper in papers})
    made += [[float(paper["primary_field"] == field) for paper in papers] for field in fields]
    return csr_matrix(np.array(made, float).T)


def to_words(texts: list[str], n_train: int) -> csr_matrix:
    """Count words and pairs of words: (1 + ln n) times ln((1 + papers) / (1 + papers with it)) + 1, of length 1."""
    counts = []
    for text in texts:
        plain = "".join(one for one in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(one))
        words = re.findall(r"\b\w\w+\b", plain)
        counts.append(Counter(words + [f"{a} {b}" for a, b in pairwise(words)]))
    n_papers = Counter(word for one in counts[:n_train] for word in one)
    places = {word: at for at, word in enumerate(word for word, n in n_papers.items() if n >= 3)}
    rows, columns, values = [], [], []
    for row, one in enumerate(counts):
        own = {
            places[word]: (1 + math.log(n)) * (math.log((1 + n_train) / (1 + n_papers[word])) + 1)
            for word, n in one.items()
            if word in places
        }
        length = math.sqrt(sum(value**2 for value in own.values())) or 1
        rows += [row] * len(own)
        columns += own.keys()
        values += [value / length for value in own.values()]
    return csr_matrix((values, (rows, columns)), shape=(len(texts), len(places)))


def fit(matrix: csr_matrix, gold: np.ndarray, strength: float) -> np.ndarray:
    """Return weights by feature (the last is the intercept) and label. Of two labels, the first has none."""
    n_labels, n_columns = int(gold.max()) + 1, matrix.shape[1]
    free = 1 if n_labels == 2 else n_labels
    aim = np.eye(n_labels)[gold]

    def lose(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = np.zeros((n_columns + 1, n_labels))
        weights[:, -free:] = flat.reshape(n_columns + 1, free)
        scores = matrix @ weights[:-1] + weights[-1]
        top = scores.max(1, keepdims=True)
        logs = scores - top - np.log(np.exp(scores - top).sum(1, keepdims=True))
        off = strength * (np.exp(logs) - aim)
        slope = np.vstack([matrix.T @ off + weights[:-1], off.sum(0)])
        return float(-strength * (logs * aim).sum() + (weights[:-1] ** 2).sum() / 2), slope[:, -free:].ravel()

    begin = np.zeros((n_columns + 1) * free)
    found = minimize(lose, begin, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "maxfun": 6000, "gtol": 1e-3})
    weights = np.zeros((n_columns + 1, n_labels))
    weights[:, -free:] = found.x.reshape(n_columns + 1, free)
    return weights


def predict(matrix: csr_matrix, weights: np.ndarray) -> np.ndarray:
    scores = matrix @ weights[:-1] + weights[-1]
    chances = np.exp(scores - scores.max(1, keepdims=True))
    return chances / chances.sum(1, keepdims=True)


class Slice(NamedTuple):
    """Papers of train, dev and test, one after the other."""

    papers: list[Row]
    gold: np.ndarray
    n_train: int
    n_dev: int

    @property
    def test(self) -> np.ndarray:
        return self.gold[self.n_train + self.n_dev :]

    def judge(self, matrix: csr_matrix, strength: float) -> np.ndarray:
        """Return the chances of test papers' labels, learnt from train at this strength."""
        return predict(matrix[self.n_train + self.n_dev :], self.learn(matrix, strength))

    def learn(self, matrix: csr_matrix, strength: float) -> np.ndarray:
        return fit(matrix[: self.n_train], self.gold[: self.n_train], strength)

    def try_dev(self, matrix: csr_matrix, strength: float) -> float:
        """Return how often dev is right at this strength."""
        a, b = self.n_train, self.n_train + self.n_dev
        return float(np.mean(predict(matrix[a:b], self.learn(matrix, strength)).argmax(1) == self.gold[a:b]))


def to_slice(sides: dict[str, list[Row]]) -> Slice:
    papers = sides["train"] + sides["dev"] + sides["test"]
    gold = np.array([LABELS.index(paper["label"]) for paper in papers])
    return Slice(papers, gold, len(sides["train"]), len(sides["dev"]))


def make_columns(own: Slice) -> dict[str, csr_matrix]:
    words = to_words([f"{paper['title']}. {paper['abstract']}" for paper in own.papers], own.n_train)
    made = {"majority": csr_matrix((len(own.papers), 1)), "words": words}
    made |= {name: to_columns(own.papers, names, own.n_train) for name, names in COLUMNS.items()}
    return made | {BOTH: hstack([words, made[ALL]]).tocsr()}


# ------------------------------------------------------------------------------------------------------------- measures


def find_interval(right: np.ndarray) -> tuple[float, float, float]:
    """Return the mean over seeds (rows) and papers, and its interval: normal over papers, t over seeds, in squares."""
    right = np.atleast_2d(right).astype(float)
    middle, n_seeds = float(right.mean()), len(right)
    half = Z * float(right.mean(0).std(ddof=1)) / math.sqrt(right.shape[1])
    if n_seeds > 1:
        of_seeds = float(right.mean(1).std(ddof=1)) / math.sqrt(n_seeds)
        half = math.hypot(half, float(student.ppf(0.975, n_seeds - 1)) * of_seeds)
    return middle, middle - half, middle + half


def correct(chances: list[list[float]], n_labels: int) -> np.ndarray:
    """Return the labels by chance over its mean on the other four fifths of the papers."""
    shares = [[max(one, 1e-4) for one in row[:n_labels]] for row in chances]
    shares = [[one / sum(row) for one in row] for row in shares]
    sums = [[sum(row[label] for at, row in enumerate(shares) if at % 5 == fold) for label in range(n_labels)]
            for fold in range(5)]  # fmt: skip
    sizes = [len(range(fold, len(shares), 5)) for fold in range(5)]
    said = []
    for at, row in enumerate(shares):
        others = [fold for fold in range(5) if fold != at % 5]
        n_others = sum(sizes[fold] for fold in others)
        quotients = [one / (sum(sums[fold][label] for fold in others) / n_others) for label, one in enumerate(row)]
        said.append(quotients.index(max(quotients)))
    return np.array(said)


def find_last(run: Row) -> Row:
    return [one for one in run["judged"] if one["side"] == "test"][-1]


def correct_run(run: Row, at: int, n_labels: int) -> np.ndarray:
    """Return the prior-corrected labels of a run's first (0) or last (-1) test, by the mean of dev if it was kept."""
    test = [one for one in run["judged"] if one["side"] == "test"][at]
    prior = [one["prior"] for one in run["judged"]
             if one["side"] == "dev" and "prior" in one and one.get("step") == test.get("step")]  # fmt: skip
    if not prior:
        return correct(test["chances"], n_labels)
    shares = np.maximum(np.array(test["chances"])[:, :n_labels], 1e-4)
    return (shares / shares.sum(1)[:, None] / prior[-1][:n_labels]).argmax(1)


def place(chances: np.ndarray, gold: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the area under the curve, and each paper's influence on it (DeLong et al. 1988, doi:10.2307/2531595)."""
    labels = [1] if chances.shape[1] == 2 else range(chances.shape[1])
    areas, influence = [], np.zeros(gold.size)
    for label in labels:
        score, is_own = chances[:, label], gold == label
        own, other = np.sort(score[is_own]), np.sort(score[~is_own])

        def below(values: np.ndarray, among: np.ndarray) -> np.ndarray:
            return (np.searchsorted(among, values) + np.searchsorted(among, values, "right")) / 2 / among.size

        part = np.where(is_own, below(score, other), 1 - below(score, own))
        area = float(part[is_own].mean())
        areas.append(area)
        influence += (part - area) / np.where(is_own, own.size, other.size)
    return float(np.mean(areas)), influence / len(areas)


# --------------------------------------------------------------------------------------------------------- the program


class Recomputed:
    """All checks, in the order of the results and the page."""

    def __init__(self, papers: Path, slices: Path) -> None:
        self.checks: list[Check] = []
        self.kept_only: set[str] = set()
        with gzip.open(RESULTS / "ladder.jsonl.gz", "rt", encoding="utf-8") as file:
            self.jobs = {line["job"]["name"]: line for line in map(json.loads, file)}
        self.kept = json.loads((RESULTS / "slices.json").read_text("utf-8"))
        works = pq.read_table(papers / "works.parquet").to_pylist()
        edges = pq.read_table(papers / "citations.parquet")
        citations = np.column_stack([edges["citing_id"].to_numpy(), edges["cited_id"].to_numpy()])
        self.graph = Graph(works, citations)
        pool = find_pool(self.graph)
        first = {0: "test", 1: "test", 2: "dev"} | dict.fromkeys(range(3, 10), "train")
        later = {2: "dev", 8: "test", 9: "test"} | dict.fromkeys(range(3, 8), "train")
        drawn = {"three": draw(pool, LABELS, first), "two": draw(pool, LABELS[:2], first)}
        drawn["two_sure"] = {"train": [], "dev": [], "test": []}
        for row, side in zip(*pq.read_table(slices / "two_sure.parquet").to_pydict().values(), strict=True):
            drawn["two_sure"][side].append(pool[row])
        drawn["second"] = draw(pool, LABELS[:2], later)
        self.slices = {name: to_slice({s: sorted(of, key=lambda one: one["key"]) for s, of in sides.items()})
                       for name, sides in drawn.items()}  # fmt: skip
        needed = {one["work_id"]: one for own in self.slices.values() for one in own.papers}
        for key, paper in needed.items():
            paper |= describe(self.graph, key)
        tell(f"{len(pool):,} papers count; {len(needed):,} are described")
        self.columns = {name: make_columns(own) for name, own in self.slices.items()}
        self.chances: dict[tuple[str, str], np.ndarray] = {}
        rows = json.loads((RESULTS / "at_publication.json").read_text("utf-8"))
        second = json.loads((RESULTS / "second.json").read_text("utf-8"))["rows"]
        self.sets: list[Row] = [*rows, *({"slice": "second"} | one for one in second)]
        self.strengths = {(row["slice"], row["set"]): row["strength"] for row in self.sets}
        self.made: dict[tuple[str, str], tuple[np.ndarray, None, str]] = {}  # rows of context.json and stack.json
        self.pooled: dict[str, list[np.ndarray]] = defaultdict(list)
        self.sixth: dict[str, tuple[float, float, float]] = {}

    def judge(self, name: str, key: str) -> np.ndarray:
        """Return the chances of the test papers by a set of columns, at the kept strength."""
        if (name, key) not in self.chances:
            strength = self.strengths.get((name, key), 1.0)
            self.chances[name, key] = self.slices[name].judge(self.columns[name][key], strength)
        return self.chances[name, key]

    def add(self, where: str, figures: list[float], own: tuple[float, ...], *, digits: int, how: str) -> None:
        """Compare a figure, and the ends of its interval if there are."""
        for at, (figure, value) in enumerate(zip(figures, own, strict=False)):
            slack = 0.5 * 10.0**-digits + {"kept": 1e-9, "fitted": REFIT, "two fits": 2 * REFIT}[how]
            slack += ENDS if at else 0
            part = ("", ", lower end", ", upper end")[at]
            self.checks.append(Check(where + part, figure, value, slack, how))

    def check_slices(self) -> None:
        for name, kept in self.kept.items():
            own = self.slices[name]
            self.checks.append(Check(f"{name}: labels of test", 0, float(np.sum(own.test != kept["test"])), 0, "drawn"))
            counts = len(own.papers) - own.test.size
            held = kept["papers"]["train"] + kept["papers"]["dev"]
            if name != "two_sure":
                self.checks.append(Check(f"{name}: papers of train and dev", held, counts, 0, "drawn"))
        second = json.loads((RESULTS / "second.json").read_text("utf-8"))
        ids = "\n".join(str(one["work_id"]) for one in self.slices["second"].papers[-self.slices["second"].test.size :])
        is_same = hashlib.sha256(ids.encode()).hexdigest() == second["sha256_of_work_ids"]
        self.checks.append(Check("second: SHA-256 of the works of test", 1, float(is_same), 0, "drawn"))

    def check_sets(self) -> None:
        """Compare ``at_publication.json`` and ``second.json``."""
        for row in self.sets:
            name, key = row["slice"], row["set"]
            gold = self.slices[name].test
            right = self.judge(name, key).argmax(1) == gold
            where = f"{name}, {key}"
            self.add(where, row["accuracy"], find_interval(right), digits=3, how="fitted")
            for base in ("words", ALL):
                if f"over {base}" in row:
                    less = right * 1.0 - (self.judge(name, base).argmax(1) == gold)
                    self.add(
                        f"{where}, less {base}", row[f"over {base}"], find_interval(less), digits=3, how="two fits"
                    )
            if "auc" in row:
                self.add(
                    f"{where}, AUC", [row["auc"]], (place(self.judge(name, key), gold)[0],), digits=3, how="fitted"
                )
            tell(where)

    def check_context(self) -> None:
        """Compare ``context.json``; rows with MiniLM by their kept answers."""
        rows = json.loads((RESULTS / "context.json").read_text("utf-8"))
        parts = {"words": "words", "numbers": ALL, "words and numbers": BOTH}
        right: dict[tuple[str, str], np.ndarray] = {}
        for row in rows:
            name, key = row["slice"], row["set"]
            own, how = self.slices[name], "fitted"
            if "MiniLM" in key:
                said, how = np.array(row["said"]), "kept"
                self.kept_only.add(f"{key}, {name}")
            elif key in parts:
                said = self.judge(name, parts[key]).argmax(1)
            else:
                titles = to_words(
                    [". ".join(list_titles(self.graph, one["work_id"])) for one in own.papers], own.n_train
                )
                made = self.columns[name]["words" if "numbers" not in key else BOTH]
                said = own.judge(hstack([made, titles]).tocsr(), row["strength"]).argmax(1)
            right[name, key] = (said == own.test) * 1.0
            self.made[name, key] = np.atleast_2d(right[name, key]), None, how
            self.add(f"context: {name}, {key}", row["accuracy"], find_interval(right[name, key]), digits=3, how=how)
            for base in ("words", "numbers", "MiniLM"):
                if f"over {base}" in row:
                    less = find_interval(right[name, key] - right[name, base])
                    self.add(
                        f"context: {name}, {key}, less {base}", row[f"over {base}"], less, digits=3, how="two fits"
                    )
            tell(f"context: {name}, {key}")

    def check_stack(self) -> None:
        """Compare ``stack.json``: own folds, own fits, and DeLong's variance in place of draws."""
        sets = {"words": "words", "numbers": ALL, "words and numbers": BOTH}
        of_rows = {**{key: (key,) for key in sets}, "model": ("model",), "words and model": ("words", "model"),
                   "numbers and model": ("numbers", "model"),
                   "words and numbers, and model": ("words and numbers", "model")}  # fmt: skip
        for found in json.loads((RESULTS / "stack.json").read_text("utf-8")):
            name = found["slice"]
            own, job = self.slices[name], {"two_sure": "sft_sure"}.get(name, f"sft_{name}")
            keys = np.array([one["key"] // 10 % 10 for one in own.papers[-own.test.size :]])
            odds = {key: [self.log_odds(self.judge(name, of))] * 3 for key, of in sets.items()}
            kept = [np.array(find_last(self.jobs[f"{job}_{seed}"])["chances"]) for seed in range(3)]
            odds["model"] = [self.log_odds(one[:, : SHOWN[name]]) for one in kept]
            measured: dict[str, dict[str, tuple[list[float], np.ndarray]]] = {}
            for row, parts in of_rows.items():
                chances = [self.cross_fit([odds[part][seed] for part in parts], own.test, keys) for seed in range(3)]
                by_paper = {
                    "accuracy": [(one.argmax(1) == own.test) * 1.0 for one in chances],
                    "log_loss": [-np.log(one[np.arange(own.test.size), own.test]) for one in chances],
                }
                n = own.test.size
                measured[row] = {
                    key: ([float(one.mean()) for one in of], np.mean([(one - one.mean()) / n for one in of], axis=0))
                    for key, of in by_paper.items()
                }
                self.made[name, row] = np.array(by_paper["accuracy"]), None, "fitted"
                areas = [place(one, own.test) for one in chances]
                measured[row]["auc"] = [area for area, _ in areas], np.mean([of for _, of in areas], axis=0)
                for key, figure in found["rows"][row].items():
                    if key == "interval":
                        ends = self.find_ends(*map(np.array, measured[row]["accuracy"]))
                        self.add(f"stack: {name}, {row}", [found["rows"][row]["accuracy"], *figure], ends, digits=4,
                                 how="two fits")  # fmt: skip
                        continue
                    mean = float(np.mean(measured[row][key][0]))
                    self.add(f"stack: {name}, {row}, {key}", [figure], (mean,), digits=4, how="fitted")
            for what, (row, base) in ADDED.items():
                for key, figures in found["added"][what].items():
                    (a, of_a), (b, of_b) = measured[row][key], measured[base][key]
                    ends = self.find_ends(np.subtract(a, b), of_a - of_b)
                    self.add(f"stack: {name}, {what}, {key}", figures, ends, digits=4, how="two fits")
            tell(f"stack: {name}")

    @staticmethod
    def find_ends(by_seed: np.ndarray, influence: np.ndarray) -> tuple[float, float, float]:
        """Return the mean over seeds and its interval, from what each paper moves it by."""
        of_papers, of_seeds = float(np.sum(influence**2)), float(by_seed.var(ddof=1)) / 3
        freedom = (of_papers + of_seeds) ** 2 / (of_papers**2 / (influence.size - 1) + of_seeds**2 / 2)
        half = float(student.ppf(0.975, freedom)) * math.sqrt(of_papers + of_seeds)
        middle = float(by_seed.mean())
        return middle, middle - half, middle + half

    @staticmethod
    def log_odds(chances: np.ndarray) -> np.ndarray:
        logs = np.log(np.maximum(chances, 1e-4))
        return np.column_stack([logs[:, at] - logs[:, -1] for at in range(logs.shape[1] - 1)])

    @staticmethod
    def cross_fit(parts: list[np.ndarray], gold: np.ndarray, keys: np.ndarray) -> np.ndarray:
        columns = np.column_stack(parts)
        columns = csr_matrix((columns - columns.mean(0)) / columns.std(0))
        chances = np.zeros((gold.size, int(gold.max()) + 1))
        for fold in range(10):
            chances[keys == fold] = predict(columns[keys == fold], fit(columns[keys != fold], gold[keys != fold], 1.0))
        return chances

    def leave_out(self, field: str) -> Slice:
        two = self.slices["two"]
        a, b = two.n_train, two.n_train + two.n_dev
        parts = {"train": two.papers[:a], "dev": two.papers[a:b], "test": two.papers[b:]}
        return to_slice({
            side: [one for one in papers if (one["primary_field"] == field) == (side == "test")]
            for side, papers in parts.items()
        })  # fmt: skip

    def check_fields(self) -> None:
        """Compare ``fields.json``, but for the example, which the package reads."""
        found = json.loads((RESULTS / "fields.json").read_text("utf-8"))
        fields = [*found["papers"]]
        kept = {"MiniLM": "minilm_two_without_{}", "SmolLM2, SFT": "sft_without_{}_0"}
        right = self.pooled
        strengths = {row["way"]: row["strengths"] for row in found["pooled"]}
        for field in fields:
            own = self.leave_out(field)
            made = make_columns(own)
            for way, key in (("words", "words"), ("numbers", ALL), ("words and numbers", BOTH)):
                right[way].append(own.judge(made[key], strengths[way][field]).argmax(1) == own.test)
            right["metadata"].append(self.grow_trees(own) == own.test)
            for way, name in kept.items():
                right[way].append(np.array(find_last(self.jobs[name.format(field)])["said"]) == own.test)
            names = kept | {"words": "tfidf_two_without_{}", "metadata": "metadata_two_without_{}"}
            for way, name in names.items():
                if run := self.jobs.get(name.format(field)):
                    right[f"{way}, prior-corrected"].append(correct_run(run, -1, 2) == own.test)
            tell(f"without {field}")
        for row in found["pooled"]:
            one = right[row["way"]]
            pooled = find_interval(np.concatenate(one))
            self.add(f"fields left out: {row['way']}", row["accuracy"], pooled, digits=3, how="fitted")
            for field, part in zip(fields, one, strict=True):
                where = f"without {field}: {row['way']}"
                # A field has as few as 148 papers: one of them is 0.007.
                own = float(part.mean())
                self.checks.append(Check(where, row["fields"][field], own, 2 / part.size + 6e-5, "fitted"))
        for row in found["example"]["rows"]:
            one = np.array(row["said"]) == found["example"]["test"]
            self.sixth[row["way"]] = find_interval(one)
            self.add(f"example: {row['way']}", row["accuracy"], self.sixth[row["way"]], digits=3, how="kept")
            self.kept_only.add(f"example of the package, {row['way']}")

    def grow_trees(self, own: Slice) -> np.ndarray:
        """Return what boosted trees say, by year, references, times cited and field."""
        fields = sorted({work["primary_field"] for work in self.graph.works.values()})
        columns = np.array([
            [one["publication_year"], len(self.graph.refs[one["work_id"]]), self.graph.times_cited[one["work_id"]],
             fields.index(one["primary_field"])] for one in own.papers
        ])  # fmt: skip
        model = HistGradientBoostingClassifier(random_state=0, max_iter=200, learning_rate=0.05)
        model.fit(columns[: own.n_train], own.gold[: own.n_train])
        return model.predict(columns[own.n_train + own.n_dev :])

    # ------------------------------------------------------------------------------------------------------ the page

    def find_right(self, name: str, job: str) -> tuple[np.ndarray, np.ndarray | None, str] | None:
        """Return what is right by seed and paper, the same prior-corrected, and how it was found."""
        gold = self.slices[name].test
        if (name, job) in self.made:
            return self.made[name, job]
        if job in ("majority", "tfidf") or job in COLUMNS or job == BOTH:
            return np.atleast_2d(self.judge(name, {"tfidf": "words"}.get(job, job)).argmax(1) == gold), None, "fitted"
        if job == "metadata" and name != "two_sure":  # kept answers are of a draw by older label confidence
            return np.atleast_2d(self.grow_trees(self.slices[name]) == gold), None, "fitted"
        runs = self.find_runs(name, job)
        if not runs:
            return None
        self.kept_only.add(f"{job.format(name)}, {name}")
        right = np.array([np.array(find_last(run)["said"]) == gold for run in runs])
        own = runs[0]["job"]
        if own["way"] not in ("zero", "sft", "rl") or own["contract"] != "two_keys":
            return right, None, "kept"
        return right, np.array([correct_run(run, -1, SHOWN[name]) == gold for run in runs]), "kept"

    def find_runs(self, name: str, job: str) -> list[Row]:
        """Return the kept runs of a way, by seed."""
        stem = job.format(name) if "{}" in job else f"{job}_{name}"
        stem = {"sft_two_sure": "sft_sure"}.get(stem, stem)
        return [self.jobs[one] for one in (*(f"{stem}_{seed}" for seed in range(3)), stem) if one in self.jobs]

    def check_page(self, page: Path) -> None:
        text = page.read_text("utf-8")
        for row in read_table(text, "ladder"):
            self.check_way(row)
        for row in read_table(text, "rl"):
            self.check_reinforcement(row)
        for row in read_table(text, "fields"):
            self.check_field(row)

    def check_way(self, row: list[tuple[str, str]]) -> None:
        cells = row[1:] if row[0][0] == "way" else row[2:]
        way = row[0][1] if row[0][0] == "way" else row[1][1]
        job = find_job(way)
        halves = [(head, half, at) for head, cell in cells for at, half in enumerate(cell.split("], "))]
        for head, cell, is_fair in halves:
            name = {"second test": "second"}.get(head, head.strip("`"))
            if not (figures := read_cell(cell)):
                continue
            where = f"page: {way}, {name}" + (", prior-corrected" if is_fair else "")
            found = self.find_right(name, job) if job else None
            right = found and (found[1] if is_fair else found[0])
            if found is None or right is None:
                self.checks.append(Check(f"{where}: not known here", figures[0], math.nan, 0, "missing"))
                continue
            self.add(where, figures, find_interval(right), digits=2, how=found[2])

    def check_reinforcement(self, row: list[tuple[str, str]]) -> None:
        cells, gold = dict(row), self.slices["three"].test
        runs = self.find_runs("three", find_job(cells["way"]) or "")
        if not runs:
            if any(map(read_cell, (cells["accuracy"], cells["change"]))):
                self.checks.append(Check(f"page: {cells['way']}: not known here", 0, math.nan, 0, "missing"))
            return
        self.kept_only.add(f"{find_job(cells['way'])}, three")
        tests = [[one for one in run["judged"] if one["side"] == "test"] for run in runs]
        said = [np.array([one[at]["said"] for one in tests]) for at in (0, -1)]
        right = [(one == gold) * 1.0 for one in said]
        where = f"page, reinforcement: {cells['way']}"
        steps = float(tests[0][-1]["step"])
        self.checks.append(Check(f"{where}, steps", float(cells["steps"]), steps, 0, "kept"))
        self.add(f"{where}, accuracy", read_cell(cells["accuracy"]), find_interval(right[1]), digits=2, how="kept")
        self.add(
            f"{where}, change", read_cell(cells["change"]), find_interval(right[1] - right[0]), digits=3, how="kept"
        )
        shares = [float(np.mean(one == label)) for one in said for label in range(3)]
        for figure, own in zip(re.findall(r"\d\.\d+", cells["shares said: before, after"]), shares, strict=True):
            self.add(f"{where}, shares", [float(figure)], (own,), digits=2, how="kept")
        if cell := cells["prior-corrected, change"]:
            level, change = map(read_cell, cell.split(", ", 1))
            before, after = (np.array([correct_run(run, at, 3) == gold for run in runs]) * 1.0 for at in (0, -1))
            self.add(f"{where}, prior-corrected", level, (float(after.mean()),), digits=2, how="kept")
            gain = find_interval(after - before)
            self.add(f"{where}, prior-corrected, change", change, gain, digits=3, how="kept")

    def check_field(self, row: list[tuple[str, str]]) -> None:
        cells = dict(row)
        way = FIELD_WAYS.get(cells["way"])
        if way is None:
            self.checks.append(Check(f"page, fields: {cells['way']}: not known here", 0, math.nan, 0, "missing"))
            return
        where = f"page, fields: {cells['way']}"
        how = "kept" if way in ("MiniLM", "SmolLM2, SFT") else "fitted"
        parts = self.pooled[way]
        self.add(where, read_cell(cells["fifth field"]), find_interval(np.concatenate(parts)), digits=3, how=how)
        ends = [float(one) for one in cells["least and most of the five"].split(" to ")]
        for figure, own in zip(ends, (min, max), strict=True):
            self.add(
                f"{where}, {own.__name__}", [figure], (own(float(one.mean()) for one in parts),), digits=2, how=how
            )
        if figures := read_cell(cells["prior-corrected"]):
            fair = find_interval(np.concatenate(self.pooled[f"{way}, prior-corrected"]))
            self.add(f"{where}, prior-corrected", figures, fair, digits=3, how="kept")
        if figures := read_cell(cells["sixth field"]):
            self.add(f"{where}, sixth", figures, self.sixth[way], digits=2, how="kept")


#: The job behind the first words of a row of the page.
JOBS = {
    "majority": "majority",
    "boosted trees": "metadata",
    "`words`": "tfidf",
    "`words` with titles": "words and titles of references",
    "`words_at_publication` with titles": "words, titles of references, numbers",
    "MiniLM with titles": "MiniLM of text and titles of references",
    "MiniLM with `at_publication`": "MiniLM and numbers",
    "MiniLM with both": "MiniLM of text and titles of references, numbers",
    "SmolLM2, SFT, stacked on `at_publication`": "numbers and model",
    "SmolLM2, SFT, stacked on `words_at_publication`": "words and numbers, and model",
    "words (TF-IDF)": "tfidf",
    "MiniLM": "minilm",
    "SmolLM2, asked": "zero",
    "SmolLM2, hidden": "hidden",
    "SmolLM2, SFT, title": "sft_{}_title",
    "SmolLM2, SFT, abstract": "sft_{}_abstract",
    "SmolLM2, SFT, with year, cit": "sft_{}_all",
    "SmolLM2, SFT, with year, field, 512": "sft_{}_long",
    "the same, with titles": "sft_{}_references",
    "the same, with numbers": "sft_{}_numbers",
    "the same, with both": "sft_{}_both",
    "SmolLM2, SFT on the chance": "soft",
    "SmolLM2, SFT on written": "written",
    "SmolLM2, SFT on 0.7": "leaning",
    "SmolLM2, SFT, then exp4's reward, expected": "expected",
    "SmolLM2, SFT": "sft",
    "field and year": "field and year",
    "field, year, references": "references",
    "`at_publication`": ALL,
    "`words_at_publication`": BOTH,
    "from the best with references or numbers, exp4": "exp4_best",
    "from the best with references or numbers, exp6": "exp6_best",
    "RL from the base model": "just_rl",
    "SFT, then RL, exp4": "exp4",
    "the same, three passes": "exp4_long",
    "SFT, then RL, exp5": "exp5",
    "SFT, then RL, exp6": "exp6",
    "SFT, then RL, dual": "least_recall",
    "SFT, then RL, reward less": "label_centred",
    "SFT on 0.7, then RL": "exp8",
    "the same, quadratic": "exp8_soft",
}
FIELD_WAYS = {
    "`words`": "words",
    "MiniLM": "MiniLM",
    "SmolLM2, SFT (1 seed)": "SmolLM2, SFT",
    "`at_publication`": "numbers",
    "`words_at_publication`": "words and numbers",
    "trees on later citers": "metadata",
}


def find_job(way: str) -> str | None:
    fit = [begin for begin in JOBS if way.startswith(begin)]
    return JOBS[max(fit, key=len)] if fit else None


def read_table(text: str, name: str) -> list[list[tuple[str, str]]]:
    """Return the rows of a marked table, as pairs of heading and cell."""
    inner = re.search(rf"<!-- {name}: [^\n]*-->\n(.*?)\n<!-- end of {name} -->", text, re.DOTALL)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in inner[1].splitlines()] if inner else []
    return [[*zip(lines[0], cells, strict=True)] for cells in lines[2:]]


def read_cell(cell: str) -> list[float]:
    """Return a figure, and the ends of its interval if it has one."""
    found = re.match(r"\*{0,2}([-+]?\d+\.\d+)(?: \[([-+]?\d+\.\d+), ([-+]?\d+\.\d+)\]?)?", cell)
    return [float(one) for one in found.groups() if one is not None] if found else []


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(papers: Path, slices: Path, out: Path, page: Path) -> None:
    own = Recomputed(papers, slices)
    own.check_slices()
    own.check_sets()
    own.check_fields()
    own.check_stack()
    if (RESULTS / "context.json").exists():
        own.check_context()
    own.check_page(page)
    lines = ["where\tfigure\tcomputed again\tdifference\ttolerance\thow\t"]
    for one in own.checks:
        numbers = (one.figure, one.own, one.own - one.figure, one.tolerance)
        lines.append("\t".join([one.where, *(f"{x:.4f}" for x in numbers), one.how, "DIFFERS" if one.differs else ""]))
    lines += [f"answers kept, not made again: {name}" for name in sorted(own.kept_only)]
    n_off = sum(one.differs for one in own.checks)
    lines.append(f"{len(own.checks):,} figures, {n_off} differ")
    out.write_text("\n".join(lines) + "\n", "utf-8")
    print("\n".join(lines))
    sys.exit(1 if n_off else 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for each in ("papers", "slices", "out"):
        parser.add_argument(each, type=Path)
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose tables are compared")
    main(**vars(parser.parse_args()))
