"""A figure that a notebook shows, without pyplot and its global state."""

from __future__ import annotations

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_DPI = 144


class NotebookFigure(Figure):
    """A figure with its canvas: it can be saved and shown anywhere."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # pyright: ignore[reportArgumentType]
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, dpi=_DPI, format="png")
        return content.getvalue()
