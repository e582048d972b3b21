"""Read the column of a label of one's own from a file beside the works, or from the source."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from sciscidata.errors import InputNotFoundError, SchemaMismatchError, WorkIdError
from sciscidata.options.did_you_mean import suggest
from sciscidata.own_label import OwnLabel, check_classes
from sciscidata.records.ids import MISSING, number_ids, without_missing
from sciscidata.sources.kinds import NO_FILES, LabelFiles
from sciscidata.sources.labelled import name_texts
from sciscidata.sources.record_files import printable_name
from sciscidata.sources.tables.files import TableFile
from sciscidata.storage import expand_home
from sciscidata.terminal.messages import counted, list_names

logger = logging.getLogger(__name__)

_SHOWN: Final = 100  # characters of a text
_IDS: Final = ("work_id", "openalex_id", "id")


def find_label_files(label: OwnLabel, of_source: LabelFiles, there: Sequence[str]) -> LabelFiles:
    """Name the files that hold the label's column; none if it is in ``there``, the columns of works and scores."""
    if label.column is None:
        return NO_FILES
    if label.file is not None:
        path = Path(expand_home(str(label.file)))
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            raise InputNotFoundError(f"OwnLabel.file {str(label.file)!r} {what}. Give a file of ids and classes.")
        return LabelFiles([path], (label.id,) if label.id else _IDS)
    return NO_FILES if label.column in there else of_source


def read_label_files(label: OwnLabel, where: LabelFiles) -> pl.DataFrame:
    """Read ``work_id`` and the label from files, of works that have a label."""
    column = label.column or label.name
    n_missing, tables = 0, list[pl.DataFrame]()
    for path in where.files:
        table = TableFile(path)
        at = next((name for name in where.ids if name in table.columns), None)
        texts = where.find_texts(table.columns)
        for name, needed in (
            (at or texts, " or ".join(where.ids)),
            (column if column in table.columns else None, column),
        ):
            if not name:
                raise SchemaMismatchError(
                    f"{printable_name(path)} has no column {needed}; it has {list_names(table.columns)}. Name it: "
                    f"OwnLabel.{'column' if needed == column else 'id'}.{suggest(needed, table.columns)}"
                )
        for batch in table.read([*([at] if at else texts.values()), column]):
            values, n = without_missing(batch[column], [word for word in MISSING if word not in label.classes])
            n_missing += 0 if label.classes else n
            tables.append(
                pl.DataFrame({"work_id": number_ids(batch[at] if at else name_texts(batch, texts)), label.name: values})
            )
    if n_missing:
        words = counted(n_missing, "value is NA", "values are NA")
        logger.warning(
            "%s: %s, None or the like, so no class. If it is one, name all: OwnLabel.classes", label.values, words
        )
    rows = pl.concat(tables, how="vertical_relaxed") if tables else pl.DataFrame(schema={"work_id": pl.Int64})
    labelled = check_classes(rows, label).unique(maintain_order=True)
    twice = labelled.filter(pl.col("work_id").is_duplicated())["work_id"]
    if len(twice):
        raise WorkIdError(
            f"{counted(twice.n_unique(), 'work has', 'works have')} two classes in "
            f"{', '.join(map(printable_name, where.files))}, for example {_show_work(where, twice.min())!r}. "
            "Keep one row for each work."
        )
    return labelled


def _show_work(where: LabelFiles, number: object) -> str:
    """Return the id or the text of a work, as it stands in the files."""
    for table in map(TableFile, where.files):
        at = next((name for name in where.ids if name in table.columns), None)
        texts = where.find_texts(table.columns)
        for batch in table.read([at] if at else [*texts.values()]):
            ids = number_ids(batch[at] if at else name_texts(batch, texts))
            for row in batch.filter(ids == number).head(1).rows():
                return " ".join(str(value) for value in row if value is not None)[:_SHOWN]
    return str(number)
