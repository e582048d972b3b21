"""Scores of listed works are those of the same works among all, whatever they are read from, with a reason if none."""

from __future__ import annotations

import os

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata import (
    CDConfig,
    CorpusConfig,
    ExampleConfig,
    LabelThresholds,
    NoveltyConfig,
    RecordsConfig,
    SciSciNetConfig,
    SyntheticConfig,
    compute_atypicality,
    compute_cd_index,
    compute_label_confidence,
    compute_labels,
    from_tables,
    indicators,
    ingest,
    scan_corpus,
    scan_example,
    scan_synthetic,
    score_ids,
    verify,
    write_background,
    write_cd_index,
)
from sciscidata.by_id.score_ids import ID_SCORES
from sciscidata.cli.main import main
from sciscidata.corpus.folder import open_corpus_graph
from sciscidata.disruption.label_prior import SHIPPED
from sciscidata.errors import ConfigError, SciSciDataError
from sciscidata.graph.graph import build_graph, graph_folder
from sciscidata.schemas import CITATIONS, WORKS, Corpus
from sciscidata.sources.example.source import WORKS_FILE
from tests.oracles import cd_family

COUNTS = ["n_i", "n_j", "n_k", "cd_index", "window_complete"]


@pytest.fixture(scope="module")
def world():
    works, citations, _ = scan_example()
    return works.collect(), citations.collect()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def corpus(home):
    ingest(ExampleConfig(), home / "corpus", cache_dir=home)
    return home / "corpus"


def ids_of(works: pl.DataFrame) -> list[str]:
    return [f"W{number}" for number in works["work_id"]]


