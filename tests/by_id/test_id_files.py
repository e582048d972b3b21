"""Ids are found in every form in which people have them, in their order, and a list without works is one error."""

from __future__ import annotations

import io
import json
import logging
import re

import polars as pl
import pytest

from sciscidata import normalize_doi
from sciscidata.errors import SciSciDataError
from sciscidata.records.listed_ids import list_ids, split_ids
from sciscidata.sources.id_files import read_ids
from sciscidata.sources.tables.files import TableFile

DOI = "10.1038/nature12373"


@pytest.mark.parametrize(
    "text",
    [
        "10.1038/NATURE12373",
        " doi:10.1038/nature12373",
        "DOI: 10.1038/nature12373.",
        "https://doi.org/10.1038/nature12373",
        "HTTP://DX.DOI.ORG/10.1038%2Fnature12373",
        "https://doi.org/10.1038%252Fnature12373;",
        "<https://doi.org/10.1038/nature12373>",
        "“10.1038/nature12373”",
        "(10.1038/nature12373).",
        "https://doi-org.library.example.org/10.1038/nature12373",
        "https://api.openalex.org/works/doi:10.1038/nature12373",
        "https://api.openalex.org/works/https://doi.org/10.1038/nature12373",
        "https://publisher.example.org/doi/abs/10.1038/nature12373?journalCode=n#top",
        "https://publisher.example.org/articles/10.1038/nature12373/full",
        "Poe 2013, see https://doi.org/10.1038/nature12373",
    ],
)
def test_a_doi_is_one_in_every_form(text):
    assert list_ids(pl.Series([text])).select("kind", "doi").row(0) == ("DOI", DOI)


@pytest.mark.parametrize(
    "text",
    [
        "W2741809807",
        " w2741809807 ",
        "2741809807",
        "openalex:W2741809807",
        "https://openalex.org/W2741809807",
        "http://openalex.org/w2741809807/",
        "https://openalex.org/works/W2741809807",
        "https://openalex.org/works/w2741809807?filter=x",
        "https://openalex.org/works?page=1&filter=title.search%3Adams&zoom=w2741809807",
        "https://api.openalex.org/works/W2741809807?select=id",
        "https://explore.openalex.org/works/W2741809807",
    ],
)
def test_an_openalex_id_is_one_in_old_and_new_forms(text):
    assert list_ids(pl.Series([text])).select("kind", "work_id", "doi").row(0) == ("OpenAlex", 2741809807, None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("A5023888391", "an author"), ("https://openalex.org/authors/a5023888391", "an author"), ("S123", "a venue"),
     ("WOS:000123", "other"), ("2.74E+09", "other"), ("", None), (" . ", None), (None, None)],
)  # fmt: skip
def test_what_is_no_work_is_called_what_it_is(text, kind):
    assert list_ids(pl.Series([text], dtype=pl.String())).select("kind", "doi").row(0) == (kind, None)


def test_a_pasted_text_is_taken_apart_in_its_order_with_its_repeats():
    text = f"""DOI
{DOI}, https://doi.org/10.1000/B; W1234|w1235

- Poe, E. (1845). The raven, 3, p. 5. doi: 10.1000/c
10.1002/(SICI)1097-4679(199905)55:5<617::AID-JCLP9>3.0.CO;2-8
W1234
ours-7
"""
    sici = "10.1002/(SICI)1097-4679(199905)55:5<617::AID-JCLP9>3.0.CO;2-8"
    expected = [DOI, "https://doi.org/10.1000/B", "W1234", "w1235", "doi: 10.1000/c", sici, "W1234", "ours-7"]
    assert split_ids(text) == expected == read_ids(text).rows["asked"].to_list()


RIS = "TY  - JOUR\nTI  - Dams\nDO  - 10.1000/A\nPY  - 2001\nER  - \n\nTY  - JOUR\nTI  - Weirs\nPY  - 2001\nER  - \n"
BIBTEX = "@article{a, title={Dams}, doi={10.1000/A}, year=2001}\n@book{b, title={Weirs}, year={2002}}\n"
CSL = json.dumps([{"id": "a", "DOI": "10.1000/A", "title": "Dams"}, {"id": "b", "title": "Weirs"}])


