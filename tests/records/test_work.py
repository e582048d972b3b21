"""Every shape of OpenAlex Work gives the row written down here, and no field can cost a record."""

from __future__ import annotations

import functools
import gzip
import json
import math
import random
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.make_snapshot import synthetic_records
from sciscidata.errors import CorruptRecordError
from sciscidata.records.json_record import read_record
from sciscidata.records.plain_text import clean_text, clean_texts
from sciscidata.records.work_columns import citations_of, rows_of_records, works_of
from sciscidata.schemas import CITATIONS, WORKS
from tests.conftest import example_lines


def parsed(*lines):
    return rows_of_records((0, read_record(line)) for line in lines).rows


def tables(*lines):
    rows = parsed(*lines)
    return works_of(rows), citations_of(rows)


def line_of(**fields):
    return json.dumps({"id": "https://openalex.org/W1", **fields}).encode()


def row(**fields):
    rows = parsed(line_of(**fields))
    return rows.row(0, named=True) | works_of(rows).row(0, named=True)


def clean(text):
    return pl.DataFrame({"text": [text]}, schema={"text": pl.String}).select(clean_text("text")).item()


def test_a_record_with_nothing_but_its_id_is_a_row_of_nulls():
    works, citations = tables(line_of())
    assert works.schema == WORKS
    assert citations.schema == CITATIONS
    assert citations.height == 0
    expected = dict.fromkeys(WORKS) | {"work_id": 1, "concepts": [], "is_retracted": False}
    assert works.row(0, named=True) == expected


def test_no_works_give_empty_frames_of_the_right_schema():
    works, citations = tables()
    assert (works.schema, works.height) == (WORKS, 0)
    assert (citations.schema, citations.height) == (CITATIONS, 0)


@pytest.mark.parametrize(
    ("fields", "work_id"),
    [
        ({"id": "https://openalex.org/W2741809807"}, 2741809807),
        ({"id": "http://openalex.org/W1"}, 1),
        ({"id": "https://api.openalex.org/works/W5"}, 5),
        ({"id": "https://openalex.org/works/w5"}, 5),
        ({"id": "W7128999999"}, 7128999999),  # above 2^32
        ({"id": " w42 "}, 42),
        ({"id": None, "ids": {"openalex": "https://openalex.org/W9"}}, 9),
        ({"id": "https://doi.org/10.1/W3", "ids": {"openalex": "W8"}}, 8),
    ],
)
def test_the_id_is_the_number_after_w(fields, work_id):
    assert row(**fields)["work_id"] == work_id


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b"null", b"3", b'"W1"', b"{}", b'{"id":"A1"}', b'{"id":"W"}', b'{"id":"W0"}', b'{"id":1}',
        b'{"id":"W-1"}', b'{"id":"W12345678901234567890"}', b'{"id":"W1"}}', b'{"id":"W1"}{"id":"W2"}', b'{"id":"W1',
        b'{"id":"W1","title":"\xff"}', b'{"id":"W1","abstract_inverted_index":{"\xff":[0]}}', b"[" * 100_000,
        '{"id":"W١"}'.encode(),
    ],
    ids=lambda line: line[:30],
)  # fmt: skip
def test_what_is_not_a_work_is_corrupt(line):
    with pytest.raises(CorruptRecordError):
        read_record(line)


@pytest.mark.parametrize("digits", ["9" * 5_000, "-" + "1" * 5_000, "9" * 5_000 + ".5", "1e99999"])
def test_a_number_of_any_length_costs_its_field_only(digits):
    line = b'{"id":"W1","title":"A","publication_year":%b,"x":{"y":[%b]}}' % (digits.encode(), digits.encode())
    assert parsed(line).select("title", "publication_year").row(0) == ("A", None)


def test_what_only_python_reads_is_read_too():
    line = rb'{"id":"W1","title":"a \ud800","fwci":NaN,"cited_by_count":1e999,"x":"\udc00"}'
    assert parsed(line).select("title", "cited_by_count").row(0) == ("a \ufffd", None)
    index = rb'{"id":"W1","abstract_inverted_index":{"\ud83d":[1],"so":[0]}}'
    assert parsed(index)["abstract"][0] == "so \ufffd"


