"""The source "labelled": rows of a release in any number, with their scores and labels, as ``export`` writes them.

There are no citations, so nothing is scored. Labels are compared with the scores, and works are drawn.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata._support.short_repr import html_repr, short_repr
from sciscidata._support.validate import check_fields
from sciscidata.errors import (
    ConfigError,
    CorruptRecordError,
    EmptyInputError,
    LabelMismatchError,
    SchemaMismatchError,
    WorkIdError,
)
from sciscidata.label_thresholds import (
    VOCABULARIES,
    LabelThresholds,
    compute_disruption_labels,
    compute_novelty_labels,
)
from sciscidata.records.ids import (
    MISSING,
    ORIGINAL_ID,
    bare_dois,
    number_ids,
    plain_ids,
    refuse_shared_numbers,
    without_missing,
)
from sciscidata.records.read_lines import DEFAULT_LIMITS, is_blank
from sciscidata.release.export import LINES
from sciscidata.release.manifest import NOVELTY_COLUMNS
from sciscidata.sampling.draw_before_texts import STRUCTURE
from sciscidata.sampling.eligibility import EligibilityConfig
from sciscidata.schemas import ATYPICALITY, EXAMPLE, WORKS
from sciscidata.sources.record_files import find_record_files, printable_name, read_pieces, state_files
from sciscidata.storage import cached_folder, expand_home
from sciscidata.storage.parquet import CHECKED, is_parquet

logger = logging.getLogger(__name__)

_BATCH_ROWS: Final = 8_192
_ROWS: Final = "rows.parquet"
_READER_VERSION: Final = 3  # grows when the same files give other rows
_SHOWN: Final = 3
_NEEDED: Final = ("openalex_id", "publication_year", "cd_index")
#: Columns beyond those of a release, read where a file has them: filters need them.
_OF_FILTERS: Final = {
    **{name: WORKS[name] for name in ("language", "work_type", "is_retracted", "doi", "source_id", "source_name")},
    **{name: STRUCTURE[name] for name in ("n_references", "n_citers")},
}
_COLUMNS: Final = pl.Schema({**EXAMPLE, **_OF_FILTERS})


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledConfig:
    """Files of labelled works, to draw a release from.

    Attributes:
        inputs: files, patterns, or folders of exports: JSON lines (.gz, .zst too) or Parquet, with the fields of a
            release.
        labels: ``"check"``: stop where a label does not follow from its scores under LabelThresholds. ``"recompute"``:
            take the labels that follow. ``"trust"``: take the labels of the files as they are.
        missing: words that stand for a missing value, wherever they are all of a text.

    Raises:
        ConfigError: on construction, if a value does not fit its type.

    Example:
        >>> LabelledConfig(inputs=("labelled",)).labels
        'check'
    """

    inputs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, title="FILE")]
    labels: Literal["check", "trust", "recompute"] = "check"
    missing: tuple[str, ...] = MISSING

    __repr__ = short_repr
    _repr_html_ = html_repr

    def __post_init__(self) -> None:
        check_fields(self)


class LabelledRows(NamedTuple):
    """The rows of all files, lazy: ``work_id`` and _COLUMNS, null where a file has none.

    ``columns`` are those that at least one file has; ``report`` says in JSON types what was read.
    """

    rows: pl.LazyFrame
    columns: frozenset[str]
    report: dict[str, Any]


def read_labelled_files(
    config: LabelledConfig, cache_dir: Path, advance: Callable[[float], None] | None = None
) -> LabelledRows:
    """Read the files once into one Parquet file of the cache, in bounded memory, or use again what a run made of them.

    ``advance`` gets the bytes read. A CorruptRecordError names the first line that is no row, a WorkIdError a work
    without an id or two with one, a SchemaMismatchError a column that is missing or mistyped.
    """
    files = find_labelled_files(config.inputs)
    inputs = state_files(files)
    key = hashlib.sha256(json.dumps([_READER_VERSION, inputs, config.missing]).encode()).hexdigest()
    folder = cached_folder(
        cache_dir / f"labelled-{key[:16]}", lambda new: _write_rows(files, config.missing, new, advance)
    )
    found = json.loads((folder / "columns.json").read_text("utf-8"))
    if n := found["missing_values"]:
        logger.warning("labelled files: %s values are NA or another word for a missing value (now null)", f"{n:,}")
    rows = pl.scan_parquet(folder / _ROWS, glob=False)
    report = {"rows": found["rows"], "inputs": inputs} | ({"missing_values": n} if n else {})
    if config.missing != MISSING:
        report["missing"] = [*config.missing]
    return LabelledRows(rows, frozenset(found["columns"]), report)


def find_labelled_files(inputs: Sequence[str]) -> list[Path]:
    """List the files of the inputs, as ``find_record_files`` does; the folder of an export stands for its lines."""
    exports = [Path(expand_home(given)) / LINES for given in inputs]
    return find_record_files(
        tuple(str(lines) if lines.is_file() else given for lines, given in zip(exports, inputs, strict=True))
    )


def judge_labels(rows: pl.LazyFrame, labels: str, thresholds: LabelThresholds) -> tuple[pl.LazyFrame, dict[str, int]]:
    """Return the rows with the labels that ``LabelledConfig.labels`` asks for, and count those that contradict scores.

    A LabelMismatchError is for ``"check"``: it counts and shows what differs. Uzzi's rule labels by z, which the rows
    lack: of its labels only their presence is checked.

    Example:
        >>> row = {"work_id": 7, "cd_index": 0.5, "disruption_label": "neutral"} | dict.fromkeys(NOVELTY_COLUMNS)
        >>> rows = pl.LazyFrame([row], schema={"work_id": pl.Int64, **EXAMPLE})
        >>> judge_labels(rows, "recompute", LabelThresholds())[0].collect()["disruption_label"].to_list()
        ['disruptive']
        >>> judge_labels(rows, "check", LabelThresholds())
        Traceback (most recent call last):
        ...
        sciscidata.errors.LabelMismatchError: the labels of 1 works contradict their scores: 1 disruption_label
        'neutral' should be 'disruptive' (W7). Name the LabelThresholds by which they were made, or set
        LabelledConfig.labels='recompute' (or 'trust', to take them as they are).
    """
    is_uzzi = thresholds.novelty_rule == "uzzi"
    if is_uzzi and labels == "recompute":
        msg = (
            "LabelledConfig.labels is 'recompute', and LabelThresholds.novelty_rule='uzzi' labels by z, which labelled "
            "files do not hold. Set LabelledConfig.labels='check', or LabelThresholds.novelty_rule='margin'."
        )
        raise ConfigError(msg)
    given = {name: f"{name} given" for name in VOCABULARIES}
    expected = compute_disruption_labels(rows.rename(given), thresholds)
    if is_uzzi:
        label, scores = pl.col(given["novelty_label"]), NOVELTY_COLUMNS[:2]
        is_label = label.is_in(VOCABULARIES["novelty_label"])
        stated = pl.when(is_label).then(label).otherwise(pl.lit("a label"))
        is_scored = pl.all_horizontal(pl.col(name).is_not_null() for name in scores)
        expected = expected.with_columns(pl.when(is_scored).then(stated).alias("novelty_label"))
    else:
        expected = compute_novelty_labels(expected, thresholds)
    if labels == "recompute":
        return expected.drop(given.values()), {}
    _check_vocabularies(rows)
    wrong: list[tuple[str, str | None, str | None, int, list[int]]] = []
    for name, theirs in given.items():
        differs = expected.filter(pl.col(name).ne_missing(pl.col(theirs)))
        examples = pl.col("work_id").sort().head(_SHOWN)
        groups = differs.group_by(theirs, name).agg(pl.len(), examples.alias("examples")).sort("len", theirs, name)
        wrong += [(name, *row) for row in groups.collect(engine="streaming").reverse().rows()]
    if wrong and labels == "check":
        shown = "; ".join(
            f"{n:,} {name} {was!r} should be {should!r} ({', '.join(f'W{work}' for work in works)})"
            for name, was, should, n, works in wrong
        )
        msg = (
            f"the labels of {sum(n for *_, n, _ in wrong):,} works contradict their scores: {shown}. Name the "
            "LabelThresholds by which they were made, or set LabelledConfig.labels='recompute' (or 'trust', to take "
            "them as they are)."
        )
        raise LabelMismatchError(msg)
    counts = {name: sum(n for column, *_, n, _ in wrong if column == name) for name in VOCABULARIES}
    return rows, {name: n for name, n in counts.items() if n}


def leave_out_filters(config: EligibilityConfig, columns: frozenset[str]) -> tuple[EligibilityConfig, list[str]]:
    """Switch off the filters whose columns the files lack, and name them.

    Raise ConfigError if one of them differs from its default: somebody asked for it, and it cannot be applied.

    Example:
        >>> kept, left_out = leave_out_filters(EligibilityConfig(), frozenset({"n_references"}))
        >>> kept.min_references, left_out
        (1, ['exclude_retracted', 'languages', 'min_citations'])
    """
    needs: dict[str, tuple[tuple[str, ...], Any]] = {
        "exclude_retracted": (("is_retracted",), False),
        "languages": (("language",), ()),
        "work_types": (("work_type",), ()),
        "fields": (("primary_field",), ()),
        "venues": (("source_id", "source_name"), ()),
        "min_references": (("n_references",), 0),
        "min_citations": (("n_citers",), 0),
    }
    default, off = EligibilityConfig(), dict[str, Any]()
    for name, (any_of, value) in needs.items():
        set_to = getattr(config, name)
        if columns & set(any_of) or set_to == value:
            continue
        if set_to != getattr(default, name):
            msg = (
                f"EligibilityConfig.{name} is {set_to!r}, and the labelled files have no column "
                f"{' or '.join(map(repr, any_of))} to filter by. Add the column, or leave the option out."
            )
            raise ConfigError(msg)
        off[name] = value
    return replace(config, **off), list(off)


def make_structure(rows: pl.LazyFrame, more: Sequence[str] = ()) -> pl.LazyFrame:
    """Return STRUCTURE and ``more`` columns of labelled rows: z is unknown, and so are the counts that files lack."""
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in ATYPICALITY.items() if name not in EXAMPLE]
    known = rows.with_columns(column for column in absent if column.meta.output_name() != "work_id")
    return known.with_columns(pl.col("is_retracted").fill_null(value=False)).select(*STRUCTURE, *more)


def make_works(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return WORKS of labelled rows, with the ids of the files as ``original_id``."""
    absent = [pl.lit(None, WORKS[name]).alias(name) for name in WORKS if name not in _COLUMNS and name != "work_id"]
    filled = pl.col("is_retracted").fill_null(value=False), pl.col("concepts").fill_null([])
    named = pl.col("openalex_id").alias(ORIGINAL_ID)
    return rows.with_columns(*absent, *filled, named).select(*WORKS.names(), ORIGINAL_ID)


