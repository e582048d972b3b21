"""A griffe extension: docstrings of this project say ``Example:``, which griffe knows as ``Examples:`` only."""

from __future__ import annotations

import re

import griffe


class Examples(griffe.Extension):
    """Show the doctests of a docstring as code."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rename the section."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.M)
