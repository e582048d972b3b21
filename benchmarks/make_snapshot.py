"""Write an OpenAlex snapshot of any size in the layout of 2026, in either edition, with manifests and deleted ids.

    python benchmarks/make_snapshot.py FOLDER --parts 4 --records 20000 [--edition jsonl|parquet|both]

The records are synthetic, with the fields, sizes and oddities of real ones (about 6.5 KB each, 1.3 KB compressed).
Part k holds the records of part 0 under other ids: texts repeat from part to part, which no reader profits from.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic

_URL = "https://openalex.org/"
_MAX_INDEX_BYTES = 32_760
_N_DELETED = 3  # records of part 0
_STRINGS = pa.list_(pa.string())


def _struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


_NAMED = _struct(id=pa.string(), display_name=pa.string())
_TOPIC = _struct(
    id=pa.string(), display_name=pa.string(), score=pa.float64(), subfield=_NAMED, field=_NAMED, domain=_NAMED
)
_SOURCE = _struct(id=pa.string(), display_name=pa.string(), issn_l=pa.string(), issn=_STRINGS, type=pa.string())
_LOCATION = _struct(
    source=_SOURCE, is_oa=pa.bool_(), landing_page_url=pa.string(), pdf_url=pa.string(), version=pa.string()
)
_AUTHORSHIP = _struct(
    author=_NAMED, author_position=pa.string(), institutions=pa.list_(_NAMED), raw_affiliation_strings=_STRINGS
)
#: Of the 49 columns of the Parquet edition those that weigh something, and all that are read.
SCHEMA = pa.schema(
    {
        "id": pa.string(), "doi": pa.string(), "title": pa.string(), "display_name": pa.string(),
        "publication_date": pa.date32(), "publication_year": pa.int32(), "language": pa.string(), "type": pa.string(),
        "authorships": pa.list_(_AUTHORSHIP), "primary_topic": _TOPIC, "topics": pa.list_(_TOPIC),
        "concepts": pa.list_(
            _struct(id=pa.string(), wikidata=pa.string(), display_name=pa.string(), level=pa.int32(),
                    score=pa.float64())
        ),
        "locations": pa.list_(_LOCATION), "primary_location": _LOCATION, "is_retracted": pa.bool_(),
        "is_xpac": pa.bool_(), "referenced_works": _STRINGS, "related_works": _STRINGS,
        "abstract_inverted_index": pa.string(), "cited_by_count": pa.int64(),
        "counts_by_year": pa.list_(_struct(year=pa.int32(), cited_by_count=pa.int64())),
        "created_date": pa.timestamp("us"), "updated_date": pa.timestamp("us"),
    }
)  # fmt: skip


def export_index(index: dict[str, list[int]] | None) -> str | None:
    """Give the text of an index as the export does: beyond 32,760 bytes, what lies before the last bracket."""
    if index is None:
        return None
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    encoded = text.encode()
    if len(encoded) <= _MAX_INDEX_BYTES:
        return text
    head, bracket, _ = encoded[:_MAX_INDEX_BYTES].decode("utf-8", "ignore").rpartition("]")
    return head + bracket + "}" if bracket else None


def export_record(record: dict) -> dict:
    """Give a record of the API the form of the snapshot's rows: all columns, nulls written, the index as text."""
    row = {name: record.get(name) for name in SCHEMA.names}
    row["abstract_inverted_index"] = export_index(row["abstract_inverted_index"])
    return row


def json_lines(rows: Iterable[dict]) -> bytes:
    """Write exported rows as the JSONL edition does: the index as a map again, null if its text is broken."""
    lines = []
    for row in rows:
        index = row["abstract_inverted_index"]
        try:
            row = row | {"abstract_inverted_index": index and json.loads(index)}
        except ValueError:
            row = row | {"abstract_inverted_index": None}
        lines.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    return "".join(lines).encode()


def arrow_table(rows: Iterable[dict]) -> pa.Table:
    """Hold exported rows as the Parquet edition does."""
    columns = {name: [_fit(row[name], SCHEMA.field(name).type) for row in rows] for name in SCHEMA.names}
    for name in ("publication_date", "created_date", "updated_date"):
        parsed = (
            pl.Series(columns[name], dtype=pl.String).str.slice(0, 26).str.to_datetime(strict=False, time_unit="us")
        )
        columns[name] = parsed.cast(pl.Date) if name == "publication_date" else parsed
    return pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}, SCHEMA)


