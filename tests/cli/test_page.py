"""The page of ``sciscidata describe --html``: self-contained, escaped, and never over somebody's file."""

from __future__ import annotations

import html
import re

import polars as pl
import pytest

from sciscidata.cli.main import main
from sciscidata.config import BuildConfig
from sciscidata.corpus.scores import state_facts, write_scores
from sciscidata.corpus.writer import write_corpus
from sciscidata.graph.graph import read_graph
from sciscidata.pipeline import build, export_labelled, write_background
from sciscidata.release.read import read_release
from sciscidata.sampling.config import SplitConfig
from sciscidata.schemas import WORKS, Corpus
from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
from sciscidata.sources.tables.frames import from_tables
from sciscidata.stages import ingest, write_atypicality, write_cd_index
from tests.web_pages import Page

VILE = '<script>alert(1)</script> & "quoted" \x1b[2J'


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("page")
    source = SyntheticConfig(n_works=3_000)
    places = {"source": source, "cache_dir": home / "cache"}
    build(BuildConfig(**places, out=home / "slice", split=SplitConfig(n_train=60, n_test=9)))
    export_labelled(BuildConfig(**places, out=home / "labelled"))
    works, citations, provenance = scan_synthetic(SyntheticConfig(n_works=100))
    vile = works.with_columns(title=pl.lit(VILE), primary_field=pl.lit(VILE)).cast(dict(WORKS))
    write_corpus(Corpus(vile, citations, {**provenance, "note": VILE}), home / "corpus")
    return home


@pytest.mark.parametrize(
    ("name", "told", "n_pictures"),
    [("slice", "n works: 3,000", 3), ("labelled", "n works: 3,000", 4), ("corpus", "works: 100", 1)],
)
def test_a_page_shows_counts_quantiles_pictures_and_twenty_works(home, capsys, name, told, n_pictures):
    page = home / f"{name}.html"
    for _ in range(2):  # the second replaces the first
        assert main(["describe", str(home / name), "--html", str(page)]) == 0
    assert f"page: {page}" in capsys.readouterr().out
    text = page.read_text("utf-8")
    read = Page(text)
    assert told in read.text
    assert len([tag for tag, _ in read.tags if tag == "img"]) == n_pictures
    assert len([tag for tag, _ in read.tags if tag == "article"]) == 20
    for heading in ("median", "p90", "max", "citations", "Fields", "Pictures"):
        assert heading in read.text
    addresses = [value for _, attrs in read.tags for key, value in attrs.items() if key in ("src", "href", "action")]
    assert all(address.startswith("data:image/png;base64,") for address in addresses)
    assert not re.search(r"url\(|@import|<script|<link|\x1b", text)
    assert "color-scheme: light dark" in text


def test_quantiles_are_those_of_polars(home):
    page = home / "quantiles.html"
    main(["describe", str(home / "slice"), "--html", str(page)])
    works = pl.concat([pl.read_parquet(home / "slice" / f"{split}.parquet") for split in ("train", "test")])
    cited = works["cited_by_count"]
    quantiles = [cited.quantile(share, interpolation="linear") for share in (0, 0.1, 0.5, 0.9, 1)]
    numbers = [f"{cited.len():,}", *(f"{quantile:,.0f}" for quantile in quantiles)]
    row = re.search(r"<tr><td>citations</td>(.*?)</tr>", page.read_text("utf-8"))
    assert re.findall(r">([^<]+)<", row[1]) == numbers


