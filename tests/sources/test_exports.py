"""Exports of Web of Science and Scopus: made-up records in the real formats."""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import random
import re
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sciscidata as ssd
from sciscidata.cli.main import main
from sciscidata.errors import CorruptRecordError, EmptyInputError, InputNotFoundError, SchemaMismatchError
from sciscidata.schemas import Corpus
from sciscidata.sources.exports.bibtex import read_entries
from sciscidata.sources.exports.formats import read_export
from sciscidata.sources.exports.references import Form, split_references

WOS_TEXT = """\ufeffFN Clarivate Analytics Web of Science
VR 1.0
PT J
AU Van der Leeuw, SE
   Poe, EA
AF Van der Leeuw, Sander E.
TI Weirs and dams of the lower
   river
SO JOURNAL OF MADE-UP RIVERS
LA English
DT Article; Retracted Publication
DE weirs; river mouths
AB A weir is no dam.
TC 7
PY 1990
VL 12
BP 0101
EP 109
DI 10.1234/AB.1
WC Water Resources; Geology
UT WOS:A1990
ER

PT J
AU Noé, S
TI Dams without a DOI in made-up valleys
SO THE VALLEY REVIEW
LA Spanish
DT Article
PY 1995
VL 3-4
AR e77
UT WOS:A1995
CR VANDERLEEUW S, 1990, J MADE UP RIVERS, V12, P101
   Poe E., 1849, BOOK OF BELLS
ER

PT J
AU Li, X
TI What rivers are
SO NEW RIVERS
PY 2001
VL 1
BP 1
UT WOS:A2001
CR van der Leeuw S., 1990, Journal of Made-up Rivers, V12, P101, DOI [10.1234/ab.1, DOI 10.1234/AB.1]
   Noe Sofia, 1995, VALLEY REV, V3-4, pe77
   Poe E., 1849, Book of Bells
   Roe R, 1980, NATURE X, V9, P9, DOI 10.9999/roe
ER

PT J
AU Li, XY
TI What weirs are
SO NEW RIVERS
PY 2002
VL 2
BP 1
UT WOS:A2002
CR Roe RR, 1980, NATURE X, V9, P9
   Li X, 2001, NEW RIVERS, V1, P2
ER

EF
"""
SCOPUS = [
    ("2-s2.0-1", "Van der Leeuw S.E.; Poe E.A.", "Weirs and dams of the lower river", "1990", "101", "10.1234/ab.1"),
    ("2-s2.0-2", "Noé S.", "Dams, without a DOI, in made-up valleys", "1995", "77", ""),
    ("2-s2.0-3", "Li X.", "What rivers are", "2001", "1", ""),
]
#: By place, by title, and outside twice, as Scopus wrote them before 2023 and since.
OLD = (
    "Van der Leeuw, S.E., Poe, E.A., Weirs and dams (1990) Rivers, 12 (3), pp. 101-109; "
    "Noé, S., Dams, without a DOI, in made-up valleys (1995) Rivers; Poe, E., (1849) Bells; POE E., (1849) Bells"
)
NEW = (
    "Van der Leeuw S.E., Poe E.A., Weirs and dams, Rivers, 12, 3, pp. 101-109, (1990); "
    "Noé S., Dams, without a DOI, in made-up valleys, Rivers, (1995); Poe E., Bells, (1849); Poe, E., Bells, (1849)"
)


def scan(*files: Path) -> Corpus:
    return ssd.scan_exports(ssd.ExportsConfig(files=tuple(map(str, files))))


def cited_by(corpus: Corpus) -> dict[str, list[str]]:
    """What each work cites; a work outside the files is named after those that cite it."""
    ids = dict(corpus.works.select("work_id", "original_id").collect().rows())
    citing: dict[int, list[str]] = {}
    for one, cited in corpus.citations.collect().rows():
        citing.setdefault(cited, []).append(ids[one])
    graph: dict[str, list[str]] = {}
    for cited, ones in citing.items():
        for one in ones:
            graph.setdefault(one, []).append(ids.get(cited, " ".join(["outside, by", *sorted(ones)])))
    return {one: sorted(cited) for one, cited in graph.items()}


def last(eid: str, text: str) -> str:
    return text if eid == "2-s2.0-3" else ""


def scopus_csv(references: str) -> str:
    rows = [",".join(f'"{one}"' for one in (*work, "12", "Rivers", last(work[0], references))) for work in SCOPUS]
    return "\n".join(["EID,Authors,Title,Year,Page start,DOI,Volume,Source title,References", *rows, ""])


def scopus_semicolons(references: str) -> str:
    """As a spreadsheet may save it."""
    head, _, rows = scopus_csv(references).partition("\n")
    return head.replace(",", ";") + "\n" + rows.replace('","', '";"')


