"""Leave the pictures of releases empty: rendering them takes most of a small build."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

#: Of a thread: whether it draws the pictures of a release.
_now = threading.local()


def leave_empty(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Draw the pictures of a release as ever, and write an empty one of each; others are rendered.

    Args:
        put: puts a function in the place of another: ``setattr``, or what undoes it later.
    """
    from matplotlib.figure import Figure

    from sciscidata import pipeline

    draw, render = pipeline.plot_pictures, Figure.savefig

    def draw_only(*arguments: Any) -> None:
        _now.is_at_release = True
        try:
            draw(*arguments)
        finally:
            _now.is_at_release = False

    def render_others(figure: Figure, file: Any, **how: Any) -> None:
        render(Figure(figsize=(0.1, 0.1)) if getattr(_now, "is_at_release", False) else figure, file, **how)

    put(pipeline, "plot_pictures", draw_only)
    put(Figure, "savefig", render_others)
