"""What a change costs a whole corpus: ingest, graph, cd and novelty of two checkouts, run in turn.

    python benchmarks/checks.py --make --size M                      write the input and stop
    python benchmarks/checks.py --before OLD --after NEW --size M    S, M, 20M, snapshot-jsonl or snapshot-parquet

Each stage is a process of its own, ``python -m sciscidata ...`` with PYTHONPATH set to the checkout. The work folder
is emptied before each run, caches too; one run of each checkout on S comes first, because numba compiles on first use.
CPU seconds are user and system time, and peak memory is the largest, of the process and the workers that it waited for.
This process stays small (it imports no Polars), because a child's peak counts what its parent held when it was forked.
Inputs are made once: the graphs S and M of benchmarks/graphs.py and 20M of benchmarks/scale.py as tables of SciSciNet
(20M without texts), a snapshot by make_snapshot.py.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE / ".cache"
sys.path.insert(0, str(HERE.parent))
from benchmarks.measure import Process, run  # noqa: E402

SIZES = ("S", "M", "20M", "snapshot-jsonl", "snapshot-parquet")
STAGES = ("ingest", "graph", "cd", "novelty")
N_SOURCES = 5_000
TEXT_BYTES = 2_800
SNAPSHOT = ("--parts", "8", "--records", "20000", "--edition", "both")
_ROWS = 100_000


def input_folder(size: str) -> Path:
    """Return the folder that ``sciscidata ingest`` reads."""
    return CACHE / ("checks-snapshot" if size.startswith("snapshot") else f"checks-{size}")


def make_input(size: str) -> None:
    """Write that folder, unless it is there."""
    folder = input_folder(size)
    if not folder.exists():
        unfinished = folder.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        if size.startswith("snapshot"):
            script = str(HERE / "make_snapshot.py")
            run([sys.executable, script, str(unfinished), *SNAPSHOT])
        else:
            write_tables(size, unfinished)
        unfinished.rename(folder)


def write_tables(size: str, folder: Path) -> None:
    """Write a graph as tables of SciSciNet v2: papers, references, sources; of S and M also texts."""
    import polars as pl

    from benchmarks.scale import make, scan

    make(size)
    works, citations = scan(size)
    if size in ("S", "M"):
        venues = pl.scan_parquet(CACHE / size / "papers.parquet").select(work_id="paper_id", source="journal")
    else:  # that graph has no venues: some have many works, as in make_sciscinet.py, by a number mixed from the id
        mixed = (pl.col("work_id") * 2_654_435_761 % 2**32).cast(pl.Float64) / 2**32
        venues = works.select("work_id", source=(N_SOURCES * mixed * mixed).cast(pl.Int64))

    def named(letter: str, column: str) -> pl.Expr:
        return pl.lit(letter) + pl.col(column).cast(pl.String)

    paperid = named("W", "work_id").alias("paperid")
    tables = {
        "papers": works.select(paperid, year=pl.col("publication_year").cast(pl.Int64), doctype=pl.lit("article")),
        "paperrefs": citations.select(citing_paperid=named("W", "citing_id"), cited_paperid=named("W", "cited_id")),
        "papersources": venues.select(paperid, sourceid=named("S", "source")),
        "sources": venues.select(sourceid=named("S", "source"), display_name=named("Journal ", "source")).unique(),
    }
    for name, table in tables.items():
        table.sink_parquet(folder / f"sciscinet_{name}.parquet", compression="zstd", compression_level=1)
    if size in ("S", "M"):
        write_texts(works, folder)


def write_texts(works, folder: Path) -> None:
    """Write a title and an abstract of each work, from the pool of make_sciscinet.py."""
    import polars as pl

    from benchmarks.make_sciscinet import Table, abstract_pool, named

    pool, table = abstract_pool(TEXT_BYTES, 0), Table(folder, "papertitleabstract")
    ids = works.select("work_id").collect()["work_id"]
    for start in range(0, len(ids), _ROWS):
        some = ids.slice(start, _ROWS)
        table.write(
            pl.DataFrame(
                {
                    "paperid": named("W", some),
                    "title": "On the measurement of matter " + named("no. ", some),
                    "abstract_inverted_index": pool.gather(some % len(pool)),
                    "language": ["en"] * len(some),
                }
            )
        )
    table.close()


def commands(size: str, work: Path) -> dict[str, list[str]]:
    """Return the arguments of each stage."""
    corpus = str(work / "corpus")
    folder = str(input_folder(size))
    if size.startswith("snapshot"):
        source = ["--snapshot", folder, "--edition", size.removeprefix("snapshot-"), "--include-xpac"]
    else:
        source = ["--sciscinet", folder, *([] if size in ("S", "M") else ["--no-texts"])]
    return {
        "ingest": ["ingest", *source, "--out", corpus, "--cache-dir", str(work / "cache")],
        "graph": ["graph", corpus],
        "cd": ["cd", corpus, "--out", str(work / "cd.parquet")],
        "novelty": ["novelty", corpus, "--out", str(work / "novelty.parquet")],
    }


def run_stage(checkout: Path, arguments: list[str], work: Path) -> Process:
    """Run one stage of one checkout."""
    environment = {"PYTHONPATH": str(checkout), "TMPDIR": str(work), "XDG_CACHE_HOME": str(work / "xdg")}
    return run([sys.executable, "-m", "sciscidata", *arguments], cwd=work, **environment)


def run_all(checkout: Path, size: str, work: Path, stages: Sequence[str] = STAGES) -> dict[str, Process]:
    """Run some stages from an empty work folder, and empty it."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    arguments = commands(size, work)
    costs = {stage: run_stage(checkout, arguments[stage], work) for stage in stages}
    shutil.rmtree(work)
    return costs