def scopus_ris(references: str) -> str:
    records = [
        f"TY  - JOUR\nTI  - {title}\nT2  - Rivers\nVL  - 12\nSP  - {page}\nPY  - {year}\nDO  - {doi}\nAU  - {authors}\n"
        f"N1  - Cited By :7\nN1  - Export Date: 3 July 2020\n"
        + last(eid, f"N1  - References: {references.replace('; ', '; ' + chr(10))}\n")
        + f"UR  - https://www.scopus.com/inward/record.uri?eid={eid}&partnerID=40\nER  - \n"
        for eid, authors, title, year, page, doi in SCOPUS
    ]
    return "\n".join(records)


def scopus_bib(references: str) -> str:
    records = [
        f"@ARTICLE{{Key{year},\nauthor={{{authors}}},\ntitle={{{title}}},\njournal={{Rivers}},\nyear={{{year}}},\n"
        f"volume={{12}},\npages={{{page}-200}},\ndoi={{{doi}}},\nnote={{cited By 7}},\n"
        f"references={{{last(eid, references)}}},\n"
        f"url={{https://www.scopus.com/inward/record.uri?eid={eid}&partnerID=40}},\n}}\n"
        for eid, authors, title, year, page, doi in SCOPUS
    ]
    return "Scopus\nEXPORT DATE: 20 July 2015\n\n" + "\n".join(records)


def wos_records() -> list[dict[str, str]]:
    lines = [record.replace("\n   ", "\0").splitlines() for record in WOS_TEXT.partition("VR 1.0\n")[2].split("ER\n\n")]
    return [{line[:2]: line[3:] for line in record} for record in lines[:-1]]


def wos_tab() -> str:
    tags = dict.fromkeys(tag for record in wos_records() for tag in record)
    rows = [[record.get(tag, "").replace("\0", "; ") for tag in tags] for record in wos_records()]
    return "\r\n".join(["\t".join(tags), *("\t".join([*row, ""]) for row in rows), ""])


def saved_again(table: str, delimiter: str = ",", quoting: int = csv.QUOTE_MINIMAL) -> str:
    """As a spreadsheet saves tab-delimited text: cells in quotes, and all rows of one length."""
    file = io.StringIO()
    rows = [row.split("\t") for row in table.split("\r\n") if row]
    csv.writer(file, delimiter=delimiter, quoting=quoting).writerows(rows)  # pyright: ignore[reportArgumentType]
    return file.getvalue()


def with_index(table: str) -> str:
    """As pandas saves a table: a column without a name comes first."""
    return "".join(f"{number or ''},{row}\r\n" for number, row in enumerate(table.split("\r\n")) if row)


def wos_sheet() -> str:
    """The sheet of Web of Science, whose columns have names."""
    names = {"TI": "Article Title", "AU": "Authors", "SO": "Source Title", "PY": "Publication Year", "VL": "Volume"}
    names |= {
        "BP": "Start Page",
        "AR": "Article Number",
        "DI": "DOI",
        "CR": "Cited References",
        "PT": "Publication Type",
    }
    head, _, rows = saved_again(wos_tab()).partition("\r\n")
    names["UT"] = "UT (Unique WOS ID)"
    return ",".join([names.get(name, f"Other {name}") for name in head.split(",")]) + "\r\n" + rows


def wos_bib() -> str:
    names = {"AU": "Author", "TI": "Title", "SO": "Journal", "PY": "Year", "VL": "Volume", "BP": "Pages", "DI": "DOI"}
    names |= {"AR": "Article-Number", "CR": "Cited-References", "UT": "Unique-ID"}
    records = [
        "".join(f"{name} = {{{{{record[tag]}}}}},\n" for tag, name in names.items() if tag in record)
        for record in wos_records()
    ]
    return "\n".join(f"@article{{ WOS:KEY,\n{record}}}\n" for record in records).replace("\0", ".\n   ")


