"""Every function that takes a frame takes one of any library, years of any whole type, or says what to do."""

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest

import sciscidata as ssd
from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.indicators import (
    compute_cd_trajectory,
    compute_cd_variants,
    compute_embedding_disruptiveness,
    compute_expected_cd_index,
    compute_foster_novelty,
    compute_later_label,
    compute_novelty_confidence,
    compute_null_cd_index,
    compute_shibayama_novelty,
    find_effect_of_missing_data,
    find_label_ageing,
    find_label_stability,
)
from sciscidata.label_thresholds import compute_disruption_labels, compute_uzzi_cells, count_labels
from sciscidata.plots import (
    plot_by_field,
    plot_by_year,
    plot_cd_sweep,
    plot_cd_trajectory,
    plot_changes,
    plot_comparison,
    plot_disruption,
    plot_drawn,
    plot_label_stability,
    plot_missing_data,
    plot_novelty,
    plot_novelty_by_year,
    plot_null_cd_index,
    plot_uzzi_cells,
    plot_windows,
    plot_works,
)
from sciscidata.sampling.config import SplitConfig
from sciscidata.schemas import Corpus

N = 12
WORKS = pl.DataFrame(
    {
        "work_id": range(1, N + 1),
        "publication_year": [1990, 1990, 1990, 1991, 1991, None, *range(2000, 2006)],
        "source_id": [1, 1, 2, 2, 3, 3, *range(6)],
        "primary_field": ["Law", "Physics"] * 6,
        "community": [1, 2] * 6,
        "past": [[1.0, 0.0]] * N,
        "future": [[0.0, 1.0]] * N,
        "doi": [f"10.1/{i}" for i in range(N)],
    }
)
CITATIONS = pl.DataFrame({"citing_id": [7, 7, 8, 8, 9, 9, 10, 10], "cited_id": [1, 2, 7, 1, 7, 3, 4, 5]})
SCORES = WORKS.select(
    "work_id",
    "publication_year",
    "primary_field",
    n_i=pl.lit(3, pl.UInt32),
    n_j=pl.lit(1, pl.UInt32),
    n_k=pl.lit(0, pl.UInt32),
    cd_index=pl.lit(0.5),
    z=pl.lit(1.0),
    null_mean=pl.lit(0.1),
    z_p10=pl.lit(-1.0),
    z_median=pl.lit(2.0),
    novelty_score=pl.lit(0.7),
    conventionality_score=pl.lit(0.2),
    disruption_label=pl.lit("disruptive"),
    age=pl.lit(3),
    convention=pl.lit("default"),
    window=pl.lit("5"),
)
AGED = SCORES.with_columns(
    pl.col("n_i", "n_j", "n_k", "cd_index").name.suffix("_10"),
    window_complete=pl.lit(value=True),
    window_complete_10=pl.lit(value=True),
)
LIBRARIES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame,
    "lazy polars": lambda frame: frame.lazy(),
    "pandas": lambda frame: frame.to_pandas(),
    "pandas with types of Arrow": lambda frame: frame.to_pandas(use_pyarrow_extension_array=True),
    "pandas with an index": lambda frame: frame.to_pandas().set_index(frame.columns[0]),
    "arrow": lambda frame: frame.to_arrow(),
    "record batch": lambda frame: frame.to_arrow().combine_chunks().to_batches()[0],
}
NO_FRAMES: dict[str, tuple[Any, str]] = {
    "dict": ({"work_id": [1]}, "pl.DataFrame"),
    "list": ([{"work_id": 1}], "pl.DataFrame"),
    "path": ("works.parquet", "pl.scan_parquet"),
    "graph": (nx.DiGraph([(1, 2)]), "graph.edges"),
    "corpus": (Corpus(WORKS.lazy(), CITATIONS.lazy(), {}), "corpus.works"),
    "None": (None, "sciscidata ingest"),
    "number": (7, "sciscidata ingest"),
}
_COUNTS = {name: {"novel": 12, "balanced": 0, "conventional": 0} for name in ("eligible_counts", "drawn_counts")}
_SPLIT = SplitConfig(n_train=2, n_test=1, balance="none")

