"""Atypicality against plain loops: shuffle by shuffle, and its closed form against thousands of shuffles."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sciscidata._kernels.portable_math import sigmoid
from sciscidata._kernels.random import below, draw, stream_key
from sciscidata.errors import ConfigError
from sciscidata.graph.graph import build_graph
from sciscidata.novelty import null_model as novelty_nulls
from sciscidata.novelty import venue_pairs
from sciscidata.novelty.atypicality import YearScorer, compute_atypicality
from sciscidata.novelty.config import COMPAT, NoveltyConfig
from sciscidata.novelty.venue_pairs import venue_numbers
from sciscidata.schemas import ATYPICALITY
from tests.novelty import oracle
from tests.real_graphs import scan_real

Records = dict[int, tuple[int | None, int | None]]
ANALYTIC = NoveltyConfig()


def frames(records: Records, edges: list[tuple[int, int]]) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    works = pl.LazyFrame(
        [(work, *record) for work, record in records.items()],
        schema={"work_id": pl.Int64, "publication_year": pl.Int32, "source_id": pl.Int64},
        orient="row",
    )
    return works, pl.LazyFrame(edges, schema={"citing_id": pl.Int64, "cited_id": pl.Int64}, orient="row")


def scored(records: Records, edges: list[tuple[int, int]], config: NoveltyConfig = ANALYTIC, **how) -> pl.DataFrame:
    return compute_atypicality(*frames(records, edges), config, **how).sort("work_id").collect()


@st.composite
def corpora(draw_value) -> tuple[Records, list[tuple[int, int]]]:
    n = draw_value(st.integers(2, 25))
    years = st.none() | st.integers(2000, 2003)
    venues = st.none() | st.integers(-3, 3)
    records = {7 * work - 30: (draw_value(years), draw_value(venues)) for work in range(n)}
    ids = st.sampled_from([*records, 10**12])
    return records, draw_value(st.lists(st.tuples(ids, ids), max_size=150))


@st.composite
def dense_corpora(draw_value) -> tuple[Records, list[tuple[int, int]]]:
    """Few venues and long lists, so that most works have pairs with a z; Hypothesis alone draws sparse ones."""
    rng = np.random.default_rng(draw_value(st.integers(0, 10**6)))

    def venue() -> int | None:
        return None if rng.random() < 0.2 else int(rng.integers(-2, 3))

    records: Records = {work: (1990 + int(rng.integers(2)), venue()) for work in range(12)}
    edges = []
    for work in range(20, 28):
        records[work] = (2000 + int(rng.integers(2)), venue())
        edges += [(work, int(cited)) for cited in rng.choice(12, rng.integers(0, 9), replace=False)]
    return records, edges


ANY_CORPUS = corpora() | dense_corpora()


def disguised(corpus: tuple[Records, list[tuple[int, int]]], random) -> tuple[Records, list[tuple[int, int]]]:
    """The same corpus with other, long names of venues, in another order, and with repeats."""
    records, edges = corpus
    high = random.sample(range(-(2**29), 2**29), 9)  # the lower halves are equal
    names = {venue: half << 33 for venue, half in zip(range(-4, 5), high, strict=True)} | {None: None}
    renamed = [(work, (year, names[venue])) for work, (year, venue) in records.items()]
    again = edges + edges[:5]
    random.shuffle(renamed)
    random.shuffle(again)
    return dict(renamed), again


def random_corpus(seed: int, n_citing: int, n_cited: int, n_venues: int, length: int):
    """One citing year; lengths of reference lists and sizes of venues differ widely."""
    rng = np.random.default_rng(seed)
    venues = np.minimum(rng.pareto(1.0, n_cited), n_venues - 1).astype(int)
    records = {work: (int(rng.integers(1990, 1996)), int(venues[work])) for work in range(n_cited)}
    edges = []
    for work in range(n_cited, n_cited + n_citing):
        records[work] = (2000, None)
        n = min(n_cited, 1 + rng.poisson(length * rng.lognormal(0, 0.5)))
        edges += [(work, int(cited)) for cited in rng.choice(n_cited, n, replace=False)]
    return records, edges


def laid_out(slots: oracle.Slots) -> venue_pairs.Slots:
    _, years, venues = (np.array(column) for column in zip(*slots, strict=True))
    lengths = list(Counter(slot[0] for slot in slots).values())
    _, numbers = np.unique(venues, return_inverse=True)
    return venue_pairs.lay_out(np.concatenate([[0], np.cumsum(lengths)]), years, numbers.astype(np.int32))


def closed_form(slots: oracle.Slots) -> dict[tuple[int, int], tuple[float, float]]:
    """Return (mean, standard deviation) of every observed pair, by the package."""
    year = laid_out(slots)
    groups = venue_pairs.group(year.offsets, year.venues, year.n_venues)
    cells = venue_pairs.observe(groups)
    mean, deviation = novelty_nulls.analytic_moments(year)(cells)
    names = list(dict.fromkeys(venue for _, _, venue in slots))  # by appearance
    moments = {}
    for a in range(year.n_venues):
        for cell in range(cells.starts[a], cells.starts[a + 1]):
            pair = tuple(sorted((names[a], names[cells.partners[cell]])))
            moments[pair] = (mean[cell], deviation[cell])
    return moments


@st.composite
def permutation_configs(draw_value) -> NoveltyConfig:
    return NoveltyConfig(
        null="permutation",
        n_shuffles=draw_value(st.integers(2, 6)),
        seed=draw_value(st.integers(0, 2**70)),
        unique_venues=draw_value(st.booleans()),
        same_venue_pairs=draw_value(st.booleans()),
        unique_pairs=draw_value(st.booleans()),
        undefined_pairs=draw_value(st.sampled_from(["drop", "void", "infinite"])),
        venue_required=draw_value(st.booleans()),
    )


ANY_CONFIG = permutation_configs() | st.builds(
    NoveltyConfig,
    unique_pairs=st.booleans(),
    same_venue_pairs=st.booleans(),
    undefined_pairs=st.sampled_from(["drop", "void"]),
    max_references=st.integers(2, 9),
    min_pairs=st.integers(1, 3),
)


@given(ANY_CORPUS, permutation_configs())
@settings(max_examples=100)
def test_the_permutation_null_equals_plain_loops_over_the_same_shuffles(corpus, config):
    records, edges = corpus
    expected = {}
    for year, slots in oracle.slots_of(records, edges, config.venue_required).items():
        expected |= oracle.permutation_scores(slots, year, config)
    for work, n_pairs, p10, median in (
        scored(records, edges, config).select("work_id", "n_pairs", "z_p10", "z_median").rows()
    ):
        year, venue = records[work]
        seen = year is not None and not (config.venue_required and venue is None)
        assert (n_pairs, p10, median) == expected.get(work, (0 if seen else None, None, None))


@given(ANY_CORPUS, ANY_CONFIG, st.integers(1998, 2005), st.integers(0, 4))
@settings(max_examples=40)
def test_works_of_the_years_asked_for_get_the_same_bits_and_others_are_not_looked_at(corpus, config, first, more):
    records = corpus[0]
    span = (first, first + more)
    rows = scored(*corpus, replace(config, years=span))
    inside = pl.Series([year is not None and span[0] <= year <= span[1] for _, (year, _) in sorted(records.items())])
    assert rows.filter(inside).equals(scored(*corpus, config).filter(inside))
    assert rows.filter(~inside).drop("work_id").null_count().row(0) == (int((~inside).sum()),) * 5


@given(ANY_CORPUS)
def test_citing_every_work_and_a_twin_of_it_quadruples_pairs_and_shifts_the_mean_as_derived(corpus):
    """A venue's count n_aa goes to 4 n_aa + its citations, n_ab to 4 n_ab; the mean gains what a cell now allows.

    A stratum of n slots had W / (n (n - 1)) of its pairs of slots in one work, W = Q - n with Q = sum of k^2 over
    works; it now has (4 Q - 2 n) / (2 n (2 n - 1)). Hence the mean of a pair a, b grows beyond four times itself by
    x_a x_b 4 n (n^2 - Q) / ((2 n - 1) (n - 1)) for each stratum.
    """
    for slots in oracle.slots_of(*corpus).values():
        twice = [slot for slot in slots for _ in range(2)]
        before, after = oracle.count_pairs(slots), oracle.count_pairs(twice)
        cited = Counter(venue for _, _, venue in slots)
        year = laid_out(twice)
        cells = venue_pairs.observe(venue_pairs.group(year.offsets, year.venues, year.n_venues))
        names = np.array(list(cited))
        rows = np.repeat(np.arange(year.n_venues), np.diff(cells.starts))
        counted = {
            tuple(sorted((names[a], names[b]))): n for a, b, n in zip(rows, cells.partners, cells.observed, strict=True)
        }
        assert counted == {pair: n for pair, n in after.items() if n}
        means, doubled = closed_form(slots), closed_form(twice)
        per_work = Counter((work, stratum) for work, stratum, _ in slots)
        sizes = Counter(stratum for _, stratum, _ in slots)
        held = Counter((stratum, venue) for _, stratum, venue in slots)
        for (a, b), count in after.items():
            assert count == 4 * before[a, b] + (cited[a] if a == b else 0)
            if a != b:
                gain = 0.0
                for stratum, n in sizes.items():
                    square = sum(k * k for (_, other), k in per_work.items() if other == stratum)
                    if n > 1:
                        share = held[stratum, a] * held[stratum, b] / n**2
                        gain += share * 4 * n * (n * n - square) / ((2 * n - 1) * (n - 1))
                assert doubled[a, b][0] == pytest.approx(4 * means[a, b][0] + gain, rel=1e-12, abs=1e-12)
            assert doubled[a, b][0] == pytest.approx(oracle.exact_mean(twice, (a, b)), rel=1e-12, abs=1e-12)


@given(corpora())
def test_the_closed_form_mean_equals_a_double_loop_over_slots(corpus):
    for slots in oracle.slots_of(*corpus).values():
        for pair, (mean, _) in closed_form(slots).items():
            assert mean == pytest.approx(oracle.exact_mean(slots, pair), rel=1e-12, abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 2)), min_size=2, max_size=9))
@settings(max_examples=40)
def test_the_closed_form_is_exact_over_all_deals_of_a_few_slots(rows):
    slots = sorted((work, 1990 + late, venue) for work, late, venue in rows)
    sizes = Counter(year for _, year, _ in slots)
    assume(math.prod(map(math.factorial, sizes.values())) <= 6_000)
    for pair, (mean, deviation) in closed_form(slots).items():
        exact_mean, exact_variance = oracle.exact_moments(slots, pair)
        variance = 0.0 if math.isnan(deviation) else deviation**2
        assert mean == pytest.approx(exact_mean, abs=1e-12)
        if pair[0] == pair[1]:
            assert variance == pytest.approx(exact_variance, rel=1e-9, abs=1e-9)
        else:
            by_parts, shortcut = oracle.variance_by_parts(slots, pair)
            assert by_parts == pytest.approx(exact_variance, rel=1e-9, abs=1e-9)
            # Where shortcuts leave nothing, or something of nothing, the exact variance takes their place.
            near = [pytest.approx(value, rel=1e-7, abs=1e-9) for value in (shortcut, exact_variance)]
            assert variance in near
            assert exact_variance > 1e-9 or variance == 0


TWO_WORKS_OF_ONE_VENUE = [(work, 1990, 7) for work in (1, 1, 1, 2, 2)]
ALWAYS_TOGETHER = [(1, 1990, 7), (1, 1990, 8), (2, 1990, 8), (2, 1990, 8)]
ONLY_THE_PARTNER_VARIES = [(1, 1990, 0), (1, 1991, 1), (2, 1990, 1), (2, 1991, 1)]
ALL_CANCELS_BUT_THE_COVARIANCE = [(1, 1990, 5), (1, 1991, 6), (2, 1991, 5), (2, 1992, 6)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=8))
@example(TWO_WORKS_OF_ONE_VENUE)
@example(ALWAYS_TOGETHER)
@example(ONLY_THE_PARTNER_VARIES)
@example(ALL_CANCELS_BUT_THE_COVARIANCE)
@settings(max_examples=150)
def test_the_closed_form_is_defined_where_the_count_can_vary_and_nowhere_else(rows):
    slots = sorted(rows)
    assume(math.prod(map(math.factorial, Counter(year for _, year, _ in slots).values())) <= 800)
    counts = oracle.all_counts(slots)
    for pair, (_, deviation) in closed_form(slots).items():
        assert (deviation > 0) == (len({deal[pair] for deal in counts}) > 1)


def test_the_exact_variance_takes_the_place_of_what_a_shortcut_cancels():
    slots = ALL_CANCELS_BUT_THE_COVARIANCE
    assert oracle.variance_by_parts(slots, (5, 6))[1] == pytest.approx(0, abs=1e-12)
    assert closed_form(slots)[5, 6] == pytest.approx(oracle.exact_moments(slots, (5, 6)), rel=1e-12)
    works = {1: (1990, 5), 2: (1991, 6), 3: (1991, 5), 4: (1992, 6), 10: (2000, None), 11: (2000, None)}
    edges = [(10, 1), (10, 2), (11, 3), (11, 4)]
    assert scored(works, edges).filter(work_id=10).select("n_pairs", "z_p10").row(0) == pytest.approx((1, 1.0))


def test_counts_beyond_two_to_the_31_are_right():
    """Fifty-four works of ten thousand references, without building them: one work's list, many times."""
    n_works, length = 54, 10_000
    held = np.tile(np.where(np.arange(length) % 10 == 0, 1, 0).astype(np.int32), n_works)
    groups = venue_pairs.group(np.arange(n_works + 1) * length, held, 2)
    expected = [n_works * 9_000 * 8_999 // 2, n_works * 9_000 * 1_000, n_works * 1_000 * 999 // 2]
    cells = venue_pairs.observe(groups)
    assert cells.observed.tolist() == expected
    year = venue_pairs.lay_out(np.arange(n_works + 1) * length, np.zeros(held.size, np.int64), held)
    counted = novelty_nulls.permutation_moments(year, cells, 2000, NoveltyConfig(null="permutation", n_shuffles=2))[0]
    exact = novelty_nulls.analytic_moments(year)(cells)[0]
    assert counted == pytest.approx(exact, rel=1e-3)


@given(corpora(), st.integers(0, 99))
def test_a_shuffle_keeps_the_references_of_each_work_and_the_citations_of_each_venue_per_cell(corpus, seed):
    for year, slots in oracle.slots_of(*corpus).items():
        before = laid_out(slots)
        after = novelty_nulls.shuffled(before, year, seed, 0)
        assert Counter(zip(before.strata, after, strict=True)) == Counter(
            zip(before.strata, before.venues, strict=True)
        )
        expected = [venue for _, _, venue in oracle.shuffle(slots, year, seed, 0)]
        names = np.array(list(dict.fromkeys(venue for _, _, venue in slots)))
        assert names[after].tolist() == expected


@pytest.mark.parametrize("null", ["analytic", "permutation"])
@given(corpora(), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_names_of_venues_and_order_of_rows_and_threads_change_nothing(null, corpus, random):
    config = NoveltyConfig(null=null)
    assert scored(*disguised(corpus, random), config, n_threads=3).equals(scored(*corpus, config, n_threads=1))


def test_scores_do_not_depend_on_how_pairs_are_cut_into_parts_to_fit_into_memory(monkeypatch):
    corpus = random_corpus(5, 300, 600, 12, 20)
    whole = scored(*corpus)
    monkeypatch.setattr(venue_pairs, "_LARGE_YEAR", 0)
    monkeypatch.setattr(venue_pairs, "_PAIRS_AT_ONCE", 500)
    monkeypatch.setattr(novelty_nulls, "_NUMBERS_AT_ONCE", 100)
    assert whole["z_p10"].count() > 100
    assert scored(*corpus, n_threads=2).equals(whole)


@pytest.mark.parametrize("null", ["analytic", "permutation"])
def test_a_corpus_drawn_from_the_null_has_z_near_zero_with_spread_near_one(null):
    slots = oracle.slots_of(*random_corpus(5, 300, 600, 12, 20))[2000]
    year = laid_out(slots)
    dealt = novelty_nulls.shuffled(year, 2000, 99, 0)
    drawn = venue_pairs.Slots(year.offsets, year.strata, dealt, year.n_venues, *shape(year))
    groups = venue_pairs.group(drawn.offsets, drawn.venues, drawn.n_venues)
    cells = venue_pairs.observe(groups)
    mean, deviation = novelty_nulls.pair_moments(drawn, 2000, NoveltyConfig(null=null, n_shuffles=300))(cells)
    z = (cells.observed - mean) / deviation
    assert np.mean(z) == pytest.approx(0, abs=0.25)
    assert np.std(z) == pytest.approx(1, abs=0.25)


def shape(year: venue_pairs.Slots) -> tuple:
    order = np.argsort(year.strata, kind="stable")
    assert (order == year.by_stratum).all()
    return year.stratum_starts, year.by_stratum, year.strata_years, year.venue_numbers


@pytest.mark.parametrize("null", ["analytic", "permutation"])
def test_real_venues_give_the_same_scores_whatever_the_threads_and_engine(null):
    works, citations = scan_real()
    graph = build_graph(works, citations)
    venues = venue_numbers(graph, works)
    config = NoveltyConfig(null=null)
    expected = YearScorer(graph, venues, config, n_threads=1).score_all()
    assert YearScorer(graph, venues, config, n_threads=4).score_all().equals(expected)
    lazy = compute_atypicality(works, citations, config).collect(engine="streaming")
    assert lazy.sort("work_id").equals(expected.sort("work_id"))
    assert expected.height == works.select(pl.len()).collect().item()
    assert expected["z_p10"].count() > 1000
    assert expected.select(pl.col(pl.Float64).is_nan().any()).sum_horizontal().item() == 0
    defined = expected.drop_nulls("z_p10")
    assert (defined["z_p10"] <= defined["z_median"]).all()
    assert defined.select(pl.col("novelty_score", "conventionality_score").is_between(0, 1).all()).row(0) == (
        True,
        True,
    )


@pytest.mark.parametrize("other", [(3, 1985), (3, 1990), (3, 1995), (3, 2005), (1, 2000), (9, None)])
def test_venues_are_those_of_the_works_that_a_graph_was_built_from(other):
    schema = {"work_id": pl.Int64, "publication_year": pl.Int32, "source_id": pl.Int64}
    works = pl.LazyFrame([(1, 1990, 70), (2, 2000, 60), (4, None, 50)], schema=schema, orient="row")
    graph = build_graph(works, pl.LazyFrame({"citing_id": [2], "cited_id": [1]}))
    undated = build_graph(
        works.with_columns(publication_year=None).cast(schema), pl.LazyFrame({"citing_id": [2], "cited_id": [1]})
    )
    more = pl.concat([works, pl.LazyFrame([(*other, 40)], schema=schema, orient="row")])
    if other[1] is None:  # it has no number in any case
        assert venue_numbers(graph, more).tolist() == [1, 0]
        return
    for one in (graph, undated):
        with pytest.raises(ConfigError, match="not in the graph"):
            venue_numbers(one, more)


def test_the_bits_of_the_scores_are_pinned():
    bits = draw(stream_key(0, "test/novelty"), np.arange(4_000))
    records: Records = {work: (1990 + work // 100, int(below(bits[[work]], 9)[0]) ** 2) for work in range(400)}
    cited = below(bits, 300).tolist()
    edges = [(300 + i % 100, work) for i, work in enumerate(cited[400:2400])]
    digests = {}
    for null in ("analytic", "permutation"):
        rows = scored(records, edges, NoveltyConfig(null=null)).fill_null(-99)
        assert rows.filter(pl.col("z_p10") > -99).height == 100
        columns = b"".join(column.to_numpy().tobytes() for column in rows)
        digests[null] = hashlib.sha256(columns).hexdigest()[:16]
    assert digests == {"analytic": "330f43657278d2a0", "permutation": "1592fc88e91b2934"}


def test_venues_of_another_graph_are_refused():
    works, citations = frames({1: (2000, 1), 2: (2001, 1)}, [(2, 1)])
    graph = build_graph(works, citations)
    with pytest.raises(ConfigError, match=r"\(3,\), needs \(2,\)"):
        YearScorer(graph, np.zeros(3, np.int32)).score_all()


def test_a_work_with_too_many_references_or_too_few_pairs_is_undefined():
    records, edges = random_corpus(2, 20, 40, 5, 6)
    lengths = Counter(citing for citing, _ in edges)
    limit = sorted(lengths.values())[10]
    rows = scored(records, edges, NoveltyConfig(max_references=limit))
    for work, n_pairs in rows.select("work_id", "n_pairs").rows():
        assert (n_pairs is None) == (lengths[work] > limit)
    rows = scored(records, edges, NoveltyConfig(min_pairs=10))
    assert rows.filter(pl.col("n_pairs") < 10)["z_p10"].null_count() == rows.filter(pl.col("n_pairs") < 10).height
    assert rows.filter(pl.col("n_pairs") >= 10)["z_p10"].null_count() == 0


@given(st.floats(-20, 20))
def test_the_sigmoid_is_right_to_the_last_bits_and_symmetric(z):
    exact = 1 / (1 + math.exp(-max(-8.0, min(8.0, z))))
    assert sigmoid(np.array([z]))[0] == pytest.approx(exact, rel=1e-15)


@pytest.mark.parametrize("options", [{"unique_venues": True}, {"undefined_pairs": "infinite"}, {"years": (2001, 2000)}])
def test_options_that_contradict_others_are_refused_by_name(options):
    with pytest.raises(ConfigError, match=rf"NoveltyConfig\.{next(iter(options))}( is|=)"):
        NoveltyConfig(**options)


@pytest.mark.parametrize("name", [*COMPAT])
def test_a_convention_can_be_taken_and_changed(name):
    config = NoveltyConfig.compat(name, seed=5, n_shuffles=100)
    assert (config.null, config.seed, config.n_shuffles) == ("permutation", 5, 100)
    assert config != NoveltyConfig(null="permutation", seed=5, n_shuffles=100)
    with pytest.raises(ConfigError, match=r"NoveltyConfig has no option 'sed'. Did you mean seed?"):
        NoveltyConfig.compat(name, sed=5)


def test_novelpy_skips_works_of_two_references_and_scores_those_of_three():
    records, edges = random_corpus(4, 40, 80, 4, 3)
    config = NoveltyConfig.compat("novelpy", n_shuffles=200)
    lengths = Counter(citing for citing, _ in edges)
    for work, n_pairs, z in scored(records, edges, config).select("work_id", "n_pairs", "z_p10").rows():
        n = lengths[work]
        assert z is None or (n > 2 and n_pairs == n * (n - 1) // 2)
        assert z is not None or n <= 2 or n_pairs < n * (n - 1) // 2


def test_a_work_without_references_has_no_pair():
    works, citations = frames({1: (2000, 1)}, [])
    assert compute_atypicality(works, citations).collect_schema() == ATYPICALITY
    assert compute_atypicality(works, citations).collect().row(0) == (1, 0, None, None, None, None)