def test_a_record_becomes_a_work(tmp_path):
    (tmp_path / "savedrecs.txt").write_text(WOS_TEXT, "utf-8")
    work = scan(tmp_path / "savedrecs.txt").works.collect().filter(original_id="WOS:A1990").row(0, named=True)
    venue = work.pop("source_id")
    assert work.pop("work_id") >= 2**62
    assert venue is not None
    assert work == {
        "original_id": "WOS:A1990",
        "publication_year": 1990,
        "title": "Weirs and dams of the lower river",
        "abstract": "A weir is no dam.",
        "cited_by_count": 7,
        "primary_field": "Water Resources",
        "concepts": ["weirs", "river mouths"],
        "source_name": "JOURNAL OF MADE-UP RIVERS",
        "language": "en",
        "work_type": "article",
        "is_retracted": True,
        "doi": "10.1234/ab.1",
        "n_authors": 2,
    }


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (WOS_TEXT, "utf-8"),
        (WOS_TEXT[1:].replace("\n", "\r\n"), "utf-16"),
        (wos_tab(), "utf-16"),
        (wos_bib(), "utf-8-sig"),
        (WOS_TEXT.replace(" S, 1990", ", S, 1990").replace("Li X, ", "Li, X, ").replace("Poe E.", "Poe, E."), "utf-8"),
        (re.sub(r"^(.*,.*)$", r'"\1"', WOS_TEXT[1:], flags=re.M), "utf-8"),
        (WOS_TEXT.replace("\n   ", "\n"), "utf-8"),
        (saved_again(wos_tab()), "utf-8-sig"),
        ("sep=;\n" + saved_again(wos_tab(), ";", csv.QUOTE_ALL), "utf-8"),
        (saved_again(wos_tab(), "\t", csv.QUOTE_ALL), "utf-8"),
        (saved_again(wos_tab()) * 2, "utf-8"),
        (wos_sheet(), "utf-8"),
        (with_index(saved_again(wos_tab())), "utf-8"),
        (saved_again(wos_tab().replace("\t\t", "\tNA\t").replace("\t\t", "\tNA\t")), "utf-8"),
        (saved_again(wos_tab().replace("\t", " \t ")), "utf-8"),
        (saved_again(wos_tab().replace("; ", ";\n"), "\t"), "utf-8"),
        (saved_again(wos_tab().replace("; ", ";"), "|"), "utf-8"),
    ],
    ids=[
        *(
            "text",
            "text-utf-16",
            "tab",
            "bibtex",
            "comma-before-initials",
            "lines-in-quotes",
            "no-indents",
            "csv",
            "semicolons-with-separator-line",
        ),
        *("tab-with-quotes", "csv-twice", "sheet", "with-index", "with-NA", "padded", "lines-in-cells", "no-blanks"),
    ],
)
def test_every_format_of_web_of_science_gives_the_same_graph(tmp_path, text, encoding):
    (tmp_path / "savedrecs.txt").write_bytes(text.encode(encoding))
    book, paper = "outside, by WOS:A1995 WOS:A2001", "outside, by WOS:A2001 WOS:A2002"
    assert cited_by(scan(tmp_path / "savedrecs.txt")) == {
        "WOS:A1995": ["WOS:A1990", book],
        "WOS:A2001": ["WOS:A1990", "WOS:A1995", book, paper],
        "WOS:A2002": [paper, "outside, by WOS:A2002"],
    }


@pytest.mark.parametrize(
    ("fields", "reference"),
    [
        ("SO IEEE T AUTOMAT CONTR\nPY 1974\nVL AC19\nBP 716\n", "Poe E, 1974, IEEE T AUTOMAT CONTR, VAC19, P716"),
        ("SO RIVERS\nPY 1974\nVL 19\nBP 716\n", "Poe E,1974,RIVERS,V19,P716"),
        ("SO RIVERS\nPY 1974\nVL 19\nBP 716\n", "Poe E,  1974, RIVERS, v 19, pp. 716-720"),
        ("SO RIVERS\nPY 1974\nVL 19\nBP P716\n", "Poe E, 1974, RIVERS, V19, PP716"),
        ("DI 10.1234/a\n", "Poe E, IN PRESS RIVERS, DOI DOI https://doi.org/10.1234/A."),
    ],
)
def test_volume_and_page_are_read_however_a_reference_writes_them(tmp_path, fields, reference):
    text = f"PT J\nAU Poe, E\nTI A\n{fields}UT A\nER\n\nPT J\nTI B\nCR {reference}\nUT B\nER\n"
    (tmp_path / "savedrecs.txt.gz").write_bytes(gzip.compress(text.encode()))
    assert cited_by(scan(tmp_path / "savedrecs.txt.gz")) == {"B": ["A"]}


@pytest.mark.parametrize("references", [OLD, NEW], ids=["until-2023", "since-2023"])
@pytest.mark.parametrize("write", [scopus_csv, scopus_semicolons, scopus_ris, scopus_bib])
def test_every_format_of_scopus_gives_the_same_graph(tmp_path, write, references):
    (tmp_path / "scopus.any").write_text(write(references), "utf-8-sig")
    corpus = scan(tmp_path / "scopus.any")
    assert cited_by(corpus) == {"2-s2.0-3": ["2-s2.0-1", "2-s2.0-2", "outside, by 2-s2.0-3"]}
    assert sorted(corpus.works.select("n_authors").collect().to_series()) == [1, 1, 2]
    if write in (scopus_ris, scopus_bib):
        assert corpus.works.select("cited_by_count").collect().to_series().to_list() == [7, 7, 7]


