"""JSON by the letter of RFC 8259, read one character at a time: an independent judge for the contracts."""

from __future__ import annotations

import re

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
WORDS = {"true": True, "false": False, "null": None}
LABELS = ("disruptive", "consolidating", "neutral")
KEYS = {
    "four_keys": {"disruption_label", "label_justification", "evidence_signals", "confidence"},
    "two_keys": {"disruption_label", "confidence"},
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


def judge(text: str, contract: str, max_depth: int = 32) -> tuple[bool, bool, str | None, float | None]:
    """Say whether ``text`` is JSON, whether it is valid, and the label and confidence of a valid answer."""
    if any("\ud800" <= c <= "\udfff" for c in text):
        return False, False, None, None
    try:
        value = Reader(text, max_depth).document()
    except NotJsonError:
        return False, False, None, None
    broken = True, False, None, None
    if not isinstance(value, Members) or has_repeats(value) or {key for key, _ in value} != KEYS[contract]:
        return broken
    fields = dict(value)
    label, confidence = fields["disruption_label"], fields["confidence"]
    if not isinstance(label, str) or label not in LABELS:
        return broken
    if not isinstance(confidence, float) or not 0 <= confidence <= 1:
        return broken
    if contract == "four_keys":
        signals = fields["evidence_signals"]
        if not is_words(fields["label_justification"]):
            return broken
        if isinstance(signals, Members) or not isinstance(signals, list) or not signals:
            return broken
        if not all(map(is_words, signals)):
            return broken
    return True, True, label, confidence
