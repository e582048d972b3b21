"""Time compute_publication_features: python benchmarks/publication_features.py --size M.

``--heavy N`` adds N works that a twentieth of all later ones cite, as a field cites its methods: walks over the earlier
citers of a reference are longest there. Columns of 100 random works are compared with joins over the citations.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.graphs import N_WORKS, scan_graph
from benchmarks.measure import HIDDEN, in_own_process, parser, report, show, timed, try_process
from sciscidata.indicators import compute_publication_features
from sciscidata.schemas import WORKS

N_COMPARED = 100
SHARE = 0.05


def read(size: str, n_heavy: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return WORKS and CITATIONS of a size, with works of the first year that many later ones cite."""
    works, citations = (frame.collect() for frame in scan_graph(size))
    rng, first = np.random.default_rng(0), works["publication_year"].min()
    later = works.filter(pl.col("publication_year") > first)["work_id"].to_numpy()
    citing = [later[rng.random(later.size) < SHARE] for _ in range(n_heavy)]
    for one, ids in enumerate(citing, 1):
        citations = citations.vstack(pl.DataFrame({"citing_id": ids, "cited_id": np.full(ids.size, one)}))
        row = {"work_id": [one], "publication_year": [first]}
        works = works.vstack(pl.DataFrame(row, schema={name: WORKS[name] for name in row}))
    return works, citations


def count_by_joins(works: pl.DataFrame, citations: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return what joins say of random works, and the same columns of the measure."""
    focal = works.filter(pl.col("work_id").is_in(citations["citing_id"].implode())).sample(N_COMPARED, seed=0)
    edges = citations.lazy().filter(pl.col("citing_id") != pl.col("cited_id")).unique()
    years = works.lazy().select(citer="work_id", citer_year="publication_year")
    citers = edges.select("cited_id", citer="citing_id").join(years, on="citer")
    references = edges.join(focal.lazy(), left_on="citing_id", right_on="work_id")
    earlier = references.join(citers, on="cited_id").filter(pl.col("citer_year") < pl.col("publication_year"))
    shared, n = earlier.group_by("citing_id", "citer").agg(n=pl.len().cast(pl.Int64)), pl.col("n")
    counts = shared.group_by(work_id="citing_id").agg(
        reference_citations=n.sum(),
        n_coupled=n.count().cast(pl.Int64),
        n_coupled_twice=(n >= 2).sum().cast(pl.Int64),
        coupling_max=n.max(),
    )
    by_joins = counts.collect(engine="streaming").sort("work_id")
    ours = compute_publication_features(works, citations).join(by_joins.lazy(), on="work_id", how="semi")
    return by_joins, ours.select(by_joins.columns).collect().sort("work_id")


def main() -> None:
    """Print a table of seconds and memory, a row for each number of threads."""
    options_of = parser(__doc__)
    options_of.add_argument("--size", choices=N_WORKS, default="S")
    options_of.add_argument("--heavy", type=int, default=0, metavar="N", help="works that a twentieth cites [0]")
    options_of.add_argument("--threads", type=int, default=1, help=HIDDEN)
    options = options_of.parse_args()
    arguments = ("--size", options.size, "--heavy", str(options.heavy))
    if options.part == "time":
        compute_publication_features(*scan_graph("XS"), n_threads=options.threads).collect()  # compiles
        works, citations = read(options.size, options.heavy)
        took, _ = timed(compute_publication_features(works, citations, n_threads=options.threads).collect)
        report(**took, note=f"{works.height:,} works, {citations.height:,} citations")
        return
    if options.part == "compare":
        by_joins, ours = count_by_joins(*read(options.size, options.heavy))
        assert ours.equals(by_joins)
        report(note=f"four columns of {ours.height} works equal joins")
        return
    task = f"{options.size}, {options.heavy} cited by a twentieth: features at publication"
    rows = [
        try_process(task, f"sciscidata, {words}", __file__, "--part", "time", *arguments, "--threads", words[0])
        for words in ("1 thread", "2 threads")
    ]
    rows[0]["note"] = f"{rows[0].get('note')}; {in_own_process(__file__, '--part', 'compare', *arguments)['note']}"
    show(rows, options)


if __name__ == "__main__":
    main()