@pytest.mark.parametrize(
    ("text", "n_authors"),
    [
        ('EID,Authors\n2-s2.0-9,"Van der Leeuw S.E., Borras S.M., Jr., Yang Shu"', 3),
        ('EID,Authors,Author(s) ID\n2-s2.0-9,"M.I., El-Barbary, Manal I.",7;', 1),
        ("EID,Authors\n2-s2.0-9,[No author name available]", None),
        ("@article{ K,\nauthor = {Noé, S. and\n   Poe, E. and Anders, B.},\n}", 3),
        ("TY  - JOUR\nAU  - Noé, S.\nAU  - Poe, E.\nDO  - 10.1/A\nER  - \n", 2),
        ("PT J\nAU [Anonymous]\nUT WOS:A\nER\n", None),
    ],
)
def test_authors_are_counted_in_every_format(tmp_path, text, n_authors):
    (tmp_path / "export.any").write_text(text, "utf-8")
    assert read_export(tmp_path / "export.any").rows["n_authors"].cast(pl.Int32).to_list() == [n_authors]


def test_a_work_of_several_files_is_read_once(tmp_path, caplog):
    for name, text in {"a.txt": WOS_TEXT, "b.txt": WOS_TEXT, "c.csv": scopus_csv(""), "d.csv": scopus_csv(OLD)}.items():
        (tmp_path / name).write_text(text, "utf-8")
    corpus = scan(*(tmp_path / name for name in ("a.txt", "b.txt", "c.csv")))
    ids = corpus.works.select("original_id").collect().to_series().to_list()
    assert sorted(ids) == ["2-s2.0-2", "2-s2.0-3", "WOS:A1990", "WOS:A1995", "WOS:A2001", "WOS:A2002"]
    assert "no record has cited references in c.csv" in caplog.text
    assert len(cited_by(scan(tmp_path / "d.csv", tmp_path / "a.txt"))["2-s2.0-3"]) == 3


