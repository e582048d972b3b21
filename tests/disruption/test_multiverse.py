"""A multiverse gives what compute_cd_index gives, specification by specification, and says which ones failed."""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

import sciscidata as ssd
from sciscidata import CDConfig, SyntheticConfig, scan_example, scan_synthetic
from sciscidata.disruption.config import COMPAT
from sciscidata.disruption.index import variants_of
from sciscidata.disruption.missing_data import is_kept
from sciscidata.disruption.specifications import OUTCOMES
from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError
from sciscidata.indicators import (
    Multiverse,
    MultiverseConfig,
    compute_cd_variants,
    compute_independent_cd_index,
    is_judged,
    run_multiverse,
)
from tests.disruption.test_index import frames
from tests.disruption.test_self_citations import authors_frame

YEARS, SEED = (1999, 2003), 3
#: One specification, to change one choice of.
ONE = {
    "conventions": ["default"],
    "windows": [5],
    "indices": ["cd_index"],
    "populations": ["all"],
    "min_references": [0],
    "min_citers": [0],
    "missing": [0],
}
COMBINED = {"populations": ["judged", "all"], "min_references": [0, 3], "years": [None, YEARS], "seed": SEED}
#: Every convention, window and index is in one of them. pySciSci has no window without end.
WORLDS = [
    {"conventions": ["default", "crossdi"], "windows": ["until2004", 3], "indices": ["cd_index", "di2_index"]},
    {"conventions": ["cdindex", "sciscinet_v1_d"], "windows": [None, 3], "indices": ["mcd_index", "di2_nok_index"]},
    {"conventions": ["wu_wang_evans", "novelpy"], "windows": [None, 4], "indices": ["di_nok_index", "dependence"]},
    {"conventions": ["pyscisci"], "windows": [6, 2], "indices": ["di5_index", "cd_index", "orig_base"]},
    {"conventions": ["sciscinet_v1_cd5"], "windows": [5], "indices": ["di3_nok_index", "inverse_dependence"]},
]


def a_world(seed: int) -> tuple[pl.LazyFrame, pl.LazyFrame, pl.LazyFrame]:
    random, n = np.random.default_rng(seed), 60
    years = [None if random.random() < 0.05 else int(random.integers(1996, 2010)) for _ in range(n)]
    edges = [(int(a), int(b)) for a, b in random.integers(1, n + 6, (400, 2))]
    pairs = [(int(a), int(b)) for a, b in zip(random.integers(1, n, 90), random.integers(1, 12, 90), strict=True)]
    return *frames(dict(enumerate(years, 1)), edges), authors_frame(pairs)


def score_alone(row: dict[str, Any], world: tuple[pl.LazyFrame, ...]) -> tuple[pl.DataFrame, str]:
    """Score every work as a user would for one specification; return the scores and what their columns end with."""
    works, citations, authors = world
    digits = row["index"][2:3] if row["index"].startswith("di") else ""
    window, shared = row["window"], int(digits) if digits.isdigit() else 5
    until = window.startswith("until")
    options = {"window_years": None if window == "all" else 1 if until else int(window), "family": True, "di_l": shared}
    options |= {"windows": (window,)} if until else {}
    name, ending = row["convention"], f"_{window}" if until else ""
    config = CDConfig.compat(name, **options) if name in COMPAT else CDConfig(**options)
    left = citations.filter(is_kept("citations", row["missing"], SEED)) if row["missing"] else citations
    if row["self_citations"] == "counted":
        return compute_cd_variants(works, left, config).collect(), ending
    found = compute_independent_cd_index(works, left, authors, config).collect()
    names = {name: name.removeprefix("independent_") for name in found.columns if name.startswith("independent_")}
    scores = found.drop(names.values()).rename(names)
    return scores.with_columns(**{a + ending: b for a, b in variants_of(ending, shared).items()}), ending


def keep(scores: pl.DataFrame, ending: str, row: dict[str, Any]) -> pl.DataFrame:
    n_i, n_j, n_k, index = (pl.col(f"{name}{ending}").alias(name) for name in ("n_i", "n_j", "n_k", row["index"]))
    kept = scores.filter(
        index.is_not_null(), pl.col("n_refs") >= row["min_references"], n_i.cast(int) + n_j >= row["min_citers"]
    )
    kept = kept.filter(is_judged(ending)) if row["population"] == "judged" else kept
    kept = kept.filter(pl.col("publication_year").is_between(*YEARS)) if row["years"] != "all" else kept
    return kept.select("work_id", index, n_i, n_j, n_k, "n_refs").sort("work_id")


