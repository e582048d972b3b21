"""What the three questions take: score a list of ids, explain one work, compare with another state.

python benchmarks/questions.py                      of the example, and of 20 DOIs by the server of the tests
python benchmarks/questions.py --size M             one work of a graph made here, with its citers on disk or not
python benchmarks/questions.py --graph FOLDER       of a graph on disk, without compare, which needs scores
python benchmarks/questions.py --make FOLDER        a graph to ask: 510M works, 2.94G citations; 25 GB of disk

The server speaks OpenAlex's protocol on 127.0.0.1. Each question is one command, so imports count.
The graph of 510M works has six copies of one of 85M (``repeat_graph``), so the works of its answers are not
further apart than in one of these; what is read is that of the whole. ``--save`` keeps the rows in results/.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.graphs import N_WORKS
from benchmarks.measure import Row

HOME = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results" / "questions.json"
N_IDS, SEED = 20, 7
FORMS = ("https://doi.org/{}", "doi:{}", "{}", "HTTP://DX.DOI.ORG/{}")
_SMALL = "import json, sys; from benchmarks.measure import run; print(json.dumps(run(sys.argv[1:])))"
COPIES, WORKS_OF_ONE, WITHOUT_REFERENCES = 6, 85_000_000, 0.63


def ask(task: str, question: str, *words: str, note: str = "", **environment: str) -> Row:
    """Run a command of sciscidata; return what it took."""
    # A process counts the memory of the one that starts it, so a small one stands between.
    command = [sys.executable, "-c", _SMALL, sys.executable, "-m", "sciscidata", *words]
    done = measure.Process(*json.loads(measure.run(command, HOME, **environment).output))
    took = {"cpu_s": round(done.cpu_s, 2), "wall_s": round(done.wall_s, 2), "peak_gb": round(done.peak_gb, 3)}
    said = hashlib.sha256(done.output.encode()).hexdigest()[:12]
    return {"task": task, "tool": question, **took, "note": note or said}


def of_example(home: Path) -> Iterator[Row]:
    """Ask the example, as a corpus on disk that nothing was asked of before; then again."""
    ids = list_dois(home)
    corpus = str(home / "corpus")
    measure.run([sys.executable, "-m", "sciscidata", "ingest", "--source", "example", "--out", corpus])
    for task in ("the example, first", "the example, again"):
        out = str(home / f"{task}.parquet")
        yield ask(task, f"score {N_IDS} DOIs", "score", "--ids", str(ids), "--corpus", corpus, "--out", out)
        yield ask(task, "explain one", "explain", corpus, ids.read_text().splitlines()[0])
        yield ask(task, "compare two windows", "compare", corpus, corpus, "--window", "5", "10")


def list_dois(home: Path) -> Path:
    """Write the DOIs of the works of the example that are cited most, in the forms that people have."""
    import sciscidata as ssd

    works = ssd.scan_example().works.drop_nulls("doi").sort("cited_by_count", descending=True)
    dois = works.head(N_IDS).collect()["doi"]
    path = home / "dois.txt"
    path.write_text("\n".join(FORMS[at % 4].format(doi.upper()) for at, doi in enumerate(dois)))
    return path


def of_server(home: Path) -> Iterator[Row]:
    """Ask for the same DOIs by the API; and what a month changed, with a hundredth of the records not out before."""
    from sciscidata.sources.example.source import WORKS_FILE
    from tests.servers.openalex_server import OpenAlexServer

    ids, rng = list_dois(home), np.random.default_rng(SEED)
    older = home / "older.jsonl"
    lines = read_lines(WORKS_FILE)
    older.write_bytes(b"\n".join(line for line in lines if rng.random() < 0.99))
    files = [str(home / f"{name}.parquet") for name in ("older", "newer")]
    task = "by the API"
    for file, source in zip(files, (older, WORKS_FILE), strict=True):
        with OpenAlexServer(source, key="k") as server:
            words = ["--ids", str(ids), "--base-url", server.base_url, "--cache-dir", f"{file}.cache", "--out", file]
            row = ask(task, f"score {N_IDS} DOIs", "score", *words, OPENALEX_API_KEY="k")
            row["note"] = f"{len(server.log)} calls, ${server.credits * 1e-4:.4f}"
    yield row
    yield ask(task, "compare two files of score", "compare", *files)


def read_lines(path: Path) -> list[bytes]:
    """Read the records of the example, one in each line."""
    from sciscidata.sources.record_files import decompressed_chunks

    return b"".join(decompressed_chunks(path)).splitlines()


def of_size(size: str, home: Path) -> Iterator[Row]:
    """Ask a graph of ``graphs.py`` for one work, by a pass over all citations and by citers on disk."""
    from benchmarks.graphs import scan_graph
    from sciscidata.graph.citers import write_citers
    from sciscidata.graph.graph import build_graph, graph_folder

    works, citations = scan_graph(size)
    graph = build_graph(works.with_columns(pl.col("publication_year").cast(pl.Int32)), citations, cache_dir=home)
    folder = graph_folder(graph)
    work, *_ = choose_works(folder, 1)
    ids = home / "ids.txt"
    ids.write_text(f"W{work}")
    out = home / "scores.csv"
    words = ["--ids", str(ids), "--corpus", str(folder), "--prior", "shipped", "--out", str(out), "--overwrite"]
    ask("", "", "score", *words)  # compiles
    for way in ("one pass", "--citers"):
        scored = ask(f"{size}: score --ids of one work, {way}", "sciscidata", "score", *words)
        yield {**scored, "note": hashlib.sha256(out.read_bytes()).hexdigest()[:12]}
        yield ask(f"{size}: explain of one work, {way}", "sciscidata", "explain", str(folder), str(work))
        write_citers(graph)


def choose_works(folder: Path, n: int) -> list[int]:
    """Draw works with references and citers."""
    from sciscidata.graph.graph import read_graph

    graph, rng = read_graph(folder, trusted=True, whole=False), np.random.default_rng(SEED)
    works: list[int] = []
    while len(works) < n:
        at = int(rng.integers(graph.n_dated))
        if np.diff(graph.ref_offsets[at : at + 2])[0] and np.diff(graph.citer_offsets[at : at + 2])[0]:
            works.append(int(graph.work_ids[at]))
    return works


def of_graph(folder: Path, home: Path) -> Iterator[Row]:
    """Ask a graph for random works with references and citers; twice, the second time from the system's cache."""
    from sciscidata.graph.graph import read_graph

    graph, works = read_graph(folder, trusted=True, whole=False), choose_works(folder, N_IDS)
    ids = home / "ids.txt"
    ids.write_text("\n".join(f"W{work}" for work in works))
    has_citers = bool([*folder.parent.glob("citers-*")])
    task = f"{graph.n_citations / 1e9:.2f}G citations, {'--citers' if has_citers else 'one pass'}"
    for turn in ("first", "again"):
        out = str(home / f"{turn}.csv")
        words = ["--ids", str(ids), "--corpus", str(folder), "--prior", "shipped", "--out", out]
        yield ask(task, f"score {N_IDS} ids, {turn}", "score", *words)
        yield ask(task, f"explain one, {turn}", "explain", str(folder), str(works[0]))


