"""The source "SciSciNet": its tables as works and citations, with its published scores or computed ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import polars as pl

from sciscidata.corpus.writer import write_corpus
from sciscidata.engines.engine import Engine
from sciscidata.errors import ConfigError, InputNotFoundError, SchemaMismatchError
from sciscidata.label_thresholds import LabelThresholds, compute_labels, count_labels
from sciscidata.novelty.atypicality import join_atypicality, rank_on_disk, rescore
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.options.checks import require_config
from sciscidata.remote.object_store import is_url
from sciscidata.schemas import AS_PUBLISHED, ATYPICALITY, CITATIONS, WORKS, Corpus
from sciscidata.sources.kinds import Citations, Facts, Opening, Scores, Texts, ToRead
from sciscidata.sources.lazy_batches import scan_batches
from sciscidata.sources.sciscinet.config import LAYOUTS, SciSciNetConfig
from sciscidata.sources.sciscinet.order import read_in_order
from sciscidata.sources.sciscinet.published_scores import (
    publish_atypicality,
    publish_disruption,
    published_cd,
    published_z,
)
from sciscidata.sources.sciscinet.tables import Table, describe_table, find_table, reading
from sciscidata.sources.sciscinet.works import join_works
from sciscidata.storage import scratch_folder
from sciscidata.terminal.progress import progress_bar

logger = logging.getLogger(__name__)

_BATCH_ROWS: Final = 8_192
_RECOMPUTED: Final = "computed from the references"
_PUBLISHED: Final = (
    f"{AS_PUBLISHED}, over all years; of the CD options only window_years is read: a work must be as old"
)
_CD: Final = ("disruption", "citation_count", "reference_count")
_Z: Final = ("z_p10", "z_median", "n_pairs")
_FACTS: Final = pl.Schema(
    {name: WORKS[name] for name in ("work_id", "publication_year", "work_type", "is_retracted")}
    | {"reference_count": pl.Int64(), "citation_count": pl.Int64()}
)
_SCORES: Final = ("cd_index", *(name for name in ATYPICALITY if name != "work_id"))
_TEXTS: Final = ("title", "abstract")


@dataclass(frozen=True)
class SciSciNet:
    """Lazy frames that read only what a query needs. Columns of a missing table are null, unless all would be."""

    config: SciSciNetConfig
    tables: Mapping[str, Table]  # those that exist, by the names of LAYOUTS

    @cached_property
    def works(self) -> pl.LazyFrame:
        """WORKS, unordered. A query without title, abstract and language does not open the table of texts."""

        def read(columns: list[str]) -> Iterator[pl.DataFrame]:
            return join_works(self.tables, columns).collect_batches(chunk_size=_BATCH_ROWS)

        return scan_batches(read, WORKS, "SciSciNet works")

    @property
    def structure(self) -> pl.LazyFrame:
        """What a draw needs before texts, and the published scores, in one pass over the table of papers. Unordered."""
        papers = self.tables["papers"]
        frame = papers.scan(*_FACTS, *(name for name in ("disruption", *_Z) if name in papers.columns))
        frame = frame.drop_nulls("work_id").with_columns(pl.col("is_retracted").cast(pl.Boolean)).cast(_FACTS)
        frame = frame.with_columns(pl.col("is_retracted").fill_null(value=False))
        if papers.columns.keys() >= {*_CD}:
            frame = frame.with_columns(published_cd().alias("cd_index"))
        if papers.columns.keys() >= {*_Z}:
            frame = rescore(frame.with_columns(published_z()), "sigmoid")
        there = frame.collect_schema()
        return frame.select(*_FACTS, *(name for name in _SCORES if name in there))

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
        """CD_SCORES as published: ``cd_index`` is SciSciNet's disruption, the counts are null. Unordered."""
        return publish_disruption(self.published(*_CD))

    @property
    def atypicality(self) -> pl.LazyFrame:
        """ATYPICALITY as published, with the scores that ``compute_atypicality`` makes from z. Unordered."""
        return publish_atypicality(self.published(*_Z))

    def published(self, *names: str) -> pl.LazyFrame:
        """Columns of the table of papers; a SchemaMismatchError, before any row is read, if one is missing."""
        if why := self.describe_lacking(*names):
            raise SchemaMismatchError(why)
        return self.tables["papers"].scan("work_id", *names).drop_nulls("work_id")

    def describe_lacking(self, *names: str) -> str:
        """Say which columns the table of papers lacks, and what to do; nothing if it has all."""
        papers = self.tables["papers"]
        published = LAYOUTS[self.config.version]["papers"].columns
        missing = [published[name][0] for name in names if name not in papers.columns]
        if not missing:
            return ""
        return (
            f"SciSciNet table papers ({papers.location}) lacks {', '.join(missing)}; it has "
            f"{', '.join(papers.raw.collect_schema())}. Use the whole table, or compute the scores from the "
            "references with SciSciNetConfig.recompute=True."
        )

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

    def in_text_order(self) -> pl.LazyFrame:
        """WORKS in the order of the table of texts, in bounded memory; without that table, by id. See ``order.py``."""
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