def by_number(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(work_id=pl.col("openalex_id").str.slice(1).cast(pl.Int64)).sort("work_id")


@pytest.mark.parametrize("convention", ["default", "cdindex", "sciscinet_v1_d", "pyscisci", "novelpy"])
def test_scores_are_those_of_the_works_among_all_from_frames_and_graph(world, home, convention):
    works, citations = world
    cd = CDConfig() if convention == "default" else CDConfig.compat(convention)
    expected = compute_cd_index(works.lazy(), citations.lazy(), cd).collect().sort("work_id").select(COUNTS)
    listed = ids_of(works.sample(fraction=1.0, shuffle=True, seed=3))
    for prior in ("corpus", "shipped"):
        found = score_ids(listed, ExampleConfig(), cd=cd, prior=prior, cache_dir=home)
        assert found["asked"].to_list() == listed
        assert by_number(found).select(COUNTS).equals(expected)
    assert by_number(score_ids(listed, build_graph(works, citations), cd=cd)).select(COUNTS).equals(expected)


def test_a_few_works_have_the_scores_that_they_have_among_all(world, home):
    works, _ = world
    of_all = score_ids(ids_of(works), ExampleConfig(), cache_dir=home)
    some = works.sample(40, seed=1)
    for prior in ("corpus", SHIPPED):
        few = score_ids(ids_of(some), ExampleConfig(), prior=prior, cache_dir=home)
        same = of_all if prior == "corpus" else score_ids(ids_of(works), ExampleConfig(), prior=prior, cache_dir=home)
        assert few.equals(same.join(few.select("asked"), on="asked", how="right").select(few.columns))


def test_labels_intervals_and_confidence_are_those_of_the_public_functions(world, home):
    works, citations = world
    scores = compute_cd_index(works.lazy(), citations.lazy()).collect().sort("work_id")
    prior = indicators.find_label_prior(scores)
    expected = compute_labels(compute_label_confidence(scores, prior=prior)).collect()
    expected = indicators.compute_cd_interval(expected, prior=prior).collect()
    found = by_number(score_ids(ids_of(works), ExampleConfig(), cache_dir=home))
    for column in ("disruption_label", "label_confidence", "cd_low", "cd_high"):
        assert found[column].equals(expected[column]), column
    assert set(found["prior"]) == {"corpus", None}


def test_order_and_repeats_are_kept_and_each_row_says_why_it_is_not_judged(world, home):
    works, citations = world
    one = works.filter(pl.col("doi").is_not_null()).row(0, named=True)
    cited_only = citations.filter(~pl.col("cited_id").is_in(works["work_id"].implode()))["cited_id"][0]
    listed = [f"https://doi.org/{one['doi'].upper()}", "", None, "A123", f"W{cited_only}", "10.9999/none", "ours-7",
              f"w{one['work_id']}", f"https://doi.org/{one['doi'].upper()}"]  # fmt: skip
    found = score_ids(listed, ExampleConfig(), cache_dir=home)
    assert found.schema == ID_SCORES
    assert found["asked"].to_list() == listed
    reasons = [None, "no id", "no id", "not a work", "merged or deleted", "not found", "not found"]
    assert found["reason"].to_list()[1:7] == reasons[1:]
    assert found["openalex_id"].to_list() == [f"W{one['work_id']}", *[None] * 6, *[f"W{one['work_id']}"] * 2]
    assert found[0].drop("asked").equals(found[7].drop("asked"))
    assert found[0].equals(found[8])


def test_reasons_of_works_follow_from_their_scores(world, home):
    found = score_ids(ids_of(world[0]), ExampleConfig(), cache_dir=home)
    is_judged = (pl.col("n_i") + pl.col("n_j") > 0) & pl.col("window_complete") & pl.col("cd_index").is_not_null()
    assert found.filter(pl.col("reason").is_null() != is_judged.fill_null(value=False)).is_empty()
    assert (
        found.filter(reason="no references")["n_references"].to_list()
        == [0] * found.filter(reason="no references").height
    )
    assert not found.filter(reason="window open")["window_complete"].any()
    assert found.filter(reason="uncited").select((pl.col("n_i") + pl.col("n_j")).sum()).item() == 0
    assert (
        found.filter(reason="no references")["label_confidence"].null_count()
        == found.filter(reason="no references").height
    )


def test_a_doi_of_two_works_means_the_one_with_most_citations(caplog):
    works, citations, _ = scan_example()
    twice = works.sort("cited_by_count", descending=True, nulls_last=True).head(4_000).collect().with_columns(
        doi=pl.when(pl.int_range(pl.len()) < 2).then(pl.lit("10.1234/same")).otherwise("doi")
    )  # fmt: skip
    found = score_ids(["10.1234/SAME"], Corpus(twice.lazy(), citations, {}), prior="shipped")
    assert found["openalex_id"].to_list() == [f"W{twice['work_id'][0]}"]
    assert "1 DOI is of several works: the one with most citations counts" in caplog.text


def test_novelty_is_that_of_the_works_against_the_background(world, home):
    works, citations = world
    path = home / "pairs.parquet"
    write_background(ExampleConfig(), path, cache_dir=home)
    expected = compute_atypicality(works.lazy(), citations.lazy(), NoveltyConfig(), background=path).collect()
    some = works.sample(300, seed=2)
    for prior in ("corpus", "shipped"):
        found = by_number(score_ids(ids_of(some), ExampleConfig(), background=path, prior=prior, cache_dir=home))
        same = expected.join(found.select("work_id"), on="work_id", how="semi").sort("work_id")
        for column in ("n_pairs", "z_p10", "z_median", "novelty_score", "conventionality_score"):
            assert found[column].equals(same[column]), column
        assert found["novelty_label"].drop_nulls().len() > 10
    assert score_ids(ids_of(some), ExampleConfig(), cache_dir=home)["novelty_score"].null_count() == 300


def test_every_source_on_disk_gives_the_same_rows(world, home, corpus):
    listed = ids_of(world[0].sample(50, seed=5))
    expected = score_ids(listed, ExampleConfig(), cache_dir=home)
    sources = [
        RecordsConfig(inputs=(str(WORKS_FILE),)),
        CorpusConfig(folder=str(corpus)),
        corpus,
        str(corpus),
        scan_example(),
    ]
    for source in sources:
        assert score_ids(listed, source, cache_dir=home).equals(expected), source
    graph = graph_folder(open_corpus_graph(corpus, cache_dir=home))
    from_graph = score_ids(listed, graph)
    assert from_graph.select(*COUNTS, "n_references", "reason").equals(
        expected.select(*COUNTS, "n_references", "reason")
    )
    assert set(from_graph["prior"].drop_nulls()) == {"shipped"}


def test_the_prior_may_be_that_of_a_file_of_scores(world, home, corpus):
    path = home / "cd.parquet"
    write_cd_index(corpus, path, cache_dir=home)
    listed = ids_of(world[0].sample(50, seed=5))
    expected = score_ids(listed, corpus, cache_dir=home)
    given = score_ids(listed, corpus, prior=path, cache_dir=home)
    assert given.drop("prior").equals(expected.drop("prior"))
    assert set(given["prior"].drop_nulls()) == {"given"}


def test_ids_of_a_table_of_ones_own_are_found(home):
    works, citations, _ = scan_synthetic(SyntheticConfig(n_works=2_000))
    own = works.with_columns(original_id=pl.format("our-{}", "work_id"))
    numbers = own.select("work_id").head(3).collect()["work_id"]
    found = score_ids([f"W{number}" for number in numbers], Corpus(own, citations, {}), prior="shipped", cache_dir=home)
    assert found["openalex_id"].to_list() == [f"our-{number}" for number in numbers]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cd": CDConfig(windows=(10,))}, "have no effect on ids"),
        ({"prior": "no.parquet"}, "prior is 'no.parquet', which is no file"),
        ({"prior": 5}, "prior is '5', which is no file"),
        ({"background": "no.parquet"}, "no.parquet"),
        ({"cd": 5}, "CDConfig"),
        ({"thresholds": 5}, "LabelThresholds"),
        ({"source": 5}, "source is 5"),
        ({"source": "no/folder"}, "no corpus in no/folder: there is no such folder"),
    ],
)
def test_a_wrong_argument_is_one_clear_error(changes, message, home):
    options = {"source": ExampleConfig(), "cache_dir": home} | changes
    with pytest.raises(SciSciDataError, match=message):
        score_ids(["W1"], options.pop("source"), **options)


