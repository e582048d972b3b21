"""``sciscidata explain``: what is typed, what is printed, and the page that it writes."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest

import sciscidata as ssd
from sciscidata.corpus.writer import write_corpus
from tests.web_pages import Page


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> tuple[Path, pl.DataFrame]:
    """A corpus on disk with its scores, beside it."""
    home = tmp_path_factory.mktemp("world")
    ssd.ingest(ssd.ExampleConfig(), home / "ex", cache_dir=home)
    ssd.write_cd_index(home / "ex", home / "cd.parquet")
    return home / "ex", pl.read_parquet(home / "cd.parquet")


@pytest.fixture(scope="module")
def work(world) -> int:
    scores = world[1].filter(pl.col("window_complete"), pl.col("n_i") > 5, pl.col("n_j") > 5)
    return scores["work_id"][0]


def test_sentences_and_the_first_rows_of_every_table_are_printed(run, world, work):
    folder, _ = world
    status, out, _ = run("explain", str(folder), f"W{work}")
    assert status == 0
    assert out.startswith(f"{ssd.explain(work, folder)}\n\nCiters that count (")
    assert "\n  class i cites none of its references, class j at least one" in out
    for heading in ("What it cites", "Works that cite only", "Other windows and conventions", "What would turn"):
        assert f"\n{heading}" in out
    assert max(map(len, out.split("Citers that count")[1].splitlines())) < 140


def test_a_graph_needs_the_number_of_a_work_only(run, world, work):
    (graph,) = (world[0] / "cache").glob("graph-*")
    status, out, _ = run("explain", str(graph), str(work))
    assert status == 0
    assert out.startswith(f"W{work} (")


def test_the_citers_of_a_graph_are_kept_on_request(run, world, work):
    folder, _ = world
    before = run("explain", str(folder), str(work))[1]
    status, out, _ = run("graph", str(folder), "--citers")
    (place,) = (folder / "cache").glob("citers-*")
    assert status == 0
    assert f"citers: {place}\n" in out
    assert run("explain", str(folder), str(work))[1] == before


def test_the_corpus_says_how_sure_a_label_is_as_its_scores_do(run, world, work, caplog):
    folder, scores = world
    _, own, _ = run("explain", str(folder), str(work))
    status, out, _ = run("explain", str(folder), str(work), "--scores", str(folder.parent / "cd.parquet"))
    assert status == 0
    assert out == own
    assert "another corpus" not in caplog.text
    few = (pl.col("n_i") + pl.col("n_j")).is_between(1, 8) & pl.col("cd_index").is_not_null()
    assert f"(prior: {scores.filter(few).height:,} works with one to eight citers)" in out
    asked = ssd.score_ids([str(work)], folder)["label_confidence"].item()
    assert ssd.explain(work, folder).scores["label_confidence"].item() == asked


def test_the_shipped_prior_says_that_it_is_of_other_works(run, world, work):
    (graph,) = (world[0] / "cache").glob("graph-*")
    _, out, _ = run("explain", str(graph), str(work))
    assert "(prior: the shipped one, of other works).\nBoth numbers may be far off" in out
    assert "--scores cd.parquet" in out


def test_scores_of_another_corpus_are_named(run, world, work, tmp_path, caplog):
    example = ssd.scan_example()
    old = example._replace(works=example.works.filter(pl.col("publication_year") < 2017))
    write_corpus(old, tmp_path / "old", texts=False)
    ssd.write_cd_index(tmp_path / "old", tmp_path / "old.parquet")
    assert run("explain", str(world[0]), str(work), "--scores", str(tmp_path / "old.parquet"))[0] == 0
    assert caplog.text.count("is of another corpus than") == 1


def test_options_of_the_index_and_of_labels_are_those_of_other_commands(run, world, work):
    folder, _ = world
    status, out, _ = run("explain", str(folder), str(work), "--window-years", "3", "--preset", "wide", "--pairs")
    expected = ssd.explain(
        work,
        folder,
        config=ssd.CDConfig(window_years=3),
        thresholds=ssd.LabelThresholds.preset("wide"),
        novelty=ssd.NoveltyConfig(),
    )
    assert status == 0
    assert out.startswith(str(expected))


def test_the_page_needs_no_network_and_replaces_pages_only(run, world, work, tmp_path):
    folder, _ = world
    status, out, _ = run("explain", str(folder), str(work), "--html", "work.html")
    page = (tmp_path / "work.html").read_text("utf-8")
    assert status == 0
    assert out.endswith(f"page: work.html ({len(page.encode()):,} bytes)\n")
    assert "data:image/png;base64," in page
    assert "default-src 'none'" in page
    assert "class i cites none of its references" in Page(page).text
    found = ssd.explain(work, folder)
    shown = [row[0] for row in Page(page).rows]
    assert {str(one) for one in found.citers["work_id"]} <= {*shown}
    assert Page(page).text.count(found.text.partition("\n")[0]) == 2  # as the title and the heading
    assert not re.search(r"""src=["']?(https?:)?//|<(link|script)""", page)
    (doi,) = found.citers.drop_nulls("doi").head(1)["doi"]
    assert f'<a href="https://doi.org/{quote(doi)}" rel="noreferrer">' in page  # to click on
    assert run("explain", str(folder), str(work), "--html", "work.html")[0] == 0
    (tmp_path / "mine.html").write_text("mine")
    status, _, err = run("explain", str(folder), str(work), "--html", "mine.html")
    assert status == 1
    assert "--overwrite" in err
    assert (tmp_path / "mine.html").read_text() == "mine"
    assert run("explain", str(folder), str(work), "--html", "mine.html", "--overwrite")[0] == 0
    assert "sciscidata explain" in (tmp_path / "mine.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["W5"], "has no work 'W5'. Name it by"),
        (["10.1234/no such"], "has no work '10.1234/no such'"),
        (["W5", "--scores", "nowhere.parquet"], "nowhere.parquet holds no prior"),
        (["W2013970299", "--background", "nowhere.parquet"], "no background at nowhere.parquet"),
    ],
)
def test_a_mistake_is_one_line(run, world, words, said):
    status, _, err = run("explain", str(world[0]), *words)
    assert status == 1
    assert said in err
    assert err.count("error: ") == 1


def test_a_folder_of_other_things_is_called_that(run, tmp_path):
    (tmp_path / "plain").mkdir()
    status, _, err = run("explain", str(tmp_path / "plain"), "W5")
    assert status == 1
    assert "plain is a folder, but no corpus, graph or release." in err


def test_the_prior_of_a_corpus_is_found_once(run, world, work, monkeypatch):
    folder, _ = world
    expected = ssd.explain(work, folder)
    monkeypatch.setattr("sciscidata.explanation.prior_of_corpus.score_graph", None)  # no work is scored again
    assert ssd.explain(work, folder).text == expected.text
    with pytest.raises(TypeError):  # another convention has another prior
        ssd.explain(work, folder, config=ssd.CDConfig(window_years=7))
    for file in folder.glob("cache/prior-*/label_prior.json"):
        file.write_text("{}")
    monkeypatch.undo()
    assert ssd.explain(work, folder).text == expected.text  # a damaged file is made again


def test_a_file_of_scores_is_no_place_to_explain_from(run, world):
    status, _, err = run("explain", str(world[0].parent / "cd.parquet"), "W5")
    assert status == 1
    assert "needs a corpus, a graph or a release" in err
