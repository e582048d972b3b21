"""SciSciNetConfig, and the published names, columns and types of SciSciNet's tables.

Version 2 is Parquet with ids such as ``W2051723858``. Version 1 is tab-separated text with the ids of Microsoft
Academic Graph, which are the numbers of OpenAlex ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import polars as pl

from sciscidata._support.short_repr import short_repr
from sciscidata._support.validate import FolderOrUrl, check_fields

Version: TypeAlias = Literal["v2", "v1"]
Kind: TypeAlias = Literal["id", "year", "whole", "number", "text", "doi", "flag", "level"]

_DTYPES: Final[Mapping[Kind, pl.DataType]] = {
    "id": pl.Int64(),
    "year": pl.Int32(),
    "whole": pl.Int64(),
    "number": pl.Float64(),
    "text": pl.String(),
    "doi": pl.String(),
    "flag": pl.Boolean(),
    "level": pl.Int64(),
}
NEEDED: Final[Mapping[Kind, str]] = {
    "id": "whole numbers, or text such as 'W2051723858'",
    "year": "whole numbers, such as 1999",
    "whole": "whole numbers",
    "number": "numbers",
    "text": "text",
    "doi": "text",
    "flag": "true or false",
    "level": "whole numbers",
}
_DOI_PREFIX: Final = r"^(?:(?:https?://)?(?:dx\.|www\.)?doi\.org/|doi:)\s*"


@dataclass(frozen=True)
class Layout:
    """One published table: the names of its file, its columns by our name, and its required columns."""

    stems: tuple[str, ...]
    columns: Mapping[str, tuple[str, Kind]]
    required: tuple[str, ...]


#: The columns that this package reads. ``citation_count`` counts SciSciNet's citations, ``cited_by_count`` those of
#: OpenAlex.
LAYOUTS: Final[Mapping[Version, Mapping[str, Layout]]] = {
    "v2": {
        "papers": Layout(
            ("sciscinet_papers", "papers"),
            {
                "work_id": ("paperid", "id"),
                "publication_year": ("year", "year"),
                "work_type": ("doctype", "text"),
                "doi": ("doi", "doi"),
                "cited_by_count": ("cited_by_count", "whole"),
                "is_retracted": ("is_retracted", "flag"),
                "reference_count": ("reference_count", "whole"),
                "citation_count": ("citation_count", "whole"),
                "disruption": ("disruption", "number"),
                "z_median": ("Atyp_Median_Z", "number"),
                "z_p10": ("Atyp_10pct_Z", "number"),
                "n_pairs": ("Atyp_Pairs", "whole"),
            },
            ("work_id", "publication_year"),
        ),
        "references": Layout(
            ("sciscinet_paperrefs", "paperrefs"),
            {"citing_id": ("citing_paperid", "id"), "cited_id": ("cited_paperid", "id")},
            ("citing_id", "cited_id"),
        ),
        "texts": Layout(
            ("sciscinet_papertitleabstract", "papertitleabstract"),
            {
                "work_id": ("paperid", "id"),
                "title": ("title", "text"),
                "abstract": ("abstract_inverted_index", "text"),
                "language": ("language", "text"),
            },
            ("work_id", "title", "abstract"),
        ),
        "paper_fields": Layout(
            ("sciscinet_paperfields", "paperfields"),
            {"work_id": ("paperid", "id"), "field_id": ("fieldid", "id"), "score": ("score_openalex", "number")},
            ("work_id", "field_id"),
        ),
        "fields": Layout(
            ("sciscinet_fields", "fields"),
            {"field_id": ("fieldid", "id"), "field_name": ("display_name", "text"), "level": ("level", "level")},
            ("field_id", "field_name", "level"),
        ),
        "paper_sources": Layout(
            ("sciscinet_papersources", "papersources"),
            {"work_id": ("paperid", "id"), "source_id": ("sourceid", "id")},
            ("work_id", "source_id"),
        ),
        "sources": Layout(
            ("sciscinet_sources", "sources"),
            {"source_id": ("sourceid", "id"), "source_name": ("display_name", "text")},
            ("source_id", "source_name"),
        ),
    },
    "v1": {
        "papers": Layout(
            ("SciSciNet_Papers",),
            {
                "work_id": ("PaperID", "id"),
                "publication_year": ("Year", "year"),
                "work_type": ("DocType", "text"),
                "doi": ("DOI", "doi"),
                "cited_by_count": ("Citation_Count", "whole"),
                "reference_count": ("Reference_Count", "whole"),
                "citation_count": ("Citation_Count", "whole"),
                "disruption": ("Disruption", "number"),
                "z_median": ("Atyp_Median_Z", "number"),
                "z_p10": ("Atyp_10pct_Z", "number"),
                "n_pairs": ("Atyp_Pairs", "whole"),
            },
            ("work_id", "publication_year"),
        ),
        "references": Layout(
            ("SciSciNet_PaperReferences",),
            {"citing_id": ("Citing_PaperID", "id"), "cited_id": ("Cited_PaperID", "id")},
            ("citing_id", "cited_id"),
        ),
        # Version 1 was published without abstracts.
        "texts": Layout(
            ("SciSciNet_PaperDetails",),
            {"work_id": ("PaperID", "id"), "title": ("PaperTitle", "text")},
            ("work_id", "title"),
        ),
        "paper_fields": Layout(
            ("SciSciNet_PaperFields",),
            {"work_id": ("PaperID", "id"), "field_id": ("FieldID", "id")},
            ("work_id", "field_id"),
        ),
        "fields": Layout(
            ("SciSciNet_Fields",),
            {"field_id": ("FieldID", "id"), "field_name": ("Field_Name", "text"), "level": ("Field_Type", "level")},
            ("field_id", "field_name", "level"),
        ),
        "paper_sources": Layout(
            ("SciSciNet_Papers",),
            {"work_id": ("PaperID", "id"), "source_id": ("JournalID", "id")},
            ("work_id", "source_id"),
        ),
        "sources": Layout(
            ("SciSciNet_Journals",),
            {"source_id": ("JournalID", "id"), "source_name": ("Journal_Name", "text")},
            ("source_id", "source_name"),
        ),
    },
}


def is_text(dtype: pl.DataType) -> bool:
    """Whether a column holds text, however it is stored."""
    return isinstance(dtype, pl.String | pl.Categorical | pl.Enum)


def fits(found: pl.DataType, kind: Kind) -> bool:
    """Whether a column of this type is acceptable: a writer may change the width, or numbers to text."""
    if isinstance(found, pl.Null) or is_text(found):
        return True
    return (found.is_numeric() and kind not in ("text", "doi")) or (kind == "flag" and isinstance(found, pl.Boolean))


def convert_column(column: tuple[str, Kind], found: pl.DataType) -> pl.Expr:
    """Convert a published column of any accepted type to ours; values of another kind become null."""
    name, kind = column
    value = pl.col(name)
    wanted = _DTYPES[kind]
    if isinstance(found, pl.Categorical | pl.Enum):
        value, found = value.cast(pl.String), pl.String()
    if kind == "doi":
        bare = value.cast(pl.String).str.to_lowercase().str.strip_chars().str.replace(_DOI_PREFIX, "")
        return pl.when(bare != "").then(bare)
    if found != pl.String():
        return value if found == wanted else value.cast(wanted, strict=False)
    if kind == "id":
        value = value.str.strip_prefix("https://openalex.org/").str.strip_chars_start("WSCV")
        # A float is exact up to 2^53, far above every id.
        return pl.coalesce(
            value.cast(wanted, strict=False), value.cast(pl.Float64, strict=False).cast(wanted, strict=False)
        )
    if kind in ("whole", "year"):
        return value.cast(pl.Float64, strict=False).cast(wanted, strict=False)
    if kind == "level":
        return value.replace_strict({"Top": 0, "Sub": 1}, default=value.cast(wanted, strict=False), return_dtype=wanted)
    if kind == "flag":
        return value.str.to_lowercase().is_in(["true", "1", "t"])
    return pl.when(value != "").then(value) if kind == "text" else value.cast(wanted, strict=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class SciSciNetConfig:
    """Where SciSciNet lies, which version it is, and whose scores to take.

    Attributes:
        folder: folder or URL of the SciSciNet tables; any URL that Polars scans (``hf://``, ``gs://``, ``s3://``).
        version: version of SciSciNet. ``"v2"``: Parquet, 2025, ids of OpenAlex. ``"v1"``: tab-separated text, 2023, ids
            of Microsoft Academic Graph, no abstracts.
        texts: another folder or URL for titles and abstracts, which are published apart from the rest. None: look for
            them in ``folder``.
        recompute: compute CD index and novelty from the references. False: take the published ``disruption`` and
            ``Atyp_*`` values.
        storage_options: settings and credentials of a store; passed to Polars, never recorded. What is not given comes
            from the environment.

    Raises:
        ConfigError: on construction, if a value does not fit its type.

    Example:
        >>> SciSciNetConfig(folder="sciscinet-v2").recompute
        False
    """

    folder: FolderOrUrl
    version: Version = "v2"
    texts: FolderOrUrl | None = None
    recompute: bool = False
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_fields(self)
