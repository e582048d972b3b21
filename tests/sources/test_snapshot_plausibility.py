"""Parts with scrambled fields are found and kept out; real and synthetic ones pass."""

from __future__ import annotations

import json

import polars as pl
import pytest

from benchmarks.make_snapshot import export_record, json_lines, synthetic_records, write_manifest, write_part
from sciscidata.cli.main import main
from sciscidata.corpus.folder import scan_corpus
from sciscidata.errors import EmptyInputError
from sciscidata.sources.snapshot.plausibility import Tally, find_implausible
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot
from tests.conftest import example_lines
from tests.records.test_work import tables


@pytest.fixture(scope="module")
def lines():
    return json_lines(map(export_record, synthetic_records(1_500)))


@pytest.fixture(scope="module")
def frames(lines):
    """Works and citations of real records (of 2023, without languages), and of synthetic ones."""
    return {name: tables(*text.splitlines()) for name, text in
            (("real", b"\n".join(example_lines())), ("synthetic", lines))}  # fmt: skip


def judge(works, citations, n_malformed=0, n_batches=1):
    tally = Tally(2026)
    for _ in range(n_batches):
        tally.add(works, citations, n_malformed)
    return find_implausible(tally.counts())


SCRAMBLES = {
    "titles are gone": ({"title": pl.lit(None, pl.String())}, "with a title"),
    "titles are types": ({"title": pl.col("work_type")}, "titles that no neighbour has"),
    "types are titles": ({"work_type": pl.col("title")}, "types that look like one"),
    "types are DOIs": ({"work_type": pl.col("doi")}, "types that look like one"),
    "years are gone": ({"publication_year": pl.lit(None, pl.Int32())}, "with a year"),
    "years a century early": ({"publication_year": pl.col("publication_year") - 100}, "years since 1990"),
    "years a century late": ({"publication_year": pl.col("publication_year") + 100}, "years from 1400"),
    "years are counts": ({"publication_year": pl.col("cited_by_count").cast(pl.Int32)}, "years from 1400"),
    "languages are titles": ({"language": pl.col("title")}, "languages that look like one"),
    "languages are types": ({"language": pl.col("work_type")}, "languages that look like one"),
    "languages are all English": ({"language": pl.lit("en")}, "in the most common language"),
    "DOIs are titles": ({"doi": pl.col("title")}, "DOIs that begin"),
}


@pytest.mark.parametrize("kind", ["real", "synthetic"])
def test_every_scramble_is_found_and_the_records_themselves_pass(frames, kind):
    works, citations = frames[kind]
    assert judge(works, citations, n_batches=12) is None
    for scramble, expected in SCRAMBLES.values():
        assert expected in judge(works.with_columns(**scramble), citations, n_batches=12)
    assert judge(works, citations.clear(), n_batches=2).startswith("with references 0.0 % of")
    assert "references that name a work" in judge(works, citations, n_malformed=citations.height)
    few = works.head(900).with_columns(title=pl.lit(None, pl.String()))
    assert judge(few, citations) is None
    part = pl.col("work_id") % 3 == 0  # a third of the works is enough
    some = works.with_columns(work_type=pl.when(part).then("title").otherwise("work_type"))
    assert "types that look like one" in judge(some, citations)


def test_an_implausible_part_is_named_and_kept_out_until_it_is_trusted(lines, tmp_path, caplog, capsys):
    records = [json.loads(line) for line in lines.splitlines()]
    names = ["updated_date=2026-06-01/part_0000", "updated_date=2026-06-09/part_0000"]
    write_part(tmp_path / "s", "jsonl", names[0], [], lines)
    scrambled = [
        record | {"id": f"{record['id']}000", "type": record["title"], "title": record["type"], "is_xpac": False}
        for record in records
    ]
    write_part(tmp_path / "s", "jsonl", names[1], [], b"".join(json.dumps(row).encode() + b"\n" for row in scrambled))
    manifest = write_manifest(tmp_path / "s", "jsonl", dict.fromkeys(names, 1_500))
    config = {"folder": str(tmp_path / "s"), "n_workers": 1, "include_xpac": True}
    corpus = ingest_snapshot(SnapshotConfig(**config), tmp_path / "out")
    assert corpus.provenance["works"] == corpus.works.collect().height == 1_500
    assert list(corpus.provenance["implausible_parts"]) == [f"{names[1]}.gz"]
    reason = corpus.provenance["implausible_parts"][f"{names[1]}.gz"]
    assert reason.startswith("titles that no neighbour has ")
    assert "types that look like one 0.0 % of 1," in reason
    assert reason in caplog.text
    assert "implausible='keep'" in caplog.text

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("part-*")}
    flags = ["--include-xpac", "--n-workers", "1", "--implausible", "keep"]
    assert main(["ingest", "--snapshot", config["folder"], "--out", str(tmp_path / "out"), *flags]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before  # nothing was read again
    kept = scan_corpus(tmp_path / "out")
    assert kept.works.collect().height == 3_000
    assert kept.provenance["implausible_parts"] == corpus.provenance["implausible_parts"]
    assert reason[:40] in " ".join(capsys.readouterr().out.split())

    (tmp_path / "s/data/jsonl/works" / f"{names[0]}.gz").unlink()
    manifest.unlink()
    with pytest.raises(EmptyInputError, match=r"1 part implausible"):
        ingest_snapshot(SnapshotConfig(**config, allow_missing_manifest=True), tmp_path / "out")
