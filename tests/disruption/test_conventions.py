"""What every convention gives where a set is empty or a window ends: the values of the originals themselves.

Work 2 of each graph was scored in November 2026 by running the originals: PyPI cdindex 1.0.20, novelpy 1.4 and pyscisci
0.92 (cite_window=[0, 5]); the notebooks MAG-Disruption and MAG-Disruption-CD5 of kellogg-cssi/SciSciNet; and
DI_windowed_parallel.py of CrossDI's authors. No code of Wu, Wang & Evans is known, so theirs are of the paper's words.
None stands for no value, and for no row too.
"""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

import polars as pl
import pytest

from sciscidata.disruption.config import COMPAT, CDConfig
from sciscidata.disruption.index import compute_cd_index
from tests.disruption.test_index import frames
from tests.real_graphs import scan_real

ORIGINALS = ("cdindex", "wu_wang_evans", "sciscinet_v1_d", "sciscinet_v1_cd5", "novelpy", "pyscisci", "crossdi")


class Edge(NamedTuple):
    """A graph in which work 2 is scored, and what each of ORIGINALS says of it; of the default too, at the end."""

    years: dict[int, int | None]
    citations: list[tuple[int, int]]
    expected: tuple[float | None, ...]


_THIRD = 1 / 3
EDGES: dict[str, Edge] = {
    "never cited, and its reference neither": Edge(
        {1: 1990, 2: 2000}, [(2, 1)], (None, None, None, None, 0.0, None, None, None)
    ),
    "never cited, but its reference is, in the window": Edge(
        {1: 1990, 2: 2000, 3: 2001}, [(2, 1), (3, 1)], (0.0, 0.0, None, None, 0.0, None, 0.0, 0.0)
    ),
    "cited after the window only": Edge(
        {1: 1990, 2: 2000, 3: 2010}, [(2, 1), (3, 2)], (None, 1.0, 0.5, 0.0, 1.0, None, None, None)
    ),
    "cited after the window only, its reference in it": Edge(
        {1: 1990, 2: 2000, 3: 2010, 4: 2001}, [(2, 1), (3, 2), (4, 1)], (0.0, 0.5, _THIRD, 0.0, 0.5, None, 0.0, 0.0)
    ),
    "cited before its year only": Edge(
        {1: 1990, 2: 2000, 3: 1995}, [(2, 1), (3, 2)], (None, None, 0.5, 0.0, 1.0, None, 1.0, None)
    ),
    "cited in the last year of the window": Edge(
        {1: 1990, 2: 2000, 3: 2005}, [(2, 1), (3, 2)], (1.0, 1.0, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0)
    ),
    "cited in its own year": Edge(
        {1: 1990, 2: 2000, 3: 2000}, [(2, 1), (3, 2)], (None, None, 0.5, 0.5, 1.0, 1.0, 1.0, None)
    ),
    "its reference cited in its own year": Edge(
        {1: 1990, 2: 2000, 3: 2000, 4: 2001}, [(2, 1), (3, 1), (4, 2)], (1.0, 1.0, _THIRD, _THIRD, 0.5, 1.0, 0.5, 1.0)
    ),
    "its reference cited before its year": Edge(
        {1: 1990, 2: 2000, 3: 1995, 4: 2001}, [(2, 1), (3, 1), (4, 2)], (1.0, 1.0, _THIRD, 0.5, 1.0, 0.5, 0.5, 1.0)
    ),
    "no reference, cited": Edge({2: 2000, 3: 2001}, [(3, 2)], (1.0, None, None, None, 1.0, None, 1.0, None)),
    "no reference, cited after the window": Edge(
        {2: 2000, 3: 2010}, [(3, 2)], (None, None, None, None, 1.0, None, None, None)
    ),
    "a reference without a year": Edge(
        {1: None, 2: 2000, 3: 2001}, [(2, 1), (3, 2)], (1.0, 1.0, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0)
    ),
}

