"""Three invented papers that show a model what an answer looks like. None of them exists, so none is in a slice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sciscirl.task import PaperView


@dataclass(frozen=True, slots=True)
class Reading:
    """One label of an invented paper, and what speaks for it."""

    label: str
    justification: str
    signals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MiniExample:
    """An invented paper and the answer to it: a reading for each label column, and the confidence in any one."""

    view: PaperView
    readings: Mapping[str, Reading]
    confidence: float


#: One per label, in the order of the disruption labels; years, citations and fields say nothing about the label.
MINI_EXAMPLES: Final = (
    MiniExample(
        PaperView(
            "A pocket assay for soil nitrate without reagents",
            "We describe a sensor that reads nitrate from the impedance of moist soil. It needs neither extraction nor "
            "reagents, and farmers calibrated it themselves. Design files and protocol are given in full.",
            2008,
            41,
            "Agricultural and Biological Sciences",
        ),
        {
            "disruption_label": Reading(
                "disruptive",
                "A complete new tool that can be used without the assays it replaces.",
                ("introduces a sensor", "protocol stands alone"),
            ),
            "novelty_label": Reading(
                "novel",
                "Brings electronics, soil chemistry and participatory farming together.",
                ("impedance sensing in soil", "calibrated by farmers"),
            ),
        },
        0.7,
    ),
    MiniExample(
        PaperView(
            "Revisiting the ladder model of harbour sedimentation with forty more gauges",
            "The ladder model explains how harbours silt up. We test it on forty further gauges, confirm its main "
            "prediction, and refine the estimate of its rate constant for shallow basins.",
            2011,
            38,
            "Earth and Planetary Sciences",
        ),
        {
            "disruption_label": Reading(
                "consolidating",
                "Confirms and refines a known model, so later work will cite that model too.",
                ("tests an existing model", "refines its constant"),
            ),
            "novelty_label": Reading(
                "conventional",
                "Stays within one established line of work and its usual sources.",
                ("one named model throughout", "more gauges of the same kind"),
            ),
        },
        0.75,
    ),
    MiniExample(
        PaperView(
            "Sleep and shift length among ferry crews: a survey",
            "We asked 212 crew members of two ferry lines about sleep and shifts. Longer shifts went with shorter "
            "sleep. Results are reported by line, rank and season.",
            2009,
            44,
            "Health Professions",
        ),
        {
            "disruption_label": Reading(
                "neutral",
                "A local survey among many like it, with no pull towards either end.",
                ("small descriptive study", "one of many sources"),
            ),
            "novelty_label": Reading(
                "balanced",
                "Usual sleep research, in a setting that such work seldom draws on.",
                ("standard sleep questions", "maritime setting"),
            ),
        },
        0.6,
    ),
)
