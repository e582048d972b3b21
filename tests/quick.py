"""What makes the tests quick: builds leave their pictures blank, and no write waits for the disk.

Drawing takes nine tenths of a small build; what pictures show has tests of its own. No test pulls the plug.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from sciscidata import pipeline
from sciscidata.plots import figure as figures

#: One white pixel.
BLANK = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c63f80f0001010100b138f6140000000049454e44ae426082"
)


#: Set by the fixture ``real_pictures``.
draws_pictures = False


def leave_out_what_takes_long() -> None:
    """Change the running process; a picture that a test draws itself stays what it is."""
    save, draw_pictures, building = figures.save, pipeline._plot_pictures, threading.local()

    def save_or_leave_blank(figure: Any, path: str | Path, **options: Any) -> None:
        Path(path).write_bytes(BLANK) if getattr(building, "now", False) else save(figure, path, **options)

    def draw_blank_pictures(*arguments: Any) -> None:
        building.now = not draws_pictures
        try:
            draw_pictures(*arguments)
        finally:
            building.now = False

    figures.save, pipeline._plot_pictures = save_or_leave_blank, draw_blank_pictures
    os.fsync = lambda descriptor: None
