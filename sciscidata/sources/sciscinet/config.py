"""SciSciNetConfig, and the published names, columns and types of SciSciNet's tables.

Version 2 is Parquet with ids such as ``W2051723858``. Version 1 is tab-separated text with the ids of Microsoft
Academic Graph, which are the numbers of OpenAlex ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import polars as pl

from sciscidata.options.checks import Configuration, FolderOrUrl
from sciscidata.records.dois import bare_dois

Version: TypeAlias = Literal["v2", "v1"]
Kind: TypeAlias = Literal["id", "year", "whole", "number", "text", "doi", "flag", "level"]

#: For each kind of column: our type, what messages ask for, and our names of these columns.
_KINDS: Final[Mapping[Kind, tuple[pl.DataType, str, str]]] = {
    "id": (pl.Int64(), "whole numbers, or text such as 'W2051723858'", "work_id citing_id cited_id field_id source_id"),
    "year": (pl.Int32(), "whole numbers, such as 1999", "publication_year"),
    "whole": (pl.Int64(), "whole numbers", "cited_by_count reference_count citation_count n_pairs n_authors"),
    "number": (pl.Float64(), "numbers", "disruption z_median z_p10 score"),
    "text": (pl.String(), "text", "work_type title abstract language field_name source_name"),
    "doi": (pl.String(), "text", "doi"),
    "flag": (pl.Boolean(), "true or false", "is_retracted"),
    "level": (pl.Int64(), "whole numbers", "level"),
}
_KIND_OF: Final[Mapping[str, Kind]] = {name: kind for kind, (_, _, names) in _KINDS.items() for name in names.split()}
NEEDED: Final = {kind: needed for kind, (_, needed, _) in _KINDS.items()}


@dataclass(frozen=True)
class Layout:
    """One published table: the names of its file, its columns by our name, and its required columns."""

    stems: tuple[str, ...]
    columns: Mapping[str, tuple[str, Kind]]
    required: tuple[str, ...]


def _layout(stems: str, columns: str) -> Layout:
    """Read pairs of our name and the published one; ``!`` marks those that are required, all if there is none."""
    pairs = dict(pair.rstrip("!").split("=") for pair in columns.split())
    marked = tuple(pair.split("=")[0] for pair in columns.split() if pair.endswith("!"))
    typed: dict[str, tuple[str, Kind]] = {name: (published, _KIND_OF[name]) for name, published in pairs.items()}
    return Layout(tuple(stems.split()), typed, marked or tuple(pairs))


#: The columns that this package reads. ``citation_count`` counts SciSciNet's citations, ``cited_by_count`` those of
#: OpenAlex. Version 1 was published without abstracts.
LAYOUTS: Final[Mapping[Version, Mapping[str, Layout]]] = {
    "v2": {
        "papers": _layout(
            "sciscinet_papers papers",
            "work_id=paperid! publication_year=year! work_type=doctype doi=doi cited_by_count=cited_by_count "
            "is_retracted=is_retracted reference_count=reference_count citation_count=citation_count "
            "n_authors=team_size disruption=disruption z_median=Atyp_Median_Z z_p10=Atyp_10pct_Z n_pairs=Atyp_Pairs",
        ),
        "references": _layout("sciscinet_paperrefs paperrefs", "citing_id=citing_paperid cited_id=cited_paperid"),
        "texts": _layout(
            "sciscinet_papertitleabstract papertitleabstract",
            "work_id=paperid! title=title! abstract=abstract_inverted_index! language=language",
        ),
        "paper_fields": _layout(
            "sciscinet_paperfields paperfields", "work_id=paperid! field_id=fieldid! score=score_openalex"
        ),
        "fields": _layout("sciscinet_fields fields", "field_id=fieldid field_name=display_name level=level"),
        "paper_sources": _layout("sciscinet_papersources papersources", "work_id=paperid source_id=sourceid"),
        "sources": _layout("sciscinet_sources sources", "source_id=sourceid source_name=display_name"),
    },
    "v1": {
        "papers": _layout(
            "SciSciNet_Papers",
            "work_id=PaperID! publication_year=Year! work_type=DocType doi=DOI cited_by_count=Citation_Count "
            "n_authors=Team_Size reference_count=Reference_Count citation_count=Citation_Count disruption=Disruption "
            "z_median=Atyp_Median_Z z_p10=Atyp_10pct_Z n_pairs=Atyp_Pairs",
        ),
        "references": _layout("SciSciNet_PaperReferences", "citing_id=Citing_PaperID cited_id=Cited_PaperID"),
        "texts": _layout("SciSciNet_PaperDetails", "work_id=PaperID title=PaperTitle"),
        "paper_fields": _layout("SciSciNet_PaperFields", "work_id=PaperID field_id=FieldID"),
        "fields": _layout("SciSciNet_Fields", "field_id=FieldID field_name=Field_Name level=Field_Type"),
        "paper_sources": _layout("SciSciNet_Papers", "work_id=PaperID source_id=JournalID"),
        "sources": _layout("SciSciNet_Journals", "source_id=JournalID source_name=Journal_Name"),
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
    wanted = _KINDS[kind][0]
    if isinstance(found, pl.Categorical | pl.Enum):
        value, found = value.cast(pl.String), pl.String()
    if kind == "doi":
        return bare_dois(value.cast(pl.String))
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


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class SciSciNetConfig(Configuration):
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