def table(before: list[dict[str, Process]], after: list[dict[str, Process]]) -> str:
    """Set the medians of both beside each other; the range of the ratio is that of the pairs of runs."""
    names = ("stage", "CPU, s: before", "after", "ratio", "of each pair", "wall, s: before", "after", "ratio")
    names = (*names, "peak, GB: before", "after")
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    stages = [*before[0]]
    for stage in (*stages, "all"):

        def figures(runs: list[dict[str, Process]], field: str, stage: str = stage) -> list[float]:
            together = max if field == "peak_gb" else sum
            of = stages if stage == "all" else (stage,)
            return [together(getattr(run[name], field) for name in of) for run in runs]

        cells = [stage]
        for field in ("cpu_s", "wall_s", "peak_gb"):
            ours, theirs = figures(after, field), figures(before, field)
            new, old = statistics.median(ours), statistics.median(theirs)
            cells += [f"{old:.2f}", f"{new:.2f}"]
            if field != "peak_gb":
                cells.append(f"{new / old:.3f}")
            if field == "cpu_s":
                ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
                cells.append(f"{min(ratios):.3f} to {max(ratios):.3f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--after", type=Path, metavar="CHECKOUT")
    parser.add_argument("--size", choices=SIZES, default="S")
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    parser.add_argument(
        "--stages",
        nargs="+",
        choices=STAGES,
        default=STAGES,
        help="run these, in this order; each needs those before it",
    )
    parser.add_argument("--work", type=Path, default=CACHE / "checks-work", help="a folder to fill and empty")
    parser.add_argument("--make", action="store_true", help="write the input and stop")
    options = parser.parse_args()
    if options.make:
        make_input(options.size)
        folder = input_folder(options.size)
        files = [path for path in folder.rglob("*") if path.is_file()]
        print(f"{folder}: {len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:,.0f} MB")
        return
    if options.before is None or options.after is None:
        parser.error("needs --before and --after, or --make")
    checkouts = {"before": options.before.resolve(), "after": options.after.resolve()}
    for checkout in checkouts.values():
        if not (checkout / "sciscidata" / "__main__.py").exists():
            parser.error(f"{checkout} is no checkout: it has no sciscidata/__main__.py")
    for size in ("S", options.size):
        run([sys.executable, __file__, "--make", "--size", size])
    for checkout in dict.fromkeys(checkouts.values()):
        run_all(checkout, "S", options.work)  # numba compiles, and keeps what it compiled in the checkout
    runs: dict[str, list[dict[str, Process]]] = {"before": [], "after": []}
    for number in range(options.repeats):
        for name, checkout in checkouts.items():
            runs[name].append(run_all(checkout, options.size, options.work, options.stages))
            told = ", ".join(f"{stage} {cost.cpu_s:.1f} s" for stage, cost in runs[name][-1].items())
            print(f"{number + 1}/{options.repeats} {name}: {told}", file=sys.stderr, flush=True)
    print(f"{options.size}, medians of {options.repeats} runs each\n")
    print(table(runs["before"], runs["after"]))


if __name__ == "__main__":
    main()