@pytest.mark.parametrize("choices", WORLDS, ids=lambda choices: choices["conventions"][0])
def test_every_specification_has_the_scores_of_its_own_configuration(choices):
    world = a_world(WORLDS.index(choices))
    works, citations, authors = world
    seen: list[pl.DataFrame] = []

    def number(frame: pl.DataFrame) -> int:
        seen.append(frame)
        return len(seen) - 1

    config = MultiverseConfig(**COMBINED | choices, missing=[0, 0.2], min_citers=[0, 2])
    found = run_multiverse(number, works, citations, config, authors=authors).specifications
    assert found.height == 2 * config.n_specifications == found.select(pl.exclude(*OUTCOMES)).n_unique()
    known = authors.select("work_id").unique().collect()
    years = works.select("work_id", "publication_year").collect().join(known, on="work_id", how="semi")
    compared = 0  # works without a known author count in no specification
    passes = ("convention", "window", "index", "missing", "self_citations")
    for _, rows in found.group_by(*passes, maintain_order=True):
        scores, ending = score_alone(rows.row(0, named=True), world)
        for row in rows.rows(named=True):
            expected = keep(scores.join(years, on="work_id"), ending, row)
            if expected.is_empty():
                assert (row["works"], row["estimate"], row["problem"]) == (0, None, "no work is left")
                continue
            frame = seen[int(row["estimate"])].sort("work_id")
            assert frame.select("work_id", "disruption", "n_i", "n_j", "n_k", "n_refs").rows() == expected.rows()
            assert (row["works"], row["problem"]) == (frame.height, None)
            compared += 1
    assert compared == len(seen) > 0.8 * found.height


def a_synthetic_world() -> tuple[pl.LazyFrame, pl.LazyFrame]:
    works, citations, _ = scan_synthetic(SyntheticConfig(n_works=2_000))
    return works, citations


def mean_of(frame: pl.DataFrame) -> float:
    return float(frame["disruption"].mean())


def test_defaults_make_a_few_hundred_specifications_the_main_one_first():
    works, citations = a_synthetic_world()
    found = run_multiverse(mean_of, works, citations)
    assert found.specifications.height == MultiverseConfig().n_specifications == 288
    main = found.specifications.row(0, named=True)
    scores = ssd.compute_cd_index(works, citations).filter(is_judged()).drop_nulls("cd_index").collect()
    assert (main["works"], main["estimate"]) == (scores.height, pytest.approx(scores["cd_index"].mean(), rel=1e-12))
    assert found.specifications.equals(run_multiverse(mean_of, works, citations).specifications)


def test_what_is_missing_follows_from_the_seed():
    works, citations = a_synthetic_world()
    found = {}
    for seed in (0, 0, 1):
        config = MultiverseConfig(**ONE | {"missing": [0, 0.05, 0.2]}, seed=seed)
        estimates = run_multiverse(mean_of, works, citations, config).specifications["estimate"]
        assert found.setdefault(seed, estimates).equals(estimates)
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]


def test_the_frame_has_what_works_have_but_their_texts():
    works, citations = a_synthetic_world()
    frames = []
    run_multiverse(
        lambda frame: frames.append(frame) or 1, works.with_columns(mine=1), citations, MultiverseConfig(**ONE)
    )
    (frame,) = frames
    facts = [name for name in works.collect_schema() if name not in ("title", "abstract")]
    assert frame.columns == [*facts, "mine", "disruption", "n_refs", "n_i", "n_j", "n_k", "window_complete"]
    assert frame.sort("publication_year", "work_id").equals(frame)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (2, (2.0, None, None)),
        (np.float32(0.5), (0.5, None, None)),
        ((1, 0.5, 1.5), (1.0, 0.5, 1.5)),
        ([0.1 + 0.2, 0.3, 0.3], (0.1 + 0.2, 0.3, 0.3)),  # the same number, but for rounding
        (np.array([1.0, 0.5, np.inf]), (1.0, 0.5, None)),
        ({"estimate": 1, "low": 0, "high": 2, "p": 0.3}, (1.0, 0.0, 2.0)),
        ({"estimate": 1}, (1.0, None, None)),
        (SimpleNamespace(estimate=1, low=0, high=2), (1.0, 0.0, 2.0)),
        (pl.DataFrame({"estimate": [1], "low": [0], "high": [2]}), (1.0, 0.0, 2.0)),
        (pl.DataFrame({"low": [0], "estimate": [1], "high": [2], "p": ["*"]}).to_arrow(), (1.0, 0.0, 2.0)),
    ],
    ids=str,
)
def test_an_estimate_may_have_any_usual_form(returned, expected):
    works, citations = a_synthetic_world()
    found = run_multiverse(lambda frame: returned, works, citations, MultiverseConfig(**ONE)).specifications
    assert found.select("estimate", "low", "high").row(0) == expected
    assert found["problem"][0] is None


