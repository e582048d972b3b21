"""A label of one's own: its classes, and the column, SQL or Polars expression of its values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import polars as pl

from sciscidata.errors import ConfigError, EmptyInputError, SchemaMismatchError
from sciscidata.label_thresholds import VOCABULARIES
from sciscidata.options.checks import Configuration, show_value
from sciscidata.schemas import EXAMPLE
from sciscidata.terminal.messages import counted

#: Columns of the records, files or keys of an answer that a label could be taken for.
_TAKEN: Final = {*VOCABULARIES, "tolerant_label", "first_label", "joint_label", "label_label"}
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,50}_label")
#: No comma, because flags list classes with commas; no slash, because the names of metrics have slashes.
_CLASS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_KEYS_OF_ANSWERS: Final = {"invalid", "null", "confidence", "label_justification", "evidence_signals"}
_FORMS: Final = ("column", "sql", "expression")
#: Most characters of an SQL expression, and most levels of it. Polars crashes on what is far longer or deeper.
_MOST_CHARACTERS: Final = 20_000
_MOST_LEVELS: Final = 120
_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Class = Annotated[str, msgspec.Meta(min_length=1, title="CLASS")]
_Column = Annotated[str, msgspec.Meta(min_length=1, title="COLUMN")]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class OwnLabel(Configuration):
    """A label of your own: 2 to 20 classes, and one way to find the class of every work.

    An expression sees every work of the source, also those that may not be drawn. It has the columns of WORKS and their
    scores and labels. Null, from a column or an expression, means that a work has no label; it is never drawn.

    Attributes:
        name: column of the release, such as ``impact_label``; it ends in ``_label``. Empty: that of ``column`` with
            this ending, or own_label.
        classes: its classes, in label order; 2 to 20. Empty: the values that a build finds, sorted.
        column: column with the classes, of the works or of ``file``.
        file: file with the column and the ids of the works, if the works do not have it: CSV, TSV, Parquet, Arrow, or
            JSON.
        id: column of ``file`` with the ids. None: work_id, openalex_id or id.
        sql: SQL expression for the class of a work, with window functions if you like. It reckons in binary, where
            0.5 - 0.35 is more than 0.15.
        expression: the same as a Polars expression; in Python only.
        meanings: what each class means, in a few words, for prompts. Empty: the names say it.
        question: what the label asks about a paper, for prompts. None: which class fits.
        hidden: released columns that a prompt does not show, because the label follows from them.

    Raises:
        ConfigError: on construction, if a name or a class cannot be used, or there is not exactly one of ``column``,
            ``sql`` and ``expression``. It comes, too, if the label follows from citations that ``hidden`` does not
            name.

    Example:
        >>> OwnLabel(name="impact_label", classes=("top",), column="impact")
        Traceback (most recent call last):
        ...
        sciscidata.errors.ConfigError: OwnLabel.classes is ('top',), needs 2 to 20 different names. Name every class
        that the label can have.
    """

    name: str = ""
    classes: tuple[_Class, ...] = ()
    column: _Column | None = None
    file: Path | None = None
    id: _Text | None = None
    sql: _Text | None = None
    expression: pl.Expr | None = field(default=None, compare=False, repr=False, metadata={"python_only": True})
    meanings: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    question: _Text | None = None
    hidden: tuple[Literal["cited_by_count", "publication_year", "primary_field"], ...] = ("cited_by_count",)

    def _check(self) -> None:
        classes = tuple(word.strip() for listed in self.classes for word in listed.split(","))  # "top,rest" of a flag
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "meanings", dict(self.meanings))
        object.__setattr__(self, "name", self.name or _make_name(self.column))
        self._check_names()
        forms = [form for form in _FORMS if getattr(self, form) is not None]
        if len(forms) != 1:
            got = " and ".join(f"OwnLabel.{form}" for form in forms) or "none of them"
            raise ConfigError(
                f"a label needs one of OwnLabel.column, OwnLabel.sql and OwnLabel.expression, got {got}. Give one."
            )
        for name, needed in (("file", "column"), ("id", "file")):
            if getattr(self, name) is not None and getattr(self, needed) is None:
                raise ConfigError(
                    f"OwnLabel.{name} is given without OwnLabel.{needed}, so it is not read. Give both, or neither."
                )
        self._check_size()
        if "cited_by_count" in self.reads and "cited_by_count" not in self.hidden:
            raise ConfigError(
                "OwnLabel.hidden lacks 'cited_by_count', which the label is computed from: a prompt would show the "
                "answer. Add it."
            )

    def _check_size(self) -> None:
        if len(self.sql or "") > _MOST_CHARACTERS:
            problem = f"has {len(self.sql or ''):,} characters, needs at most {_MOST_CHARACTERS:,}"
        elif self.column is None and (levels := _count_levels(self.expr)) > _MOST_LEVELS:
            problem = f"has {levels:,} steps one in another, needs at most {_MOST_LEVELS}"
        else:
            return
        form = "sql" if self.sql else "expression"
        raise ConfigError(
            f"OwnLabel.{form} {problem}. Write long chains of OR as IN (...), or compute a column first and name it."
        )

    def _check_names(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in _TAKEN:
            what = "is a column of every release" if self.name in VOCABULARIES else "cannot be used"
            raise ConfigError(
                f"OwnLabel.name is {self.name!r}, which {what}. It needs small letters, digits and _, and ends in "
                "_label: for example impact_label."
            )
        if not self.classes:  # a build finds them, with_classes checks them
            return
        folded = {word.lower() for word in self.classes}
        if not 2 <= len(self.classes) <= 20 or len(folded) < len(self.classes):
            raise ConfigError(
                f"OwnLabel.classes is {show_value(self.classes)}, needs 2 to 20 different names. "
                "Name every class that the label can have."
            )
        _check_words(self.classes, "OwnLabel.classes holds")
        strange = [word for word in self.meanings if word not in self.classes]
        if strange:
            raise ConfigError(
                f"OwnLabel.meanings explains {strange[0]!r}, which is no class. Classes: {', '.join(self.classes)}."
            )

    @property
    def values(self) -> str:
        """Where the classes of works stand, for messages: the user's column, or the name of the label."""
        return self.name if self.column is None else f"the column {self.column!r}"

    @property
    def expr(self) -> pl.Expr:
        """The class of a work as an expression over works and scores; a ConfigError if the SQL is none."""
        if self.expression is not None:
            return self.expression
        if self.column is not None:
            return pl.col(self.column)
        try:
            return pl.sql_expr(self.sql or "")
        except pl.exceptions.PolarsError as error:
            raise ConfigError(
                f"OwnLabel.sql cannot be read: {str(error)[:300]}. Give one SQL expression, such as CASE WHEN ... END."
            ) from error

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the class of a work is computed from."""
        return tuple(dict.fromkeys(self.expr.meta.root_names()))

    def stated(self) -> dict[str, Any]:
        """Describe the label for a manifest, in JSON types: no path, and an expression as text."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in ("name", "question", "column", "sql")}
        facts |= {"classes": [*self.classes], "hidden": [*self.hidden], "meanings": dict(self.meanings)}
        facts["expression"] = None if self.expression is None else str(self.expression)
        return {name: value for name, value in facts.items() if value is not None}