def _write_rows(
    files: Sequence[Path], missing: Sequence[str], folder: Path, advance: Callable[[float], None] | None
) -> None:
    n_rows, n_missing, columns, ids = 0, 0, set[str](), list[pl.Series]()
    schema = pl.DataFrame(schema={"work_id": WORKS["work_id"], **_COLUMNS}).to_arrow(
        compat_level=pl.CompatLevel.oldest()
    )
    with pq.ParquetWriter(folder / _ROWS, schema.schema, **CHECKED) as writer:
        for file in files:
            read = _parquet_batches if is_parquet(file) else _json_batches
            for batch, found in read(file, advance):
                columns |= found
                batch, n = _without_missing(batch, missing)
                rows = _numbered(batch, file)
                n_missing += n
                ids.append(rows["work_id"])
                n_rows += rows.height
                writer.write_table(rows.to_arrow(compat_level=pl.CompatLevel.oldest()))
    if not n_rows:
        msg = f"no labelled work in {len(files)} file(s). Check that each line is a row of a release."
        raise EmptyInputError(msg)
    twice = pl.concat(ids).to_frame().filter(pl.col("work_id").is_duplicated())["work_id"]
    if len(twice):
        named = pl.scan_parquet(folder / _ROWS, glob=False).select("work_id", pl.col("openalex_id").alias(ORIGINAL_ID))
        repeated = named.filter(pl.col("work_id").is_in(twice.implode())).collect(engine="streaming")
        refuse_shared_numbers(repeated.sort("work_id", ORIGINAL_ID), "labelled files")
    (folder / "columns.json").write_text(
        json.dumps({"rows": n_rows, "missing_values": n_missing, "columns": sorted(columns)}), "utf-8"
    )


