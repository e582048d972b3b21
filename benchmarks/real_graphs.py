"""Three real citation networks that others publish, fetched on first use: cit-HepTh, cit-HepPh, handball in OpenAlex.

python benchmarks/real_graphs.py hepth handball     fetch them now

cit-HepTh and cit-HepPh (SNAP): physics on arXiv, 1992 to 2003; the year is that of the id. Handball: collected by V.
Batagelj from OpenAlex; the year stands in the label. They state no licence, so they are no part of this repository.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.graphs import CACHE

_HANDBALL = "https://raw.githubusercontent.com/bavla/OpenAlex/22557474ea2eb03a5a50e9223e5d94b5e72e2e63/ex/handball/"
FILES = {
    "hepth": ("https://snap.stanford.edu/data/cit-HepTh.txt.gz",),
    "hepph": ("https://snap.stanford.edu/data/cit-HepPh.txt.gz",),
    "handball": (f"{_HANDBALL}HBCiR.net", f"{_HANDBALL}WJr.net"),
}
SIZES = {"hepth": (27_770, 352_807), "hepph": (34_546, 421_578), "handball": (39_476, 108_157)}  # works, citations
#: The first year that is not whole.
LAST_YEAR = {"hepth": 2003, "hepph": 2003, "handball": 2026}


def fetch(name: str) -> list[Path]:
    """Return the files of a network, fetched once."""
    paths = []
    for url in FILES[name]:
        path = CACHE / name / url.rpartition("/")[2]
        paths.append(path)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with urlopen(url, timeout=60) as answer:
                    path.with_suffix(".part").write_bytes(answer.read())
            except (URLError, TimeoutError) as error:
                sys.exit(f"cannot fetch {url}: {error}. Fetch it by other means, and put it at {path}")
            path.with_suffix(".part").rename(path)
    return paths


def read_snap(path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read SNAP's list of citations; arXiv ids begin with two digits of the year."""
    ends = {"citing_id": pl.Int64, "cited_id": pl.Int64}
    citations = pl.read_csv(path, separator="\t", comment_prefix="#", has_header=False, schema=ends)
    ids = pl.concat([citations[end].rename("work_id") for end in ends]).unique().sort()
    year = (pl.col("work_id") // 100_000).cast(pl.Int32)
    works = ids.to_frame().with_columns(publication_year=year + pl.when(year < 50).then(2000).otherwise(1900))
    return works, citations


def read_handball(citing: Path, venues: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read two networks of Pajek: works that cite works, and the venues of works."""
    works, citations = _read_pajek(citing)
    _, of_venue = _read_pajek(venues)
    of_venue = of_venue.select(work_id="from", source_id=pl.col("to") - works.height)
    year = pl.col("label").str.extract(r"\((\d{4})\)").cast(pl.Int32)
    works = works.select("work_id", "label", publication_year=year).join(of_venue, on="work_id", how="left")
    return works, citations.rename({"from": "citing_id", "to": "cited_id"})


def _read_pajek(path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the vertices (work_id, label) and the arcs (from, to)."""
    lines = path.read_text("utf-8-sig").splitlines()
    first_arc = next(place for place, line in enumerate(lines) if line.startswith("*Arcs")) + 1
    vertices, arcs = (pl.DataFrame({"line": part}) for part in (lines[1 : first_arc - 1], lines[first_arc:]))
    line = pl.col("line")
    number = line.str.extract(r"^\s*(\d+)").cast(pl.Int64)
    to = line.str.extract(r"^\s*\d+\s+(\d+)").cast(pl.Int64)
    return vertices.select(work_id=number, label=line.str.extract('"(.*)"')), arcs.select(number.alias("from"), to=to)


def scan_real(name: str) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return WORKS (work_id, publication_year; of handball label and source_id) and CITATIONS of a real network."""
    works, citations = {"hepth": read_snap, "hepph": read_snap, "handball": read_handball}[name](*fetch(name))
    if (works.height, citations.height) != SIZES[name]:
        sizes = f"{works.height:,} works and {citations.height:,} citations, not {SIZES[name]}"
        sys.exit(f"{CACHE / name} has {sizes}: remove it to fetch it again")
    return works.lazy(), citations.lazy()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{' or '.join(FILES)} [all]")
    for name in parser.parse_args().names or FILES:
        works, citations = (frame.collect() for frame in scan_real(name))
        print(f"{name}: {works.height:,} works, {citations.height:,} citations")
