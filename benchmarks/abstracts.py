"""Inverted index -> text on one thread, against a plain ``json.loads`` loop over the same real rows.

    python benchmarks/abstracts.py [--data ../shared/data] [--rows 50000] [--threads 1]

Needs the real OpenAlex records of data/README.md. Says whether every row is equal.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from pathlib import Path


def json_loop(indexes):
    """Decode as one would write it first; the value to agree with."""
    texts = []
    for index in indexes:
        pairs = [(place, word) for word, places in json.loads(index).items() for place in places]
        pairs.sort(key=lambda pair: pair[0])
        texts.append(" ".join(word for _, word in pairs if word.strip()) or None)
    return texts


def real_indexes(data: Path) -> list[str]:
    files = [data / "openalex" / name for name in ("synergy_A.works.jsonl.gz", "openalexpro_A.works.jsonl.gz")]
    found = []
    for file in files:
        with gzip.open(file) as lines:
            found.extend(json.loads(line).get("abstract_inverted_index") for line in lines if line.strip())
    return [json.dumps(index, separators=(",", ":"), ensure_ascii=False) for index in found if index]


def best_of(runs, action):
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        result = action()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    os.environ["POLARS_MAX_THREADS"] = str(options.threads)  # read when polars is imported

    import polars as pl

    from sciscidata.records.abstracts import decode_inverted_indexes

    real = real_indexes(options.data)
    column = pl.Series((real * (options.rows // len(real) + 1))[: options.rows])
    decode_inverted_indexes(column[:10])  # compile, or load the compiled kernel

    slow, expected = best_of(2, lambda: json_loop(real))
    fast, texts = best_of(3, lambda: decode_inverted_indexes(column))
    equal = decode_inverted_indexes(pl.Series(real)).to_list() == expected
    slow_rate, fast_rate = len(real) / slow, options.rows / fast
    print(f"json.loads loop  {slow_rate:>9,.0f} rows/s   ({len(real):,} real rows)")
    print(f"kernel           {fast_rate:>9,.0f} rows/s   ({len(texts):,} rows, {options.threads} thread(s))")
    print(f"ratio            {fast_rate / slow_rate:>9.1f} x      every real row equal: {equal}")


if __name__ == "__main__":
    main()
