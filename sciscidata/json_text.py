"""JSON that somebody else may have written: a value, or one kind of error."""

from __future__ import annotations

import json
from typing import Any, Final

#: Of lists and objects in each other. Python reads a thousand, and fails where the next function goes through them.
MAX_DEPTH: Final = 100


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 (JSON)
    r"""Read one JSON value.

    Raises:
        ValueError: the text is no JSON, not UTF-8, nested deeper than MAX_DEPTH, or holds half of a surrogate
            pair, which no file could be written with.

    Example:
        >>> parse_json(b'{"step": 50}')
        {'step': 50}
        >>> for text in ("[" * 100_000, b"\xff\xfe", '"\\ud800"', ""):
        ...     try:
        ...         parse_json(text)
        ...     except ValueError as error:
        ...         print(error)
        nested too deep
        not UTF-8
        half of a surrogate pair
        Expecting value: line 1 column 1 (char 0)
    """
    try:
        whole = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(whole)
        is_text = r"\u" not in whole or _is_text(value)
        is_flat = _is_flat(value)
    except RecursionError:
        msg = "nested too deep"
        raise ValueError(msg) from None
    except UnicodeDecodeError:
        msg = "not UTF-8"
        raise ValueError(msg) from None
    if not is_text:
        msg = "half of a surrogate pair"
        raise ValueError(msg)
    if not is_flat:
        msg = "nested too deep"
        raise ValueError(msg)
    return value


def _is_flat(value: Any) -> bool:  # noqa: ANN401 (JSON)
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [one for one in level if isinstance(one, list | dict)]
        level = [part for one in inner for part in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return True
    return False


def _is_text(value: Any) -> bool:  # noqa: ANN401 (JSON)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