def test_a_row_of_pandas_is_an_estimate_too():
    pandas = pytest.importorskip("pandas")
    works, citations = a_synthetic_world()
    table = pandas.DataFrame({"estimate": [0.0], "low": [-0.5], "high": [0.5]}, index=["team"])
    for returned in (table, table.iloc[0], table.loc["team"].astype(object)):
        found = run_multiverse(lambda frame, it=returned: it, works, citations, MultiverseConfig(**ONE)).specifications
        assert found.select("estimate", "low", "high").row(0) == (0.0, -0.5, 0.5)


@pytest.mark.parametrize(
    "returned",
    [
        *("3", (1, 2), ["a", "b", "c"], {"mean": 1}, object(), pl.Series([1, 2]), (0.1, (0, 1)), (1, (0, 1), 2)),
        *([[1], [0], [2]], np.ones((3, 1)), pl.DataFrame({"estimate": [1, 2]}), pl.DataFrame({"mean": [1]})),
        *(True, np.True_, (0.5, False, True), {"estimate": 1, "low": 0.3}, SimpleNamespace(estimate=1, high=2)),
    ],
)
def test_any_other_form_is_refused_with_its_specification(returned):
    works, citations = a_synthetic_world()
    with pytest.raises(ConfigError, match=r"returned .*needs a number, .*Specification: convention='default'"):
        run_multiverse(lambda frame: returned, works, citations, MultiverseConfig(**ONE))


@pytest.mark.parametrize(
    "returned",
    [
        *((-0.05, 0.01, 3_003), (-0.057, 0.4, 3_003), (5, 0, 1), (-0.057, -0.047, -0.036), (1, 3, 2)),
        *({"estimate": 5.0, "low": 0.1, "high": 1.0}, SimpleNamespace(estimate=-1, low=0, high=2)),
    ],
    ids=repr,
)
def test_an_estimate_outside_its_interval_is_refused_as_no_interval(returned):
    """A standard error, a p-value or another order would count as an interval off 0."""
    works, citations = a_synthetic_world()
    message = r"needs .*low <= estimate <= high.*not a standard error or p.*Specification"
    with pytest.raises(ConfigError, match=message):
        run_multiverse(lambda frame: returned, works, citations, MultiverseConfig(**ONE))


def test_a_standard_error_and_a_number_of_works_are_noticed_where_they_enclose_the_estimate(caplog):
    works, citations = a_synthetic_world()
    config = MultiverseConfig(**ONE | {"min_references": [0, 2]})
    run_multiverse(lambda frame: (0.2, 0.01, frame.height), works, citations, config)
    assert "high is the number of works in every specification" in caplog.text
    caplog.clear()
    run_multiverse(lambda frame: (0.2, 0.01, 1), works, citations, config)
    assert not caplog.messages


@pytest.mark.parametrize("nothing", [None, math.nan, -math.inf, (math.nan, 0, 1)], ids=repr)
def test_an_estimate_that_is_no_number_is_named_and_ends_a_first_pass_of_such(nothing):
    works, citations = a_synthetic_world()
    config = MultiverseConfig(**ONE | {"windows": [3, 5], "missing": [0, 0.1]})
    calls = []

    def sometimes(frame: pl.DataFrame) -> Any:
        calls.append(1)
        return nothing if len(calls) % 2 else (0.5, 0, 1)

    found = run_multiverse(sometimes, works, citations, config).specifications
    word = repr(nothing[0] if isinstance(nothing, tuple) else nothing)
    problem = f"estimate returned {word}, which is no number"
    assert found.sort("window").select("window", "problem").rows() == [("3", problem)] * 2 + [("5", None)] * 2
    calls.clear()
    with pytest.raises(ConfigError, match=rf"no number in all 2 .*window='3'.*returned {word}.*drop_nulls"):
        run_multiverse(lambda frame: calls.append(1) or nothing, works, citations, config)
    assert len(calls) == 2


