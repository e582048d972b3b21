"""scan_synthetic: a synthetic world of science, made from a seed alone.

Every work has a hidden kind. Later works tend to cite a *disruptive* work without its references, a *developing* work
together with one of them, and an *even-handed* work in both ways by turns. The kind also changes the wording of title
and abstract, so the text predicts the CD index better than chance, but not well.

The same configuration gives the same rows on every machine: all choices are integer arithmetic on counter-based numbers
(``sciscidata._kernels.random``). A change of the rows raises ``GENERATOR_VERSION``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
import polars as pl
from polars.io.plugins import register_io_source

from sciscidata._support.short_repr import short_repr
from sciscidata._support.validate import Share, check_fields, checked_config
from sciscidata.errors import ConfigError
from sciscidata.schemas import CITATIONS, WORKS, Corpus

if TYPE_CHECKING:
    from sciscidata.sources.synthetic.graph import Layout, ReferenceLists

_log = logging.getLogger(__name__)

GENERATOR_VERSION = 1

_CHUNK = 50_000  # works whose texts are in memory together while a query streams


@dataclass(frozen=True, kw_only=True, slots=True)
class SyntheticConfig:
    """Size and shape of a synthetic world.

    A world of another size with the same seed is another world: works do not keep their ids or their references.

    Attributes:
        n_works: number of works in the synthetic world.
        seed: seed of the synthetic world.
        first_year: earliest publication year.
        last_year: latest publication year, at most 999 years later.
        growth_per_year: growth of each year over the one before; 0.045 is 4.5 %.
        mean_references: mean length of the reference lists that are not empty (log-normal, all within the world). The
            mean over all works is somewhat lower, because the first years find little to cite.
        no_references_share: share of works whose reference list is not on record.
        disruptive_share: share of works of the disruptive kind.
        developing_share: share of works of the developing kind; the rest is even-handed.
        text_signal: share of sentences that surely speak in the voice of the work's kind, in steps of 0.01; the others
            speak in any of the three voices. 0: the text says nothing about the kind.

    Raises:
        ConfigError: on construction, if a value is out of its range.

    Example:
        >>> SyntheticConfig(n_works=0)
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: SyntheticConfig.n_works is 0, needs a whole number from 1 to 2,147,483,647.
    """

    n_works: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 100_000
    seed: int = 0
    first_year: Annotated[int, msgspec.Meta(ge=1_000, le=9_999)] = 1980
    last_year: int = 2024
    growth_per_year: Annotated[float, msgspec.Meta(ge=-0.5, le=1)] = 0.045
    mean_references: Annotated[float, msgspec.Meta(ge=1, le=1_000)] = 12.0
    no_references_share: Share = 0.06
    disruptive_share: Share = 0.3
    developing_share: Share = 0.3
    text_signal: Share = 0.5

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_fields(self)
        first, most = self.first_year, 1 - self.disruptive_share
        if not first <= self.last_year <= first + 999:
            msg = f"SyntheticConfig.last_year is {self.last_year}, needs a whole number from {first} to {first + 999}."
            raise ConfigError(msg)
        if self.developing_share > most + 1e-12:  # 1 - 0.9 is a little less than 0.1
            msg = (
                f"SyntheticConfig.developing_share is {self.developing_share}, needs a number from 0 to {most:g}, what "
                "SyntheticConfig.disruptive_share leaves."
            )
            raise ConfigError(msg)


def scan_synthetic(config: SyntheticConfig | None = None) -> Corpus:
    """Describe a synthetic world as two lazy frames.

    Each query makes only its columns, every time again (0.1 s for the citations of 100,000 works, 1 s with all texts).
    Texts are written in chunks, so a streaming query never holds all of them.

    Args:
        config: the world; ``SyntheticConfig()`` when None.

    Returns:
        Corpus. ``works`` is WORKS sorted by year and field; ``cited_by_count`` counts the citations within the world;
        ``work_id`` is spread over 1..2^33. ``citations`` is CITATIONS, grouped by citing work: each edge once, between
        works of the frame, without self-citations, never to a later year. ``works.ODDITIES_PER_MILLION`` gives the
        shares of the oddities of real records.

    Example:
        >>> works, citations, _ = scan_synthetic(SyntheticConfig(n_works=1_000))
        >>> works.select(pl.len(), pl.col("publication_year").max()).collect().row(0)
        (1000, 2024)
        >>> citations.collect_schema().names()
        ['citing_id', 'cited_id']
    """
    config = checked_config(config, SyntheticConfig)
    works = register_io_source(functools.partial(_stream_works, config), schema=WORKS, is_pure=True)
    citations = pl.defer(functools.partial(_citations, config), schema=CITATIONS)
    provenance = {"kind": "synthetic", "generator_version": GENERATOR_VERSION, "config": asdict(config)}
    return Corpus(works, citations, provenance)


# numba takes seconds to import, so the functions import the modules that need it.


def _lay_out(config: SyntheticConfig) -> Layout:
    from sciscidata.sources.synthetic.graph import lay_out
    from sciscidata.sources.synthetic.words import FIELD_WEIGHTS

    return lay_out(
        n_works=config.n_works,
        n_years=config.last_year - config.first_year + 1,
        seed=config.seed,
        growth_per_year=config.growth_per_year,
        mean_references=config.mean_references,
        no_references_share=config.no_references_share,
        kind_shares=(config.disruptive_share, config.developing_share),
        field_weights=FIELD_WEIGHTS,
    )


def _pick_references(config: SyntheticConfig, layout: Layout) -> ReferenceLists:
    from sciscidata.sources.synthetic.graph import pick_references
    from sciscidata.sources.synthetic.words import FIELD_WEIGHTS

    lists = pick_references(layout, seed=config.seed, field_weights=FIELD_WEIGHTS)
    _log.debug("grew a synthetic world of %d works and %d citations", config.n_works, len(lists.references))
    return lists


def _stream_works(
    config: SyntheticConfig,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    import numpy as np

    from sciscidata.sources.synthetic.works import WorkWriter

    columns = with_columns if with_columns is not None else list(WORKS)
    layout = _lay_out(config)
    in_degrees = None
    if "cited_by_count" in columns:
        in_degrees = np.bincount(_pick_references(config, layout).references, minlength=config.n_works)
    writer = WorkWriter(
        layout,
        in_degrees,
        seed=config.seed,
        first_year=config.first_year,
        signal_per_cent=round(config.text_signal * 100),
    )
    end = config.n_works if n_rows is None else min(n_rows, config.n_works)
    step = min(batch_size or _CHUNK, _CHUNK)
    for start in range(0, end, step):
        rows = writer.rows(start, min(start + step, end), columns)
        yield rows if predicate is None else rows.filter(predicate)


def _citations(config: SyntheticConfig) -> pl.DataFrame:
    import numpy as np

    from sciscidata.sources.synthetic.works import work_ids

    lists = _pick_references(config, _lay_out(config))
    ids = work_ids(config.n_works, config.seed)
    citing = np.repeat(ids, np.diff(lists.offsets))
    return pl.DataFrame({"citing_id": citing, "cited_id": ids[lists.references]}, schema=CITATIONS)
