"""Rarer indicators, beside those at the top: ``sciscidata.indicators.compute_cd_trajectory`` and others."""

from sciscidata.disruption.trajectory import compute_cd_trajectory

__all__ = ["compute_cd_trajectory"]