def _fit(value, kind):
    """Keep of nested values what the schema names."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {
            kind.field(i).name: _fit(value.get(kind.field(i).name), kind.field(i).type) for i in range(kind.num_fields)
        }
    if pa.types.is_list(kind):
        return [_fit(entry, kind.value_type) for entry in value]
    return float(value) if pa.types.is_floating(kind) else value  # scores of 2023 stand in quotes


def write_part(folder: Path, edition: str, name: str, rows: list[dict], lines: bytes | None = None) -> None:
    """Write one part; ``lines`` spares the JSONL edition the making of them."""
    path = folder / "data" / edition / "works" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if edition == "jsonl":
        path.with_suffix(".gz").write_bytes(gzip.compress(lines or json_lines(rows), 6, mtime=0))
    else:
        pq.write_table(arrow_table(rows), path.with_suffix(".parquet"), compression="snappy", row_group_size=20_000)


def write_manifest(folder: Path, edition: str, counts: dict[str, int], date: str = "2026-06-25") -> Path:
    """Write the manifest of what lies there; ``counts`` is part name without suffix -> records."""
    works = folder / "data" / edition / "works"
    files = []
    for path in sorted(works.glob("updated_date=*/part_*")):
        name = path.relative_to(works).as_posix()
        meta = {"content_length": path.stat().st_size, "record_count": counts[name.split(".")[0]]}
        files.append({"url": f"s3://openalex/data/{edition}/works/{name}", "meta": meta})
    manifest = {
        "date": date,
        "format": edition,
        "entity": "works",
        "record_count": sum(file["meta"]["record_count"] for file in files),
        "content_length": sum(file["meta"]["content_length"] for file in files),
        "files": files,
    }
    target = works / "manifest.json"
    target.write_text(json.dumps(manifest, indent=2))
    return target


def write_deleted(folder: Path, edition: str, ids: Iterable[int]) -> None:
    """Write the list of deleted works."""
    text = "work_id,deleted_date\n" + "".join(f"{_URL}W{number},2026-08-15\n" for number in ids)
    path = folder / "data" / edition / "works" / "deleted_ids.csv.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def synthetic_records(n: int, seed: int = 0) -> Iterator[dict]:
    """Make records like those of the API out of the synthetic world, with the fields that are heavy in real ones."""
    works, citations, _ = scan_synthetic(SyntheticConfig(n_works=n, seed=seed))
    lists = citations.group_by("citing_id").agg("cited_id")
    for row in works.join(lists, left_on="work_id", right_on="citing_id", how="left").collect().iter_rows(named=True):
        number = row["work_id"]
        topic = {"display_name": row["primary_field"], "field": {"id": f"{_URL}fields/17",
                 "display_name": row["primary_field"]}, "score": 0.98, "id": f"{_URL}T{number % 4516}"}  # fmt: skip
        source = row["source_id"] and {"id": f"{_URL}S{row['source_id']}", "display_name": row["source_name"],
                                       "issn_l": "1234-5678", "issn": ["1234-5678"], "type": "journal"}  # fmt: skip
        location = {"source": source, "is_oa": False, "landing_page_url": f"https://doi.org/{row['doi']}",
                    "pdf_url": None, "version": "publishedVersion"}  # fmt: skip
        authorships = [
            {"author_position": "middle", "author": {"id": f"{_URL}A{number * 7 + i}", "display_name": f"Ann {i} Doe"},
             "institutions": [{"id": f"{_URL}I{number % 999 + i}", "display_name": "University of Somewhere Else"}],
             "raw_affiliation_strings": ["Department of Studies, University of Somewhere Else, Some City, Country"]}
            for i in range(1 + number % 5)
        ]  # fmt: skip
        index: dict[str, list[int]] = {}
        for place, word in enumerate((row["abstract"] or "").split()):
            index.setdefault(word, []).append(place)
        concepts = [{"id": f"{_URL}C{i}", "wikidata": f"https://www.wikidata.org/wiki/Q{i}", "display_name": name,
                     "level": i, "score": 0.9 - i / 10} for i, name in enumerate(row["concepts"] * 3)]  # fmt: skip
        yield {
            "id": f"{_URL}W{number}", "doi": row["doi"] and f"https://doi.org/{row['doi']}", "title": row["title"],
            "display_name": row["title"], "publication_year": row["publication_year"],
            "publication_date": f"{row['publication_year'] or 2000}-01-01", "language": row["language"],
            "type": row["work_type"], "authorships": authorships, "primary_topic": topic, "topics": [topic] * 3,
            "concepts": concepts, "locations": [location] * 2, "primary_location": location,
            "is_retracted": row["is_retracted"], "is_xpac": number % 3 == 0,
            "referenced_works": [f"{_URL}W{cited}" for cited in row["cited_id"] or []],
            "related_works": [f"{_URL}W{number + i}" for i in range(10)], "abstract_inverted_index": index or None,
            "cited_by_count": row["cited_by_count"],
            "counts_by_year": [{"year": 2024 - i, "cited_by_count": i} for i in range(8)],
            "created_date": "2025-01-02T00:00:00", "updated_date": "2026-06-01T03:04:05.678901",
        }  # fmt: skip


def write_synthetic(folder: Path, editions: Iterable[str], n_parts: int, n_records: int, seed: int = 0) -> None:
    """Write a whole snapshot."""
    template = [export_record(record) for record in synthetic_records(n_records, seed)]
    lines = json_lines(template)
    for edition in editions:
        counts = {}
        for part in range(n_parts):
            name = f"updated_date=2026-06-{1 + part % 28:02}/part_{part:04}"
            counts[name] = n_records
            shifted = re.sub(
                rb"openalex\.org/W([0-9]+)", lambda m, k=part << 34: b"openalex.org/W%d" % (int(m[1]) + k), lines
            )
            rows = [] if edition == "jsonl" else _rows_of(shifted)
            write_part(folder, edition, name, rows, shifted)
        write_deleted(folder, edition, [int(row["id"].rpartition("W")[2]) for row in template[:_N_DELETED]])
        write_manifest(folder, edition, counts)


def _rows_of(lines: bytes) -> list[dict]:
    rows = [json.loads(line) for line in lines.splitlines()]
    return [row | {"abstract_inverted_index": export_index(row["abstract_inverted_index"])} for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--records", type=int, default=20_000, help="in each part")
    parser.add_argument("--edition", choices=("jsonl", "parquet", "both"), default="both")
    options = parser.parse_args()
    editions = ("jsonl", "parquet") if options.edition == "both" else (options.edition,)
    write_synthetic(options.folder, editions, options.parts, options.records)


if __name__ == "__main__":
    main()
