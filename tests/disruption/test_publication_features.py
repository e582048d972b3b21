"""What is known at publication equals plain sets, and nothing later or of the same year changes it."""

from __future__ import annotations

from collections import Counter
from statistics import mean, median
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sciscidata.disruption import _publication_kernels as kernels
from sciscidata.disruption import publication_features
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import score_graph
from sciscidata.disruption.publication_features import PUBLICATION_FEATURES
from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError, WorkIdError
from sciscidata.graph.graph import build_graph
from sciscidata.indicators import compute_publication_features
from tests.disruption.test_index import frames
from tests.oracles import cd_family
from tests.real_graphs import scan_real

Years = dict[int, int | None]
Edges = list[tuple[int, int]]


class Record:
    """Years and citations in plain sets; ``describe`` follows the definitions of the columns, one by one."""

    def __init__(self, years: Years, edges: Edges) -> None:
        self.years = years
        self.references: dict[int, set[int]] = {}
        self.citers: dict[int, set[int]] = {}
        for citing, cited in edges:
            if citing != cited:
                self.references.setdefault(citing, set()).add(cited)
                self.citers.setdefault(cited, set()).add(citing)

    def year(self, work: int) -> int:
        year = self.years.get(work)
        return 10_000 if year is None else year

    def cd_index(self, work: int, before: int) -> float | None:
        """The CD index by works after the work's own year and before another one; None if nothing cites it there."""

        def citers(cited: int) -> set[int]:
            return {one for one in self.citers.get(cited, set()) if self.year(work) < self.year(one) < before}

        own = citers(work)
        of_references = set().union(*(citers(cited) for cited in self.references.get(work, set())))
        if not own or not self.references.get(work):
            return None
        return (len(own - of_references) - len(own & of_references)) / len(own | of_references)

    def describe(self, work: int) -> dict[str, Any]:
        nothing: dict[str, Any] = dict.fromkeys([*PUBLICATION_FEATURES][3:])
        year, references = self.year(work), self.references.get(work, set())
        if year == 10_000 or not references:
            return nothing | {"n_references": None if year == 10_000 else 0}
        ages = [year - self.year(one) for one in references if self.year(one) <= year]
        earlier = [{c for c in self.citers[one] if self.year(c) < year} for one in references]
        cited = [len(citers) for citers in earlier]
        recent = sum(self.year(citer) >= year - 5 for citers in earlier for citer in citers)
        indices = [self.cd_index(one, year) for one in references if self.year(one) < year]
        defined = [one for one in indices if one is not None]
        shared = Counter(citer for citers in earlier for citer in citers)
        found = {
            "n_references": len(references),
            "n_references_dated": len(ages),
            "reference_citations": sum(cited),
            "reference_citations_mean": mean(cited),
            "reference_citations_median": median(cited),
            "reference_citations_max": max(cited),
            "share_references_uncited": cited.count(0) / len(cited),
            "reference_recent_citations": recent,
            "reference_recent_citations_mean": recent / len(references),
            "n_references_with_cd": len(defined),
            "n_coupled": len(shared),
            "n_coupled_twice": sum(n >= 2 for n in shared.values()),
        }
        if ages:
            summaries = {"mean": mean, "median": median, "min": min, "max": max}
            found |= {f"reference_age_{name}": summarise(ages) for name, summarise in summaries.items()}
        if defined:
            found["reference_cd_mean"] = pytest.approx(mean(defined), abs=1e-12)
        if shared:
            found |= {"coupling_max": max(shared.values()), "coupling_mean": mean(shared.values())}
        return nothing | found


def rows_of(years: Years, edges: Edges, **options: Any) -> dict[int, dict[str, Any]]:
    found = compute_publication_features(*frames(years, edges), **options).collect()
    assert found.schema == PUBLICATION_FEATURES
    assert found["primary_field"].null_count() == found.height
    assert dict(found.select("work_id", "publication_year").iter_rows()) == years
    return {row.pop("work_id"): row for row in found.drop("publication_year", "primary_field").to_dicts()}


