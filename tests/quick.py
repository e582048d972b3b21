"""What makes the tests quick: builds and reports leave their pictures blank, and no write waits for the disk.

Drawing takes nine tenths of a small build; what pictures show has tests of its own. No test pulls the plug.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from sciscidata import choose_source, pipeline

#: One white pixel.
BLANK = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c63f80f0001010100b138f6140000000049454e44ae426082"
)


#: Set by the fixture ``real_pictures``.
draws_pictures = False


def leave_out_what_takes_long() -> None:
    """Change the running process; a picture that a test draws itself stays what it is."""
    for module in (pipeline, choose_source):
        for name in [name for name in vars(module) if name.startswith("plot_")]:
            setattr(module, name, _draw_or_leave_blank(getattr(module, name)))
    os.fsync = lambda descriptor: None


def _draw_or_leave_blank(plot: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(plot)
    def draw(*arguments: Any, path: str | Path, **options: Any) -> None:
        plot(*arguments, path=path, **options) if draws_pictures else Path(path).write_bytes(BLANK)

    return draw
