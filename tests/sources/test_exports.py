"""Exports of Web of Science and Scopus: made-up records in the real formats."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest

import sciscidata as ssd
from sciscidata.cli.main import main
from sciscidata.errors import CorruptRecordError, EmptyInputError, InputNotFoundError, SchemaMismatchError
from sciscidata.schemas import Corpus
from sciscidata.sources.exports.formats import read_export

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
    ],
    ids=["text", "text-utf-16", "tab", "bibtex"],
)
def test_every_format_of_web_of_science_gives_the_same_graph(tmp_path, text, encoding):
    (tmp_path / "savedrecs.txt").write_bytes(text.encode(encoding))
    book, paper = "outside, by WOS:A1995 WOS:A2001", "outside, by WOS:A2001 WOS:A2002"
    assert cited_by(scan(tmp_path / "savedrecs.txt")) == {
        "WOS:A1995": ["WOS:A1990", book],
        "WOS:A2001": ["WOS:A1990", "WOS:A1995", book, paper],
        "WOS:A2002": [paper, "outside, by WOS:A2002"],
    }


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