def make(folder: Path) -> None:
    """Make the large graph."""
    from benchmarks.scale_graph import generate, repeat_graph
    from sciscidata.graph.graph import build_graph, graph_folder

    generate(folder / "edges", WORKS_OF_ONE, share_without=WITHOUT_REFERENCES)
    works, citations = (pl.scan_parquet(folder / "edges" / name) for name in ("works.parquet", "edges-*.parquet"))
    one = graph_folder(build_graph(works, citations, cache_dir=folder / "one"))
    shutil.rmtree(folder / "edges")
    repeat_graph(one, folder / "graph-all", COPIES)
    shutil.rmtree(folder / "one")


def main() -> None:
    """Print one table."""
    parser = measure.parser(__doc__)
    parser.add_argument("--size", choices=[*N_WORKS], help="graph to make, and ask for one work")
    parser.add_argument("--graph", type=Path, help="folder of a graph to ask")
    parser.add_argument("--make", type=Path, metavar="FOLDER", help="make a graph of 510M works in it, graph-all")
    parser.add_argument("--save", action="store_true", help="keep the rows")
    options = parser.parse_args()
    if options.make:
        return make(options.make)
    with TemporaryDirectory() as temporary:
        home = Path(temporary)
        if options.size:
            rows = [*of_size(options.size, home)]
        else:
            rows = [*of_graph(options.graph, home)] if options.graph else [*of_example(home), *of_server(home)]
    measure.show(rows, options)
    if options.save:
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
        others = [row for row in kept if row["task"] not in {row["task"] for row in rows}]
        load = round(os.getloadavg()[0], 1)
        RESULTS.write_text(json.dumps([*others, *({**row, "load": load} for row in rows)], indent=1) + "\n")


if __name__ == "__main__":
    main()