def stated_where(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Read back the user's own filters from a manifest: the text of each expression by name."""
    return {entry["name"]: entry["expression"] for entry in manifest.get("eligibility", {}).get("where", ())}


def stated_label(manifest: Mapping[str, Any]) -> OwnLabel | None:
    """Read back the label that a manifest names, with its SQL where it has some; None if there is none."""
    entry = manifest.get("label")
    if entry is None:
        return None
    try:
        known = {name: entry[name] for name in ("name", "classes", "hidden", "meanings")}
        known["question"] = entry.get("question")
        source = {"sql": entry["sql"]} if "sql" in entry else {"column": entry["name"]}
        return OwnLabel(**known, **source)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the manifest's label cannot be read ({error!r}). Give what OwnLabel.stated returns."
        ) from error


def with_classes(label: OwnLabel, rows: pl.DataFrame) -> OwnLabel:
    """Return a label with the classes of ``rows``, where it names none, 2 to 20; numbers are in their order.

    Example:
        >>> rows = pl.DataFrame({"stars_label": ["10", "9", "9"]})
        >>> with_classes(OwnLabel(column="stars"), rows).classes
        ('9', '10')
    """
    if label.classes:
        return label
    words: list[str] = rows[label.name].unique().to_list()
    words.sort()
    if all(map(str.isdecimal, words)):
        words.sort(key=int)
    if not 2 <= len(words) <= 20 or len({word.lower() for word in words}) < len(words):
        shown = ", ".join(repr(word[:20]) for word in words[:6]) + ", ..." * (len(words) > 6)
        raise ConfigError(
            f"{label.values} has {counted(len(words), 'class', 'classes')} ({shown}), needs 2 to 20, and not the same "
            "word in upper and lower case. Change the values, or name another column: OwnLabel.column."
        )
    _check_words(words, f"{label.values} holds")
    return replace(label, classes=tuple(words))


