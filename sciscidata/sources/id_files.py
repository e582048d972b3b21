"""Read a list of ids: a file of any form, a pasted text, or values of Python."""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import polars as pl

from sciscidata.errors import ConfigError, CorruptRecordError, EmptyInputError, InputNotFoundError, SchemaMismatchError
from sciscidata.frames import to_lazy
from sciscidata.options.did_you_mean import suggest
from sciscidata.records.listed_ids import ENTITIES, OF_WORKS, ListedIds, has_id, list_ids, split_ids
from sciscidata.sources.exports.bibtex import ENTRY
from sciscidata.sources.exports.formats import read_export, read_text
from sciscidata.sources.tables.files import TableFile
from sciscidata.storage import expand_home, hash_file
from sciscidata.storage.small_files import name_encoding
from sciscidata.terminal.messages import counted, list_names, shorten
from sciscidata.terminal.progress import progress_bar

logger = logging.getLogger(__name__)

#: What ids may be handed over as: the path of a file, a pasted text, values, a Series or a frame.
Ids: TypeAlias = Any
#: Standard input.
PASTED: Final = "-"
#: How a record begins in a file of a reference manager, or in an export of Web of Science.
_RECORDS: Final = re.compile(rf"^(?:TY {{1,2}}-|PT [A-Z]\s*$|\s*{ENTRY.pattern})", re.M)
_DELIMITERS: Final = ",\t;"
_BINARY: Final = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
#: As long as a PubMed id; few OpenAlex ids are so short.
_NUMBER_ALONE: Final = r"^\s*[0-9]{6,8}\s*$"
_HEAD: Final = 10_000
_LOOKED_AT: Final = 1_000  # rows of a column, lines of a text
#: Names of columns with ids, where numbers alone are ids too; the first counts where columns hold as many.
_NAMES: Final = ("openalex_id", "openalex", "work_id", "id", "doi", "original_id", "asked", "paperid", "dois", "ids")
_FORMS: Final = "a text with an id in each line, CSV, TSV, JSON, Parquet, Feather, RIS, BibTeX or CSL JSON"


def read_ids(ids: Ids, column: str | None = None) -> ListedIds:
    """Read ids in their order, with repeats; the log says where they were found.

    Args:
        ids: the path of a file, a pasted text, a list, a Series, or a frame. "-" is standard input.
        column: the column of a table that holds them. None: the one with the most DOIs and OpenAlex ids.

    Raises:
        InputNotFoundError: if there is no such file.
        SchemaMismatchError: if a column is missing, or none holds ids.
        EmptyInputError: if there is no id.
        CorruptRecordError: if a file cannot be read.
        ConfigError: if all ids are of authors or the like, or ``ids`` is something else.
    """
    if isinstance(ids, Path) or (isinstance(ids, str) and _is_path(ids)):
        return _read_file(Path(expand_home(str(ids))), column)
    if isinstance(ids, str):
        return _finish(split_ids(ids), "the text given")
    if isinstance(ids, pl.LazyFrame) or hasattr(ids, "columns"):
        frame = to_lazy(ids, "ids", "read_ids").collect()
        chosen = _choose_columns(frame, column, "the frame given")
        return _finish(_ids_of(frame, chosen), _name_columns(chosen, "the frame given"))
    if isinstance(ids, Iterable) and not isinstance(ids, bytes | Mapping):
        return _finish(ids, "the list given")
    raise ConfigError(
        f"ids is of type {type(ids).__name__}, needs the path of a file, a text, a list, a Series or a frame."
    )


def _is_path(text: str) -> bool:
    """Whether a text names a file: it is there, or holds neither an id nor a line end."""
    try:
        return text == PASTED or Path(expand_home(text)).exists() or ("\n" not in text and not has_id(text))
    except (OSError, ValueError):  # no name of a file
        return False


