"""Rarer indicators, beside those at the top: ``sciscidata.indicators.compute_cd_trajectory`` and others."""

from sciscidata.disruption.null_model import compute_null_cd_index
from sciscidata.disruption.trajectory import compute_cd_trajectory
from sciscidata.disruption.variants import compute_cd_variants

__all__ = ["compute_cd_trajectory", "compute_cd_variants", "compute_null_cd_index"]
