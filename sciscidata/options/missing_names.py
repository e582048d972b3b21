"""Say where a public name is that a module does not have: it was moved, or mistyped."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from sciscidata.terminal.messages import find_close

_PARTS: Final = ("", ".indicators", ".plots", ".errors", ".schemas")


def missing_name(module: str, name: str, parts: Sequence[str] = _PARTS) -> AttributeError:
    """Return the error for a name that ``module`` does not have; ``parts`` of its package have the public names.

    Example:
        >>> print(missing_name("sciscidata", "compute_cd_indx"))
        sciscidata has no 'compute_cd_indx'. Did you mean sciscidata.compute_cd_index?
    """
    package = module.partition(".")[0]
    msg = f"{module} has no {name!r}."
    # Python asks for private names, and for a module before it imports it.
    if not name.startswith("_") and (module != package or find_spec(f"{module}.{name}") is None):
        known = {word: f"{package}{part}.{word}" for part in parts[::-1] for word in _names(package + part)}
        close = find_close(name, known)
        msg += f" Did you mean {known[close]}?" if close else ""
    return AttributeError(msg, name=name, obj=None)


def _names(path: str) -> list[str]:
    module: ModuleType = import_module(path)
    defined = (word for word, value in vars(module).items() if getattr(value, "__module__", "") == path)
    return getattr(module, "__all__", None) or [*defined]
