"""scan_synthetic: a synthetic world of science, made from a seed alone.

Every work has a hidden kind. Later works tend to cite a *disruptive* work without its references, and a *developing*
work together with one of them. They cite an *even-handed* work in both ways by turns. The kind also changes the wording
of title and abstract. So the text predicts the CD index better than chance, but not well.

The same configuration gives the same rows on every machine: all choices are integer arithmetic on counter-based numbers
(``sciscidata._kernels.random``). A change of the rows raises ``GENERATOR_VERSION``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import asdict

import polars as pl

from sciscidata.options.checks import checked_config
from sciscidata.schemas import CITATIONS, WORKS, Corpus
from sciscidata.sources.kinds import Citations, Facts, Opening, ToRead
from sciscidata.sources.lazy_batches import scan_batches
from sciscidata.sources.synthetic.config import SyntheticConfig

GENERATOR_VERSION = 1

_CHUNK = 20_000  # works whose texts are in memory together while a query streams
_SHARES = {"disruptive": 0.3, "consolidating": 0.37, "neutral": 0.22}


def scan_synthetic(config: SyntheticConfig | None = None) -> Corpus:
    """Describe a synthetic world as two lazy frames.

    Each query makes only its columns, every time again. The citations of 100,000 works take 0.1 s, with all texts 1 s.
    Texts are written in chunks, so a streaming query never holds all of them.

    Args:
        config: the world; ``SyntheticConfig()`` when None.

    Returns:
        Corpus. ``works`` is WORKS sorted by year and field; ``cited_by_count`` counts the citations within the world;
        ``work_id`` is spread over 1..2^33. ``citations`` is CITATIONS, grouped by citing work. Each edge is there once,
        between works of the frame, of no work by itself, never to a later year. ``works.ODDITIES_PER_MILLION`` gives
        the shares of the oddities of real records.

    Example:
        >>> works, citations, _ = scan_synthetic(SyntheticConfig(n_works=1_000))
        >>> works.select(pl.len(), pl.col("publication_year").max()).collect().row(0)
        (1000, 2024)
        >>> citations.collect_schema().names()
        ['citing_id', 'cited_id']
    """
    config = checked_config(config, SyntheticConfig)

    def read(columns: list[str]) -> Iterator[pl.DataFrame]:
        from sciscidata.sources.synthetic.works import WorkWriter  # numba takes seconds to import

        writer = WorkWriter(config)
        for start in range(0, config.n_works, _CHUNK):
            yield writer.rows(start, min(start + _CHUNK, config.n_works), columns)

    works = scan_batches(read, WORKS, "a synthetic world")
    citations = pl.defer(functools.partial(_citations, config), schema=CITATIONS)
    provenance = {"kind": "synthetic", "generator_version": GENERATOR_VERSION, "config": asdict(config)}
    return Corpus(works, citations, provenance)


def _citations(config: SyntheticConfig) -> pl.DataFrame:
    import numpy as np

    from sciscidata.sources.synthetic.graph import lay_out, pick_references
    from sciscidata.sources.synthetic.works import work_ids

    lists = pick_references(lay_out(config), config.seed)
    ids = work_ids(config.n_works, config.seed)
    citing = np.repeat(ids, np.diff(lists.offsets))
    return pl.DataFrame({"citing_id": citing, "cited_id": ids[lists.references]}, schema=CITATIONS)


def open_synthetic(config: SyntheticConfig, _: Opening) -> Citations:
    """Open a synthetic world."""
    works, citations, provenance = scan_synthetic(config)
    return Citations(works, citations, Facts(provenance, works))


def measure_synthetic(config: SyntheticConfig) -> ToRead:
    """Say how large the world is."""
    name = f"a synthetic world of {config.n_works:,} works"
    citations = round(config.n_works * config.mean_references)
    return ToRead(name, config.n_works, citations, shares=(_SHARES, "as in a world of 5,000 works"))
