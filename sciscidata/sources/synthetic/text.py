"""Titles and abstracts of synthetic works: sentence templates filled from the vocabulary, without a loop over works.

A template is compiled to a row of slots; fixed words are slots with one phrase. A text is a matrix of phrase numbers,
one row per work. Gathering the phrases and joining each row gives the strings.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

import numpy as np
import polars as pl

from sciscidata._kernels.arrays import Int32Array, Int64Array
from sciscidata._kernels.random import UInt64Array, below, draw
from sciscidata.sources.synthetic import words

#: The sentences of a text; an abstract has 60 to 150 words in 4 to 8 sentences.
TITLE, ABSTRACT = range(1), range(1, len(words.SENTENCES))
_SLOT = re.compile(r"(\{\w+\})")


class _Grammar(NamedTuple):
    """The compiled templates; sentence 0 is the title, the others make up the abstract."""

    phrases: pl.Series  # phrase number -> phrase
    first: Int64Array  # [slot, field, kind] -> number of the slot's first phrase there
    size: Int64Array  # [slot, field, kind] -> how many phrases it has there
    sticky: Int64Array  # [slot] -> number of the random choice that a work's sentences share, or -1
    keep_per_cent: list[int]  # [sentence]
    templates: list[Int64Array]  # [sentence] -> [template, position] -> slot; slot 0 is the empty string


def write_texts(
    sentences: range, keys: UInt64Array, fields: Int32Array, kinds: Int32Array, signal_per_cent: int
) -> pl.Series:
    """Write one text per work; ``signal_per_cent`` of the sentences use the voice of its kind, others a random one."""
    grammar = _compile()
    parts: list[Int64Array] = []
    for sentence in sentences:
        templates = grammar.templates[sentence]
        own_keys = draw(keys, np.full(len(keys), sentence))[:, None]
        voiced, voice, template, kept = draw(own_keys, np.arange(4)).T
        speaker = np.where(below(voiced, 100) < signal_per_cent, kinds, below(voice, len(words.KINDS)))
        slots = templates[below(template, len(templates))]
        slots[below(kept, 100) >= grammar.keep_per_cent[sentence]] = 0
        choice = draw(own_keys, np.arange(4, 4 + slots.shape[1]))
        sticky = grammar.sticky[slots]
        # Sentence numbers are below 1,000, so shared choices never use the key of a sentence.
        choice = np.where(sticky >= 0, draw(keys[:, None], 1000 + sticky), choice)
        cell = (slots, fields[:, None], speaker[:, None])
        parts.append(grammar.first[cell] + below(choice, grammar.size[cell]))
    numbers = np.concatenate(parts, axis=1)
    texts = grammar.phrases.gather(numbers.ravel()).reshape(numbers.shape).arr.join("")
    return texts.str.strip_chars_end(" ")


@functools.cache
def _compile() -> _Grammar:
    """Number all phrases and slots; a bank of phrases is one range, fixed words a bank of one."""
    phrases: list[str] = []
    runs: dict[tuple[str, ...], tuple[int, int]] = {}
    slots: dict[str, int] = {}
    tables: list[list[list[tuple[int, int]]]] = []
    sticky: list[int] = []

    def run(bank: tuple[str, ...]) -> tuple[int, int]:
        if bank not in runs:
            runs[bank] = (len(phrases), len(bank))
            phrases.extend(bank)
        return runs[bank]

    def slot(token: str) -> int:
        if token not in slots:
            slots[token] = len(slots)
            kinds = range(len(words.KINDS))
            tables.append([[run(_bank(token, field, kind)) for kind in kinds] for field in words.TOPICS])
            name = token.strip("{}").lower()
            sticky.append(words.STICKY.index(name) if token != name and name in words.STICKY else -1)
        return slots[token]

    slot("")
    templates: list[Int64Array] = []
    for alternatives in words.SENTENCES:
        rows = [[slot(token) for token in _SLOT.split(f"{template} ")] for template in alternatives]
        width = max(map(len, rows))
        templates.append(np.array([row + [0] * (width - len(row)) for row in rows]))
    table = np.array(tables)
    return _Grammar(
        phrases=pl.Series(phrases, dtype=pl.String),
        first=table[..., 0],
        size=table[..., 1],
        sticky=np.array(sticky),
        keep_per_cent=words.KEPT_PER_CENT,
        templates=templates,
    )


def _bank(token: str, field: str, kind: int) -> tuple[str, ...]:
    """Return the possible phrases of one piece of a template."""
    if not token.startswith("{"):
        return (token,)
    name = token[1:-1].lower()
    by_field = {"topic": words.TOPICS[field], "method": words.METHODS[field]}
    voiced = words.VOICED.get(name)
    bank = [*voiced.values()][kind] if voiced else (by_field | words.COMMON)[name]
    return tuple(bank) if token[1].islower() else tuple(phrase[0].upper() + phrase[1:] for phrase in bank)
