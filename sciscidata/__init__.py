"""Labels for scientific impact from the citation record: lazy Polars frames in, lazy Polars frames out.

What is public stands in ``sciscidata.exports``, and is loaded when a part of it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sciscidata.exports import *  # noqa: F403

__version__ = "0.1.0"


# The command imports this package before its first line runs, and has to be ready for Ctrl-C at once.
def __getattr__(name: str) -> Any:  # noqa: ANN401
    exports = import_module("sciscidata.exports")
    if name == "__all__" or name in exports.__all__:
        return getattr(exports, name)
    if name in globals():  # a module, loaded just now
        return globals()[name]
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