BAD = {
    "empty": (b"", EmptyInputError, "holds no record"),
    "no-references": (
        WOS_TEXT.replace("\nCR ", "\nXX ").encode(),
        SchemaMismatchError,
        "Full Record and Cited References",
    ),
    "another-table": (b"id,year\n1,2000\n", SchemaMismatchError, "begins with 'id,year.*TablesConfig.works"),
    "cut": (WOS_TEXT[:-60].encode(), CorruptRecordError, "ends inside a record"),
    "latin": (WOS_TEXT[1:].encode("latin-1"), CorruptRecordError, "no text in UTF-8"),
    "no-end": (WOS_TEXT.replace("ER\n\nPT", "PT", 1).encode(), CorruptRecordError, "lacks an ER"),
    "workbook": (b"PK\x03\x04...xl/workbook.xml", CorruptRecordError, "a workbook. Save its sheet"),
    "old-workbook": (b"\xd0\xcf\x11\xe0...", CorruptRecordError, "a workbook. Save its sheet"),
    "zip": (b"PK\x03\x04...savedrecs.txt", CorruptRecordError, "packed as ZIP. Unpack it"),
    "cut-gzip": (gzip.compress(WOS_TEXT.encode())[:-99], CorruptRecordError, r"savedrecs.txt: .*Get the file again"),
    "two-in-one-line": (b"EID,Title\n2-s2.0-1,Dams2-s2.0-2,Weirs,\n", CorruptRecordError, "more cells than the header"),
    "dimensions": (
        b"Rank,Publication ID,DOI,Title,Source title\n1,pub.1,10.1/a,Dams,Rivers\n",
        SchemaMismatchError,
        "no export of Web of Science or Scopus",
    ),
    "cut-cell": (f"EID,References\n2-s2.0-1,{'x' * 32_767}\n".encode(), CorruptRecordError, "cut a text after 32,767"),
    "shifted": (b"EID,Title\n2-s2.0-1,Dams,and weirs\n", CorruptRecordError, "a cell more than the header.*and weirs"),
    "open-brace": (
        b"@article{a1,\ntitle={Dams,\nyear={1990},\n}\n@article{b2,\ntitle={B},\n}",
        CorruptRecordError,
        "'a1'",
    ),
    "cut-bibtex": (b"@article{a1,\ntitle={Dams", CorruptRecordError, "'a1' does not end"),
    "quotes": (b'EID,Title\n2-s2.0-1,"Dams\n', CorruptRecordError, "Export it again"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_with_the_remedy(tmp_path, name):
    content, error, message = BAD[name]
    (tmp_path / "savedrecs.txt").write_bytes(content)
    with pytest.raises(error, match=message):
        scan(tmp_path / "savedrecs.txt").works.collect()


def test_a_missing_file_is_refused_before_reading(tmp_path):
    with pytest.raises(InputNotFoundError, match="matches no file"):
        scan(tmp_path / "*.txt")


def test_scores_and_a_release_are_those_of_the_graph_itself(tmp_path, capsys):
    draw = random.Random(7)
    years = [1980 + number // 25 for number in range(1_000)]
    edges = [
        (citing, cited) for citing in range(25, 1_000) for cited in {draw.randrange(citing - 24) for _ in range(6)}
    ]
    cited: dict[int, list[int]] = {}
    for one, other in edges:
        cited.setdefault(one, []).append(other)

    def reference(number: int) -> str:
        return f"Au{number} X, {years[number]}, J, V{number}, P7" + f", DOI 10.1234/{number}" * (number % 2)

    records = [
        f"PT J\nAU Au{number}, X\nTI Work {number}\nAB About {number}\nSO J\nLA English\nPY {years[number]}\n"
        f"VL {number}\nBP 7\nDI 10.1234/{number}\n"
        + ("CR " + "\n   ".join(map(reference, cited[number])) + "\n" if number in cited else "")
        + f"UT WOS:{number}\nER\n"
        for number in range(1_000)
    ]
    for part in (0, 1):
        (tmp_path / f"savedrecs{part}.txt").write_text("\n".join(records[part::2]))
    works, citations, _ = scan(tmp_path / "savedrecs*.txt")
    table = pl.DataFrame({"id": [f"WOS:{number}" for number in range(1_000)], "year": years})
    pairs = pl.DataFrame(
        [(f"WOS:{one}", f"WOS:{other}") for one, other in edges], ("citing_id", "cited_id"), orient="row"
    )
    expected = ssd.from_tables(table, pairs, id="id", year="year")
    scores = [ssd.compute_cd_index(*frames).collect().sort("work_id") for frames in ((works, citations), expected[:2])]
    assert scores[0].equals(scores[1])
    split = ["--balance", "none", "--n-train", "60", "--n-test", "9", "--no-novelty", "--last-year", "2019"]
    code = main(["build", "--exports", str(tmp_path / "savedrecs*.txt"), *split, "--out", str(tmp_path / "release")])
    assert code == 0, capsys.readouterr().err
    release = ssd.read_release(tmp_path / "release")
    assert release.train["openalex_id"].str.starts_with("WOS:").all()
    source = release.manifest["source"]
    assert (source["kind"], source["records"], source["matched_by_doi"]) == (
        "exports",
        1_000,
        sum(n % 2 for _, n in edges),
    )
    assert source["matched_by_doi"] + source["matched_by_key"] == source["citations"] == len(edges)


@pytest.mark.parametrize(
    ("form", "text", "references"),
    [
        (
            Form.SCOPUS_2025,
            "Poe E.A.; van der Leeuw S.; Roe R., Weirs; dams, Maps, 3, pp. 1-9, (2001); The burden, Maps, 5, (2023)",
            "Poe E.A., van der Leeuw S., Roe R., Weirs; dams, Maps, 3, pp. 1-9, (2001) | The burden, Maps, 5, (2023)",
        ),
        (
            Form.SCOPUS_2025,
            "Calin GA; Lo Bue E, A study, Maps, (2005); R Core Team; WHO, R, (2021); Poe E., Jr.; Roe R., X, (1990)",
            "Calin GA, Lo Bue E, A study, Maps, (2005) | R Core Team, WHO, R, (2021) | Poe E., Jr., Roe R., X, (1990)",
        ),
        (
            Form.SCOPUS_2025,
            "Poe E., Bells, Harper; Roe R.; Noe N., The war (1914); a study, Maps, (1991); Moe M., Locks, Harper",
            "Poe E., Bells, Harper | Roe R., Noe N., The war (1914); a study, Maps, (1991) | Moe M., Locks, Harper",
        ),
        (
            Form.SCOPUS_2023,
            "Poe E., Roe R., Weirs, Maps, 3, pp. 1-9, (2001a); Noe N., Dams; a study, Maps, (2001b)",
            "Poe E., Roe R., Weirs, Maps, 3, pp. 1-9, (2001a) | Noe N., Dams; a study, Maps, (2001b)",
        ),
        (
            Form.SCOPUS_2004,
            "Poe, E.A., Weirs; dams (1990) Maps, 12 (3), pp. 1-9; Lenth, R.V., lsmeans, , http://x; Noe, N., (1849) "
            "Bells; a novel, , Harper; Dams (2013) IPCC; p",
            "Poe, E.A., Weirs; dams (1990) Maps, 12 (3), pp. 1-9 | Lenth, R.V., lsmeans, , http://x | Noe, N., (1849) "
            "Bells; a novel, , Harper | Dams (2013) IPCC, p",
        ),
        (
            Form.WOS,
            "Poe, EA, 1990, MAPS,\nV1, P7\nRoe R, 1995, X\nDOI 10.1/x\n[Anonymous], Z\nPoe E, 2023, A,\nRoe R, 2023",
            "Poe, EA, 1990, MAPS, V1, P7 | Roe R, 1995, X DOI 10.1/x | [Anonymous], Z | Poe E, 2023, A, | Roe R, 2023",
        ),
        (
            Form.WOS,
            "Poe EA, 1990, RIVERS OF\nALL, V1, P7.\nRoe R, 1995, LAKES.",
            "Poe EA, 1990, RIVERS OF ALL, V1, P7. | Roe R, 1995, LAKES.",
        ),
    ],
    ids=["2025", "2025-odd-names", "2025-without-year", "2023", "until-2023", "wos", "wos-bibtex"],
)
def test_references_are_split_where_the_site_parts_them(form, text, references):
    found, texts, _ = split_references(text)
    assert (found, texts) == (form, references.split(" | "))


def test_a_reference_with_several_dois_is_the_work_that_has_any_of_them(tmp_path):
    sici = "10.1641/0006-3568(2002)052[0019:PTLBTR]2.0.CO;2"
    records = [("A", sici, ""), ("B", "10.1234/b", ""), ("C", "", f"X, 1990, Y, DOI [10.1234/lost, {sici}]")]
    records += [("D", "", "X, 1990, Y, DOI 10.1234/LOST"), ("E", "", "X, 1990, Y, DOI [10.9/p, DOI 10.9/q]")]
    records += [("F", "", "Y, 1991, DOI 10.9/q"), ("G", "", "Poe E, 1980, MAPS, V1, P1, DOI [10.9/r, 10.1234/b]")]
    text = "".join(
        f"PT J\nAU Au{name}, X\nPY 2000\nVL 3\nBP 5\nSO LAKES\nDI {doi}\nCR {references}\nUT {name}\nER\n\n"
        for name, doi, references in records
    )
    (tmp_path / "savedrecs.txt").write_text(text)
    outside = "outside, by E F"
    expected = {"C": ["A"], "D": ["A"], "E": [outside], "F": [outside], "G": ["outside, by G"]}
    assert cited_by(scan(tmp_path / "savedrecs.txt")) == expected  # 10.1234/b is of 2000, and no work of 1980


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("@article{de la Roe, Jr 1995,\n title={Y}}", {"key": "de la Roe, Jr 1995", "title": "Y"}),
        ("@article(p2, title={Y}, year=1995)", {"key": "p2", "title": "Y", "year": "1995"}),
        ("@a{k, abstract={As in\n@misc{x, y={z}}\n  year = 2014.}, year={{1990}}}", {"key": "k", "year": "1990"}),
        (
            '@string{jr = {Rivers}} @comment{x @a{y}} @a{k, title = jr # { and } # "D{"}am", month=may}',
            {"title": 'Rivers and D"am', "month": "may"},
        ),
        ("@a{k, title={X}\n year={1990},, note={a \\} b}, note={c}}", {"title": "X", "year": "1990", "note": "a } b"}),
        (
            "@a{k, author={No{\\'e}, S and {\\O}ye, P and Ko{\\v{c}}i, J}, doi={10.1/a\\_b$<$c$>$ {[}d{]}}}",
            {"author": "Noé, S and Oye, P and Koči, J", "doi": "10.1/a_b<c> [d]"},
        ),
        ("@a{k, abstract={a \\{b\\\n   } c}, year=1990}", {"abstract": "a {b} c", "year": "1990"}),
    ],
    ids=["key", "parentheses", "entry-in-abstract", "words", "commas", "letters", "brace-behind-a-broken-line"],
)
def test_an_entry_of_bibtex_ends_where_its_braces_end(text, entry):
    *_, before, after = read_entries(text + "\n@misc{last, title={Z}}")
    assert entry.items() <= before.items()
    assert after == {"key": "last", "title": "Z"}


def test_values_that_go_on_in_the_next_line_are_whole(tmp_path):
    text = "PT J\nTI On dams\nY1 As barragens de 2014\nDE lower\n   weirs; dams;\n   locks\n"
    text += "WC Engineering,\n   Industrial; Law\n"
    (tmp_path / "savedrecs.txt").write_text(f"{text}SP A sponsor\nEA JAN 2023\nCR Poe E, 1849, BELLS\nUT A\nER\n")
    work = scan(tmp_path / "savedrecs.txt").works.collect().row(0, named=True)
    assert work["concepts"] == ["lower weirs", "dams", "locks"]
    assert (work["primary_field"], work["publication_year"]) == ("Engineering, Industrial", 2023)


def test_each_file_says_its_form_and_an_implausible_number_of_references_warns(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    (tmp_path / "scopus.csv").write_text(scopus_csv(NEW.replace(", Poe E.A.", "; Poe E.A.")), "utf-8")
    text = "PT J\nTI A\nCR Poe E, 1849\n   A\n   B\n   C\nNR {}\nUT {}\nER\n"
    (tmp_path / "odd.txt").write_text(text.format(1, "A"))
    (tmp_path / "plain.txt").write_text(text.format(3, "B"))
    corpus = scan(*(tmp_path / name for name in ("scopus.csv", "odd.txt", "plain.txt")))
    corpus.works.collect()
    assert (
        "scopus.csv is table of Scopus, 3 records. References: 4 of the form 'Scopus since 2025', after joining 1"
        in caplog.text
    )
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [
        "odd.txt" in line and "4 references" in line and "counts 1" in line for line in warnings if "median" in line
    ] == [True]
    assert main(["ingest", "--exports", str(tmp_path / "scopus.csv"), "--out", str(tmp_path / "corpus")]) == 0
    facts = json.loads((tmp_path / "corpus" / "corpus.json").read_text("utf-8"))
    assert facts["files"][0]["references"] == {"Scopus since 2025": 4}


NAMES = [
    *(("Poe", "E.A."), ("van der Leeuw", "S."), ("Li", "X."), ("O'Brien", "K."), ("Müller-Lüdenscheidt", "J.-P.")),
    *(("Lo Bue", "E."), ("de la Cruz", "M."), ("Wu", "Y.Z.")),
]
WORDS = ["weirs", "dams & locks", "R&D", "the {lower} river; a study", "100% of rivers", "a_b", "lakes: old, and new"]
WORDS += ["noé", "dams; The end", "1984, and more"]


@st.composite
def libraries(draw: st.DrawFn) -> list[dict[str, object]]:
    """Works in the files (with the numbers of those they cite) and outside, each with its own volume."""
    works: list[dict[str, object]] = []
    for number in range(draw(st.integers(3, 6))):
        doi = draw(st.sampled_from(["", f"10.1234/w_{number}", f"10.1641/0006-3568(2002)052[00{number}:PT]2.0.CO;2"]))
        words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))
        works.append(
            {
                "authors": draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)),
                "title": f"Study {number} of {' and of '.join(words)}{draw(st.sampled_from(['', ' (1914)']))}",
                "year": 1990 + number,
                "doi": doi,
                "cites": draw(st.sets(st.integers(0, number - 1))) if number else set(),
                "is_outside": number < 2 and draw(st.booleans()),
                "names_doi": draw(st.booleans()),
            }
        )
    works[-1]["cites"] = {0, *works[-1]["cites"]}  # type: ignore[misc]
    return works


