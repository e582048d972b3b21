"""A griffe extension for what docstrings of this project say otherwise than griffe reads it."""

from __future__ import annotations

import re
from textwrap import dedent

import griffe

_AS_TEXT = re.compile(r"^(Returns|Source):\n((?: {4}.*\n?|\n)+)", re.M)


class Sections(griffe.Extension):
    """Show doctests as code, and returns and sources as text."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rename doctests. Write out returns, where griffe takes words before a colon as a type, and sources."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.M)
            obj.docstring.value = _AS_TEXT.sub(lambda found: f"**{found[1]}:**\n\n{dedent(found[2])}", text)
