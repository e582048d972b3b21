"""How cost grows, up to 510M works and 2.9G citations: from Parquet edges to CD_5 of every work, out of core.

python benchmarks/scale.py --sizes 1M 5M 20M          a few minutes
python benchmarks/scale.py --sizes 117M               needs 12 GB of memory, 35 GB of disk
python benchmarks/scale.py --sizes 510M --resume --clean    as large as all of OpenAlex: 20 GB of memory, 65 GB of disk
python benchmarks/scale.py --sizes L                  the graph L of benchmarks/graphs.py
python benchmarks/scale.py --sizes L --parts peer     PyPI cdindex beside it; needs: pip install cdindex==1.0.20

Each size is made (once), built, scored and checked, each in a process of its own. The check recounts n_i, n_j and n_k
of 10,000 random works with joins over the Parquet edges, which share nothing with the graph or the kernels. Figures
are kept in .cache/scale.json; every run prints all of them. CPU seconds are those of all
threads together, which other work on the machine does not stretch as it does the wall time. Peak memory counts every
page that the process has touched, of mapped files too, which the system could take back at any time. Peak disk is what
the files of a size took together, looked at twice a second.

--resume leaves out what has a figure already, and goes on with a killed build or scoring; a killed generation begins
anew. --clean removes the files of a size once it is checked.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.graphs import CACHE, scan_graph
from benchmarks.measure import Row, in_own_process, report, timed
from benchmarks.recount import count_differences, read_neighbourhood

SIZES = {
    "1M": 1_000_000,
    "5M": 5_000_000,
    "20M": 20_000_000,
    "50M": 50_000_000,
    "117M": 116_600_000,
    "510M": 510_000_000,
}
WITHOUT_REFERENCES = {"510M": 0.63}  # as in all of OpenAlex, where a work has 5.7 references on average
N_CHECKED = 10_000
N_PEER = 2_000
FIGURES = CACHE / "scale.json"


def scan(size: str) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return WORKS and CITATIONS of one size, lazily."""
    if size not in SIZES:
        return scan_graph(size, venues=True)
    folder = CACHE / f"scale-{size}"
    return pl.scan_parquet(folder / "works.parquet"), pl.scan_parquet(folder / "edges-*.parquet")


def graph_folder(size: str) -> Path:
    """Return where the graph of one size is kept."""
    return CACHE / f"scale-graph-{size}"


def make(size: str) -> dict[str, float]:
    """Generate the edges, unless they are there."""
    from benchmarks.scale_graph import SHARE_WITHOUT, generate

    if size not in SIZES:
        scan_graph(size)
        return {}
    folder = CACHE / f"scale-{size}"
    if folder.exists():
        return {}
    unfinished = folder.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    n_edges = generate(unfinished, SIZES[size], share_without=WITHOUT_REFERENCES.get(size, SHARE_WITHOUT))
    unfinished.rename(folder)
    return {"n_edges": n_edges}


def build(size: str) -> dict[str, float]:
    """From Parquet to the graph, on disk with checksums."""
    from sciscidata.graph.graph import build_graph

    graph = build_graph(*scan(size), cache_dir=graph_folder(size))
    return {"n_works": graph.n_works, "n_citations": graph.n_citations}


def cd(size: str) -> dict[str, float]:
    """From the graph on disk to the scores of every work, in Parquet."""
    from sciscidata.disruption.index import cache_cd_index
    from sciscidata.graph.graph import read_graph

    (folder,) = graph_folder(size).glob("graph-*")
    for scores in graph_folder(size).glob("cd-*"):
        shutil.rmtree(scores)
    cache_cd_index(read_graph(folder), graph_folder(size))
    return {}


