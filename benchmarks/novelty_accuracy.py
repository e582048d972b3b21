"""How far shuffles agree with each other and with the closed form, work by work. Run by novelty.py."""

from __future__ import annotations

import itertools
from dataclasses import replace

import polars as pl

import sciscidata as ssd
from benchmarks.graphs import scan_graph
from benchmarks.real_graphs import scan_real
from sciscidata.graph.graph import build_graph
from sciscidata.label_thresholds import compute_novelty_labels
from sciscidata.novelty.atypicality import YearScorer
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.venue_pairs import venue_numbers

Frames = tuple[pl.LazyFrame, pl.LazyFrame]


def corpora() -> dict[str, Frames]:
    """Return works and citations of two sets of real works whose venues are known."""
    example = ssd.scan_example()
    return {"handball": scan_real("handball"), "example": (example.works, example.citations)}


class Scorer:
    """Scores one corpus under several configurations; the graph is built once."""

    def __init__(self, works: pl.LazyFrame, citations: pl.LazyFrame, base: NoveltyConfig | None = None) -> None:
        self.graph = build_graph(works, citations)
        self.venues = venue_numbers(self.graph, works)
        self.base = base or NoveltyConfig()

    def analytic(self) -> pl.DataFrame:
        """Score by the closed form."""
        return self.score(self.base)

    def shuffles(self, n: int, seed: int) -> pl.DataFrame:
        """Score by ``n`` shuffles."""
        return self.score(replace(self.base, null="permutation", n_shuffles=n, seed=seed))

    def score(self, config: NoveltyConfig) -> pl.DataFrame:
        """Return the works that have a z, and their labels."""
        scores = YearScorer(self.graph, self.venues, config).score_all().drop_nulls("z_p10")
        return compute_novelty_labels(scores).select("work_id", "z_p10", "z_median", "novelty_label").collect()


def compare(a: pl.DataFrame, b: pl.DataFrame) -> dict[str, float]:
    """Compare the works that both have scored; shares in percent."""
    both = a.join(b, on="work_id", validate="1:1")
    other = pl.col("z_p10_right")
    return both.select(
        works=pl.len(),
        difference=(pl.col("z_p10") - other).abs().median(),
        spearman=pl.corr("z_p10", other, method="spearman"),
        flips=100 * ((pl.col("z_p10") < 0) != (other < 0)).mean(),
        labels=100 * (pl.col("novelty_label") != pl.col("novelty_label_right")).mean(),
    ).row(0, named=True)


def mean_of(comparisons: list[dict[str, float]]) -> dict[str, float]:
    return pl.DataFrame(comparisons).mean().row(0, named=True)


def print_row(*cells: str, found: dict[str, float]) -> None:
    agree = [
        f"{found['difference']:.4f}",
        f"{found['spearman']:.5f}",
        f"{found['flips']:.2f}",
        f"{found['labels']:.2f}",
    ]
    print("|", " | ".join([*cells, f"{found['works']:,.0f}", *agree]), "|")


HEAD = "works | median difference of z_p10 | Spearman | other sign, % | other label, %"


def accuracy(size: str, years: list[int], n_shuffles: int) -> None:
    """Print how the closed form and two sets of shuffles with nothing in common agree, year by year."""
    print(f"| {size}, year | compared | {HEAD} |\n|{'---|' * 7}")
    pooled: dict[str, list[tuple[pl.DataFrame, pl.DataFrame]]] = {}
    for year in years:
        scorer = Scorer(*scan_graph(size, venues=True), NoveltyConfig(years=(year, year)))
        closed, first, second = scorer.analytic(), scorer.shuffles(n_shuffles, 0), scorer.shuffles(n_shuffles, 1)
        pairs = {
            f"closed form with {n_shuffles:,} shuffles": (closed, first),
            f"{n_shuffles:,} shuffles with {n_shuffles:,} others": (first, second),
            f"10 shuffles with {n_shuffles:,}": (scorer.shuffles(10, 2), first),
            f"100 shuffles with {n_shuffles:,}": (scorer.shuffles(100, 2), first),
        }
        for name, pair in pairs.items():
            print_row(str(year), name, found=compare(*pair))
            pooled.setdefault(name, []).append(pair)
    if len(years) > 1:
        for name, pairs in pooled.items():
            a, b = (pl.concat(side) for side in zip(*pairs, strict=True))
            print_row("all of these", name, found=compare(a, b))


def shuffle_guidance(n_seeds: int) -> None:
    """Print, per corpus and number of shuffles, how much the seed decides, and how near the closed form is."""
    print(f"| corpus | shuffles | compared with | {HEAD} |\n|{'---|' * 8}")
    for corpus, (works, citations) in corpora().items():
        scorer = Scorer(works, citations)
        closed = scorer.analytic()
        for n in (10, 100, 1_000):
            runs = [scorer.shuffles(n, seed) for seed in range(n_seeds)]
            between = [compare(a, b) for a, b in itertools.combinations(runs, 2)]
            print_row(corpus, f"{n:,}", "another seed", found=mean_of(between))
            print_row(corpus, f"{n:,}", "closed form", found=mean_of([compare(run, closed) for run in runs]))
