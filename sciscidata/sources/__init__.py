"""Where works and citations come from: each module turns one kind of source into the same two frames."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl


class Corpus(NamedTuple):
    """What every source returns, so that the stages after it need not know which one it was.

    ``works`` is WORKS and ``citations`` is CITATIONS, both lazy; ``provenance`` says, in JSON types only, what
    was read (kind, inputs with their SHA-256, rows, what was skipped) and goes into the release's manifest.
    """

    works: pl.LazyFrame
    citations: pl.LazyFrame
    provenance: dict[str, Any]
