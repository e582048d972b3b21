"""The citation graphs of every speed figure: S, M and L, made on first use from a seed. XS is for tests.

python benchmarks/graphs.py S M        make them now, and print their SHA-256

Works come year by year, 1980 to 2024, 4.5 % more each year, each in a field and in a journal of that field. 6 % have no
references, the others a lognormal number; what falls before 1980 is lost. Of the references of a work

- 45 % are chosen directly: an age, the own field for four of five, and in it works of high fitness first;
- 20 % are a reference of a recent work of the field, so that cited works are cited more;
- 35 % are a reference of one of the direct ones, which closes triangles;
- 0.2 % of all go to any work afterwards, even a later one, as in OpenAlex.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

CACHE = Path(__file__).resolve().parent / ".cache"
N_WORKS = {"XS": 2_000, "S": 100_000, "M": 1_000_000, "L": 5_000_000}
WORKS = {
    "XS": "2,000 works, to try a command",
    "S": "100,000 works, 2.2M citations",
    "M": "1M works, 22.6M citations",
    "L": "5M works, 113.9M citations",
}
YEARS = np.arange(1980, 2025)
MEAN_REFERENCES, SIGMA, MOST_REFERENCES = 28.0, 0.8, 400
DIRECT, PREFERENTIAL, OWN_FIELD, NOISE = 0.45, 0.20, 0.8, 0.002
FIRST_ID, N_IDS = 1_000_000_000, 3_400_000_000


def _cumulate(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)])


class _World:
    """Works by year and field, with what their references are drawn from; order and kind of draws fix the bytes."""

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.rng = n, np.random.Generator(np.random.PCG64(seed))
        volume = np.exp(0.045 * (YEARS - YEARS[0]))
        volume /= volume.sum()
        counts = np.floor(volume * n).astype(np.int64)
        counts[-1] += n - counts.sum()
        self.starts, self.year = _cumulate(counts), np.repeat(np.arange(YEARS.size, dtype=np.int16), counts)
        self.n_fields = max(8, round(n**0.5 / 12))
        shares = 1.0 / np.arange(1, self.n_fields + 1) ** 0.6
        shares /= shares.sum()
        self.field_cdf = np.cumsum(shares)
        sizes = np.array([self.rng.multinomial(count, shares) for count in counts])
        self.buckets = self.starts[:-1, None] + np.array([_cumulate(row) for row in sizes])
        self.field = np.repeat(np.tile(np.arange(self.n_fields, dtype=np.int32), YEARS.size), sizes.ravel())
        self.fitness = np.concatenate([[0.0], np.cumsum(self.rng.lognormal(0.0, 1.4, n))])
        self.journal = self._draw_journals(shares)
        self.n_refs = self._draw_lengths()
        ages = np.arange(YEARS.size)
        weights = np.exp(-((np.log(ages + 0.7) - np.log(4.5)) ** 2) / (2 * 0.95**2)) / (ages + 0.7)
        self.age_cdf = np.cumsum(weights) / weights.sum()
        self.refs = np.empty(int(self.n_refs.sum()) + 16, np.int32)
        self.offsets = np.zeros(n + 1, np.int64)

    def _draw_journals(self, shares: np.ndarray) -> np.ndarray:
        """Give each field journals in its share, few of them large."""
        per_field = np.maximum(2, np.round(shares * round(8 * self.n**0.5))).astype(np.int64)
        journal, u = np.empty(self.n, np.int32), self.rng.random(self.n)
        for field, (first, size) in enumerate(zip(_cumulate(per_field), per_field, strict=False)):
            weights = 1.0 / (np.arange(1, size + 1) + 2.0) ** 1.05
            cdf = np.cumsum(weights) / weights.sum()
            members = np.flatnonzero(self.field == field)
            journal[members] = first + np.minimum(np.searchsorted(cdf, u[members]), size - 1)
        return self.rng.permutation(int(per_field.sum())).astype(np.int32)[journal]

    def _draw_lengths(self) -> np.ndarray:
        mean = np.log(MEAN_REFERENCES) - SIGMA * SIGMA / 2
        lengths = np.minimum(np.rint(self.rng.lognormal(mean, SIGMA, self.n)), MOST_REFERENCES).astype(np.int64)
        lengths[self.rng.random(self.n) < 0.06] = 0
        return lengths

    def _direct(self, year: int, citing: np.ndarray) -> np.ndarray:
        """Draw an age, a field and in it a work by fitness; -1 where there is none."""
        rng, m = self.rng, citing.size
        cited_year = year - np.searchsorted(self.age_cdf, rng.random(m))
        field = self.field[citing]
        away = rng.random(m) > OWN_FIELD
        field[away] = np.minimum(np.searchsorted(self.field_cdf, rng.random(int(away.sum()))), self.n_fields - 1)
        u = rng.random(m)
        row = np.maximum(cited_year, 0)
        low, high = self.buckets[row, field], self.buckets[row, field + 1]
        high = np.where(row == year, np.minimum(high, citing), high)  # of the own year only earlier rows: no circles
        is_there = (cited_year >= 0) & (high > low)
        low, high = np.where(is_there, low, 0), np.where(is_there, high, 1)
        point = self.fitness[low] + u * (self.fitness[high] - self.fitness[low])
        cited = np.clip(np.searchsorted(self.fitness, point, side="right") - 1, low, high - 1)
        return np.where(is_there, cited, -1)

    def _reference_of(self, work: np.ndarray, is_there: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Take one of the references of each work; -1 where it has none, or is not there."""
        work = np.where(is_there, work, 0)
        length = self.offsets[work + 1] - self.offsets[work]
        is_there = is_there & (length > 0)
        place = np.where(is_there, self.offsets[work] + (u * length).astype(np.int64), 0)
        return np.where(is_there, self.refs[place], -1)

    def _preferential(self, year: int, first: int, citing: np.ndarray) -> np.ndarray:
        source_year = year - 1 - np.minimum(self.rng.geometric(0.35, citing.size) - 1, 15)
        u, v = self.rng.random(citing.size), self.rng.random(citing.size)
        row, field = np.maximum(source_year, 0), self.field[citing]
        low, high = self.buckets[row, field], self.buckets[row, field + 1]
        source = low + (u * (high - low)).astype(np.int64)
        return self._reference_of(source, (source_year >= 0) & (high > low) & (source < first), v)

    def _triadic(self, first: int, at: np.ndarray, direct: np.ndarray, n_direct: np.ndarray) -> np.ndarray:
        u, v = self.rng.random(at.size), self.rng.random(at.size)
        source = direct[_cumulate(n_direct)[at] + (u * n_direct[at]).astype(np.int64)]
        return self._reference_of(source, (source >= 0) & (source < first), v)

    def cite(self) -> None:
        """Draw the references of every year, from those of the years before."""
        end = 0
        for year, (first, last) in enumerate(zip(self.starts[:-1], self.starts[1:], strict=True)):
            lengths = self.n_refs[first:last]
            n_direct = np.minimum(lengths, np.maximum(1, np.rint(DIRECT * lengths).astype(np.int64)))
            n_preferential = np.minimum(lengths - n_direct, np.rint(PREFERENTIAL * lengths).astype(np.int64))
            n_triadic = lengths - n_direct - n_preferential
            citing = [np.repeat(np.arange(first, last), n) for n in (n_direct, n_preferential, n_triadic)]
            direct = self._direct(year, citing[0])
            copied = self._preferential(year, first, citing[1])
            pairs = (
                np.concatenate(citing),
                np.concatenate([direct, copied, self._triadic(first, citing[2] - first, direct, n_direct)]),
            )
            source, cited = (column[pairs[1] >= 0] for column in pairs)
            anywhere = self.rng.random(source.size) < NOISE
            cited[anywhere] = self.rng.integers(0, self.n, int(anywhere.sum()))
            source, cited = np.divmod(np.unique(source * np.int64(self.n) + cited), self.n)
            source, cited = (column[source != cited] for column in (source, cited))
            self.offsets[first + 1 : last + 1] = end + np.cumsum(np.bincount(source - first, minlength=last - first))
            self.refs[end : end + cited.size] = cited
            end += cited.size
        self.refs = self.refs[:end]

    def draw_ids(self) -> np.ndarray:
        """Draw ids beyond 32 bits, in no order; a large set without memory for all that could be drawn."""
        if self.n <= 200_000:
            ids = self.rng.choice(np.int64(N_IDS), size=self.n, replace=False)
        else:
            ids = self.rng.permutation(np.unique(self.rng.integers(0, N_IDS, int(self.n * 1.02) + 1_000)))[: self.n]
        return ids.astype(np.int64) + FIRST_ID