@pytest.mark.parametrize(
    ("value", "year"),
    [
        (1999, 1999), ("1999", 1999), (" 1999 ", 1999), (1999.0, 1999), (1, 1), (9999, 9999), (0, None), (-5, None),
        (10_000, None), (1999.5, None), (True, None), ("c. 1999", None), ("", None), ([1999], None), (2**70, None),
        ("19" * 9, None), ("9" * 5000, None), (None, None), ("١٩٩٩", None),
    ],
)  # fmt: skip
def test_a_year_is_a_positive_whole_number_or_null(value, year):
    assert row(publication_year=value)["publication_year"] == year


@pytest.mark.parametrize(
    ("value", "count"), [(0, 0), ("7", 7), (2**63 - 1, 2**63 - 1), (2**63, None), (-1, None), (False, None), ({}, None)]
)
def test_citation_counts_are_whole_numbers_or_null(value, count):
    assert row(cited_by_count=value)["cited_by_count"] == count


def test_a_blank_title_falls_back_to_the_display_name_and_then_to_null():
    assert row(title="A", display_name="B")["title"] == "A"
    assert row(title=" \n", display_name="B")["title"] == "B"
    assert row(title=None, display_name="")["title"] is None
    assert row(title="<i> </i>&nbsp;")["title"] is None
    assert row(title=["A"], display_name=3)["title"] is None


@pytest.mark.parametrize(
    ("found", "plain"),
    [
        ("<p>One.</p><p>Two.</p>", "One. Two."),
        ("<jats:sec><jats:title>Aim</jats:title>To see</jats:sec>", "Aim To see"),
        ('<AbstractText Label="OBJECTIVE" NlmCategory="AIM">To see</AbstractText>', "To see"),
        ("<h3>Background</h3>Dams<br/>leak", "Background Dams leak"),
        ("H<sub>2</sub>O and <I>E. coli</I>", "H2O and E. coli"),
        ('<mml:math xmlns:mml="http://w3"><mml:mi>x</mml:mi><mml:mo>=</mml:mo><mml:mn>1</mml:mn></mml:math>', "x=1"),
        ("p < 0.05 and b > 3", "p < 0.05 and b > 3"),
        ("if x <b and c> d then i<p, s>u", "if x <b and c> d then i<p, s>u"),
        ("a <b c=d> e", "a <b c=d> e"),
        ("&lt;i&gt;in vivo&lt;/i&gt; p &lt; 0.05", "in vivo p < 0.05"),
        ("R&amp;D &amp;amp; AT&T &#8211; caf&#xE9;&nbsp;", "R&D & AT&T – café"),
        ("&unknown; &copy2020 &#0;", "&unknown; &copy2020 \ufffd"),
        ("a\u2028b\u0085c\u00a0d\u3000e\x00f\x1fg\r\n\th  i", "a b c d e f g h i"),
        ("line&#13; break", "line break"),
        ("<!-- a > b -->text", "text"),
        ("  ", None),
        ("", None),
        (None, None),
        ("<br>", None),
        ("a\u200bb", "a\u200bb"),
    ],
)  # fmt: skip
def test_clean_text(found, plain):
    assert clean(found) == plain


@given(st.text())
def test_clean_text_has_single_inner_spaces_only(text):
    plain = clean(text)
    assert plain is None or (plain == plain.strip(" ") and not re.search(r"\s\s|[^\S ]|[\x00-\x1f\x7f-\x9f]", plain))


_SIGNS = [*"aZ9;#/!<&\t\x0b\x7f\x85\xa0\xa1\u1680\u1681\u2003\u200b\u2028\u202f\u205f\u3000\u3001\u212a", " ", "  "]
_WORDS = ["<b>", "</jats:p>", "<!-- -->", "&amp;", "&#60;", "R&D", "p < 0.05", "x" * 61, "a plain word "]


def test_a_loop_finds_all_texts_to_clean():
    draw = random.Random(1)
    texts = ["".join(draw.choices(_SIGNS + _WORDS, k=draw.randrange(9))) for _ in range(5_000)]
    works = pl.DataFrame({"title": texts, "abstract": [None, *texts[1:]]})
    expected = works.select(clean_text("title"), clean_text("abstract"))
    assert clean_texts(works, ("title", "abstract")).equals(expected)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters="<&"), min_size=1))
def test_clean_text_leaves_plain_words_alone(text):
    assert clean(text) == text