OF_CORPUS: dict[str, Callable[[Any, Any], Any]] = {
    "compute_cd_index": ssd.compute_cd_index,
    "compute_cd_variants": compute_cd_variants,
    "compute_cd_trajectory": lambda w, c: compute_cd_trajectory(w, c, ages=[1, 3], last_year=2010),
    "find_label_stability": lambda w, c: find_label_stability(w, c, ages=[3]).lazy(),
    "find_effect_of_missing_data": lambda w, c: find_effect_of_missing_data(
        w, c, citations_missing=[], population="all"
    ).lazy(),
    "compute_null_cd_index": lambda w, c: compute_null_cd_index(w, c, n_draws=2),
    "compute_expected_cd_index": compute_expected_cd_index,
    "compute_atypicality": ssd.compute_atypicality,
    "compute_novelty_confidence": compute_novelty_confidence,
    "compute_commonness": ssd.compute_commonness,
    "compute_wang_novelty": ssd.compute_wang_novelty,
    "compute_foster_novelty": compute_foster_novelty,
    "compute_shibayama_novelty": lambda w, c: compute_shibayama_novelty(w, c, vector="past"),
    "diagnose": lambda w, c: ssd.diagnose(w, c, earlier=w).lazy(),
    "from_tables": lambda w, c: ssd.from_tables(w, c).works.drop("concepts"),
}
OF_ONE: dict[str, tuple[pl.DataFrame, Callable[[Any], Any]]] = {
    "compute_embedding_disruptiveness": (WORKS, lambda frame: compute_embedding_disruptiveness(frame).collect()),
    "compute_labels": (SCORES, lambda frame: ssd.compute_labels(frame).collect()),
    "compute_label_confidence": (SCORES, lambda frame: ssd.compute_label_confidence(frame).collect()),
    "find_label_ageing": (AGED, lambda frame: find_label_ageing(frame).chances),
    "compute_later_label": (AGED, lambda frame: compute_later_label(frame, find_label_ageing(AGED)).collect()),
    "find_label_ceiling": (SCORES, lambda frame: ssd.find_label_ceiling(frame)._asdict()),
    "compute_disruption_labels": (SCORES, lambda frame: compute_disruption_labels(frame).collect()),
    "compute_uzzi_cells": (SCORES, lambda frame: compute_uzzi_cells(frame).collect()),
    "count_labels": (SCORES, count_labels),
    "draw_split": (SCORES, lambda frame: ssd.draw_split(frame, _SPLIT)),
    "plot_disruption": (SCORES, plot_disruption),
    "plot_windows": (SCORES, lambda frame: plot_windows(frame, SCORES.clone())),
    "plot_comparison": (SCORES, lambda frame: plot_comparison(frame, frame)),
    "plot_cd_trajectory": (SCORES, plot_cd_trajectory),
    "plot_cd_sweep": (SCORES, plot_cd_sweep),
    "plot_by_year": (SCORES, plot_by_year),
    "plot_by_field": (SCORES, plot_by_field),
    "plot_works": (SCORES, plot_works),
    "plot_drawn": (SCORES, lambda frame: plot_drawn(frame, frame)),
    "plot_novelty": (SCORES, lambda frame: plot_novelty(frame, frame, ssd.LabelThresholds(), **_COUNTS)),
    "plot_novelty_by_year": (SCORES, plot_novelty_by_year),
    "plot_null_cd_index": (SCORES, plot_null_cd_index),
    "plot_uzzi_cells": (SCORES, plot_uzzi_cells),
    "plot_label_stability": (find_label_stability(WORKS, CITATIONS, ages=[1, 3]), plot_label_stability),
    "plot_missing_data": (
        find_effect_of_missing_data(WORKS, CITATIONS, citations_missing=[], population="all"),
        plot_missing_data,
    ),
    "plot_changes": (ssd.compare(SCORES, SCORES.clone()).changes.collect(), plot_changes),
    "plot_diagnostics": (ssd.diagnose(WORKS, CITATIONS), ssd.plot_diagnostics),
}


def _rows(result: Any) -> list[tuple[Any, ...]]:
    return sorted(result.collect().rows(), key=repr)