def novelty(size: str) -> dict[str, float]:
    """From the graph on disk to the atypicality of every work, in Parquet; a killed run goes on."""
    from sciscidata.graph.graph import read_graph
    from sciscidata.novelty.atypicality import YearScorer, cache_atypicality
    from sciscidata.novelty.venue_pairs import venue_numbers

    (folder,) = graph_folder(size).glob("graph-*")
    graph = read_graph(folder)
    cache_atypicality(YearScorer(graph, venue_numbers(graph, scan(size)[0])), graph_folder(size))
    return {}


def check(size: str) -> dict[str, float]:
    """Compare the scores of a sample with joins over the edges."""
    near = read_neighbourhood(*scan(size), N_CHECKED)
    scores = pl.scan_parquet([*graph_folder(size).glob("cd-*/*.parquet")])
    of_focal = scores.join(near.focal.lazy(), left_on="work_id", right_on="focal", how="semi")
    found = of_focal.collect(engine="streaming")
    total = pl.col("n_i") + pl.col("n_j") + pl.col("n_k")
    has_refs = pl.col("work_id").is_in(near.refs["focal"].unique().implode())
    index = (pl.col("n_i").cast(pl.Int64) - pl.col("n_j").cast(pl.Int64)) / total
    defined = pl.when(has_refs & (total > 0)).then(index)
    n_wrong = count_differences(near, found) + found.filter(~defined.eq_missing(pl.col("cd_index"))).height
    if n_wrong:
        sys.exit(f"{size}: {n_wrong:,} of {N_CHECKED:,} works differ")
    return {"n_checked": found.height, "n_defined": found["cd_index"].count(), "n_pairs": near.cites.height}


def peer(size: str) -> dict[str, float]:
    """Time PyPI cdindex on some works, and ours on all, with one thread each; compare the peer's values with ours.

    The peer gets only the citations that the values depend on, for at L it would need 15 GB. It is faster so than on
    the whole graph, because it searches every citer's list of references.
    """
    import cdindex

    from sciscidata.disruption.index import CDConfig, score_graph
    from sciscidata.graph.graph import read_graph

    focal, refs, cites = read_neighbourhood(*scan(size), N_PEER)
    edges = pl.concat([refs.select("focal", "paper").rename({"focal": "citer", "paper": "cited_id"}), cites[:, :2]])
    ids = pl.concat([focal.select("focal"), *(edges.select(focal=end) for end in edges.columns)]).unique()
    dated = (
        scan(size)[0]
        .select("work_id", "publication_year")
        .join(ids.lazy(), left_on="work_id", right_on="focal", how="semi")
        .collect()
    )
    graph = cdindex.Graph()
    for work, year in dated.cast({"work_id": pl.String}).iter_rows():
        graph.add_vertex(work, year)
    for citer, cited in edges.unique().cast(pl.String).iter_rows():
        graph.add_edge(citer, cited)
    names = focal["focal"].cast(pl.String).to_list()
    values: list[float] = []
    theirs, _ = timed(lambda: values.extend(graph.cdindex(name, 5) for name in names))
    (folder,) = graph_folder(size).glob("graph-*")
    whole = read_graph(folder)
    ours, scored = timed(lambda: score_graph(whole, CDConfig.compat("cdindex"), n_threads=1))
    told = pl.DataFrame({"work_id": focal["focal"], "cd": values}, schema_overrides={"cd": pl.Float64}).fill_nan(None)
    both = told.join(scored, on="work_id", validate="1:1")
    if both.filter(pl.col("cd").eq_missing(pl.col("cd_index"))).height != N_PEER:
        sys.exit(f"{size}: values differ from the peer's")
    per_work = {"peer_us": theirs["cpu_s"] / N_PEER * 1e6, "ours_us": ours["cpu_s"] / whole.n_works * 1e6}
    return per_work | {"times_faster": per_work["peer_us"] / per_work["ours_us"]}


PARTS: dict[str, Callable[[str], dict[str, float]]] = {
    "make": make,
    "build": build,
    "cd": cd,
    "novelty": novelty,
    "check": check,
    "peer": peer,
}


