"""scan_example: real works of OpenAlex that come with the package, so that a first try needs no network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sciscidata.options.checks import Configuration
from sciscidata.schemas import Corpus
from sciscidata.sources.kinds import Citations, Opening, ToRead
from sciscidata.sources.records import RecordsConfig, open_records, scan_records

#: OpenAlex records as JSON lines; SOURCE.md beside it says where they are from.
WORKS_FILE: Final = Path(__file__).with_name("works.jsonl.zst")
#: Who wrote them, by number: rows of AUTHORS.
AUTHORS_FILE: Final = Path(__file__).with_name("authors.parquet")
_RECORDS: Final = RecordsConfig(inputs=(str(WORKS_FILE),), strict=True)
_KIND: Final = {"kind": "example"}
_WORKS, _CITATIONS = 4_381, 134_026
_SHARES: Final = {"disruptive": 160 / _WORKS, "consolidating": 1_250 / _WORKS, "neutral": 1_593 / _WORKS}


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ExampleConfig(Configuration):
    """Real works of OpenAlex that come with the package: 4,381 of five systematic reviews in medicine, CC0.

    A build draws 120 train and 30 test works of them, unless SplitConfig states other sizes.
    """


def scan_example() -> Corpus:
    """Scan 4,381 real works of OpenAlex, which come with the package, and their 134,026 citations.

    They are what five systematic reviews in medicine screened, as of April 2023, under CC0. Most of what they cite is
    outside, so scores show what the functions do, and say little of these works.

    Returns:
        WORKS and CITATIONS, as ``scan_records`` gives them.

    Example:
        >>> works, citations, _ = scan_example()
        >>> works.collect().height, citations.collect().height
        (4381, 134026)
    """
    works, citations, provenance = scan_records(_RECORDS)
    return Corpus(works, citations, provenance | _KIND)


def open_example(_: ExampleConfig, opening: Opening) -> Citations:
    """Parse the works into the cache, once."""
    opened = open_records(_RECORDS, opening)
    opened.facts.provenance.update(_KIND)
    return opened


def measure_example(_: ExampleConfig) -> ToRead:
    """Say how many works there are."""
    name = f"{_WORKS:,} real works that come with the package"
    return ToRead(name, _WORKS, _CITATIONS, WORKS_FILE.stat().st_size, shares=(_SHARES, "as counted by default"))