def test_what_needs_all_works_is_refused(world, home):
    path = home / "pairs.parquet"
    write_background(ExampleConfig(), path, cache_dir=home, overwrite=True)
    uzzi = LabelThresholds(novelty_rule="uzzi")
    with pytest.raises(ConfigError, match="compares a work with all works"):
        score_ids(["W1"], ExampleConfig(), thresholds=uzzi, background=path, cache_dir=home)
    graph = build_graph(*world)
    with pytest.raises(ConfigError, match="a graph knows no venues"):
        score_ids(["W1"], graph, background=path)
    with pytest.raises(ConfigError, match="a graph knows works by their OpenAlex ids only"):
        score_ids(["10.1234/a"], graph)


def test_the_command_writes_csv_or_parquet_and_never_replaces_another_file(world, home, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dois.csv").write_text("title,DOI\nx,https://doi.org/10.1001/JAMA.288.3.321\ny,\n")
    command = ["score", "--ids", "dois.csv", "--source", "example", "--cache-dir", str(home), "--out"]
    assert main([*command, "scores.csv"]) == 0
    assert "judged: 1" in capsys.readouterr().out
    rows = pl.read_csv("scores.csv")
    assert rows.columns == ID_SCORES.names()
    assert rows["reason"].to_list() == [None, "no id"]
    assert main([*command, "scores.parquet"]) == 0
    assert pl.read_parquet("scores.parquet").schema == ID_SCORES
    assert (
        pl.read_parquet("scores.parquet")
        .select(COUNTS)
        .equals(rows.select(COUNTS).cast({n: ID_SCORES[n] for n in COUNTS}))
    )
    capsys.readouterr()
    assert main(["describe", "scores.parquet"]) == 0
    assert "scores of a list of ids\n" in (said := capsys.readouterr().out)
    assert "  ids: 2 (1 with a score)\n  judged: 1." in said
    assert "  of: dois.csv\n" in said
    assert verify("scores.parquet").counts == {"works": 2}
    assert main([*command, "scores.parquet", "--overwrite"]) == 0
    pl.DataFrame(schema=ID_SCORES).write_parquet("mine.parquet")
    assert main([*command, "mine.parquet", "--overwrite"]) == 1
    assert "mine.parquet is no file of scores" in capsys.readouterr().err
    (tmp_path / "mine.parquet").unlink()
    assert main([*command, "scores.csv"]) == 1
    assert "scores.csv already exists. Choose another file, or replace it: --overwrite." in capsys.readouterr().err
    assert main([*command, "scores.csv", "--overwrite"]) == 0
    assert main([*command, "dois.csv", "--overwrite"]) == 1
    assert "dois.csv holds no scores of ids, so it is not replaced" in capsys.readouterr().err
    assert main([*command, "scores.txt"]) == 1
    assert "--out is 'scores.txt', needs the name of a CSV or Parquet file" in capsys.readouterr().err
    assert main([*command, "new.csv", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "ids: 2 (DOI 1, blank 1)" in said
    assert "would write: new.csv, which is new; nothing was written" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dois.csv", "scores.csv", "scores.parquet"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ids", "none.csv"], "none.csv does not exist. Check the path"),
        (["--ids", "."], "is a folder. Name a file in it"),
        (["--ids", "pipe"], "pipe is a pipe or a device, needs a file. Write the ids into one, or pipe them into"),
        (["--ids", "words.csv"], "it has x, y. Name the column of ids: --id-column"),
        (["--ids", "dois.csv", "--id-column", "DIO"], "has no column 'DIO'; it has title, DOI. Did you mean DOI?"),
        (["--ids", "authors.txt"], "'A5023888391' is the id of an author"),
        (["--ids", "empty.csv"], "empty.csv is empty"),
        ([], "--ids is required"),
        (["--ids", "dois.csv", "--prior", "none"], "prior is 'none', which is no file"),
    ],
)
def test_a_wrong_command_is_one_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dois.csv").write_text("title,DOI\nx,10.1001/JAMA.288.3.321\n")
    (tmp_path / "authors.txt").write_text("A5023888391\nA5023888392\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "words.csv").write_text("x,y\na b,c d\n")
    os.mkfifo(tmp_path / "pipe")
    try:
        status = main(["score", *words, "--source", "example", "--out", "scores.csv"])
    except SystemExit as end:
        status = end.code
    assert status != 0
    *_, last = capsys.readouterr().err.strip().splitlines()
    assert message in last
    assert not (tmp_path / "scores.csv").exists()


@pytest.mark.slow
def test_sciscinet_is_scored_by_its_citations_like_the_same_corpus(sciscinet_tables, home):
    source = SciSciNetConfig(folder=str(sciscinet_tables))
    works, citations, _ = scan_citations(source, home)
    expected = compute_cd_index(works, citations).collect().sort("work_id")
    listed = ids_of(works.select("work_id").head(300).collect())
    found = by_number(score_ids(listed, source, prior="shipped", cache_dir=home))
    same = expected.join(found.select("work_id"), on="work_id", how="semi").sort("work_id")
    assert found.select(COUNTS).equals(same.select(COUNTS))
    assert found["reason"].is_null().any()


def scan_citations(source, home) -> Corpus:
    ingest(source, home / "sciscinet", cache_dir=home, overwrite=True)
    return scan_corpus(home / "sciscinet")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_counts_are_those_of_sets_in_random_graphs(data):
    n = data.draw(st.integers(3, 14))
    numbers = range(1, n + 1)
    years = [data.draw(st.none() | st.integers(2000, 2008)) for _ in numbers]
    edges = data.draw(st.lists(st.tuples(st.integers(1, n + 2), st.integers(1, n + 2)), max_size=50))
    works = WORKS.to_frame().clear(n).with_columns(
        work_id=pl.Series([*numbers], dtype=pl.Int64()), publication_year=pl.Series(years, dtype=pl.Int32())
    )  # fmt: skip
    citations = pl.DataFrame(edges, CITATIONS, orient="row")
    asked = data.draw(st.lists(st.integers(1, n), min_size=1, max_size=5))
    found = score_ids([f"W{number}" for number in asked], Corpus(works.lazy(), citations.lazy(), {}), prior="shipped")
    expected = cd_family(dict(zip(numbers, years, strict=True)), edges, CDConfig())
    for row in found.iter_rows(named=True):
        scores = expected[int(row["asked"][1:])]
        if scores is None:
            assert (row["reason"], row["n_i"], row["cd_index"]) == ("no year", None, None)
        else:
            assert [row[name] for name in COUNTS[:4]] == [scores[name] for name in COUNTS[:4]]


def test_a_source_without_dois_says_so_where_dois_are_asked_for(home, caplog):
    works = pl.DataFrame({"work_id": ["a", "b"], "publication_year": [1990, 1995]})
    citations = pl.DataFrame({"citing_id": ["b"], "cited_id": ["a"]})
    asked = {"cache_dir": home, "prior": "shipped"}
    score_ids(["10.1/a"], from_tables(works, citations), **asked)
    assert any("no work of this source has a DOI" in message for message in caplog.messages)
    caplog.clear()
    with_doi = from_tables(works.with_columns(DOI=pl.Series(["10.1/a", None])), citations)
    assert score_ids(["10.1/A", "10.1/b"], with_doi, **asked)["openalex_id"].to_list() == ["a", None]
    score_ids(["10.1/b"], with_doi, **asked)
    score_ids(["a"], from_tables(works, citations), **asked)
    assert not any("has a DOI" in message for message in caplog.messages)


def test_a_doi_of_several_works_is_noted_in_its_row(home):
    works = pl.DataFrame(
        {"work_id": ["a", "b", "c"], "publication_year": [1990, 1995, 1996], "doi": ["10.1/a", "10.1/a", "10.1/c"]}
    )
    works = works.with_columns(cited_by_count=pl.Series([1, 5, 0]))
    citations = pl.DataFrame({"citing_id": ["b", "c"], "cited_id": ["a", "b"]})
    rows = score_ids(["10.1/A", "10.1/c", "a"], from_tables(works, citations), cache_dir=home, prior="shipped")
    assert rows.select("openalex_id", "note").rows() == [
        ("b", "2 works have this DOI; this one has most citations"),
        ("c", None),
        ("a", None),
    ]
