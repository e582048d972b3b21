"""A figure that a notebook shows, without pyplot and its global state."""

from __future__ import annotations

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_DPI = 144


class NotebookFigure(Figure):
    """A figure with a canvas of its own, so that it can be saved and shown wherever it is made."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # pyright: ignore[reportArgumentType]
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, dpi=_DPI, format="png")
        return content.getvalue()