# Ids above those of works have no record. In small ranges, repeats and citations of later works are common.
years_of_works = st.dictionaries(st.integers(1, 14), st.none() | st.integers(1995, 2006), min_size=1)
edge_lists = st.lists(st.tuples(st.integers(1, 18), st.integers(1, 18)), max_size=110)


@given(years_of_works, edge_lists, st.integers(1, 3))
@example({1: None}, [(1, 2), (2, 1)], 1)
@example({1: 2000, 2: 2000, 3: 2000}, [(1, 2), (2, 1), (3, 3), (3, 1)], 1)
def test_every_column_equals_plain_sets(years, edges, n_threads):
    record = Record(years, edges)
    assert rows_of(years, edges, n_threads=n_threads) == {work: record.describe(work) for work in years}


@pytest.mark.parametrize(("name", "step"), [("example", 7), ("handball", 41), ("hepth", 97)])
def test_every_column_equals_plain_sets_on_real_graphs(name, step):
    works, citations = scan_real(name)
    years = dict(works.select("work_id", "publication_year").collect().iter_rows())
    edges = citations.select("citing_id", "cited_id").drop_nulls().collect().rows()
    record, found = Record(years, edges), rows_of(years, edges)
    for work in [*years][::step]:
        assert found[work] == record.describe(work), work


@given(years_of_works, edge_lists, st.data())
def test_nothing_of_the_same_year_or_later_reaches_a_work(years, edges, data):
    """Citations of such works, and new later works, whatever these cite and whoever cites them."""
    focal = data.draw(st.sampled_from([*years]))
    year = years[focal]
    if year is None:
        return
    before = rows_of(years, edges)[focal]
    fresh = data.draw(st.dictionaries(st.integers(15, 22), st.none() | st.integers(year + 1, 2010)))
    grown = fresh | years
    sources = [work for work, at in grown.items() if work != focal and (at is None or at >= year)]
    more = st.lists(st.tuples(st.sampled_from(sources or [0]), st.integers(1, 22)), max_size=30 if sources else 0)
    added = data.draw(more)
    assert rows_of(grown, [*edges, *added])[focal] == before
    kept = [(citing, cited) for citing, cited in edges if citing == focal or citing not in sources]
    assert rows_of(years, kept)[focal] == before


@pytest.mark.parametrize("name", ["example", "handball"])
def test_real_works_are_described_alike_by_what_lay_before_them_alone(name):
    works, citations = scan_real(name)
    works = works.select("work_id", "publication_year").collect()
    year = int(works["publication_year"].median())  # pyright: ignore[reportArgumentType]
    whole = compute_publication_features(works, citations).filter(pl.col("publication_year") == year)
    earlier = works.filter(pl.col("publication_year") < year).lazy()
    asked = works.filter(pl.col("publication_year") == year).lazy()
    for i, one in enumerate(asked.collect()["work_id"].sort()[::40]):
        alone = asked.filter(pl.col("work_id") == one)
        kept = pl.concat([earlier, alone])
        known = citations.join(kept, left_on="citing_id", right_on="work_id", how="semi")
        found = compute_publication_features(kept, known).filter(pl.col("work_id") == one).collect()
        # Of the same year only the year itself is known: it dates a reference.
        dated = [name for name in found.columns if "_age_" not in name and name != "n_references_dated"]
        expected = whole.filter(pl.col("work_id") == one).collect()
        assert found.select(dated).equals(expected.select(dated)), one
        if i == 5:
            break


