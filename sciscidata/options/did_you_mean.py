"""Say "did you mean" of a mistyped word, option or public name, and where a name went that was moved."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import Final, TypeAlias

_PARTS: Final = ("", ".indicators", ".plots", ".errors", ".schemas")

#: Names that another program has, and those that mean the same here; None: nothing does.
Renamed: TypeAlias = Mapping[str, str | None]
_NOTHING: Final[Renamed] = MappingProxyType({})


def suggest(word: object, known: Iterable[str], renamed: Renamed = _NOTHING) -> str:
    """Suggest the closest known word to an unknown one: " Did you mean X?", or "" if none is close."""
    close = find_close(word, known, renamed) if isinstance(word, str) else None
    return f" Did you mean {close}?" if close else ""


def find_close(word: str, known: Iterable[str], renamed: Renamed = _NOTHING) -> str | None:
    """Find the known word that means another, else with its initials, its beginning, or nearly its letters.

    Example:
        >>> [find_close(flag, ["--vllm", "--learning-rate", "--n-train"]) for flag in ("--lr", "--learn", "--n-trian")]
        ['--learning-rate', '--learning-rate', '--n-train']
        >>> find_close("--mini-batch", ["--min-size", "--batch-size"], {"mini_batch": "batch_size"})
        '--batch-size'
    """
    bare, named = word.lstrip("-"), {name.lstrip("-"): name for name in known}  # dashes would count as equal letters
    option = bare.replace("-", "_")
    if option in renamed:
        return next((named[name] for name in named if name.replace("-", "_") == renamed[option]), None)
    initials = [
        name for name in named if len(bare) > 1 and bare == "".join(part[:1] for part in re.split("[-_]", name))
    ]
    begun = [name for name in named if len(bare) > 2 and name.startswith(bare)]
    close = initials or begun or get_close_matches(bare, named, n=1, cutoff=0.65)
    return named[close[0]] if close else None


def find_unknown(names: Iterable[str], known: Collection[str], *, where: str, what: str = "") -> str:
    """Say which name is not known, where, and what to write instead; "" if all are known.

    Example:
        >>> find_unknown(["n_trian"], ["n_train", "n_test"], where="section [split]", what="setting")
        "section [split] has no setting 'n_trian'. Did you mean n_train?"
        >>> find_unknown(["speed"], ["n_train", "n_test"], where="a preset")
        "a preset has no 'speed'. It has n_train, n_test."
    """
    for name in names:
        if name not in known:
            remedy = suggest(name, known) or f" It has {', '.join(known)}."
            return f"{where} has no {f'{what} ' if what else ''}{name!r}.{remedy}"
    return ""


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