def _without_missing(batch: pl.DataFrame, missing: Sequence[str]) -> tuple[pl.DataFrame, int]:
    """Put null for words of ``missing``, and count them; labels are checked by their own words."""
    texts = {name: without_missing(batch[name], missing) for name in batch.columns if name not in VOCABULARIES}
    rows = batch.with_columns(column for column, _ in texts.values()).with_columns(
        bare_dois(pl.col("doi")).alias("doi")
    )
    return rows, sum(n for _, n in texts.values())


def _numbered(batch: pl.DataFrame, file: Path) -> pl.DataFrame:
    floats = [pl.col(name).fill_nan(None) for name, dtype in EXAMPLE.items() if dtype == pl.Float64()]
    numbers = number_ids(batch["openalex_id"]).alias("work_id"), number_ids(batch["source_id"], "S")
    rows = batch.with_columns(numbers[1]).select(numbers[0], pl.all()).with_columns(floats)
    if n_missing := rows["work_id"].null_count():
        msg = f"labelled input {printable_name(file)}: {n_missing:,} rows have no openalex_id. Give each work an id."
        raise WorkIdError(msg)
    return rows


_TYPES: Final[dict[pl.DataType, Any]] = {
    pl.String(): str,
    pl.Int32(): int,
    pl.Int64(): int,
    pl.Float64(): float,
    pl.Boolean(): bool,
    EXAMPLE["concepts"]: list[str | None],
}
#: One line: the columns, of which only the needed ones must be there. The id of a venue may be text too.
_Row = msgspec.defstruct(
    "_Row",
    [
        ("openalex_id", str),
        *((name, _TYPES[_COLUMNS[name]] | None) for name in _NEEDED if name != "openalex_id"),
        *(
            (name, _TYPES[dtype] | (str if name == "source_id" else None) | None | msgspec.UnsetType, msgspec.UNSET)
            for name, dtype in _COLUMNS.items()
            if name not in _NEEDED
        ),
    ],
    gc=False,
)


