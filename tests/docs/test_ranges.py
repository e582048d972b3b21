"""Sentences and tables that state a range say what benchmarks/results/ranges.json holds, and of how many graphs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import polars as pl
import pytest

import sciscidata as ssd
from benchmarks.label_confidence import CITERS, read_papers
from tests.conftest import REPOSITORY

KEPT: dict[str, Any] = json.loads((REPOSITORY / "benchmarks/results/ranges.json").read_text())
ELSEWHERE = KEPT["elsewhere"]
NAMES = {
    "hepth": "HepTh",
    "hepph": "HepPh",
    "handball": "handball",
    "example": "example",
    "archaeology": "archaeology",
    "bci_eeg": "EEG",
    "collective_work": "collective work",
    "smart_city": "smart city",
    "visualization": "visualization",
}
GRAPHS = {name: KEPT["labels"][name] for name in NAMES}
FEWEST = 100  # works behind a share
LABELS = ("consolidating", "neutral", "disruptive")
AGES = ("3", "5", "10")
GROUPS = {
    "all": "all",
    "0 citers": "0 citers",
    "1-2 citers": "1-2",
    "3-5 citers": "3-5",
    "6-10 citers": "6-10",
    "11-30 citers": "11-30",
    "31+ citers": "more",
    "3+ citers": "3 or more",
    "1-4 references": "1-4 references",
    "30+ references": "30 or more",
}
MEASURES = ("accuracy", "macro-F1")
TENTH, LISTS = "10% of citations", "10% of references"
SIZES = (("below 50", 1, 50), ("50 to 199", 50, 200), ("200 to 499", 200, 500), ("500 or more", 500, 1 << 40))
ERRORS = {"mean error": "{:.3f}", "mean absolute error": "{:.3f}", "largest error": "{:.2f}"}


def span(values: Iterable[float], form: str = "{:.2f}") -> str:
    values = [*values]
    return " to ".join(dict.fromkeys(form.format(end(values)) for end in (min, max)))


def percent(shares: Iterable[float], form: str = "{:.0f}") -> str:
    return span((100 * share for share in shares), form)


def finals(group: str, age: str) -> dict[str, float]:
    """Return the share of final labels of a group at an age, of graphs that have enough works there."""
    found = {name: graph["final label"].get(group, {}).get(age, (0, 0)) for name, graph in GRAPHS.items()}
    return {name: share for name, (works, share) in found.items() if works >= FEWEST}


def moves(citers: str, later: str) -> list[float]:
    """Return how far final labels of the same works move from three years, of graphs with enough works at each age."""
    every = [KEPT["cohort"][name][citers] for name in NAMES]
    of = [graph for graph in every if min(works for works, _ in graph.values()) >= FEWEST]
    return [graph[later][1] - graph["3"][1] for graph in of]


def missing(kind: str, what: str, label: str = "all") -> list[float]:
    return [graph["missing"][kind][label][what] for graph in GRAPHS.values()]


def how_far_too_low() -> str:
    return span(of["agree"] - of["confidence"] for of in (one["after 5 and 10 years"] for one in GRAPHS.values()))


def later_labels() -> list[str]:
    later = [graph["after 5 and 10 years"] for graph in GRAPHS.values()]
    too_low = how_far_too_low()
    of_ten, of_three = (span(finals("all", age).values()) for age in ("10", "3"))
    n, to_5, to_10 = len(moves("3-5", "5")), span(moves("3-5", "5")), span(moves("3-5", "10"))
    one = ELSEWHERE["final of 3-5 citers on one graph"]
    return [
        f"the confidence is {too_low} too low (agreement {span(of['agree'] for of in later)}), "
        f"and elsewhere {span(ELSEWHERE['confidence too low'])}.",
        f"Here it is {of_ten} after ten years, and {of_three} after three.",
        f"Take works followed for ten years, on the {n} graphs with {FEWEST} of them at each age. "
        f"With 3 to 5 citers, the share moves by {to_5} from 3 to 5 years, and by {to_10} from 3 to 10. "
        f"With one or two citers it moves by {span(moves('1-2', '10'))}. "
        f"Elsewhere, on one graph with 3 to 5 citers, it was {one['3']}, {one['5']} and {one['10']}.",
    ]


def advice_first() -> list[str]:
    """Return what the page of use says of few citers, of labels after five years, and of the ceiling."""
    few = percent(graph["three citers or fewer"] for graph in GRAPHS.values())
    five = percent(finals("3+ citers", "5").values())
    thirds = percent(graph["ceiling"]["a third each"][0] for graph in GRAPHS.values())
    return [
        f"On nine real graphs, {few} % of judged works have three citers or fewer.",
        f"with the default window of five years. Then {five} % of labels are",
        f"For three equal labels it is {100 * GRAPHS['example']['ceiling']['a third each'][0]:.0f} % in the example, "
        f"and {thirds} % on nine real graphs.",
    ]


def better_than_ten_years() -> str:
    all_at_10, three_at_5 = finals("all", "10"), finals("3+ citers", "5")
    both = all_at_10.keys() & three_at_5.keys()
    return f"{sum(three_at_5[name] > all_at_10[name] for name in both)} of {len(both)} graphs"


def evidence() -> list[str]:
    kept_by_others = (
        same / (1 - lost) for same, lost in zip(missing(LISTS, "share_same"), missing(LISTS, "share_lost"), strict=True)
    )
    return [
        f"For it, the confidence is {how_far_too_low()} too low",
        f"agree with the final label more often than ten years of all works, on {better_than_ten_years()}.",
        f"Among works that are left, {percent(kept_by_others)} % keep their label.",
    ]


def advice() -> list[str]:
    uncited = percent(finals("0 citers", "3").values())
    three, five, ten = (percent(finals("3+ citers", age).values()) for age in AGES)
    elsewhere = percent(ELSEWHERE["final after three years, three or more citers"])
    return [
        f"after three years, {uncited} % keep that label. With three or more, {three} % of labels are final then "
        f"(elsewhere {elsewhere}). After five years it is {five} %, after ten {ten} %.",
        f"On {better_than_ten_years()} they agree with the final label more often than ten years of all works.",
    ]


def missing_data() -> list[str]:
    cost, of_neutral = (percent(1 - x for x in missing(TENTH, "share_same", label)) for label in ("all", "neutral"))
    worlds = (KEPT["labels"][name]["missing"][TENTH]["all"]["share_same"] for name in ("generated", "synthetic"))
    of_worlds = " and ".join(f"{100 - 100 * same:.0f}" for same in worlds)
    gone = missing(LISTS, "share_lost")
    others = percent(same / (1 - lost) for same, lost in zip(missing(LISTS, "share_same"), gone, strict=True))
    others_elsewhere = percent(ELSEWHERE["labels kept by others without a tenth of lists"], "{:.1f}")
    return [
        f"**A tenth of the citations costs {cost} % of the labels**, and {of_neutral} % of the neutral ones. "
        f"Elsewhere it costs {percent(ELSEWHERE['labels lost with a tenth of citations'])} %, "
        f"and {of_worlds} % on two generated graphs.",
        f"A tenth of the lists takes {percent(gone)} % of the works. "
        f"Among the others, {others} % keep their label (elsewhere {others_elsewhere}).",
    ]


def final_table(groups: Iterable[str] = GROUPS, first: str = "") -> list[str]:
    """Return a row for each group: the range over graphs, and how many there are, by age."""
    rows = [f"| {first} | 3 years | 5 years | 10 years |".replace("|  |", "| |")]
    for group, name in ((group, GROUPS[group]) for group in groups):
        cells = [f"{span(found.values())} ({len(found)})" for found in (finals(group, age) for age in AGES)]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def missing_table() -> list[str]:
    """Return a row for each graph: what missing citations and missing lists do to its labels."""
    rows = []
    for name, graph in GRAPHS.items():
        of = graph["missing"]
        before, after, lists = of["0% of nothing"], of[TENTH], of[LISTS]["all"]
        cells = [
            ", ".join(f"{of[f'{share}% of citations']['all']['share_same']:.2f}" for share in (5, 10, 20)),
            ", ".join(f"{after[label]['share_same']:.2f}" for label in LABELS),
            f"{after['all']['share_lost']:.2f}",
            " → ".join(f"{shares['disruptive']['label_share']:.2f}" for shares in (before, after)),
            ", ".join(f"{old:.2f} → {new:.2f}" for old, new in zip(before["ceiling"], after["ceiling"], strict=True)),
            f"{lists['share_same']:.2f}, {lists['share_lost']:.2f}",
        ]
        rows.append(f"| {NAMES[name]} | {' | '.join(cells)} |")
    return rows


def short_missing_table() -> list[str]:
    """Return a row for each gap: the range over graphs of what it does to labels."""
    gaps = {"10 % of citations": TENTH, "10 % of lists": LISTS}
    rows = []
    for name, kind in gaps.items():
        same = (span(missing(kind, "share_same", label)) for label in ("all", "neutral", "disruptive"))
        rows.append(f"| {name} | {' | '.join(same)} | {span(missing(kind, 'share_lost'))} |")
    return rows


def ceiling_table() -> list[str]:
    rows = []
    for name, graph in GRAPHS.items():
        cells = (", ".join(f"{x:.2f}" for x in graph["ceiling"][of]) for of in ("as they occur", "a third each"))
        rows.append(f"| {NAMES[name]} | {' | '.join(cells)} |")
    return rows


def null_of(low: int, high: int) -> list[dict[str, float]]:
    return [one for one in KEPT["null"].values() if one and low <= one["with a spread"] < high]


def null_table() -> list[str]:
    """Return a row for each size: how many graphs, and the ranges of the errors of the closed form."""
    rows = []
    for name, low, high in SIZES:
        of = null_of(low, high)
        errors = (span((one[what] for one in of), form) for what, form in ERRORS.items())
        rows.append(f"| {name} | {len(of)} | {' | '.join(errors)} |")
    return rows


def null_docstring() -> list[str]:
    few, many = ([one["mean absolute error"] for one in null_of(*ends)] for ends in ((1, 500), (500, 1 << 40)))
    return [
        f"off by {span(many, '{:.3f}')} on average where 500 works or more have a spread, "
        f"by {span(few, '{:.3f}')} where fewer have one ({len(few) + len(many)} cuts of graphs and worlds)"
    ]


def conventional() -> str:
    shares = [of["conventional"] for name, of in KEPT["novelty"].items() if of and name in NAMES]
    assert len(shares) == 7
    return f"{percent(shares)} % of the works"


def distances(size: str, what: str, *families: str) -> list[float]:
    """Return how far predictors that know the rates come out from the ceiling, over worlds like two graphs."""
    worlds = [(name, of[size][what]) for graph in KEPT["worlds"].values() for name, of in graph.items()]
    return [end for name, ends in worlds if name in families or not families for end in ends]


def ceiling() -> list[str]:
    """Return what is said of the ceiling; its round numbers are bounds."""
    any_world, real = ([distances("20000", what, *of) for what in MEASURES] for of in ((), ("real shares",)))
    larger = [distances("70000", what) for what in MEASURES]
    assert 0.05 < max(abs(one) for of in any_world for one in of) < 0.06
    assert 0.01 < max(abs(one) for of in real for one in of) < 0.02
    of_any, of_real, of_larger = ([span(of, "{:+.3f}") for of in worlds] for worlds in (any_world, real, larger))
    return [
        f"comes out at {of_any[0]} from the ceiling's accuracy, and at {of_any[1]} from its macro-F1. "
        f"With shares of $n_i$ like those of real works it is {of_real[0]}, and {of_real[1]}. "
        f"Elsewhere it was {span(ELSEWHERE['ceiling at 20,000 works']['any world'], '{:+.3f}')}. "
        f"With 70,000 works it is {of_larger[0]}, and {of_larger[1]}. "
        "So read a ceiling as right to 0.06, and to 0.02 where shares are like these.",
    ]


PAGE, EVIDENCE = "docs/measures/label_confidence.md", "docs/measures/label_confidence_evidence.md"
NOTE = "benchmarks/notes/label_confidence.md"


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        (PAGE, advice_first),
        (EVIDENCE, evidence),
        (EVIDENCE, lambda: final_table(["all", "0 citers", "1-2 citers", "3+ citers"], "citers")),
        (EVIDENCE, short_missing_table),
        (NOTE, later_labels),
        (NOTE, advice),
        (NOTE, missing_data),
        (NOTE, final_table),
        (NOTE, missing_table),
        (NOTE, ceiling_table),
        (NOTE, ceiling),
        ("benchmarks/notes/null_models.md", null_table),
        ("docs/measures/null_models.md", null_docstring),
        ("sciscidata/disruption/closed_null_model.py", null_docstring),
        ("docs/measures/atypicality.md", lambda: [f"{conventional()} on seven real graphs"]),
        ("sciscidata/label_thresholds.py", lambda: [f"{conventional()} of seven real graphs"]),
    ],
)
def test_ranges_are_those_that_were_measured(page, texts):
    whole = " ".join((REPOSITORY / page).read_text("utf-8").split())
    assert [text for text in texts() if text not in whole] == []


def rows_by_citers(works: pl.LazyFrame, citations: pl.LazyFrame) -> dict[str, tuple[str, str]]:
    """Return for each number of citers how many of 100 disruptive and consolidating labels come back."""
    scores = ssd.compute_labels(ssd.compute_cd_index(works, citations).drop_nulls("cd_index"))
    sure = ssd.compute_label_confidence(scores).filter(ssd.indicators.is_judged()).collect()
    citers = pl.col("n_i") + pl.col("n_j")
    rows: dict[str, tuple[str, str]] = {}
    for name, low, high in (*CITERS[:-1], ("all", 1, 1 << 40)):
        of = sure.filter(citers.is_between(low, high))
        disruptive, consolidating = (of.filter(disruption_label=label) for label in ("disruptive", "consolidating"))
        mean = 100 * pl.col("label_confidence").mean()
        first, second = (one.select(mean).item() for one in (disruptive, consolidating))
        rows[name] = f"{first:.0f} ({disruptive.height:,})", f"{second:.0f}"
    return rows


def test_labels_come_back_by_number_of_citers_as_the_page_says(shared_data):
    example, fields = (
        rows_by_citers(*graph) for graph in (ssd.scan_example()[:2], read_papers(shared_data / "papers"))
    )
    page = (REPOSITORY / PAGE).read_text("utf-8")
    for name, of_example in example.items():
        cells = [cell for pair in zip(of_example, fields[name], strict=True) for cell in pair]
        assert f"| {name} | {' | '.join(cells)} |" in page