@pytest.mark.parametrize(
    ("found", "doi"),
    [
        ("https://doi.org/10.1/AbC", "10.1/abc"), ("http://dx.doi.org/10.1/a", "10.1/a"), ("10.1/A", "10.1/a"),
        ("doi: 10.1/a", "10.1/a"), ("doi.org/10.1/a", "10.1/a"), ("https://doi.org/", None), (" ", None), (7, None),
    ],
)  # fmt: skip
def test_dois_are_bare_and_lower_case(found, doi):
    assert row(doi=found)["doi"] == doi


def test_the_source_is_that_of_the_primary_location_or_of_the_older_host_venue():
    source = {"id": "https://openalex.org/S10", "display_name": "Journal of Dams"}
    older = {"id": "https://openalex.org/S4210000000", "display_name": "Dams"}
    for fields, expected in [
        ({"primary_location": {"source": source}, "host_venue": older}, (10, "Journal of Dams")),
        ({"primary_location": {"source": None}, "host_venue": older}, (4210000000, "Dams")),
        ({"primary_location": None, "host_venue": older}, (4210000000, "Dams")),
        ({"primary_location": None, "host_venue": None}, (None, None)),
        ({"primary_location": "x", "host_venue": {"id": None, "display_name": "Dams"}}, (None, "Dams")),
        ({"primary_location": {"source": {"id": "W10", "display_name": 3}}}, (None, None)),
        (
            {"primary_location": {"source": {"id": None, "display_name": "Dam J."}}, "host_venue": older},
            (4210000000, "Dams"),
        ),
        ({"primary_location": {"source": {"id": None, "display_name": "Dam J."}}}, (None, "Dam J.")),
    ]:
        got = row(**fields)
        assert (got["source_id"], got["source_name"]) == expected


@pytest.mark.parametrize(
    "found",
    [
        "https://openalex.org/V137773608", "V137773608", "http://openalex.org/v137773608", " v0137773608 ",
        "https://api.openalex.org/venues/V137773608", "https://openalex.org/S137773608",
    ],
)  # fmt: skip
def test_a_venue_of_2021_and_22_has_the_number_of_todays_source(found):
    venue = {"id": found, "display_name": "Nature"}
    lines = [
        json.dumps({"id": "W1", **fields}).encode()
        for fields in ({"host_venue": venue}, {"host_venue": venue, "doi": 3})
    ]
    lines.append(json.dumps({"id": "W1", "primary_location": {"source": venue}}).encode())
    assert parsed(*lines).select("source_id", "source_name").rows() == [(137773608, "Nature")] * 3


@pytest.mark.parametrize(
    "found", ["W137773608", "I137773608", "V", "V0", "V-1", "VV1", "https://openalex.org/works/", 137773608]
)
def test_what_is_no_id_of_a_venue_gives_none(found):
    assert row(host_venue={"id": found, "display_name": "Nature"})["source_id"] is None
    assert row(referenced_works=["V8", "S8"])["references"] == []


def test_the_field_is_that_of_the_topic_or_the_best_concept_of_level_0():
    topic = {"field": {"display_name": "Engineering"}}
    concepts = [
        {"display_name": "Medicine", "level": 0, "score": 0.5},
        {"display_name": "Biology", "level": 0, "score": "0.5"},
        {"display_name": "Dam", "level": 3, "score": 0.9},
    ]
    assert row(primary_topic=topic, concepts=concepts)["primary_field"] == "Engineering"
    assert row(primary_topic=None, topics=[topic], concepts=concepts)["primary_field"] == "Engineering"
    assert row(primary_topic={"field": None}, concepts=concepts)["primary_field"] == "Biology"
    assert row(concepts=concepts[2:])["primary_field"] is None


def test_concepts_are_the_eight_best_by_score_then_name_or_the_topics():
    scored = [{"display_name": f"c{i}", "score": i / 10} for i in range(10)] + [{"display_name": "b9", "score": "0.9"}]
    assert row(concepts=scored)["concepts"] == ["b9", "c9", "c8", "c7", "c6", "c5", "c4", "c3"]
    topics = [{"display_name": "Dams"}, {"display_name": " "}, None, {"display_name": "Rivers"}]
    assert row(concepts=[{"display_name": "zero", "score": 0}], topics=topics)["concepts"] == ["Dams", "Rivers"]
    assert row(concepts="x", topics=None)["concepts"] == []


@pytest.mark.parametrize(
    ("value", "retracted"), [(True, True), (False, False), (None, False), ("true", False), (1, False)]
)
def test_only_true_is_retracted(value, retracted):
    assert row(is_retracted=value)["is_retracted"] is retracted


