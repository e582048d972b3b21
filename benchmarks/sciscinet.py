"""SciSciNet: all rows to labelled JSON lines, a slice out of a large table without its texts, all of it as a corpus.

    python benchmarks/make_sciscinet.py FOLDER --works 500000
    python benchmarks/sciscinet.py FOLDER [--part all|baseline|slice|ingest] [--score rank] [--novelty-rule uzzi]

Every part runs in a process of its own, so that its peak memory is its own. The baseline is the flattener one would
write first: Parquet batches, ``json.loads`` for every abstract, ``json.dumps`` for every row.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import cpu_seconds, in_own_process, report

TEXTS = "sciscinet_papertitleabstract.parquet"
PARTS = ("all", "baseline", "slice", "ingest")


def bytes_read():
    """Bytes this process has asked the disk's files for; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in lines)["rchar"])


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
    start, cpu = time.perf_counter(), cpu_seconds()
    written = write_labelled(tables.in_text_order(), labelled, Path(out) / "all", source=tables.provenance)
    seconds = time.perf_counter() - start
    report(rows=written["rows"], seconds=seconds, cpu=cpu_seconds() - cpu, out_mb=written["bytes"] / 1e6)


def flatten(folder, out, limit):
    """Read, decode, join and write as a plain script would; only the fields that it needs no other table for."""
    import pyarrow.parquet as pq

    papers = pq.read_table(
        Path(folder) / "sciscinet_papers.parquet", columns=["paperid", "year", "cited_by_count", "disruption"]
    )
    facts = {row["paperid"]: row for batch in papers.to_batches() for row in batch.to_pylist()}
    start, cpu, n = time.perf_counter(), cpu_seconds(), 0
    with (Path(out) / "flat.jsonl").open("w") as file:
        for batch in pq.ParquetFile(Path(folder) / "sciscinet_papertitleabstract.parquet").iter_batches(8_192):
            for row in batch.to_pylist():
                index = row["abstract_inverted_index"]
                places = [(at, word) for word, found in json.loads(index).items() for at in found] if index else []
                row["abstract"] = " ".join(word for _, word in sorted(places)) or None
                file.write(json.dumps({**row, **facts[row["paperid"]]}) + "\n")
                n += 1
            if n >= limit:
                break
    report(rows=n, seconds=time.perf_counter() - start, cpu=cpu_seconds() - cpu)


def take_slice(folder, out, options):
    from sciscidata.config import BuildConfig
    from sciscidata.label_thresholds import LabelThresholds
    from sciscidata.novelty.config import NoveltyConfig
    from sciscidata.pipeline import build
    from sciscidata.sampling.split import SplitConfig
    from sciscidata.sources.sciscinet.source import SciSciNet, SciSciNetConfig

    rounds, read_works = [], SciSciNet.read_works

    def count_round(tables, work_ids):
        rounds.append(len(work_ids))
        return read_works(tables, work_ids)

    SciSciNet.read_works = count_round
    start, cpu, read = time.perf_counter(), cpu_seconds(), bytes_read()
    release = build(
        BuildConfig(
            source=SciSciNetConfig(folder=folder),
            out=Path(out) / "slice",
            cache_dir=Path(out) / "cache",
            novelty=NoveltyConfig(score=options.score),
            thresholds=LabelThresholds(novelty_rule=options.novelty_rule),
            split=SplitConfig(n_train=options.n_train, n_test=options.n_test, balance=options.balance),
        )
    )
    counts = release.manifest["counts"]
    report(
        rows=counts["filters"]["works"],
        texts=counts["text"]["read"],
        seconds=time.perf_counter() - start,
        cpu=cpu_seconds() - cpu,
        read_mb=(bytes_read() - read) / 1e6,
        rounds=len(rounds),
        text_file_mb=(Path(folder) / TEXTS).stat().st_size / 1e6,
    )


def write_corpus_of(folder, out):
    from sciscidata.sources.sciscinet.source import SciSciNetConfig
    from sciscidata.stages import ingest

    start, cpu = time.perf_counter(), cpu_seconds()
    texts = (Path(folder) / TEXTS).exists()
    corpus = ingest(SciSciNetConfig(folder=folder), Path(out) / "corpus", cache_dir=out, texts=texts)
    rows = corpus.provenance["works"]
    report(rows=rows, seconds=time.perf_counter() - start, cpu=cpu_seconds() - cpu)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=PARTS, help="run one part here; without: all of them")
    parser.add_argument("--limit", type=int, default=50_000, help="rows of the baseline")
    parser.add_argument("--n-train", type=int, default=5_000)
    parser.add_argument("--n-test", type=int, default=500)
    parser.add_argument("--score", choices=["sigmoid", "rank"], default="sigmoid", help="of the slice")
    parser.add_argument("--novelty-rule", choices=["margin", "uzzi"], default="margin", help="of the slice")
    parser.add_argument("--balance", choices=["disruption", "novelty", "joint"], default="disruption")
    options = parser.parse_args()
    if options.part is None:
        for part in PARTS:
            sizes = ("--n-train", str(options.n_train), "--n-test", str(options.n_test), "--limit", str(options.limit))
            found = in_own_process(__file__, str(options.folder), "--part", part, *sizes)
            rate, per_cpu = found["rows"] / found["seconds"], found["rows"] / found["cpu"]
            print(f"{part:<10}{found['rows']:>12,} rows {found['seconds']:>8.1f} s {rate:>10,.0f} rows/s", end="")
            print(f" {per_cpu:>10,.0f} rows per CPU second   peak {found['peak_gb']:.2f} GB")
            print(
                {name: value for name, value in found.items() if name in ("texts", "rounds") or name.endswith("_mb")}
                or ""
            )
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as out:
        folder = str(options.folder)
        if options.part == "all":
            write_all(folder, out)
        elif options.part == "baseline":
            flatten(folder, out, options.limit)
        elif options.part == "ingest":
            write_corpus_of(folder, out)
        else:
            take_slice(folder, out, options)


if __name__ == "__main__":
    main()