def open_sciscinet(config: SciSciNetConfig, opening: Opening) -> Citations | Scores:
    """Open the tables. With ``recompute``, works are scored by their citations, and published scores compared."""
    tables = scan_sciscinet(config)
    opening.until_end.enter_context(reading(tables.tables))
    texts = Texts(tables.in_text_order(), tables.read_works, fields=tables.in_id_order())
    facts = Facts(tables.provenance, tables.vocabulary)
    structure = tables.structure
    if config.recompute:  # the graph reads only years and venues, in any order
        return Citations(tables.works, tables.citations, facts._replace(published=structure), texts)
    tables.published(*_CD)

    def rows(novelty: NoveltyConfig | None, _: LabelThresholds) -> pl.LazyFrame:
        """Return the published scores. Ranks lie on disk, because a query would hold all works."""
        if novelty is None or "z_p10" not in structure.collect_schema():
            scored = join_atypicality(structure, structure, structure, None)
        elif novelty.score == "rank":
            scored = rank_on_disk(structure, opening.until_end.enter_context(scratch_folder()))
        else:
            scored = structure
        return scored.rename({"reference_count": "n_references", "citation_count": "n_citers"})

    lacks = dict.fromkeys(("z_p10", "z_median"), why) if (why := tables.describe_lacking(*_CD, *_Z)) else {}
    return Scores(rows, facts._replace(lacks=lacks), texts)


def read_citations_of(config: SciSciNetConfig) -> SciSciNetConfig:
    """Return the configuration whose works have citations."""
    return replace(config, recompute=True)


def measure_sciscinet(config: SciSciNetConfig) -> ToRead:
    """Name the tables. Where scores are published and lie on this machine, count the classes too."""
    corpus = scan_sciscinet(config)

    def count(thresholds: LabelThresholds) -> str:
        with reading(corpus.tables):
            counts = count_labels(compute_labels(corpus.structure.select("cd_index"), thresholds))
        return "classes, counted, before the filters: " + ", ".join(f"{label} {n:,}" for label, n in counts.items())

    return ToRead(
        f"SciSciNet, {len(corpus.tables)} tables of {config.folder}: {', '.join(corpus.tables)}",
        describe_classes=None if config.recompute or is_url(str(config.folder)) else count,
        time="minutes where scores are published; with recompute about one for each 60 million citations",
    )


def write_sciscinet(
    config: SciSciNetConfig, out: str | Path, *, texts: bool, authors: bool, overwrite: bool, engine: Engine | None
) -> Corpus:
    """Write the tables as a corpus on disk, which holds no scores, with a progress bar."""
    _ = engine
    if authors:
        raise ConfigError(
            "keep_authors=True has no effect: authors of SciSciNet lie in a table of their own, "
            "sciscinet_paperauthoraffiliation.parquet. Leave it out, and scan that table by scan_authors in Python."
        )
    if config.texts is not None and not texts:
        raise ConfigError(
            f"texts lie in {config.texts} (SciSciNetConfig.texts), and texts=False says not to read them. "
            "Leave out one of the two."
        )
    tables = scan_sciscinet(read_citations_of(config))
    # Without texts no other order is given; and only a fixed one gives the same files every time.
    works = tables.in_text_order() if texts else tables.in_id_order()
    absent = [] if texts else [pl.lit(None, pl.String()).alias(name) for name in ("title", "abstract")]
    corpus = Corpus(works.with_columns(absent), tables.citations, tables.provenance)
    inputs = sorted({file for table in tables.tables.values() for file in table.files})
    with reading(tables.tables), progress_bar("write corpus", unit="rows") as advance:
        return write_corpus(corpus, out, texts=texts, inputs=inputs, overwrite=overwrite, advance=advance)
