"""JSON by the letter of RFC 8259, read one token at a time: an independent judge for the contracts."""

from __future__ import annotations

import re
from fractions import Fraction

SPACE = "[ \t\n\r]*"
STRING = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
TOKEN = re.compile(rf"{SPACE}([{{}}\[\],:]|{STRING}|{NUMBER}|true|false|null|\Z){SPACE}")
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
    """Reads a token at a time; a text that goes on with no token is no JSON."""

    def __init__(self, text: str, max_depth: int) -> None:
        self.text, self.at, self.left, self.token = text, 0, max_depth, ""
        self.advance()

    def advance(self) -> str:
        """Step to the next token, "" at the end; return the one before."""
        before, found = self.token, TOKEN.match(self.text, self.at)
        if found is None:
            raise NotJsonError
        self.at, self.token = found.end(), found[1]
        return before

    def document(self):
        value = self.value()
        if self.token:
            raise NotJsonError
        return value

    def value(self):
        token = self.advance()
        if token == "{":
            return Members(self.items("}", self.member))
        if token == "[":
            return self.items("]", self.value)
        if token[:1] == '"':
            return unescape(token)
        if token in WORDS:
            return WORDS[token]
        if token in "}],:":  # or nothing
            raise NotJsonError
        return float(token)

    def items(self, closing, read):
        self.left -= 1
        found = []
        while self.token != closing and self.left >= 0:
            found.append(read())
            if self.token != closing and (self.advance() != "," or self.token == closing):
                raise NotJsonError
        if self.left < 0:
            raise NotJsonError
        self.advance()
        self.left += 1
        return found

    def member(self):
        key = self.advance()
        if key[:1] != '"' or self.advance() != ":":
            raise NotJsonError
        return unescape(key), self.value()


def unescape(token: str) -> str:
    text = re.sub(r"\\(u([0-9a-fA-F]{4})|.)", lambda m: chr(int(m[2], 16)) if m[2] else ESCAPES[m[1]], token[1:-1])
    # Pairs of escaped surrogates are one character; a half that is left over stays what it is.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


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