def generate(n: int, seed: int = 7) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the works by id (paper_id, year, journal), and the citations (citing, cited) in the order of the works."""
    world = _World(n, seed)
    world.cite()
    ids = world.draw_ids()
    order = np.argsort(ids, kind="stable")
    lengths = np.diff(world.offsets)[order]
    places = np.arange(world.refs.size) + np.repeat(world.offsets[order] - _cumulate(lengths)[:-1], lengths)
    works = {"paper_id": ids[order], "year": (world.year[order] + YEARS[0]).astype(np.int16)}
    works["journal"] = world.journal[order]
    return works, {"citing": np.repeat(ids[order], lengths), "cited": ids[world.refs[places]]}


def graph_files(size: str) -> Path:
    """Return the folder with refs.parquet and papers.parquet of one size, generated on first use."""
    folder = CACHE / size
    if not (folder / "refs.parquet").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name, columns in zip(("papers", "refs"), generate(N_WORKS[size]), strict=True):
            written = folder / f"{name}.part"
            pq.write_table(pa.table(columns), written, compression="zstd", row_group_size=1 << 20)
            written.rename(folder / f"{name}.parquet")
    return folder


def scan_graph(size: str, *, venues: bool = False) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return WORKS (work_id and publication_year, with ``venues`` source_id) and CITATIONS of one size, lazily."""
    folder = graph_files(size)
    citations = pl.scan_parquet(folder / "refs.parquet").select(citing_id="citing", cited_id="cited")
    works = pl.scan_parquet(folder / "papers.parquet")
    columns = {"work_id": "paper_id", "publication_year": pl.col("year").cast(pl.Int32)}
    if venues:
        columns["source_id"] = pl.col("journal").cast(pl.Int64)
    return works.select(**columns), citations


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="+", choices=N_WORKS)
    for size in parser.parse_args().sizes:
        files = [graph_files(size) / f"{name}.parquet" for name in ("papers", "refs")]
        print(size, *(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files))
