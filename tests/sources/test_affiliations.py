"""Where authors work: every field of a real record arrives as plain JSON has it, from every source that says it."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path

import polars as pl
import pytest

from sciscidata import CorpusConfig, ExampleConfig, RecordsConfig, SnapshotConfig, ingest, scan_authors, scan_records
from sciscidata.corpus.folder import scan_authors_of
from sciscidata.corpus.writer import write_corpus
from sciscidata.errors import ReleaseExistsError
from sciscidata.records.authors_table import AUTHORS
from sciscidata.storage import BLANK_SEAL, seal_json

_FILES = ("synergy_A.works.jsonl.gz", "openalexpro_A.works.jsonl.gz")


def read_plainly(records: list[dict]) -> list[tuple]:
    """Read authors by loops over JSON, one work after another."""
    rows, seen = [], set()
    for record in records:
        if record["id"] in seen:
            continue
        seen.add(record["id"])
        people = {}
        for number, one in enumerate(record["authorships"], 1):
            places = [(_number(i["id"]), i["ror"], i["country_code"]) for i in one.get("institutions", [])]
            places = [place for place in places if place != (None, None, None)]
            known = {country for *_, country in places}
            places += [(None, None, country) for country in one.get("countries", []) if country not in known]
            author = one["author"]
            name = one.get("raw_author_name") or author["display_name"]
            facts = (number, one["author_position"], one["is_corresponding"], name, author["orcid"])
            people.setdefault(author["id"] or number, (author["id"], facts, []))[2].extend(places)
        for author_id, facts, places in people.values():
            lists = zip(*dict.fromkeys(places), strict=True)
            rows.append((_number(record["id"]), _number(author_id), *facts, *([*map(list, lists)] or ([], [], []))))
    return rows


def _number(url: str | None) -> int | None:
    return int(url.rsplit("/", 1)[1][1:]) if url else None


@pytest.mark.parametrize("name", _FILES)
def test_every_field_of_real_records_is_that_of_plain_json(shared_data, tmp_path, name):
    path = shared_data / "openalex" / name
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        records = [json.loads(line) for line in file]
    expected = read_plainly(records)
    lines = scan_authors(RecordsConfig(inputs=(str(path),))).collect()
    assert lines.rows() == expected
    assert lines.schema == AUTHORS
    # The same as Parquet of a snapshot: each field in a column of its own.
    part = tmp_path / "data" / "parquet" / "works" / "updated_date=2026-01-01" / "part_0000.parquet"
    part.parent.mkdir(parents=True)
    fields = [{"id": one["id"], "publication_year": 2000, "authorships": one["authorships"]} for one in records]
    columns = pl.DataFrame(fields, infer_schema_length=None).unique("id", keep="first", maintain_order=True)
    columns.write_parquet(part)
    snapshot = SnapshotConfig(folder=str(tmp_path), allow_missing_manifest=True)
    assert scan_authors(snapshot).collect().equals(lines)
    two = scan_authors(snapshot).select("country_codes", "work_id").collect()
    assert two.equals(lines.select("country_codes", "work_id"))


def test_pages_of_answers_of_the_api_are_read_as_their_records_are(shared_data):
    pages = sorted((shared_data / "openalex" / "cassettes").glob("results_page_*.json"))
    records = [record for page in pages for record in json.loads(page.read_bytes())["results"]]
    read = scan_authors(RecordsConfig(inputs=tuple(map(str, pages)))).collect()
    assert read.rows() == read_plainly(records)
    assert len(records) > 1


def test_the_example_says_where_its_authors_work(shared_data):
    records = RecordsConfig(inputs=(str(shared_data / "openalex" / _FILES[0]),))
    of_records, of_example = scan_authors(records).collect(), scan_authors(ExampleConfig()).collect()
    assert of_example.schema == AUTHORS
    persons = ["author_name", "orcid"]
    assert (
        of_example.drop(persons)
        .sort("work_id", "author_number")
        .equals(of_records.drop(persons).sort("work_id", "author_number"))
    )
    assert of_example.select(pl.col(persons).count()).row(0) == (0, 0)


def record(work: int, *authorships: dict) -> dict:
    return {"id": f"https://openalex.org/W{work}", "authorships": [*authorships], "referenced_works": []}


def write_records(folder: Path, *records: dict) -> RecordsConfig:
    (folder / "works.jsonl").write_text("\n".join(map(json.dumps, records)), "utf-8")
    return RecordsConfig(inputs=(str(folder / "works.jsonl"),))


def test_a_country_without_an_institution_counts_and_a_repeated_author_is_one(tmp_path):
    oslo = {"id": "https://openalex.org/I5", "ror": "https://ror.org/01", "country_code": "NO"}
    source = write_records(
        tmp_path,
        record(
            1,
            {"author": {"id": "https://openalex.org/A7"}, "institutions": [oslo], "countries": ["NO", "SE"]},
            {"author": {"id": None, "display_name": "N. N."}, "institutions": [], "countries": ["DK"]},
            {"author": {"id": "A7"}, "institutions": [oslo, {"id": "I6"}, {"display_name": "somewhere"}]},
            {"author": None, "raw_author_name": ""},
        ),
    )
    rows = scan_authors(source).collect().select("author_id", "author_number", "author_name", *AUTHORS.names()[-3:])
    assert rows.rows() == [
        (7, 1, None, [5, 6, None], ["https://ror.org/01", None, None], ["NO", None, "SE"]),
        (None, 2, "N. N.", [None], [None], ["DK"]),
        (None, 4, None, [], [], []),
    ]


def test_odd_types_in_a_record_are_null_and_lose_no_author(tmp_path):
    odd = {"author": {"id": "A7", "orcid": 5}, "is_corresponding": "yes", "author_position": 1, "institutions": "x"}
    source = write_records(tmp_path, record(1, odd, odd | {"author": {"id": "A8"}, "institutions": [None, {"id": 3}]}))
    rows = scan_authors(source).collect()
    assert rows["author_id"].to_list() == [7, 8]
    assert rows.drop("work_id", "author_id", "author_number", "author_name").unique().rows() == [
        (None, None, None, [], [], [])
    ]


def test_a_corpus_of_an_earlier_version_gives_its_ids_and_says_what_is_missing(tmp_path, caplog):
    source = write_records(tmp_path, record(1, {"author": {"id": "A7"}, "countries": ["NO"]}))
    corpus = scan_records(source)
    write_corpus(corpus, tmp_path / "old", authors=scan_authors(source).select("work_id", "author_id"))
    with caplog.at_level(logging.WARNING):
        old = scan_authors(CorpusConfig(folder=str(tmp_path / "old")))
    assert old.collect().rows() == [(1, 7)]
    assert "earlier version" in caplog.text
    assert "keep_authors=True" in caplog.text
    with pytest.raises(ReleaseExistsError, match="overwrite=True"):
        write_corpus(corpus, tmp_path / "old", authors=scan_authors(source))
    write_corpus(corpus, tmp_path / "old", authors=scan_authors(source), overwrite=True)
    caplog.clear()
    new = scan_authors(CorpusConfig(folder=str(tmp_path / "old")))
    assert new.select("country_codes").collect().rows() == [(["NO"],)]
    assert not caplog.text


def test_a_part_of_an_earlier_version_is_read_again_for_institutions(tmp_path):
    part = tmp_path / "data" / "jsonl" / "works" / "updated_date=2026-01-01" / "part_0000.gz"
    part.parent.mkdir(parents=True)
    part.write_bytes(gzip.compress(json.dumps(record(1, {"author": {"id": "A7"}, "countries": ["NO"]})).encode()))
    source, out = SnapshotConfig(folder=str(tmp_path), allow_missing_manifest=True, n_workers=1), tmp_path / "corpus"
    ingest(source, out, cache_dir=tmp_path, keep_authors=True)
    (table,) = (out / "authors").iterdir()
    (receipt,) = (out / "receipts").iterdir()

    def make_older():
        facts = json.loads(receipt.read_bytes())
        del facts["counts"]["author_ids"]
        facts = {name: value for name, value in facts.items() if name not in BLANK_SEAL}
        receipt.write_bytes(seal_json(facts, end="", indent=1, ensure_ascii=False))

    make_older()
    before = table.stat().st_mtime_ns
    ingest(source, out, cache_dir=tmp_path, keep_authors=True)
    assert table.stat().st_mtime_ns > before
    assert scan_authors_of(out).select("country_codes").collect().rows() == [(["NO"],)]
    make_older()
    works = out / "works" / table.name
    before = works.stat().st_mtime_ns
    ingest(source, out, cache_dir=tmp_path)
    assert works.stat().st_mtime_ns == before  # without authors, the receipt serves