@pytest.mark.parametrize(
    ("fields", "n_authors"),
    [
        ({"authorships": [{"author": {"id": None}}, {}]}, 2), ({"authorships": [None, "Poe"]}, 2),
        ({"authorships": []}, None), ({"authorships": None}, None), ({"authorships": {"a": 1}}, None), ({}, None),
        ({"authorships": [{}] * 100, "is_authors_truncated": True}, None),
        ({"authorships": [{}] * 100, "is_authors_truncated": False}, 100),
    ],
)  # fmt: skip
def test_authors_are_counted_unless_there_are_none_or_the_list_is_cut(fields, n_authors):
    assert row(**fields)["n_authors"] == n_authors


def test_references_keep_order_repeats_and_the_work_itself_and_count_what_is_malformed():
    found = row(referenced_works=["https://openalex.org/W3", "W2", "W3", "W1", None, 4, "S5", "", "w9999999999"])
    assert found["references"] == [3, 2, 3, 1, 9999999999]
    assert found["malformed_references"] == 4
    assert tables(line_of(referenced_works="W2"))[1].rows() == [(1, 2)]


@pytest.mark.parametrize(
    "index",
    [
        {"b.": [1], "a": [0]},
        {"IndexLength": 2, "InvertedIndex": {"b.": [1], "a": [0]}},
        '{"b.":[1],"a":[0]}',  # as in the Parquet snapshot
        {"<b>a</b>": [0], "b&#46;": [7], " ": [3]},
    ],
)
def test_abstracts_of_every_form_become_clean_text(index):
    assert row(abstract_inverted_index=index)["abstract"] == "a b."


@pytest.mark.parametrize("index", [None, {}, [], 3, "", "text", {"a": 0}, {"a": [-1]}, '{"cut":[0],"o', False])
def test_what_is_no_index_is_a_null_abstract(index):
    assert row(abstract_inverted_index=index)["abstract"] is None


def test_the_date_is_the_later_one():
    assert row(updated_date="2023-03-27T18:05:49", created_date="2016-08-23")["changed_on"] == "2023-03-27"
    assert row(updated_date="soon", created_date=20160823)["changed_on"] is None


def lines_of(*files):
    for file in files:
        with gzip.open(file) as lines:
            yield from lines


@pytest.fixture(scope="session")
def synergy():
    return tables(*example_lines())


def test_the_real_works_and_references_of_2023_are_those_of_the_flat_tables(shared_data, synergy):
    nodes = pl.read_parquet(shared_data / "openalex" / "synergy_A.nodes.parquet")
    works, _ = synergy
    assert works["work_id"].to_list() == nodes["id"].str.slice(1).cast(pl.Int64).to_list()
    for ours, theirs in [
        ("publication_year", "year"), ("source_name", "venue"), ("cited_by_count", "cited_by_count"),
        ("work_type", "type"), ("is_retracted", "is_retracted"),
    ]:  # fmt: skip
        assert works[ours].to_list() == nodes[theirs].to_list(), ours
    records = map(json.loads, lines_of(shared_data / "openalex" / "synergy_A.works.jsonl.gz"))
    sizes = [None if one.get("is_authors_truncated") else len(one["authorships"]) or None for one in records]
    assert works["n_authors"].to_list() == sizes
    assert (works["n_authors"].null_count(), works["n_authors"].max()) == (40, 61)
    sources = nodes["source_id"].str.extract(r"S(\d+)$").cast(pl.Int64)
    assert works["source_id"].to_list() == sources.to_list()
    assert works["title"].to_list() == nodes.select(clean_text("title"))["title"].to_list()
    assert works["abstract"].to_list() == nodes.select(clean_text("abstract"))["abstract"].to_list()
    edges = pl.read_parquet(shared_data / "openalex" / "synergy_A.edges.parquet")
    expected = edges.select(pl.all().str.slice(1).cast(pl.Int64)).rows()
    assert len(expected) == 134_026
    assert sorted(synergy[1].rows()) == sorted(expected)


def test_real_text_is_clean(synergy):
    works, _ = synergy
    for name in ("title", "abstract"):
        text = works[name].drop_nulls()
        assert text.str.contains(r"^ | $|  |\p{Cc}|&(amp|lt|gt|nbsp|#\d+);").sum() == 0
        assert text.str.contains(r"(?i)</?(mml:\w+|p|i|sub|sup|h\d|br|abstracttext|jats:\w+)\b[^<]*>").sum() == 0
    assert works["primary_field"].null_count() < 10
    assert works["concepts"].list.len().max() == 8


