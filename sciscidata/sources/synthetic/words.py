"""The vocabulary of the synthetic world, as ``words.toml`` has it: topics, phrases, and templates of sentences."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

_WORDS: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
_FIELDS: Final[dict[str, dict[str, Any]]] = _WORDS["fields"]

#: Hidden kinds of works, in the order of their numbers.
KINDS: Final[list[str]] = _WORDS["kinds"]
TOPICS: Final[dict[str, list[str]]] = {name: field["topics"] for name, field in _FIELDS.items()}
METHODS: Final[dict[str, list[str]]] = {name: field["methods"] for name, field in _FIELDS.items()}
FIELD_WEIGHTS: Final[list[int]] = [field["weight"] for field in _FIELDS.values()]
VENUES: Final[list[str]] = _WORDS["venues"]
COMMON: Final[dict[str, list[str]]] = _WORDS["common"]
#: Phrases by slot and hidden kind.
VOICED: Final[dict[str, dict[str, list[str]]]] = _WORDS["voiced"]
STICKY: Final[list[str]] = _WORDS["sticky"]
#: The templates of each sentence, that of the title first, and how many works in a hundred have the sentence.
SENTENCES: Final[list[list[str]]] = [_WORDS["title"], *(sentence["templates"] for sentence in _WORDS["abstract"])]
KEPT_PER_CENT: Final[list[int]] = [100, *(sentence["per_cent"] for sentence in _WORDS["abstract"])]
