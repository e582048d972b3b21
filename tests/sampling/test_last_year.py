"""A work that is dated in the future changes nothing: in every source, and whatever says so is said."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata.cli.summary import print_release
from sciscidata.config import BuildConfig
from sciscidata.corpus.folder import CorpusConfig
from sciscidata.disruption.index import compute_cd_index
from sciscidata.eligibility import CANDIDATES, EligibilityConfig, mark_removals
from sciscidata.novelty.atypicality import compute_atypicality
from sciscidata.novelty.wang_novelty import WangConfig, compute_wang_novelty
from sciscidata.pipeline import build
from sciscidata.plots import plot_novelty_by_year
from sciscidata.records.last_year_of_data import find_last_year
from sciscidata.sampling.config import SplitConfig
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
from sciscidata.stages import ingest
from tests.conftest import example_lines
from tests.disruption.test_index import frames

#: Works by year at the end of real data: Synergy (2023), a part of SciSciNet, HepTh (broken off in April), and OpenAlex
#: on handball (August 2026).
REAL = {
    "synergy": ({2016: 170, 2017: 154, 2018: 148, 2019: 168, 2020: 141, 2021: 100, 2022: 37}, 2022),
    "dartmouth": ({1800: 1, 1819: 1, 2019: 4192, 2020: 5547, 2021: 4692, 2022: 4226, 2023: 3913, 2024: 3228}, 2024),
    "hepth": ({1999: 2719, 2000: 3038, 2001: 3064, 2002: 3205, 2003: 978}, 2003),
    "handball": ({1197: 1, 1870: 1, 2022: 1310, 2023: 1238, 2024: 1231, 2025: 1339, 2026: 798}, 2026),
    "a year of a month": ({2023: 1200, 2024: 1200, 2025: 100}, 2025),
}


@pytest.mark.parametrize(("counts", "last_year"), REAL.values(), ids=REAL.keys())
@pytest.mark.parametrize(
    "mistakes", [{}, {2050: 1}, {2999: 1}, {2**31 - 1: 1}, {2027 + 3 * i: 1 for i in range(9)}, {2040: 5, 2041: 5}]
)
def test_the_last_year_of_real_data_is_found_in_spite_of_mistaken_dates(counts, last_year, mistakes):
    assert find_last_year(counts | mistakes) == last_year


def test_one_per_cent_of_all_works_may_be_dated_in_the_future():
    counts = {1990 + i: 1_000 for i in range(33)}
    for future in ({2050: 330}, {2030 + i: 11 for i in range(30)}, {2023 + i: 11 for i in range(30)}):
        assert find_last_year(counts | future) == 2022


@pytest.mark.parametrize(
    ("counts", "last_year"),
    [
        ({}, None),
        ({2001: 0}, None),
        ({2001: 1}, 2001),
        ({1990: 1, 2001: 1}, 2001),
        ({1980: 3, 2001: 3}, 2001),
        ({1990 + i: 1 for i in range(9)} | {2050: 1}, 1998),  # one of ten can be told from the others
        ({1990 + i: 1 for i in range(8)} | {2050: 1}, 2050),  # one of nine cannot
        ({1900: 100_000} | {1990 + i: 5_000 for i in range(30)} | {2999: 9}, 2019),  # a year that stands for none
        ({-9999: 1, 2000: 50, 9999: 1}, 2000),
        ({1900 + i: 400 - 4 * i for i in range(95)} | {2050: 1}, 1994),  # a field that dies out
    ],
)
def test_small_and_odd_data_have_a_last_year_too(counts, last_year):
    assert find_last_year(counts) == last_year


def test_no_later_year_counts_than_that_of_the_youngest_record():
    counts = {2001: 3, 2002: 1, 2050: 1}
    assert find_last_year(counts) == 2050
    assert find_last_year(counts, data_date="2003-04-01") == 2002
    assert find_last_year(counts, data_date="2001-04-01") == 2001
    assert find_last_year(counts, data_date="1999-04-01") == 2050  # then the date is the mistake
    assert find_last_year(counts, data_date="soon") == 2050


years = st.dictionaries(st.integers(1950, 2040), st.integers(1, 500), min_size=1)


@given(years, st.integers(2060, 2**31 - 1), st.floats(0, 0.09))
def test_few_works_of_a_far_future_never_move_the_last_year_beyond_the_others(counts, future, share):
    works = int(sum(counts.values()) * share)
    assert find_last_year(counts | {future: works}) <= max(counts)


@given(years)
def test_the_last_year_is_a_year_of_the_data_and_the_order_of_years_does_not_matter(counts):
    found = find_last_year(counts)
    assert found in counts
    assert find_last_year(dict(reversed(counts.items()))) == found


def candidates(*later: int | None) -> pl.DataFrame:
    row = {"title": "x", "abstract": "We ask.", "is_retracted": False, "n_i": 1, "n_j": 0, "n_k": 0, "cd_index": 1.0}
    rows = [
        row | {"work_id": i, "title": f"On {i}", "n_references": 3, "publication_year": year}
        for i, year in enumerate([*range(1991, 2011), *later], 1)
    ]
    return pl.DataFrame(rows, schema=CANDIDATES)


@pytest.mark.parametrize("later", [(2050,), (2999, None), (2**31 - 1,)])
def test_a_frame_with_a_future_work_marks_the_others_as_without_it_and_says_so(later, caplog):
    def others(frame: pl.DataFrame) -> list[tuple[int, str | None]]:
        marked = mark_removals(frame, window_years=5).collect()
        return marked.filter(pl.col("work_id") <= 20).select("work_id", "removed_by").rows()

    before = others(candidates())
    assert [reason for _, reason in before] == [None] * 14 + ["window_incomplete"] * 6
    assert not caplog.text
    assert others(candidates(*later)) == before
    assert f"1 work is dated after 2010, the last year of the data: {later[0]}." in caplog.text
    marked = mark_removals(candidates(*later), window_years=5).collect()
    assert marked.filter(work_id=21)["removed_by"].item() == "window_incomplete"
    named = mark_removals(candidates(*later), EligibilityConfig(last_year=2060), window_years=5).collect()
    assert named.filter(pl.col("removed_by") == "window_incomplete").height == (later[0] >= 2055)


def test_without_a_window_or_its_filter_no_last_year_is_needed():
    frame = candidates(2999)
    for config, window in ((EligibilityConfig(), None), (EligibilityConfig(complete_window=False), 5)):
        assert mark_removals(frame, config, window_years=window).collect()["removed_by"].null_count() == 21


def test_the_date_of_the_records_bounds_the_last_year_of_a_frame():
    frame = candidates().filter(pl.col("publication_year") <= 1998)
    few = pl.concat([frame.tail(3), candidates(2050).tail(1)])
    marked = [mark_removals(few, window_years=1, data_date=date).collect() for date in (None, "2001-02-03")]
    assert [frame["removed_by"].null_count() for frame in marked] == [3, 1]


def with_future_works(path: Path, *future: int) -> RecordsConfig:
    lines = list(example_lines())
    for number, year in enumerate(future):
        changes = {
            "id": f"W{9_000_000_000 + number}",
            "publication_year": year,
            "doi": None,
            "title": f"Later {number}",
        }
        lines.append(json.dumps(json.loads(lines[37 * number]) | changes).encode())
    path.write_bytes(b"\n".join(lines) + b"\n")
    return RecordsConfig(inputs=(str(path),))


ONE_PER_CENT = (2050,) * 43 + (2999,)


@pytest.fixture(scope="module")
def real_records(tmp_path_factory) -> dict[str, RecordsConfig]:
    """Real records without and with works of the future: files that are parsed once."""
    home = tmp_path_factory.mktemp("real")
    futures = {"without": (), "one per cent": ONE_PER_CENT}
    return {name: with_future_works(home / f"{name}.jsonl", *later) for name, later in futures.items()}


@pytest.mark.parametrize("as_corpus", [False, True], ids=["--input", "--corpus"])
def test_a_slice_of_real_records_is_the_same_with_works_of_the_future(
    real_records, tmp_path, caplog, capsys, as_corpus
):
    found = []
    for name, source in real_records.items():
        if as_corpus:
            ingest(source, tmp_path / f"corpus-{name}", cache_dir=tmp_path / "cache")
            source = CorpusConfig(folder=str(tmp_path / f"corpus-{name}"))
        places = {"out": tmp_path / name, "cache_dir": tmp_path / "cache"}
        split = SplitConfig(n_train=120, n_test=30)
        found.append(build(BuildConfig(source=source, split=split, novelty=None, **places)))
    without, with_ = found
    assert without.manifest["counts"]["last_year"] == 2022
    assert without.manifest["counts"]["later_works"] is None
    assert caplog.text.count("dated after 2022, the last year of the data: ") == 1
    print_release(without)
    assert "dated after" not in capsys.readouterr().out
    for name in ("train.jsonl", "test.jsonl"):
        assert with_.manifest["files"][name] == without.manifest["files"][name]
    counts = with_.manifest["counts"]
    assert counts["filters"]["eligible"] == without.manifest["counts"]["filters"]["eligible"]
    assert counts["last_year"] == 2022
    assert counts["later_works"] == {"works": 44, "first_year": 2050, "last_year": 2999}
    print_release(with_)
    told = capsys.readouterr().out.partition("Read this before you use it\n")[2]
    assert "dated after 2022, the last year of the data: " in " ".join(told.split())


def test_a_last_year_that_was_named_is_taken_and_what_lies_after_it_is_only_stated(tmp_path, caplog):
    config = BuildConfig(
        source=SyntheticConfig(n_works=4_000),
        out=tmp_path / "slice",
        cache_dir=tmp_path / "cache",
        split=SplitConfig(n_train=60, n_test=9),
        eligibility=EligibilityConfig(last_year=2020),
        novelty=None,
    )
    counts = build(config).manifest["counts"]
    assert counts["last_year"] == 2020
    assert counts["later_works"].keys() == {"works", "first_year", "last_year"}
    assert counts["later_works"]["last_year"] == 2024
    assert "dated after" not in caplog.text


def test_first_time_pairs_of_the_last_years_stay_undefined_beside_a_work_of_the_future():
    """Twenty works join new venues in 2000 to 2019; the last three have no score: their reuse window is not over."""
    venues = dict.fromkeys(range(30), 1990)
    citing = {100 + i: 2000 + i for i in range(20)}
    edges = [(100 + i, v) for i in range(20) for v in (i % 7, 10 + i)]

    def undefined(future: dict[int, int]) -> list[int]:
        works = pl.LazyFrame(
            {
                "work_id": [*venues, *citing, *future],
                "source_id": [*venues, *[None] * (len(citing) + len(future))],
                "publication_year": [*venues.values(), *citing.values(), *future.values()],
            },
            schema_overrides={"publication_year": pl.Int32, "source_id": pl.Int64},
        )
        more = [(work, v) for work in future for v in (1, 2)]
        cited = pl.LazyFrame([*edges, *more], schema={"citing_id": pl.Int64, "cited_id": pl.Int64}, orient="row")
        config = WangConfig(profile_years=3, reuse_years=3, burn_in_years=3, drop_least_cited=0)
        scores = compute_wang_novelty(works, cited, config).collect()
        late = scores.filter(pl.col("work_id").is_in(list(citing)), pl.col("wang_novelty").is_null())
        return late["work_id"].sort().to_list()

    without = undefined({})
    assert without == [100, 101, 102, 117, 118, 119]
    assert undefined({999: 2999}) == without


def test_years_at_the_ends_of_their_type_cost_neither_time_nor_memory(tmp_path):
    """No stage makes room for every year between the first and the last."""
    works, citations = frames({1: -(2**31), 2: 2000, 3: 2**31 - 1, 4: 2001}, [(2, 1), (3, 2), (4, 2), (4, 1)])
    assert compute_cd_index(works, citations).collect().height == 4
    world = scan_synthetic(SyntheticConfig(n_works=2_000))
    odd = pl.when(pl.col("work_id") == pl.col("work_id").max()).then(2**31 - 1).otherwise("publication_year")
    scattered = world.works.with_columns(odd.cast(pl.Int32).alias("publication_year"))
    scored = compute_atypicality(scattered, world.citations).collect()
    dated = scored.join(scattered.select("work_id", "publication_year").collect(), on="work_id")
    assert dated["publication_year"].max() == 2**31 - 1
    plot_novelty_by_year(dated, path=tmp_path / "years.png")
    config = WangConfig(burn_in_years=3)
    assert compute_wang_novelty(scattered, world.citations, config).collect().height == 2_000
