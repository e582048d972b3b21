"""The chance that a label is that of a later window: against plain loops, and on later works of real graphs."""

import logging
from collections import Counter, defaultdict

import numpy as np
import polars as pl
import pytest

import sciscidata as ssd
from sciscidata.disruption.label_prior import SHIPPED
from sciscidata.errors import ConfigError, SchemaMismatchError
from sciscidata.indicators import LabelAgeing, compute_later_label, find_label_ageing
from sciscidata.label_thresholds import LABELS_BY_INDEX, LabelThresholds
from tests.disruption.test_label_confidence import scores
from tests.real_graphs import scan_real

CHANCES = ["p_later_same", *(f"p_later_{label}" for label in LABELS_BY_INDEX)]


def world(n: int = 3_000, seed: int = 0) -> pl.DataFrame:
    """Scores of works of thirty years after 5 and 10 years; some are uncited, and windows of the last years open."""
    rng = np.random.default_rng(seed)
    first = np.column_stack([rng.poisson(1, n), rng.poisson(1.5, n), rng.poisson(20, n)])
    whole = first + np.column_stack([rng.poisson(1, n), rng.poisson(1, n), rng.poisson(10, n)])
    year = rng.integers(1990, 2020, n)
    later = scores(whole).select(pl.all().name.suffix("_10"))
    years = pl.DataFrame({"publication_year": year}).cast(pl.Int32)
    complete = [pl.Series(f"window_complete{end}", year < last) for end, last in (("", 2015), ("_10", 2010))]
    return pl.concat([scores(first), later, years], how="horizontal").with_columns(*complete)


def label_of(index: float, cut: LabelThresholds) -> str:
    if index >= cut.disruptive_min if cut.inclusive else index > cut.disruptive_min:
        return "disruptive"
    is_low = index <= cut.consolidating_max if cut.inclusive else index < cut.consolidating_max
    return "consolidating" if is_low else "neutral"


class Plain:
    """The chances of a list of (label, fifth, later label), by plain loops."""

    def __init__(self, works: list[tuple[str, int, str]]) -> None:
        self.of_label = Counter(label for label, _, _ in works)
        self.later = Counter((label, later) for label, _, later in works)
        self.of_band = Counter((label, band) for label, band, _ in works)
        self.later_of_band = Counter(works)

    def chance(self, label: str, band: int, later: str) -> float | None:
        if self.of_label[label] < 30:
            return None
        share = (self.later[label, later] + 1 / 3) / (self.of_label[label] + 1)
        return (self.later_of_band[label, band, later] + 10 * share) / (self.of_band[label, band] + 10)


def facts_of(rows: pl.DataFrame, cut: LabelThresholds) -> list[tuple[int, str, int, str]]:
    """Year, label, fifth of its confidence and later label of each judged work whose later window is over."""
    sure = ssd.compute_label_confidence(rows, cut, prior=SHIPPED).collect()
    return [
        (row["publication_year"], label_of(row["cd_index"], cut), band, label_of(row["cd_index_10"], cut))
        for row in sure.iter_rows(named=True)
        if row["window_complete"] and row["window_complete_10"] and row["n_i"] + row["n_j"] > 0
        for band in [min(int(row["label_confidence"] * 5), 4)]
    ]