def wos_reference(work: dict, comma: str = " ") -> str:
    number = work["year"] - 1990
    name = f"{work['authors'][0][0]}{comma}{work['authors'][0][1].replace('.', '')}"
    doi = f", DOI [{work['doi']}, 10.9999/also.{number}]" if work["year"] % 2 else f", DOI {work['doi']}"
    return f"{name}, {work['year']}, RIVERS, V{number + 1}, P{number}7" + doi * bool(work["doi"] and work["names_doi"])


def scopus_reference(work: dict, era: int) -> str:
    number = work["year"] - 1990
    comma, between = {2004: (", ", ", "), 2023: (" ", ", "), 2025: (" ", "; ")}[era]
    authors, place = between.join(comma.join(name) for name in work["authors"]), f"pp. {number}7-{number}9"
    if era == 2004:
        return f"{authors}, {work['title']} ({work['year']}) Rivers, {number + 1} (2), {place}"
    return f"{authors}, {work['title']}, Rivers, {number + 1}, 2, {place}, ({work['year']})"


def wos_fields(works: list[dict], work: dict, comma: str = " ") -> dict[str, str]:
    number = work["year"] - 1990
    fields = {
        "PT": "J",
        "AU": "\0".join(", ".join(name).replace(".", "") for name in work["authors"]),
        "TI": work["title"],
    }
    fields |= {"SO": "RIVERS", "PY": str(work["year"]), "VL": str(number + 1), "BP": f"{number}7", "DI": work["doi"]}
    return fields | {
        "CR": "\0".join(wos_reference(works[one], comma) for one in sorted(work["cites"])),
        "UT": f"WOS:{number}",
    }


