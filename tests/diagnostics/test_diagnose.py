"""Diagnostics: the warning that each mistake in real data gets, and every count against a plain one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sciscidata as ssd
from sciscidata.cli.build_options import list_settings
from sciscidata.cli.main import main
from sciscidata.corpus.folder import scan_corpus
from sciscidata.corpus.writer import write_corpus
from sciscidata.diagnostics import diagnose as diagnose_module
from sciscidata.diagnostics.diagnose import DIAGNOSTICS, diagnose, find_successors
from sciscidata.diagnostics.picture import _MEANING, plot_diagnostics
from sciscidata.eligibility import list_removed
from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.options.parser import translate
from sciscidata.release.documents import remark_on_release
from sciscidata.sampling.manifest_entries import find_one_sided
from sciscidata.stages import ingest, write_atypicality, write_cd_index
from tests.real_graphs import scan_real

YEAR = {"publication_year": pl.Int32}


def read_graph() -> tuple[pl.DataFrame, pl.DataFrame]:
    """WORKS as far as a graph knows them, and CITATIONS."""
    works, citations = scan_real()
    return works.collect(), citations.collect()


def found(works: pl.DataFrame, citations: pl.DataFrame, **options) -> dict[str, dict]:
    return {row["name"]: row for row in diagnose(works.lazy(), citations.lazy(), **options).iter_rows(named=True)}


def warnings(rows: dict[str, dict]) -> set[str]:
    return {name for name, row in rows.items() if row["level"] == "warning"}


def test_reversed_edges_are_told_from_the_years():
    works, citations = read_graph()
    citations = citations.join(works, left_on="cited_id", right_on="work_id", how="semi")
    turned = citations.select(citing_id="cited_id", cited_id="citing_id")
    row = found(works, turned)["later_citations"]
    assert row["level"] == "warning"
    assert row["text"].endswith("lead to a later work: are citing and cited swapped?")
    assert found(works, citations)["later_citations"]["level"] == "ok"
    assert warnings(found(*read_graph())) == set()  # its reference lists are whole, as those of other real sets are
    assert 0.9 < found(*read_graph())["cited_ids"]["value"] < 0.995


def test_reversed_edges_are_told_from_the_ids_where_no_work_has_a_year():
    works, citations = read_graph()
    citers = citations["citing_id"].unique()  # a download brings the references of its works, and not their records
    some = works.filter(pl.col("work_id").is_in(citers.head(2_000).implode())).with_columns(publication_year=None)
    some = some.cast(YEAR)
    own = citations.filter(pl.col("citing_id").is_in(some["work_id"].implode()))
    assert "citing_ids" not in warnings(found(some, own))
    row = found(some, own.select(citing_id="cited_id", cited_id="citing_id"))["citing_ids"]
    assert row["text"].endswith("and nearly all cited ids are; are citing and cited swapped?")


def test_disjoint_ids_are_shown_by_an_example_of_each():
    works, citations = read_graph()
    rows = found(works.with_columns(pl.col("work_id") + 10**12), citations)
    assert rows["works_in_citations"]["text"] == (
        "works and citations have no id in common: works have ids like 1002397337610, citations like 98859. Are "
        "they of one source?"
    )
    assert warnings(rows) >= {"works_in_citations", "citing_ids", "cited_ids"}


def test_citations_to_the_future_warn_before_they_look_swapped():
    works, citations = read_graph()
    is_wrong = pl.col("work_id") % 10 == 0
    late = works.with_columns(pl.when(is_wrong).then(2003).otherwise("publication_year").alias("publication_year"))
    row = found(late.cast(YEAR), citations)["later_citations"]
    assert row["level"] == "warning"
    assert 0.05 < row["value"] < 0.2
    assert row["text"].endswith("lead to a later work: check the years")


def test_missing_references_are_counted_by_year_and_field():
    works, citations = read_graph()
    works = works.with_columns(
        primary_field=pl.when(pl.col("work_id") % 3 == 0).then(pl.lit("Strings")).otherwise(pl.lit("Branes"))
    )
    before = found(works, citations)["no_references"]
    lost = works.filter(pl.col("publication_year").is_between(1997, 2002))["work_id"]
    row = found(works, citations.filter(~pl.col("citing_id").is_in(lost.implode())))["no_references"]
    assert row["n"] > before["n"]
    assert {group["year"]: group["n"] == group["of"] for group in row["by_year"]}[1999]
    assert row["text"].endswith("there is no score; most so in 1999 (100.0 %)")
    assert {group["field"] for group in row["by_field"]} == {"Strings", "Branes"}
    assert sum(group["n"] for group in row["by_field"]) == row["n"]


def test_repeated_rows_and_lost_works_warn():
    works, citations = read_graph()
    twice = found(works, pl.concat([citations, citations]))["repeats"]
    assert (twice["n"], twice["level"]) == (citations.height - 7, "warning")
    half = found(works.filter(pl.col("work_id") % 2 == 0), citations)
    assert {"citing_ids"} <= warnings(half)
    assert half["cited_ids"]["n"] > 10_000


WORKS = st.dictionaries(st.integers(1, 30), st.none() | st.integers(1380, 2035), min_size=1, max_size=20)
EDGES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=60)


@settings(max_examples=40)
@given(WORKS, EDGES, st.integers(0, 9), st.integers(1, 4))
def test_every_count_is_that_of_plain_sets(years, edges, window, span):
    venues = {work: work % 3 or None for work in years}
    works = pl.DataFrame(
        {"work_id": [*years], "publication_year": [*years.values()], "source_id": [*venues.values()]},
        schema={"work_id": pl.Int64, "publication_year": pl.Int32, "source_id": pl.Int64},
    )
    citations = pl.DataFrame(edges, schema={"citing_id": pl.Int64, "cited_id": pl.Int64}, orient="row")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnose_module, "_SPAN", span)
        rows = found(works, citations, window_years=window, last_year=2020)
    links = {edge for edge in edges if edge[0] != edge[1]}
    citing, cited = {a for a, _ in links}, {b for _, b in links}
    dated = [(years[a], years[b]) for a, b in links if years.get(a) is not None and years.get(b) is not None]
    known = [year for year in years.values() if year is not None]
    of_known = [b for _, b in links if b in years]
    expected = {
        "works_in_citations": (len((citing | cited) & years.keys()), len(years)),
        "citing_ids": (len(citing - years.keys()), len(citing)),
        "cited_ids": (len(cited - years.keys()), len(cited)),
        "later_citations": (sum(a < b for a, b in dated), len(dated)),
        "self_citations": (sum(a == b for a, b in edges), len(edges)),
        "repeats": (len(edges) - sum(a == b for a, b in edges) - len(links), len(edges)),
        "no_year": (len(years) - len(known), len(years)),
        "complete_window": (sum(year + window < 2020 for year in known), len(known)),
        "no_references": (len(cited & years.keys() - citing), len(cited & years.keys())),
        "works_with_venue": (sum(venue is not None for venue in venues.values()), len(years)),
        "references_with_venue": (sum(venues[b] is not None for b in of_known), len(of_known)),
    }
    assert {name: (rows[name]["n"], rows[name]["of"]) for name in expected} == expected
    for name, (n, of) in expected.items():
        assert rows[name]["value"] == (n / of if of else None)
        for groups in (rows[name]["by_year"], rows[name]["by_field"]):
            assert not groups or sum(group["n"] for group in groups) <= n


def test_a_merged_work_leads_to_the_one_work_that_has_its_doi_now():
    earlier = pl.LazyFrame({"work_id": [1, 2, 3, 4], "doi": ["10.1/a", "10.1/b", "10.1/c", None]})
    works = pl.DataFrame(
        {"work_id": [1, 5, 6, 7], "publication_year": [2000] * 4, "doi": ["10.1/a", "10.1/b", "10.1/c", "10.1/c"]},
        schema_overrides=YEAR,
    )
    citations = pl.DataFrame({"citing_id": [5, 6, 5, 5], "cited_id": [2, 2, 3, 4]})
    assert find_successors(works.lazy(), earlier).rows() == [(2, 5)]  # two works have the DOI of 3, and 4 has none
    row = found(works, citations, earlier=earlier)["merged"]
    assert (row["n"], row["of"], row["level"]) == (2, 4, "warning")
    assert "(W2 is now W5)" in row["text"]
    alone = found(works, citations)["merged"]
    assert (alone["n"], alone["of"], alone["level"]) == (None, 4, "ok")
    assert "cannot be inferred" in alone["text"]


def test_a_cached_graph_and_frames_without_other_columns_give_the_same(tmp_path):
    works, citations = read_graph()
    works = works.drop("source_id")
    bare = diagnose(works.lazy(), citations.lazy())
    for _ in range(2):
        assert diagnose(works.lazy(), citations.lazy(), cache_dir=tmp_path).equals(bare)
    assert bare.schema == DIAGNOSTICS
    assert "works_with_venue" in bare.filter(pl.col("value").is_null())["name"].to_list()


def test_wrong_arguments_are_refused_when_called():
    works = pl.LazyFrame({"work_id": [1], "publication_year": [2000]}, schema_overrides=YEAR)
    citations = pl.LazyFrame({"citing_id": [1], "cited_id": [2]})
    with pytest.raises(ConfigError, match="window_years is -1"):
        diagnose(works, citations, window_years=-1)
    with pytest.raises(SchemaMismatchError, match="WORKS lacks column 'doi'"):
        diagnose(works, citations, earlier=pl.LazyFrame({"work_id": [1], "doi": ["10.1/a"]}))
    with pytest.raises(SchemaMismatchError, match="plot_diagnostics"):
        plot_diagnostics(works.collect())


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_picture_is_written_in_the_format_of_its_name(tmp_path, suffix):
    works, citations = scan_real()
    rows = diagnose(works.with_columns(primary_field=pl.lit("Law")), citations)
    path = tmp_path / f"checks.{suffix}"
    figure = plot_diagnostics(rows, path, title="reviews")
    assert path.read_bytes()[:5].strip(b"\x89%") in (b"PNG\r", b"<?xml", b"PDF-")
    checks, _, years, fields = figure.axes
    labels = [tick.get_text() for tick in checks.get_yticklabels()]
    assert labels.index("works in a citation") < labels.index("high is bad:") < labels.index("works without a year")
    assert set(rows.drop_nulls("value")["name"]) <= _MEANING["high is good"].keys() | _MEANING["high is bad"].keys()
    (legend,) = figure.legends
    listed = [text.get_text() for text in legend.get_texts()]
    assert "works with a venue (high is good)" in listed
    assert len(listed) == 3
    assert fields.get_legend() is None
    assert years.get_xlabel() == "year of publication"


# ---------- In a build: the summary, the manifest and the log say the same.


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> ssd.BuildConfig:
    home = tmp_path_factory.mktemp("build")
    config = ssd.BuildConfig(
        source=ssd.SyntheticConfig(n_works=4_000),
        out=home / "slice",
        split=ssd.SplitConfig(n_train=60, n_test=9),
        cache_dir=home / "cache",
    )
    ssd.build(config)
    return config


def test_the_manifest_holds_the_checks_of_the_data_that_were_built_from(release):
    manifest = json.loads((release.out / "manifest.json").read_text("utf-8"))
    works, citations, _ = ssd.scan_synthetic(release.source)
    rows = diagnose(works, citations, last_year=manifest["counts"]["last_year"])
    *checks, of_labels = manifest["diagnostics"]
    assert checks == rows.drop("by_year", "by_field").to_dicts()
    assert of_labels["name"] == "label_confidence"
    counts = manifest["counts"]
    for column, labels in counts["scored"].items():
        for label, n in labels.items():
            removed = sum(found[column][label] for found in counts["removed"].values())
            assert removed == n - counts["eligible"][column][label], (column, label)
    for name, columns in counts["removed"].items():
        assert sum(columns["disruption_label"].values()) <= counts["filters"][name]


def test_the_table_of_filters_is_the_same_where_texts_are_read_after_the_draw(release, tmp_path):
    ingest(release.source, tmp_path / "corpus", cache_dir=tmp_path / "cache")
    corpus = ssd.CorpusConfig(folder=str(tmp_path / "corpus"))
    late = ssd.build(ssd.BuildConfig(source=corpus, out=tmp_path / "late", split=release.split, cache_dir=tmp_path))
    early = ssd.read_release(release.out)
    of_text = {"no_title", "no_abstract", "language", "duplicate"}
    removed = [manifest["counts"]["removed"] for manifest in (early.manifest, late.manifest)]
    assert late.manifest["diagnostics"][:-1] == early.manifest["diagnostics"][:-1]  # the last is of eligible works
    counts = late.manifest["counts"]
    for column, labels in counts["scored"].items():
        for label, n in labels.items():
            gone = sum(found[column][label] for found in removed[1].values())
            assert gone == n - counts["eligible"][column][label], (column, label)
    if not of_text & removed[0].keys():
        assert removed[0] == removed[1]


def test_the_summary_tells_what_the_manifest_tells(release, capsys):
    assert main(["describe", str(release.out)]) == 0
    printed = capsys.readouterr().out
    manifest = ssd.read_release(release.out).manifest
    lines = " ".join(printed.split())
    remarks = remark_on_release(manifest)
    assert len(remarks) >= sum(check["level"] == "warning" for check in manifest["diagnostics"])
    for number, remark in enumerate(remarks, 1):
        assert lines.count(translate(remark.text, list_settings())) == 1
        assert f" {number} {remark.text[:20]}" in lines
        assert translate(remark.remedy, list_settings()) in lines
    for one in find_one_sided(manifest["counts"]):
        assert one.describe() in lines
    removed = printed.partition("may not be drawn\n")[2].partition("\n\n")[0].splitlines()
    numbers = [int(re.search(r"  ([\d,]+)(  |$)", line)[1].replace(",", "")) for line in removed]
    assert numbers == sorted((n for *_, n in list_removed(manifest)), reverse=True)


def test_ingest_and_graph_log_the_warnings(tmp_path, caplog):
    pl.DataFrame({"work_id": range(1, 101), "publication_year": [1000] * 100}).write_parquet(tmp_path / "works.parquet")
    citations = pl.DataFrame({"citing_id": range(1001, 1101), "cited_id": range(1, 101)})
    citations.write_parquet(tmp_path / "citations.parquet")
    source = ssd.TablesConfig(works=tmp_path / "works.parquet", citations=tmp_path / "citations.parquet")
    ingest(source, tmp_path / "world", cache_dir=tmp_path)
    assert "are dated before 1400" in caplog.text
    caplog.clear()
    assert scan_corpus(tmp_path / "world").works.select("publication_year").collect()["publication_year"].max() == 1000
    assert main(["graph", str(tmp_path / "world")]) == 0
    assert "are dated before 1400" in caplog.text
    assert "citing ids" in caplog.text


def test_a_filter_that_costs_one_class_is_named_only_if_it_costs_more_than_its_share():
    scored = {"disruption_label": {"disruptive": 5, "consolidating": 5, "neutral": 90}}
    removed = {"few_citations": {"disruption_label": {"disruptive": 0, "consolidating": 0, "neutral": 30}}}
    assert find_one_sided({"scored": scored, "removed": removed}) == []
    assert find_one_sided({}) == []
    scored["disruption_label"]["disruptive"] = 60
    (found,) = find_one_sided({"scored": scored, "removed": removed})
    assert found.describe() == "30 disruption labels, all of them neutral"


@pytest.mark.parametrize("write", [write_cd_index, write_atypicality])
def test_scores_of_a_corpus_whose_graph_was_never_built_warn_of_swapped_columns(write, tmp_path, caplog):
    works, citations = read_graph()
    citations = citations.join(works, left_on="cited_id", right_on="work_id", how="semi")
    swapped = citations.rename({"citing_id": "cited_id", "cited_id": "citing_id"})
    write_corpus(ssd.from_tables(works, swapped), tmp_path / "corpus")
    for number in range(2):  # the second time the graph is there, and its warning was given
        caplog.clear()
        write(tmp_path / "corpus", tmp_path / f"{number}.parquet", cache_dir=tmp_path / "cache")
        assert ("are citing and cited swapped?" in caplog.text) == (number == 0)


def _logged(caplog: pytest.LogCaptureFixture, act: Callable[[], object]) -> list[str]:
    caplog.clear()
    act()
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def _mistakes(works: pl.DataFrame, citations: pl.DataFrame) -> dict[str, tuple[pl.DataFrame, pl.DataFrame, str]]:
    """What makes every score wrong, with what the one warning says of it."""
    swapped = citations.select(citing_id="cited_id", cited_id="citing_id")
    return {
        "swapped": (works, swapped, "lead to a later work: are citing and cited swapped?"),
        "other ids": (works, citations.select(pl.all() + 10**12), "0.0 %) join two works: are the ids of citations"),
        "no citation": (works, citations.clear(), "there is no citation"),
        "no year": (works.with_columns(publication_year=pl.lit(None, pl.Int32)), citations, "null for all 1,500 works"),
    }


MEASURES = {
    "compute_cd_index": ssd.compute_cd_index,
    "compute_null_cd_index": lambda works, citations: ssd.indicators.compute_null_cd_index(works, citations, n_draws=2),
    "compute_atypicality": ssd.compute_atypicality,
    "compute_commonness": ssd.compute_commonness,
    "compute_wang_novelty": ssd.compute_wang_novelty,
}


@pytest.fixture(scope="module")
def world() -> tuple[pl.DataFrame, pl.DataFrame]:
    works, citations, _ = ssd.scan_synthetic(ssd.SyntheticConfig(n_works=1_500))
    return works.collect(), citations.collect()


@pytest.mark.parametrize("mistake", ["swapped", "other ids", "no citation", "no year"])
def test_the_plain_path_warns_once_where_no_score_means_anything(world, caplog, mistake):
    works, citations, said = _mistakes(*world)[mistake]
    for name, score in MEASURES.items():
        scores = score(works, citations)
        (text,) = _logged(caplog, scores.collect)
        assert text.startswith(f"{name}: ")
        assert said in text
    texts = _logged(caplog, lambda: ssd.from_tables(works, citations))
    assert len(texts) == (mistake != "no year")
    assert all(text.startswith("from_tables: ") and said in text for text in texts)


def test_the_plain_path_is_silent_where_the_data_are_right(world, caplog):
    for score in MEASURES.values():
        assert _logged(caplog, lambda score=score: score(*world).collect()) == []
    assert _logged(caplog, lambda: ssd.from_tables(*world)) == []


def test_nothing_runs_and_nothing_is_said_before_collect(world, caplog):
    works, citations, _ = _mistakes(*world)["swapped"]
    assert _logged(caplog, lambda: [score(works, citations) for score in MEASURES.values()]) == []


@pytest.mark.parametrize(
    ("mistake", "of_ingest", "of_graph"),
    [
        ("swapped", "ingest: 15,245 of", "are citing and cited swapped?"),
        ("other ids", "ingest: 0 of", "works and citations have no id in common"),
        ("no year", "have no year", "have no year"),
    ],
)
def test_the_commands_say_it_too(world, tmp_path, caplog, mistake, of_ingest, of_graph):
    works, citations, _ = _mistakes(*world)[mistake]
    works.drop("concepts").write_parquet(tmp_path / "works.parquet")
    citations.write_parquet(tmp_path / "citations.parquet")
    corpus, files = str(tmp_path / "corpus"), [f"--{name}={tmp_path / name}.parquet" for name in ("works", "citations")]
    sizes = ["--n-train", "300", "--n-test", "300", "--no-novelty"]
    commands = {
        "ingest": [*files, "--out", corpus],
        "cd": [corpus, "--out", str(tmp_path / "cd.parquet")],
        "build": ["--corpus", corpus, "--out", str(tmp_path / "release"), *sizes],
    }
    for name, arguments in commands.items():
        texts = _logged(caplog, lambda name=name, arguments=arguments: main([name, *arguments]))
        assert any((of_ingest if name == "ingest" else of_graph) in text for text in texts), name
        if name == "cd":
            assert any("cd: cd_index is null for all 1,500" in text for text in texts) == (mistake != "swapped")


def test_diagnose_warns_of_data_without_a_citation(world):
    works, citations = world
    row = found(works, citations.clear())["works_in_citations"]
    assert (row["level"], row["n"]) == ("warning", 0)
    few = pl.concat([citations.head(50), citations.tail(-50).with_columns(pl.col("cited_id") + 10**12)])
    row = found(works, few)["works_in_citations"]
    assert row["level"] == "warning"
    assert "join two works: are the ids of citations those of works?" in row["text"]


def test_late_years_of_few_works_are_not_called_impossible():
    """Of 248 records of the API, those of 2022 to 2025 were: with so few works, any year may be the last."""

    def late(in_a_year: int) -> dict:
        years = [2010 + place % 10 for place in range(10 * in_a_year)] + [2025] * (in_a_year // 8)
        works = pl.DataFrame({"work_id": range(len(years)), "publication_year": pl.Series(years, dtype=pl.Int32)})
        return found(works, pl.DataFrame({"citing_id": [1], "cited_id": [0]}))["impossible_years"]

    assert (late(80)["level"], late(80)["n"]) == ("ok", 0)
    assert (late(160)["level"], late(160)["n"]) == ("warning", 20)


def test_a_field_of_which_few_references_are_inside_is_no_reason_to_warn(world, caplog):
    """Of real fields with whole reference lists 3.7 to 20 % are inside, of records of many fields 2.4 %."""
    works, citations = world
    outside = pl.concat([citations.with_columns(pl.col("cited_id") + place * 10**12) for place in range(1, 25)])
    scores = ssd.compute_cd_index(works, pl.concat([citations, outside]))
    assert _logged(caplog, scores.collect) == []
