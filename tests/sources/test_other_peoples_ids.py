"""Ids, DOIs, missing values and lists as other people write them: one rule, whatever the way in."""

from __future__ import annotations

import json
import logging
from html import escape
from urllib.parse import quote

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sciscidata as ssd
from sciscidata.errors import SchemaMismatchError
from sciscidata.records.dois import bare_dois, read_dois
from sciscidata.records.ids import MISSING, number_ids
from sciscidata.records.work_columns import SPARE, rows_of_lines
from sciscidata.sources.kinds import LabelFiles
from sciscidata.sources.label_files import read_label_files
from sciscidata.sources.labelled import read_labelled_files
from sciscidata.sources.records import pull_records
from sciscidata.sources.tables.columns import split_references
from sciscidata.sources.tables.source import TablesConfig, ingest_tables
from tests.records.test_work import parsed

YEARS = [1990, 2000, 2001, 2002]
EDGES = [(2, 1), (3, 1), (4, 2)]  # so that work 2 has n_i 1 and n_k 1
#: Forms of one id: those of its works, and those of the references to them.
FORMS = {
    "Int64": (lambda n: n, pl.Int64),
    "UInt64": (lambda n: n, pl.UInt64),
    "Int32": (lambda n: n, pl.Int32),
    "Float64": (lambda n: n, pl.Float64),
    "text": (str, pl.String),
    "categorical": (str, pl.Categorical),
    "float as text": (lambda n: f"{n}.0", pl.String),
    "leading zeros": (lambda n: f"{n:05}", pl.String),
    "blank before": (lambda n: f" {n}", pl.String),
    "blanks behind": (lambda n: f"{n}\t ", pl.String),
    "W": (lambda n: f"W{n}", pl.String),
    "w": (lambda n: f"w{n}", pl.String),
    "address": (lambda n: f"https://openalex.org/W{n}", pl.String),
    "address of the API": (lambda n: f"http://api.openalex.org/works/w{n}/", pl.String),
}
DOI_FORMS = [
    "10.1/a{}", "10.1/A{}", "https://doi.org/10.1/a{}", "HTTP://DX.DOI.ORG/10.1/a{}", "www.doi.org/10.1/a{}",
    "doi: 10.1/a{}", " 10.1/a{} ", "10.1/a{}.", "https://doi.org/10.1/a{}/", "https://doi.org/doi:10.1/a{}",
    "info:doi/10.1/a{}", "urn:doi:10.1/a{}", "DOI 10.1/a{}", "10.1/a{};", "10.1/a{})", "<https://doi.org/10.1/a{}>",
    "10.1%2FA{}", "10.1%252fa{}", "https%3A%2F%2Fdoi.org%2F10.1%2Fa{}", "10.1&#47;a{}", "10.1/a{} [doi]", "“10.1/a{}”",
    "https://doi.org/10.1/a{}?utm_source=x&b=c", "http://dx.doi.org/10.1/a{}#page=2", "\uff11\uff10.1/a{}",
    "10.1/a{}\u200b", "\xa010.1/a{}\xa0", "https://doi-org.proxy.edu/10.1/a{}", "doi.org:10.1/a{}", "http://proxy.edu/login?url=https://doi.org/10.1/a{}",
]  # fmt: skip
#: The DOI of an article of Wiley, whose signs are written in many ways.
SICI = "10.1002/(sici)1096-9861(1996)365:1<1::aid-cne9>3.0.co;2-#"


def from_files(kind):
    def read(works: pl.DataFrame, cites: pl.DataFrame, folder) -> ssd.Corpus:
        for name, frame in (("works", works), ("cites", cites)):
            if kind == "parquet":
                frame.write_parquet(folder / name)
            elif kind == "csv":
                frame.write_csv(folder / name)
            else:
                frame.write_ndjson(folder / name)
        config = TablesConfig(works=(str(folder / "works"),), citations=(str(folder / "cites"),))
        return ingest_tables(config, folder / "corpus")

    return read


