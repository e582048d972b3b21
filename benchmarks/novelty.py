"""Atypicality on the generated graphs, beside PyPI pyscisci and novelpy on one year of the same graph.

python benchmarks/novelty.py --size S --year 2010 --peers VENV/bin/python     one year, beside the peers
python benchmarks/novelty.py --size M --threads 2                             every year
python benchmarks/novelty.py --size S --accuracy 1990 2000 2010 2020          closed form against 2,000 shuffles
python benchmarks/novelty.py --shuffles                                       how many shuffles: real records

VENV has the peers: benchmarks/requirements-peers.txt. novelpy takes many minutes for all but the first years of S: it
gets --novelpy-year.
One-thread figures are processor time, the least of several runs, because the machine is shared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.graphs import WORKS, graph_files, scan_graph
from benchmarks.measure import in_own_process, report, seconds

PEERS = str(Path(__file__).with_name("novelty_peers.py"))
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def one_year(size: str, year: int) -> None:
    """Score one year on one thread: closed form, and ten shuffles. Ours is warmed up once: numba compiles."""
    from sciscidata.graph.graph import build_graph
    from sciscidata.novelty.atypicality import score_atypicality
    from sciscidata.novelty.config import NoveltyConfig
    from sciscidata.novelty.venue_pairs import venue_numbers

    works, citations = scan_graph(size, venues=True)
    graph = build_graph(works, citations)
    venues = venue_numbers(graph, works)
    figures = {}
    for null in ("analytic", "permutation"):
        config = NoveltyConfig(null=null, years=(year, year))
        score_atypicality(graph, venues, config, n_threads=1)
        figures[null] = seconds(
            lambda c=config: score_atypicality(graph, venues, c, n_threads=1), 7, time.process_time, min
        )[0]
    report(**figures)


def all_years(size: str, n_threads: int) -> None:
    """Score every year: seconds on the clock and of the processor, from the graph on; memory from Parquet on."""
    from sciscidata.graph.graph import build_graph
    from sciscidata.novelty.atypicality import score_atypicality
    from sciscidata.novelty.config import NoveltyConfig
    from sciscidata.novelty.venue_pairs import venue_numbers

    works, citations = scan_graph(size, venues=True)
    graph = build_graph(works, citations)
    venues = venue_numbers(graph, works)
    score_atypicality(graph, venues, NoveltyConfig(years=(1982, 1982)))
    start = time.process_time()
    clock, scores = seconds(lambda: score_atypicality(graph, venues, n_threads=n_threads))
    report(clock=clock, processor=time.process_time() - start, scored=scores["z_p10"].count())


def count_cells(size: str) -> None:
    """Count the distinct (citing year, venue pair) cells, and the pairs of references."""
    import numpy as np

    from sciscidata.graph.graph import build_graph
    from sciscidata.novelty.venue_pairs import group, observe, venue_numbers, year_slots

    works, citations = scan_graph(size, venues=True)
    graph = build_graph(works, citations)
    venues = venue_numbers(graph, works)
    year_of = np.repeat(np.arange(graph.years.size, dtype=np.int32), np.diff(graph.year_offsets))
    n_cells = n_pairs = 0
    for j in range(graph.years.size):
        slots = year_slots(graph, venues, year_of, j, 1_000, np.zeros(graph.n_dated, np.bool_))
        observed = observe(group(slots.offsets, slots.venues, slots.n_venues)).observed
        n_cells += observed.size
        n_pairs += int(observed.sum(dtype=np.int64))
    report(cells=n_cells, pairs=n_pairs)


def write_year(size: str, year: int, folder: Path) -> None:
    """Write what the peers read: the works of one year, all their references, and what is known of these."""
    folder.mkdir()
    works, citations = (frame.collect() for frame in scan_graph(size, venues=True))
    citing = works.filter(pl.col("publication_year") == year)["work_id"]
    citations = citations.filter(pl.col("citing_id").is_in(citing.implode()))
    wanted = pl.concat([citing, citations["cited_id"]]).unique()
    works = works.filter(pl.col("work_id").is_in(wanted.implode()))
    works.select("work_id", pl.col("publication_year").cast(pl.Int64).alias("year"), venue="source_id").write_parquet(
        folder / "works.parquet"
    )
    citations.write_parquet(folder / "citations.parquet")


def check_values(size: str, year: int, folder: Path) -> None:
    """Compare the observed counts of all pairs of two venues, and say how the peer's scores correlate with ours."""
    from sciscidata.novelty.atypicality import compute_atypicality
    from sciscidata.novelty.background import write_null_model
    from sciscidata.novelty.config import NoveltyConfig

    config = NoveltyConfig(years=(year, year))
    path = write_null_model(*scan_graph(size, venues=True), folder / "background.parquet", config)
    ours = pl.scan_parquet(path).filter(pl.col("source_id_a") < pl.col("source_id_b"))
    ours = ours.select(a="source_id_a", b="source_id_b", n=pl.col("n_observed").cast(pl.Int64)).sort("a", "b").collect()
    theirs = pl.read_parquet(folder / "pyscisci_pairs.parquet", columns=["a", "b", "n"])
    theirs = theirs.cast(pl.Int64).sort("a", "b")
    if not ours.equals(theirs):
        sys.exit(f"observed pairs differ: {ours.height:,} of ours, {theirs.height:,} of pyscisci's")
    print(f"values: observed counts of all {ours.height:,} pairs of two venues equal to pyscisci's")
    scores = compute_atypicality(*scan_graph(size, venues=True), config).collect()
    peer = pl.read_parquet(folder / "pyscisci_scores.parquet").rename({"PublicationId": "work_id"})
    both = scores.drop_nulls("z_p10").join(peer.cast({"work_id": pl.Int64}), on="work_id")
    both = both.filter(pl.col("NoveltyScore").is_finite())
    rho = both.select(pl.corr("z_p10", "NoveltyScore", method="spearman")).item()
    print(f"z_p10 with its ten shuffles: Spearman {rho:.4f} over {both.height:,} works where its value is finite")