def test_works_without_a_known_author_count_on_neither_side(caplog):
    """Else leaving out self-citations would also leave out these works, and seem to change the estimate."""
    works, citations = scan_example().works, scan_example().citations
    authors = ssd.scan_authors(ssd.ExampleConfig()).filter(pl.col("work_id") % 2 == 0)
    config = MultiverseConfig(**ONE | {"windows": [5, 10], "missing": [0, 0.1]})
    seen: list[set[int]] = []
    with caplog.at_level(logging.INFO, "sciscidata"):
        run_multiverse(
            lambda frame: seen.append({*frame["work_id"]}) or mean_of(frame), works, citations, config, authors=authors
        )
    known = {*authors.drop_nulls("author_id").collect()["work_id"]}
    scored = {*ssd.compute_cd_index(works, citations).drop_nulls("cd_index").collect()["work_id"]}
    assert seen[0] == scored & known != scored
    assert all(counted <= known and len(counted ^ seen[0]) < 30 for counted in seen[1:2])
    (line,) = [line for line in caplog.messages if "author" in line]
    assert f"{len(scored - known):,} works with an index have no known author" in line


def test_authors_of_other_works_are_refused():
    works, citations = a_synthetic_world()
    with pytest.raises(EmptyInputError, match="no author of a work"):
        run_multiverse(mean_of, works, citations, MultiverseConfig(**ONE), authors=authors_frame([(10**9, 1)]))


def test_an_error_costs_one_specification_and_is_counted(caplog):
    works, citations = a_synthetic_world()

    def fail_on_few(frame: pl.DataFrame) -> float:
        if frame["n_refs"].min() >= 5:
            raise ZeroDivisionError("too\nfew")
        return mean_of(frame)

    config = MultiverseConfig(**ONE | {"min_references": [0, 5, 10_000]})
    with caplog.at_level(logging.WARNING, "sciscidata"):
        found = run_multiverse(fail_on_few, works, citations, config)
    assert found.n_failed == 2
    assert found.specifications["problem"].to_list() == [None, "ZeroDivisionError: too few", "no work is left"]
    assert found.specifications["works"].to_list()[1:] == [found.specifications["works"][1], 0]
    (line,) = caplog.messages
    assert "2 of 3 specifications have no estimate" in line
    assert "1 with 'ZeroDivisionError: too few', the first convention='default'" in line
    assert "min_references=5" in line
    assert "1 with 'no work is left', the first convention='default'" in line
    assert "2 specifications without an estimate" in found.describe()


def test_a_function_that_always_fails_ends_the_first_pass():
    works, citations = a_synthetic_world()
    calls = []

    def wrong(frame: pl.DataFrame) -> float:
        calls.append(1)
        return frame["no_such_column"].mean()

    config = MultiverseConfig(**ONE | {"windows": [3, 5], "missing": [0, 0.1], "min_citers": [10_000, 0]})
    with pytest.raises(ConfigError, match=r"fails in all 2 specifications .*window='3'.*no_such_column") as caught:
        run_multiverse(wrong, works, citations, config)
    assert len(calls) == 2
    assert caught.value.__cause__ is not None  # with the line of the user's function


def test_mistakes_are_refused_before_any_work():
    works, citations = a_synthetic_world()
    with pytest.raises(ConfigError, match="needs a function of a frame"):
        run_multiverse("cd_index", works, citations)
    with pytest.raises(ConfigError, match="needs a function of a frame"):
        run_multiverse(works, citations, mean_of)
    for name in ("n_i", "cd_index", "window_complete", "disruption", "orig_base"):
        with pytest.raises(SchemaMismatchError, match=f"have a column '{name}'"):
            run_multiverse(mean_of, works.with_columns(pl.lit(1).alias(name)), citations)
    with pytest.raises(SchemaMismatchError, match="swapped"):
        run_multiverse(mean_of, citations, works)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windows": []}, "windows"),
        ({"windows": [5, 5]}, "windows holds 5 twice"),
        ({"indices": ["cd"]}, "compute_cd_variants"),
        ({"conventions": ["mine"]}, "conventions"),
        ({"conventions": ["pyscisci"]}, "'pyscisci' has no such window"),
        ({"years": [(2005, 1990)]}, "last year comes first"),
        ({"missing": [10]}, "missing"),
        ({"years": (1990, 2000)}, r"years=\[\(1990, 2000\)\]"),
        ({"years": [(1990,)]}, r"years=\[\(1990, 2000\)\]"),
        ({"conventions": ["defalt"]}, "Did you mean default"),
        ({"conventions": "sciscinet_v1_cd"}, "Did you mean sciscinet_v1_cd5"),
        ({"populations": ["juged"]}, "Did you mean judged"),
    ],
)
def test_choices_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        MultiverseConfig(**options)


