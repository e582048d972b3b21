"""A saved table of venue pairs: the scores of the corpus it was made of, for any part of it."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciscidata.errors import BackgroundError, ConfigError, InputNotFoundError, ReleaseExistsError, SciSciDataError
from sciscidata.graph.graph import build_graph
from sciscidata.novelty import background as novelty_background
from sciscidata.novelty.atypicality import YearScorer, compute_atypicality
from sciscidata.novelty.background import VenuePairs, read_background, write_null_model
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.venue_pairs import venue_numbers
from sciscidata.schemas import PAIR_STATISTICS
from sciscidata.storage import seal
from tests.novelty import oracle
from tests.novelty.test_atypicality import ANY_CONFIG, ANY_CORPUS, Records, frames, random_corpus, scored
from tests.real_graphs import scan_real

KEY = b"sciscidata_background"
SHUFFLES = NoveltyConfig(null="permutation", n_shuffles=4, seed=3)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "background.parquet"


def part_of(works: set[int], records: Records, edges: list[tuple[int, int]]) -> tuple[Records, list[tuple[int, int]]]:
    """What a small pull knows: some works with all their references, and of these year and venue."""
    kept = [(citing, cited) for citing, cited in edges if citing in works]
    known = works | {cited for _, cited in kept}
    return {work: record for work, record in records.items() if work in known}, kept


@given(ANY_CORPUS, ANY_CONFIG, st.data())
@settings(max_examples=30)
def test_any_part_of_a_corpus_gets_the_bits_of_the_whole_from_its_background(corpus, config, data):
    with TemporaryDirectory() as home:
        file = write_null_model(VenuePairs.of(*frames(*corpus), config), f"{home}/pairs.parquet")
        whole = scored(*corpus, config)
        assert scored(*corpus, config, background=file).equals(whole)
        some = set(data.draw(st.lists(st.sampled_from([*corpus[0]]), max_size=6)))
        expected = whole.filter(pl.col("work_id").is_in(some))
        records, edges = part_of(some, *corpus)
        if records:
            small = scored(records, edges, config, background=file)
            assert small.filter(pl.col("work_id").is_in(some)).equals(expected)


@pytest.mark.parametrize("config", [NoveltyConfig(), SHUFFLES], ids=["analytic", "permutation"])
def test_real_works_pulled_alone_get_the_values_of_the_field(file, config):
    works, citations = scan_real()
    write_null_model(VenuePairs.of(works, citations, config), file, n_threads=3)
    whole = compute_atypicality(works, citations, config).sort("work_id").collect()
    assert compute_atypicality(works, citations, config, background=file).sort("work_id").collect().equals(whole)
    some = works.select("work_id").filter(pl.col("work_id") % 50 == 0)
    expected = whole.filter(pl.col("work_id") % 50 == 0)
    assert expected["z_p10"].count() > 30
    references = citations.join(some.rename({"work_id": "citing_id"}), on="citing_id", how="semi")
    known = pl.concat([some, references.select(work_id="cited_id")]).unique()
    pulled = works.join(known, on="work_id", how="semi")
    rows = compute_atypicality(pulled, references, config, background=file).collect().sort("work_id")
    assert rows.filter(pl.col("work_id") % 50 == 0).equals(expected)
    alone = compute_atypicality(pulled, references, config).collect().sort("work_id")
    assert not alone.filter(pl.col("work_id") % 50 == 0).equals(expected)


@pytest.mark.parametrize("config", [NoveltyConfig(), SHUFFLES], ids=["analytic", "permutation"])
def test_rows_are_the_counts_and_means_of_plain_loops_sorted_one_year_per_row_group(file, config, monkeypatch):
    monkeypatch.setattr(novelty_background, "ROWS_PER_GROUP", {"background": 7})
    records, edges = random_corpus(8, 12, 40, 6, 5)
    records |= {work + 1000: (year + 5, 10**15) for work, (year, _) in list(records.items())[:30]}
    edges += [(work + 1000, work % 7) for work in range(30)] + [(work + 1000, work % 11) for work in range(30)]
    table = read_background(write_null_model(VenuePairs.of(*frames(records, edges), config), file))
    rows = table.scan().collect()
    assert rows.schema == PAIR_STATISTICS
    assert rows.equals(rows.sort("publication_year", "source_id_a", "source_id_b"))
    assert (rows["source_id_a"] <= rows["source_id_b"]).all()
    groups = pq.read_metadata(file)
    years = [groups.row_group(i).column(0).statistics for i in range(groups.num_row_groups)]
    assert all(span.min == span.max for span in years)
    assert len(years) > (table.counts["n_pairs"] > 0).sum() > 1
    by_year = oracle.slots_of(records, edges)
    for year, slots in by_year.items():
        part = rows.filter(publication_year=year)
        observed = oracle.count_pairs(slots)
        assert {(a, b): n for _, a, b, n, _, _ in part.rows()} == observed
        draws = [oracle.count_pairs(oracle.shuffle(slots, year, 3, n)) for n in range(4)]
        for _, a, b, _, mean, std in part.rows():
            if config.null == "analytic":
                assert mean == pytest.approx(oracle.exact_mean(slots, (a, b)), rel=1e-12, abs=1e-12)
            else:
                assert mean == sum(counts[a, b] for counts in draws) / 4
                assert (std is None) == (len({counts[a, b] for counts in draws}) == 1)
        of_year = table.counts.row(by_predicate=pl.col("publication_year") == year, named=True)
        assert (of_year["n_works"], of_year["n_references"]) == (len({slot[0] for slot in slots}), len(slots))
        assert of_year["n_pairs"] == len(observed)
    assert table.years == {year for year, _ in records.values()}


def test_rows_do_not_depend_on_threads_and_years_can_be_chosen(tmp_path):
    works, citations = scan_real()
    one, more, few = (tmp_path / name for name in ("one", "more", "few"))
    write_null_model(VenuePairs.of(works, citations), one, n_threads=1)
    write_null_model(VenuePairs.of(works, citations), more, n_threads=4)
    assert one.read_bytes() == more.read_bytes()
    config = NoveltyConfig(years=(2005, 2007), min_pairs=3, score="rank")
    table = read_background(write_null_model(VenuePairs.of(works, citations, config), few))
    assert table.years == {2005, 2006, 2007}
    assert (
        table.scan()
        .collect()
        .equals(pl.scan_parquet(one).filter(pl.col("publication_year").is_between(2005, 2007)).collect())
    )


def test_pairs_and_years_that_the_background_lacks_are_undefined_and_the_log_says_how_many(file, caplog):
    corpus = {1: (1990, 7), 2: (1990, 8), 3: (1990, 7), 4: (1990, 8), 5: (2000, None), 6: (2000, None)}
    write_null_model(VenuePairs.of(*frames(corpus, [(5, 1), (5, 3), (6, 2), (6, 4)])), file)
    records = {1: (1990, 7), 2: (1990, 7), 3: (1990, 8), 9: (2000, None), 10: (2001, None), 11: (1995, 5)}
    edges = [(9, 1), (9, 2), (9, 3), (10, 1), (10, 2), (9, 11)]
    with caplog.at_level(logging.INFO, "sciscidata"):
        rows = scored(records, edges, background=file)
    # Of the six pairs of work 9 only (7, 7) is known; nobody of 1990 cites anything, which the background knows.
    assert rows["n_pairs"].to_list() == [0, 0, 0, 1, None, None]
    assert rows.filter(work_id=9)["z_p10"].item() == pytest.approx(2**0.5)
    assert "holds 1 of the 4 venue pairs of the scored works" in caplog.text
    assert "lacks 2 of their 4 years: 1995, 2001" in caplog.text
    void = scored(records, edges, NoveltyConfig(undefined_pairs="void"), background=file)
    assert void.filter(work_id=9).select("n_pairs", "z_p10").row(0) == (1, None)


def test_the_graph_level_takes_a_background_too(file):
    corpus = random_corpus(9, 20, 40, 6, 5)
    works, citations = frames(*corpus)
    write_null_model(VenuePairs.of(works, citations), file)
    graph = build_graph(works, citations)
    table = read_background(file).for_venues_of(works)
    rows = YearScorer(graph, venue_numbers(graph, works), background=table).score_all()
    assert rows.sort("work_id").equals(scored(*corpus))
    with pytest.raises(ConfigError, match=r"for_venues_of\(works\)"):
        YearScorer(graph, venue_numbers(graph, works), background=read_background(file)).score_all()


@pytest.mark.parametrize(
    ("made", "asked", "said"),
    [
        (NoveltyConfig(), SHUFFLES, r"says null='permutation', .*Set null='analytic', or"),
        (SHUFFLES, NoveltyConfig(), r"says null='analytic', .*Set null='permutation', n_shuffles=4, seed=3, unique_"),
        (SHUFFLES, NoveltyConfig(null="permutation", n_shuffles=4), r"says seed=0. Set seed=3, or write"),
        (NoveltyConfig(), NoveltyConfig(max_references=50), r"says max_references=50. Set max_references=1000,"),
        (NoveltyConfig(), NoveltyConfig(venue_required=True), "says venue_required=True"),
        (NoveltyConfig(), NoveltyConfig(same_venue_pairs=False), "says same_venue_pairs=False"),
    ],
)
def test_another_null_model_is_refused_at_once(file, made, asked, said):
    works, citations = frames({1: (2000, 1)}, [])
    write_null_model(VenuePairs.of(works, citations, made), file)
    with pytest.raises(ConfigError, match=said):
        compute_atypicality(works, citations, asked, background=file)


def test_scoring_options_need_not_be_those_of_the_background(file):
    corpus = random_corpus(10, 30, 60, 5, 6)
    write_null_model(VenuePairs.of(*frames(*corpus)), file)
    for config in (NoveltyConfig(score="rank"), NoveltyConfig(seed=9, min_pairs=9), NoveltyConfig(unique_pairs=True)):
        assert scored(*corpus, config, background=file).equals(scored(*corpus, config))


def test_a_file_that_is_no_background_is_refused_in_words(file):
    works, citations = frames({1: (2000, 1)}, [])

    def refusal() -> str:
        with pytest.raises(SciSciDataError) as refused:
            compute_atypicality(works, citations, background=file)
        return str(refused.value)

    with pytest.raises(InputNotFoundError, match="no background at"):
        compute_atypicality(works, citations, background=file)
    file.write_text("publication_year,source_id_a\n")
    assert "no Parquet file, or damaged" in refusal()
    pl.DataFrame(schema=PAIR_STATISTICS).write_parquet(file)
    assert "is a Parquet file, but no background" in refusal()
    with pytest.raises(ReleaseExistsError, match="is no background of this version, so it is not replaced"):
        write_null_model(VenuePairs.of(works, citations), file)
    file.unlink()
    write_null_model(VenuePairs.of(works, citations), file)
    rows = pq.read_table(file)
    facts = json.loads(pq.read_metadata(file).metadata[b"sciscidata_background"])

    def put(table, **changes) -> None:
        rewritten(file, table, json.dumps(facts | changes).encode())

    put(rows, format_version=1)
    assert "has format 1, this version of sciscidata reads format 2" in refusal()
    put(rows)
    compute_atypicality(works, citations, background=file)


def test_a_damaged_file_is_noticed_where_its_rows_are_read(file):
    works, citations = scan_real()
    write_null_model(VenuePairs.of(works, citations), file)
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 16
    lazy = compute_atypicality(works, citations, background=file)  # while the file is still whole
    file.write_bytes(content)
    with pytest.raises(BackgroundError, match="damaged"):
        lazy.collect()
    with pytest.raises(BackgroundError, match="differs from the SHA-256 that it holds"):
        compute_atypicality(works, citations, background=file)
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(BackgroundError, match="damaged"):
        compute_atypicality(works, citations, background=file)


def test_a_venue_known_only_from_an_undated_work_moves_no_other_venue(file):
    records, edges = random_corpus(12, 20, 40, 6, 5)
    more = records | {10**6: (None, -5), 10**6 + 1: (None, 3), 10**6 + 2: (None, 10**9)}
    expected = scored(records, edges)
    for made, asked in [(more, records), (records, more), (more, more)]:
        write_null_model(VenuePairs.of(*frames(made, edges)), file)
        rows = scored(asked, edges, background=file)
        assert rows.filter(pl.col("work_id") < 10**6).equals(expected)
    assert pl.read_parquet(file)["source_id_a"].min() >= 0
    works, citations = frames(records, edges)
    graph = build_graph(works, citations)
    other = read_background(file).for_venues_of(works.filter(pl.col("source_id") > 0))
    with pytest.raises(ConfigError, match="does not know these venues"):
        YearScorer(graph, venue_numbers(graph, works), background=other).score_all()


def rewritten(file: Path, rows: pa.Table | None = None, key: bytes | None = None, **how: object) -> Path:
    """Write a background anew, with other rows or metadata."""
    metadata = pq.read_metadata(file).metadata
    table = pq.read_table(file) if rows is None else rows
    told = re.sub(rb'(?<="sealed_sha256": ")[0-9a-f]{64}', b"0" * 64, metadata[KEY] if key is None else key)
    pq.write_table(table.replace_schema_metadata({KEY: told}), file, **how)
    if b"sealed_sha256" in told:
        seal(file)
    return file


@pytest.mark.parametrize("records", [{1: (None, 1)}, {1: (2000, None)}, {1: (2000, 1), 2: (2001, 1)}])
def test_a_corpus_without_a_single_pair_makes_an_empty_table(file, records):
    table = read_background(write_null_model(VenuePairs.of(*frames(records, [(2, 1)])), file))
    assert table.scan().collect().equals(pl.DataFrame(schema=PAIR_STATISTICS))
    assert table.counts["n_pairs"].sum() == 0
    assert scored(records, [(2, 1)], background=file).equals(scored(records, [(2, 1)]))
