"""One number explained: counts equal those of all works, and every sentence follows from the tables."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

import sciscidata as ssd
from sciscidata.cli import explain_page
from sciscidata.corpus.writer import write_corpus
from sciscidata.disruption.config import COMPAT
from sciscidata.errors import ConfigError, InputNotFoundError, SchemaMismatchError, StorageError, WorkIdError
from sciscidata.explanation.neighbourhood import take
from sciscidata.graph.citers import write_citers
from sciscidata.graph.graph import build_graph, graph_folder, read_graph
from sciscidata.indicators import compute_cd_interval, compute_independent_cd_index, find_label_prior
from sciscidata.label_thresholds import compute_disruption_labels
from sciscidata.schemas import WORKS, Corpus
from tests import oracles
from tests.disruption.test_index import configs, edge_lists, frames, until, windows, years_of_works
from tests.real_graphs import scan_real

COUNTS = ["n_i", "n_j", "n_k", "cd_index"]


def scores_of(works, citations, config=None) -> pl.DataFrame:
    return ssd.compute_cd_index(works, citations, config, n_threads=1).collect().sort("work_id")


@pytest.fixture(scope="module")
def example():
    works, citations, provenance = ssd.scan_example()
    return works.collect(), citations.collect(), provenance


@pytest.fixture(scope="module")
def scored(example) -> pl.DataFrame:
    """All scores of the example, and how many works cite each in its window."""
    works, citations, _ = example
    rows = scores_of(works, citations).with_columns(n=pl.col("n_i") + pl.col("n_j"))
    return rows.join(works.select("work_id", "publication_year", "title", "doi"), on="work_id")


@given(years_of_works, edge_lists, configs(), windows | until)
@settings(max_examples=15)
def test_every_option_and_window_counts_as_for_all_works(years, edges, config, further):
    fits = config.window_from == "focal" or isinstance(
        further, int
    )  # each citation has its own window, or one ends all
    more = (further,) if fits and further != config.window_years else ()
    config = dataclasses.replace(config, windows=more, family=False)
    given = frames(years, edges)
    expected = scores_of(*given, config)
    graph = build_graph(*given)
    for row in expected.rows(named=True):
        for places in (given, (graph,)):
            found = ssd.explain(row["work_id"], *places, config=config).scores
            assert found.select(expected.columns).row(0, named=True) == row
    of_sets = oracles.cd_family(years, edges, dataclasses.replace(config, family=True), config.window_years)
    for work, want in of_sets.items():
        if want is not None:
            found = ssd.explain(work, *given, config=config).scores.row(0, named=True)
            assert {name: found[name] for name in COUNTS} == {name: want[name] for name in COUNTS}


@given(years_of_works, edge_lists)
@settings(max_examples=10)
def test_the_papers_of_each_class_are_those_of_plain_sets(years, edges):
    works, citations = frames(years, edges)
    cites = {work: {cited for citing, cited in edges if citing == work and cited != work} for work, _ in edges}
    for focal, year in years.items():
        found = ssd.explain(focal, works, citations)
        if year is None:
            assert found.citers.is_empty()
            continue
        inside = [work for work, at in years.items() if at is not None and year < at <= year + 5]
        references = cites.get(focal, set())
        of_it = {work for work in inside if focal in cites.get(work, ())}
        shared = {work: sorted(cites.get(work, set()) & references) for work in inside}
        assert dict(found.citers.select("work_id", "shared").rows()) == {work: shared[work] for work in of_it}
        classes = {work: "j" if shared[work] else "i" for work in of_it}
        assert dict(found.citers.select("work_id", "class").rows()) == classes
        others = {work: shared[work] for work in inside if shared[work] and work not in of_it}
        assert dict(found.citers_of_references.select("work_id", "shared").rows()) == others
        assert found.references["work_id"].sort().to_list() == sorted(references)


@pytest.mark.parametrize("name", ["example", "handball", "hepth"])
def test_real_works_are_counted_as_among_all_by_every_convention(name):
    works, citations = (frame.collect() for frame in scan_real(name))
    graph = build_graph(works, citations)
    some = np.random.default_rng(7).choice(works["work_id"].to_numpy(), 12, replace=False).tolist()
    found = {work: ssd.explain(work, graph).conventions for work in some}
    for convention in ("this", *COMPAT):
        config = ssd.CDConfig() if convention == "this" else ssd.CDConfig.compat(convention)
        window = "all" if config.window_years is None else str(config.window_years)
        expected = scores_of(works, citations, config)
        for work, rows in found.items():
            row = rows.filter(convention=convention, window=window).select(COUNTS).row(0)
            assert row == expected.filter(work_id=work).select(COUNTS).row(0), (convention, work)


def test_no_smaller_change_turns_the_label():
    rows = pl.DataFrame({"n_i": [28, 4, 2, 0], "n_j": [4, 9, 2, 1], "n_k": [14, 300, 0, 30]})
    for (n_i, n_j, n_k), wide in [(row, wide) for row in rows.rows() for wide in (False, True)]:
        cut = ssd.LabelThresholds.preset("wide") if wide else ssd.LabelThresholds()

        def label(i, j, k=n_k, cut=cut):
            cd = pl.DataFrame({"cd_index": [(i - j) / (i + j + k)]})
            return compute_disruption_labels(cd, cut).collect()["disruption_label"].item()

        years = {1: 1990, 2: 2000} | dict.fromkeys(range(10, 10 + n_i + n_j + n_k), 2001)
        edges = [(2, 1), *((work, 2) for work in range(10, 10 + n_i + n_j))]
        edges += [(work, 1) for work in range(10 + n_i, 10 + n_i + n_j + n_k)]
        found = ssd.explain(2, *frames(years, edges), thresholds=cut)
        assert found.scores.select("n_i", "n_j", "n_k").row(0) == (n_i, n_j, n_k)
        moves = {"alone": (1, 0), "references": (0, 1)}
        for to, change, n, cd in found.turns.iter_rows():
            i, j = (step * (1 if change.startswith("more") else -1) for step in moves[change.split()[-1]])
            assert label(n_i + n * i, n_j + n * j) == to
            assert cd == (n_i + n * i - n_j - n * j) / (n_i + n_j + n_k + n * (i + j))
            smaller = [label(n_i + m * i, n_j + m * j) for m in range(1, n)]
            assert to not in smaller
        assert found.turns["n_citers"].is_sorted()


def test_labels_by_rank_are_turned_by_the_cut_offs_of_the_cell():
    works, citations = frames({1: 1990, 2: 2000, 3: 2001, 4: 2001}, [(2, 1), (3, 2), (4, 2), (4, 1)])
    cut = ssd.LabelThresholds(cells={"Art 2000": (-0.5, -0.1, 0.1, 0.5)})
    works = works.with_columns(primary_field=pl.lit("Art"))
    found = ssd.explain(2, works, citations, thresholds=cut)
    assert found.scores["disruption_label"].item() == "neutral"
    # One more makes it 1 / 3, which has no label in this cell; that is a change, too.
    more = found.turns.filter(change="more citers of it alone").rows()
    assert (None, "more citers of it alone", 1, 1 / 3) in more
    assert ("disruptive", "more citers of it alone", 2, 0.5) in more
    assert "1 fewer citer of it and its references would make it disruptive" in found.text


def test_confidence_and_interval_are_those_of_the_same_prior(example, scored):
    works, citations, _ = example
    prior = find_label_prior(scored)
    row = scored.filter(pl.col("window_complete"), pl.col("n_i") > 3, pl.col("n_j") > 3).head(1)
    found = ssd.explain(row["work_id"].item(), works, citations, prior=prior)
    sure = ssd.compute_label_confidence(compute_cd_interval(row, prior=prior), prior=prior).collect()
    names = ["cd_low", "cd_high", "cd_shrunk", "label_confidence", "p_neutral"]
    assert found.scores.select(names).row(0) == sure.select(names).row(0)
    assert f"{prior.works:,} works" in found.text
    assert "shipped" in ssd.explain(row["work_id"].item(), works, citations).text


def test_a_work_is_named_in_any_form(example, scored):
    works, citations, _ = example
    work, doi = scored.drop_nulls("doi").filter(pl.col("n") > 0).select("work_id", "doi").row(0)
    forms = [work, np.int64(work), str(work), f"W{work}", f"w{work}", f"https://openalex.org/W{work}", doi, doi.upper()]
    forms += [f"doi:{doi}", f"https://doi.org/{doi}", f" http://dx.doi.org/{doi}. ", f"https://example.org/full/{doi}"]
    assert {ssd.explain(form, works, citations).scores["work_id"].item() for form in forms} == {work}


def test_own_ids_and_dois_of_tables_name_works_too():
    table = pl.DataFrame({"id": ["a1", "b2", "c3"], "year": [1990, 2000, 2001], "doi": ["10.1/A", None, "10.1/c"]})
    edges = pl.DataFrame({"from": ["b2", "c3", "c3"], "to": ["a1", "b2", "a1"]})
    works, citations, _ = ssd.from_tables(table.drop("doi"), edges, id="id", year="year", citing="from", cited="to")
    works = works.drop("doi", strict=False).join(
        table.lazy().select(original_id="id", doi="doi"), on="original_id", how="left"
    )
    found = ssd.explain("b2", works, citations)
    assert found.text.startswith("b2 (2000)")
    assert found.citers["original_id"].to_list() == ["c3"]
    assert ssd.explain("https://doi.org/10.1/a", works, citations).text.startswith("a1 (1990)")
    twice = works.with_columns(doi=pl.lit("10.1/a"))
    with pytest.raises(WorkIdError, match=r"several works .* Name one of them"):
        ssd.explain("10.1/a", twice, citations)


def test_an_unknown_work_is_one_error_that_suggests(example):
    works, citations, _ = example
    doi = works.drop_nulls("doi")["doi"][0]
    with pytest.raises(WorkIdError, match=r"works has no work .* Did you mean " + re.escape(doi)):
        ssd.explain(doi[:-1], works, citations)
    with pytest.raises(WorkIdError, match="Name it by its work_id"):
        ssd.explain("W5", works, citations)
    with pytest.raises(ConfigError, match="work is None, needs a work_id"):
        ssd.explain(None, works, citations)
    with pytest.raises(ConfigError, match="Give both frames"):
        ssd.explain(5, works)
    with pytest.raises(ConfigError, match="Leave citations out"):
        ssd.explain(5, build_graph(works, citations), citations)


def test_a_work_that_is_not_judged_says_why():
    years = {1: 1990, 2: 2000, 3: 2001, 4: 2010, 5: 2009, 6: None, 7: 2001}
    works, citations = frames(years, [(2, 1), (3, 1), (5, 1), (4, 5), (6, 1), (4, 6), (7, 3)])
    texts = {work: ssd.explain(work, works, citations).text for work in years}
    assert "no work cites it in the window, so this value says nothing" in texts[2]
    assert "its window is not over before 2010, the last year of the data" in texts[5]
    assert "publication year is not known" in texts[6]
    assert "it has no reference on record" in texts[1]
    assert all(" citer" not in texts[work].splitlines()[-1] for work in (1, 6))


def test_a_window_that_is_not_over_is_no_value():
    works, citations = frames({1: 1990, 2: 2000, 3: 2001, 4: 2007}, [(2, 1), (3, 2), (4, 2)])
    text = ssd.explain(2, works, citations).text
    assert "Other windows: 3 years 1, 10 years: not over yet, all years so far 1." in text


def test_an_index_that_nothing_makes_says_why():
    works, citations = frames({1: 1990, 2: 2000, 3: 2010}, [(2, 1)])
    found = ssd.explain(2, works, citations)
    assert found.scores["cd_index"].item() is None
    assert "it is not judged: no later work cites it or its references." in found.text
    assert ssd.score_ids(["W2"], build_graph(works, citations))["reason"].item() == "uncited"


def test_the_reference_that_most_citers_share_comes_first(example, scored):
    works, citations, _ = example
    work = scored.sort("n_j", descending=True)["work_id"][0]
    n_citers = ssd.explain(work, works, citations).references["n_citers"]
    assert n_citers.is_sorted(descending=True)
    assert n_citers[0] > 0


def test_citers_that_do_not_count_are_told_with_the_reason():
    years = {1: 1990, 2: 2000, 3: 2001, 4: 2010, 5: 2000, 6: None}
    works, citations = frames(years, [(2, 1), (3, 2), (4, 2), (5, 2), (6, 2)])
    text = ssd.explain(2, works, citations).text
    assert (
        "3 more works cite it and do not count: 1 before its window begins, 1 after its window ends, 1 in no known year"
        in text
    )


def test_self_citations_are_those_of_the_independent_index(example, scored, tmp_path):
    works, citations, _ = example
    ssd.ingest(ssd.ExampleConfig(), tmp_path / "ex", cache_dir=tmp_path, keep_authors=True)
    authors, prior = ssd.scan_authors(ssd.ExampleConfig()).collect(), find_label_prior(scored)
    expected = compute_independent_cd_index(works, citations, authors).collect().sort("work_id")
    names = ["n_self_citers", "independent_cd_index"]
    picked = expected.filter(pl.col("n_self_citers") > 1).head(5)["work_id"].to_list()
    picked += expected.filter(pl.col("n_self_citers").is_null(), pl.col("n_i") > 0).head(2)["work_id"].to_list()
    for work in picked:
        found = ssd.explain(work, works, citations, authors=authors, prior=prior)
        assert found.scores.select(names).row(0) == expected.filter(work_id=work).select(names).row(0)
        assert found.citers["is_self_citation"].sum() == (found.scores["n_self_citers"].item() or 0)
        kept = ssd.explain(work, tmp_path / "ex")  # a corpus that keeps authors needs no frame of them
        assert kept.text == found.text
        assert kept.citers["is_self_citation"].to_list() == found.citers["is_self_citation"].to_list()


def test_venue_pairs_give_the_quantiles_of_atypicality(example, tmp_path):
    works, citations, _ = example
    background = tmp_path / "all.parquet"
    config = ssd.NoveltyConfig()
    z = ssd.compute_atypicality(works, citations, config).collect()
    some = z.filter(pl.col("n_pairs") > 5).sort("work_id").head(4)
    from sciscidata.novelty.background import VenuePairs, write_null_model

    write_null_model(VenuePairs.of(works.lazy(), citations.lazy(), config), background)
    for row in some.rows(named=True):
        for options in ({}, {"background": background}):
            found = ssd.explain(row["work_id"], works, citations, novelty=config, **options)
            pairs = found.venue_pairs
            each = np.repeat(pairs["z"].to_numpy(), pairs["n_reference_pairs"].to_numpy())
            assert each.size == row["n_pairs"]
            assert np.quantile(each, [0.1, 0.5]) == pytest.approx([row["z_p10"], row["z_median"]])
            assert found.scores["z_p10"].item() == pytest.approx(row["z_p10"])
            roles = ", ".join(pairs["role"].drop_nulls())
            assert roles.count("10th percentile") == roles.count("median") == 1
            assert "Nearest to the median: " in found.text
    with pytest.raises(ConfigError, match="'rank' needs all works of the year"):
        ssd.explain(
            some["work_id"][0], works, citations, novelty=ssd.NoveltyConfig(score="rank"), background=background
        )
    with pytest.raises(SchemaMismatchError, match="explain: WORKS lacks column 'source_id'"):
        ssd.explain(some["work_id"][0], works.drop("source_id"), citations, novelty=config)
    with pytest.raises(ConfigError, match="a graph knows no venues"):
        ssd.explain(some["work_id"][0], build_graph(works, citations), novelty=config)


@pytest.fixture(scope="module")
def folder(example, tmp_path_factory) -> Path:
    works, citations, provenance = example
    out = tmp_path_factory.mktemp("corpus") / "ex"
    write_corpus(type(ssd.scan_example())(works.lazy(), citations.lazy(), provenance), out)
    return out


def test_a_corpus_and_its_graph_on_disk_say_the_same_as_frames(example, scored, folder):
    works, citations, _ = example
    prior = find_label_prior(scored)
    for work in scored.filter(pl.col("n") > 2).sort("work_id")["work_id"][:3].to_list():
        found, expected = ssd.explain(work, folder), ssd.explain(work, works, citations, prior=prior)
        assert found.text == expected.text
        for name, _, rows in expected.tables():
            assert getattr(found, name).equals(rows), name
        (graph,) = (folder / "cache").glob("graph-*")
        of_graph = ssd.explain(f"W{work}", graph, prior=prior)
        assert of_graph.conventions.equals(expected.conventions)
        assert of_graph.citers.equals(expected.citers.drop("title", "doi"))
        assert of_graph.text.splitlines()[1:] == expected.text.splitlines()[1:]
    with pytest.raises(WorkIdError, match="the graph has no work 5"):
        ssd.explain(5, graph)
    with pytest.raises(WorkIdError, match="knows works by their numbers"):
        ssd.explain("10.1/abc", graph)


def test_citers_on_disk_say_the_same_as_a_pass_over_all_citations(example, scored, tmp_path, monkeypatch):
    works, citations, _ = example
    graph = build_graph(works, citations, cache_dir=tmp_path)
    some = scored.filter(pl.col("n") > 0).sort("work_id")["work_id"][::400].to_list()
    expected = [ssd.explain(work, graph) for work in some]
    monkeypatch.setattr("sciscidata.graph.citers._MOST_CITERS", 1 << 10)
    place = write_citers(graph)
    starts, citers = graph.citers_among(range(graph.n_works))
    assert np.array_equal(starts, graph.citer_offsets)
    assert (place / "citers.bin").read_bytes() == citers.tobytes()
    assert ssd.verify(place)
    monkeypatch.setattr("sciscidata.explanation.neighbourhood.run_all", None)  # no pass is made
    for work, one in zip(some, expected, strict=True):
        found = ssd.explain(work, graph_folder(graph))
        assert found.text == one.text
        assert all(getattr(found, name).equals(rows) for name, _, rows in one.tables())
    np.full(citers.size, graph.n_works, np.int32).tofile(place / "citers.bin")
    with pytest.raises(StorageError, match=r"citers.bin is damaged. Remove its folder"):
        ssd.explain(some[0], graph)


@pytest.mark.parametrize("step", [1, 7, 3_000])
def test_of_a_mapped_array_few_pages_or_whole_blocks_are_read(tmp_path, step):
    numbers = np.random.default_rng(step).integers(1 << 40, size=(1 << 20) + 9)
    numbers.tofile(tmp_path / "numbers")
    places = np.append(np.arange(5, numbers.size, step), numbers.size - 1)
    assert np.array_equal(take(np.memmap(tmp_path / "numbers", np.int64, "r"), places), numbers[places])


def test_a_graph_whose_numbers_lead_nowhere_is_an_error(tmp_path):
    years = {work: 1990 + work for work in range(1, 9)}
    graph = build_graph(*frames(years, [(2, 1), (3, 2), (3, 1), (4, 1)]), cache_dir=tmp_path)
    folder = graph_folder(graph)
    offsets = np.fromfile(folder / "ref_offsets.bin", np.int64)
    for wrong in (-5, 1 << 40):
        (offsets.copy() + np.where(np.arange(offsets.size) == 3, wrong, 0)).tofile(folder / "ref_offsets.bin")
        with pytest.raises(StorageError, match="damaged"):
            ssd.explain(3, folder)
        with pytest.raises(StorageError, match="damaged"):
            ssd.score_ids([3], folder)
    assert read_graph(folder, trusted=True, whole=False).n_citations == 4


def test_windows_by_dates_count_as_for_all_works(example, tmp_path):
    works, citations, _ = example
    dated = works.with_columns(publication_date=pl.date("publication_year", 1 + pl.col("work_id") % 12, 3))
    config = ssd.CDConfig(time="publication_date", windows=("18mo", "90d"))
    expected = scores_of(dated, citations, config)
    graph = build_graph(dated, citations, time="publication_date", cache_dir=tmp_path)
    some = expected.filter(pl.col("n_i") + pl.col("n_j") > 3)["work_id"][:4].to_list()
    for work in some:
        for places in ((dated, citations), (graph,)):
            found = ssd.explain(work, *places, config=config).scores
            assert found.select(expected.columns).equals(expected.filter(work_id=work))
    with pytest.raises(ConfigError, match="the graph has no dates"):
        ssd.explain(some[0], build_graph(works, citations), config=config)


def test_a_release_tells_its_counts_and_says_what_it_cannot_know(tmp_path):
    config = ssd.BuildConfig(source=ssd.ExampleConfig(), out=tmp_path / "r", cache_dir=tmp_path / "c")
    release = ssd.build(config)
    row = release.scores.filter(pl.col("n_i") > 0, pl.col("n_k") > 0).row(0, named=True)
    found = ssd.explain(row["openalex_id"], release.folder)
    names = ["n_i", "n_j", "n_k"]
    assert found.scores.select(names).row(0) == tuple(row[name] for name in names)
    sure = release.label_confidence.filter(openalex_id=row["openalex_id"])["label_confidence"].item()
    assert found.scores["label_confidence"].item() == sure
    assert found.citers.is_empty()
    assert "A release holds counts only" in found.text
    assert ssd.explain(row["doi"], release.folder).scores["work_id"].item() == found.scores["work_id"].item()
    with pytest.raises(WorkIdError, match="the release in"):
        ssd.explain("W5", release.folder)
    with pytest.raises(ConfigError, match="authors has no effect"):
        ssd.explain(row["openalex_id"], release.folder, authors=pl.DataFrame())
    with pytest.raises(InputNotFoundError, match="does not exist"):
        ssd.explain("W5", tmp_path / "nowhere")


def test_titles_are_escaped_in_html_and_long_tables_are_cut(example, scored):
    works, citations, _ = example
    work = scored.sort("n", descending=True)["work_id"][0]
    found = ssd.explain(work, works.with_columns(title=pl.lit("<b>&\u202e")), citations)
    page = found._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;" in page
    assert "the first 20 of" in page
    assert "\u202e" not in str(found)
    assert f".citers ({found.citers.height:,})" in repr(found)


def test_counts_by_year_hold_all_works_however_few_are_listed(example, scored):
    works, citations, _ = example
    work = scored.sort("n_k", descending=True)["work_id"][0]
    found = ssd.explain(work, works, citations, n_listed=3)
    assert found.citers_of_references.height == 3
    counts = dict(found.by_year.group_by("class").agg(pl.col("works").sum()).rows())
    row = found.scores.row(0, named=True)
    assert counts == {name[-1]: row[name] for name in ("n_i", "n_j", "n_k") if row[name]}


def test_own_ids_stand_for_numbers_wherever_a_work_is_shown(capsys):
    ids = [f"paper-{n}" for n in range(5)]
    table = pl.DataFrame({"work_id": ids, "publication_year": [1990, 2000, 2001, 2002, 2003], "doi": "10.1/a"})
    edges = pl.DataFrame({"citing_id": [ids[1], ids[1], ids[2], ids[2], ids[3], ids[4]],
                          "cited_id": [ids[0], "lost", ids[1], "lost", ids[1], ids[0]]})  # fmt: skip
    works, citations, _ = ssd.from_tables(table, edges)
    found = ssd.explain("paper-1", works, citations)
    (lost,) = {*found.citers.explode("shared")["shared"].drop_nulls()}
    assert found.citers["shared_original_id"].to_list() == [[str(lost)], []]
    assert found.citers_of_references["shared_original_id"].to_list() == [["paper-0"]]
    numbers = [*map(str, works.collect()["work_id"])]
    html = found.to_html()
    assert "paper-0" in html
    assert str(lost) in html
    assert not [number for number in numbers if number in html]
    assert 'href="https://doi.org/10.1/a"' in html
    explain_page._print(found)
    said = capsys.readouterr().out
    assert "paper-0" in said
    assert not [number for number in numbers if number in said]
    with pytest.raises(WorkIdError, match="original_id paper-") as error:
        ssd.explain("10.1/a", works, citations)
    assert not [number for number in numbers if number in str(error.value)]


def test_the_bracket_says_if_the_data_end_within_the_window(example):
    works, citations, _ = example
    found = ssd.explain(2888898681, works, citations)
    assert "52 later works cite it (window 2019 to 2023, data end in 2022)" in found.text
    assert "17 later works cite it (2015 to 2019)" in ssd.explain(2013970299, works, citations).text


def test_a_deleted_work_is_called_as_score_calls_it(tmp_path):
    works = pl.DataFrame(
        {"work_id": [1, 2, 3], "publication_year": [1990, 1995, 2000]}, schema_overrides={"publication_year": pl.Int32}
    )
    citations = pl.DataFrame({"citing_id": [2, 3, 3], "cited_id": [1, 9, 2]})
    assert (
        ssd.score_ids(
            ["W9"],
            Corpus(pl.concat([works, WORKS.to_frame()], how="diagonal").lazy(), citations.lazy(), {"kind": "frames"}),
            cache_dir=tmp_path,
        )["reason"].item()
        == "merged or deleted"
    )
    with pytest.raises(WorkIdError, match="works has no work 'W9', and others cite it: merged or deleted"):
        ssd.explain("W9", works, citations)
    with pytest.raises(WorkIdError, match=r"has no work 'W8'\. Name it by"):
        ssd.explain("W8", works, citations)