def a_table(*estimates: float | None, half: float = 1.0) -> pl.DataFrame:
    n = len(estimates)
    columns = {"window": ["5", "10"] * (n // 2), "missing": [0.0] * (n // 2) + [0.1] * (n // 2), "works": [9] * n}
    ends = {"low": [None if one is None else one - half for one in estimates], "problem": [None] * n}
    ends["high"] = [None if one is None else one + half for one in estimates]
    return pl.DataFrame(columns | {"estimate": estimates} | ends)


def test_the_shares_of_signs_and_intervals_are_those_counted_by_hand():
    found = Multiverse(a_table(3.0, 0.5, -2.0, 4.0))
    assert (found.sign, found.share_same_sign, found.share_off_zero, found.share_against) == (1, 0.75, 0.5, 0.25)
    assert Multiverse(a_table(-3.0, -0.5, -2.0, 0.0)).share_off_zero == 0.5
    without = Multiverse(a_table(1.0, 2.0).with_columns(low=None, high=None))
    gone = a_table(3.0, 0.5, -2.0, 4.0).with_columns(estimate=pl.col("estimate").replace(-2.0, None))
    assert Multiverse(gone).share_off_zero == pytest.approx(2 / 3)  # an interval without an estimate does not count
    assert (without.share_same_sign, without.share_off_zero) == (1.0, None)
    assert "100.0 % above 0." in without.describe()


def test_where_as_many_estimates_lie_above_as_below_intervals_are_told_by_side():
    found = Multiverse(a_table(3.0, -3.0, 4.0, -0.5))
    assert (found.sign, found.share_off_zero, found.share_against) == (0, 0.5, 0.25)
    assert "50.0 % on either side of 0, 50.0 % with an interval above 0 and 25.0 % below." in found.describe()


@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3, 0.001, -1e9, 0.0])
def test_influence_is_null_where_all_estimates_are_alike(value):
    """A variance that is only rounding would be explained by 22500 %."""
    found = Multiverse(a_table(*[value] * 96))
    assert found.influence["share_of_variance"].to_list() == [None, None]
    assert "matters most" not in found.describe()
    nearly = (
        a_table(*[value] * 96).with_row_index("n").with_columns(pl.col("estimate") * (1 + 1e-15 * (pl.col("n") % 5)))
    )
    assert Multiverse(nearly.drop("n")).influence["share_of_variance"].to_list() == [None, None]


def test_influence_is_the_share_of_variance_between_the_values_of_a_choice():
    found = Multiverse(a_table(1.0, 3.0, 2.0, 4.0)).influence  # 10 years add 2, missing adds 1
    assert found["choice"].to_list() == ["window", "missing"]
    assert found["share_of_variance"].to_list() == pytest.approx([0.8, 0.2])
    assert found.row(0)[2:] == ("5", 1.5, "10", 3.5)
    assert Multiverse(a_table(2.0, 2.0)).influence["share_of_variance"].to_list() == [None, None]
    crossed = Multiverse(a_table(1.0, -1.0, -1.0, 1.0)).influence  # all in the combination
    assert crossed["share_of_variance"].to_list() == [0.0, 0.0]


def test_two_runs_can_be_put_together():
    both = [a_table(1.0, 2.0).with_columns(controls=pl.lit(name)) for name in ("none", "year")]
    found = Multiverse(pl.concat(both))
    assert found.choices == ["window", "missing", "controls"]
    assert repr(found) == "Multiverse(4 specifications, 0 without estimate)"
    with pytest.raises(SchemaMismatchError, match="lack column 'problem'"):
        Multiverse(a_table(1.0, 2.0).drop("problem"))
    with pytest.raises(EmptyInputError, match="no specification has an estimate"):
        Multiverse(a_table(None, None)).describe()


def test_frames_of_pandas_and_ids_of_ones_own_are_welcome():
    pandas = pytest.importorskip("pandas")
    years = [2000] * 3 + [2002] * 3 + [2004] * 4
    papers = pandas.DataFrame({"paper": list("abcdefghij"), "year": years, "team": range(10)})
    links = ["da", "ea", "eb", "fc", "gd", "ga", "hd", "ie", "jf", "jc"]
    cites = pandas.DataFrame([tuple(link) for link in links], columns=["x", "y"])
    works, citations, _ = ssd.from_tables(papers, cites, id="paper", year="year", citing="x", cited="y", keep=["team"])
    ids = []

    def count(frame: pl.DataFrame) -> float:
        table = frame.to_pandas()
        ids.append(sorted(zip(table["original_id"], table["team"], strict=True)))
        return table["disruption"].mean()

    frames = [works, citations], [works.collect().to_pandas(), citations.collect().to_pandas()]
    one, two = (run_multiverse(count, *pair, MultiverseConfig(**ONE)).specifications for pair in frames)
    assert one.equals(two)
    assert ids[0] == ids[1] == [("d", 3), ("e", 4), ("f", 5)]