@pytest.mark.parametrize("function", OF_CORPUS)
def test_works_and_citations_may_come_from_any_library(function: str) -> None:
    score = OF_CORPUS[function]
    wanted = _rows(score(WORKS, CITATIONS))
    for name, make in LIBRARIES.items():
        assert _rows(score(make(WORKS), make(CITATIONS))) == wanted, name


@pytest.mark.parametrize("function", OF_ONE)
def test_one_frame_may_come_from_any_library(function: str) -> None:
    frame, call = OF_ONE[function]
    wanted = call(frame)
    for name, make in LIBRARIES.items():
        made = call(make(frame))
        if isinstance(wanted, pl.DataFrame):
            assert made.select(pl.exclude("age")).equals(wanted.select(pl.exclude("age"))), name
        elif isinstance(wanted, dict):
            assert made == wanted, name
        else:
            assert made.get_suptitle() == wanted.get_suptitle(), name


@pytest.mark.parametrize("kind", NO_FRAMES)
def test_what_is_no_frame_is_refused_with_the_remedy(kind: str) -> None:
    value, remedy = NO_FRAMES[kind]
    for name, call in OF_CORPUS.items():
        with pytest.raises(SchemaMismatchError, match=f"needs a frame.*{remedy}") as error:
            call(value, CITATIONS)
        assert name in str(error.value) or name in ("compute_cd_variants", "compute_cd_trajectory")
    for _, call in OF_ONE.values():
        with pytest.raises(SchemaMismatchError, match=f"needs a frame.*{remedy}"):
            call(value)


@pytest.mark.parametrize("function", OF_CORPUS)
def test_swapped_works_and_citations_are_named(function: str) -> None:
    with pytest.raises(SchemaMismatchError, match="works and citations are swapped: give works first"):
        OF_CORPUS[function](CITATIONS, WORKS)


#: Measures that run when they are collected, and a column that each needs.
MEASURES: dict[str, tuple[Callable[..., pl.LazyFrame], str]] = {
    "compute_cd_index": (ssd.compute_cd_index, "publication_year"),
    "compute_cd_variants": (compute_cd_variants, "publication_year"),
    "compute_null_cd_index": (compute_null_cd_index, "publication_year"),
    "compute_atypicality": (ssd.compute_atypicality, "source_id"),
    "compute_novelty_confidence": (compute_novelty_confidence, "source_id"),
    "compute_commonness": (ssd.compute_commonness, "source_id"),
    "compute_wang_novelty": (ssd.compute_wang_novelty, "source_id"),
}


@pytest.mark.parametrize("name", MEASURES)
def test_nothing_runs_before_collect_and_wrong_arguments_are_named_at_once(name: str) -> None:
    def explode() -> pl.DataFrame:
        raise AssertionError("ran too early")

    compute, needed = MEASURES[name]
    works, citations = (pl.defer(explode, schema=frame.schema) for frame in (WORKS, CITATIONS))
    assert compute(works, citations).collect_schema() == compute(WORKS, CITATIONS).collect().schema
    with pytest.raises(SchemaMismatchError, match=f"WORKS lacks column '{needed}'"):
        compute(works.drop(needed), citations)
    with pytest.raises(SchemaMismatchError, match=r"'cited_id' is String, needs Int64.* = sciscidata.from_tables\("):
        compute(works, citations.cast({"cited_id": pl.String}))
    for n_threads in (-1, 0, True, 1.5, "2"):
        with pytest.raises(ConfigError, match=r"n_threads is .* needs a whole number from 1"):
            compute(works, citations, n_threads=n_threads)
    for config in ("cdindex", {}, ssd.CDConfig):
        with pytest.raises(ConfigError, match=r"needs a \w+Config"):
            compute(works, citations, config)


@pytest.mark.parametrize("dtype", [pl.Int16, pl.Int64, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64])
def test_years_and_ids_may_have_any_type_that_holds_them(dtype: Any) -> None:
    works = WORKS.with_columns(pl.col("publication_year", "work_id").cast(dtype))
    citations = CITATIONS.cast(dtype)
    for works_given, citations_given in ((works, citations), (works.lazy(), citations.lazy())):
        assert _rows(ssd.compute_cd_index(works_given, citations_given)) == _rows(
            ssd.compute_cd_index(WORKS, CITATIONS)
        )