def test_real_works_of_2025_have_topics_fields_and_languages(shared_data):
    records = [json.loads(line) for line in lines_of(shared_data / "openalex" / "openalexpro_A.works.jsonl.gz")]
    works, citations = tables(*(json.dumps(record).encode() for record in records))
    assert works.height == 248
    assert citations.height == sum(len(record["referenced_works"]) for record in records)
    for ours, record in zip(works.iter_rows(named=True), records, strict=True):
        topic, location = record["primary_topic"], record["primary_location"]
        source = (location or {}).get("source") or {}
        assert ours["primary_field"] == (topic["field"]["display_name"] if topic else ours["primary_field"])
        assert ours["language"] == record["language"]
        assert (ours["n_authors"] or 0) == len(record["authorships"])
        assert ours["source_name"] == (source.get("display_name") or "").strip() or ours["source_name"] is None
        assert ours["doi"] == (record["doi"] or "").removeprefix("https://doi.org/").lower() or ours["doi"] is None
        assert (ours["abstract"] is None) == (not record["abstract_inverted_index"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["W1", "", "2020", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("id"), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_no_field_of_whatever_type_costs_a_real_record(data):
    records = some_records()
    record = dict(data.draw(st.sampled_from(records)))
    names = data.draw(st.lists(st.sampled_from(sorted(set(record) - {"id"})), min_size=1, max_size=4))
    for name in names:
        record[name] = data.draw(json_values)
        if isinstance(records[0].get(name), dict) and data.draw(st.booleans()):
            record[name] = records[0][name] | {key: data.draw(json_values) for key in list(records[0][name])[:3]}
    works, citations = tables(json.dumps(record).encode())
    assert works.schema == WORKS
    assert citations.schema == CITATIONS
    assert works["work_id"].to_list() == [int(record["id"].rpartition("W")[2])]
    assert not any(isinstance(value, float) and math.isnan(value) for value in works.row(0))


@functools.cache
def some_records():
    """Three real records of 2023, and three of the form of today."""
    return [*map(json.loads, example_lines()[:3]), *synthetic_records(3)]


# Many lines at once


URL = "https://openalex.org/W"
LINES = [
    b'{"id":"W1"}', b'{"id":"W2","referenced_works":[]}', b"", b" \t", b"{", b"[]", b'{"id":"A1"}',
    b'{"id":"W3","title":"\xff"}', b'{"id":"W3","unread":"\xff"}', b'{"id":"W3","unread":"\xed\xa0\x80"}',
    b'{"id":"W4","fwci":NaN}', b'{"id":"W5"}{"id":"W6"}', b'"referenced_works":[]}', b'{"id":"W7",', b'{"id":"W8"}\r',
    b'{"id":"W9","referenced_works":["\xff"]}', b'{"id":"W9","abstract_inverted_index":{"\xff":[0]}}',
    *(
        json.dumps({"id": f"{URL}{number}", "referenced_works": listed}, separators=separators).encode()
        for separators in ((",", ":"), (", ", ": "))
        for number, listed in enumerate(
            [
                [URL + "1", URL + "22"], [URL + "0"], [URL + "01"], [URL], [URL + "9" * 18], [URL + "9" * 19],
                ["W5", URL + "6"],
                ["S5"], [URL + "6", None, 7], [URL + "6 "], None, "W1", {"W1": 2}, [[URL + "1"]], [URL + "1\u0661"],
            ],
            10,
        )
    ),
]  # fmt: skip


def is_no_text(data):
    try:
        data.decode("utf-8", "surrogatepass")  # a lone surrogate is mended, as from an escape
    except UnicodeDecodeError:
        return not set(data) & set(b'"\\\n')
    return False


@given(
    bad=st.binary(min_size=1, max_size=4).filter(is_no_text),
    field=st.sampled_from([b"id", b"unread", b"title", b"abstract_inverted_index", b"referenced_works", b"\xc3\xa9"]),
)
def test_a_line_with_text_that_is_no_utf_8_is_no_json_whether_it_is_read_or_not(bad, field):
    line = b'{"id":"W1","x":"\xc3\xa9","%b":"%b"}' % (field, bad)
    with pytest.raises(CorruptRecordError, match=r"^not JSON: 'utf-8' codec can't decode byte"):
        read_record(line)