def _read_file(path: Path, column: str | None) -> ListedIds:
    """Read a file by its content, never by its name."""
    if str(path) == PASTED:
        return _finish(split_ids(sys.stdin.read()), "standard input")
    if path.is_dir():
        raise InputNotFoundError(f"{path} is a folder. Name a file in it that holds ids: {_FORMS}.")
    if path.exists() and not path.is_file():
        raise InputNotFoundError(
            f"{path} is a pipe or a device, needs a file. Write the ids into one, or pipe them into `--ids -`."
        )
    if not path.is_file():
        raise InputNotFoundError(f"{path} does not exist. Check the path; it is relative to {Path.cwd()}.")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if head.startswith(b"%PDF"):
        raise CorruptRecordError(f"{path} is a PDF. Copy its ids into a text file, one in each line.")
    is_compressed = head.startswith(_COMPRESSED)
    is_text = is_compressed or bool(name_encoding(head[:256])) or not _BINARY.search(head)
    text = read_text(path) if is_text else ""
    start = text.lstrip()[:1]
    if is_text and not start:
        raise EmptyInputError(f"{path} is empty, needs ids: {_FORMS}.")
    if start in ("[", "{") and (values := _read_document(text)) is not None:
        return _of_table(values, column, path)
    if is_text and start != "{":
        if _RECORDS.search(text[:_HEAD]):
            return _finish(_read_records(path), str(path), path)
        if not _has_header(text):
            return _finish(_read_rows(text), str(path), path)
    table = TableFile(path)
    names = [name for name in table.columns if not table.is_json or _may_hold_ids(name)]
    names += [column] if column in table.columns and column not in names else []
    first = next(table.read(names), pl.DataFrame(schema=dict.fromkeys(names, pl.String())))
    chosen = _choose_columns(first, column, str(path))
    with progress_bar("read ids", path.stat().st_size, unit="bytes") as advance:
        values = [_ids_of(first, chosen).clear(), *(_ids_of(batch, chosen) for batch in table.read(chosen, advance))]
    return _finish(pl.concat(values), _name_columns(chosen, str(path)), path)


def _may_hold_ids(name: str) -> bool:
    """Whether a key of JSON objects may: one at the top, or one inside whose name says so. Abstracts have thousands."""
    inner = name.rpartition(".")
    return not inner[0] or inner[2].lower() in _NAMES


def _of_table(values: Any, column: str | None, path: Path) -> ListedIds:  # noqa: ANN401
    """Take ids from what a JSON document holds: a list of ids, or records, which CSL calls items."""
    if isinstance(values, dict):
        lists = [one for one in values.values() if isinstance(one, list)]
        values = lists[0] if len(values) == len(lists) == 1 else values.get("items", [values])
    if not all(isinstance(one, dict) for one in values):
        return _finish([one if isinstance(one, str | int) else None for one in values], str(path), path)
    names = dict.fromkeys(name for one in values for name in one)
    columns = {
        name: [str(value) if isinstance(value := one.get(name), str | int) else None for one in values]
        for name in names
    }
    frame = pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String()))
    chosen = _choose_columns(frame, column, str(path))
    return _finish(_ids_of(frame, chosen), _name_columns(chosen, str(path)), path)