def _json_batches(file: Path, advance: Callable[[float], None] | None) -> Iterator[tuple[pl.DataFrame, set[str]]]:
    rows = _decode(file, advance)
    while batch := list(islice(rows, _BATCH_ROWS)):
        values = {name: [getattr(row, name) for row in batch] for name in _COLUMNS}
        found = {name for name, column in values.items() if any(value is not msgspec.UNSET for value in column)}
        kept = {
            name: [None if value is msgspec.UNSET else value for value in column] for name, column in values.items()
        }
        kept["source_id"] = [None if value is None else str(value) for value in kept["source_id"]]
        try:
            yield pl.DataFrame(kept, schema={**_COLUMNS, "source_id": pl.String()}), found
        except (TypeError, OverflowError) as error:
            msg = f"labelled input {printable_name(file)}: a number is too large for its column. {error}"
            raise CorruptRecordError(msg.partition("\n")[0]) from error


def _decode(file: Path, advance: Callable[[float], None] | None) -> Iterator[msgspec.Struct]:
    decoder, line = msgspec.json.Decoder(_Row), 1
    pieces = read_pieces(file, advance, DEFAULT_LIMITS)
    try:
        for number, piece in pieces:
            line = number
            if isinstance(piece, CorruptRecordError):
                raise piece
            if not is_blank(piece):
                yield decoder.decode(piece)
    except (CorruptRecordError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        msg = (
            f"labelled input {printable_name(file)}, line {line:,}: {error}. Each line needs the fields of a release, "
            "as `sciscidata export` writes them."
        )
        raise CorruptRecordError(msg) from error


def _parquet_batches(file: Path, advance: Callable[[float], None] | None) -> Iterator[tuple[pl.DataFrame, set[str]]]:
    try:
        with pq.ParquetFile(file) as read:
            names = set(read.schema_arrow.names)
            missing = [name for name in _NEEDED if name not in names]
            if missing:
                msg = (
                    f"labelled input {printable_name(file)} lacks {', '.join(missing)}; it has "
                    f"{', '.join(read.schema_arrow.names)}. Rename or add them."
                )
                raise SchemaMismatchError(msg)
            there = [name for name in _COLUMNS if name in names]
            size = file.stat().st_size / max(read.metadata.num_rows, 1)
            for part in read.iter_batches(_BATCH_ROWS, columns=there):
                rows = pl.DataFrame(pl.from_arrow(part))
                rows = rows.with_columns(
                    plain_ids(rows[name]) for name in ("openalex_id", "source_id") if name in there
                )
                rows = rows.cast({name: _COLUMNS[name] for name in there if name != "source_id"})
                absent = [pl.lit(None, _COLUMNS[name]).alias(name) for name in _COLUMNS if name not in names]
                if advance is not None:
                    advance(rows.height * size)
                yield rows.with_columns(absent).select(_COLUMNS.names()), set(there)
    except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        msg = f"labelled input {printable_name(file)} cannot be read: {error}. Check it, or write it anew."
        raise SchemaMismatchError(msg) from error


def _check_vocabularies(rows: pl.LazyFrame) -> None:
    for name, words in VOCABULARIES.items():
        strange = rows.filter(~pl.col(name).is_in(words)).select("work_id", name).head(1).collect(engine="streaming")
        if strange.height:
            work_id, label = strange.row(0)
            msg = f"labelled files: {name} of W{work_id} is {label!r}, needs one of {', '.join(words)}, or null."
            raise LabelMismatchError(msg)