def write_wos_text(works: list[dict], comma: str = " ") -> str:
    records = [wos_fields(works, work, comma) for work in works if not work["is_outside"]]
    lines = ["".join(f"{tag} {value}\n" for tag, value in record.items() if value) for record in records]
    return "FN Clarivate\nVR 1.0\n" + "ER\n\n".join([*lines, "EF"]).replace("\0", "\n   ")


def write_wos_tab(works: list[dict]) -> str:
    records = [wos_fields(works, work) for work in works if not work["is_outside"]]
    return "\r\n".join(["\t".join(records[0]), *("\t".join([*one.values(), ""]) for one in records), ""]).replace(
        "\0", "; "
    )


def tex(text: str) -> str:
    for sign in "&%_{}":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("[", "{[}")


def write_wos_bib(works: list[dict]) -> str:
    records = [wos_fields(works, work) for work in works if not work["is_outside"]]
    names = {"AU": "Author", "TI": "Title", "SO": "Journal", "PY": "Year", "VL": "Volume", "BP": "Pages", "DI": "DOI"}
    names |= {"UT": "Unique-ID", "CR": "Cited-References"}
    values = [
        {tag: value.replace("\0", " and " if tag == "AU" else ".\0") for tag, value in one.items()} for one in records
    ]
    fields = ["".join(f"{names[tag]} = {{{tex(one[tag])}}},\n" for tag in names if one[tag]) for one in values]
    return "\n".join(f"@article{{ WOS:KEY,\n{one}}}\n" for one in fields).replace("\0", "\n   ")