WAYS = {
    "polars": lambda works, cites, _: ssd.from_tables(works, cites),
    "polars lazy": lambda works, cites, _: ssd.from_tables(works.lazy(), cites.lazy()),
    "pandas": lambda works, cites, _: ssd.from_tables(works.to_pandas(), cites.to_pandas()),
    "pandas nullable": lambda works, cites, _: ssd.from_tables(
        works.to_pandas().convert_dtypes(), cites.to_pandas().convert_dtypes()
    ),
    "pandas object": lambda works, cites, _: ssd.from_tables(
        works.to_pandas().astype(object), cites.to_pandas().astype(object)
    ),
    "arrow": lambda works, cites, _: ssd.from_tables(works.to_arrow(), cites.to_arrow()),
    **{kind: from_files(kind) for kind in ("csv", "parquet", "jsonl")},
}


def counts_of_second(corpus) -> tuple:
    scores = ssd.compute_cd_index(corpus.works, corpus.citations).sort("work_id").collect()
    return scores.select("n_i", "n_j", "n_k", "cd_index").row(1)


@pytest.mark.parametrize("way", WAYS)
def test_a_reference_joins_its_work_in_every_form_of_an_id(way, tmp_path):
    for number, (form, dtype) in enumerate(FORMS.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        works = pl.DataFrame({"work_id": [1, 2, 3, 4], "publication_year": YEARS})
        citing, cited = zip(*EDGES, strict=True)
        cites = pl.DataFrame(
            {"citing_id": list(citing), "cited_id": [form(n) for n in cited]},
            schema_overrides={"cited_id": pl.String if dtype == pl.Categorical else dtype},
        ).cast({"cited_id": dtype})
        assert counts_of_second(WAYS[way](works, cites, folder)) == (1, 0, 1, 0.5), (way, form(7))


@pytest.mark.parametrize("form", DOI_FORMS)
def test_a_doi_is_one_value_and_one_id_in_every_form(form):
    works = pl.DataFrame({"work_id": [f"10.1/a{n}" for n in range(1, 5)], "publication_year": YEARS})
    works = works.with_columns(doi=pl.Series([form.format(n) for n in range(1, 5)]))
    cites = pl.DataFrame(
        [(f"10.1/a{a}", form.format(b)) for a, b in EDGES], schema=["citing_id", "cited_id"], orient="row"
    )
    corpus = ssd.from_tables(works, cites)
    assert (
        ssd.compute_cd_index(corpus.works, corpus.citations).filter(original_id="10.1/a2").collect()["n_k"].item() == 1
    )
    assert corpus.works.collect()["doi"].sort().to_list() == [f"10.1/a{n}" for n in range(1, 5)]
    record = json.dumps({"id": "https://openalex.org/W1", "doi": form.format(1)}).encode()
    assert parsed(record)["doi"].item() == rows_of_lines(record + SPARE, 1)[0]["doi"].item() == "10.1/a1"
    assert pl.DataFrame({"doi": [form.format(1)]}).select(bare_dois(pl.col("doi"))).item() == "10.1/a1"


@pytest.mark.parametrize(
    "written",
    [
        quote(SICI),
        quote(quote(SICI.upper(), safe="")).lower(),
        f"https://doi.org/{SICI}",
        f"https://doi.org/{quote(SICI, safe='/():;')}#abstract",
        escape(SICI),
        escape(escape(SICI)).upper(),
        SICI.replace("<", "&#60;").replace(">", "&#x3E;") + ";",
        *(SICI.replace("-", dash) for dash in "\u2010\u2011\u2012\u2013\u2014\u2212"),
        SICI.replace("sici", "si\xadci"),
        f"(doi:{SICI}).",
    ],
)
def test_signs_inside_of_a_doi_count_however_they_are_encoded(written, caplog):
    works = pl.DataFrame({"work_id": [SICI, "b"], "publication_year": [2000, 2001], "doi": [written, SICI]})
    cites = pl.DataFrame({"citing_id": ["b"], "cited_id": [written]})
    if written.startswith("("):  # as an id that is a list
        cites = cites.with_columns(cited_id=pl.lit(written.strip("(.)")))
    with caplog.at_level(logging.WARNING):
        corpus = ssd.from_tables(works, cites)
    assert corpus.works.collect()["doi"].to_list() == [SICI, SICI]
    assert corpus.citations.collect()["cited_id"].item() == number_ids(pl.Series([SICI])).item()
    n_changed = corpus.provenance.get("changed_dois", 0)
    assert n_changed == (0 if written.endswith(SICI) else 1 if written.startswith("(") else 2)
    assert (f"{n_changed} DOI" in caplog.text) == bool(n_changed)


@pytest.mark.parametrize(
    "doi",
    [
        *(SICI, "10.1/a#1", "10.1/a#b", "10.1641/0006-3568(2000)050[0053:e]2.3.co;2", "10.1016/s0140-6736(05)"),
        *("10.1/a;b", "10.1/a,b", "10.1/a&b", "10.1/100%", "10.1/a?b", "10.1/[x]", "10.1/a<b", "10.1000.10/a"),
    ],
)
def test_a_plain_doi_is_not_cut(doi):
    assert read_dois(pl.Series([doi, None]))[0].to_list() == [doi, None]
    assert read_dois(pl.Series([doi]))[1].to_list() == [False]
    assert number_ids(pl.Series([doi, doi.upper(), f"doi:{doi}", quote(doi)])).n_unique() == 1


def test_records_and_labelled_files_say_how_many_dois_were_changed(tmp_path, caplog):
    dois = {"W1": SICI, "W2": f"https://doi.org/{quote(SICI)}", "W3": "10.1/a;"}
    rows = [{"id": id, "openalex_id": id, "cd_index": 0.5, "title": id, "doi": doi} for id, doi in dois.items()]
    for row in rows:
        row["publication_year"] = 2000
    pl.DataFrame(rows).write_ndjson(tmp_path / "rows.jsonl")
    inputs = (str(tmp_path / "rows.jsonl"),)
    with caplog.at_level(logging.WARNING):
        report = read_labelled_files(ssd.LabelledConfig(inputs=inputs), tmp_path / "cache").report
        of_records = pull_records(ssd.RecordsConfig(inputs=inputs), tmp_path / "records")
    assert report["changed_dois"] == of_records.provenance["changed_dois"] == 2
    assert of_records.works.sort("work_id").collect()["doi"].to_list() == [SICI, SICI, "10.1/a"]
    assert [message.split(" DOIs")[0] for message in caplog.messages] == ["labelled files: 2", "records: 2"]


@given(st.lists(st.text(min_size=1) | st.text("10./aZ()<>[]%23Ff&lt;;:?#-\u2010 doi.org", min_size=1), min_size=1))
def test_a_doi_in_its_one_form_stays_as_it_is_and_has_one_number(endings):
    written = pl.Series([f"10.1/a{ending}" for ending in endings])
    dois, _ = read_dois(written)
    again, is_changed = read_dois(dois)
    assert again.to_list() == dois.to_list()
    assert not is_changed.any()
    assert number_ids(written).to_list() == number_ids(dois).to_list()


@pytest.mark.parametrize(
    "text", ["9.06e+17", "1e+05", "9.06E17", "12345678901234567.0", "['W1', 'W2']", "W1|W2", "1;2"]
)
def test_an_id_that_lost_digits_or_holds_several_is_refused_by_name(text):
    works = pl.DataFrame({"work_id": [1], "publication_year": [2000]})
    with pytest.raises(SchemaMismatchError, match=r"'cited_id' holds .*(lost digits|several ids)"):
        ssd.from_tables(works, pl.DataFrame({"citing_id": [1], "cited_id": [text]}))


def test_text_that_only_looks_like_a_number_keeps_its_own_number():
    texts = ["12e45678", "1.5", "2004-05-01", "0704.0001", "5,123,456", "P1", "p1", "1.0.0"]
    numbers = number_ids(pl.Series(texts))
    assert numbers.n_unique() == len(texts)
    assert (numbers >= 2**62).all()


def test_floats_of_32_bits_are_refused_where_they_lose_digits():
    assert number_ids(pl.Series([2.0**24 - 1], dtype=pl.Float32)).item() == 2**24 - 1
    with pytest.raises(SchemaMismatchError, match="needs ids"):
        number_ids(pl.Series([2.0**24], dtype=pl.Float32))


@pytest.mark.parametrize("word", [*MISSING, "", " ", " NA "])
@pytest.mark.parametrize("way", ["polars", "pandas", "csv"])
def test_a_word_for_a_missing_value_is_null_and_counted(way, word, tmp_path, caplog):
    works = pl.DataFrame(
        {
            "work_id": ["a", "b"],
            "publication_year": YEARS[:2],
            "title": ["na", word],
            "doi": word,
            "language": ["na", word],
        }
    )
    cites = pl.DataFrame({"citing_id": ["b", "b"], "cited_id": ["a", word]})
    with caplog.at_level(logging.WARNING):
        corpus = WAYS[way](works, cites, tmp_path)
    rows = corpus.works.collect()
    assert rows.sort("original_id").select("title", "doi", "language").rows() == [
        ("na", None, "na"),
        (None, None, None),
    ]
    assert corpus.citations.collect().height == 1
    assert corpus.provenance["missing_values"] == (5 if word.strip() else 0)
    assert ("5 values are NA" in caplog.text) == bool(word.strip())


def test_the_list_of_missing_values_can_be_changed():
    works = pl.DataFrame({"work_id": ["a", "NA"], "publication_year": YEARS[:2], "language": ["--", "en"]})
    rows = ssd.from_tables(works, pl.DataFrame({"citing_id": ["NA"], "cited_id": ["a"]}), missing=("--",))
    assert rows.works.collect().sort("original_id")["language"].to_list() == ["en", None]
    assert rows.citations.collect().height == 1


@pytest.mark.parametrize(
    ("texts", "lists"),
    [
        (["['W2', 'W1']", "[]", "NA"], [["W2", "W1"], [], ["NA"]]),
        (["character(0)", 'c("W2", "W1")', 'list("W2")', "list()"], [[], ["W2", "W1"], ["W2"], []]),
        (["set()", "{'W2'}", "frozenset({'W2', 'W1'})"], [[], ["W2"], ["W2", "W1"]]),
        (["array([], dtype=int64)", "array([2, 1])", "[np.int64(2)]"], [[], ["2", "1"], ["2"]]),
        (['["W2","W1"]', "{W2,W1}", 'c("W2", "W1")', "('W2',)"], [["W2", "W1"]] * 3 + [["W2"]]),
        (["['W2' 'W1'\n 'W3']", "[2 1]", "[2.0, nan]"], [["W2", "W1", "W3"], ["2", "1"], ["2.0", "nan"]]),
        (["W2, W1", "w2 W1", "https://openalex.org/W2;https://openalex.org/W1"], [
            ["W2", "W1"], ["w2", "W1"], ["https://openalex.org/W2", "https://openalex.org/W1"],
        ]),
        (["P2, P1", "P2"], [["P2", "P1"], ["P2"]]),
        (["Roe, X; Wade", "Roe, X"], [["Roe, X", "Wade"], ["Roe, X"]]),
        (["a;b|c", "d;e"], [["a;b", "c"], ["d;e"]]),
        (["10.1/a&lt;2>;b; 10.1%2Fc", "<info:doi/10.1/d>, <doi:10.1/e>"], [
            ["10.1/a&lt;2>;b", "10.1%2Fc"], ["<info:doi/10.1/d>", "<doi:10.1/e>"],
        ]),
        (["10.1/a;2-b, doi:10.1/c", "10.1/d,e"], [["10.1/a;2-b", "doi:10.1/c"], ["10.1/d,e"]]),
    ],
)  # fmt: skip
def test_references_saved_as_text_are_cut_into_ids(texts, lists):
    assert split_references(pl.Series("refs", texts)).to_list() == lists


def test_a_list_that_was_shortened_is_refused():
    table = pl.DataFrame({"work_id": ["a"], "publication_year": [2000], "refs": ["['W1' 'W2' ... 'W9']"]})
    with pytest.raises(SchemaMismatchError, match="'refs' holds a list that was shortened"):
        ssd.from_tables(table, references="refs")


@pytest.mark.parametrize("references", ["NA", "[]", "['NA']", "", "[NA, nan]"])
def test_a_work_without_references_cites_no_phantom(references, tmp_path):
    rows = [
        (f"W{n}", year, refs)
        for n, year, refs in zip(range(1, 5), YEARS, [references, references, "W2", references], strict=True)
    ]
    frame = pl.DataFrame(rows, schema=["work_id", "publication_year", "refs"], orient="row")
    frame.write_csv(tmp_path / "works.csv")
    config = TablesConfig(works=(str(tmp_path / "works.csv"),), references="refs")
    for corpus in (ssd.from_tables(frame, references="refs"), ingest_tables(config, tmp_path / "corpus")):
        assert corpus.citations.collect().rows() == [(3, 2)]


@pytest.mark.parametrize("word", MISSING)
def test_records_read_such_words_as_null_by_columns_and_one_by_one(word):
    venue = {"source": {"id": word, "display_name": word}}
    texts = {"title": word, "doi": word, "language": word, "type": word, "primary_location": venue}
    records = [
        {"id": f"W{n}", **texts, "referenced_works": refs} for n, refs in enumerate(["['W7', 'W8']", word, [word]], 1)
    ]
    lines = [json.dumps(record).encode() for record in records]
    for rows in (rows_of_lines(b"\n".join(lines) + SPARE, 3).rows.drop("row"), parsed(*lines).drop("row")):
        assert rows["references"].to_list() == [[7, 8], [], []]
        for row in rows.to_dicts():
            names = ("title", "doi", "language", "work_type", "source_id", "source_name")
            assert [row[name] for name in names] == [None] * 6
            assert row["missing_values"] == 5


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_labelled_files_read_ids_dois_and_missing_values_by_the_same_rules(kind, tmp_path):
    row = {"publication_year": 2000, "cd_index": 0.5, "title": "NA", "language": "na", "source_id": "None"}
    frame = pl.DataFrame(
        [{"openalex_id": " w7", "doi": "DOI:10.1/A.", **row}, {"openalex_id": "008", "doi": "NA", **row}]
    )
    path = tmp_path / "rows"
    frame.write_ndjson(path) if kind == "jsonl" else frame.write_parquet(path)
    found = read_labelled_files(ssd.LabelledConfig(inputs=(str(path),)), tmp_path)
    columns = ("work_id", "doi", "title", "language", "source_id")
    assert found.rows.select(columns).collect().rows() == [(7, "10.1/a", None, "na", None), (8, None, None, "na", None)]
    assert found.report["missing_values"] == 5


def test_a_class_of_an_own_label_may_be_called_none(tmp_path):
    (tmp_path / "labels.csv").write_text("id,impact\nW1,None\nw2,NA\n003,top\n")
    label = ssd.OwnLabel(name="impact_label", classes=("top", "None"), column="impact", file=tmp_path / "labels.csv")
    rows = read_label_files(label, LabelFiles([tmp_path / "labels.csv"], ("id",)))
    assert sorted(rows.rows()) == [(1, "None"), (3, "top")]


def test_a_pandas_frame_whose_columns_are_numbers_is_named_by_them_as_text():
    works, cites, _ = ssd.from_tables(
        pl.DataFrame({"0": [1, 2], "1": [1990, 2000]}).to_pandas().set_axis([0, 1], axis=1),
        pl.DataFrame({"0": [2], "1": [1]}).to_pandas().set_axis([0, 1], axis=1),
        **{"id": "0", "year": "1", "citing": "0", "cited": "1"},
    )
    assert (works.collect().height, cites.collect().rows()) == (2, [(2, 1)])