def test_what_records_hold_is_text_and_no_markup(home):
    page = home / "vile.html"
    assert main(["describe", str(home / "corpus"), "--html", str(page)]) == 0
    text = page.read_text("utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quoted&quot;" in text


def test_a_file_that_is_no_such_page_stays_unless_asked(home, capsys, tmp_path):
    thesis = tmp_path / "thesis.html"
    thesis.write_text("<h1>mine</h1>")
    assert main(["describe", str(home / "slice"), "--html", str(thesis)]) == 1
    assert thesis.read_text() == "<h1>mine</h1>"
    assert "is no page of `describe`. Choose another file, or replace it: --overwrite." in capsys.readouterr().err
    assert main(["describe", str(home / "slice"), "--html", str(thesis), "--overwrite"]) == 0
    assert "labels of 69 works from a synthetic world</h1>" in thesis.read_text("utf-8")
    assert main(["describe", str(home / "slice"), "--html", str(tmp_path)]) == 1
    assert "is a folder. Name a file to write" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.html"]


def test_graphs_scores_and_backgrounds_have_a_plain_page(home, tmp_path):
    ingest(SyntheticConfig(n_works=500), tmp_path / "world", cache_dir=tmp_path)
    places = {"cache_dir": tmp_path / "cache"}
    graph = read_graph(next((home / "cache").glob("graph-*")))
    background = write_background(SyntheticConfig(n_works=500), tmp_path / "pairs.parquet", **places)
    n_pairs = background.counts["n_pairs"].sum()
    cd = write_cd_index(tmp_path / "world", tmp_path / "cd.parquet", **places)
    median = pl.read_parquet(cd)["cd_index"].median()
    for path, n_pictures, told in (
        (next((home / "cache").glob("graph-*")), 0, f"distinct citations: {graph.n_citations:,}"),
        (cd, 1, f"<td>{median:.3g}</td>"),
        (write_atypicality(tmp_path / "world", tmp_path / "novelty.parquet", **places), 0, "novelty score"),
        (background.path, 0, f"rows (venue pairs by year): {n_pairs:,}"),
    ):
        page = tmp_path / "page.html"
        assert main(["describe", str(path), "--html", str(page), "--overwrite"]) == 0
        text = page.read_text("utf-8")
        assert text.count("<img") == n_pictures
        assert told in text
        assert Page(text).text.strip()


@pytest.mark.parametrize(
    ("column", "told"),
    [(pl.lit(0.5), "<td>age of references</td><td>100</td>"), (pl.lit("a"), "<p>new measure · works: 100")],
)
def test_a_measure_without_a_row_in_the_table_is_verified_and_described(home, tmp_path, capsys, column, told):
    ids = scan_synthetic(SyntheticConfig(n_works=100)).works.select("work_id").sort("work_id").collect()
    facts = state_facts("new_measure", 1, home / "corpus", {})
    scores = ids.select("work_id", age_of_references=column)
    file = write_scores([scores], tmp_path / "new.parquet", facts, replace=False)
    assert main(["verify", str(file)]) == 0
    assert main(["describe", str(file), "--html", str(tmp_path / "page.html")]) == 0
    assert "new measure\n  works: 100 (100 with a score)" in capsys.readouterr().out
    assert told in (tmp_path / "page.html").read_text("utf-8")


def test_works_of_own_tables_keep_their_ids(tmp_path):
    tables = {"work_id": ["P1", "P2"], "publication_year": [2000, 2001]}, {"citing_id": ["P2"], "cited_id": ["P1"]}
    write_corpus(from_tables(*map(pl.DataFrame, tables)), tmp_path / "corpus")
    assert main(["describe", str(tmp_path / "corpus"), "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "<p>P1 · 2000" in page
    assert "<p>P2 · 2001" in page


def test_what_to_know_comes_first_then_works_tables_are_tables_and_hashes_are_folded_last(home, capsys):
    page = home / "order.html"
    assert main(["describe", str(home / "slice"), "--html", str(page)]) == 0
    printed = capsys.readouterr().out
    (first,) = re.findall(r"^  1  (.+)", printed, re.MULTILINE)
    title, _, body = page.read_text("utf-8").partition("</h1>")
    assert html.unescape(title).endswith(f"<h1>{printed.splitlines()[0]}")
    assert html.unescape(body).startswith(f"<p>{printed.splitlines()[1]}</p>")
    box = body.partition('<section class="first">')[2].partition("</section>")[0]
    assert html.unescape(box).startswith(f"<h2>Read this first</h2><ol><li>{first}")
    assert 1 <= box.count("<li>") <= 3
    numbers = re.search(r"^labelled +(.+)$", printed, re.MULTILINE)[1].split()
    assert f"<tr><td>labelled</td>{''.join(f'<td>{number}</td>' for number in numbers)}</tr>" in body
    headings = re.findall("<h2>(.*?)</h2>", body)
    assert headings[:4] == ["Read this first", "20 of 69 works", "Pictures", "Labels"]
    top, _, files = body.rpartition("<details>")
    assert files.count("sha256") == 12
    assert "sha256" not in top
    scores = read_release(home / "slice").scores
    counts = scores.filter(openalex_id=re.search(r"<p>(W\d+) ·", body)[1]).row(0, named=True)
    assert "<div>n_i {n_i:,} · n_j {n_j:,} · n_k {n_k:,} · CD index ".format(**counts) in body
    assert "comes back" in body


def test_a_page_of_own_texts_leaves_out_what_they_do_not_have(tmp_path):
    texts = [f"Text {n} {'repeats an earlier experiment with ever more patients ' * 3}" for n in range(20)]
    pl.DataFrame({"text": texts, "label": ["yes", "no"] * 10}).write_csv(tmp_path / "mine.csv")
    words = ["--labelled", str(tmp_path / "mine.csv"), "--text", "text", "--label", "label", "--n-train", "8"]
    assert main(["build", *words, "--n-test", "2", "--out", str(tmp_path / "mine")]) == 0
    assert main(["describe", str(tmp_path / "mine"), "--html", str(tmp_path / "mine.html")]) == 0
    page = (tmp_path / "mine.html").read_text("utf-8")
    assert len(re.findall("<h3>Text [0-9]+ repeats an earlier experiment with .{30,50} …</h3>", page)) == 10
    assert page.count("<img") == page.count('alt="No class has most of the') == 1
    for nothing in ("Years, citations", "Fields", "unknown", "without a title", "concepts"):
        assert nothing not in page
