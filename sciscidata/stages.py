"""One stage at a time, each from disk to disk: a corpus, its graph, its disruption, its novelty.

What a killed run has finished is used by the next one: parts of a corpus, stages of a graph, years of scores.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata.cdindex import CDConfig, write_cd_index
from sciscidata.errors import ConfigError, EmptyInputError, InputNotFoundError, ReleaseExistsError
from sciscidata.graph import CitationGraph, build_graph
from sciscidata.novelty import score_atypicality, venue_numbers
from sciscidata.novelty_background import read_background
from sciscidata.novelty_config import NoveltyConfig
from sciscidata.progress import progress_bar
from sciscidata.scored_source import SourceConfig, open_corpus
from sciscidata.sources import Corpus
from sciscidata.sources.corpus_folder import CorpusConfig, naming_damage, scan_corpus
from sciscidata.sources.corpus_writing import write_corpus
from sciscidata.sources.openalex_candidates import OpenAlexConfig
from sciscidata.sources.sciscinet import SciSciNet, SciSciNetConfig, scan_sciscinet
from sciscidata.sources.sciscinet_reading import reading
from sciscidata.sources.sciscinet_tables import Table
from sciscidata.sources.snapshot import SnapshotConfig, ingest_snapshot, snapshot_bytes
from sciscidata.statement import describe_background
from sciscidata.storage import atomic_folder, flush

logger = logging.getLogger(__name__)

_KEY: Final = b"sciscidata_stage"
_ROWS_PER_GROUP: Final = 1 << 18
_ROWS_PER_BATCH: Final = 1 << 21  # about, and at once in memory, with what sorting them needs about 1 GB
_SAMPLE: Final = 1 << 16
#: Raised by one whenever the same corpus and config give other scores.
_FORMAT_VERSIONS: Final = {"cd": 1, "novelty": 1}


def ingest_corpus(
    source: SourceConfig, out: str | Path, *, cache_dir: str | Path, texts: bool = True, overwrite: bool = False
) -> Corpus:
    """Read a source once into a corpus on disk, from where every later stage reads it. Executes.

    Args:
        source: any but the API, which gives a sample, or a corpus, which is one already.
        out: a folder of its own.
        cache_dir: for records parsed on the way.
        texts: write titles and abstracts too; of a snapshot they always are.
        overwrite: replace another corpus that is there; files that are none of a corpus never are.

    Returns:
        What ``scan_corpus`` gives.

    Raises:
        ConfigError: at once, if the source is the API or a corpus, or a snapshot and not ``texts``.
        ReleaseExistsError: at once, if ``out`` holds another corpus and not ``overwrite``.
        SciSciDataError: as the source and ``write_corpus`` raise. What was written so far is kept.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     corpus = ingest_corpus(SyntheticConfig(n_works=500), Path(home) / "world", cache_dir=home)
        ...     corpus.provenance["works"], corpus.works.select("title").collect().height
        (500, 500)
    """
    if isinstance(source, OpenAlexConfig | CorpusConfig):
        msg = (
            "a corpus is made of a whole source: name a snapshot (--snapshot FOLDER), files of works (--input FILE), "
            "SciSciNet (--sciscinet FOLDER), or a synthetic world (--source synthetic)."
        )
        raise ConfigError(msg)
    if isinstance(source, SnapshotConfig):
        if not texts:
            msg = "a snapshot is always read with its texts, in one pass. Leave out texts=False (--no-texts)."
            raise ConfigError(msg)
        with progress_bar("read snapshot", snapshot_bytes(source), unit="bytes") as advance:
            return ingest_snapshot(source, out, advance, overwrite=overwrite)
    inputs: list[Path] = []
    held: Mapping[str, Table] = {}
    if isinstance(source, SciSciNetConfig):
        tables = scan_sciscinet(source)
        inputs, held = _local_files(tables), tables.tables
        # Without texts no other order is given; and only a fixed one gives the same files every time.
        works = tables.in_text_order() if texts else tables.in_id_order()
        absent = [] if texts else [pl.lit(None, pl.String()).alias(name) for name in ("title", "abstract")]
        corpus = Corpus(works.with_columns(absent), tables.citations, tables.provenance)
    else:
        corpus = open_corpus(source, Path(cache_dir))
    with reading(held), progress_bar("write corpus", unit="rows") as advance:
        return write_corpus(corpus, out, texts=texts, inputs=inputs, overwrite=overwrite, advance=advance)


def open_graph_of(folder: str | Path, *, cache_dir: str | Path) -> CitationGraph:
    """Build the citation graph of a corpus on disk, or map the one that is there. Executes.

    Args:
        folder: the corpus.
        cache_dir: where the graph lies; ``folder / "cache"`` by convention.

    Raises:
        InputNotFoundError: at once; no corpus, or an unfinished one.
        EmptyInputError: it holds no citations.
        StorageError: a file of it is damaged.
        SciSciDataError: as build_graph raises.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     _ = ingest_corpus(SyntheticConfig(n_works=500), Path(home) / "world", cache_dir=home)
        ...     open_graph_of(Path(home) / "world", cache_dir=home).n_works
        500
    """
    with naming_damage(Path(folder)):
        works, citations, _ = _scan_with_citations(folder)
        return build_graph(citations, works, cache_dir=cache_dir)


def graph_folder(graph: CitationGraph) -> Path:
    """Return where a graph of open_graph_of lies."""
    mapped: Any = graph.ref_offsets  # never empty, so it is mapped
    return Path(mapped.filename).parent


def write_cd_scores(
    folder: str | Path,
    out: str | Path,
    config: CDConfig | None = None,
    *,
    cache_dir: str | Path,
    overwrite: bool = False,
) -> Path:
    """Score every work of a corpus on disk by its CD index, into one Parquet file. Executes.

    Args:
        folder: the corpus.
        out: the file to write. One that holds the same scores of the same corpus is left as it is.
        config: conventions; ``CDConfig()`` when None.
        cache_dir: for the graph, and the years that are scored already.
        overwrite: replace another result of this package that is there; anything else never is.

    Returns:
        ``out``: CD_SCORES (with ``config.family`` also CD_FAMILY), sorted by work_id; its metadata say of which corpus
        and by which conventions.

    Raises:
        InputNotFoundError, EmptyInputError: as open_graph_of.
        ConfigError: at once, if ``out`` is named like another kind of file than Parquet.
        ReleaseExistsError: at once, if ``out`` holds something else, or another result and not ``overwrite``.
        StorageError: a file of the corpus is damaged, the disk is full, or ``out`` cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     world = Path(home) / "world"
        ...     _ = ingest_corpus(SyntheticConfig(n_works=500), world, cache_dir=home)
        ...     file = write_cd_scores(world, Path(home) / "cd.parquet", cache_dir=home)
        ...     pl.read_parquet(file).height, read_result(file)["stage"]
        (500, 'cd')
    """
    config = config or CDConfig()
    facts = _facts("cd", folder, asdict(config))
    _refuse_suffix(Path(out))
    if _is_done(Path(out), facts, overwrite=overwrite):
        return Path(out)
    graph = open_graph_of(folder, cache_dir=cache_dir)
    years = write_cd_index(graph, cache_dir, config)
    return _write(_sorted_batches(pl.scan_parquet(sorted(years.glob("*.parquet"))), graph), Path(out), facts)


def write_novelty_scores(
    folder: str | Path,
    out: str | Path,
    config: NoveltyConfig | None = None,
    *,
    background: str | Path | None = None,
    cache_dir: str | Path,
    overwrite: bool = False,
) -> Path:
    """Score every work of a corpus on disk by its venue pairs, into one Parquet file. Executes.

    Args:
        folder: the corpus.
        out: as in write_cd_scores.
        config: the null model; ``NoveltyConfig()`` when None.
        background: a saved null model to score against; that of the corpus itself when None.
        cache_dir: for the graph.
        overwrite: as in write_cd_scores.

    Returns:
        ``out``: ATYPICALITY, sorted by work_id; its metadata say of which corpus and under which null model.

    Raises:
        InputNotFoundError, EmptyInputError: as open_graph_of.
        BackgroundError, ConfigError: at once, if ``background`` is no such file, or of another null model.
        ReleaseExistsError, StorageError: as write_cd_scores.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     world = Path(home) / "world"
        ...     _ = ingest_corpus(SyntheticConfig(n_works=500), world, cache_dir=home)
        ...     file = write_novelty_scores(world, Path(home) / "novelty.parquet", cache_dir=home)
        ...     pl.read_parquet(file)["z_p10"].count() > 100
        True
    """
    config = config or NoveltyConfig()
    stated = describe_background(None if background is None else Path(background), config)
    facts = _facts("novelty", folder, asdict(config)) | {"background": stated}
    _refuse_suffix(Path(out))
    if _is_done(Path(out), facts, overwrite=overwrite):
        return Path(out)
    works = scan_corpus(folder).works
    graph = open_graph_of(folder, cache_dir=cache_dir)
    with naming_damage(Path(folder)):
        table = None if background is None else read_background(background).for_venues_of(works)
        venues = venue_numbers(graph, works)
    rows = score_atypicality(graph, venues, config, background=table)
    return _write([rows.sort("work_id")], Path(out), facts)


def read_result(path: str | Path) -> dict[str, Any]:
    """Read what a file of write_cd_scores or write_novelty_scores says of itself.

    Returns:
        ``stage``: ``"cd"`` or ``"novelty"``; ``config``; ``source`` and ``corpus_sha256``: of what; ``rows``;
        ``columns``.

    Raises:
        InputNotFoundError: there is no such file, or it is something else.

    Example:
        >>> read_result("none.parquet")
        Traceback (most recent call last):
        ...
        sciscidata.errors.InputNotFoundError: none.parquet is no file of scores that this package has written. Check the
        path.
    """
    try:
        metadata = pq.read_metadata(path)
        facts: dict[str, Any] = json.loads((metadata.metadata or {})[_KEY])
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        msg = f"{path} is no file of scores that this package has written. Check the path."
        raise InputNotFoundError(msg) from error
    return facts | {"rows": metadata.num_rows, "columns": metadata.schema.names}


def _scan_with_citations(folder: str | Path) -> Corpus:
    corpus = scan_corpus(folder)
    if corpus.citations.head(1).collect().is_empty():
        msg = f"the corpus in {folder} holds no citations, so it has no graph. Check its source."
        raise EmptyInputError(msg)
    return corpus


def _local_files(tables: SciSciNet) -> list[Path]:
    """List the files of SciSciNet that lie on this machine."""
    found: list[Path] = []
    for table in tables.tables.values():
        location = Path(re.sub("^file://", "", table.location, flags=re.I))
        found += sorted(location.parent.glob(location.name)) if location.parent.is_dir() else []
    return sorted(set(found))


def _facts(stage: str, folder: str | Path, config: dict[str, Any]) -> dict[str, Any]:
    provenance = scan_corpus(folder).provenance
    return {
        "stage": stage,
        "format_version": _FORMAT_VERSIONS[stage],
        "config": config,
        "source": provenance.get("kind"),
        "corpus_sha256": provenance["report_sha256"],
    }


def _is_done(out: Path, facts: Mapping[str, Any], *, overwrite: bool) -> bool:
    """Whether the result is there already; refuse to replace what may not be."""
    if not out.exists():
        return False
    try:
        found = read_result(out)
    except InputNotFoundError as error:
        msg = f"{out} is there and no file of scores, so it is not replaced. Choose another file, or remove it."
        raise ReleaseExistsError(msg) from error
    if all(found.get(name) == value for name, value in json.loads(json.dumps(facts)).items()):
        logger.info("%s holds these scores already", out)
        return True
    if not overwrite:
        msg = f"{out} already exists. Choose another file, or replace it: overwrite=True (--overwrite)."
        raise ReleaseExistsError(msg)
    return False


def _refuse_suffix(out: Path) -> None:
    if out.suffix not in ("", ".parquet"):
        msg = f"scores are written as Parquet, and {out.name} is named otherwise. Choose {out.stem}.parquet, say."
        raise ConfigError(msg)


def _sorted_batches(scores: pl.LazyFrame, graph: CitationGraph) -> Iterator[pl.DataFrame]:
    """Sort the scores of all works by their ids, one span of ids after the other, so that they need not fit in memory.

    The years, of which each is sorted by itself, are scanned once per span; statistics spare most of the reading.
    """
    ids = graph.work_ids[: graph.n_known]
    sample = np.sort(ids[:: max(1, ids.size // _SAMPLE)])
    n_spans = -(-ids.size // _ROWS_PER_BATCH)
    bounds = [int(sample[sample.size * edge // n_spans]) for edge in range(1, n_spans)]
    work_id = pl.col("work_id")
    for low, high in pairwise([None, *bounds, None]):
        span = scores if low is None else scores.filter(work_id >= low)
        yield (span if high is None else span.filter(work_id < high)).collect(engine="streaming").sort("work_id")


def _write(batches: Iterable[pl.DataFrame], out: Path, facts: Mapping[str, Any]) -> Path:
    """Write rows, which come in the order of their ids, whole or not at all."""
    home = out.with_name(f".{out.name}.unfinished")
    with atomic_folder(home, overwrite=True) as folder:
        metadata = {_KEY: json.dumps(facts, sort_keys=True)}
        with ExitStack() as stack:
            writer: Any = None
            for rows in batches:
                table: Any = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
                if writer is None:
                    schema = table.schema.with_metadata(metadata)
                    writer = stack.enter_context(pq.ParquetWriter(folder / out.name, schema, compression="zstd"))
                writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
        flush(folder / out.name)
        (folder / out.name).replace(out)
    home.rmdir()
    return out
