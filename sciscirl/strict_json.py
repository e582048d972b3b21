"""JSON as RFC 8259 has it, where Python's reader is more generous: the same verdict in the same time everywhere."""

from __future__ import annotations

import json
import re
from typing import Any, Final, Literal, cast

JsonProblem = Literal["", "not_json", "nested_too_deep", "duplicate_key"]
#: RFC 8259 lets a reader limit depth. A fixed limit, unlike Python's stack, is the same wherever it is reached.
MAX_DEPTH: Final = 32

# Possessive, and with the end optional: what was scanned is consumed, found or not, so that time stays linear.
STRING_PATTERN: Final = r'"(?:[^"\\]|\\.)*+"?'
_BRACKETS: Final = re.compile(rf"{STRING_PATTERN}|([\[{{])|([\]}}])", re.DOTALL)


def read_json(text: str) -> tuple[Any, JsonProblem]:
    """Read one JSON value; every number becomes a float. Never raises.

    Returns:
        The value and ``""``, or None and what is wrong. A key twice in an object is JSON by the letter, but no value.

    Source: RFC 8259.

    Example:
        >>> read_json('{"a": 1}')
        ({'a': 1.0}, '')
        >>> read_json('{"a": NaN}'), read_json('{"a": 1, "a": 1}')
        ((None, 'not_json'), (None, 'duplicate_key'))
    """
    if not is_utf8(text):
        return None, "not_json"
    if _depth(text) > MAX_DEPTH:
        return None, "nested_too_deep"
    try:
        # As floats, numbers of any length are read in linear time and without Python's limit on digits.
        pairs = json.loads(text, object_pairs_hook=_Pairs, parse_int=float, parse_constant=_refuse_constant)
    except ValueError:
        return None, "not_json"
    try:
        return _as_dicts(pairs), ""
    except _DuplicateKeyError:
        return None, "duplicate_key"


def is_utf8(text: str) -> bool:
    """Say whether a text can be encoded: it holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _DuplicateKeyError(ValueError):
    pass


class _Pairs(list[tuple[str, Any]]):
    """An object as read, before its keys are known to differ."""


def _as_dicts(value: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, _Pairs):
        whole = {key: _as_dicts(inner) for key, inner in value}
        if len(whole) < len(value):
            raise _DuplicateKeyError
        return whole
    return [_as_dicts(inner) for inner in cast("list[Any]", value)] if isinstance(value, list) else value


def _refuse_constant(name: str) -> float:
    msg = f"{name} is no JSON number"
    raise ValueError(msg)


def _depth(text: str) -> int:
    deepest = depth = 0
    for match in _BRACKETS.finditer(text):
        depth += bool(match[1]) - bool(match[2])
        deepest = max(deepest, depth)
    return deepest