@pytest.mark.parametrize("name", ["example", "hepth"])
def test_any_number_of_threads_and_order_of_rows_gives_the_same_bytes(name):
    works, citations = scan_real(name)
    shuffled = citations.collect().sample(fraction=1, shuffle=True, seed=1)
    found = [
        compute_publication_features(works, citations, n_threads=1),
        compute_publication_features(works.reverse(), pl.concat([shuffled, shuffled[:99]]), n_threads=5),
    ]
    first, second = (one.collect().sort("work_id") for one in found)
    assert first.equals(second)
    floats = [name for name, kind in PUBLICATION_FEATURES.items() if kind == pl.Float64]
    bits = [rows.select(pl.col(floats).reinterpret(dtype=pl.UInt64)) for rows in (first, second)]
    assert bits[0].equals(bits[1])


def test_at_the_end_every_work_has_the_counts_of_the_cd_index_without_a_last_year(monkeypatch):
    kept = []
    end_year = kernels.end_year
    monkeypatch.setattr(kernels, "end_year", lambda *args: (kept.append(args[2]), end_year(*args)))
    works, citations = scan_real("example")
    graph = build_graph(works, citations)
    publication_features.describe_graph(graph, 2)
    past = kept[-1]
    expected = score_graph(graph, CDConfig(window_years=None)).head(graph.n_dated)
    n_i, n_j, n_k = (expected[name].to_numpy() for name in ("n_i", "n_j", "n_k"))
    assert (past.n_both == n_j).all()
    assert (past.n_after == n_i + n_j).all()
    assert (past.n_touching == n_j + n_k).all()


def test_marks_begin_anew_before_their_numbers_run_out(monkeypatch):
    works, citations = scan_real("example")
    graph = build_graph(works, citations)
    expected = publication_features.describe_graph(graph, 1)
    scratch = kernels.Scratch

    def nearly_full(marks, number, sorting):
        number[0] = 2**32 - 5_000
        return scratch(marks, number, sorting)

    monkeypatch.setattr(kernels, "Scratch", nearly_full)
    assert publication_features.describe_graph(graph, 1).equals(expected)


def test_field_and_ids_of_the_source_are_carried():
    works, citations = frames({1: 1990, 2: 2000}, [(2, 1)])
    works = works.with_columns(original_id=pl.format("p{}", "work_id"), primary_field=pl.lit("Law"))
    found = compute_publication_features(works.collect().to_pandas(), citations).collect()
    assert found.columns == ["work_id", "original_id", *[*PUBLICATION_FEATURES][1:]]
    assert found.sort("work_id").select("original_id", "primary_field").rows() == [("p1", "Law"), ("p2", "Law")]


def test_the_index_by_then_is_that_of_the_definition():
    """The same by the oracle of the CD index, for one reference: works before 2003, without a last year."""
    years = {1: 1990, 2: 2000, 3: 2001, 4: 2002, 5: 2002, 6: 2003, 7: 2003}
    edges = [(2, 1), (3, 2), (4, 2), (4, 1), (5, 1), (6, 2), (7, 2)]
    early = [(citing, cited) for citing, cited in edges if years[citing] < 2003]
    expected = cd_family(years, early, CDConfig(window_years=None))[2]
    assert expected["cd_index"] == 0.0
    assert rows_of(years, edges)[6]["reference_cd_mean"] == expected["cd_index"]
    assert rows_of(years, edges)[6]["n_references_with_cd"] == 1


def test_wrong_input_is_refused_as_by_the_cd_index():
    works, citations = frames({1: 1990}, [(2, 1)])
    with pytest.raises(SchemaMismatchError, match="WORKS lacks column 'publication_year'"):
        compute_publication_features(works.drop("publication_year"), citations)
    with pytest.raises(SchemaMismatchError, match="swapped"):
        compute_publication_features(citations, works)
    with pytest.raises(SchemaMismatchError, match="'primary_field' is Int32, needs String"):
        compute_publication_features(works.with_columns(primary_field=1), citations)
    with pytest.raises(ConfigError, match="n_threads"):
        compute_publication_features(works, citations, n_threads=0)
    with pytest.raises(EmptyInputError):
        compute_publication_features(works.head(0), citations).collect()
    with pytest.raises(WorkIdError, match="occurs more than once"):
        compute_publication_features(pl.concat([works, works]), citations).collect()