@pytest.mark.parametrize(
    ("content", "asked", "where"),
    [
        ("10.1000/A\n10.1000/b\n10.1000/A\n", ["10.1000/A", "10.1000/b", "10.1000/A"], "in "),
        ("paper\n10.1000/A\n", ["10.1000/A"], "first line, 'paper', is taken for a heading"),
        ("ours-7\n10.1000/A\nours-8\n", ["ours-7", "10.1000/A", "ours-8"], "in "),
        ('doi\n"10.1000/A"\n', ["10.1000/A"], "in "),
        ("title,DOI,year\nX,10.1000/A,2001\nY,,2003\n", ["10.1000/A", None], "column 'DOI'"),
        ("DOI;id;title\n10.1000/A;W12;X\n;W13;Y\n", ["W12", "W13"], "column 'id'"),
        ("id\ttitle\nW123\tA\nW124\tB\n", ["W123", "W124"], "column 'id'"),
        ("work_id,year\n2741809807,2001\n5,2002\n", ["2741809807", "5"], "column 'work_id'"),
        ('10.1000/A,Dams,2001\n10.1000/b,"Weirs, locks",2002\n', ["10.1000/A", "10.1000/b"], "in "),
        (RIS, ["10.1000/A", "no DOI: Weirs"], "in "),
        (BIBTEX, ["10.1000/A", "no DOI: Weirs"], "in "),
        (RIS.replace("TI  - Weirs", "UR  - https://doi.org/10.1000/B"), ["10.1000/A", "10.1000/b"], "in "),
        (BIBTEX.replace("year={2002}", "url={https://doi.org/10.1000/B}"), ["10.1000/A", "10.1000/b"], "in "),
        (
            "doi,work_id,title\n10.1000/A,,X\n,W13,Y\n10.1000/B,W14,Z\n,,V\n",
            ["10.1000/A", "W13", "W14", None],
            "column 'work_id', where that is blank 'doi', of",
        ),
        ('{"dois": ["10.1000/A", "10.1000/B"]}', ["10.1000/A", "10.1000/B"], "in "),
        ("<html><body><a href='https://doi.org/10.1000/A'>x</a></body></html>", ["https://doi.org/10.1000/A"], "in "),
        ("10.1000 / a\n10.1000/ b. Seen in 10.1000/c\n", ["10.1000/a", "10.1000/b.", "10.1000/c"], "in "),
        (CSL, ["10.1000/A", None], "column 'DOI'"),
        ('{"items": ' + CSL + "}", ["10.1000/A", None], "column 'DOI'"),
        ('["10.1000/A", "W12", 13]', ["10.1000/A", "W12", "13"], "in "),
        ('{"openalex_id": "W12", "title": "A"}\n{"openalex_id": "W13", "title": "B"}\n', ["W12", "W13"], "openalex_id"),
        ("10.1000/A\n".encode("utf-16"), ["10.1000/A"], "in "),
    ],
)
def test_files_of_every_form_are_read_by_their_content(tmp_path, caplog, content, asked, where):
    path = tmp_path / "ids.anything"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with caplog.at_level(logging.INFO, "sciscidata"):
        listed = read_ids(path)
    assert listed.rows["asked"].to_list() == asked
    assert where in caplog.text
    assert listed.stated["file"] == path.name