def rows_of(size: str, parts: dict[str, dict[str, float]]) -> list[Row]:
    """Return the rows of one size."""
    built, n_checked = parts["build"], parts.get("check", {}).get("n_checked", 0)
    disk = max(part.get("peak_disk_gb", 0) for part in parts.values())
    notes = {
        "build": f"{built['n_works']:,} works, {built['n_citations']:,} citations, {disk} GB of disk",
        "cd": f"{parts['cd']['cpu_s'] / built['n_works'] * 1e6:.1f} CPU µs a work; {n_checked:,} works equal joins",
    }
    tasks = {"build": "Parquet to a graph on disk", "cd": "CD_5 out of core", "novelty": "atypicality out of core"}
    return [
        {
            "task": f"{size}: {task}",
            "tool": "sciscidata",
            **{name: parts[part][name] for name in ("cpu_s", "wall_s", "peak_gb")},
            "note": notes.get(part, ""),
        }
        for part, task in tasks.items()
        if part in parts
    ]


def files_of(size: str) -> list[Path]:
    """Return the folders that the parts of one size write, those of a killed part too."""
    return [folder for folder in CACHE.glob(f"scale-*{size}*") if folder.name.split("-")[-1].startswith(size)]


def measured(size: str, part: str) -> dict[str, Any]:
    """Run a part in a process of its own, and watch how much room the files of its size take."""
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.5):
            found = (path for folder in files_of(size) for path in folder.rglob("*"))
            with contextlib.suppress(OSError):  # a file that has just gone
                peak = max(peak, sum(path.stat().st_blocks * 512 for path in found))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return in_own_process(__file__, "--sizes", size, "--part", part) | {"peak_disk_gb": round(peak / 1e9, 3)}
    finally:
        done.set()
        watcher.join()


def main() -> None:
    parser = measure.parser(__doc__)
    parser.add_argument("--sizes", nargs="+", choices=[*SIZES, "S", "M", "L"], default=["1M", "5M"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["make", "build", "cd", "check"])
    parser.add_argument(
        "--resume", action="store_true", help="leave out parts that have figures, continue a killed one"
    )
    parser.add_argument("--clean", action="store_true", help="remove the files of a size once all its parts are done")
    options = parser.parse_args()
    CACHE.mkdir(exist_ok=True)
    if options.part:
        warm_up()
        cost, figures = timed(lambda: PARTS[options.part](options.sizes[0]))
        return report(**cost | figures)
    for size in options.sizes:
        for part in options.parts:
            figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
            of_size = figures.setdefault(size, {})
            if options.resume and part in of_size:
                continue
            if part == "build" and not options.resume:
                shutil.rmtree(graph_folder(size), ignore_errors=True)
            of_size[part] = measured(size, part)
            print(f"{size} {part}: {json.dumps(of_size[part])}", file=sys.stderr, flush=True)
            FIGURES.write_text(json.dumps(figures, indent=1))
        for folder in files_of(size) if options.clean and size in SIZES else []:
            shutil.rmtree(folder)
    figures = {size: parts for size, parts in json.loads(FIGURES.read_text()).items() if {"build", "cd"} <= set(parts)}
    shown = [size for size in options.sizes if size in figures] if options.json else [*figures]
    measure.show([row for size in shown for row in rows_of(size, figures[size])], options)


def warm_up() -> None:
    """Compile what numba has not compiled on this machine yet."""
    from sciscidata.disruption.index import score_graph
    from sciscidata.graph.graph import build_graph

    works = pl.LazyFrame({"work_id": [1, 2, 3], "publication_year": [1990, 2000, 2001]})
    citations = pl.LazyFrame({"citing_id": [2, 3, 3], "cited_id": [1, 2, 7]})
    score_graph(build_graph(works.cast({"publication_year": pl.Int32}), citations))


if __name__ == "__main__":
    main()
