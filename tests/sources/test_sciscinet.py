"""SciSciNet: tables of both versions to our frames, published values and their undefined zeros, fields, texts by id."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from polars.testing import assert_series_equal

from benchmarks.make_sciscinet import make, write_version_1
from sciscidata.cli.build_options import resolve
from sciscidata.config import BuildConfig
from sciscidata.corpus.folder import CorpusConfig
from sciscidata.disruption.compare import compare_scores, compare_z
from sciscidata.eligibility import EligibilityConfig, mark_removals
from sciscidata.errors import (
    ConfigError,
    InputNotFoundError,
    NotEnoughWorksError,
    ReleaseExistsError,
    SchemaMismatchError,
    WorkIdError,
)
from sciscidata.label_thresholds import (
    DISRUPTION_LABELS,
    NOVELTY_LABELS,
    VOCABULARIES,
    LabelThresholds,
    compute_disruption_labels,
    compute_novelty_labels,
    count_labels,
)
from sciscidata.novelty.atypicality import compute_atypicality
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.pipeline import build, export_labelled, write_background
from sciscidata.records.abstracts import decode_inverted_indexes
from sciscidata.records.plain_text import _BETWEEN_WORDS, _INSIDE_WORDS, _SPACES, _unescape_entities
from sciscidata.release.export import write_labelled
from sciscidata.release.recompute import list_recomputed
from sciscidata.release.release import check_target
from sciscidata.release.verify import verify_release
from sciscidata.release.write_json_lines import render_jsonl, render_lines
from sciscidata.sampling.config import SplitConfig
from sciscidata.sampling.split import draw_split
from sciscidata.schemas import ATYPICALITY, CD_SCORES, CITATIONS, EXAMPLE, WORKS, Corpus
from sciscidata.sources.kinds import STRUCTURE
from sciscidata.sources.sciscinet import order as sciscinet_order
from sciscidata.sources.sciscinet.published_scores import publish_atypicality, publish_disruption
from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet
from sciscidata.sources.sciscinet.tables import reading
from sciscidata.sources.sciscinet.works import choose_fields, plain_texts
from sciscidata.stages import ingest
from tests.sampling.drawing import demand_of, draw_late

N_WORKS = 3_000


@pytest.fixture(scope="session")
def made(sciscinet_tables) -> Path:
    return sciscinet_tables


@pytest.fixture
def real_papers(shared_data, tmp_path) -> Path:
    """The real rows that hold metrics, as a table of the published types."""
    rows = pl.read_csv(shared_data / "sciscinet" / "sciscinet_v2_metric_rows_A.csv")
    counts = dict.fromkeys(("reference_count", "citation_count", "C5", "C10", "team_size"), pl.UInt32)
    rows.cast(counts).write_parquet(tmp_path / "sciscinet_papers.parquet")
    return tmp_path


def tables(folder, **options):
    return scan_sciscinet(SciSciNetConfig(folder=str(folder), **options))


# What is published


def test_real_rows_keep_their_scores_and_lose_the_zeros_that_stand_for_undefined(real_papers):
    scores = tables(real_papers).scores.collect()
    assert scores.schema == CD_SCORES
    by_id = dict(scores.select("work_id", "cd_index").rows())
    assert by_id[2051723858] == -0.00045433893684688776
    assert by_id[4320018383] is None  # 0.0, with seven references, cited by nobody
    assert by_id[34653674] is None  # 0.0, without references and citations
    assert by_id[4320476346] == 0.0  # sixteen references, six citations: a score
    assert sum(value is None for value in by_id.values()) == 2


def test_real_atypicality_keeps_its_sign_low_z_is_novel(real_papers):
    found = tables(real_papers).atypicality.collect()
    assert found.schema == ATYPICALITY
    novel = found.filter(work_id=2091242066).row(0, named=True)  # z of -24.9
    usual = found.filter(work_id=2085917239).row(0, named=True)  # z of 29.0
    assert novel["novelty_score"] > 0.999
    assert usual["novelty_score"] < 0.001
    assert novel["conventionality_score"] > 0.999
    without = found.filter(work_id=4322731449).row(0)
    assert without == (4322731449, None, None, None, None, None)


def test_real_dartmouth_rows_are_read_and_their_missing_scores_named(shared_data, tmp_path):
    source = shared_data / "sciscinet"
    with pytest.raises(InputNotFoundError, match="has no table sciscinet_papers"):
        tables(source)
    (tmp_path / "sciscinet_papers.parquet").symlink_to(source / "dartmouth_papers.parquet")
    (tmp_path / "sciscinet_fields.parquet").symlink_to(source / "fields.parquet")
    found = tables(tmp_path)
    works = found.works.collect()
    assert works.schema == WORKS
    assert works.height == 84_906
    assert works["work_id"].n_unique() == 84_906
    assert works["publication_year"].min() == 1800
    assert works["doi"].drop_nulls().str.starts_with("10.").all()
    assert works["doi"].null_count() == 3_528
    sizes = pl.read_parquet(source / "dartmouth_papers.parquet")["team_size"].to_list()
    assert sorted(works["n_authors"].drop_nulls()) == sorted(filter(None, sizes))
    assert not works["is_retracted"].any()
    assert works["title"].null_count() == works.height
    with pytest.raises(SchemaMismatchError, match=r"lacks disruption.*SciSciNetConfig\.recompute=True"):
        found.scores  # noqa: B018
    with pytest.raises(SchemaMismatchError, match="Atyp_10pct_Z"):
        found.atypicality  # noqa: B018
    with pytest.raises(InputNotFoundError, match="no table sciscinet_paperrefs"):
        found.citations  # noqa: B018


def test_real_fields_give_their_broad_field_first():
    astronomy, biology, medicine = 1276947, 86803240, 71924100
    names = {"field_id": [astronomy, biology, medicine], "field_name": ["Astronomy", "Biology", "Medicine"]}
    fields = pl.LazyFrame(names | {"level": [1, 0, 0]})
    links = {"work_id": [1, 1, 1, 2], "field_id": [astronomy, biology, medicine, astronomy]}
    scores = {"score": [0.99, 0.2, 0.3, 0.1]}
    found = {
        work_id: (primary, concepts)
        for work_id, primary, concepts in choose_fields(pl.LazyFrame(links | scores), fields).collect().rows()
    }
    assert found[1] == ("Medicine", ["Medicine", "Biology", "Astronomy"])
    assert found[2] == ("Astronomy", ["Astronomy"])


counts = st.one_of(st.none(), st.integers(0, 3))
values = st.one_of(st.none(), st.sampled_from([0.0, float("nan"), float("inf"), -0.5, 1.0, -1.0, 7.5, -1.0000001]))


@given(st.lists(st.tuples(values, counts, counts), min_size=1, max_size=20))
def test_a_published_score_is_null_or_finite_and_null_without_references_or_citations(rows):
    frame = pl.DataFrame(
        rows, schema={"disruption": pl.Float64, "reference_count": pl.Int64, "citation_count": pl.Int64}, orient="row"
    )
    found = publish_disruption(frame.with_row_index("work_id").lazy()).collect()["cd_index"].to_list()
    for (value, references, citations), score in zip(rows, found, strict=True):
        defined = value is not None and -1 <= value <= 1 and references and citations
        assert score == (value if defined else None)


@given(st.lists(st.tuples(values, counts), min_size=1, max_size=20))
def test_novelty_needs_pairs_and_a_finite_z(rows):
    frame = pl.DataFrame(rows, schema={"z_p10": pl.Float64, "n_pairs": pl.Int64}, orient="row")
    frame = frame.with_columns(z_median="z_p10").with_row_index("work_id")
    found = publish_atypicality(frame.lazy()).collect()
    for (z, pairs), novelty, usual in zip(rows, found["novelty_score"], found["conventionality_score"], strict=True):
        if z is None or not np.isfinite(z) or not pairs:
            assert novelty is None
            assert usual is None
        else:
            assert novelty == pytest.approx(1 / (1 + np.exp(z)))
            assert usual == pytest.approx(1 / (1 + np.exp(-z)))


# Tables


def test_every_table_of_the_generator_arrives_in_works(made):
    works = tables(made).works.sort("work_id").collect()
    assert works.schema == WORKS
    assert works.height == N_WORKS
    texts = pl.read_parquet(made / "sciscinet_papertitleabstract.parquet")
    assert works["title"].null_count() == N_WORKS - texts.height
    row = texts.drop_nulls("abstract_inverted_index").row(0, named=True)
    found = works.filter(work_id=int(row["paperid"][1:])).row(0, named=True)
    assert found["abstract"] == decode_inverted_indexes(pl.Series([row["abstract_inverted_index"]]))[0]
    assert (found["title"], found["language"]) == (row["title"], row["language"])
    linked = pl.read_parquet(made / "sciscinet_paperfields.parquet")["paperid"].n_unique()
    assert works["primary_field"].null_count() == N_WORKS - linked
    assert works["concepts"].null_count() == 0
    assert works["concepts"].list.len().max() <= 8
    assert works.filter(pl.col("source_id").is_not_null())["source_name"].null_count() == 0
    citations = tables(made).citations.collect()
    assert citations.schema == CITATIONS
    assert citations["citing_id"].is_in(works["work_id"].implode()).all()


def test_structure_opens_no_table_of_texts(made, tmp_path):
    (tmp_path / "data").mkdir()
    for path in made.glob("*.parquet"):
        (tmp_path / "data" / path.name).symlink_to(path)
    found = tables(tmp_path / "data")
    for name in ("papertitleabstract", "paperfields", "papersources"):
        (tmp_path / "data" / f"sciscinet_{name}.parquet").unlink()
    assert found.works.select("work_id", "publication_year").collect().height == N_WORKS
    assert found.structure.collect().height == N_WORKS
    recent = found.works.filter(pl.col("publication_year") >= 2000).select("work_id")
    assert 0 < recent.collect().height < N_WORKS
    with pytest.raises((pl.exceptions.PolarsError, OSError)):
        found.works.select("title").collect()


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_works_read_by_id_are_those_of_the_whole_table(made, engine):
    found = tables(made)
    some = found.works.select("work_id").collect(engine=engine)["work_id"].sort().gather_every(7)
    whole = found.works.collect(engine=engine).filter(pl.col("work_id").is_in(some.implode())).sort("work_id")
    assert found.read_works(some).equals(whole)
    assert found.read_works(pl.Series([5])).height == 0


def test_blocks_that_are_cut_on_disk_and_joined_one_by_one_give_the_same_works(made, tmp_path, monkeypatch):
    folder = tmp_path / "tables"
    folder.mkdir()
    stranger = {"paperid": "W1", "title": "Of nobody", "abstract_inverted_index": None, "language": "en"}
    tables_with(made, folder, papertitleabstract=lambda rows: pl.concat([pl.DataFrame(stranger, rows.schema), rows]))
    whole = {"texts": tables(folder).in_text_order().collect(), "ids": tables(folder).in_id_order().collect()}
    assert whole["texts"].equals(tables(made).in_text_order().collect())
    assert whole["ids"].equals(tables(made).works.collect().sort("work_id").drop("title", "abstract"))
    texts = pl.read_parquet(folder / "sciscinet_papertitleabstract.parquet")
    (folder / "sciscinet_papertitleabstract.parquet").unlink()
    (folder / "papertitleabstract").mkdir()
    for number, part in enumerate((texts[:701], texts[701:])):  # a file that ends within a block
        part.write_parquet(folder / "papertitleabstract" / f"{number}.parquet")
    monkeypatch.setattr(sciscinet_order, "_BATCH_ROWS", 64)
    monkeypatch.setattr(sciscinet_order, "_BLOCK", 256)
    monkeypatch.setattr(sciscinet_order, "_SPOOLED_ROWS", 1_000)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    found = tables(folder)
    assert found.in_text_order().collect().equals(whole["texts"])
    assert found.in_id_order().collect().equals(whole["ids"])
    few = found.in_text_order().select("work_id", "doi").head(300).collect()
    assert few.equals(whole["texts"].select("work_id", "doi").head(300))
    assert [path.name for path in tmp_path.iterdir()] == ["tables"]  # what was cut up is gone


def test_the_limit_of_open_files_is_raised_for_many_blocks(made, monkeypatch):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    whole = tables(made).in_id_order().collect()
    monkeypatch.setattr(sciscinet_order, "_BLOCK", 16)  # 188 blocks
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (150, hard))
        assert tables(made).in_id_order().collect().equals(whole)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (
            lambda part: part.with_columns(year=pl.col("year").cast(pl.String)),
            SchemaMismatchError,
            "Take all parts of a table from one release",
        ),
        (lambda part: part.drop("doi"), InputNotFoundError, r"c\.parquet is damaged: .*doi"),
    ],
)
def test_parts_with_another_type_of_a_column_are_refused(tmp_path, change, error, reason):
    home = tmp_path / "sciscinet_papers"
    home.mkdir()
    part = pl.DataFrame({"paperid": ["W1"], "year": [1999], "doi": ["10.1/a"], "notes": [1]})
    part.write_parquet(home / "a.parquet")
    other = part.select(pl.lit("W2").alias("paperid"), "year", pl.lit(None).alias("doi"), pl.lit(2).alias("new"))
    other.write_parquet(home / "b.parquet")
    assert scan_sciscinet(SciSciNetConfig(folder=str(tmp_path))).structure.collect().height == 2
    change(part).with_columns(paperid=pl.lit("W3")).write_parquet(home / "c.parquet")
    found = scan_sciscinet(SciSciNetConfig(folder=str(tmp_path)))
    with (
        pytest.raises(error, match=reason),
        reading(found.tables),
    ):
        found.works.select("publication_year", "doi").collect()


def test_a_table_without_its_ids_is_refused(tmp_path):
    pl.DataFrame({"id": ["W1"], "year": [1999]}).write_parquet(tmp_path / "sciscinet_papers.parquet")
    with pytest.raises(SchemaMismatchError, match=r"lacks paperid; it has id, year"):
        tables(tmp_path)


def test_a_part_that_is_not_parquet_is_named_and_hidden_files_are_ignored(made, tmp_path):
    parts = tmp_path / "sciscinet_papers"
    parts.mkdir()
    (parts / "._0.parquet").write_bytes(b"left by a file manager")
    with pytest.raises(InputNotFoundError, match="has no table sciscinet_papers"):
        tables(tmp_path)
    papers = pl.read_parquet(made / "sciscinet_papers.parquet")
    papers[:1_000].write_parquet(parts / "0.parquet")
    papers[1_000:].write_parquet(parts / "1.parquet")
    assert tables(tmp_path).works.select("work_id").collect().height == N_WORKS
    (parts / "0.parquet").write_bytes(b"cut off")
    with pytest.raises(InputNotFoundError, match=r"papers/0\.parquet cannot be opened"):
        tables(tmp_path)


def test_a_folder_of_texts_without_the_table_is_an_error(made, tmp_path):
    with pytest.raises(InputNotFoundError, match=r"has no table sciscinet_papertitleabstract.*SciSciNetConfig\.texts"):
        tables(made, texts=str(tmp_path))


def test_version_1_is_read_from_tab_separated_text(tmp_path):
    names = "PaperID DOI DocType Year JournalID Reference_Count Citation_Count Disruption Atyp_Median_Z Atyp_10pct_Z"
    papers = [
        "\t".join([*names.split(), "Team_Size", "Atyp_Pairs"]),
        "7\t10.1/A\tJournal\t1999.0\t5.0\t3\t4\t0.25\t2.0\t-1.0\t6.0\t3.0",
        "8\t\t\t2001\t\t0\t0\t\t\t\t0\t",
    ]
    (tmp_path / "SciSciNet_Papers.tsv").write_text("\n".join(papers) + "\n")
    (tmp_path / "SciSciNet_PaperReferences.tsv").write_text("Citing_PaperID\tCited_PaperID\n8\t7\n")
    (tmp_path / "SciSciNet_PaperDetails.tsv").write_text('PaperID\tPaperTitle\n7\tA "quoted" title\n')
    (tmp_path / "SciSciNet_PaperFields.tsv").write_text("PaperID\tFieldID\n7\t2\n7\t1\n")
    (tmp_path / "SciSciNet_Fields.tsv").write_text("FieldID\tField_Name\tField_Type\n1\tArt\tTop\n2\tAbc\tSub\n")
    (tmp_path / "SciSciNet_Journals.tsv").write_text("JournalID\tJournal_Name\n5\tNature\n")
    found = tables(tmp_path, version="v1")
    first, second = found.works.collect().sort("work_id").rows(named=True)
    assert first["title"] == 'A "quoted" title'
    assert first["publication_year"] == 1999
    assert first["doi"] == "10.1/a"
    assert (first["primary_field"], first["concepts"]) == ("Art", ["Art", "Abc"])
    assert (first["source_id"], first["source_name"], first["abstract"]) == (5, "Nature", None)
    assert (first["n_authors"], second["n_authors"]) == (6, None)  # 0 stands for unknown
    assert second["doi"] is None
    assert second["source_id"] is None
    assert found.citations.collect().rows() == [(8, 7)]
    assert found.scores.collect().sort("work_id")["cd_index"].to_list() == [0.25, None]
    assert found.atypicality.collect().sort("work_id")["z_p10"].to_list() == [-1.0, None]


def test_credentials_are_neither_shown_nor_recorded(made):
    config = SciSciNetConfig(folder=str(made), storage_options={"token": "secret"})
    assert "secret" not in repr(config) + json.dumps(scan_sciscinet(config).provenance)


def test_a_world_in_version_1_is_that_of_version_2_without_abstracts(made, tmp_path):
    folder = tmp_path / "v1"
    shutil.copytree(made, folder)
    write_version_1(folder)
    old, new = tables(folder, version="v1"), tables(made)
    # What version 1 does not have: abstracts, languages, retractions, citations counted by others, scores of fields.
    same = ["work_id", "publication_year", "title", "doi", "work_type", "source_id", "source_name"]
    works = [found.works.select(same).sort("work_id").collect() for found in (old, new)]
    assert works[0].equals(works[1])
    levels = dict(new.tables["fields"].scan("field_name", "level").collect().rows())
    concepts = [found.works.select("work_id", "concepts").sort("work_id").collect()["concepts"] for found in (old, new)]
    for names, expected in zip(*concepts, strict=True):
        assert sorted(levels[name] for name in names) == [levels[name] for name in names]
        assert len(names) == len(expected)
    for name in ("scores", "atypicality", "citations"):
        left, right = (getattr(found, name).collect() for found in (old, new))
        assert left.sort(left.columns[:2]).equals(right.sort(right.columns[:2])), name
    source = SciSciNetConfig(folder=str(folder), version="v1")
    places = {"out": tmp_path / "slice", "cache_dir": tmp_path / "cache"}
    rules = EligibilityConfig(require_abstract=False, languages=())
    release = build(BuildConfig(source=source, split=SplitConfig(n_train=30, n_test=3), eligibility=rules, **places))
    assert release.train["title"].null_count() == 0
    assert release.train["abstract"].null_count() == 30
    ingest(source, tmp_path / "corpus", cache_dir=tmp_path / "cache")
    verify_release(release.folder)


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_corpus_of_the_tables_claims_no_published_scores(made, tmp_path, on_disk):
    found, cache = tables(made), tmp_path / "cache"
    source = Corpus(found.works, found.citations, found.provenance)
    if on_disk:
        ingest(SciSciNetConfig(folder=str(made)), tmp_path / "corpus", cache_dir=cache)
        source = CorpusConfig(folder=str(tmp_path / "corpus"))
    split = SplitConfig(n_train=30, n_test=3)
    release = build(BuildConfig(source=source, out=tmp_path / "slice", cache_dir=cache, split=split))
    assert "as published" not in json.dumps(release.manifest["source"])
    assert "as published" not in (release.folder / "README.md").read_text("utf-8")
    assert "cd_index" in list_recomputed(verify_release(release.folder).manifest).done
    assert found.provenance["scores"].startswith("as published")  # which a build leaves as it is


# Fields


links = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 12), st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0]))),
    max_size=60,
)
many = st.lists(
    st.tuples(st.just(1), st.integers(1, 12), st.sampled_from([None, 0.1, 0.5, 1.0])), min_size=30, max_size=60
)


@given(links | many, st.randoms())
def test_fields_follow_the_rule_for_any_order_of_links(rows, random):
    names = {1: ("B", 0), 2: ("A", 0), 3: ("A", 1), 4: ("C", 1), 5: ("A", 1), 6: ("Z", 2)}
    names |= {number: (chr(60 + number), 2) for number in range(7, 13)}  # more than a work may have
    fields = pl.LazyFrame(
        [(number, name, level) for number, (name, level) in names.items()],
        schema=["field_id", "field_name", "level"],
        orient="row",
    )
    best: dict[tuple[int, int], float] = {}
    for work, number, score in rows:
        best[work, number] = max(best.get((work, number), -1.0), -1.0 if score is None else score)
    expected: dict[int, list[str]] = {}
    for work, number in sorted(best, key=lambda key: (key[0], names[key[1]][1], -best[key], names[key[1]][0], key[1])):
        expected.setdefault(work, []).append(names[number][0])
    random.shuffle(rows)
    frame = pl.LazyFrame(rows, schema={"work_id": pl.Int64, "field_id": pl.Int64, "score": pl.Float64}, orient="row")
    found = {work: (primary, names) for work, primary, names in choose_fields(frame, fields).collect().rows()}
    assert found == {work: (names[0], names[:8]) for work, names in expected.items()}


# Texts and lines


texts = st.one_of(
    st.none(),
    st.text(max_size=30),
    st.text(st.sampled_from(" a&<b>\t\u00a0\u2009\u2028\x85\u3000\u1680é–"), max_size=12),
    st.lists(
        st.sampled_from(["word", " ", "a longer word", "sixteen letters.", "  ", "\u2028", "é", "&", '"']), max_size=30
    ).map("".join),
)


@given(st.lists(texts, min_size=1, max_size=20))
def test_texts_that_are_not_looked_at_closely_would_not_change(rows):
    titles = pl.Series("title", rows, pl.String)
    short = titles.to_frame().select(plain_texts("title", inverted=False))["title"]
    plain = pl.col("title").str.replace_all(_BETWEEN_WORDS, " ").str.replace_all(_INSIDE_WORDS, "")
    plain = plain.str.replace_all(_SPACES, " ").str.strip_chars(" ").replace("", None)
    assert_series_equal(short, _unescape_entities(titles).to_frame("title").select(plain)["title"])


examples = st.lists(
    st.tuples(
        texts,
        st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
        st.one_of(st.none(), st.lists(texts, max_size=3)),
    ),
    max_size=20,
)


@given(examples)
def test_fast_lines_are_the_bytes_of_a_release(rows):
    schema = {"title": pl.String, "n": pl.Int64, "cd_index": pl.Float64, "concepts": pl.List(pl.String)}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    assert render_lines(frame) == render_jsonl(frame)
    assert render_lines(frame[1:]) == render_jsonl(frame[1:])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_json_number_is_refused(value):
    with pytest.raises(ValueError, match="no JSON number"):
        render_lines(pl.DataFrame({"cd_index": [value]}))


def test_labelled_rows_without_novelty_have_null_there(tmp_path):
    works = pl.LazyFrame([{"work_id": 7, "title": "On sleep", "concepts": []}], schema=WORKS)
    labelled = pl.LazyFrame({"work_id": [7, 8], "cd_index": [-0.0, 1.0], "disruption_label": ["neutral", None]})
    write_labelled(works, labelled, tmp_path / "all")
    row = json.loads((tmp_path / "all" / "labelled.jsonl").read_text())
    assert list(row) == EXAMPLE.names()
    assert row["novelty_score"] is None
    assert str(row["cd_index"]) == "0.0"
    with pytest.raises(SchemaMismatchError, match="write_labelled"):
        write_labelled(works, labelled.drop("cd_index"), tmp_path / "more")


def test_a_run_that_fails_half_way_leaves_nothing_and_nothing_is_replaced(made, tmp_path):
    found = tables(made)
    labelled = compute_disruption_labels(found.structure)

    def fail(titles):
        if titles.str.contains("no. 2").any():
            raise InputNotFoundError("gone")
        return titles

    broken = found.in_text_order().with_columns(pl.col("title").map_batches(fail, return_dtype=pl.String()))
    with pytest.raises(Exception, match="gone"):
        write_labelled(broken, labelled, tmp_path / "all")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "thesis.tex").touch()
    with pytest.raises(ReleaseExistsError):
        write_labelled(found.in_text_order(), labelled, tmp_path / "all")


# Draw first, read afterwards


def world(n, seed, *, repeats=0):
    """Some structure, and the texts that go with it."""
    rng = np.random.default_rng(seed)
    structure = pl.DataFrame(
        {
            "work_id": rng.permutation(10 * n)[:n],
            "publication_year": rng.integers(1990, 2021, n),
            "work_type": ["article"] * n,
            "is_retracted": rng.random(n) < 0.05,
            "n_references": rng.integers(0, 5, n),
            "n_citers": rng.integers(0, 5, n),
            "cd_index": np.where(rng.random(n) < 0.9, rng.choice([-0.5, 0.0, 0.5], n), np.nan),
        }
    ).with_columns(pl.col("cd_index").fill_nan(None))
    absent = [pl.lit(None).alias(name) for name in STRUCTURE if name not in structure.columns]
    structure = (
        compute_disruption_labels(structure.with_columns(absent)).collect().select(STRUCTURE.names()).cast(STRUCTURE)
    )
    number = np.arange(n)
    number[:repeats] = rng.integers(0, max(repeats // 3, 1), repeats)
    texts = pl.DataFrame(
        {
            "work_id": structure["work_id"],
            "publication_year": structure["publication_year"],
            "title": [f"On {at}" if rng.random() < 0.9 else None for at in number],
            "abstract": ["We ask." if rng.random() < 0.7 else None for _ in number],
            "language": rng.choice(["en", "de"], n, p=[0.8, 0.2]).tolist(),
            "is_retracted": structure["is_retracted"],
        }
    )
    absent = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in WORKS.items() if name not in texts.columns]
    return structure, texts.with_columns(absent).select(WORKS.names()).cast(WORKS)


class Reader:
    def __init__(self, texts):
        self.texts, self.read = texts, []

    def __call__(self, work_ids):
        self.read += work_ids.to_list()
        return self.texts.filter(pl.col("work_id").is_in(work_ids.implode()))


def filter_everything_first(structure, texts, eligibility, split, window_years):
    """The other order: all texts joined, all filters applied, then drawn."""
    candidates = structure.join(texts.drop("publication_year", "work_type", "is_retracted"), on="work_id").with_columns(
        n_i=pl.col("n_citers").cast(pl.UInt32),
        n_j=pl.lit(0, dtype=pl.UInt32),
        n_k=pl.lit(0, dtype=pl.UInt32),
        n_references=pl.col("n_references").cast(pl.UInt32),
    )
    marked = mark_removals(candidates, eligibility, window_years=window_years).collect()
    return marked, draw_split(marked.filter(pl.col("removed_by").is_null()), split)


@pytest.mark.parametrize("balance", ["disruption", "joint", "none"])  # nine cells do not divide 60
@pytest.mark.parametrize("seed", range(2))
def test_reading_late_draws_what_filtering_everything_first_draws(seed, balance):
    structure, texts = world(4_000, seed)
    words = pl.Series(NOVELTY_LABELS)
    structure = structure.with_columns(novelty_label=words.gather(structure["work_id"] % 3))
    split = SplitConfig(n_train=60, n_test=9, seed=seed, balance=balance)
    reader = Reader(texts)
    late = draw_late(structure, reader, demand_of(split))
    marked, drawn = filter_everything_first(structure, texts, EligibilityConfig(), split, 5)
    columns = ["work_id", "split", "split_key", *VOCABULARIES]
    assert late.drawn.select(columns).equals(drawn.select(columns))
    assert (
        late.works.collect()
        .sort("work_id")
        .equals(texts.filter(pl.col("work_id").is_in(drawn["work_id"].implode())).sort("work_id"))
    )
    assert len(reader.read) == len(set(reader.read)) == late.counts["text"]["read"] < marked.height / 4
    assert sum(late.counts["filters"].values()) == 2 * late.counts["filters"]["works"] == 2 * 4_000
    assert (
        late.counts["filters"]["eligible"]
        == late.eligible.collect().height
        == late.counts["text"]["not_read"] + late.counts["text"]["passed"]
    )
    assert late.counts["filters"]["no_title"] <= (marked["removed_by"] == "no_title").sum()


@pytest.mark.parametrize("seed", range(2))
def test_no_two_drawn_works_are_one_paper_and_the_first_in_key_order_is_taken(seed):
    structure, texts = world(3_000, seed, repeats=2_500)
    split = SplitConfig(n_train=90, n_test=9, seed=seed)
    late = draw_late(structure, Reader(texts), demand_of(split))
    assert late.works.collect()["title"].is_duplicated().sum() == 0
    # The definition, read off one pass over everything.
    marked, _ = filter_everything_first(
        structure,
        texts.with_columns(pl.lit(None, dtype=pl.String).alias("doi")),
        EligibilityConfig(),
        SplitConfig(n_train=3, n_test=3),
        5,
    )
    passing = marked.filter(pl.col("removed_by").is_null() | (pl.col("removed_by") == "duplicate"))
    keyed = draw_all(passing, split)
    titles = dict(texts.select("work_id", "title").rows())
    quotas = {("train", label): 30 for label in DISRUPTION_LABELS} | {("test", label): 3 for label in DISRUPTION_LABELS}
    taken, seen = [], set()
    for work_id, cell in keyed:
        if quotas[cell] and titles[work_id] not in seen:
            quotas[cell] -= 1
            seen.add(titles[work_id])
            taken.append(work_id)
    assert sorted(late.drawn["work_id"]) == sorted(taken)
    assert late.counts["filters"]["duplicate"] > 0


def draw_all(works, split):
    import hashlib

    total = split.n_train + split.n_test
    rows = []
    for work_id, label in works.select("work_id", "disruption_label").rows():
        key = int.from_bytes(hashlib.sha256(f"{split.seed}:{work_id}".encode()).digest()[:8], "big")
        rows.append((key, work_id, ("test" if key % total < split.n_test else "train", label)))
    return [(work_id, cell) for _, work_id, cell in sorted(rows)]


# The whole flow


def test_a_slice_of_sciscinet_is_a_verified_release_with_novelty(made, tmp_path):
    config = BuildConfig(
        source=SciSciNetConfig(folder=str(made)),
        out=tmp_path / "slice",
        cache_dir=tmp_path / "cache",
        split=SplitConfig(n_train=90, n_test=9),
    )
    release = build(config)
    verify_release(release.folder)
    manifest = release.manifest
    assert manifest["counts"]["text"]["read"] < N_WORKS / 3
    assert manifest["counts"]["filters"]["works"] == N_WORKS
    assert release.train["novelty_label"].null_count() < 90
    assert release.train["concepts"].null_count() == 0
    papers = pl.read_parquet(made / "sciscinet_papers.parquet").select("paperid", "disruption", "reference_count")
    drawn = release.train.join(papers, left_on="openalex_id", right_on="paperid")
    assert (drawn["cd_index"] == drawn["disruption"]).all()
    assert (drawn["reference_count"] > 0).all()
    assert str(tmp_path) not in json.dumps(manifest)
    assert str(made) not in json.dumps(manifest)


def test_recomputed_scores_are_those_of_the_references_and_compared_with_the_published(made, tmp_path):
    settings = {
        "": {"out": str(tmp_path / "slice"), "cache_dir": str(tmp_path / "cache")},
        "sciscinet": {"folder": str(made), "recompute": True},
        "split": {"n_train": 30, "n_test": 3},
    }
    release = build(resolve(settings))
    verify_release(release.folder)
    from sciscidata.disruption.index import compute_cd_index

    found = tables(made)
    scores = (
        compute_cd_index(found.structure, found.citations)
        .collect()
        .with_columns(pl.format("W{}", "work_id").alias("openalex_id"))
    )
    drawn = release.train.join(scores, on="openalex_id", suffix="_computed")
    assert (drawn["cd_index"] == drawn["cd_index_computed"]).all()
    title = Image.open(release.folder / "comparison.png").text["Title"]
    assert "Left out: " in " ".join(title.split())
    assert "comparison.png" in release.manifest["files"]
    check_target(release.folder, overwrite=True)
    comparison = release.manifest["source"]["comparison"]
    computed = compute_atypicality(found.works, found.citations).collect()
    for name in ("z_p10", "z_median"):
        assert comparison.pop(name) == compare_z(found.atypicality, computed, name)
    assert comparison == compare_scores(found.scores, scores.select("work_id", "cd_index"))
    assert release.manifest["atypicality"]["config"]["null"] == "analytic"
    assert release.manifest["atypicality"]["scored_works"] == computed["z_p10"].count()
    novelty = dict(computed.select(pl.format("W{}", "work_id"), "novelty_score").rows())
    assert release.train["novelty_score"].to_list() == [novelty[name] for name in release.train["openalex_id"]]
    assert release.train["novelty_score"].count() > 20


@pytest.mark.parametrize(("balance", "rule", "score"), [("joint", "uzzi", "sigmoid"), ("novelty", "margin", "rank")])
def test_published_atypicality_is_labelled_and_balanced_like_our_own(made, tmp_path, balance, rule, score):
    config = BuildConfig(
        source=SciSciNetConfig(folder=str(made)),
        out=tmp_path / "slice",
        cache_dir=tmp_path / "cache",
        split=SplitConfig(n_train=36, n_test=9, balance=balance),
        thresholds=LabelThresholds(novelty_rule=rule),
        novelty=NoveltyConfig(score=score),
    )
    release = build(config)
    verify_release(release.folder)
    stated = release.manifest["atypicality"]
    expected = publish_atypicality(made_papers(made), score).collect()
    assert (stated["config"], stated["published"]) == (None, {"score": score})
    assert (stated["works"], stated["scored_works"]) == (N_WORKS, expected["z_p10"].count())
    assert stated["conventionality_cut"] == statistics.median_low(expected["z_median"].drop_nulls())
    labelled = compute_novelty_labels(expected, config.thresholds).collect()
    assert release.manifest["counts"]["scored"]["novelty_label"] == count_labels(labelled, "novelty_label")
    rows = release.train.join(
        labelled.with_columns(pl.format("W{}", "work_id").alias("openalex_id")), on="openalex_id", suffix="_expected"
    )
    for name in ("novelty_score", "conventionality_score", "novelty_label"):
        assert rows[name].equals(rows[f"{name}_expected"].rename(name), null_equal=True)
    assert rows.height == 36


def made_papers(folder):
    return tables(folder).tables["papers"].scan("work_id", "publication_year", "z_p10", "z_median", "n_pairs")


def test_tables_without_atypicality_give_null_and_are_refused_where_it_is_balanced(made, tmp_path):
    for path in made.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "sciscinet_papers.parquet").unlink()
    papers = pl.read_parquet(made / "sciscinet_papers.parquet")
    papers.drop("Atyp_10pct_Z").write_parquet(tmp_path / "sciscinet_papers.parquet")
    config = {"source": SciSciNetConfig(folder=str(tmp_path)), "out": tmp_path / "s", "cache_dir": tmp_path / "c"}
    release = build(BuildConfig(split=SplitConfig(n_train=30, n_test=3), **config))
    assert release.train["novelty_score"].null_count() == 30
    verify_release(release.folder)
    with pytest.raises(SchemaMismatchError, match="Atyp_10pct_Z"):
        build(BuildConfig(split=SplitConfig(n_train=30, n_test=3, balance="novelty"), overwrite=True, **config))


def test_a_table_without_published_scores_cannot_be_drawn_from_without_references(made, tmp_path):
    papers = pl.scan_parquet(made / "sciscinet_papers.parquet").drop("disruption", "^Atyp_.*$")
    papers.sink_parquet(tmp_path / "papers.parquet")
    config = {
        "source": SciSciNetConfig(folder=str(tmp_path)),
        "out": tmp_path / "slice",
        "cache_dir": tmp_path / "cache",
    }
    with pytest.raises(SchemaMismatchError, match="recompute=True"):
        build(BuildConfig(**config))
    again = config | {"source": SciSciNetConfig(folder=str(tmp_path), recompute=True)}
    with pytest.raises(InputNotFoundError, match="sciscinet_paperrefs"):
        build(BuildConfig(**again))
    assert not (tmp_path / "slice").exists()


def test_naming_a_folder_implies_the_source():
    config = resolve({"": {}, "sciscinet": {"folder": "data"}})
    assert config.source == SciSciNetConfig(folder="data")
    assert config.out == Path("slices/sciscinet")
    with pytest.raises(ConfigError, match=r"SciSciNetConfig\.folder"):
        resolve({"": {"source": "sciscinet"}})


# What a user's files may be


def tables_with(made, folder, **changes):
    """Link the tables of the generator into a folder, and write some of them changed."""
    for path in made.glob("*.parquet"):
        (folder / path.name).symlink_to(path)
    for name, change in changes.items():
        path = folder / f"sciscinet_{name}.parquet"
        changed = change(pl.read_parquet(path))
        path.unlink()
        changed.write_parquet(path)
    return folder


def build_from(folder, tmp_path, **changes):
    settings = {"split": SplitConfig(n_train=30, n_test=3), "novelty": None, "cache_dir": tmp_path / "cache"}
    source = SciSciNetConfig(folder=str(folder), recompute=changes.pop("recompute", False))
    return build(BuildConfig(source=source, out=tmp_path / "slice", **(settings | changes)))


def damage(path):
    """Turn the middle of a file around: its footer is whole, so it is a table until its rows are read."""
    content = bytearray(path.read_bytes())
    middle, length = len(content) // 2, len(content) // 8
    content[middle : middle + length] = bytes(byte ^ 0xA5 for byte in content[middle : middle + length])
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["papers", "papertitleabstract", "paperrefs"])
def test_a_damaged_table_is_named_by_its_file(made, tmp_path, name):
    folder = tmp_path / "tables"
    folder.mkdir()
    tables_with(made, folder)
    damage(folder / f"sciscinet_{name}.parquet")
    with pytest.raises(
        InputNotFoundError, match=rf"sciscinet_{name}\.parquet is damaged: .*Download it again"
    ) as error:
        build_from(folder, tmp_path, recompute=name == "paperrefs")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "slice").exists()


def test_text_that_is_not_utf_8_is_named_by_its_file(tmp_path):
    (tmp_path / "SciSciNet_Papers.tsv").write_bytes(b"PaperID\tYear\tJournalID\tDocType\n1\t1999\t5\tJ\xff\xfe\n")
    found = tables(tmp_path, version="v1")
    with (
        pytest.raises(InputNotFoundError, match=r"table papers: .*SciSciNet_Papers\.tsv is damaged"),
        reading(found.tables),
    ):
        found.works.collect()


def test_an_error_that_no_table_explains_passes_through(made):
    with pytest.raises(pl.exceptions.ComputeError, match="of ours"), reading(tables(made).tables):
        raise pl.exceptions.ComputeError("of ours")
    with pytest.raises(OSError, match="No space"), reading(tables(made).tables):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("name", "shown"), [("papers", "papers"), ("papertitleabstract", "texts")])
def test_a_work_that_a_table_repeats_is_refused_by_every_run(made, tmp_path, name, shown):
    folder = tmp_path / "tables"
    folder.mkdir()
    tables_with(made, folder, **{name: lambda rows: pl.concat([rows, rows[5:7]])})
    second = min(pl.read_parquet(folder / f"sciscinet_{name}.parquet")["paperid"][5:7])
    told = f"table {shown} repeats 2 works, for example {second} "
    source = SciSciNetConfig(folder=str(folder))
    with pytest.raises(WorkIdError, match=told):
        build_from(folder, tmp_path)
    with pytest.raises(WorkIdError, match=told):
        export_labelled(BuildConfig(source=source, out=tmp_path / "all", cache_dir=tmp_path / "cache"))
    with pytest.raises(WorkIdError, match=told):
        write_background(source, tmp_path / "pairs.parquet", cache_dir=tmp_path / "cache")
    for texts in (True, False):
        with pytest.raises(WorkIdError, match=told):
            ingest(source, tmp_path / "corpus", cache_dir=tmp_path / "cache", texts=texts)


@pytest.mark.parametrize(
    ("table", "column", "change", "dtype"),
    [
        ("papers", "year", pl.col("year").cast(pl.Date), "Date"),
        ("papers", "disruption", pl.lit([1.0]), "List"),
        ("papers", "doi", pl.lit(3), "Int32"),
        ("papers", "paperid", pl.lit(value=True), "Boolean"),
        ("papertitleabstract", "title", pl.lit(3), "Int32"),
    ],
)
def test_a_column_of_an_impossible_type_is_refused(made, tmp_path, table, column, change, dtype):
    tables_with(made, tmp_path, **{table: lambda rows: rows.with_columns(change.alias(column))})
    with pytest.raises(SchemaMismatchError, match=rf"holds {column} as {dtype}.*, needs "):
        tables(tmp_path)


def test_other_spellings_of_the_same_columns_give_the_same_works(made, tmp_path):
    def categories(*names):
        return lambda rows: rows.with_columns(pl.col(*names).cast(pl.Categorical))

    tables_with(
        made,
        tmp_path,
        papers=lambda rows: categories("paperid", "doctype")(rows).with_columns(pl.col("year").cast(pl.String)),
        paperfields=categories("fieldid"),
        papertitleabstract=categories("paperid", "language"),
    )
    expected, found = (tables(folder).works.sort("work_id").collect() for folder in (made, tmp_path))
    assert found.equals(expected)
    some = expected["work_id"][::97]
    assert tables(tmp_path).read_works(some).equals(tables(made).read_works(some))


def test_numbers_out_of_all_range_are_null(made, tmp_path):
    huge = [99_999_999_999, -(2**40), 1999]
    papers = {"paperid": ["W1", "W2", "1e30"], "year": huge, "reference_count": [2.0**70, float("nan"), 3.0]}
    pl.DataFrame(papers).write_parquet(tmp_path / "sciscinet_papers.parquet")
    found = tables(tmp_path)
    assert found.works.select("work_id", "publication_year").collect().rows() == [(1, None), (2, None)]
    assert found.structure.select("publication_year", "reference_count").collect().rows() == [(None, None)] * 2


@pytest.mark.parametrize(
    ("changes", "filter_name", "remedy"),
    [
        ({"papertitleabstract": lambda rows: rows.clear()}, "no_title", "Name its texts"),
        ({"paperrefs": lambda rows: rows.clear()}, "few_references", "what they ask for: references, years"),
    ],
)
def test_what_a_source_lacks_is_named_and_not_the_size_of_the_draw(made, tmp_path, changes, filter_name, remedy):
    folder = tmp_path / "tables"
    folder.mkdir()
    tables_with(made, folder, **changes)
    told = rf"no work of 3,000 may be drawn. The filters removed: .*{filter_name} [12],\d\d\d.*{remedy}"
    with pytest.raises(NotEnoughWorksError, match=told) as error:
        build_from(folder, tmp_path, recompute=filter_name == "few_references")
    assert "Lower" not in str(error.value)


def test_a_field_or_a_source_named_twice_has_the_name_that_comes_first(made, tmp_path):
    def twice(rows):
        other = rows.with_columns(pl.lit("AAA first").alias("display_name"))
        return pl.concat([rows, other, rows])

    for number, change in enumerate((twice, lambda rows: twice(rows).reverse())):
        folder = tmp_path / str(number)
        folder.mkdir()
        tables_with(made, folder, fields=change, sources=change)
        works = tables(folder).works.collect()
        assert works["source_name"].drop_nulls().unique().to_list() == ["AAA first"]
        assert works["primary_field"].drop_nulls().unique().to_list() == ["AAA first"]


def test_a_late_draw_that_falls_short_says_how_many_works_it_has_not_read():
    structure, texts = world(4_000, 0)
    split = SplitConfig(n_train=900, n_test=3)  # test is full after one reading, train never
    reader = Reader(texts)
    with pytest.raises(NotEnoughWorksError, match=r"train needs 300 'disruptive' works, found") as error:
        draw_late(structure, reader, demand_of(split))
    eligible = draw_late(structure, Reader(texts), demand_of(SplitConfig(n_train=3, n_test=0))).counts["text"]
    n_unread = eligible["read"] + eligible["not_read"] - len(reader.read)
    assert n_unread > 0
    assert f"{n_unread:,} of the eligible works were not read" in str(error.value)


@pytest.mark.skipif(os.name != "posix", reason="limits of a process")
def test_an_export_that_cannot_be_written_ends_with_an_error_and_not_with_a_crash(tmp_path):
    make(tmp_path, 40_000, n_bytes=100)
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        "from sciscidata.cli.main import main; sys.exit(main(sys.argv[1:]) + main(sys.argv[1:]))"
    )
    flags = ["export", "--sciscinet", str(tmp_path), "--out", str(tmp_path / "all"), "--no-novelty"]
    run = subprocess.run([sys.executable, "-c", program, *flags], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr.count("cannot write")) == (2, 2), run.stderr