def _read_document(text: str) -> Any:  # noqa: ANN401 (JSON)
    """Read a JSON document; None if it is none, such as an object on each line."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list | dict) else None


def _read_records(path: Path) -> list[str | None]:
    """Read the DOI of each record of a reference manager, or of its address; one without is named by its title."""
    _, rows, addresses = read_export(path)
    dois = list_ids(addresses)["doi"].alias("in_address")
    name = pl.coalesce("doi", "in_address", pl.format("no DOI: {}", pl.col("title").fill_null("")))
    return rows.with_columns(dois).select(name).to_series().to_list()


def _has_header(text: str) -> bool:
    """Whether the first row of a text has several cells, and no id: the names of columns."""
    first = next((line for line in text.splitlines()[:_LOOKED_AT] if line.strip() and line[0] != "#"), "")
    return any(sign in first for sign in _DELIMITERS) and not has_id(first)


def _read_rows(text: str) -> list[str]:
    """Read ids of a text without names of columns: a table whose ids stand in one cell of each row, or a list."""
    lines = [line for line in text.splitlines() if line.strip()]
    for delimiter in ",\t":
        if len({len(row) for row in csv.reader(lines[:_LOOKED_AT], delimiter=delimiter)} | {1}) != 2:
            continue
        rows = [*csv.reader(lines, delimiter=delimiter)]
        n_cells = {len(row) for row in rows}
        if len(n_cells) != 1 or n_cells == {1}:
            continue
        of_cell = [sum(map(has_id, cells)) for cells in zip(*rows, strict=True)]
        if sum(n > 0 for n in of_cell) == 1:
            return [row[of_cell.index(max(of_cell))] for row in rows]
    return split_ids(text)


def _ids_of(table: pl.DataFrame, columns: Sequence[str]) -> pl.Series:
    """Return the first id of each row; one column keeps its type."""
    if len(columns) == 1:
        return table[columns[0]]
    texts = (pl.col(name).cast(pl.String).str.strip_chars().replace("", None) for name in columns)
    return table.select(pl.coalesce(texts)).to_series()


def _name_columns(columns: Sequence[str], where: str) -> str:
    first, *others = map(repr, columns)
    return f"column {first}{f', where that is blank {list_names(others)},' if others else ''} of {where}"


def _choose_columns(table: pl.DataFrame, column: str | None, where: str) -> list[str]:
    """Choose the column with the most ids of works and, if none is named, further ones for rows where it is blank."""
    if column is not None and column not in table.columns:
        raise SchemaMismatchError(
            f"{where} has no column {column!r}; it has {list_names(table.columns)}.{suggest(column, table.columns)}"
        )
    usable = [name for name, kind in table.schema.items() if kind == pl.String() or kind.is_integer()]
    kinds = {name: _kinds_of(table[name], name) for name in usable}
    n_works = {name: int(kinds[name].is_in(OF_WORKS).sum()) for name in usable}
    with_ids = [name for name in usable if n_works[name]]
    if column is not None:
        other = f" {list_names(with_ids)} {'does' if len(with_ids) == 1 else 'do'}." if with_ids else ""
        is_own = column in usable and kinds[column].eq("other").any()
        if is_own and not n_works[column]:
            logger.warning("column %r of %s holds no DOI and no OpenAlex id.%s", column, where, other)
        if is_own or n_works.get(column):
            return [column]
        raise SchemaMismatchError(f"column {column!r} of {where} holds no id of a work.{other} Name another column.")
    if not with_ids:
        named = [name for name in usable if name.strip().lower() in _NAMES and kinds[name].is_not_null().any()]
        if named:
            return named[:1]
        raise SchemaMismatchError(
            f"no column of {where} holds DOIs or OpenAlex ids; it has {list_names(table.columns)}. Name the column of "
            "ids: id_column=..."
        )

    def rank(name: str) -> tuple[int, int]:
        plain = name.strip().lower()
        return -n_works[name], _NAMES.index(plain) if plain in _NAMES else len(_NAMES)

    first, *others = sorted(with_ids, key=rank)
    is_full = not table[first].cast(pl.String).str.strip_chars().replace("", None).null_count()
    return [first] if is_full else [first, *(name for name in others if name.strip().lower() in _NAMES)]


def _kinds_of(values: pl.Series, name: str) -> pl.Series:
    """Return the kind of the first values of a column. Numbers alone are ids only where its name says so."""
    rows = list_ids(values.drop_nulls().head(_LOOKED_AT))
    if name.strip().lower() in _NAMES:
        return rows["kind"]
    is_number = rows["asked"].str.contains(r"^\s*[0-9]+\s*$").fill_null(value=False)
    return rows["kind"].set(is_number, None)


def _finish(values: Iterable[Any], where: str, file: Path | None = None) -> ListedIds:
    """Read the values; refuse a list without works, and say what there is."""
    if isinstance(values, pl.Series) and not (values.dtype == pl.String() or values.dtype.is_integer()):
        values = values.to_list()
    if not isinstance(values, pl.Series):
        values = pl.Series([None if value is None else str(value) for value in values], dtype=pl.String())
    rows = list_ids(values)
    found = dict(rows["kind"].value_counts().iter_rows())
    if not any(kind is not None for kind in found):
        raise EmptyInputError(f"{where} holds no id, needs DOIs or OpenAlex ids of works: {_FORMS}.")
    if found.keys() <= {None, *ENTITIES.values()}:
        kind = max((name for name in found if name is not None), key=lambda name: found[name])
        example = rows.filter(kind=kind)["asked"][0]
        raise ConfigError(
            f"{where} holds no id of a work: {shorten(example)!r} is the id of {kind}. Name works: their ids begin "
            "with W, or are DOIs."
        )
    n = {name: found.pop(name, 0) for name in ("OpenAlex", "DOI", None)}
    others = rows.filter(pl.col("kind").is_in([*found]))["asked"].head(1).to_list()
    logger.info(
        "ids: %s, %s and %s in %s; %s of another form%s, %s blank",
        counted(rows.height, "row"),
        *(counted(n["DOI"], "DOI"), counted(n["OpenAlex"], "OpenAlex id"), where),
        *(f"{sum(found.values()):,}", "".join(f", such as {shorten(one)!r}" for one in others), f"{n[None]:,}"),
    )
    bare = rows.filter(pl.col("asked").str.contains(_NUMBER_ALONE))["asked"]
    if bare.len() and bare.len() == rows["asked"].drop_nulls().len():
        logger.warning(
            "all ids are short numbers, which are taken for OpenAlex ids (W%s). If they are PubMed ids, look up their "
            "DOIs, and list these.",
            bare[0].strip(),
        )
    digest = hash_file(file) if file else hashlib.sha256("\n".join(rows["asked"].fill_null("")).encode()).hexdigest()
    name = {"file": file.name} if file else {}
    return ListedIds(rows, {**name, "sha256": digest, "ids": rows.height})
