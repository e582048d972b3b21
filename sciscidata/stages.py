"""One stage at a time, each from disk to disk: a corpus, its graph, its disruption, its novelty.

What a killed run has finished is used by the next one: parts of a corpus, stages of a graph, years of scores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import polars as pl

from sciscidata._support.progress import progress_bar
from sciscidata._support.validate import checked_config, parse_shard
from sciscidata.config import SourceConfig, check_source
from sciscidata.corpus.folder import CorpusConfig, scan_corpus
from sciscidata.corpus.graph import open_corpus_graph
from sciscidata.corpus.scores import is_done, state_facts, write_scores
from sciscidata.corpus.writer import write_corpus
from sciscidata.disruption.index import CDConfig, cache_cd_index, shard_range
from sciscidata.errors import ConfigError
from sciscidata.novelty.atypicality import cache_atypicality, venue_numbers
from sciscidata.novelty.background import read_background
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.open_source import open_corpus
from sciscidata.sampling.manifest_entries import describe_background
from sciscidata.schemas import Corpus
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.sciscinet.source import SciSciNet, SciSciNetConfig, scan_sciscinet
from sciscidata.sources.sciscinet.tables import Table, reading
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot, snapshot_bytes
from sciscidata.storage.year_parts import by_work_id


def ingest(
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
        ConfigError: at once, if the source is the API or a corpus, or a snapshot and not ``texts``; or if it says where
            texts lie, and not ``texts``.
        ReleaseExistsError: at once, if ``out`` holds another corpus and not ``overwrite``.
        SciSciDataError: as the source and ``write_corpus`` raise. What was written so far is kept.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     corpus = ingest(SyntheticConfig(n_works=500), Path(home) / "world", cache_dir=home)
        ...     corpus.provenance["works"], corpus.works.select("title").collect().height
        (500, 500)
    """
    check_source(source, "source")
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
        if source.texts is not None and not texts:
            msg = (
                f"texts lie in {source.texts} (--sciscinet-texts), but none are to be read: texts=False (--no-texts). "
                "Leave one of them out."
            )
            raise ConfigError(msg)
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


def write_cd_index(
    folder: str | Path,
    out: str | Path,
    config: CDConfig | None = None,
    *,
    shard: str | None = None,
    cache_dir: str | Path,
    overwrite: bool = False,
) -> Path:
    """Score every work of a corpus on disk by its CD index, into one Parquet file. Executes.

    Args:
        folder: the corpus.
        out: the file to write. One that holds the same scores of the same corpus is left as it is.
        config: conventions; ``CDConfig()`` when None.
        shard: score one share of the works only, ``"2/8"`` for the second of eight with about as many references
            each; every other work counts as a citer all the same. Shares do not overlap, and together are the whole.
        cache_dir: for the graph, and the years that are scored already.
        overwrite: replace another result of this package that is there; anything else never is.

    Returns:
        ``out``: CD_SCORES (with ``config.family`` also CD_FAMILY), sorted by work_id; its metadata say of which corpus
        and by which conventions.

    Raises:
        InputNotFoundError, EmptyInputError: as open_corpus_graph.
        ConfigError: at once, if ``out`` is named like another kind of file than Parquet, or there is no such ``shard``.
        ReleaseExistsError: at once, if ``out`` holds something else, or another or a damaged result and not
            ``overwrite``.
        StorageError: a file of the corpus is damaged, the disk is full, or ``out`` cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.corpus.scores import read_score_facts
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     world = Path(home) / "world"
        ...     _ = ingest(SyntheticConfig(n_works=500), world, cache_dir=home)
        ...     file = write_cd_index(world, Path(home) / "cd.parquet", cache_dir=home)
        ...     pl.read_parquet(file).height, read_score_facts(file)["stage"]
        (500, 'cd')
    """
    config = checked_config(config, CDConfig)
    facts = state_facts("cd", folder, asdict(config))
    number, n_shards = (1, 1) if shard is None else parse_shard(shard)
    if shard is not None:
        facts |= {"shard": f"{number}/{n_shards}"}
    if is_done(Path(out), facts, overwrite=overwrite):
        return Path(out)
    replace = Path(out).exists()  # another result, or a damaged one
    graph = open_corpus_graph(folder, cache_dir=cache_dir)
    focal = shard_range(graph, number - 1, n_shards)
    parts = cache_cd_index(graph, cache_dir, config, focal=focal)
    return write_scores(by_work_id(parts, graph.work_ids[focal.start : focal.stop]), Path(out), facts, replace=replace)


def write_atypicality(
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
        out: as in write_cd_index.
        config: the null model; ``NoveltyConfig()`` when None.
        background: a saved null model to score against; that of the corpus itself when None.
        cache_dir: as in write_cd_index.
        overwrite: as in write_cd_index.

    Returns:
        ``out``: ATYPICALITY, sorted by work_id; its metadata say of which corpus and under which null model.

    Raises:
        InputNotFoundError, EmptyInputError: as open_corpus_graph.
        BackgroundError, ConfigError: at once, if ``background`` is no such file, or of another null model.
        ReleaseExistsError, StorageError: as write_cd_index.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from sciscidata.sources.synthetic.source import SyntheticConfig
        >>> with TemporaryDirectory() as home:
        ...     world = Path(home) / "world"
        ...     _ = ingest(SyntheticConfig(n_works=500), world, cache_dir=home)
        ...     file = write_atypicality(world, Path(home) / "novelty.parquet", cache_dir=home)
        ...     pl.read_parquet(file)["z_p10"].count() > 100
        True
    """
    config = checked_config(config, NoveltyConfig)
    stated = describe_background(None if background is None else Path(background), config)
    facts = state_facts("novelty", folder, asdict(config)) | {"background": stated}
    if is_done(Path(out), facts, overwrite=overwrite):
        return Path(out)
    replace = Path(out).exists()
    works = scan_corpus(folder).works
    graph = open_corpus_graph(folder, cache_dir=cache_dir)
    table = None if background is None else read_background(background).for_venues_of(works)
    parts = cache_atypicality(graph, venue_numbers(graph, works), cache_dir, config, background=table)
    return write_scores(by_work_id(parts, graph.work_ids[: graph.n_known]), Path(out), facts, replace=replace)


def _local_files(tables: SciSciNet) -> list[Path]:
    """List the files of SciSciNet that lie on this machine."""
    found: list[Path] = []
    for table in tables.tables.values():
        location = Path(re.sub("^file://", "", table.location, flags=re.I))
        found += sorted(location.parent.glob(location.name)) if location.parent.is_dir() else []
    return sorted(set(found))