def _make_name(column: str | None) -> str:
    word = re.sub(r"\W+", "_", (column or "").lower()).removesuffix("_label")
    return name if _NAME.fullmatch(name := f"{word}_label") and name not in _TAKEN else "own_label"


def _check_words(words: Sequence[str], holder: str) -> None:
    for word in words:
        if not _CLASS.fullmatch(word) or word.lower() in _KEYS_OF_ANSWERS:
            raise ConfigError(
                f"{holder} {word!r}, which cannot be a class. It needs up to 40 letters, digits and the signs _ . -, "
                f"and none of the words {', '.join(sorted(_KEYS_OF_ANSWERS))}. Rename it."
            )


def vocabularies(label: OwnLabel | None) -> dict[str, tuple[str, ...]]:
    """Return the classes of every label column of a release."""
    return {**VOCABULARIES, **({} if label is None else {label.name: label.classes})}


def example_schema(label: OwnLabel | None) -> pl.Schema:
    """Return the columns of a release: EXAMPLE, and after them the own label."""
    return pl.Schema({**EXAMPLE, **({} if label is None else {label.name: pl.String()})})


def compute_own_labels(works: pl.LazyFrame, scores: pl.LazyFrame, label: OwnLabel) -> pl.DataFrame:
    """Find the class of every work: ``work_id`` and the label, without works that have none, in one streaming query.

    A column that both have is taken from ``works``.
    """
    of_works, of_scores = works.collect_schema(), scores.collect_schema()
    missing = [name for name in label.reads if name not in of_works and name not in of_scores]
    if missing:
        there = ", ".join(dict.fromkeys([*of_works, *of_scores]))
        remedy = " Name the file that has it: OwnLabel.file." if label.column is not None else ""
        raise ConfigError(
            f"the label {label.name} needs the column {missing[0]!r}, and the works have {there}.{remedy}"
        )
    frame = works.select("work_id", *(name for name in label.reads if name in of_works and name != "work_id"))
    beside = [name for name in label.reads if name not in of_works]
    if beside:
        frame = frame.join(scores.select("work_id", *beside), on="work_id", how="left")
    try:
        labelled = frame.select("work_id", label.expr.alias(label.name)).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        form = next(form for form in _FORMS if getattr(label, form) is not None)
        raise ConfigError(
            f"OwnLabel.{form} cannot be computed for {label.name}: {str(error).splitlines()[0]}. Mend it."
        ) from error
    return check_classes(labelled, label)


def check_classes(labelled: pl.DataFrame, label: OwnLabel) -> pl.DataFrame:
    """Return ``work_id`` and the label as text, without nulls. A label without classes may have any value."""
    dtype = labelled.schema[label.name]
    is_words = isinstance(dtype, pl.String | pl.Boolean | pl.Null | pl.Categorical | pl.Enum)
    if not (is_words or dtype.is_integer()):
        raise SchemaMismatchError(
            f"{label.name} is {dtype}, needs text, whole numbers or booleans that are classes. Cast it."
        )
    rows = labelled.select("work_id", pl.col(label.name).cast(pl.String)).drop_nulls()
    strange = rows.filter(~pl.col(label.name).is_in(label.classes or rows[label.name].implode()))
    if strange.height:
        counts = strange[label.name].value_counts().sort("count", label.name, descending=[True, False])
        word, n = counts.row(0)
        raise SchemaMismatchError(
            f"{label.name} is {word!r} for {n:,} of {labelled.height:,} works, needs one of "
            f"{', '.join(label.classes)}, or null. Add it to OwnLabel.classes, or mend the values."
        )
    if rows.is_empty():
        raise EmptyInputError(
            f"{label.values} is empty for all of {labelled.height:,} works, so none may be drawn. Fill it."
        )
    return rows


def _count_levels(expr: pl.Expr) -> int:
    """Count how many steps of an expression lie one in another; 0 where it cannot be written down."""
    try:
        text = expr.meta.serialize(format="json")
    except (ValueError, pl.exceptions.PolarsError):  # a function of Python, for example
        return 0
    level = most = 0
    for bracket in _BRACKETS.findall(text):
        level += (bracket in "[{") - (bracket in "]}")
        most = max(most, level)
    return most // 2  # a step is an object with one key, and an object or a list in it
