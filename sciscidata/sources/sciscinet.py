"""SciSciNet as a source: its tables as WORKS and CITATIONS, its published scores as ours, and its texts by id."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import polars as pl

from sciscidata.errors import ConfigError, InputNotFoundError, SchemaMismatchError
from sciscidata.schemas import ATYPICALITY, CITATIONS, WORKS
from sciscidata.sources import Corpus
from sciscidata.sources.sciscinet_fields import choose_fields
from sciscidata.sources.sciscinet_tables import LAYOUTS, Table, Version, describe_table, find_table
from sciscidata.sources.sciscinet_texts import plain_texts
from sciscidata.sources.sciscinet_values import (
    publish_atypicality,
    publish_disruption,
    published_cd,
    published_z,
    rescore,
)

logger = logging.getLogger(__name__)

_BATCH_ROWS: Final = 8_192
_RECOMPUTED: Final = "computed from the references"
_PUBLISHED: Final = "as published, over all years; of the CD options only window_years is read: a work must be as old"
_COUNTS: Final = {"reference_count", "citation_count"}
_SCORES: Final = ("cd_index", *(name for name in ATYPICALITY if name != "work_id"))
_VALUES: Final = (
    *("publication_year", "work_type", "is_retracted", "reference_count", "citation_count"),
    *("disruption", "z_p10", "z_median", "n_pairs"),
)
#: Which table holds a column of WORKS; the others are in the table of papers.
_TABLE_OF: Final[Mapping[str, str]] = {
    "title": "texts",
    "abstract": "texts",
    "language": "texts",
    "primary_field": "paper_fields",
    "concepts": "paper_fields",
    "source_id": "paper_sources",
    "source_name": "paper_sources",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SciSciNetConfig:
    """Where SciSciNet lies, which version it is, and whose scores to take.

    Attributes:
        folder: a folder of its tables, or a URL that Polars scans (``hf://``, ``gs://``, ``s3://``).
        version: ``"v2"``: Parquet, 2025, ids of OpenAlex. ``"v1"``: tab-separated text, 2023, ids of Microsoft
            Academic Graph, no abstracts.
        texts: another folder or URL for titles and abstracts alone, which are published elsewhere than the rest; None
            looks for them in ``folder``.
        recompute: compute CD index and novelty from the references. False takes the published ``disruption`` and
            ``Atyp_*`` values.
        storage_options: for a store that wants credentials or settings; passed to Polars, never recorded.

    Raises:
        ConfigError: on construction, if a value has the wrong type or ``version`` is unknown.

    Example:
        >>> SciSciNetConfig(folder="sciscinet-v2").recompute
        False
    """

    folder: str
    version: Version = "v2"
    texts: str | None = None
    recompute: bool = False
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Take paths too, and refuse what only looks like a folder or a truth value."""
        for name in ("folder", "texts"):
            value: Any = getattr(self, name)
            if isinstance(value, os.PathLike):
                value = os.fspath(value)
                object.__setattr__(self, name, value)
            if not (isinstance(value, str) and value) and not (name == "texts" and value is None):
                msg = f"SciSciNetConfig.{name} is {value!r}, needs a folder or a URL, for example 'sciscinet-v2'."
                raise ConfigError(msg)
        if self.version not in tuple(LAYOUTS):
            msg = f"SciSciNetConfig.version is {self.version!r}, needs one of: {', '.join(LAYOUTS)}."
            raise ConfigError(msg)
        if not isinstance(self.recompute, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"SciSciNetConfig.recompute is {self.recompute!r}, needs True or False."
            raise ConfigError(msg)


@dataclass(frozen=True)
class SciSciNet:
    """SciSciNet, scanned: lazy frames that read no more tables and columns than a query asks for.

    A table that is absent makes its columns null, or raises where nothing would be left; ``provenance`` says which.

    Attributes:
        config: what was asked for.
        tables: those that were found, by the names of LAYOUTS.
    """

    config: SciSciNetConfig
    tables: Mapping[str, Table]

    @cached_property
    def works(self) -> pl.LazyFrame:
        """WORKS, unordered. A query that reads no text does not open the table of texts, and so for the others."""
        from polars.io.plugins import register_io_source

        def read(
            with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
        ) -> Iterator[pl.DataFrame]:
            columns = with_columns if with_columns is not None else WORKS.names()
            conditions = predicate.meta.root_names() if predicate is not None else []
            frame = self._join(dict.fromkeys([*columns, *conditions]))
            if predicate is not None:
                frame = frame.filter(predicate)
            frame = frame.select(columns)
            yield from (frame if n_rows is None else frame.head(n_rows)).collect_batches(chunk_size=_BATCH_ROWS)

        return register_io_source(read, schema=WORKS, explain_name="SciSciNet works")

    @property
    def papers(self) -> pl.LazyFrame:
        """What the table of papers says of a work, under our names. Unordered.

        ``work_id``, ``publication_year``, ``work_type``, ``is_retracted``, ``reference_count``, ``citation_count``.
        """
        names = ("work_id", "publication_year", "work_type", "is_retracted", "reference_count", "citation_count")
        types = {name: WORKS[name] for name in names if name in WORKS}
        return (
            self.tables["papers"]
            .scan(*names)
            .drop_nulls("work_id")
            .with_columns(pl.col("is_retracted").cast(pl.Boolean).fill_null(value=False))
            .cast({**types, "reference_count": pl.Int64(), "citation_count": pl.Int64()})
        )

    @property
    def structure(self) -> pl.LazyFrame:
        """All that a slice needs of a work before its text, in one pass over the table of papers. Unordered.

        The columns of ``papers`` and, as far as they are published, ``cd_index`` (as in ``scores``) and the columns of
        ``atypicality``.
        """
        columns = self.tables["papers"].columns
        raw = self.tables["papers"].scan("work_id", *(name for name in _VALUES if name in columns))
        values = [published_cd().alias("cd_index")] if "disruption" in columns and set(columns) >= _COUNTS else []
        frame = raw.drop_nulls("work_id").with_columns(values)
        if set(columns) >= {"z_p10", "z_median", "n_pairs"}:
            frame = rescore(frame.with_columns(published_z()), "sigmoid")
        own = self.papers.collect_schema()
        absent = [pl.lit(None).alias(name) for name in own if name not in columns]
        kept = [*own, *(name for name in _SCORES if name in frame.collect_schema())]
        return (
            frame.with_columns(absent)
            .select(kept)
            .cast(pl.Schema(own))
            .with_columns(pl.col("is_retracted").fill_null(value=False))
        )

    @property
    def citations(self) -> pl.LazyFrame:
        """CITATIONS, from the table of references, unordered.

        Raises:
            InputNotFoundError: at once; there is no such table.
        """
        return self._table("references", "the citations").scan(*CITATIONS).drop_nulls().cast(CITATIONS)

    @property
    def scores(self) -> pl.LazyFrame:
        """CD_SCORES as published: ``cd_index`` is SciSciNet's disruption, the counts behind it are null. Unordered.

        Raises:
            SchemaMismatchError: at once; the table of papers lacks what tells a score of 0 from none.
        """
        return publish_disruption(self._published("disruption", *sorted(_COUNTS)))

    def require_published(self, *, novelty: bool = False) -> None:
        """Say before any row is read whether the published scores can be had.

        Raises:
            SchemaMismatchError: at once; as ``scores``, and with ``novelty`` also as ``atypicality``.
        """
        self._published("disruption", *sorted(_COUNTS))
        if novelty:
            self._published("z_p10", "z_median", "n_pairs")

    @property
    def atypicality(self) -> pl.LazyFrame:
        """ATYPICALITY as published, with the scores that ``compute_atypicality`` would make of its z. Unordered.

        Raises:
            SchemaMismatchError: at once; the table of papers lacks the values.
        """
        return publish_atypicality(self._published("z_p10", "z_median", "n_pairs"))

    @property
    def provenance(self) -> dict[str, Any]:
        """What the manifest says of the source, in JSON types: the tables, their columns, and what is absent."""
        return {
            "kind": "sciscinet",
            "version": self.config.version,
            "scores": _RECOMPUTED if self.config.recompute else _PUBLISHED,
            "tables": {name: describe_table(self.tables.get(name)) for name in LAYOUTS[self.config.version]},
        }

    @property
    def corpus(self) -> Corpus:
        """Works, citations and provenance, as every source gives them."""
        return Corpus(self.works, self.citations, self.provenance)

    def in_text_order(self) -> pl.LazyFrame:
        """WORKS once more, for reading all of it: texts pass by in the order of their table, and never lie in memory.

        What is in the other tables does: about 200 bytes a work. Works without a text come last, by their id; a text
        without a work is left out.
        """
        if "texts" not in self.tables:
            return self._join(WORKS.names()).sort("work_id")
        texts = _in_batches(self.tables["texts"])
        told = set(texts.collect_schema()) - {"work_id"}
        rest = self._join([name for name in WORKS if name not in told])
        ids = self.tables["texts"].scan("work_id")
        untold = rest.join(ids, on="work_id", how="anti").sort("work_id")
        return pl.concat(
            [texts.join(rest, on="work_id", how="inner", maintain_order="left"), untold], how="diagonal_relaxed"
        ).select(pl.col(name).cast(dtype) for name, dtype in WORKS.items())

    def read_works(self, work_ids: pl.Series) -> pl.DataFrame:
        """Read the WORKS rows of some works: texts, fields and sources of these only. Executes.

        Args:
            work_ids: Int64; some thousands.

        Returns:
            WORKS, sorted by work_id; one row for each id that is in the table of papers.
        """
        some = SciSciNet(
            self.config,
            {
                name: table.holding(work_ids) if "work_id" in table.columns else table
                for name, table in self.tables.items()
            },
        )
        rows = some._join(WORKS.names()).collect(engine="streaming")
        # A work with two texts, should there be one, gets the same one every time.
        return rows.sort("work_id", "title", "abstract").unique("work_id", keep="first").sort("work_id")

    def count_coverage(self) -> dict[str, int]:
        """Count works, and those with a primary field, a source, a reference and a published score. Executes.

        Reads ids of the three tables only.
        """
        counts = {"works": _count(self.papers)}
        for column, name in (("primary_field", "paper_fields"), ("source_id", "paper_sources")):
            if name in self.tables:
                linked = self.tables[name].scan("work_id").unique()
                counts[column] = _count(self.papers.join(linked, on="work_id", how="semi"))
        if "reference_count" in self.tables["papers"].columns:
            counts["references"] = _count(self.papers.filter(pl.col("reference_count") > 0))
        if "disruption" in self.tables["papers"].columns:
            counts["disruption"] = _count(self.scores.filter(pl.col("cd_index").is_not_null()))
        logger.info("SciSciNet: %s", ", ".join(f"{name} {count:,}" for name, count in counts.items()))
        return counts

    def _join(self, columns: Iterable[str]) -> pl.LazyFrame:
        """Join to the papers the tables that hold ``columns``, and no other."""
        wanted = list(columns)
        own = [name for name in WORKS if name in wanted and name not in _TABLE_OF and name != "work_id"]
        frame = self.tables["papers"].scan("work_id", *own).drop_nulls("work_id")
        for name in dict.fromkeys(_TABLE_OF[column] for column in wanted if column in _TABLE_OF):
            if name in self.tables:
                frame = frame.join(self._side(name, wanted), on="work_id", how="left")
        known = set(frame.collect_schema())
        frame = frame.with_columns(pl.lit(None).alias(name) for name in wanted if name not in known)
        frame = frame.select(pl.col(name).cast(WORKS[name]) for name in wanted)
        if "is_retracted" in wanted:
            frame = frame.with_columns(pl.col("is_retracted").fill_null(value=False))
        if "concepts" in wanted:
            frame = frame.with_columns(pl.col("concepts").fill_null(pl.lit([], dtype=WORKS["concepts"])))
        return frame

    def _side(self, name: str, wanted: list[str]) -> pl.LazyFrame:
        """Give what one table beside the papers adds to WORKS, one row per work."""
        table = self.tables[name]
        if name == "texts":
            held = [column for column in ("title", "abstract", "language") if column in wanted]
            return table.scan("work_id", *held).with_columns(_plain(table, held))
        if name == "paper_fields":
            fields = self._table("fields", "the names of fields")
            return choose_fields(table.scan("work_id", "field_id", "score"), fields.scan())
        # Of several sources of a work, the one with the lowest id: their order in the file is no one's promise.
        linked = table.scan("work_id", "source_id").drop_nulls().group_by("work_id").agg(pl.col("source_id").min())
        if "source_name" not in wanted or "sources" not in self.tables:
            return linked
        named = self.tables["sources"].scan("source_id", "source_name").drop_nulls("source_id")
        names = named.group_by("source_id").agg(pl.col("source_name").min())
        return linked.join(names, on="source_id", how="left")

    def _table(self, name: str, purpose: str) -> Table:
        if name not in self.tables:
            stem = LAYOUTS[self.config.version][name].stems[0]
            msg = (
                f"{self.config.folder} has no table {stem}, which {purpose} are read from. Download it there, or "
                "do without: only the table of papers is always needed."
            )
            raise InputNotFoundError(msg)
        return self.tables[name]

    def _published(self, *names: str) -> pl.LazyFrame:
        papers = self.tables["papers"]
        published = LAYOUTS[self.config.version]["papers"].columns
        missing = [published[name][0] for name in names if name not in papers.columns]
        if missing:
            msg = (
                f"SciSciNet table papers ({papers.location}) lacks {', '.join(missing)}; it has "
                f"{', '.join(papers.raw.collect_schema())}. Take the whole table, or compute the scores from the "
                "references: recompute=True (--recompute)."
            )
            raise SchemaMismatchError(msg)
        return papers.scan("work_id", *names).drop_nulls("work_id")


def scan_sciscinet(config: SciSciNetConfig) -> SciSciNet:
    """Find the tables of SciSciNet and check their columns. Reads their schemas, no row.

    Args:
        config: see SciSciNetConfig.

    Returns:
        Lazy frames: ``works`` (WORKS), ``citations`` (CITATIONS), ``scores`` (CD_SCORES, as published),
        ``atypicality`` (ATYPICALITY, as published), and ``provenance``.

    Raises:
        InputNotFoundError: at once; the table of papers is absent, or a table cannot be opened.
        SchemaMismatchError: at once; a table lacks its ids, the year, or what else it cannot do without.

    Source: SciSciNet-v2, doi:10.57967/hf/5692; version 1: Lin, Yin, Liu & Wang 2023, doi:10.1038/s41597-023-02198-9.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     papers = {"paperid": ["W42"], "year": [1999], "doi": ["https://doi.org/10.1/X"]}
        ...     pl.DataFrame(papers).write_parquet(f"{home}/sciscinet_papers.parquet")
        ...     corpus = scan_sciscinet(SciSciNetConfig(folder=home))
        ...     corpus.works.select("work_id", "publication_year", "doi").collect().row(0)
        (42, 1999, '10.1/x')
    """
    tables: dict[str, Table] = {}
    for name in LAYOUTS[config.version]:
        folder = config.texts if name == "texts" and config.texts is not None else config.folder
        table = find_table(folder, config.version, name, config.storage_options)
        if table is not None:
            tables[name] = table
    if "papers" not in tables:
        stem = LAYOUTS[config.version]["papers"].stems[0]
        msg = (
            f"{config.folder} has no table {stem}. Name the folder that holds it, or the other version: "
            "version='v1' (--sciscinet-version v1) for tab-separated text."
        )
        raise InputNotFoundError(msg)
    if "fields" not in tables:
        tables.pop("paper_fields", None)  # numbers without names say nothing
    absent = [name for name in LAYOUTS[config.version] if name not in tables]
    if absent:
        logger.info("SciSciNet: no table of %s; what they hold is null", ", ".join(absent))
    return SciSciNet(config, tables)


def _plain(table: Table, columns: Iterable[str]) -> list[pl.Expr]:
    return [
        plain_texts(column, inverted=column == "abstract")
        for column in ("title", "abstract")
        if column in columns and column in table.columns
    ]


def _in_batches(table: Table) -> pl.LazyFrame:
    """Scan texts some thousands at a time; Polars would decode whole row groups, gigabytes of text each."""
    from polars.io.plugins import register_io_source

    schema = {name: WORKS[name] for name in WORKS if name in table.columns}

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        for batch in table.batches(_BATCH_ROWS, *schema):
            frame = (
                batch.with_columns(_plain(table, schema))
                .cast(pl.Schema(schema))
                .head(_BATCH_ROWS if n_rows is None else n_rows)
            )
            n_rows = None if n_rows is None else n_rows - frame.height
            frame = frame if predicate is None else frame.filter(predicate)
            yield frame if with_columns is None else frame.select(with_columns)
            if n_rows == 0:
                return

    return register_io_source(read, schema=schema, explain_name="SciSciNet texts")


def _count(frame: pl.LazyFrame) -> int:
    return frame.select(pl.len()).collect(engine="streaming").item()
