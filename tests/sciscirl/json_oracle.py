"""JSON by the letter of RFC 8259, read one character at a time: an independent judge for the contracts."""

from __future__ import annotations

import re
from fractions import Fraction

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
WORDS = {"true": True, "false": False, "null": None}
LABELS = ("disruptive", "consolidating", "neutral")
VOCABULARIES = {"disruption_label": LABELS, "novelty_label": ("novel", "balanced", "conventional")}
COLUMNS = {
    "disruption": ["disruption_label"],
    "novelty": ["novelty_label"],
    "joint": ["disruption_label", "novelty_label"],
}


class NotJsonError(Exception):
    pass


class Members(list):
    """An object: its (key, value) pairs in order, repeats and all."""


class Reader:
    def __init__(self, text: str, max_depth: int) -> None:
        self.text, self.at, self.left = text, 0, max_depth

    def document(self):
        value = self.value()
        self.space()
        if self.at != len(self.text):
            raise NotJsonError
        return value

    def space(self):
        while self.at < len(self.text) and self.text[self.at] in "\x20\x09\x0a\x0d":
            self.at += 1

    def take(self, expected):
        if not self.text.startswith(expected, self.at):
            raise NotJsonError
        self.at += len(expected)

    def peek(self):
        return self.text[self.at : self.at + 1]

    def value(self):
        self.space()
        first = self.peek()
        if first == "{":
            return Members(self.items("{", "}", self.member))
        if first == "[":
            return self.items("[", "]", self.value)
        if first == '"':
            return self.string()
        for word, meaning in WORDS.items():
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return meaning
        number = NUMBER.match(self.text, self.at)
        if number is None:
            raise NotJsonError
        self.at = number.end()
        return float(number[0])

    def items(self, opening, closing, read):
        self.take(opening)
        self.left -= 1
        if self.left < 0:
            raise NotJsonError
        found = []
        self.space()
        while self.peek() != closing:
            if found:
                self.take(",")
            found.append(read())
            self.space()
            if self.peek() not in (",", closing):
                raise NotJsonError
        self.take(closing)
        self.left += 1
        return found

    def member(self):
        self.space()
        key = self.string()
        self.space()
        self.take(":")
        return key, self.value()

    def string(self):
        self.take('"')
        units = []
        while self.peek() != '"':
            letter = self.peek()
            if letter == "" or letter < " ":
                raise NotJsonError
            self.at += 1
            if letter == "\\":
                letter = self.escape()
            units.append(letter)
        self.take('"')
        # Pairs of escaped surrogates are one character; a half that is left over stays what it is.
        return "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def escape(self):
        letter = self.peek()
        self.at += 1
        if letter == "u":
            digits = self.text[self.at : self.at + 4]
            if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                raise NotJsonError
            self.at += 4
            return chr(int(digits, 16))
        if letter not in ESCAPES:
            raise NotJsonError
        return ESCAPES[letter]


def has_repeats(value) -> bool:
    if isinstance(value, Members):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(has_repeats(inner) for _, inner in value)
    return isinstance(value, list) and any(map(has_repeats, value))


def is_words(value) -> bool:
    return isinstance(value, str) and value.strip() != "" and not any("\ud800" <= c <= "\udfff" for c in value)


def is_share(value) -> bool:
    return isinstance(value, float) and 0 <= value <= 1


def judge(text: str, contract: str, target: str = "disruption", max_depth: int = 32):
    """Say whether ``text`` is JSON, whether it is valid, and the labels and confidence of a valid answer."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        return False, False, {}, None
    try:
        value = Reader(text, max_depth).document()
    except NotJsonError:
        return False, False, {}, None
    broken = True, False, {}, None
    columns = COLUMNS[target]
    keys = {*columns, "confidence"}
    if contract == "four_keys":
        keys |= {"label_justification", "evidence_signals"}
    if contract == "probabilities":
        keys = {label for column in columns for label in VOCABULARIES[column]}
    if not isinstance(value, Members) or has_repeats(value) or {key for key, _ in value} != keys:
        return broken
    fields = dict(value)
    if contract == "probabilities":
        labels, sure = {}, Fraction(1)
        if not all(map(is_share, fields.values())):
            return broken
        for column in columns:
            chances = {label: Fraction(repr(fields[label])) for label in VOCABULARIES[column]}
            total = sum(chances.values())
            if abs(total - 1) > Fraction(1, 1000):
                return broken
            likeliest = [label for label in chances if chances[label] == max(chances.values())]
            if len(likeliest) > 1:
                return broken
            labels[column] = likeliest[0]
            sure *= chances[labels[column]] / total
        return True, True, labels, float(sure)
    labels = {column: fields[column] for column in columns}
    if not all(isinstance(label, str) and label in VOCABULARIES[column] for column, label in labels.items()):
        return broken
    if not is_share(fields["confidence"]):
        return broken
    if contract == "four_keys":
        signals = fields["evidence_signals"]
        if not is_words(fields["label_justification"]):
            return broken
        if isinstance(signals, Members) or not isinstance(signals, list) or not signals:
            return broken
        if not all(map(is_words, signals)):
            return broken
    return True, True, labels, fields["confidence"]