def test_records_are_read_without_a_column_for_each_word_of_their_abstracts(tmp_path, monkeypatch):
    read, n_columns = TableFile.read, []
    monkeypatch.setattr(
        TableFile, "read", lambda self, names, *rest: n_columns.append(len(names)) or read(self, names, *rest)
    )
    words = {f"word{n}": [n] for n in range(2_000)}
    rows = [{"title": "A", "ids": {"doi": f"10.1000/{n}", "isbn": 5}, "abstract": words} for n in (1, 2)]
    (tmp_path / "works.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_ids(tmp_path / "works.jsonl").rows["doi"].to_list() == ["10.1000/1", "10.1000/2"]
    assert sum(n_columns) < 10
    assert read_ids(tmp_path / "works.jsonl", "ids.doi").rows.height == 2


def test_what_may_be_another_kind_of_id_is_named(caplog):
    with caplog.at_level(logging.INFO, "sciscidata"):
        read_ids(["10.1000/a", "PMID: 12345678"])
    assert "1 of another form, such as 'PMID: 12345678'" in caplog.text
    assert "PubMed" not in caplog.text
    read_ids(["12345678", "23456789", None])
    assert "If they are PubMed ids, look up their DOIs" in caplog.text


def test_columns_of_parquet_frames_and_lists_are_read(tmp_path):
    frame = pl.DataFrame({"year": [2001, 2002], "paper": ["W1234", "W1235"], "doi": ["10.1000/a", None]})
    frame.write_parquet(tmp_path / "mine.parquet")
    for given in (tmp_path / "mine.parquet", frame, frame.lazy(), frame.to_pandas()):
        assert read_ids(given).rows["work_id"].to_list() == [1234, 1235]
        assert read_ids(given, "doi").rows["doi"].to_list() == ["10.1000/a", None]
    for given in (frame["paper"], ["W1234", "W1235"], (1234, 1235), frame["paper"].to_pandas()):
        assert read_ids(given).rows["work_id"].to_list() == [1234, 1235]


def test_ids_come_from_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("W12\nW13\n"))
    assert read_ids("-").rows["work_id"].to_list() == [12, 13]


@pytest.mark.parametrize(
    ("content", "column", "message"),
    [
        ("", None, "is empty, needs ids"),
        ("\n \n", None, "is empty, needs ids"),
        ("title,year\nA,2001\n", None, "no column of .* holds DOIs or OpenAlex ids; it has title, year"),
        ("title,DOI\nA,10.1000/a\n", "DIO", "no column 'DIO'; it has title, DOI. Did you mean DOI"),
        ("year,DOI\n,10.1000/a\n", "year", "column 'year' of .* holds no id of a work. DOI does"),
        ("id\nA5023888391\nA5023888392\n", None, "'A5023888391' is the id of an author. Name works"),
        (b"%PDF-1.4\n\0\1", None, "is a PDF. Copy its ids into a text file"),
        (b"PK\3\4xl/ \0\0", None, "is a workbook. Save its sheet as 'CSV UTF-8'"),
        ("<!doctype html><html>a, b</html>", None, "is no table"),
    ],
)
def test_a_file_without_ids_is_one_clear_error(tmp_path, content, column, message):
    path = tmp_path / "ids.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SciSciDataError, match=message):
        read_ids(path, column)


@pytest.mark.parametrize(
    ("given", "message"),
    [("no.csv", "no.csv does not exist. Check the path"), (5, "ids is of type int"), ([], "the list given holds no id"),
     (["A12", "A13"], "is the id of an author"), ({"a": 1}, "ids is of type dict")],
)  # fmt: skip
def test_anything_else_is_one_clear_error(given, message):
    with pytest.raises(SciSciDataError, match=message):
        read_ids(given)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(SciSciDataError, match=r"is a folder\. Name a file in it"):
        read_ids(tmp_path)


def test_a_column_named_without_ids_is_read_and_warned_of(caplog):
    frame = pl.DataFrame({"title": ["A"], "doi": ["10.1000/a"]})
    assert read_ids(frame, "title").rows["kind"].to_list() == ["other"]
    assert re.search("column 'title' of the frame given holds no DOI and no OpenAlex id. doi does", caplog.text)


def test_a_public_function_writes_dois_in_the_form_of_works():
    mine = pl.DataFrame({"doi": ["10.1/A", "doi:10.1/b", "HTTP://DX.DOI.ORG/10.1/C", "unknown", None]})
    works = pl.LazyFrame({"doi": ["10.1/a", "10.1/b", "10.1/c"], "work_id": [1, 2, 3]})
    joined = mine.lazy().with_columns(normalize_doi(pl.col("doi"))).join(works, on="doi").collect()
    assert joined["work_id"].sort().to_list() == [1, 2, 3]
    assert normalize_doi(mine["doi"]).to_list() == ["10.1/a", "10.1/b", "10.1/c", None, None]
    assert (normalize_doi("https://doi.org/10.1/A"), normalize_doi("dams"), normalize_doi(None)) == (
        "10.1/a",
        None,
        None,
    )
    for wrong in (5, pl.Series([5])):
        with pytest.raises(SciSciDataError, match="needs text"):
            normalize_doi(wrong)
