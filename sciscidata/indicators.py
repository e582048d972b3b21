"""Rarer indicators, beside those at the top: ``sciscidata.indicators.compute_cd_trajectory`` and others."""

from sciscidata.disruption.cd_interval import compute_cd_interval
from sciscidata.disruption.closed_null_model import compute_expected_cd_index
from sciscidata.disruption.embedding import compute_embedding_disruptiveness
from sciscidata.disruption.index import compute_cd_variants
from sciscidata.disruption.label_ageing import AgeingError, LabelAgeing, compute_later_label, find_label_ageing
from sciscidata.disruption.label_prior import LabelPrior, find_label_prior
from sciscidata.disruption.label_stability import find_label_stability
from sciscidata.disruption.missing_data import find_effect_of_missing_data
from sciscidata.disruption.multiverse import run_multiverse
from sciscidata.disruption.noise import NoiseEffect, find_noise_effect
from sciscidata.disruption.null_model import compute_null_cd_index
from sciscidata.disruption.publication_features import compute_publication_features
from sciscidata.disruption.self_citations import compute_independent_cd_index, find_self_citations
from sciscidata.disruption.specifications import Multiverse, MultiverseConfig
from sciscidata.disruption.trajectory import compute_cd_trajectory
from sciscidata.graph.control_variables import compute_control_variables, compute_percentile
from sciscidata.judged import is_judged
from sciscidata.novelty.communities import compute_foster_novelty, find_communities
from sciscidata.novelty.label_confidence import compute_novelty_confidence, find_novelty_prior
from sciscidata.novelty.novelty_prior import NoveltyPrior
from sciscidata.novelty.reference_distances import compute_shibayama_novelty
from sciscidata.options.did_you_mean import missing_name

__all__ = [
    "AgeingError",
    "LabelAgeing",
    "LabelPrior",
    "Multiverse",
    "MultiverseConfig",
    "NoiseEffect",
    "NoveltyPrior",
    "compute_cd_interval",
    "compute_cd_trajectory",
    "compute_cd_variants",
    "compute_control_variables",
    "compute_embedding_disruptiveness",
    "compute_expected_cd_index",
    "compute_foster_novelty",
    "compute_independent_cd_index",
    "compute_later_label",
    "compute_novelty_confidence",
    "compute_null_cd_index",
    "compute_percentile",
    "compute_publication_features",
    "compute_shibayama_novelty",
    "find_communities",
    "find_effect_of_missing_data",
    "find_label_ageing",
    "find_label_prior",
    "find_label_stability",
    "find_noise_effect",
    "find_novelty_prior",
    "find_self_citations",
    "is_judged",
    "run_multiverse",
]


def __getattr__(name: str) -> object:
    raise missing_name(__name__, name)
