"""Every filter removes what it names, in the documented order, and every work is counted once."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sciscidata as ssd
from sciscidata.disruption.index import compute_cd_index
from sciscidata.eligibility import (
    CANDIDATES,
    FILTERS,
    EligibilityConfig,
    add_references,
    chosen_names,
    count_references,
    join_candidates,
    mark_removals,
    remark_on_names,
)
from sciscidata.errors import ConfigError, NotEnoughWorksError, SchemaMismatchError
from sciscidata.records.listed_ids import ListedIds, list_ids
from sciscidata.schemas import CD_SCORES, WORKS
from sciscidata.sources.example.source import scan_example
from sciscidata.sources.tables.frames import from_tables
from tests.conftest import example_lines

GOOD: dict[str, Any] = {
    "work_id": 1,
    "publication_year": 2010,
    "title": "On sleep",
    "abstract": "We ask why.",
    "language": "en",
    "work_type": "article",
    "primary_field": "Medicine",
    "source_id": 137773608,
    "source_name": "Nature",
    "is_retracted": False,
    "doi": "10.1/good",
    "n_i": 2,
    "n_j": 1,
    "n_k": 5,
    "cd_index": 0.125,
    "n_references": 10,
    "label_confidence": 0.9,
}
CONFIG = EligibilityConfig(last_year=2024)


def frame_of(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={**CANDIDATES, "label_confidence": pl.Float64()})


def reason(config: EligibilityConfig = CONFIG, window_years: int | None = 5, **changes: Any) -> str | None:
    marked = mark_removals(frame_of([GOOD | changes]), config, window_years=window_years)
    return marked.collect()["removed_by"][0]


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        ("retracted", {"is_retracted": True}),
        ("language", {"language": "de"}),
        ("no_title", {"title": None}),
        ("no_title", {"title": " \u00a0\t"}),
        ("no_abstract", {"abstract": None}),
        ("no_abstract", {"abstract": ""}),
        ("no_year", {"publication_year": None, "n_i": None, "n_j": None, "n_k": None, "cd_index": None}),
        ("few_references", {"n_references": 0}),
        ("few_references", {"n_references": None}),
        ("few_citations", {"n_i": 0, "n_j": 0}),
        ("few_citations", {"n_i": None, "n_j": None}),
        ("window_incomplete", {"publication_year": 2019}),
        ("undefined_score", {"cd_index": None}),
        ("undefined_score", {"cd_index": math.nan}),
    ],
)
def test_each_filter_removes_what_it_names(expected: str, changes: dict[str, Any]) -> None:
    assert reason(**changes) == expected


@pytest.mark.parametrize(
    ("option", "changes"),
    [
        ({"exclude_retracted": False}, {"is_retracted": True}),
        ({"languages": ()}, {"language": "de"}),
        ({"languages": ("en", "de")}, {"language": "de"}),
        ({"require_title": False}, {"title": None}),
        ({"require_abstract": False}, {"abstract": None}),
        ({"min_references": 0}, {"n_references": 0}),
        ({"min_citations": 0}, {"n_i": None, "n_j": None}),
        ({"complete_window": False}, {"publication_year": 2024}),
    ],
)
def test_each_filter_can_be_switched_off(option: dict[str, Any], changes: dict[str, Any]) -> None:
    assert reason(**changes) is not None
    assert reason(replace(CONFIG, **option), **changes) is None


def test_the_filters_that_are_off_by_default_work_when_asked_for() -> None:
    assert reason(replace(CONFIG, work_types=("review",))) == "work_type"
    assert reason(replace(CONFIG, work_types=("review", "article"))) is None
    assert reason(replace(CONFIG, work_types=("article",)), work_type=None) == "work_type"
    assert reason(replace(CONFIG, min_year=2011)) == "year_range"
    assert reason(replace(CONFIG, max_year=2009)) == "year_range"
    assert reason(replace(CONFIG, min_year=2010, max_year=2010)) is None
    assert reason(replace(CONFIG, min_label_confidence=0.9)) is None
    assert reason(replace(CONFIG, min_label_confidence=0.91)) == "unsure_label"
    assert reason(replace(CONFIG, min_label_confidence=0.91), label_confidence=None) == "unsure_label"


def test_an_unknown_language_is_kept_unless_told_otherwise() -> None:
    assert reason(language=None) is None
    assert reason(replace(CONFIG, keep_unknown_language=False), language=None) == "language"
    assert reason(replace(CONFIG, keep_unknown_language=False, languages=()), language=None) is None


def test_the_window_has_to_end_before_the_last_year() -> None:
    assert reason(publication_year=2018) is None
    assert reason(publication_year=2019) == "window_incomplete"
    assert reason(window_years=13) is None
    assert reason(window_years=14) == "window_incomplete"
    assert reason(window_years=None, publication_year=2024) is None


@pytest.mark.parametrize("window_years", [-1, 10_000, 2**31 - 1, True, 5.0])
def test_an_impossible_window_is_refused(window_years: Any) -> None:
    with pytest.raises(ConfigError, match=f"window_years is {window_years}, needs a whole number from 0 to 9999"):
        mark_removals(frame_of([GOOD]), CONFIG, window_years=window_years)


def test_works_are_counted_at_the_first_filter_of_the_documented_order() -> None:
    # One step a filter. A later step may give a column another value, as of a title that is there and not wanted.
    steps: list[dict[str, Any]] = [
        {"work_id": 2},
        {"is_retracted": True},
        {"work_type": "review"},
        {"primary_field": None},
        {"source_id": None},
        {"language": "de"},
        {"title": None},
        {"abstract": None},
        {"publication_year": None},
        {"n_references": 0},
        {"n_i": None, "n_j": None},
        {"cd_index": None},
        {"label_confidence": 0.1},
    ]
    strict = replace(
        CONFIG, work_types=("article",), fields=("Medicine",), venues=("S137773608",), min_label_confidence=0.5
    )
    strict = replace(strict, listed=ListedIds(list_ids(pl.Series([f"W{GOOD['work_id']}"])), {"sha256": ""}))
    expected = [name for name in FILTERS if name not in ("year_range", "window_incomplete", "duplicate")]
    seen: list[str | None] = []
    while steps:
        seen.append(reason(strict, **{name: value for step in reversed(steps) for name, value in step.items()}))
        del steps[0]
    assert seen == expected


def test_the_lowest_eligible_id_of_a_duplicate_is_kept() -> None:
    rows = [
        GOOD | {"work_id": 1, "abstract": None},  # not eligible, so it cannot stand for the others
        GOOD | {"work_id": 2, "doi": None},
        GOOD | {"work_id": 3, "title": "ON SLEEP!"},
        GOOD | {"work_id": 4, "title": "Another title"},
        GOOD | {"work_id": 5, "title": "A third title", "doi": None},
    ]
    marked = mark_removals(frame_of(rows), CONFIG, window_years=5).collect()
    assert marked["removed_by"].to_list() == ["no_abstract", None, "duplicate", "duplicate", None]


rows_of_any_kind = st.lists(
    st.fixed_dictionaries(
        {
            "publication_year": st.sampled_from([None, 1990, 2010, 2018, 2019, 2024]),
            "title": st.sampled_from([None, "", "On sleep", "ON SLEEP", "On food", "On work"]),
            "abstract": st.sampled_from([None, "We ask."]),
            "language": st.sampled_from([None, "en", "de"]),
            "work_type": st.sampled_from([None, "article", "review"]),
            "primary_field": st.sampled_from([None, "Medicine", "Art"]),
            "source_id": st.sampled_from([None, 7, 8]),
            "source_name": st.sampled_from([None, "Nature", "Science"]),
            "is_retracted": st.booleans(),
            "doi": st.sampled_from([None, "10.1/a", "10.1/b"]),
            "n_i": st.integers(0, 2),
            "n_j": st.integers(0, 2),
            "cd_index": st.sampled_from([None, 0.0, 0.5]),
            "n_references": st.integers(0, 2),
        }
    ),
    max_size=20,
)


@settings(max_examples=40)
@given(rows_of_any_kind, st.randoms(), st.booleans())
def test_removals_add_up_whatever_the_order_of_rows(
    rows: list[dict[str, Any]], rng: random.Random, named: bool
) -> None:
    numbered = [row | {"work_id": number, "n_k": 0} for number, row in enumerate(rows)]
    config = replace(CONFIG, fields=("Medicine",), venues=("7", "Science")) if named else CONFIG
    marked = mark_removals(frame_of(numbered), config, window_years=5).collect()
    assert marked.height == len(rows)
    assert {*marked["removed_by"]} <= {None, *FILTERS}
    rng.shuffle(numbered)
    assert mark_removals(frame_of(numbered).lazy(), config, window_years=5).collect().equals(marked)
    if named:
        removed = dict(marked.select("work_id", "removed_by").rows())
        for row in numbered:
            is_chosen = row["primary_field"] == "Medicine" and (
                row["source_id"] == 7 or row["source_name"] == "Science"
            )
            earlier = ("retracted", "work_type", "field", "venue")
            assert is_chosen == (removed[row["work_id"]] not in earlier[1:]) or row["is_retracted"]


def test_a_field_is_named_exactly_and_a_venue_by_any_form_of_its_id_or_by_its_name() -> None:
    assert reason(replace(CONFIG, fields=("Medicine", "Art"))) is None
    for fields in (("Art",), ("medicine",), ("Medicine ",)):
        assert reason(replace(CONFIG, fields=fields)) == "field"
    for venue in ("S137773608", "137773608", "https://openalex.org/S137773608", "Nature"):
        assert reason(replace(CONFIG, venues=("S1", venue))) is None
        assert reason(replace(CONFIG, venues=(venue,)), source_id=None, source_name=None) == "venue"
    for venue in ("S13777360", "137", "nature", "Nat"):
        assert reason(replace(CONFIG, venues=(venue,))) == "venue"
    assert reason(replace(CONFIG, venues=("Nature",)), source_id=None) is None
    assert reason(replace(CONFIG, venues=("137773608",)), source_name=None) is None


def test_the_venues_of_own_tables_are_named_by_their_own_ids() -> None:
    table = pl.DataFrame({"id": ["a", "b"], "year": [2001, 2001], "court": ["5th Cir.", "9th Cir."]})
    corpus = from_tables(table, table.select(citing="id", cited="id"), id="id", year="year", venue="court",
                         citing="citing", cited="cited")  # fmt: skip
    works = corpus.works.with_columns(source_name=pl.lit(None, pl.String))
    kept = works.filter(chosen_names(EligibilityConfig(venues=("9th Cir.",)))).collect()
    assert kept["original_id"].to_list() == ["b"]


def test_columns_of_fields_and_venues_are_needed_only_where_they_are_read() -> None:
    bare = frame_of([GOOD]).drop("primary_field", "source_id", "source_name")
    assert mark_removals(bare, CONFIG, window_years=5).collect()["removed_by"].to_list() == [None]
    for option, column in (("fields", "primary_field"), ("venues", "source_id")):
        with pytest.raises(SchemaMismatchError, match=f"lacks column '{column}'"):
            mark_removals(bare, replace(CONFIG, **{option: ("x",)}), window_years=5)


def test_a_name_that_no_work_has_is_named_with_the_nearest_one() -> None:
    works = frame_of([GOOD, GOOD | {"primary_field": None, "source_id": 9, "source_name": "Science"}]).lazy()
    wrong = EligibilityConfig(fields=("Medicine", "Medicin", "Xyz"), venues=("S9", "Nature", "natur", "S10"))
    assert list(remark_on_names(works, wrong)) == [
        "no work has the field 'Medicin' (EligibilityConfig.fields). Did you mean Medicine?",
        "no work has the field 'Xyz' (EligibilityConfig.fields).",
        "no work has the venue 'natur' (EligibilityConfig.venues). Did you mean Nature?",
        "no work has the venue 'S10' (EligibilityConfig.venues).",
    ]
    assert list(remark_on_names(works, CONFIG)) == []


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_the_result_is_lazy_narrow_and_sorted_on_both_engines(engine: Any) -> None:
    rows = [GOOD | {"work_id": n, "title": str(n % 7), "doi": None} for n in range(500, 0, -1)]
    extra = frame_of(rows).with_columns(disruption_label=pl.lit("neutral"))
    marked = mark_removals(extra, CONFIG, window_years=5)
    assert isinstance(marked, pl.LazyFrame)
    got = marked.collect(engine=engine)
    assert got.schema == marked.collect_schema()
    assert not {"title", "abstract"} & set(got.columns)
    assert got["work_id"].to_list() == list(range(1, 501))
    assert got.filter(pl.col("removed_by").is_null())["work_id"].to_list() == list(range(1, 8))
    assert got["disruption_label"].unique().to_list() == ["neutral"]


def test_references_are_distinct_and_leave_out_the_work_itself() -> None:
    edges = pl.DataFrame({"citing_id": [1, 1, 1, 1, 2, 3, 3], "cited_id": [1, 5, 5, 6, 2, 1, None]})
    got = count_references(edges).sort("work_id").collect()
    assert got.rows() == [(1, 2), (3, 1)]
    assert got.schema["n_references"] == pl.UInt32


def test_works_without_scores_or_references_stay_and_are_counted() -> None:
    works = pl.DataFrame([{k: v for k, v in GOOD.items() if k in WORKS} | {"work_id": n} for n in (1, 2)], WORKS)
    scores = pl.DataFrame([{"work_id": 1, "n_i": 1, "n_j": 0, "n_k": 0, "cd_index": 1.0}], CD_SCORES)
    edges = pl.DataFrame({"citing_id": [2], "cited_id": [9]})
    scored = add_references(works.select("work_id").join(scores, on="work_id", how="left"), edges)
    candidates = join_candidates(works, scored)
    marked = mark_removals(candidates, CONFIG, window_years=5).collect()
    assert marked["removed_by"].to_list() == ["few_references", "few_citations"]


@pytest.mark.parametrize("options", [{"languages": ("en", "")}, {"min_year": 2001, "max_year": 2000}])
def test_impossible_options_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        EligibilityConfig(**options)


@pytest.mark.parametrize("kind", ["lazy", "clone"])
def test_a_missing_column_is_named_before_anything_runs(kind: str) -> None:
    frame = getattr(frame_of([GOOD]).drop("n_references"), kind)()
    with pytest.raises(SchemaMismatchError, match="n_references"):
        mark_removals(frame, window_years=5)
    with pytest.raises(SchemaMismatchError, match="cited_id"):
        count_references(getattr(pl.DataFrame({"citing_id": [1]}), kind)())


def test_the_real_records_are_removed_as_a_count_of_the_raw_records_says() -> None:
    works, citations, _ = scan_example()
    scores = compute_cd_index(works, citations)
    marked = mark_removals(join_candidates(works, add_references(scores, citations)), window_years=5).collect()
    counts = dict(marked.group_by("removed_by").len().rows())

    # The same by hand, on the raw records.
    raw = [json.loads(line) for line in example_lines()]
    assert marked.height == len(raw) == 4381
    kept = [record for record in raw if not record.get("is_retracted")]
    assert counts["retracted"] == len(raw) - len(kept)
    titled = [record for record in kept if record.get("title")]
    assert counts["no_title"] == len(kept) - len(titled)
    assert counts["no_abstract"] == sum(not record.get("abstract_inverted_index") for record in titled)
    eligible = marked.filter(pl.col("removed_by").is_null())
    assert eligible["publication_year"].max() == 2016
    assert eligible["n_references"].min() == 1
    assert eligible["cd_index"].null_count() == 0
    assert counts == {
        "retracted": 1,
        "no_title": 14,
        "no_abstract": 222,
        "few_references": 609,
        "few_citations": 2071,
        "window_incomplete": 248,
        "duplicate": 5,
        None: 1211,
    }


@pytest.mark.parametrize("least", [1, 0])
def test_only_filters_that_removed_works_are_advised_to_be_relaxed(tmp_path: Path, least: int) -> None:
    config = ssd.BuildConfig(
        source=ssd.ExampleConfig(),
        out=tmp_path / "slice",
        split=ssd.SplitConfig(n_train=3_000, n_test=30),
        eligibility=ssd.EligibilityConfig(min_references=least),
        novelty=None,
        cache_dir=tmp_path / "cache",
    )
    with pytest.raises(NotEnoughWorksError, match=r"EligibilityConfig\.require_abstract") as raised:
        ssd.build(config)
    assert ("EligibilityConfig.min_references" in str(raised.value)) == bool(least)
    assert "last_year" not in str(raised.value)
