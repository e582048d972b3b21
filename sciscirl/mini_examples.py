"""Three invented papers that show a model what an answer looks like. None of them exists, so none is in a slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sciscirl.task import PaperView


@dataclass(frozen=True, slots=True)
class MiniExample:
    """An invented paper and the answer to it."""

    view: PaperView
    disruption_label: str
    justification: str
    signals: tuple[str, ...]
    confidence: float


#: One per label, in label order; years, citations and fields say nothing about the label.
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
        "disruptive",
        "A complete new tool that can be used without the assays it replaces.",
        ("introduces a sensor", "protocol stands alone"),
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
        "consolidating",
        "Confirms and refines a known model, so later work will cite that model too.",
        ("tests an existing model", "refines its constant"),
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
        "neutral",
        "A local survey among many like it, with no pull towards either end.",
        ("small descriptive study", "one of many sources"),
        0.6,
    ),
)
