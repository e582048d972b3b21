"""Make the works of `--source example` from the records of SYNERGY: python scripts/make_example.py RECORDS.

RECORDS is one file of JSON lines: those of works_1.zip of Jeyaraman_2020, Oud_2018, Chou_2004, Nelson_2002 and
Donners_2021, in this order, from github.com/asreview/synergy-dataset at fcbd981087e525b3af0584d55cf1107f73ec901e.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import zstandard

from sciscidata import RecordsConfig, scan_authors
from sciscidata.corpus.folder import options_of
from sciscidata.records.json_record import read_record
from sciscidata.records.work_columns import rows_of_records
from sciscidata.sources.example.source import AUTHORS_FILE, WORKS_FILE
from sciscidata.sources.record_files import read_values
from sciscidata.storage.parquet import write_parquet

_KEPT = ("id", "doi", "title", "publication_year", "publication_date", "type", "cited_by_count", "is_retracted")
_LONG = ("updated_date", "referenced_works", "abstract_inverted_index")  # last, which packs better


def shorten(line: bytes) -> bytes:
    """Keep the fields of a record that are read, as they are: the work is the same."""
    record: dict[str, Any] = json.loads(line)
    row = rows_of_records([(0, read_record(line))]).rows
    names = {*row["concepts"].item(), row["primary_field"].item()}
    concepts = [
        {name: concept[name] for name in ("display_name", "level", "score")}
        for concept in record["concepts"]
        if concept["display_name"] in names
    ]
    source = (record["primary_location"] or {}).get("source") or {}
    venue = {"source": {name: source.get(name) for name in ("id", "display_name")}}
    short = {name: record[name] for name in _KEPT} | {"primary_location": venue if source else None}
    short |= {"concepts": concepts, "authorships": [{}] * len(record["authorships"])}  # their number is read
    short |= {name: record[name] for name in ("is_authors_truncated", *_LONG) if name in record}
    if source.get("id") is None and record["host_venue"]:
        short["host_venue"] = {name: record["host_venue"].get(name) for name in ("id", "display_name")}
    written = json.dumps(short, ensure_ascii=False, separators=(",", ":")).encode()
    if not rows_of_records([(0, read_record(written))]).rows.equals(row):
        sys.exit(f"{record['id']} is another work without the fields that were left out")
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", metavar="RECORDS", type=Path)
    path = parser.parse_args().records
    lines = [shorten(line) for _, line in read_values(path)]
    # A window of 32 MB sees all works.
    parameters = zstandard.ZstdCompressionParameters.from_level(22, window_log=25, write_checksum=True)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compress(b"".join(line + b"\n" for line in lines))
    WORKS_FILE.write_bytes(packed)
    print(f"{WORKS_FILE}: {len(lines):,} works, {len(packed):,} bytes")
    authors = scan_authors(RecordsConfig(inputs=(str(path),))).sort("work_id", "author_number").collect()
    persons = [pl.lit(None, pl.String()).alias(name) for name in ("author_name", "orcid")]
    write_parquet(authors.with_columns(persons), AUTHORS_FILE, **options_of("authors") | {"compression_level": 19})
    print(f"{AUTHORS_FILE}: {authors.height:,} rows of work and author")
