"""SciSciNet: all rows to labelled JSON lines, a slice out of a large table without its texts, all of it as a corpus.

    python benchmarks/sciscinet.py --works 500000           tables made for this, and removed
    python benchmarks/sciscinet.py --folder FOLDER [--part all|baseline|slice|ingest] [--score rank]

FOLDER has tables of make_sciscinet.py. Every part runs in a separate process. The baseline is the flattener one
would write first: Parquet batches, ``json.loads`` for every abstract, ``json.dumps`` for every row.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.measure import report, timed, try_process

TEXTS = "sciscinet_papertitleabstract.parquet"
#: The task and the tool of each part.
PARTS = {
    "all": ("every row labelled", "sciscidata"),
    "baseline": ("every row labelled", "`json.loads` loop, only papers joined"),
    "slice": ("a slice", "sciscidata"),
    "ingest": ("ingest", "sciscidata"),
}


def bytes_read():
    """Bytes this process has asked the disk's files for; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["rchar"])


def tell(cost, rows, **figures):
    """Report what ``rows`` took."""
    told = "".join(f"; {name.replace('_', ' ')} {figure:,.0f}" for name, figure in figures.items())
    report(**cost, note=f"{rows:,} rows: {rows / cost['cpu_s']:,.0f} a CPU second{told}")


def write_all(folder, out):
    import polars as pl

    from sciscidata.label_thresholds import compute_disruption_labels, compute_novelty_labels
    from sciscidata.release.export import write_labelled
    from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet
    from sciscidata.sources.sciscinet.works import plain_texts

    # Compile, or load what is compiled: once per machine, not per row.
    pl.DataFrame({"a": ['{"a":[0]}']}).select(plain_texts("a", inverted=True))
    tables = scan_sciscinet(SciSciNetConfig(folder=folder))
    labelled = compute_novelty_labels(compute_disruption_labels(tables.structure))
    cost, written = timed(
        lambda: write_labelled(tables.in_text_order(), labelled, Path(out) / "all", source=tables.provenance)
    )
    tell(cost, written["rows"])


def flatten(folder, out, limit):
    """Read, decode, join and write as a plain script would; only the fields that it needs no other table for."""
    import pyarrow.parquet as pq

    papers = pq.read_table(
        Path(folder) / "sciscinet_papers.parquet", columns=["paperid", "year", "cited_by_count", "disruption"]
    )
    facts = {row["paperid"]: row for batch in papers.to_batches() for row in batch.to_pylist()}

    def write():
        n = 0
        with (Path(out) / "flat.jsonl").open("w") as file:
            for batch in pq.ParquetFile(Path(folder) / TEXTS).iter_batches(8_192):
                for row in batch.to_pylist():
                    index = row["abstract_inverted_index"]
                    places = [(at, word) for word, found in json.loads(index).items() for at in found] if index else []
                    row["abstract"] = " ".join(word for _, word in sorted(places)) or None
                    file.write(json.dumps({**row, **facts[row["paperid"]]}) + "\n")
                    n += 1
                if n >= limit:
                    break
        return n

    tell(*timed(write))


def take_slice(folder, out, options):
    from sciscidata.config import BuildConfig
    from sciscidata.label_thresholds import LabelThresholds
    from sciscidata.novelty.config import NoveltyConfig
    from sciscidata.pipeline import build
    from sciscidata.sampling.config import SplitConfig
    from sciscidata.sources.sciscinet.source import SciSciNet, SciSciNetConfig

    rounds, read_works = [], SciSciNet.read_works

    def count_round(tables, work_ids):
        rounds.append(len(work_ids))
        return read_works(tables, work_ids)

    SciSciNet.read_works = count_round
    read = bytes_read()
    config = BuildConfig(
        source=SciSciNetConfig(folder=folder),
        out=Path(out) / "slice",
        cache_dir=Path(out) / "cache",
        novelty=NoveltyConfig(score=options.score),
        thresholds=LabelThresholds(novelty_rule=options.novelty_rule),
        split=SplitConfig(n_train=options.n_train, n_test=options.n_test, balance=options.balance),
    )
    cost, release = timed(lambda: build(config))
    counts = release.manifest["counts"]
    sizes = {"MB_read": (bytes_read() - read) / 1e6, "MB_of_texts": (Path(folder) / TEXTS).stat().st_size / 1e6}
    tell(cost, counts["filters"]["works"], texts=counts["text"]["read"], rounds=len(rounds), **sizes)


def write_corpus_of(folder, out):
    from sciscidata.sources.sciscinet.source import SciSciNetConfig
    from sciscidata.stages import ingest

    texts = (Path(folder) / TEXTS).exists()
    config = SciSciNetConfig(folder=folder)
    cost, corpus = timed(lambda: ingest(config, Path(out) / "corpus", cache_dir=out, texts=texts))
    tell(cost, corpus.provenance["works"])


def run_parts(folder, name, options):
    """Run every part in a separate process, or only the one asked for."""
    sizes = ("--n-train", str(options.n_train), "--n-test", str(options.n_test), "--limit", str(options.limit))
    choices = ("--score", options.score, "--novelty-rule", options.novelty_rule, "--balance", options.balance)
    rows = []
    for part in [options.part] if options.part else PARTS:
        arguments = ("--measured", part, "--folder", str(folder), *sizes, *choices)
        task, tool = PARTS[part]
        task += f" of {options.n_train:,} + {options.n_test:,}" if part == "slice" else ""
        rows.append(try_process(f"SciSciNet, {name}: {task}", tool, __file__, *arguments))
    measure.show(rows, options)


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--folder", type=Path, help="tables of make_sciscinet.py")
    parser.add_argument("--works", type=int, default=100_000, help="without a folder: so many")
    parser.add_argument("--limit", type=int, default=50_000, help="rows of the baseline")
    parser.add_argument("--n-train", type=int, default=5_000)
    parser.add_argument("--n-test", type=int, default=500)
    parser.add_argument("--score", choices=["sigmoid", "rank"], default="sigmoid", help="of the slice")
    parser.add_argument("--novelty-rule", choices=["margin", "uzzi"], default="margin", help="of the slice")
    parser.add_argument("--balance", choices=["disruption", "novelty", "joint"], default="disruption")
    parser.add_argument("--measured", choices=PARTS, help=measure.HIDDEN)
    options = parser.parse_args()
    if options.measured is None:
        with tempfile.TemporaryDirectory() as made:
            if options.folder is None:
                make = Path(__file__).with_name("make_sciscinet.py")
                measure.run([sys.executable, str(make), made, "--works", str(options.works)])
            run_parts(options.folder or made, options.folder or f"{options.works:,} works", options)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as out:
        folder = str(options.folder)
        if options.measured == "all":
            write_all(folder, out)
        elif options.measured == "baseline":
            flatten(folder, out, options.limit)
        elif options.measured == "ingest":
            write_corpus_of(folder, out)
        else:
            take_slice(folder, out, options)


if __name__ == "__main__":
    main()
