"""A picture of a label of one's own: its classes before and after a draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from sciscidata.options.checks import require_config
from sciscidata.own_label import OwnLabel
from sciscidata.plots._parts import count_works, draw_classes
from sciscidata.plots.figure import Look, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_label(label: OwnLabel, eligible: Mapping[str, int], drawn: Mapping[str, int], **look: Unpack[Look]) -> Figure:
    """Plot the class counts of a label of your own before and after a draw.

    Args:
        label: its name and classes.
        eligible: works per class before the draw.
        drawn: works per class in the release, all splits together.
        **look: ``data``, ``title``, ``width``, ``path`` and ``ax``: see ``Look``.

    Returns:
        The figure, one panel.

    Raises:
        ConfigError: ``label`` is no OwnLabel, or an option of the picture is wrong.

    Example:
        >>> label = OwnLabel(name="impact_label", classes=("top", "rest"), column="impact_label")
        >>> figure = plot_label(label, {"top": 5, "rest": 95}, {"top": 5, "rest": 5}, width="one")
        >>> figure.get_suptitle().partition(".")[0]
        'Classes of impact_label of 10 drawn works'
    """
    example = "name='impact_label', classes=('top', 'rest'), column='impact_label'"
    require_config(label, OwnLabel, example, name="label")
    classes = label.classes or tuple(sorted(eligible))
    with drawing(look, heights_mm=(58,)) as picture:
        draw_classes(picture.panels[0], classes, eligible, drawn)
        if len(classes) > (3 if picture.is_narrow else 6):
            picture.panels[0].tick_params(axis="x", labelrotation=45)
        n_drawn = count_works(sum(drawn.values())).replace(" work", " drawn work")
        picture.title = f"Classes of {label.name} of {n_drawn}."
    return picture.figure
