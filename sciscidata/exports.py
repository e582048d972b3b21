"""What is public, in the order in which data flows; ``from sciscidata import ...`` gives the same.

Nothing runs until a frame is collected, except what is called ``pull_*``, ``read_*``, ``write_*``, ``verify_*``,
``build*``, ``export_*``, ``ingest_*``, ``open_*``, ``count_*``, ``compare_*``, ``score_*``,
``venue_numbers`` and ``draw_before_text``, and the pictures that ``draw_*`` makes of frames.
"""

from sciscidata.config import BuildConfig
from sciscidata.corpus.folder import CorpusConfig, scan_corpus
from sciscidata.corpus.graph import open_graph_of
from sciscidata.corpus.scores import read_result
from sciscidata.corpus.writer import write_corpus
from sciscidata.disruption.index import CDConfig, compute_cd_index, score_graph, shard_range, write_cd_index
from sciscidata.errors import SciSciDataError
from sciscidata.graph.graph import CitationGraph, build_graph, open_graph
from sciscidata.labels import LabelThresholds, count_labels, label_disruption, label_novelty, mark_uzzi_cells
from sciscidata.novelty.atypicality import compute_atypicality, score_atypicality, write_atypicality
from sciscidata.novelty.background import Background, read_background, write_background
from sciscidata.novelty.commonness import CommonnessConfig, compute_commonness, score_commonness
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.novelty.venue_pairs import venue_numbers
from sciscidata.novelty.wang import FirstTimePairsConfig, compute_first_time_pairs, score_first_time_pairs
from sciscidata.openalex.config import ApiConfig
from sciscidata.pipeline import build, build_background, export_labelled
from sciscidata.plots import draw_comparison, draw_disruption, draw_novelty, draw_novelty_by_year
from sciscidata.records.abstracts import decode_inverted_index
from sciscidata.release.export import write_labelled
from sciscidata.release.release import Release, read_release, write_release
from sciscidata.release.verify import verify_release
from sciscidata.release.verify_path import verify_path
from sciscidata.sampling.eligibility import EligibilityConfig, count_removals, join_candidates, mark_ineligible
from sciscidata.sampling.late_text import draw_before_text
from sciscidata.sampling.split import SplitConfig, draw_split, split_keys
from sciscidata.schemas import (
    ATYPICALITY,
    CD_FAMILY,
    CD_SCORES,
    CITATIONS,
    COMMONNESS,
    EXAMPLE,
    FIRST_TIME_PAIRS,
    PAIR_STATISTICS,
    WORKS,
    Corpus,
)
from sciscidata.scoring import add_novelty, label_scores
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.sources.records import RecordsConfig, pull_records, scan_records
from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet
from sciscidata.sources.sciscinet.values import compare_scores
from sciscidata.sources.snapshot.source import SnapshotConfig, ingest_snapshot
from sciscidata.sources.synthetic.source import SyntheticConfig, scan_synthetic
from sciscidata.stages import ingest_corpus, write_cd_scores, write_novelty_scores

__all__ = [
    "ATYPICALITY",
    "CD_FAMILY",
    "CD_SCORES",
    "CITATIONS",
    "COMMONNESS",
    "EXAMPLE",
    "FIRST_TIME_PAIRS",
    "PAIR_STATISTICS",
    "WORKS",
    "ApiConfig",
    "Background",
    "BuildConfig",
    "CDConfig",
    "CitationGraph",
    "CommonnessConfig",
    "Corpus",
    "CorpusConfig",
    "EligibilityConfig",
    "FirstTimePairsConfig",
    "LabelThresholds",
    "NoveltyConfig",
    "OpenAlexConfig",
    "RecordsConfig",
    "Release",
    "SciSciDataError",
    "SciSciNetConfig",
    "SnapshotConfig",
    "SplitConfig",
    "SyntheticConfig",
    "add_novelty",
    "build",
    "build_background",
    "build_graph",
    "compare_scores",
    "compute_atypicality",
    "compute_cd_index",
    "compute_commonness",
    "compute_first_time_pairs",
    "count_labels",
    "count_removals",
    "decode_inverted_index",
    "draw_before_text",
    "draw_comparison",
    "draw_disruption",
    "draw_novelty",
    "draw_novelty_by_year",
    "draw_split",
    "export_labelled",
    "ingest_corpus",
    "ingest_snapshot",
    "join_candidates",
    "label_disruption",
    "label_novelty",
    "label_scores",
    "mark_ineligible",
    "mark_uzzi_cells",
    "open_graph",
    "open_graph_of",
    "pull_records",
    "read_background",
    "read_release",
    "read_result",
    "scan_corpus",
    "scan_records",
    "scan_sciscinet",
    "scan_synthetic",
    "score_atypicality",
    "score_commonness",
    "score_first_time_pairs",
    "score_graph",
    "shard_range",
    "split_keys",
    "venue_numbers",
    "verify_path",
    "verify_release",
    "write_atypicality",
    "write_background",
    "write_cd_index",
    "write_cd_scores",
    "write_corpus",
    "write_labelled",
    "write_novelty_scores",
    "write_release",
]