@pytest.mark.parametrize("year", [2**40, 2000.5])
def test_a_year_that_does_not_fit_is_an_error_that_names_it(year: float) -> None:
    works = pl.DataFrame({"work_id": [1, 2], "publication_year": [year, 2000]}, strict=False)
    with pytest.raises(SchemaMismatchError, match=f"'publication_year' holds {year}, needs Int32"):
        ssd.compute_cd_index(works, CITATIONS).collect()


def test_a_column_of_pandas_that_holds_anything_is_named() -> None:
    works = WORKS.to_pandas().assign(notes=[1, "two", *[object()] * (N - 2)])
    with pytest.raises(SchemaMismatchError, match=r"compute_cd_index: WORKS: a column of .*notes.* several types"):
        ssd.compute_cd_index(works, CITATIONS)


def test_scores_become_pandas_and_arrow_without_another_call() -> None:
    scores = ssd.compute_cd_index(WORKS, CITATIONS)
    assert isinstance(scores.to_pandas(), pd.DataFrame)  # pyright: ignore[reportAttributeAccessIssue]
    assert scores.to_arrow().num_rows == N  # pyright: ignore[reportAttributeAccessIssue]


def test_ids_of_19_digits_lose_none_in_pandas_and_stata_and_come_back(tmp_path: Path) -> None:
    papers = pl.DataFrame({"paper": ["A", "B", "C"], "year": [1990, 2000, 2001], "venue": ["x", None, "y"]})
    cites = pl.DataFrame({"from": ["B", "C", "C"], "to": ["A", "B", "A"]})
    columns = {"id": "paper", "year": "year", "venue": "venue", "citing": "from", "cited": "to"}
    works, citations, _ = ssd.from_tables(papers, cites, **columns)
    known = dict(works.select("original_id", "work_id").collect().rows())
    assert min(known.values()) >= 2**62
    for table in (works.to_pandas(), ssd.compute_cd_index(works, citations).to_pandas()):  # pyright: ignore[reportAttributeAccessIssue]
        table = table.drop(columns="concepts", errors="ignore").dropna(axis=1, how="all")
        table.to_stata(tmp_path / "table.dta", write_index=False, version=118)
        for frame in (table, pd.read_stata(tmp_path / "table.dta")):
            assert dict(zip(frame["original_id"], frame["work_id"].map(int), strict=True)) == known
    venues = works.to_pandas()["source_id"].dropna().map(int)  # pyright: ignore[reportAttributeAccessIssue]
    assert {*venues} == {*works.collect()["source_id"].drop_nulls()}
    scores = ssd.compute_cd_index(works.to_pandas(), citations.to_pandas())  # pyright: ignore[reportAttributeAccessIssue]
    assert _rows(scores) == _rows(ssd.compute_cd_index(works, citations))


def test_short_ids_stay_numbers_in_pandas() -> None:
    scores = ssd.compute_cd_index(WORKS, CITATIONS).to_pandas()  # pyright: ignore[reportAttributeAccessIssue]
    assert scores["work_id"].dtype == "int64"


def test_groups_by_a_long_id_stand_in_a_picture_with_all_their_digits() -> None:
    venue = 2**62 + 12_345
    works = pl.DataFrame({"work_id": [1, 2, 3], "source_id": [venue, venue, 7], "value": [0.1, 0.2, 0.3]})
    figure = ssd.plots.plot_by(works, "source_id", "value")
    assert any(str(venue) in tick.get_text() for tick in figure.axes[0].get_yticklabels())


def test_labels_are_refused_by_the_name_of_the_function_that_was_called() -> None:
    with pytest.raises(SchemaMismatchError, match=r"^compute_labels: scores lacks column 'cd_index'"):
        ssd.compute_labels(pl.DataFrame({"index": [0.5]}))
    with pytest.raises(SchemaMismatchError, match=r"^compute_labels: scores column 'cd_index' is String"):
        ssd.compute_labels(pl.DataFrame({"cd_index": ["0.5"]}))
    with pytest.raises(SchemaMismatchError, match=r"^compute_labels: scores lacks column 'conventionality_score'"):
        ssd.compute_labels(pl.DataFrame({"novelty_score": [0.5]}))