@pytest.mark.parametrize("years", [10, 3, None])
@pytest.mark.parametrize("cut", [LabelThresholds(), LabelThresholds.preset("wide")], ids=["default", "wide"])
def test_chances_and_their_error_are_those_of_plain_loops(cut: LabelThresholds, years: int | None):
    rows = world()
    ageing = find_label_ageing(rows, cut, years=years, prior=SHIPPED)
    facts = facts_of(rows, cut)
    known = sorted({year for year, *_ in facts})
    span = years or 100
    plain = Plain([one for year, *one in map(tuple, facts) for one in [tuple(one)] if year > known[-1] - span])
    assert (ageing.first_year, ageing.last_year) == (max(known[0], known[-1] + 1 - span), known[-1])
    assert ageing.works == sum(plain.of_label.values())

    found = compute_later_label(rows, ageing).collect()
    assert found.drop(CHANCES).equals(rows)
    sure = ssd.compute_label_confidence(rows, cut, prior=SHIPPED).collect()
    for row, confidence in zip(found.iter_rows(named=True), sure["label_confidence"], strict=True):
        got = [row[name] for name in CHANCES]
        if not (row["window_complete"] and row["n_i"] + row["n_j"] > 0):
            assert got == [None] * 4
            continue
        label, band = label_of(row["cd_index"], cut), min(int(confidence * 5), 4)
        chances = [plain.chance(label, band, later) for later in LABELS_BY_INDEX]
        assert got == pytest.approx([plain.chance(label, band, label), *chances], abs=1e-14)
        assert None in got or sum(got[1:]) == pytest.approx(1)

    n_before = [sum(fact[0] <= year for fact in facts) for year in known[:-1]]
    last_older = known[int(np.argmin([abs(2 * n - len(facts)) for n in n_before]))]
    older = Plain([tuple(one) for year, *one in facts if last_older - span < year <= last_older])
    judged = [
        (label, chance, label == later)
        for year, label, band, later in facts
        if year > last_older and (chance := older.chance(label, band, label)) is not None
    ]
    for name, error in ageing.errors.items():
        some = [(chance, same) for label, chance, same in judged if name in ("all", label)]
        chance, same = (np.array(column, float) for column in zip(*some, strict=True))
        labels = [label for label in LABELS_BY_INDEX if name in ("all", label) and older.of_label[label] >= 30]
        base = sum(older.later[label, label] for label in labels) / sum(older.of_label[label] for label in labels)
        gaps, spread = defaultdict(float), defaultdict(float)
        for one, is_same in some:
            gaps[min(int(one * 10), 9)] += one - is_same
            spread[min(int(one * 10), 9)] += one * (1 - one)
        assert error.works == len(some)
        assert (error.predicted, error.observed) == pytest.approx((chance.mean(), same.mean()))
        assert error.calibration_error == pytest.approx(sum(map(abs, gaps.values())) / len(some))
        assert error.by_chance == pytest.approx(sum((2 / np.pi * x) ** 0.5 for x in spread.values()) / len(some))
        assert error.brier == pytest.approx(((chance - same) ** 2).mean())
        assert error.brier_of_base_rate == pytest.approx(((base - same) ** 2).mean())
        assert error.sharpness == pytest.approx(chance.std(), abs=1e-9)
    assert set(ageing.errors) == {"all", *(label for label, _, _ in judged)}


def test_the_order_of_rows_and_which_are_asked_for_change_no_bit():
    rows = world()
    ageing = find_label_ageing(rows)
    assert ageing == find_label_ageing(rows.sample(fraction=1, shuffle=True, seed=1).lazy())
    every = compute_later_label(rows, ageing).collect()
    assert compute_later_label(rows[40:50].lazy(), ageing).collect().equals(every[40:50])
    assert compute_later_label(every, ageing).collect().equals(every)


def test_the_table_of_chances_has_those_of_the_works():
    rows, table = world(), find_label_ageing(world()).chances
    assert table["label"].to_list() == [label for label in LABELS_BY_INDEX for _ in range(5)]
    found = compute_later_label(rows, find_label_ageing(rows)).drop_nulls("p_later_same").collect()
    assert set(found.select(CHANCES).rows()) <= set(table.select(CHANCES).rows())
    assert table["works"].sum() == find_label_ageing(rows).works


@pytest.mark.parametrize(
    ("graph", "window", "later", "most"), [("hepth", "_3", "_6", 0.02), ("handball", "", "_10", 0.05)]
)
def test_chances_from_older_works_are_calibrated_on_later_ones(graph: str, window: str, later: str, most: float):
    """Within ``most``, which is more than chance alone: later works are other works. Better than the base rate."""
    works, citations = scan_real(graph)
    counted = ssd.compute_cd_index(works, citations, ssd.CDConfig(windows=(3, 6, 10)))
    rows = counted.join(works.select("work_id", "publication_year"), on="work_id").collect()
    error = find_label_ageing(rows, window=window, later=later).errors["all"]
    assert error.works > 300
    assert error.calibration_error < most
    assert error.brier < error.brier_of_base_rate
    assert abs(error.predicted - error.observed) < most

    # label_confidence of the same works is too low for a window that has the first citers in it, too
    known = rows.filter(ssd.indicators.is_judged(window), f"window_complete{later}")
    labels = ssd.compute_labels(known).collect()
    sure = known.select(pl.col(f"{name}{window}").alias(name) for name in ("n_i", "n_j", "n_k", "cd_index"))
    confidence = ssd.compute_label_confidence(sure, prior=SHIPPED).collect()["label_confidence"].mean()
    same = (labels[f"disruption_label{window}"] == labels[f"disruption_label{later}"]).mean()
    assert confidence < same - 0.05


