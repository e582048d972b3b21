"""Labels for scientific impact from the citation record: lazy Polars frames in, lazy Polars frames out."""

from __future__ import annotations

from sciscidata.cdindex import CDConfig, compute_cd_index
from sciscidata.graph import CitationGraph, build_graph

__version__ = "0.1.0"
