"""scan_sciscinet: the tables of SciSciNet as WORKS and CITATIONS, with its published scores."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import polars as pl

from sciscidata.errors import InputNotFoundError, SchemaMismatchError
from sciscidata.options.checks import require_config
from sciscidata.schemas import ATYPICALITY, CITATIONS, WORKS, Corpus
from sciscidata.sources.lazy_batches import scan_batches
from sciscidata.sources.sciscinet.config import LAYOUTS, SciSciNetConfig
from sciscidata.sources.sciscinet.order import read_in_order
from sciscidata.sources.sciscinet.published_scores import (
    publish_atypicality,
    publish_disruption,
    published_cd,
    published_z,
    rescore,
)
from sciscidata.sources.sciscinet.tables import Table, describe_table, find_table
from sciscidata.sources.sciscinet.works import join_works

logger = logging.getLogger(__name__)

_BATCH_ROWS: Final = 8_192
_RECOMPUTED: Final = "computed from the references"
_PUBLISHED: Final = "as published, over all years; of the CD options only window_years is read: a work must be as old"
_COUNTS: Final = {"reference_count", "citation_count"}
_FACTS: Final = ("publication_year", "work_type", "is_retracted", "reference_count", "citation_count")
_Z: Final = ("z_p10", "z_median", "n_pairs")
_SCORES: Final = ("cd_index", *(name for name in ATYPICALITY if name != "work_id"))
_TEXTS: Final = ("title", "abstract")


@dataclass(frozen=True)
class SciSciNet:
    """The lazy frames of SciSciNet; a query reads only the tables and columns that it needs.

    The columns of a missing table are null, or the frame raises if nothing would remain.
    """

    config: SciSciNetConfig
    tables: Mapping[str, Table]  # those that exist, by the names of LAYOUTS

    @cached_property
    def works(self) -> pl.LazyFrame:
        """WORKS, unordered. A query without title, abstract and language does not open the table of texts."""

        def read(columns: list[str]) -> Iterator[pl.DataFrame]:
            return join_works(self.tables, columns).collect_batches(chunk_size=_BATCH_ROWS)

        return scan_batches(read, WORKS, "SciSciNet works")

    @property
    def papers(self) -> pl.LazyFrame:
        """``work_id``, year, type, ``is_retracted`` and the two counts from the table of papers. Unordered."""
        return self._papers_with()

    def _papers_with(self, *more: str) -> pl.LazyFrame:
        types = {name: WORKS.get(name, pl.Int64()) for name in ("work_id", *_FACTS)}
        return (
            self.tables["papers"]
            .scan(*types, *more)
            .drop_nulls("work_id")
            .with_columns(pl.col("is_retracted").cast(pl.Boolean).fill_null(value=False))
            .cast(pl.Schema(types))
        )

    @property
    def structure(self) -> pl.LazyFrame:
        """Everything that a draw needs before texts, in one pass over the table of papers. Unordered.

        The columns of ``papers`` and, if published, ``cd_index`` (as in ``scores``) and those of ``atypicality``.
        """
        columns = self.tables["papers"].columns
        values = [published_cd().alias("cd_index")] if "disruption" in columns and set(columns) >= _COUNTS else []
        frame = self._papers_with(*(name for name in ("disruption", *_Z) if name in columns)).with_columns(values)
        if set(columns) >= set(_Z):
            frame = rescore(frame.with_columns(published_z()), "sigmoid")
        there = frame.collect_schema()
        return frame.select("work_id", *_FACTS, *(name for name in _SCORES if name in there))

    @property
    def citations(self) -> pl.LazyFrame:
        """CITATIONS, from the table of references, unordered; an InputNotFoundError if there is none."""
        if "references" not in self.tables:
            raise InputNotFoundError(
                f"{self.config.folder} has no table {LAYOUTS[self.config.version]['references'].stems[0]}, which holds "
                "the citations. Download it there, or use options that do not need it: only the table of papers is "
                "always needed."
            )
        return self.tables["references"].scan(*CITATIONS).drop_nulls().cast(CITATIONS)

    @property
    def scores(self) -> pl.LazyFrame:
        """CD_SCORES as published: ``cd_index`` is SciSciNet's disruption, the counts are null. Unordered.

        A SchemaMismatchError means that the table of papers lacks the score, or a count, which shows an undefined one.
        """
        return publish_disruption(self._published("disruption", *sorted(_COUNTS)))

    def require_published(self, *, novelty: bool = False) -> None:
        """Raise SchemaMismatchError, before any row is read, if scores (or, with ``novelty``, also z) are missing."""
        self._published("disruption", *sorted(_COUNTS))
        if novelty:
            self._published(*_Z)

    @property
    def atypicality(self) -> pl.LazyFrame:
        """ATYPICALITY as published, with the scores that ``compute_atypicality`` makes from z. Unordered."""
        return publish_atypicality(self._published(*_Z))

    @property
    def provenance(self) -> dict[str, Any]:
        """The manifest's entry in JSON types: the tables, their columns, and null for a missing table."""
        return {
            "kind": "sciscinet",
            "version": self.config.version,
            "scores": _RECOMPUTED if self.config.recompute else _PUBLISHED,
            "tables": {name: describe_table(self.tables.get(name)) for name in LAYOUTS[self.config.version]},
        }

    @property
    def vocabulary(self) -> pl.LazyFrame:
        """``primary_field``, ``source_id`` and ``source_name`` of the fields and the venues that there are."""
        wanted = {
            "fields": {"field_name": "primary_field"},
            "sources": {name: name for name in ("source_id", "source_name")},
        }
        empty = pl.LazyFrame(schema={name: WORKS[name] for names in wanted.values() for name in names.values()})
        there = [self.tables[name].scan(*names).rename(names) for name, names in wanted.items() if name in self.tables]
        return pl.concat([empty, *there], how="diagonal")

    @property
    def corpus(self) -> Corpus:
        """Works, citations and provenance, as every source returns them."""
        return Corpus(self.works, self.citations, self.provenance)

    def in_text_order(self) -> pl.LazyFrame:
        """WORKS in the order of the table of texts, for reading all of them in bounded memory.

        At most a million works of the other tables are in memory, see ``order.py``. Works without a text come last, by
        their id; a text without a work is left out. Without a table of texts, the order is by id.
        """
        return self._in_order(WORKS, by_text=True)

    def in_id_order(self) -> pl.LazyFrame:
        """WORKS without title and abstract, by id, in the same bounded memory as ``in_text_order``."""
        return self._in_order({name: WORKS[name] for name in WORKS if name not in _TEXTS}, by_text=False)

    def _in_order(self, schema: Mapping[str, pl.DataType], *, by_text: bool) -> pl.LazyFrame:
        def read(columns: list[str]) -> Iterator[pl.DataFrame]:
            return read_in_order(self.tables, columns, by_text=by_text)

        return scan_batches(read, schema, "SciSciNet works in order")

    def read_works(self, work_ids: pl.Series) -> pl.DataFrame:
        """Read WORKS, sorted by work_id, of some thousand ids (Int64): one row for each id in the table of papers."""
        some = {
            name: table.holding(work_ids) if "work_id" in table.columns else table
            for name, table in self.tables.items()
        }
        rows = join_works(some, WORKS.names()).collect(engine="streaming")
        # A work with two texts gets the same one every time.
        return rows.sort("work_id", "title", "abstract").unique("work_id", keep="first").sort("work_id")

    def _published(self, *names: str) -> pl.LazyFrame:
        papers = self.tables["papers"]
        published = LAYOUTS[self.config.version]["papers"].columns
        missing = [published[name][0] for name in names if name not in papers.columns]
        if missing:
            raise SchemaMismatchError(
                f"SciSciNet table papers ({papers.location}) lacks {', '.join(missing)}; it has "
                f"{', '.join(papers.raw.collect_schema())}. Use the whole table, or compute the scores from the "
                "references with SciSciNetConfig.recompute=True."
            )
        return papers.scan("work_id", *names).drop_nulls("work_id")