def test_few_older_works_give_null_and_one_message_that_says_what_is_needed(caplog: pytest.LogCaptureFixture):
    rows = world(100)
    with caplog.at_level(logging.WARNING):
        ageing = find_label_ageing(rows, prior=SHIPPED)
    (record,) = caplog.records
    assert "needs 30 judged works whose window '_10' is over" in record.getMessage()
    assert "neutral has " in record.getMessage()
    assert "shorter window" in record.getMessage()
    few = {row["label"]: row["p_later_same"] for row in ageing.chances.iter_rows(named=True)}
    assert few["neutral"] is None
    found = compute_later_label(rows, ageing).filter(ssd.indicators.is_judged()).collect()
    assert found.filter(cd_index=0)["p_later_same"].null_count() == found.filter(cd_index=0).height

    for some in (rows.clear(), rows.with_columns(window_complete_10=False)):
        none = find_label_ageing(some, prior=SHIPPED)
        assert (none.works, none.first_year, none.last_year, none.errors) == (0, None, None, {})
        assert compute_later_label(rows, none).collect()["p_later_same"].null_count() == rows.height

    assert compute_later_label(rows.clear(), ageing).collect().is_empty()
    assert compute_later_label(rows.filter(window_complete=False), ageing).collect()["p_later_same"].is_null().all()

    caplog.clear()
    one_year = find_label_ageing(world().with_columns(publication_year=pl.lit(2000, pl.Int32)))
    assert one_year.errors == {}
    assert one_year.chances["p_later_same"].null_count() == 0
    assert "of one year" in caplog.text


def test_what_cannot_be_asked_is_named_with_the_remedy():
    rows = world(200)
    ranks = LabelThresholds(cells={"Art 1990": (-0.1, 0.0, 0.0, 0.1)})
    with pytest.raises(ConfigError, match=r"ranks are those of one window.*LabelThresholds\.cells"):
        find_label_ageing(rows, ranks)
    with pytest.raises(ConfigError, match=r"needs a longer window than '_10': \d+ works had more.*later='_10'"):
        find_label_ageing(rows, window="_10", later="", prior=SHIPPED)
    with pytest.raises(ConfigError, match="which is the same"):
        find_label_ageing(rows, window="_10", prior=SHIPPED)
    with pytest.raises(ConfigError, match="years"):
        find_label_ageing(rows, years=0)
    with pytest.raises(SchemaMismatchError, match="lacks column 'n_i_12'"):
        find_label_ageing(rows, later="_12")
    with pytest.raises(SchemaMismatchError, match="lacks column 'publication_year'"):
        find_label_ageing(rows.drop("publication_year"))
    ageing = find_label_ageing(rows, prior=SHIPPED)
    assert isinstance(ageing, LabelAgeing)
    with pytest.raises(SchemaMismatchError, match="lacks column 'window_complete'"):
        compute_later_label(rows.drop("window_complete"), ageing)
    with pytest.raises(ConfigError, match="ageing"):
        compute_later_label(rows, None)


@pytest.mark.parametrize(
    ("columns", "options", "remedy"),
    [
        ("", {}, r"later is '_10', .* windows are ''\. Score it, too: .*CDConfig\(windows=\(10,\)\)\)\.$"),
        ("", {"later": "10"}, r"CDConfig\(windows=\(10,\)\)\), and give later='_10', with an underscore"),
        ("_3", {"window": "3", "later": ""}, "window is '3', .*It begins with an underscore: window='_3'"),
        ("_10", {"later": "10"}, "later is '10', .*It begins with an underscore: later='_10'"),
        ("_10", {"later": "_18mo"}, r"windows are '', '_10'\. .*CDConfig\(windows=\('18mo',\)\)"),
        ("_10", {"later": "_all"}, r"CDConfig\(windows=\(None,\)\)"),
    ],
)
def test_a_window_without_scores_is_one_error_that_names_what_to_score(columns, options, remedy):
    rows = world(50)
    own = {name: f"{name.removesuffix('_10')}{columns}" for name in rows.columns if name.endswith("_10")}
    rows = rows.rename(own) if columns else rows.drop(own)
    with pytest.raises(SchemaMismatchError, match=remedy) as error:
        find_label_ageing(rows, **options)
    assert str(error.value).count("lacks column") == 1
