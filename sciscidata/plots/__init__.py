"""Pictures of scores, labels and draws, for a paper. Every ``plot_*`` takes the options of ``Look``."""

from sciscidata.options.did_you_mean import missing_name
from sciscidata.plots.by_group import plot_by
from sciscidata.plots.by_year_and_field import plot_by_field, plot_by_year, plot_drawn, plot_works
from sciscidata.plots.changes import plot_changes
from sciscidata.plots.disruption import (
    plot_cd_sweep,
    plot_cd_trajectory,
    plot_comparison,
    plot_disruption,
    plot_null_cd_index,
    plot_windows,
)
from sciscidata.plots.figure import STYLE as STYLE
from sciscidata.plots.figure import Look
from sciscidata.plots.figure import plain as plain
from sciscidata.plots.figure import save as save
from sciscidata.plots.labels import plot_label, plot_label_stability, plot_missing_data
from sciscidata.plots.measure import measure_by
from sciscidata.plots.multiverse import plot_multiverse
from sciscidata.plots.novelty import plot_novelty, plot_novelty_by_year, plot_uzzi_cells
from sciscidata.plots.palette import COLOURS as COLOURS
from sciscidata.plots.palette import INK as INK
from sciscidata.plots.palette import LINES as LINES
from sciscidata.plots.palette import PALE as PALE
from sciscidata.plots.work import plot_work

__all__ = [
    "Look",
    "measure_by",
    "plot_by",
    "plot_by_field",
    "plot_by_year",
    "plot_cd_sweep",
    "plot_cd_trajectory",
    "plot_changes",
    "plot_comparison",
    "plot_disruption",
    "plot_drawn",
    "plot_label",
    "plot_label_stability",
    "plot_missing_data",
    "plot_multiverse",
    "plot_novelty",
    "plot_novelty_by_year",
    "plot_null_cd_index",
    "plot_uzzi_cells",
    "plot_windows",
    "plot_work",
    "plot_works",
]


def __getattr__(name: str) -> object:
    raise missing_name(__name__, name)