#: Where a preset says something else than its original, on purpose: a citer or focal work without a year never counts,
#: and that a work cites itself is ignored. What the original says, and what is said here.
APART: dict[str, tuple[dict[int, int | None], list[tuple[int, int]], dict[str, tuple[float | None, float | None]]]] = {
    "its only citer has no year": (
        {1: 1990, 2: 2000, 3: None},
        [(2, 1), (3, 2)],
        {
            "sciscinet_v1_d": (0.5, None),
            "sciscinet_v1_cd5": (0.0, 0.0),
            "novelpy": (1.0, 0.0),
            "pyscisci": (None, None),
            "crossdi": (None, None),
        },
    ),
    "it has no year": (
        {1: 1990, 2: None, 3: 2001},
        [(2, 1), (3, 2)],
        {"sciscinet_v1_d": (0.5, None), "sciscinet_v1_cd5": (None, None), "pyscisci": (None, None)},
    ),
    "it cites nothing but itself, and is cited": (
        {2: 2000, 3: 2001},
        [(2, 2), (3, 2)],
        {
            "cdindex": (-1.0, 1.0),
            "sciscinet_v1_d": (-1.0, None),
            "sciscinet_v1_cd5": (-1.0, None),
            "novelpy": (0.0, 1.0),
            "pyscisci": (-1.0, None),
            "crossdi": (-1.0, 1.0),
        },
    ),
    "nothing but itself cites it": (
        {1: 1990, 2: 2000},
        [(2, 2), (2, 1)],
        {
            "cdindex": (None, None),
            "sciscinet_v1_d": (-1.0, None),
            "sciscinet_v1_cd5": (-1.0, None),
            "novelpy": (1.0, 0.0),
            "pyscisci": (-1.0, None),
            "crossdi": (None, None),
        },
    ),
}


def index_of_work_2(years: dict[int, int | None], citations: list[tuple[int, int]], config: CDConfig) -> float | None:
    scores = compute_cd_index(*frames(years, citations), config).collect()
    return scores.filter(work_id=2)["cd_index"].item()


def test_every_preset_has_its_original_here():
    assert set(ORIGINALS) == set(COMPAT)


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES.keys())
def test_every_preset_says_at_an_edge_what_its_original_says(edge):
    presets = [*map(CDConfig.compat, ORIGINALS), CDConfig()]
    found = tuple(index_of_work_2(edge.years, edge.citations, preset) for preset in presets)
    assert found == edge.expected


@pytest.mark.parametrize("case", APART.values(), ids=APART.keys())
def test_a_preset_differs_from_its_original_only_without_a_year_and_where_a_work_cites_itself(case):
    years, citations, said = case
    found = {name: index_of_work_2(years, citations, CDConfig.compat(name)) for name in said}
    assert found == {name: here for name, (_, here) in said.items()}


@pytest.mark.parametrize(
    ("preset", "n_defined", "n_zero"), [("sciscinet_v1_cd5", 1_689, 218), ("sciscinet_v1_d", 1_689, 109)]
)
def test_as_many_real_works_are_scored_as_by_the_notebooks_of_sciscinet(preset, n_defined, n_zero):
    """The notebooks were run on the same works, and every value was equal; of column D, works with references only."""
    works, citations = scan_real()
    index = compute_cd_index(works, citations, CDConfig.compat(preset)).collect()["cd_index"]
    assert (index.count(), (index == 0).sum()) == (n_defined, n_zero)


def test_the_family_of_a_work_that_is_cited_too_late_has_nothing_to_divide_by():
    config = CDConfig.compat("sciscinet_v1_cd5", family=True)
    scores = compute_cd_index(*frames({1: 1990, 2: 2000, 3: 2010}, [(2, 1), (3, 2)]), config).collect()
    row = scores.filter(pl.col("work_id") == 2).row(0, named=True)
    assert (row["n_i"], row["n_j"], row["n_k"], row["cd_index"], row["mcd_index"]) == (0, 0, 1, 0.0, 0.0)
    assert row["di_nok_index"] is None
    assert row["dependence"] is None


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("cdindex", (2001, 2005), (1999, 2000, 2006)),
        ("wu_wang_evans", (2001, 9999), (1999, 2000)),
        ("sciscinet_v1_d", (1, 2000, 9999), ()),
        ("sciscinet_v1_cd5", (2000, 2005), (1999, 2006)),
        ("novelpy", (2000, 9999), (1999,)),
        ("pyscisci", (2000, 2005), (1999, 2006)),  # of the cited work's own year
        ("crossdi", (1, 2000, 2005), (2006,)),
    ],
)
def test_a_convention_says_in_which_years_citers_of_a_work_of_2000_count(name, inside, outside):
    config = CDConfig.compat(name)
    times = config.times_of_citers(2000, config.window_years)
    assert [year in times for year in (*inside, *outside)] == [True] * len(inside) + [False] * len(outside)


def test_by_dates_the_last_day_of_a_shorter_month_is_the_last_of_a_window():
    def day(*parts: int) -> int:
        return (date(*parts) - date(1970, 1, 1)).days

    config = CDConfig(time="publication_date", windows=("1mo", "90d"))
    for window, last in (("1mo", (2000, 2, 29)), ("90d", (2000, 4, 30)), (5, (2005, 1, 31))):
        assert config.times_of_citers(day(2000, 1, 31), window) == range(day(2000, 2, 1), day(*last) + 1)
