"""``BuildConfig.context``: what a paper built on equals plain sets, and nothing later than the paper reaches it."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sciscidata import BuildConfig, OwnLabel, SplitConfig, build, compare, export_labelled, verify
from sciscidata.cli.page import describe_path
from sciscidata.corpus.folder import CorpusConfig
from sciscidata.errors import ConfigError, VerificationError
from sciscidata.graph.graph import build_graph
from sciscidata.release import documents
from sciscidata.release.context import AT_PUBLICATION, CONTEXT, MOST_REFERENCES, REFERENCE, find_context
from sciscidata.release.methods import describe_methods
from sciscidata.release.read import Release
from sciscidata.release.write_json_lines import render_jsonl
from sciscidata.schemas import EXAMPLE, Corpus
from sciscidata.sources.example.source import ExampleConfig, scan_example
from sciscidata.sources.labelled import LabelledConfig
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.sciscinet.config import SciSciNetConfig
from sciscidata.sources.sciscinet.source import scan_sciscinet
from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
from sciscidata.stages import ingest
from tests.disruption.test_index import frames
from tests.disruption.test_publication_features import Edges, Record, Years, edge_lists, years_of_works
from tests.program import run
from tests.release.test_documents import plain
from tests.release.test_release import restate

OWN = OwnLabel(
    name="old_label", classes=("yes", "no"), sql="CASE WHEN publication_year < 2000 THEN 'yes' ELSE 'no' END"
)
SPLIT = SplitConfig(n_train=60, n_test=9, n_dev=6)


def make(folder: Path, **changes: Any) -> Release:
    settings: dict[str, Any] = {"source": SyntheticConfig(n_works=3_000), "split": SPLIT, "context": True}
    settings |= {"out": folder, "cache_dir": folder.parent / "cache", **changes}
    return build(BuildConfig(**settings))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("context")


@pytest.fixture(scope="module")
def release(home: Path) -> Release:
    return make(home / "own", label=OWN)


@pytest.fixture(scope="module")
def real(home: Path) -> Release:
    return make(home / "example", source=ExampleConfig(), split=SplitConfig(n_train=120, n_test=30))


def works_of(years: Years) -> pl.LazyFrame:
    """Works with a title and a venue by their id; every fifth has no title."""
    ids = pl.Series("work_id", [*years], pl.Int64)
    rows = pl.DataFrame({"work_id": ids, "publication_year": pl.Series([*years.values()], dtype=pl.Int32)})
    title = pl.when(ids % 5 > 0).then(pl.format("title {}", "work_id")).otherwise(pl.lit(" "))
    return rows.with_columns(title=title, source_name=pl.format("venue {}", pl.col("work_id") % 3)).lazy()


def context_of(years: Years, edges: Edges) -> pl.DataFrame:
    works, citations = frames(years, edges)
    return find_context(pl.Series("work_id", [*years], pl.Int64), build_graph(works, citations), works_of(years))


def line_of(years: Years, edges: Edges, work: int) -> bytes:
    return render_jsonl(context_of(years, edges).filter(work_id=work))


def list_references(record: Record, told: dict[int, dict[str, Any]], work: int) -> list[dict[str, Any]]:
    """List the references of a work by the definition, with plain sorting."""
    rows: list[tuple[tuple[bool, int, int], dict[str, Any]]] = []
    for cited in record.references.get(work, set()):
        if not (told.get(cited, {}).get("title") or "").strip():
            continue
        year, own = record.years[cited], record.years[work]
        is_known = year is not None and own is not None and year <= own
        later = {} if is_known else {"publication_year": None, "source_name": None}
        rows.append(((not is_known, -(year or 0) if is_known else 0, cited), told[cited] | later))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])][:MOST_REFERENCES]


@given(years_of_works, edge_lists)
@example({1: None}, [(1, 2)])
@example({1: 2000, 2: 2001, 3: None, 4: 1999, 6: 2000}, [(1, 2), (1, 3), (1, 4), (1, 6), (3, 1)])
def test_references_and_numbers_equal_plain_sets(years: Years, edges: Edges) -> None:
    record, found = Record(years, edges), context_of(years, edges)
    told = {row.pop("work_id"): row for row in works_of(years).select("work_id", *REFERENCE).collect().to_dicts()}
    assert found.drop("work_id").schema == CONTEXT
    assert {*found["work_id"]} == {*years}
    for row in found.to_dicts():
        assert row["references"] == list_references(record, told, row["work_id"])
        assert row["at_publication"] == record.describe(row["work_id"])


def test_on_real_works_both_equal_plain_sets(real: Release) -> None:
    works, citations, _ = scan_example()
    rows = works.select("work_id", *REFERENCE).collect().to_dicts()
    told = {row.pop("work_id"): row for row in rows}
    years = {work: row["publication_year"] for work, row in told.items()}
    record = Record(years, citations.select("citing_id", "cited_id").drop_nulls().collect().rows())
    n_references = 0
    for row in pl.concat([real.train, real.test]).iter_rows(named=True):
        work = int(row["openalex_id"].removeprefix("W"))
        assert row["references"] == list_references(record, told, work)
        assert row["at_publication"] == record.describe(work)
        n_references += len(row["references"])
    assert n_references > 400


@given(years_of_works, edge_lists, st.data())
def test_no_work_of_the_same_year_or_later_and_no_citation_by_one_changes_a_byte(
    years: Years, edges: Edges, data: st.DataObject
) -> None:
    focal = data.draw(st.sampled_from([*years]))
    year = years[focal]
    if year is None:
        return
    before = line_of(years, edges, focal)
    fresh = data.draw(st.dictionaries(st.integers(19, 26), st.none() | st.integers(year, 2010)))
    grown = fresh | years
    sources = [work for work, at in grown.items() if work != focal and (at is None or at >= year)]
    more = st.lists(st.tuples(st.sampled_from(sources or [0]), st.integers(1, 26)), max_size=30 if sources else 0)
    assert line_of(grown, [*edges, *data.draw(more)], focal) == before


def test_a_reference_that_gets_a_row_later_shows_its_title_and_neither_year_nor_venue() -> None:
    years: Years = {1: 2000, 2: 1990}
    edges = [(1, 2), (1, 3)]
    before, after = (
        context_of(some, edges).filter(work_id=1).row(0, named=True) for some in (years, years | {3: 2001})
    )
    assert before["at_publication"] == after["at_publication"]
    second = {"title": "title 3", "publication_year": None, "source_name": None}
    assert after["references"] == [*before["references"], second]


def test_at_most_fifty_references_are_kept_the_newest() -> None:
    years: Years = {1: 2000, **{work: 1900 + work for work in range(11, 91)}, 101: None, 102: 2005}
    (row,) = context_of(years, [(1, cited) for cited in years if cited != 1]).filter(work_id=1).to_dicts()
    assert len(row["references"]) == MOST_REFERENCES
    assert [one["publication_year"] for one in row["references"][:3]] == [1989, 1988, 1987]
    assert row["at_publication"]["n_references"] == 82


def test_both_columns_come_after_all_others_and_all_others_are_as_without(home: Path, release: Release) -> None:
    without = make(home / "without", label=OWN, context=False)
    assert without.train.schema == {**EXAMPLE, "old_label": pl.String()}
    assert release.train.schema == {**without.train.schema, **CONTEXT}
    for split in release.splits:
        assert getattr(release, split).drop(*CONTEXT).equals(getattr(without, split))
    assert release.scores.equals(without.scores)
    assert release.manifest["build"] == {"context": True}
    assert "build" not in without.manifest
    found = compare(without.folder, release.folder)
    assert found.is_same
    assert found.settings.rows() == [("context", "none", "True")]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what mlcroissant calls
def test_lines_and_tables_hold_the_same_values_for_every_reader(
    real: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pandas, duckdb = pytest.importorskip("pandas"), pytest.importorskip("duckdb")
    datasets, mlcroissant = pytest.importorskip("datasets"), pytest.importorskip("mlcroissant")
    for split in real.splits:
        file, expected = real.folder / f"{split}.parquet", getattr(real, split).rows(named=True)
        lines = (real.folder / f"{split}.jsonl").read_text("utf-8").splitlines()
        assert [json.loads(line) for line in lines] == expected
        assert pl.read_parquet(file).rows(named=True) == expected
        assert pl.DataFrame(duckdb.read_parquet(str(file)).to_arrow_table()).rows(named=True) == expected
        first = pandas.read_parquet(file)["references"][0]
        assert [*first] == expected[0]["references"]
        found = datasets.load_dataset(str(real.folder), split=split, cache_dir=str(tmp_path / "cache"))
        assert found.to_list() == expected
        described = mlcroissant.Dataset(jsonld=str(real.folder / "croissant.json"))
        assert not described.metadata.ctx.issues.errors
        assert [_bare(row) for row in described.records(split)] == expected


def _bare(value: Any) -> Any:
    """Croissant names each value by its whole path."""
    if isinstance(value, dict):
        return {name.rpartition("/")[2]: _bare(one) for name, one in value.items()}
    return [_bare(one) for one in value] if isinstance(value, list) else plain(value)


def test_the_card_says_what_each_number_is_and_when_it_was_known(release: Release) -> None:
    toml = Path(documents.__file__).with_name("documents.toml")
    said = tomllib.loads(toml.read_text("utf-8"))["context"]
    assert [*said["at_publication"]] == AT_PUBLICATION.names()
    assert [*said["columns"]] == CONTEXT.names()
    card = (release.folder / "README.md").read_text("utf-8")
    assert "| `coupling_max` | Int64 | most references that an earlier work shares |" in card
    assert "Both were known when the paper appeared." in card
    fields = json.loads((release.folder / "croissant.json").read_text("utf-8"))["recordSet"][0]["field"]
    assert {field["name"]: field.get("description") for field in fields[-2:]} == said["columns"]
    assert "what earlier years said of all of them" in " ".join(describe_methods(release.folder).split())


def test_the_page_of_a_release_lists_references(real: Release, tmp_path: Path) -> None:
    describe_path(real.folder, html=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "<summary>references (" in page
    assert "<li>share references uncited " in page


def test_verify_says_that_it_cannot_follow_them_and_finds_every_change(release: Release, tmp_path: Path) -> None:
    recomputed = verify(release.folder).recomputed
    assert recomputed is not None
    assert {*CONTEXT} < {*recomputed.left}
    copy = Path(shutil.copytree(release.folder, tmp_path / "copy"))
    restate(copy, build={})
    with pytest.raises(VerificationError, match=r"has other columns than EXAMPLE: references .*, at_publication"):
        verify(copy)


@pytest.mark.parametrize("n_threads", [1, 4])
def test_a_manifest_repeats_it_and_threads_change_no_byte(home: Path, real: Release, n_threads: int) -> None:
    words = ("build", "--from-manifest", real.folder, "--cache-dir", home / "cache", "--out", f"threads{n_threads}")
    done = run(*words, cwd=home, env={**os.environ, "POLARS_MAX_THREADS": str(n_threads)})
    assert not done.returncode, done.stderr
    for file in real.folder.iterdir():
        assert (home / f"threads{n_threads}" / file.name).read_bytes() == file.read_bytes(), file.name


def test_a_source_whose_texts_are_read_late_gives_the_same_rows(home: Path) -> None:
    works, citations, _ = scan_synthetic(SyntheticConfig(n_works=3_000))
    corpus = Corpus(works.collect().lazy(), citations.collect().lazy(), {"kind": "own"})
    ingest(corpus, home / "corpus", cache_dir=home / "cache")
    early = make(home / "early", source=corpus, novelty=None)
    late = make(home / "late", source=CorpusConfig(folder=str(home / "corpus")), novelty=None)
    for split in late.splits:
        assert getattr(late, split).equals(getattr(early, split))


def test_sciscinet_has_them_where_its_scores_are_computed_anew(home: Path, sciscinet_tables: Path) -> None:
    settings: dict[str, Any] = {"recompute": True, "folder": str(sciscinet_tables)}
    release = make(home / "sciscinet", source=SciSciNetConfig(**settings), novelty=None)
    tables = scan_sciscinet(SciSciNetConfig(**settings))
    citations = tables.citations.collect().unique().filter(pl.col("citing_id") != pl.col("cited_id"))
    told = tables.works.select("work_id", "title").collect()
    cited = citations.join(told.filter(pl.col("title").str.strip_chars() != ""), left_on="cited_id", right_on="work_id")
    titles = dict(cited.group_by("citing_id").agg("title").rows())
    for row in release.train.iter_rows(named=True):
        expected = titles.get(int(row["openalex_id"].removeprefix("W")), [])
        assert len(row["references"]) == min(len(expected), MOST_REFERENCES)
        assert {one["title"] for one in row["references"]} <= {*expected}
    assert release.train["references"].list.len().sum() > 100


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (LabelledConfig(inputs=("no-such-file",)), "labelled files hold the scores"),
        (SciSciNetConfig(folder="no-such-folder"), r"SciSciNetConfig\.recompute=True"),
        (OpenAlexConfig(), "gives a sample"),
    ],
)
def test_a_source_without_citations_of_its_own_is_refused_before_anything_is_read(
    source: Any, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"BuildConfig\.context needs the citations of all works.*{says}"):
        BuildConfig(source=source, out=tmp_path / "slice", context=True)


def test_an_export_refuses_it(tmp_path: Path) -> None:
    config = BuildConfig(source=SyntheticConfig(n_works=500), out=tmp_path / "all", context=True)
    with pytest.raises(ConfigError, match=r"BuildConfig\.context has no effect: an export"):
        export_labelled(config)


def test_the_files_of_such_a_release_are_labelled_files(release: Release, tmp_path: Path) -> None:
    for file in ("train.jsonl", "train.parquet"):
        source = LabelledConfig(inputs=(str(release.folder / file),))
        again = make(tmp_path / file, source=source, split=SplitConfig(n_train=20, n_test=6), context=False)
        assert again.train.schema == EXAMPLE
