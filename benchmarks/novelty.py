"""Atypicality on the generated graphs, beside PyPI pyscisci and novelpy on one year of the same graph.

python benchmarks/novelty.py --size S --peers VENV/bin/python         every year, one beside the peers; confidence
python benchmarks/novelty.py --size S --accuracy 1990 2000 2010 2020  closed form against 2,000 shuffles
python benchmarks/novelty.py --shuffles                               how many shuffles: real records

VENV has the peers: benchmarks/requirements-peers.txt. novelpy takes many minutes for all but the first years of S, so
it gets another year, and no larger graph.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.graphs import N_WORKS, WORKS, graph_files, scan_graph
from benchmarks.measure import ONE_THREAD, Row, in_own_process, report, timed, try_process

PEERS = str(Path(__file__).with_name("novelty_peers.py"))
#: The citing year that each peer scores.
YEARS = {"pyscisci": 2010, "novelpy": 1982}


def one_year(size: str, year: int) -> None:
    """Score one year on one thread: closed form, and ten shuffles. Ours is warmed up once: numba compiles."""
    from sciscidata.graph.graph import build_graph
    from sciscidata.novelty.atypicality import YearScorer
    from sciscidata.novelty.config import NoveltyConfig
    from sciscidata.novelty.venue_pairs import venue_numbers

    works, citations = scan_graph(size, venues=True)
    graph = build_graph(works, citations)
    venues = venue_numbers(graph, works)
    figures = {}
    for null in ("analytic", "permutation"):
        config = NoveltyConfig(null=null, years=(year, year))
        YearScorer(graph, venues, config, n_threads=1).score_all()
        figures[null], _ = timed(lambda c=config: YearScorer(graph, venues, c, n_threads=1).score_all(), 7)
    report(**figures)


def all_years(size: str, n_threads: int) -> None:
    """Score every year: seconds from the graph on, memory from Parquet on."""
    from sciscidata.graph.graph import build_graph
    from sciscidata.novelty.atypicality import YearScorer
    from sciscidata.novelty.config import NoveltyConfig
    from sciscidata.novelty.venue_pairs import venue_numbers

    works, citations = scan_graph(size, venues=True)
    graph = build_graph(works, citations)
    venues = venue_numbers(graph, works)
    YearScorer(graph, venues, NoveltyConfig(years=(1982, 1982))).score_all()
    cost, scores = timed(lambda: YearScorer(graph, venues, n_threads=n_threads).score_all())
    report(**cost, note=f"{scores['z_p10'].count():,} works scored")


def confidence(size: str, years: tuple[int, int] | None) -> list[Row]:
    """Score works on one thread, and say how sure their labels are. The first year is a warm-up: numba compiles."""
    from sciscidata.graph.graph import build_graph
    from sciscidata.label_thresholds import LabelThresholds
    from sciscidata.novelty.atypicality import YearScorer
    from sciscidata.novelty.config import NoveltyConfig
    from sciscidata.novelty.label_confidence import score_novelty_confidence
    from sciscidata.novelty.venue_pairs import venue_numbers

    works, citations = scan_graph(size, venues=True)
    graph = build_graph(works, citations)
    venues = venue_numbers(graph, works)

    def scorer(config: NoveltyConfig) -> YearScorer:
        return YearScorer(graph, venues, config, n_threads=1)

    score_novelty_confidence(scorer(NoveltyConfig(years=(1982, 1982))), LabelThresholds())
    config = NoveltyConfig(years=years)
    task = f"{size}: novelty confidence of {years[0] if years else 'every work'}, one thread"
    cost, _ = timed(lambda: scorer(config).score_all(), 3)
    rows: list[Row] = [{"task": task, "tool": "scores", **cost}]
    cost, sure = timed(lambda: score_novelty_confidence(scorer(config), LabelThresholds()))
    note = f"{sure['label_confidence'].count():,} works; all values: {measure.fingerprint(sure)}"
    return [*rows, {"task": task, "tool": "scores and confidence", **cost, "note": note}]


def count_cells(size: str) -> None:
    """Count the distinct (citing year, venue pair) cells, and the pairs of references."""
    import numpy as np

    from sciscidata.graph.graph import build_graph
    from sciscidata.novelty.venue_pairs import group, observe, references_of, venue_numbers, year_slots

    works, citations = scan_graph(size, venues=True)
    graph = build_graph(works, citations)
    venues = venue_numbers(graph, works)
    lists = references_of(graph, venues)
    n_cells = n_pairs = 0
    for j in range(graph.years.size):
        slots = year_slots(graph, lists, j, 1_000, np.zeros(graph.n_dated, np.bool_))
        observed = observe(group(slots.offsets, slots.venues, slots.n_venues)).observed
        n_cells += observed.size
        n_pairs += int(observed.sum(dtype=np.int64))
    report(cells=n_cells, pairs=n_pairs)


def write_year(size: str, year: int, folder: Path) -> None:
    """Write what the peers read: the works of one year, all their references, and what is known of these."""
    works, citations = (frame.collect() for frame in scan_graph(size, venues=True))
    citing = works.filter(pl.col("publication_year") == year)["work_id"]
    citations = citations.filter(pl.col("citing_id").is_in(citing.implode()))
    wanted = pl.concat([citing, citations["cited_id"]]).unique()
    works = works.filter(pl.col("work_id").is_in(wanted.implode()))
    works.select("work_id", pl.col("publication_year").cast(pl.Int64).alias("year"), venue="source_id").write_parquet(
        folder / "works.parquet"
    )
    citations.write_parquet(folder / "citations.parquet")
    report()


def check_values(size: str, year: int, folder: Path) -> None:
    """Compare the observed counts of all pairs of two venues, and say how the peer's scores correlate with ours."""
    from sciscidata.novelty.atypicality import compute_atypicality
    from sciscidata.novelty.background import VenuePairs, write_null_model
    from sciscidata.novelty.config import NoveltyConfig

    config = NoveltyConfig(years=(year, year))
    path = write_null_model(VenuePairs.of(*scan_graph(size, venues=True), config), folder / "background.parquet")
    ours = pl.scan_parquet(path).filter(pl.col("source_id_a") < pl.col("source_id_b"))
    ours = ours.select(a="source_id_a", b="source_id_b", n=pl.col("n_observed").cast(pl.Int64)).sort("a", "b").collect()
    theirs = pl.read_parquet(folder / "pyscisci_pairs.parquet", columns=["a", "b", "n"])
    theirs = theirs.cast(pl.Int64).sort("a", "b")
    equal = "equal" if ours.equals(theirs) else "DIFFERENT"
    scores = compute_atypicality(*scan_graph(size, venues=True), config).collect()
    peer = pl.read_parquet(folder / "pyscisci_scores.parquet").rename({"PublicationId": "work_id"})
    both = scores.drop_nulls("z_p10").join(peer.cast({"work_id": pl.Int64}), on="work_id")
    both = both.filter(pl.col("NoveltyScore").is_finite())
    rho = both.select(pl.corr("z_p10", "NoveltyScore", method="spearman")).item()
    report(
        note=f"counts of {theirs.height:,} pairs of venues {equal}; z_p10: Spearman {rho:.3f}, {both.height:,} works"
    )


