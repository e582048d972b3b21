"""A saved table of venue pairs, read: opened, checked, and looked up by venue. novelty_background.py writes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata.errors import BackgroundError, ConfigError, InputNotFoundError
from sciscidata.json_text import parse_json
from sciscidata.novelty_config import NoveltyConfig
from sciscidata.schemas import PAIR_STATISTICS
from sciscidata.storage import is_sealed
from sciscidata.venue_pairs import venue_ids

FORMAT_VERSION = 2  # 1 did not hold the file's own SHA-256
METADATA_KEY = b"sciscidata_background"
_PAIR = ["source_id_a", "source_id_b"]
_COUNTS = {"publication_year": pl.Int32, "n_works": pl.Int64, "n_references": pl.Int64, "n_pairs": pl.Int64}

Float64Array = npt.NDArray[np.float64]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Background:
    """A table written by write_background, checked, and ready to be looked up.

    Attributes:
        path: the file.
        null_model: NoveltyConfig.null_model() of the corpus it was made of.
        counts: publication_year, n_works, n_references and n_pairs that the null model of each year is made of.
        source_ids: the ids of the venues by number; empty until ``for_venues_of``.
    """

    path: Path
    null_model: dict[str, Any]
    counts: pl.DataFrame
    source_ids: Int64Array

    @property
    def years(self) -> frozenset[int]:
        """The citing years it holds."""
        return frozenset(self.counts["publication_year"].to_list())

    def scan(self) -> pl.LazyFrame:
        """Return PAIR_STATISTICS, lazy."""
        return pl.scan_parquet(self.path, glob=False)

    def for_venues_of(self, works: pl.LazyFrame) -> Background:
        """Return this table for the venue numbers that venue_numbers(graph, works) gives."""
        return replace(self, source_ids=venue_ids(works))

    def check_null_model(self, config: NoveltyConfig) -> None:
        """Refuse a config that says something else than what this table was made under.

        Raises:
            ConfigError: the null models differ.
        """
        asked = config.null_model()
        differ = [name for name, value in self.null_model.items() if asked.get(name) != value]
        differ += [name for name in asked if name not in self.null_model]
        if differ:
            given = ", ".join(f"{name}={self.null_model[name]!r}" for name in differ if name in self.null_model)
            msg = (
                f"{self.path} was made under another null model: NoveltyConfig says "
                f"{', '.join(f'{name}={asked.get(name)!r}' for name in differ)}. Set {given}, or write it anew."
            )
            raise ConfigError(msg)

    def moments(self, year: int, a: Int32Array, b: Int32Array) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Look up venue pairs of one year: how often observed, mean and standard deviation; NaN where unknown.

        Args:
            year: the citing year.
            a: numbers of the venues with the lower source_id.
            b: numbers of the others; an array as long.

        Raises:
            BackgroundError: the file is damaged, or holds a pair twice.
        """
        pairs = pl.DataFrame({"source_id_a": self.source_ids[a], "source_id_b": self.source_ids[b]})
        parts = [part.join(pairs, on=_PAIR, how="semi") for part in self._parts(year)]
        found = pl.concat([pl.DataFrame(schema=PAIR_STATISTICS), *parts])
        try:
            rows = pairs.join(found, on=_PAIR, how="left", maintain_order="left", validate="1:1")
        except pl.exceptions.ComputeError as error:
            msg = f"{self.path} holds a venue pair of {year} twice. Write it anew with write_background."
            raise BackgroundError(msg) from error
        observed, mean, deviation = (
            rows[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in ("n_observed", "mean", "std")
        )
        return observed, mean, deviation

    def _parts(self, year: int) -> Iterator[pl.DataFrame]:
        """Read the row groups of a year one after the other."""
        try:
            with pq.ParquetFile(self.path, page_checksum_verification=True) as file:
                for i in range(file.metadata.num_row_groups):
                    group_years = file.metadata.row_group(i).column(0).statistics
                    # Rewritten by another tool, a file may have lost its statistics.
                    if group_years is None or not group_years.has_min_max or group_years.min <= year <= group_years.max:
                        rows = pl.DataFrame(file.read_row_group(i)).cast(PAIR_STATISTICS)
                        yield rows.filter(publication_year=year)
        except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
            raise _damaged(self.path, error) from error


def read_background(path: str | Path) -> Background:
    """Open a table of venue pairs: compare the file with the SHA-256 that it holds. Its rows are read when asked for.

    Args:
        path: a file of write_background.

    Raises:
        ConfigError: ``path`` is no path.
        InputNotFoundError: there is no such file.
        BackgroundError: it is something else, of another format, lacks a column, or is damaged.

    Example:
        >>> read_background("nowhere.parquet")
        Traceback (most recent call last):
        ...
        sciscidata.errors.InputNotFoundError: no background at nowhere.parquet. Write one with `sciscidata background`
        (write_background), or check the path.
    """
    if not isinstance(path, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"background is {path!r}, needs the path of a file of write_background."
        raise ConfigError(msg)
    path = Path(path)
    if not path.is_file():
        msg = f"no background at {path}. Write one with `sciscidata background` (write_background), or check the path."
        raise InputNotFoundError(msg)
    try:
        metadata = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, error) from error
    facts = _facts((metadata.metadata or {}).get(METADATA_KEY, b""))
    version = facts.get("format_version")
    names = metadata.schema.names
    missing = [name for name in PAIR_STATISTICS if name not in names]
    if version is None:
        problem = "is a Parquet file, but no background: it lacks the metadata of write_background"
    elif version != FORMAT_VERSION:
        problem = f"has format {version}, this version of sciscidata reads format {FORMAT_VERSION}"
    elif missing:
        problem = f"lacks the column {', '.join(missing)}; it has {', '.join(names)}"
    elif (counts := _counts(facts.get("years"))) is None or not isinstance(facts.get("null_model"), dict):
        problem = "has damaged metadata: they do not say what null model it was made under, or of which years"
    elif not is_sealed(path):
        problem = "is damaged, or was rewritten: it differs from the SHA-256 that it holds"
    else:
        return Background(path, facts["null_model"], counts, np.empty(0, np.int64))
    msg = f"{path} {problem}. Write it anew with write_background."
    raise BackgroundError(msg)


def _facts(text: bytes) -> dict[str, Any]:
    """Parse the metadata; what is no JSON object says nothing."""
    try:
        facts = parse_json(text)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _counts(years: Any) -> pl.DataFrame | None:  # noqa: ANN401
    """Return a row per year, or None if these are none."""
    try:
        counts = pl.DataFrame(years, schema=_COUNTS)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return None
    return counts if isinstance(years, list) and not counts["publication_year"].has_nulls() else None


def _damaged(path: Path, error: Exception) -> BackgroundError:
    reason = str(error).strip().splitlines()[0].rstrip(".")
    return BackgroundError(f"{path} is no Parquet file, or damaged: {reason}. Write it anew with write_background.")