def scopus_fields(works: list[dict], work: dict, era: int) -> dict[str, str]:
    number = work["year"] - 1990
    authors = (", " if era == 2004 else "; ").join(map(" ".join, work["authors"]))
    fields = {
        "Authors": authors,
        "Title": work["title"],
        "Year": str(work["year"]),
        "Source title": "Rivers",
        "Volume": str(number + 1),
    }
    fields |= {"Page start": f"{number}7", "DOI": work["doi"], "EID": f"2-s2.0-{number}"}
    return fields | {"References": "; ".join(scopus_reference(works[one], era) for one in sorted(work["cites"]))}


def write_scopus_csv(works: list[dict], era: int) -> str:
    records = [scopus_fields(works, work, era) for work in works if not work["is_outside"]]
    records = [{name: value.replace("&", "&amp;") for name, value in one.items()} for one in records]
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_ALL).writerows([[*records[0]], *(one.values() for one in records)])
    return file.getvalue()


def write_scopus_ris(works: list[dict], era: int) -> str:
    records = [scopus_fields(works, work, era) for work in works if not work["is_outside"]]
    tags = {"TI": "Title", "T2": "Source title", "VL": "Volume", "SP": "Page start", "PY": "Year", "DO": "DOI"}
    return "\n".join(
        "TY  - JOUR\n" + "".join(f"{tag}  - {one[name]}\n" for tag, name in tags.items() if one[name])
        + "".join(f"AU  - {name}\n" for name in one["Authors"].split(", " if era == 2004 else "; "))
        + f"N1  - References: {one['References'].replace('; ', '; ' + chr(10))}\n" * bool(one["References"])
        + f"UR  - https://www.scopus.com/inward/record.uri?eid={one['EID']}&partnerID=40\nER  - \n"
        for one in records
    )  # fmt: skip


def write_scopus_bib(works: list[dict], era: int) -> str:
    records = [scopus_fields(works, work, era) for work in works if not work["is_outside"]]
    names = {"title": "Title", "journal": "Source title", "volume": "Volume", "pages": "Page start", "year": "Year"}
    names |= {"doi": "DOI", "references": "References"}
    entries = [
        f"@ARTICLE{{Poe{one['Year']},\nauthor={{{one['Authors'].replace('; ', ' and ')}}},\n"
        + "".join(f"{name}={{{tex(one[column])}}},\n" for name, column in names.items())
        + f"url={{https://www.scopus.com/inward/record.uri?eid={one['EID']}&partnerID=40}},\n}}\n"
        for one in records
    ]
    return "Scopus\nEXPORT DATE: 20 July 2015\n\n" + "\n".join(entries)


WRITERS = {
    "wos-text": write_wos_text,
    "wos-text-comma": lambda works: write_wos_text(works, ", "),
    "wos-tab": write_wos_tab,
    "wos-tab-saved-as-csv": lambda works: saved_again(write_wos_tab(works)),
    "wos-bibtex": write_wos_bib,
} | {
    f"scopus-{name}-{era}": lambda works, write=write, era=era: write(works, era)
    for name, write in {"csv": write_scopus_csv, "ris": write_scopus_ris, "bibtex": write_scopus_bib}.items()
    for era in (2004, 2023, 2025)
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=10)
@given(works=libraries())
def test_records_give_the_same_citations_in_whatever_format_a_site_writes_them(name, works):
    prefix = "WOS:" if name.startswith("wos") else "2-s2.0-"
    inside = {number: f"{prefix}{number}" for number, work in enumerate(works) if not work["is_outside"]}
    citing = {
        number: sorted(inside[one] for one in inside if number in works[one]["cites"]) for number in range(len(works))
    }
    names = {number: inside.get(number, " ".join(["outside, by", *citing[number]])) for number in citing}
    expected = {
        inside[one]: sorted(names[cited] for cited in works[one]["cites"]) for one in inside if works[one]["cites"]
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "export").write_text(WRITERS[name](works), "utf-8")
        assert cited_by(scan(Path(folder) / "export")) == expected