def test_a_trajectory_of_own_ids_is_drawn_by_these() -> None:
    own = pl.DataFrame(
        {"work_id": [5, 5], "original_id": ["ACM-1"] * 2, "age": np.array([1, 2]), "cd_index": [0.5, 0.1]}
    )
    assert plot_cd_trajectory(own, works=["ACM-1"]).get_label() == "CD index of work ACM-1 by its age."
    with pytest.raises(ssd.SciSciDataError, match="works holds 'ACM-1', needs whole numbers"):
        plot_cd_trajectory(own.drop("original_id"), works=["ACM-1"])


def test_one_path_stands_for_a_list_of_one() -> None:
    assert ssd.RecordsConfig(inputs="works.jsonl").inputs == ("works.jsonl",)  # pyright: ignore[reportArgumentType]
    assert ssd.RecordsConfig(inputs=["works.jsonl"]).inputs == ("works.jsonl",)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("module", "name", "where"),
    [
        (ssd, "compute_null_cd_index", "sciscidata.indicators.compute_null_cd_index"),
        (ssd, "compute_cd_indx", "sciscidata.compute_cd_index"),
        (ssd, "ConfigError", "sciscidata.errors.ConfigError"),
        (ssd, "Corpus", "sciscidata.schemas.Corpus"),
        (ssd.indicators, "compute_cd_index", "sciscidata.compute_cd_index"),
        (ssd.plots, "plot_diagnostics", "sciscidata.plot_diagnostics"),
    ],
)
def test_a_wrong_public_name_is_answered_with_the_right_one(module: Any, name: str, where: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"Did you mean {where}?")):
        getattr(module, name)
    assert not hasattr(module, "_repr_html_")


def test_an_import_of_a_wrong_name_is_answered_too_and_one_of_a_module_is_not_disturbed() -> None:
    with pytest.raises(ImportError, match=re.escape("Did you mean sciscidata.compute_cd_index?")):
        exec("from sciscidata import compute_cd_indx")
    exec("from sciscidata import pipeline, frames")


@pytest.mark.parametrize(
    ("package", "name", "now"),
    [
        ("sciscidata", "write_cd_scores", "sciscidata.write_cd_index"),
        ("sciscirl", "measure_at_thresholds", "sciscirl.measure_predictions"),
        ("sciscirl", "register_benchmark", "sciscirl.evaluate_model"),
    ],
)
def test_a_public_name_that_is_gone_points_to_what_takes_its_place(package: str, name: str, now: str) -> None:
    module = import_module(package)
    with pytest.raises(AttributeError, match=re.escape(now)):
        getattr(module, name)
    with pytest.raises(ImportError, match=re.escape(now)):
        exec(f"from {package} import {name}")
    assert name not in dir(module)


def test_the_builder_of_a_preset_points_to_its_new_name() -> None:
    with pytest.raises(AttributeError, match=r"gone: sciscirl\.make_builder"):
        import_module("sciscirl").LabelDatasetBuilder.from_preset("exp4")


def test_what_takes_the_place_of_a_name_that_is_gone_is_there() -> None:
    for package in map(import_module, ("sciscidata", "sciscirl")):
        for name, told in package._GONE.items():
            assert not hasattr(package, name)
            places = re.findall(r"\b(sciscidata|sciscirl)\.(\w+)", told)
            assert all(hasattr(import_module(other), word) for other, word in places), told


@pytest.mark.parametrize("function", [ssd.compute_label_confidence, ssd.find_label_ceiling])
def test_a_parameter_that_is_gone_points_to_what_takes_its_place(function: Any) -> None:
    with pytest.raises(ssd.SciSciDataError, match=r"has no option 'by'\. .*each group"):
        function(pl.DataFrame(), by=["primary_field"])
    with pytest.raises(TypeError, match="bye"):
        function(pl.DataFrame(), bye=1)
    assert "by" not in inspect.signature(function).parameters
