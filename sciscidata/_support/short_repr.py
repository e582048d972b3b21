"""What a notebook shows of an object: a configuration as what differs from its defaults, and small HTML tables."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Mapping
from typing import Any, Final

_MOST_SHOWN: Final = 300  # characters of a value
_CELL: Final = "text-align:left;vertical-align:top"


def short_repr(self: Any) -> str:  # noqa: ANN401
    """Write a configuration as the call that makes it, without the options that have their defaults."""
    changed = (f"{name}={value!r}" for name, value, is_default in _options(self) if not is_default)
    return f"{type(self).__name__}({', '.join(changed)})"


def html_repr(self: Any) -> str:  # noqa: ANN401
    """Write a configuration as a table of all its options; what differs from its default is bold."""
    rows = [(name, repr(value), is_default) for name, value, is_default in _options(self)]
    cells = [(_escape(name), _escape(text) if same else f"<b>{_escape(text)}</b>") for name, text, same in rows]
    return _table(type(self).__name__, cells)


def html_facts(title: str, facts: Mapping[str, object]) -> str:
    """Write facts as a small table; whole numbers get commas. Colours are those of the page, dark or light."""
    shown = {name: f"{fact:,}" if type(fact) is int else str(fact) for name, fact in facts.items()}
    return _table(title, [(_escape(name), _escape(text)) for name, text in shown.items()])


def _options(config: Any) -> Iterable[tuple[str, Any, bool]]:  # noqa: ANN401
    """Yield name and value of each option, and whether it is the default."""
    for field in dataclasses.fields(config):
        if not field.repr:  # a key, a password
            continue
        make = field.default_factory
        default = field.default if make is dataclasses.MISSING else make()
        value = getattr(config, field.name)
        yield field.name, value, bool(value == default)


def _table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(f'<tr><td style="{_CELL}">{name}</td><td style="{_CELL}">{text}</td></tr>' for name, text in rows)
    caption = f'<caption style="text-align:left;color:inherit"><b>{_escape(title)}</b></caption>'
    return f'<table style="color:inherit;background:none">{caption}<tbody>{body}</tbody></table>'


def _escape(text: str) -> str:
    return html.escape(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…")