def scan_sciscinet(config: SciSciNetConfig) -> SciSciNet:
    """Find the tables of SciSciNet and check their schemas; no row is read.

    Returns:
        Lazy frames: ``works`` (WORKS), ``citations`` (CITATIONS), ``scores`` (CD_SCORES, as published),
        ``atypicality`` (ATYPICALITY, as published), and ``provenance``.

    Raises:
        InputNotFoundError: when called; the table of papers is missing, or a table cannot be opened.
        SchemaMismatchError: when called; a table lacks a required column, for example its ids.

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
    require_config(config, SciSciNetConfig, "folder='sciscinet-v2'")
    tables: dict[str, Table] = {}
    for name in LAYOUTS[config.version]:
        folder = config.texts if name == "texts" and config.texts is not None else config.folder
        table = find_table(folder, config.version, name, config.storage_options)
        if table is not None:
            tables[name] = table
    if "papers" not in tables:
        stem = LAYOUTS[config.version]["papers"].stems[0]
        raise InputNotFoundError(
            f"{config.folder} has no table {stem}{', or does not exist' if '://' in config.folder else ''}. Set the "
            "folder that holds it, or the other version: SciSciNetConfig.version='v1' for tab-separated text."
        )
    if config.texts is not None and "texts" not in tables:
        stem = LAYOUTS[config.version]["texts"].stems[0]
        raise InputNotFoundError(
            f"{config.texts} has no table {stem}. Set SciSciNetConfig.texts to the folder that holds it."
        )
    if "fields" not in tables:
        tables.pop("paper_fields", None)  # numbers of fields are useless without names
    absent = [name for name in LAYOUTS[config.version] if name not in tables]
    if absent:
        logger.info("SciSciNet: no table of %s; their columns are null", ", ".join(absent))
    return SciSciNet(config, tables)
