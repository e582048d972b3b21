"""The layouts of tables that many people have, by name. Of several columns for one thing, the first that is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PRESETS: Final[Mapping[str, Mapping[str, str | tuple[str, ...]]]] = {
    # g_patent.tsv and g_us_patent_citation.tsv, https://patentsview.org/download/data-download-tables
    "patentsview": {
        "id": "patent_id",
        "date": "patent_date",
        "title": ("patent_title",),
        "abstract": ("patent_abstract",),
        "citing": "patent_id",
        "cited": "citation_patent_id",
    },
    # apat63_99.txt with cite75_99.txt (NBER) or cit-Patents.txt, https://snap.stanford.edu/data/cit-Patents.html; a
    # class of technology is a venue
    "snap-patents": {
        "id": "PATENT",
        "year": "GYEAR",
        "venue": ("NCLASS",),
        "field": ("CAT",),
        "citing": ("FromNodeId", "CITING"),
        "cited": ("ToNodeId", "CITED"),
    },
    # dblp.v12.json and later, https://www.aminer.org/citation
    "dblp": {
        "id": ("id", "_id"),
        "year": "year",
        "venue": ("venue.raw",),
        "title": ("title",),
        "abstract": ("abstract",),
        "references": "references",
    },
    # CSV of openalexR (oa2df, with lists joined by |) and of the web page of OpenAlex
    "openalexr": {
        "id": "id",
        "year": "publication_year",
        "venue": ("source_id", "so_id", "primary_location.source.id"),
        "title": ("title", "display_name"),
        "abstract": ("abstract", "ab"),
        "field": ("primary_topic.field.display_name",),
        "references": "referenced_works",
    },
    # papers and citations of the Semantic Scholar Academic Graph, https://api.semanticscholar.org/datasets/v1
    "s2ag": {
        "id": "corpusid",
        "year": "year",
        "date": ("publicationdate",),
        "venue": ("venue",),
        "title": ("title",),
        "citing": "citingcorpusid",
        "cited": "citedcorpusid",
    },
}
