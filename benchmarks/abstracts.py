"""Inverted index -> text on one thread, against a plain ``json.loads`` loop over the same real rows.

    python benchmarks/abstracts.py [--rows 50000] [--threads 1]

The rows are the abstracts of the works that come with the package, repeated. Says whether every one is equal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import zstandard

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import seconds


def json_loop(indexes):
    """Decode as one would write it first; the value to agree with."""
    texts = []
    for index in indexes:
        pairs = [(place, word) for word, places in json.loads(index).items() for place in places]
        pairs.sort(key=lambda pair: pair[0])
        texts.append(" ".join(word for _, word in pairs if word.strip()) or None)
    return texts


def real_indexes() -> list[str]:
    from sciscidata.sources.example.source import WORKS_FILE

    with zstandard.open(WORKS_FILE, "rb") as lines:
        rows = lines.read().splitlines()
    found = [json.loads(row).get("abstract_inverted_index") for row in rows]
    return [json.dumps(index, separators=(",", ":"), ensure_ascii=False) for index in found if index]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    os.environ["POLARS_MAX_THREADS"] = str(options.threads)  # read when polars is imported

    import polars as pl

    from sciscidata.records.abstracts import decode_inverted_indexes

    real = real_indexes()
    column = pl.Series((real * (options.rows // len(real) + 1))[: options.rows])
    decode_inverted_indexes(column[:10])  # compile, or load the compiled kernel

    slow, expected = seconds(lambda: json_loop(real), 2, choose=min)
    fast, texts = seconds(lambda: decode_inverted_indexes(column), 3, choose=min)
    equal = decode_inverted_indexes(pl.Series(real)).to_list() == expected
    slow_rate, fast_rate = len(real) / slow, options.rows / fast
    print(f"json.loads loop  {slow_rate:>9,.0f} rows/s   ({len(real):,} real rows)")
    print(f"kernel           {fast_rate:>9,.0f} rows/s   ({len(texts):,} rows, {options.threads} thread(s))")
    print(f"ratio            {fast_rate / slow_rate:>9.1f} x      every real row equal: {equal}")


if __name__ == "__main__":
    main()
