"""What is public, in the order in which data flows; ``from sciscidata import ...`` gives the same.

Nothing runs until a frame is collected, except what is called ``pull_*``,
``read_*``, ``write_*``, ``verify_*``, ``build*`` and ``score_graph``.
"""

from sciscidata.abstracts import decode_inverted_index
from sciscidata.cdindex import CDConfig, compute_cd_index, score_graph
from sciscidata.eligibility import EligibilityConfig, count_removals, join_candidates, mark_ineligible
from sciscidata.errors import SciSciDataError
from sciscidata.graph import CitationGraph, build_graph
from sciscidata.labels import LabelThresholds, count_labels, label_disruption, label_novelty
from sciscidata.openalex.config import ApiConfig
from sciscidata.pipeline import BuildConfig, build
from sciscidata.plots import draw_disruption
from sciscidata.release import Release, read_release, write_release
from sciscidata.schemas import CD_FAMILY, CD_SCORES, CITATIONS, EXAMPLE, WORKS
from sciscidata.sources import Corpus
from sciscidata.sources.openalex_candidates import OpenAlexConfig
from sciscidata.sources.records import RecordsConfig, pull_records, scan_records
from sciscidata.sources.synthetic import SyntheticConfig, scan_synthetic
from sciscidata.splits import SplitConfig, draw_split, split_keys
from sciscidata.verification import verify_release

__all__ = [
    "CD_FAMILY",
    "CD_SCORES",
    "CITATIONS",
    "EXAMPLE",
    "WORKS",
    "ApiConfig",
    "BuildConfig",
    "CDConfig",
    "CitationGraph",
    "Corpus",
    "EligibilityConfig",
    "LabelThresholds",
    "OpenAlexConfig",
    "RecordsConfig",
    "Release",
    "SciSciDataError",
    "SplitConfig",
    "SyntheticConfig",
    "build",
    "build_graph",
    "compute_cd_index",
    "count_labels",
    "count_removals",
    "decode_inverted_index",
    "draw_disruption",
    "draw_split",
    "join_candidates",
    "label_disruption",
    "label_novelty",
    "mark_ineligible",
    "pull_records",
    "read_release",
    "scan_records",
    "scan_synthetic",
    "score_graph",
    "split_keys",
    "verify_release",
    "write_release",
]
