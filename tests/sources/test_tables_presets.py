"""The presets: a real export of OpenAlex, and files with the layout, the quoting and the oddities of the others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import get_args, get_type_hints

import polars as pl
import pytest

import sciscidata as ssd
from sciscidata.cli.main import main
from sciscidata.errors import SchemaMismatchError
from sciscidata.schemas import Corpus
from sciscidata.sources.tables.source import _PRESETS, TablesConfig

G_PATENT = """patent_id patent_type patent_date patent_title wipo_kind num_claims
10000000 utility 2018-06-19 Coherent~LADAR B2 20
D345393 design 1994-03-22 Dummy~""security""~camera S1 1
3930271 utility 1976-01-06 Golf~glove A 4
"""
G_CITATION = """patent_id citation_sequence citation_patent_id citation_date record_name wipo_kind
10000000 0 5093563 1992-03-01 Small~et~al. A
10000000 1 D345393 1994-03-01  S1
D345393 0 3930271 1976-01-01 Gifford A
"""
APAT = """"PATENT","GYEAR","GDATE","APPYEAR","COUNTRY","POSTATE","ASSIGNEE","ASSCODE","CLAIMS","NCLASS","CAT","SUBCAT"
3070801,1963,1096,,"BE","",,1,,269,6,69
3858241,1975,5475,1974,"US","IL",,1,,2,6,63
956203,,,,"US","",,1,,,,
"""
CIT_PATENTS = """# Directed graph (each unordered pair of nodes is saved once): cit-Patents.txt \r
# US Patent citation network\r
# Nodes: 3774768 Edges: 16518948\r
# FromNodeId\tToNodeId\r
3858241\t956203\r
3858241\t3070801\r
"""
CITE75 = '"CITING","CITED"\n3858241,956203\n3858241,3070801\n'
DBLP = [
    {
        "id": 1091,
        "authors": [{"name": "Makoto Satoh", "org": "Shinshu University", "id": 2312688602}],
        "title": "Preliminary Design of a Network Protocol Learning Tool",
        "year": 2013,
        "n_citation": 1,
        "doc_type": "Conference",
        "doi": "10.1007/978-3-642-39476-8_19",
        "references": [1388, 2018037215],
        "indexed_abstract": {"IndexLength": 2, "InvertedIndex": {"We": [0], "[teach]": [1]}},
        "fos": [{"name": "Telecommunications", "w": 0.45139}],
        "venue": {"raw": "International Conference on Human-Computer Interaction", "id": 1127419992, "type": "C"},
    },
    {"id": 1388, "authors": [], "title": "Further Results on Independence", "year": 2006, "venue": {"raw": ""}},
    {"id": 1674, "authors": [], "title": "A methodology for the physically accurate visualisation", "year": 2011},
]
PAPERS = [
    {"corpusid": 14_004_300, "externalids": {"DBLP": "x"}, "title": "Deep things", "authors": [], "venue": "NeurIPS",
     "publicationvenueid": None, "year": 2017, "citationcount": 2, "s2fieldsofstudy": None,
     "publicationdate": "2017-06-12", "journal": {"name": "ArXiv", "pages": None, "volume": "1"}},
    {"corpusid": 5, "externalids": None, "title": "Older things", "authors": [], "venue": "", "year": None,
     "publicationdate": "1999-01-01", "journal": None},
]  # fmt: skip
S2_CITATIONS = [
    {"citationid": 1, "citingcorpusid": 14_004_300, "citedcorpusid": 5, "isinfluential": False, "contexts": None,
     "intents": None},
    {"citationid": 2, "citingcorpusid": 14_004_300, "citedcorpusid": None, "isinfluential": True,
     "contexts": ["as in [5]"], "intents": [["background"], None]},
]  # fmt: skip


def corpus_of(folder: Path, preset: str, works: bytes, citations: bytes | None, *flags: str) -> Corpus:
    (folder / "works").write_bytes(works)
    given = ["--works", str(folder / "works")]
    if citations is not None:
        (folder / "citations").write_bytes(citations)
        given += ["--citations", str(folder / "citations")]
    assert main(["ingest", *given, "--tables-preset", preset, *flags, "--out", str(folder / "corpus")]) == 0
    return ssd.scan_corpus(folder / "corpus")


def rows_of(corpus: Corpus, *columns: str) -> list[tuple[object, ...]]:
    return corpus.works.select("original_id", "publication_year", *columns).collect().sort("original_id").rows()


def names_of(corpus: Corpus) -> dict[int, str]:
    return dict(corpus.works.select("work_id", "original_id").collect().iter_rows())


def json_lines(rows: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_every_preset_is_an_option():
    hint = get_type_hints(TablesConfig)["preset"]
    assert {word for part in get_args(hint) for word in get_args(part)} == _PRESETS.keys()


def quoted(table: str) -> bytes:
    """Write a table as PatentsView does: every field in quotes, tabs between them."""
    return "".join(
        "\t".join(f'"{word.replace("~", " ")}"' for word in line.split(" ")) + "\n" for line in table.splitlines()
    ).encode()


def test_patentsview(tmp_path):
    corpus = corpus_of(tmp_path, "patentsview", quoted(G_PATENT), quoted(G_CITATION))
    assert rows_of(corpus, "title") == [
        ("10000000", 2018, "Coherent LADAR"),
        ("3930271", 1976, "Golf glove"),
        ("D345393", 1994, 'Dummy "security" camera'),
    ]
    assert names_of(corpus)[3930271] == "3930271"
    names = names_of(corpus)
    found = [(names[citing], names.get(cited, cited)) for citing, cited in corpus.citations.collect().iter_rows()]
    assert found == [("10000000", 5093563), ("10000000", "D345393"), ("D345393", "3930271")]


@pytest.mark.parametrize("citations", [CIT_PATENTS, CITE75], ids=["snap", "nber"])
def test_the_patents_of_snap_and_nber(tmp_path, citations):
    corpus = corpus_of(tmp_path, "snap-patents", APAT.encode(), gzip.compress(citations.encode()))
    assert rows_of(corpus, "source_id", "primary_field") == [
        ("3070801", 1963, 269, "6"), ("3858241", 1975, 2, "6"), ("956203", None, None, None),
    ]  # fmt: skip
    assert corpus.citations.collect().rows() == [(3858241, 956203), (3858241, 3070801)]


@pytest.mark.parametrize("form", ["list", "lines"])
def test_dblp(tmp_path, form):
    lines = [json.dumps(row) for row in DBLP]
    text = "[\n" + "\n,".join(lines) + "\n]" if form == "list" else "\n".join(lines)
    corpus = corpus_of(tmp_path, "dblp", text.encode(), None)
    assert rows_of(corpus, "source_name", "doi") == [
        ("1091", 2013, "International Conference on Human-Computer Interaction", "10.1007/978-3-642-39476-8_19"),
        ("1388", 2006, None, None),
        ("1674", 2011, None, None),
    ]
    assert corpus.works.collect()["source_id"].null_count() == 2
    assert corpus.citations.collect().rows() == [(1091, 1388), (1091, 2018037215)]


def test_semantic_scholar(tmp_path):
    citations = gzip.compress(json_lines(S2_CITATIONS))
    corpus = corpus_of(tmp_path, "s2ag", gzip.compress(json_lines(PAPERS)), citations)
    assert rows_of(corpus, "source_name", "title") == [
        ("14004300", 2017, "NeurIPS", "Deep things"), ("5", 1999, None, "Older things"),
    ]  # fmt: skip
    assert corpus.citations.collect().rows() == [(14_004_300, 5)]
    assert corpus.provenance["citations_without_id"] == 1


def test_a_real_export_of_the_web_page_of_openalex(tmp_path, shared_data):
    content = (shared_data / "openalex" / "ui_export_biblium.csv.gz").read_bytes()
    corpus = corpus_of(tmp_path, "openalexr", content, None)
    works, citations = corpus.works.collect(), corpus.citations.collect()
    assert works.height == 613
    assert works["original_id"].str.starts_with("https://openalex.org/W").all()
    assert (works["original_id"].str.extract("([0-9]+)$").cast(pl.Int64) == works["work_id"]).all()
    assert citations.height == 24_970
    assert citations["cited_id"].is_in(works["work_id"].implode()).sum() == 3_528
    assert works["abstract"].count() == 187
    assert (works["publication_year"].min(), works["publication_year"].max()) == (1926, 2024)
    assert 0 < works["source_id"].count() < 613
    assert works["source_id"].max() < 2**40  # the numbers of OpenAlex, and no hashes
    scores = ssd.compute_cd_index(corpus.works, corpus.citations).collect()
    assert scores["cd_index"].count() > 100


def test_an_option_goes_over_a_preset(tmp_path):
    corpus = corpus_of(tmp_path, "patentsview", quoted(G_PATENT), quoted(G_CITATION), "--venue", "wipo_kind")
    assert rows_of(corpus, "source_name")[0] == ("10000000", 2018, "B2")


def test_a_file_of_another_layout_is_refused_by_its_columns(tmp_path):
    (tmp_path / "works").write_text(APAT)
    config = TablesConfig(works=(str(tmp_path / "works"),), citations=(str(tmp_path / "works"),), preset="patentsview")
    with pytest.raises(SchemaMismatchError, match=r"no column 'patent_id'; it has PATENT, GYEAR, .*TablesConfig\.id="):
        ssd.ingest(config, tmp_path / "corpus", cache_dir=tmp_path)
