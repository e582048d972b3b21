"""Own tables on disk: every kind of file gives the corpus that the frames in memory give; damage is named."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import logging
import lzma
import random
import re
from contextlib import suppress
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from pyarrow.parquet import encryption

import sciscidata as ssd
from sciscidata.cli.main import main
from sciscidata.corpus.scores import read_score_facts
from sciscidata.errors import (
    ConfigError,
    CorruptRecordError,
    InputNotFoundError,
    SchemaMismatchError,
    VerificationError,
    WorkIdError,
)
from sciscidata.release.verify import verify
from sciscidata.sampling.split import split_keys
from sciscidata.schemas import Corpus
from sciscidata.sources import record_files
from sciscidata.sources.tables import files as table_files
from sciscidata.sources.tables.files import TableFile
from sciscidata.sources.tables.source import TablesConfig, ingest_tables
from sciscidata.storage.spill import DiskSort
from tests.release.test_release import rewrite

N = 3_000
WORKS = pl.DataFrame(
    {
        "pid": [f"P{i * 7919 % N}" for i in range(N)],
        "year": [1980 + i * 7919 % N // 100 for i in range(N)],
        "court": [f'Court, {"of" if i % 2 else "at"} "{i % 13}"' for i in range(N)],
        "title": [f"On\nlines {i}" if i % 5 == 0 else f"Études; {i}" for i in range(N)],
    }
)
CITES = pl.DataFrame(
    [(f"P{i}", f"P{j}") for i in range(N) for j in {i * i % (i or 1), i * 31 % (i or 1), i // 2} if j < i],
    schema=["from", "to"],
    orient="row",
)
NAMES = {"id": "pid", "year": "year", "venue": "court", "citing": "from", "cited": "to"}


def write_json(frame: pl.DataFrame, path: Path) -> None:
    path.write_text(frame.write_ndjson())


def write_list(frame: pl.DataFrame, path: Path) -> None:
    """As DBLP is: a list with one object on a line, and the comma at the beginning of the line."""
    path.write_text("[\n" + "\n,".join(frame.write_ndjson().splitlines()) + "\n]\n")


def write_zstd(frame: pl.DataFrame, path: Path) -> None:
    path.write_bytes(zstandard.compress(frame.write_csv().encode()))


def write_mark(frame: pl.DataFrame, path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf" + frame.write_csv().replace("\r\n", "\n").encode())


KINDS = {
    "csv": lambda frame, path: frame.write_csv(path),
    "tsv": lambda frame, path: frame.write_csv(path, separator="\t", quote_style="always"),
    "semicolons": lambda frame, path: frame.write_csv(path, separator=";"),
    "windows": lambda frame, path: frame.write_csv(path, line_terminator="\r\n"),
    "byte order mark": write_mark,
    "csv.gz": lambda frame, path: path.write_bytes(gzip.compress(frame.write_csv().encode())),
    "csv.zst": write_zstd,
    "parquet": lambda frame, path: frame.write_parquet(path, row_group_size=500),
    "jsonl": write_json,
    "jsonl.gz": lambda frame, path: path.write_bytes(gzip.compress(frame.write_ndjson().encode())),
    "list": write_list,
    "list on one line": lambda frame, path: frame.write_json(path),
    "list laid out over lines": lambda frame, path: path.write_text(json.dumps(frame.to_dicts(), indent=2)),
    "feather": lambda frame, path: frame.write_ipc(path, compression="zstd"),
    "arrow stream": lambda frame, path: frame.write_ipc_stream(path),
    "index of pandas": lambda frame, path: frame.with_row_index("").write_csv(path),
    "row names of R": lambda frame, path: frame.with_row_index("").write_csv(path, quote_style="non_numeric"),
    "trailing comma": lambda frame, path: frame.with_columns(pl.lit(None).alias("")).write_csv(path),
    "index in parquet": lambda frame, path: frame.with_row_index("").write_parquet(path),
}


@pytest.fixture(scope="module")
def expected() -> Corpus:
    return ssd.from_tables(WORKS, CITES, **NAMES)


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_any_kind_give_the_corpus_of_the_frames(kind, tmp_path, expected):
    works, cites = tmp_path / "works.data", tmp_path / "[1] cites.data"  # the name says nothing, and is no pattern
    KINDS[kind](WORKS, works)
    KINDS[kind](CITES, cites)
    config = TablesConfig(works=(str(works),), citations=(str(cites),), **NAMES)
    corpus = ingest_tables(config, tmp_path / "corpus")
    assert_frame_equal(corpus.works.collect(), expected.works.collect())
    assert_frame_equal(corpus.citations.collect(), expected.citations.collect())
    assert corpus.provenance["works"] == N
    assert "/" not in json.dumps(corpus.provenance["inputs"])


def test_several_files_and_patterns_are_read_together(tmp_path, expected):
    for number, part in enumerate(WORKS.iter_slices(700)):
        part.write_csv(tmp_path / f"works-{number}.csv")
    CITES[:100].write_parquet(tmp_path / "b.parquet")
    CITES[100:].write_csv(tmp_path / "a.csv")
    files = (str(tmp_path / "b.parquet"), str(tmp_path / "*.csv").replace("*", "a"), str(tmp_path / "b.parquet"))
    config = TablesConfig(works=(str(tmp_path / "works-?.csv"),), citations=files, **NAMES)
    corpus = ingest_tables(config, tmp_path / "corpus")
    assert_frame_equal(corpus.works.collect(), expected.works.collect())
    assert_frame_equal(corpus.citations.collect(), expected.citations.collect())


def test_rows_that_exceed_memory_are_sorted_on_disk(tmp_path):
    batches = [*WORKS.with_row_index("at").iter_slices(100)]
    for run_bytes in (1, 50_000):
        (tmp_path / str(run_bytes)).mkdir()
        rows = DiskSort(["pid"], tmp_path / str(run_bytes), run_bytes=run_bytes, batch_bytes=2_000)
        for batch in batches:
            rows.add(batch)
        parts = [*rows.merge()]
        assert len(parts) > 10
        assert_frame_equal(pl.concat(parts), WORKS.with_row_index("at").sort("pid"))


def test_ids_of_whole_numbers_stay_numbers_in_parquet_and_text_in_csv(tmp_path):
    table = pl.DataFrame({"work_id": [30, 2], "publication_year": [2000, 2001], "refs": [[2], None]})
    table.write_parquet(tmp_path / "works.parquet")
    table.with_columns(refs=pl.Series(["2", None])).write_csv(tmp_path / "works.csv")
    for kind, ids in (("parquet", [2, 30]), ("csv", ["2", "30"])):
        config = TablesConfig(works=(str(tmp_path / f"works.{kind}"),), references="refs")
        corpus = ingest_tables(config, tmp_path / kind)
        rows = corpus.works.collect()
        assert rows["work_id"].to_list() == [2, 30]
        assert rows["original_id"].to_list() == ids
        assert rows.schema == corpus.works.collect_schema()
        assert corpus.citations.collect().rows() == [(30, 2)]


@pytest.mark.parametrize("first", [2**62 + 1, 2**63 - 1_000])
@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_long_whole_numbers_come_back_in_corpora_scores_and_releases(kind, first, tmp_path):
    """Of UInt64, some of the second are text only: Int64 ends at 2^63."""
    number = {name: pl.col(name).str.slice(1).cast(pl.UInt64) + first for name in ("pid", "from", "to")}
    works, cites = WORKS.with_columns(number["pid"]), CITES.with_columns(number["from"], number["to"])
    KINDS[kind](works, tmp_path / "works.data")
    KINDS[kind](cites, tmp_path / "cites.data")
    names = [word for role, name in NAMES.items() for word in (f"--{role}", name)]
    paths = ["--works", str(tmp_path / "works.data"), "--citations", str(tmp_path / "cites.data"), *names]
    corpus, cd, out = str(tmp_path / "corpus"), str(tmp_path / "cd.parquet"), str(tmp_path / "slice")
    cache = ["--cache-dir", str(tmp_path / "cache")]
    assert main(["ingest", *paths, "--title", "title", "--out", corpus]) == 0
    assert main(["cd", corpus, "--out", cd, *cache]) == 0
    known, ids = ssd.from_tables(works, cites, **NAMES, title="title"), {*map(str, works["pid"])}
    assert_frame_equal(ssd.scan_corpus(corpus).works.collect(), known.works.collect())
    scores = pl.read_parquet(cd)
    assert {*scores["original_id"].cast(pl.String)} == ids
    assert_frame_equal(scores, ssd.compute_cd_index(known.works, known.citations).sort("work_id").collect())
    draw = ["--no-require-abstract", "--n-train", "30", "--n-test", "9", "--balance", "none"]
    assert main(["build", "--corpus", corpus, *draw, *cache, "--out", out]) == 0
    assert {*ssd.read_release(out).train["openalex_id"]} < ids
    assert verify(tmp_path / "slice").counts == {"train": 30, "test": 9}


def csv_files(folder: Path) -> dict[str, tuple[str, ...]]:
    WORKS.write_csv(folder / "works.csv")
    CITES.write_csv(folder / "cites.csv")
    return {"works": (str(folder / "works.csv"),), "citations": (str(folder / "cites.csv"),)}


def test_scores_and_backgrounds_of_a_corpus_on_disk_carry_the_original_ids(tmp_path, expected):
    world, cache = tmp_path / "world", tmp_path / "cache"
    ssd.ingest(TablesConfig(**csv_files(tmp_path), **NAMES), world, cache_dir=cache)
    known = ssd.compute_cd_index(expected.works, expected.citations).sort("work_id").collect()
    cd = pl.read_parquet(ssd.write_cd_index(world, tmp_path / "cd.parquet", cache_dir=cache))
    assert_frame_equal(cd, known)
    assert read_score_facts(tmp_path / "cd.parquet")["columns"][:2] == ["work_id", "original_id"]
    shares = [
        pl.read_parquet(ssd.write_cd_index(world, tmp_path / f"{i}.parquet", shard=f"{i}/3", cache_dir=cache))
        for i in (1, 2, 3)
    ]
    assert_frame_equal(pl.concat(shares).sort("work_id"), known)
    novelty = pl.read_parquet(ssd.write_atypicality(world, tmp_path / "novelty.parquet", cache_dir=cache))
    own = ssd.compute_atypicality(expected.works, expected.citations).sort("work_id").collect()
    assert_frame_equal(novelty, own)
    assert verify(world).counts["works"] == verify(tmp_path / "cd.parquet").counts["works"] == N
    assert ssd.write_background(TablesConfig(**csv_files(tmp_path), **NAMES), tmp_path / "b.parquet", cache_dir=cache)


def test_a_second_ingest_reads_nothing_and_a_changed_file_is_another_corpus(tmp_path, monkeypatch):
    config = TablesConfig(**csv_files(tmp_path), **NAMES)
    first = ingest_tables(config, tmp_path / "corpus")
    with monkeypatch.context() as patched:
        patched.setattr(TableFile, "read", None)
        assert ingest_tables(config, tmp_path / "corpus").provenance == first.provenance
    WORKS[1:].write_csv(tmp_path / "works.csv")
    with pytest.raises(ssd.SciSciDataError, match="holds another corpus"):
        ingest_tables(config, tmp_path / "corpus")
    assert ingest_tables(config, tmp_path / "corpus", overwrite=True).provenance["works"] == N - 1


def build(folder: Path, *flags: str) -> int:
    files = csv_files(folder)
    names = [word for role, name in NAMES.items() for word in (f"--{role}", name)]
    return main(
        [
            *("build", "--works", *files["works"], "--citations", *files["citations"], *names),
            *("--no-require-abstract", "--n-train", "30", "--n-test", "9", "--cache-dir", str(folder / "cache")),
            *("--balance", "none", "--out", str(folder / "slice"), *flags),
        ]
    )


def test_a_release_names_works_by_their_original_ids_and_is_verified(tmp_path):
    assert build(tmp_path) == 0
    release = ssd.read_release(tmp_path / "slice")
    assert set(release.train["openalex_id"]) | set(release.test["openalex_id"]) <= set(WORKS["pid"])
    assert release.train.join(WORKS, left_on="openalex_id", right_on="pid")["title"].len() == 30
    assert verify(tmp_path / "slice").counts == {"train": 30, "test": 9}
    rewrite(tmp_path / "slice", "test", lambda rows: rows.with_columns(pl.col("openalex_id").str.replace("P", "Q")))
    with pytest.raises(VerificationError, match="test: rows are not in the order of their split keys"):
        verify(tmp_path / "slice")
    # Works drawn from a frame in memory lie in the same order: the split key is that of the same number.
    again = ssd.from_tables(WORKS, CITES, **NAMES)
    numbers = dict(again.works.select("original_id", "work_id").collect().iter_rows())
    keys = split_keys(pl.Series([numbers[name] for name in release.train["openalex_id"]]))
    assert keys.is_sorted()


def test_works_without_abstracts_are_drawn_by_the_flag_that_the_error_names(tmp_path, capsys):
    assert build(tmp_path, "--require-abstract") == 1
    error = capsys.readouterr().err
    remedy = "Name its texts (--title, --abstract), or draw without them: --no-require-abstract."
    assert error.splitlines()[-1].endswith(remedy)
    assert build(tmp_path) == 0
    assert verify(tmp_path / "slice").kind == "release"


def test_remarks_name_flags_in_the_summary_and_no_option_in_the_card(tmp_path, capsys):
    late = pl.DataFrame({"pid": ["Q1"], "year": [2090], "court": ["Court"], "title": ["On time"]})
    late.write_csv(tmp_path / "late.csv")
    assert build(tmp_path, "--works", str(tmp_path / "works.csv"), str(tmp_path / "late.csv")) == 0
    summary, card = capsys.readouterr().out, (tmp_path / "slice" / "README.md").read_text("utf-8")
    assert main(["describe", str(tmp_path / "slice")]) == 0
    for text in (summary, capsys.readouterr().out):
        assert "1 work is dated after" in text
        assert "name the last year: --last-year." in text
        assert "EligibilityConfig" not in text
    assert "1 work is dated after" in card
    card = re.sub(r"`sciscidata publish .*?`", "", card.replace("---", ""), flags=re.DOTALL)  # who fills in the author
    assert not re.search(r"[A-Z]\w+Config|LabelThresholds|--[a-z]", card)


def test_an_export_names_works_by_their_original_ids(tmp_path, capsys):
    files = csv_files(tmp_path)
    names = [word for role, name in NAMES.items() for word in (f"--{role}", name)]
    paths = ["--works", *files["works"], "--citations", *files["citations"]]
    places = ["--out", str(tmp_path / "all"), "--cache-dir", str(tmp_path / "cache")]
    assert main(["export", *paths, *names, *places]) == 0
    rows = pl.read_ndjson(tmp_path / "all" / "labelled.jsonl")
    assert set(rows["openalex_id"]) <= set(WORKS["pid"])
    assert rows.height > 2_000
    assert verify(tmp_path / "all").counts == {"works": rows.height}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["from,to", "P1,P2", "P3,P4,P5", "P6,P7"], r"row 3: 3 fields, the first row has 2 \('P3,P4,P5'\)"),
        (["from,to", "P1,P2", "P3"], r"row 3: 1 fields, the first row has 2 \('P3'\)"),
        (['{"from": "P1", "to": "P2"}', '{"from": "P1", "to": '], r"line 2: .*one JSON object"),
        (['{"from": "P1", "to": "P2"}', "", "[1, 2]"], r"line 3: Expected `object`|line 3: "),
    ],
)
def test_a_damaged_row_is_named_by_file_and_row(tmp_path, lines, message):
    WORKS.write_csv(tmp_path / "works.csv")
    cites = tmp_path / "cites.txt"
    cites.write_text("\n".join(lines) + "\n")
    config = TablesConfig(works=(str(tmp_path / "works.csv"),), citations=(str(cites),), **NAMES)
    with pytest.raises(CorruptRecordError, match=message) as caught:
        ingest_tables(config, tmp_path / "corpus")
    assert str(cites) in str(caught.value)


FIELDS = st.text("ab10./ \t\"'é\r", max_size=20) | st.sampled_from(
    ["", '""', '"a,b"', '" x "', "10.1234/a.long.id", "NA"]
)
LINES = st.lists(
    st.one_of(
        st.tuples(FIELDS, FIELDS, FIELDS).map(",".join),
        st.tuples(*[st.from_regex(r'"?[a-z]{1,15}"?', fullmatch=True)] * 3).map(",".join),
        st.sampled_from(["", " ", "a,b", "a,b,c,d", '"a,b,c', "a,b,c\r", "\r"]),
    ),
    max_size=30,
)


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.sampled_from([None, True, False]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_blocks_that_are_cut_here_have_the_rows_and_errors_of_arrow(tmp_path, lines, end, is_whole, quotes):
    text = end.join(["from,at,to", *lines]) + end * is_whole
    (path := tmp_path / "cites.csv").write_text(text, "utf-8", newline="")

    def read(n_bytes: int) -> tuple[pl.DataFrame, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table_files, "_LINES_BYTES", n_bytes)
            patch.setattr(record_files, "_CHUNK_BYTES", n_bytes // 4)
            batches = [pl.DataFrame(schema={"to": pl.String(), "from": pl.String()})]
            try:
                batches += TableFile(path, quotes=quotes).read(["to", "from"])
            except CorruptRecordError as error:
                return batches[0], str(error)
            return pl.concat(batches), ""

    rows, error = read(1 << 20)
    for n_bytes in (4, 40, 200):
        found, other = read(n_bytes)
        if "is longer than 8 MB" not in other:  # a text in quotes that is longer than two of such blocks
            assert other == error
            assert_frame_equal(found, rows)


def test_names_alone_are_no_row_with_and_without_a_line_end(tmp_path):
    for number, text in enumerate(["citing_id,cited_id", "citing_id,cited_id\n", "# of 2020\nciting_id,cited_id"]):
        (path := tmp_path / f"{number}.csv").write_text(text)
        assert not sum(rows.height for rows in TableFile(path).read(["citing_id"]))


def test_quotes_that_hide_many_rows_are_said_in_plain_words(tmp_path):
    lines = "".join(f"P{i},2000,a title of some length\n" for i in range(400_000))
    (path := tmp_path / "works.csv").write_text(f'id,year,title\nP0,2000,plain\nP1,2000,"open\n{lines}')
    with pytest.raises(CorruptRecordError, match=r"works.csv.*quotes that begin in a field do not end"):
        [*TableFile(path).read(["id"])]


def test_of_two_columns_with_one_name_every_row_has_the_first(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "_LINES_BYTES", 200)
    monkeypatch.setattr(record_files, "_CHUNK_BYTES", 50)
    (path := tmp_path / "ids.csv").write_text("doi,title,doi\n" + "".join(f"a{i},t,b{i}\n" for i in range(200)))
    rows = pl.concat(TableFile(path).read(["doi"]))
    assert rows["doi"].to_list() == [f"a{i}" for i in range(200)]


def test_a_column_that_is_kept_does_not_hold_the_text_of_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "_LINES_BYTES", 1 << 16)
    lines = [f"{i},{'an abstract ' * 20},a title of paper {i}\n" for i in range(3_000)]
    (path := tmp_path / "works.csv").write_text("id,abstract,title\n" + "".join(lines))
    batches = [*TableFile(path).read(["id", "title"])]
    assert len(batches) > 3
    for batch in batches:
        for column in batch.iter_columns():
            buffers = column.rechunk().to_arrow(compat_level=pl.CompatLevel.newest()).buffers()
            assert sum(buffer.size for buffer in buffers if buffer) <= 70 * batch.height


def test_quotes_of_titles_between_tabs_hide_no_row(tmp_path):
    titles = ['"On" dams', "plain", '"Quo', 'vadis"', '"', '"a"']
    lines = ["work_id\tpublication_year\ttitle", *(f"P{i}\t2000\t{title}" for i, title in enumerate(titles))]
    (tmp_path / "works.tsv").write_text("\n".join(lines))
    (tmp_path / "cites.tsv").write_text("citing_id\tcited_id\nP1\tP0\n")
    files = {"works": (str(tmp_path / "works.tsv"),), "citations": (str(tmp_path / "cites.tsv"),)}
    rows = ingest_tables(TablesConfig(**files), tmp_path / "corpus").works.collect().sort("original_id")
    assert rows["title"].to_list() == titles
    lines[4] = '"P3"\t2000\t"vadis\tagain"'
    (tmp_path / "works.tsv").write_text("\n".join(lines))
    with pytest.raises(CorruptRecordError, match=r"row 5: 4 fields.* in quotes, set TablesConfig\.quotes=True"):
        ingest_tables(TablesConfig(**files), tmp_path / "other")


def test_a_file_that_was_cut_off_is_named(tmp_path):
    files = csv_files(tmp_path)
    cut = tmp_path / "cites.csv.gz"
    cut.write_bytes(gzip.compress(CITES.write_csv().encode())[:-9])
    with pytest.raises(CorruptRecordError, match=r"cites\.csv\.gz: .*ends too early"):
        ingest_tables(TablesConfig(**files | {"citations": (str(cut),)}, **NAMES), tmp_path / "corpus")
    latin = tmp_path / "latin.csv"
    latin.write_bytes(CITES.write_csv().encode() + "É,P1\n".encode("latin-1"))
    with pytest.raises(CorruptRecordError, match=r"latin\.csv: column 'from' holds .*Save the file as UTF-8"):
        ingest_tables(TablesConfig(**files | {"citations": (str(latin),)}, **NAMES), tmp_path / "corpus")


@pytest.mark.parametrize(
    ("works", "cites", "message"),
    [
        ("pid|year\nP1|2000\n", "", "works.csv has one column, 'pid|year': is there another delimiter"),
        ("pid,year\nP1,nineteen\n", "", "works.csv: no work has a year from 1000 to 2100, for example 'nineteen'"),
        ("pid,year\nP1,2000\nP1,2001\n", "", "works.csv: 1 id occurs more than once, for example 'P1'"),
        ("pid,year\n", "", "works.csv holds no row"),
        ("pid,year\nP1,2000\n", "x,to\n", "Name the column of the citing work: --citing\n"),
        ("\n \n", "", "works.csv holds no row"),
        ('pid,title,year\nP1,"Dams,2000\nP2,Weirs,2001\n', "", "works.csv: row 2: quotes that begin in a field do not"),
        ('pid,year,title\nP1,2000,"Dams\nP2,2001,Weirs\n', "", "works.csv: quotes that begin in a field do not end"),
        ("<!DOCTYPE html>\n<p>404\n", "", "works.csv is no table: it begins with '<!DOCTYPE html>"),
        ("PK\x03\x04 xl/workbook.xml", "", "works.csv is a workbook. Save its sheet as 'CSV UTF-8'"),
        (None, "", "--works '.' is a folder"),
    ],
)
def test_a_mistake_in_a_file_is_named_by_file_and_remedy(tmp_path, monkeypatch, capsys, works, cites, message):
    monkeypatch.chdir(tmp_path)
    Path("cites.csv").write_text(cites or "from,to\nP1,P2\n")
    if works:
        Path("works.csv").write_text(works)
    words = ["--works", "works.csv" if works else ".", "--citations", "cites.csv", "--id", "pid", "--year", "year"]
    assert main(["ingest", *words, "--citing", "from", "--cited", "to", "--out", "corpus"]) == 1
    assert message in capsys.readouterr().err
    assert not Path("corpus", "corpus.json").exists()


@pytest.mark.parametrize("before", ["sep=,\n", '\ufeff"sep=,",\r\n', "\n  \n", "# made in 2026\n\n"])
def test_lines_before_the_names_of_columns_are_passed_over(tmp_path, before):
    (tmp_path / "w.csv").write_text(f"{before}work_id,publication_year\n1,1990\n2,2000", "utf-8")
    (tmp_path / "c.csv").write_text(f"{before}citing_id,cited_id\n2,1\n", "utf-8")
    config = TablesConfig(works=(str(tmp_path / "w.csv"),), citations=(str(tmp_path / "c.csv"),))
    corpus = ingest_tables(config, tmp_path / "corpus")
    assert corpus.works.collect()["publication_year"].to_list() == [1990, 2000]
    assert corpus.citations.collect().rows() == [(2, 1)]


@pytest.mark.parametrize(
    ("kind", "content"),
    [("ZIP", b"PK\x03\x04" + bytes(20)), ("XZ", lzma.compress(b"a,b\n" * 99)), ("bzip2", bz2.compress(b"a,b\n" * 99))],
)
@pytest.mark.parametrize(
    "damage", [lambda text: text, lambda text: text[:-3], lambda text: text[:9] + b"\xff" + text[9:]]
)
def test_a_kind_of_archive_that_is_not_read_is_named(tmp_path, kind, content, damage):
    files, archive = csv_files(tmp_path), tmp_path / "g_patent.tsv.packed"
    archive.write_bytes(damage(content))
    with pytest.raises(CorruptRecordError, match=f"is packed as {kind}. Unpack it"):
        ingest_tables(TablesConfig(**files | {"citations": (str(archive),)}, **NAMES), tmp_path / "corpus")


def encrypted(frame: pl.DataFrame, path: Path, *, plain_footer: bool) -> bytes:
    class Keys(encryption.KmsClient):
        def __init__(self, _) -> None:
            super().__init__()

        def wrap_key(self, key, _):
            return base64.b64encode(key)

    factory, connection = encryption.CryptoFactory(Keys), encryption.KmsConnectionConfig()
    config = encryption.EncryptionConfiguration(
        "f", column_keys={"c": frame.columns[:1]}, plaintext_footer=plain_footer
    )
    properties = factory.file_encryption_properties(connection, config)
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return path.read_bytes()


@pytest.mark.parametrize("option", ["works", "citations"])
def test_a_parquet_file_that_was_cut_or_encrypted_is_named_in_one_line(tmp_path, option):
    files, bad = csv_files(tmp_path), tmp_path / "bad.parquet"
    frame = {"works": WORKS, "citations": CITES}[option]
    frame.write_parquet(bad)
    whole = bad.read_bytes()
    contents = [whole[:n] for n in (4, 8, 12, len(whole) // 2, len(whole) - 1)] + [b"PAR1PAR1", b"PAR1" + bytes(40)]
    contents += [encrypted(frame, bad, plain_footer=plain) for plain in (True, False)]
    files |= {option: (str(bad),)}
    for number, content in enumerate(contents):
        bad.write_bytes(content)
        with pytest.raises(CorruptRecordError, match=r"^\S+bad\.parquet: [^\n]*(it is|it was|ends)[^\n]*$") as found:
            ingest_tables(TablesConfig(**files, **NAMES), tmp_path / "corpus")
        assert len(str(found.value)) < 300
        assert ("encrypted" in str(found.value)) == (number > 6)
        assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("kind", ["zeros", "random", "gzip of zeros", "SQLite", "PNG", "a line"])
@pytest.mark.parametrize("option", ["--works", "--citations", "--labelled", "--input"])
def test_a_file_that_is_no_text_is_named_in_a_few_printable_words(tmp_path, kind, option, capsys):
    content = {
        "zeros": bytes(54_834),
        "random": random.Random(1).randbytes(20_000),
        "gzip of zeros": gzip.compress(bytes(54_834)),
        "SQLite": b"SQLite format 3\0" + bytes(5_000),
        "PNG": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(500),
        "a line": b"x" * 60_000,
    }[kind]
    (tmp_path / "strange").write_bytes(content)
    files = {name: paths[0] for name, paths in csv_files(tmp_path).items()}
    flags = {"--works": files["works"], "--citations": files["citations"], option: str(tmp_path / "strange")}
    if option in ("--labelled", "--input"):
        flags = {option: str(tmp_path / "strange")}
    words = [word for flag in flags.items() for word in flag]
    words += ["--id", "pid", "--year", "year"] if "--works" in flags else []
    assert main(["build", *words, "--out", str(tmp_path / "out"), "--cache-dir", str(tmp_path / "cache")]) == 1
    told = capsys.readouterr()
    last = told.err.strip().splitlines()[-1]
    assert "strange" in last
    assert len(last) < 400
    assert (told.out + told.err).replace("\n", "").isprintable()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(
    "flags", ["--works {0} --references refs", "--input {0}", "--labelled {0}", "--config {0} --source synthetic"]
)
def test_text_in_another_encoding_is_an_error_that_names_it(tmp_path, capsys, encoding, flags):
    works = {"--input": '{"id": "W1"}', "--config": "seed = 1"}.get(flags.split()[0], "work_id,publication_year,refs\n")
    (tmp_path / "file").write_bytes(works.encode(encoding))
    words = [word.format(tmp_path / "file") for word in flags.split()]
    status = main(["build", *words, "--out", str(tmp_path / "out"), "--cache-dir", str(tmp_path / "cache")])
    assert status == 1
    name = encoding[:6].upper()
    assert f"{name} text, needs UTF-8: iconv -f {name} -t UTF-8" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["feather", "arrow stream"])
def test_a_damaged_arrow_file_is_named_and_never_ends_the_process(tmp_path, kind):
    KINDS[kind](WORKS[:50], tmp_path / "works")
    whole, path = (tmp_path / "works").read_bytes(), tmp_path / "damaged"
    for seed in range(100):
        chance, damaged = random.Random(seed), bytearray(whole)
        damaged[chance.randrange(8, len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged if seed % 2 else damaged[: chance.randrange(8, len(whole))])
        with suppress(CorruptRecordError):
            list(TableFile(path).read(["pid", "title"]))


def test_a_work_without_an_id_is_named_by_file_and_row(tmp_path):
    files = csv_files(tmp_path)
    WORKS.with_columns(pid=pl.when(pl.int_range(N) != N - 7).then("pid")).write_csv(tmp_path / "works.csv")
    with pytest.raises(WorkIdError, match=rf"works\.csv: 1 work has no id, the first in row {N - 6:,}: "):
        ingest_tables(TablesConfig(**files, **NAMES), tmp_path / "corpus")


def test_missing_files_and_columns_are_named_by_their_flags(tmp_path, capsys):
    files = csv_files(tmp_path)
    with pytest.raises(InputNotFoundError, match=r"TablesConfig\.works .*matches no file"):
        ingest_tables(TablesConfig(**files | {"works": (str(tmp_path / "x*.csv"),)}, **NAMES), tmp_path / "corpus")
    with pytest.raises(InputNotFoundError, match=r"is a folder\. Name its files"):
        ingest_tables(TablesConfig(**files | {"works": (str(tmp_path),)}, **NAMES), tmp_path / "corpus")
    with pytest.raises(SchemaMismatchError, match=r"no column 'work_id'.*TablesConfig\.id=\.\.\."):
        ingest_tables(TablesConfig(**files), tmp_path / "corpus")
    with pytest.raises(ConfigError, match=r"TablesConfig\.citations and TablesConfig\.references are both missing"):
        TablesConfig(works=files["works"])
    assert main(["ingest", "--works", *files["works"], "--citations", *files["citations"], "--out", "x"]) == 1
    assert "Name the column of ids: --id" in capsys.readouterr().err


def test_gaps_are_warned_of_in_one_line_and_stand_in_the_report(tmp_path, caplog):
    (tmp_path / "works.csv").write_text("work_id,publication_year\na,2000\nb,20000\nc,\n")
    (tmp_path / "cites.csv").write_text("citing_id,cited_id\na,b\na,\n")
    config = TablesConfig(works=(str(tmp_path / "works.csv"),), citations=(str(tmp_path / "cites.csv"),))
    with caplog.at_level(logging.WARNING):
        facts = ingest_tables(config, tmp_path / "corpus").provenance
    assert (facts["impossible_years"], facts["without_year"], facts["citations_without_id"]) == (1, 2, 1)
    assert len(caplog.records) == 1
