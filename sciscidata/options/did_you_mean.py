"""Say "did you mean" of a mistyped word, option or public name, and where a name went that was moved."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import Final, ParamSpec, TypeVar

from sciscidata.errors import ConfigError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_PARTS: Final = ("", ".indicators", ".plots", ".errors", ".schemas")


def suggest(word: object, known: Iterable[str]) -> str:
    """Suggest the closest known word to an unknown one: " Did you mean X?", or "" if none is close."""
    close = find_close(word, known) if isinstance(word, str) else None
    return f" Did you mean {close}?" if close else ""


def find_close(word: str, known: Iterable[str]) -> str | None:
    """Find the known word with the initials of another, its beginning, or nearly its letters.

    Example:
        >>> [find_close(flag, ["--vllm", "--learning-rate", "--n-train"]) for flag in ("--lr", "--learn", "--n-trian")]
        ['--learning-rate', '--learning-rate', '--n-train']
    """
    bare, named = word.lstrip("-"), {name.lstrip("-"): name for name in known}  # dashes would count as equal letters
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


def missing_name(
    module: str, name: str, parts: Sequence[str] = _PARTS, gone: Mapping[str, str] = MappingProxyType({})
) -> AttributeError | ImportError:
    """Return the error for a name that the ``__getattr__`` of a module was asked for in vain.

    Args:
        module: the module.
        name: what it does not have.
        parts: the parts of its package that have the public names.
        gone: what to write in the place of names that are gone.

    Example:
        >>> print(missing_name("sciscidata", "compute_cd_indx"))
        sciscidata has no 'compute_cd_indx'. Did you mean sciscidata.compute_cd_index?
    """
    package = module.partition(".")[0]
    msg, told = f"{module} has no {name!r}.", ""
    # Python asks for private names, and for a module before it imports it.
    if not name.startswith("_") and (module != package or find_spec(f"{module}.{name}") is None):
        known = {word: f"{package}{part}.{word}" for part in parts[::-1] for word in _names(package + part)}
        close = None if name in gone else find_close(name, known)
        told = f" Did you mean {known[close]}?" if close else gone.get(name, "") and f" {gone[name]}"
    # Of an AttributeError, ``from module import name`` tells nothing.
    asked_by = sys._getframe(2).f_code.co_name  # pyright: ignore[reportPrivateUsage] (public in the documentation)
    if told and asked_by == "_handle_fromlist":
        return ImportError(msg + told, name=module)
    return AttributeError(msg + told, name=name, obj=None)


def refuse_gone(**gone: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function say what to do in the place of parameters that are gone."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def checked(*values: _P.args, **options: _P.kwargs) -> _R:
            for name in gone.keys() & options.keys():
                raise ConfigError(f"{function.__name__} has no option {name!r}. {gone[name]}")
            return function(*values, **options)

        return checked

    return decorate


def _names(path: str) -> list[str]:
    module: ModuleType = import_module(path)
    defined = (word for word, value in vars(module).items() if getattr(value, "__module__", "") == path)
    return getattr(module, "__all__", None) or [*defined]