def beside_peers(size: str, year: int, novelpy_year: int | None, python: str | None) -> None:
    print(
        f"| {size}, one year, one thread | year | processor time, s | peak memory, GB | times faster |\n|{'---|' * 5}"
    )
    for peer, at in (("pyscisci", year), ("novelpy", novelpy_year)):
        if at is None:
            continue
        a = in_own_process(__file__, "--part", "one_year", "--size", size, "--year", str(at), POLARS_MAX_THREADS="1")
        if python:
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary) / "year"
                write_year(size, at, folder)
                b = in_own_process(PEERS, peer, str(folder), str(at), python=python, **ONE_THREAD)
                ratio = b["seconds"] / a["analytic"]
                print(f"| {peer} | {at} | {b['seconds']:.2f} | {b['peak_gb']:.2f} | 1 |")
                print(f"| sciscidata, closed form | {at} | {a['analytic']:.4f} | {a['peak_gb']:.2f} | {ratio:,.0f} |")
                ratio = b["seconds"] / a["permutation"]
                print(f"| sciscidata, 10 shuffles | {at} | {a['permutation']:.4f} | | {ratio:,.0f} |")
                if peer == "pyscisci":
                    check_values(size, at, folder)
        else:
            print(f"| sciscidata, closed form | {at} | {a['analytic']:.4f} | {a['peak_gb']:.2f} | |")
            print(f"| sciscidata, 10 shuffles | {at} | {a['permutation']:.4f} | | |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=WORKS, default="S")
    parser.add_argument("--year", type=int, help="score one citing year, beside pyscisci if --peers is given")
    parser.add_argument("--novelpy-year", type=int, help="the same beside novelpy")
    parser.add_argument("--peers", metavar="PYTHON", help="the interpreter that has the peers")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="for all years")
    parser.add_argument("--accuracy", type=int, nargs="+", metavar="YEAR", help="closed form against 2,000 shuffles")
    parser.add_argument("--shuffles", action="store_true", help="10, 100 and 1,000 shuffles on real records")
    parser.add_argument("--part", choices=["one_year", "all_years", "cells"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "one_year":
        return one_year(options.size, options.year)
    if options.part == "all_years":
        return all_years(options.size, options.threads[0])
    if options.part == "cells":
        return count_cells(options.size)
    if options.shuffles:
        from benchmarks.novelty_accuracy import shuffle_guidance

        return shuffle_guidance(n_seeds=4)
    graph_files(options.size)
    print(f"{options.size}: {WORKS[options.size]}\n")
    if options.accuracy:
        from benchmarks.novelty_accuracy import accuracy

        return accuracy(options.size, options.accuracy, 2_000)
    if options.year or options.novelpy_year:
        return beside_peers(options.size, options.year, options.novelpy_year, options.peers)
    cells = in_own_process(__file__, "--part", "cells", "--size", options.size)
    print(f"{cells['cells']:,} distinct (citing year, venue pair) cells, {cells['pairs']:,} pairs of references\n")
    print(f"| {options.size}, all years | seconds | processor time, s | peak memory, GB |\n|{'---|' * 4}")
    for n in options.threads:
        a = in_own_process(__file__, "--part", "all_years", "--size", options.size, "--threads", str(n))
        print(f"| {n} thread{'s' * (n > 1)} | {a['clock']:.2f} | {a['processor']:.2f} | {a['peak_gb']:.2f} |")


if __name__ == "__main__":
    main()