def beside_peer(peer: str, size: str, python: str) -> list[Row]:
    """Score one citing year by ours and by a peer; say how far the values agree."""
    year = YEARS[peer]
    task = f"{size}: atypicality of {year}, one thread"
    ours = in_own_process(__file__, "--part", "one_year", "--size", size, "--year", str(year), **ONE_THREAD)
    peak = {"peak_gb": ours["peak_gb"]}
    rows: list[Row] = [
        {"task": task, "tool": "sciscidata, closed form", **ours["analytic"], **peak},
        {"task": task, "tool": "sciscidata, 10 shuffles", **ours["permutation"], **peak},
    ]
    with tempfile.TemporaryDirectory() as folder:
        # In processes of their own, for the next one counts what this one held when it began.
        arguments = ("--size", size, "--year", str(year), "--folder", folder)
        in_own_process(__file__, "--part", "write_year", *arguments)
        row = try_process(task, peer, PEERS, peer, folder, str(year), python=python, **ONE_THREAD)
        if peer == "pyscisci" and "cpu_s" in row:
            row["note"] += "; " + in_own_process(__file__, "--part", "check_values", *arguments)["note"]
    return [*rows, row]


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--size", choices=WORKS, default="S")
    parser.add_argument("--accuracy", type=int, nargs="+", metavar="YEAR", help="closed form against 2,000 shuffles")
    parser.add_argument("--shuffles", action="store_true", help="10, 100 and 1,000 shuffles on real records")
    parser.add_argument("--year", type=int, help=measure.HIDDEN)
    parser.add_argument("--threads", type=int, help=measure.HIDDEN)
    parser.add_argument("--folder", type=Path, help=measure.HIDDEN)
    options = parser.parse_args()
    if options.part == "one_year":
        return one_year(options.size, options.year)
    if options.part == "all_years":
        return all_years(options.size, options.threads)
    if options.part == "confidence":
        return report(rows=confidence(options.size, (options.year, options.year) if options.year else None))
    if options.part == "write_year":
        return write_year(options.size, options.year, options.folder)
    if options.part == "check_values":
        return check_values(options.size, options.year, options.folder)
    if options.part == "cells":
        return count_cells(options.size)
    if options.shuffles:
        from benchmarks.novelty_accuracy import shuffle_guidance

        return shuffle_guidance(n_seeds=4)
    graph_files(options.size)
    if options.accuracy:
        from benchmarks.novelty_accuracy import accuracy

        return accuracy(options.size, options.accuracy, 2_000)
    peers = [peer for peer in YEARS if peer != "novelpy" or N_WORKS[options.size] <= N_WORKS["S"]]
    rows = [row for peer in peers for row in beside_peer(peer, options.size, options.peers)]
    cells = in_own_process(__file__, "--part", "cells", "--size", options.size)
    task = f"{options.size}: atypicality of every year"
    for n in (1, 2):
        tool = f"sciscidata, {n} thread{'s' * (n > 1)}"
        rows.append(
            try_process(task, tool, __file__, "--part", "all_years", "--size", options.size, "--threads", str(n))
        )
    rows[-1]["note"] = f"{cells['cells']:,} cells (year, pair of venues), {cells['pairs']:,} pairs of references"
    year = str(YEARS["pyscisci"])
    whole = [[]] if N_WORKS[options.size] <= N_WORKS["S"] else []
    for some in [*whole, ["--year", year]]:
        found = in_own_process(__file__, "--part", "confidence", "--size", options.size, *some)
        found["rows"][-1]["peak_gb"] = found["peak_gb"]
        rows += found["rows"]
    return measure.show(rows, options)


if __name__ == "__main__":
    main()
