"""The source "labelled": rows of a release in any number, with their scores and labels, as ``export`` writes them.

There are no citations, so nothing is scored. Labels are compared with the scores, and works are drawn. With a label of
one's own, a text is all that a row needs. Score, year and id may be missing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from sciscidata.errors import (
    ConfigError,
    EmptyInputError,
    LabelMismatchError,
    SchemaMismatchError,
    SciSciDataError,
    WorkIdError,
)
from sciscidata.label_thresholds import (
    VOCABULARIES,
    LabelThresholds,
    compute_disruption_labels,
    compute_novelty_labels,
)
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.options.checks import Configuration
from sciscidata.options.did_you_mean import suggest
from sciscidata.records.dois import CHANGED_DOIS, describe_changed, read_dois
from sciscidata.records.ids import MISSING, ORIGINAL_ID, number_ids, plain_ids, refuse_shared_numbers, without_missing
from sciscidata.schemas import ATYPICALITY, EXAMPLE, LINES, MANIFEST, NOVELTY_COLUMNS, SPLITS, WORKS, Labels
from sciscidata.sources.kinds import STRUCTURE, Facts, LabelFiles, Opening, Scores, ToRead, read_late
from sciscidata.sources.record_files import find_files, printable_name, state_files
from sciscidata.sources.tables.columns import complete_works, read_flags
from sciscidata.sources.tables.files import TableFile
from sciscidata.storage import cached_folder, expand_home
from sciscidata.storage.parquet import CHECKED
from sciscidata.terminal.messages import counted, list_names
from sciscidata.terminal.progress import progress_bar

logger = logging.getLogger(__name__)

_ROWS: Final = "rows.parquet"
_READER_VERSION: Final = 5  # grows when the same files give other rows
_SHOWN: Final = 3
_NEEDED: Final = ("openalex_id", "publication_year", "cd_index")
#: Names that a column of ids may have.
IDS: Final = ("openalex_id", "work_id", "id")
#: Columns beyond those of a release, read where a file has them: filters need them.
_OF_FILTERS: Final = {
    **{name: WORKS[name] for name in ("language", "work_type", "is_retracted", "doi", "source_id", "source_name")},
    **{name: STRUCTURE[name] for name in ("n_references", "n_citers")},
}
_COLUMNS: Final = pl.Schema({**EXAMPLE, **_OF_FILTERS})
_FIELDS: Final = ("primary_field", "source_id", "source_name")


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class LabelledConfig(Configuration):
    """Files of labelled works, to draw a release from.

    Attributes:
        inputs: files, patterns, or folders of exports: JSON, CSV or TSV (.gz, .zst too), Parquet or Arrow, with the
            fields of a release. With a label of your own (OwnLabel) a text is enough.
        labels: ``"check"``: stop where a label does not follow from its scores under LabelThresholds. ``"recompute"``:
            take the labels that follow. ``"trust"``: take the labels of the files as they are.
        text: column with the text that a model reads, released as abstract. None: abstract, or text.
        missing: words that stand for a missing value, wherever they are all of a text.

    Raises:
        ConfigError: on construction, if a value does not fit its type.

    Example:
        >>> LabelledConfig(inputs=("labelled",)).labels
        'check'
    """

    inputs: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, title="FILE")]
    labels: Labels = "check"
    text: Annotated[str, msgspec.Meta(min_length=1, title="COLUMN")] | None = None
    missing: tuple[str, ...] = MISSING


class LabelledRows(NamedTuple):
    """The rows of all files: ``work_id`` and _COLUMNS. ``columns`` are those that at least one file has."""

    rows: pl.LazyFrame
    columns: frozenset[str]
    report: dict[str, Any]


def read_labelled_files(
    config: LabelledConfig,
    cache_dir: Path,
    advance: Callable[[float], None] = lambda _: None,
    *,
    is_scored: bool = True,
) -> LabelledRows:
    """Read the files once into one Parquet file of the cache, in bounded memory; a later run uses the same file.

    Without ``is_scored``, a row needs only a title or an abstract. Where files have no ids, the text is the id. If
    texts are equal, only the first row is read. ``advance`` gets bytes.
    """
    files = find_labelled_files(config.inputs)
    inputs = state_files(files)
    made_of = [_READER_VERSION, inputs, config.text, is_scored, config.missing]
    key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()
    read = _Reader(config, advance, is_scored=is_scored)
    folder = cached_folder(cache_dir / f"labelled-{key[:16]}", lambda new: read.write_rows(files, new))
    stated = json.loads((folder / "columns.json").read_text("utf-8"))
    if n := stated["missing_values"]:
        logger.warning("labelled files: %s values are NA or another word for a missing value (now null)", f"{n:,}")
    rows = pl.scan_parquet(folder / _ROWS, glob=False)
    report = {name: stated[name] for name in ("rows", "repeated_texts") if name in stated}
    report |= {"missing_values": n} if n else {}
    if n := stated.get(CHANGED_DOIS):
        logger.warning("labelled files: %s", describe_changed(n))
        report |= {CHANGED_DOIS: n}
    report |= {"missing": [*config.missing]} if config.missing != MISSING else {}
    return LabelledRows(rows, frozenset(stated["columns"]), {**report, "inputs": inputs})


def find_labelled_files(inputs: Sequence[str]) -> list[Path]:
    """List the files of the inputs; the folder of an export stands for its lines, that of a release for its splits."""
    places: list[str] = []
    for path in inputs:
        folder = Path(expand_home(path))
        files = [folder / LINES] if (folder / LINES).is_file() else []
        if (folder / MANIFEST).is_file():
            files = [file for split in SPLITS if (file := folder / f"{split}.parquet").is_file()]
        places += map(str, files) if files else [path]
    return find_files(places, "LabelledConfig.inputs", in_folders=True)


def lack_scores(config: LabelledConfig) -> bool:
    """Say whether the files lack the CD index. A build says what is wrong with files that cannot be read."""
    with suppress(SciSciDataError, OSError, pa.ArrowException, pl.exceptions.PolarsError):
        return all("cd_index" not in TableFile(file).columns for file in find_labelled_files(config.inputs))
    return False


def judge_labels(rows: pl.LazyFrame, labels: str, thresholds: LabelThresholds) -> tuple[pl.LazyFrame, dict[str, int]]:
    """Return rows with the labels that ``LabelledConfig.labels`` asks for, and counts of those that differ."""
    is_uzzi = thresholds.novelty_rule == "uzzi"
    if is_uzzi and labels == "recompute":
        raise ConfigError(
            "LabelledConfig.labels is 'recompute', and LabelThresholds.novelty_rule='uzzi' labels by z, which labelled "
            "files do not hold. Set LabelledConfig.labels='check', or LabelThresholds.novelty_rule='margin'."
        )
    as_stated = {name: f"{name} given" for name in VOCABULARIES}
    expected = compute_disruption_labels(rows.rename(as_stated), thresholds)
    if is_uzzi:
        label, scores = pl.col(as_stated["novelty_label"]), NOVELTY_COLUMNS[:2]
        is_label = label.is_in(VOCABULARIES["novelty_label"])
        stated = pl.when(is_label).then(label).otherwise(pl.lit("a label"))
        is_scored = pl.all_horizontal(pl.col(name).is_not_null() for name in scores)
        expected = expected.with_columns(pl.when(is_scored).then(stated).alias("novelty_label"))
    else:
        expected = compute_novelty_labels(expected, thresholds)
    if labels == "recompute":
        return expected.drop(as_stated.values()), {}
    _check_vocabularies(rows)
    wrong: list[tuple[str, str | None, str | None, int, list[int]]] = []
    for name, theirs in as_stated.items():
        differs = expected.filter(pl.col(name).ne_missing(pl.col(theirs)))
        examples = pl.col("work_id").sort().head(_SHOWN)
        groups = differs.group_by(theirs, name).agg(pl.len(), examples.alias("examples")).sort("len", theirs, name)
        wrong += [(name, *row) for row in groups.collect(engine="streaming").reverse().rows()]
    if wrong and labels == "check":
        shown = "; ".join(
            f"{n:,} {name} {was!r} should be {should!r} ({', '.join(f'W{work}' for work in works)})"
            for name, was, should, n, works in wrong
        )
        raise LabelMismatchError(
            f"the labels of {counted(sum(n for *_, n, _ in wrong), 'work')} contradict the scores: {shown}. Name the "
            "LabelThresholds by which they were made, or set LabelledConfig.labels='recompute' (or 'trust', to take "
            "them as they are)."
        )
    counts = {name: sum(n for column, *_, n, _ in wrong if column == name) for name in VOCABULARIES}
    return rows, {name: n for name, n in counts.items() if n}


def make_structure(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return STRUCTURE, field and venue of labelled rows: z is unknown, and so are the counts that files lack."""
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in ATYPICALITY.items() if name not in EXAMPLE]
    known = rows.with_columns(column for column in absent if column.meta.output_name() != "work_id")
    return known.with_columns(pl.col("is_retracted").fill_null(value=False)).select(*STRUCTURE, *_FIELDS)


def find_texts(names: Collection[str], config: LabelledConfig) -> dict[str, str]:
    """Return where title and abstract stand among the columns of a file."""
    text = config.text or ("abstract" if "abstract" in names else "text")
    return {ours: theirs for ours, theirs in (("title", "title"), ("abstract", text)) if theirs in names}


def name_texts(rows: pl.DataFrame, texts: Mapping[str, str]) -> pl.Series:
    """Make an id of the title and the abstract of each row, which ``find_texts`` has found.

    Example:
        >>> name_texts(pl.DataFrame({"text": ["We sleep.", "We ask."]}), {"abstract": "text"}).to_list()
        ['text-6262036474550269550', 'text-7999729644637252085']
    """
    parts = [
        pl.col(texts[name]).cast(pl.String).fill_null("") if name in texts else pl.lit("")
        for name in ("title", "abstract")
    ]
    whole = rows.select(pl.concat_str(*parts, separator="\n").alias("openalex_id")).to_series()
    return ("text-" + number_ids("text " + whole).cast(pl.String)).alias("openalex_id")


class _Reader:
    """Reads files of labelled works into one file."""

    def __init__(self, config: LabelledConfig, advance: Callable[[float], None], *, is_scored: bool) -> None:
        self._config, self._is_scored, self._advance = config, is_scored, advance

    def write_rows(self, files: Sequence[Path], folder: Path) -> None:
        """Write the rows of all files, and how many there are of which columns."""
        n_rows, n_repeated, tally = 0, 0, Counter[str]()
        columns, ids, texts = set[str](), list[pl.Series](), pl.Series(dtype=pl.Int64())
        schema = pl.DataFrame(schema={"work_id": WORKS["work_id"], **_COLUMNS}).to_arrow(
            compat_level=pl.CompatLevel.oldest()
        )
        with pq.ParquetWriter(folder / _ROWS, schema.schema, **CHECKED) as writer:
            for file in files:
                for batch, present in self._read(file):
                    columns |= present
                    batch = _without_missing(batch, self._config.missing, tally)
                    if "openalex_id" not in present:
                        batch = batch.with_columns(name_texts(batch, {"title": "title", "abstract": "abstract"}))
                    rows = _numbered(batch, file, tally)
                    if "openalex_id" not in present:  # the text is the id
                        n_before = rows.height
                        rows = rows.unique("work_id", keep="first", maintain_order=True)
                        rows = rows.filter(~pl.col("work_id").is_in(texts.implode()))
                        texts, n_repeated = texts.append(rows["work_id"]), n_repeated + n_before - rows.height
                    ids.append(rows["work_id"])
                    n_rows += rows.height
                    writer.write_table(rows.to_arrow(compat_level=pl.CompatLevel.oldest()))
        if not n_rows:
            raise EmptyInputError(
                f"no labelled work in {', '.join(map(printable_name, files))}"
                f"{'' if any(file.stat().st_size for file in files) else ' (empty)'}. Check that each line is a row."
            )
        twice = pl.concat(ids).to_frame().filter(pl.col("work_id").is_duplicated())["work_id"]
        if len(twice):
            named = pl.scan_parquet(folder / _ROWS, glob=False).select(
                "work_id", pl.col("openalex_id").alias(ORIGINAL_ID)
            )
            repeated = named.filter(pl.col("work_id").is_in(twice.implode())).collect(engine="streaming")
            refuse_shared_numbers(repeated.sort("work_id", ORIGINAL_ID), "labelled files")
        facts = {"rows": n_rows, **tally, "columns": sorted(columns)} | (
            {"repeated_texts": n_repeated} if n_repeated else {}
        )
        (folder / "columns.json").write_text(json.dumps(facts), "utf-8")

    def _read(self, file: Path) -> Iterator[tuple[pl.DataFrame, set[str]]]:
        """Yield batches of _COLUMNS, and which of them the file has."""
        try:
            table = TableFile(file)
            at = self._find_columns(file, table.columns)
            there = {*at}
            if table.is_json:  # later rows may have more columns
                at = {name: name for name in _COLUMNS} | at
            for batch in table.read([*at.values()], self._advance):
                rows = _typed(pl.DataFrame([batch[theirs].alias(ours) for ours, theirs in at.items()]))
                yield rows, there | {column.name for column in rows if column.null_count() < rows.height}
        except EmptyInputError:
            return
        except (OSError, pa.ArrowException, pl.exceptions.PolarsError) as error:
            raise SchemaMismatchError(
                f"labelled input {printable_name(file)} cannot be read: {error}. Check it, or write it anew."
            ) from error

    def _find_columns(self, file: Path, names: Sequence[str]) -> dict[str, str]:
        """Return where the columns stand in a file; of JSON, whose rows may differ, those of the first rows."""
        at = {name: name for name in _COLUMNS if name in names} | find_texts(names, self._config)
        if not self._is_scored and (ids := next((name for name in IDS if name in names), None)):
            at["openalex_id"] = ids
        missing = [name for name in _NEEDED if name not in at] if self._is_scored else []
        missing += [text] if (text := self._config.text) and text not in names else []
        there = f"labelled input {printable_name(file)} lacks {', '.join(missing)}; it has {list_names(names)}."
        if missing:
            msg = there + ("".join(suggest(name, names) for name in missing) or " Rename or add them.")
            if self._is_scored and text not in missing:
                msg += " Works with a label of your own need no score: name its column, OwnLabel.column."
            raise SchemaMismatchError(msg)
        if not self._is_scored and not {"title", "abstract"} & {*at}:
            raise SchemaMismatchError(
                f"labelled input {printable_name(file)} has no text for a model to read; it has {list_names(names)}. "
                "Name the column: LabelledConfig.text."
            )
        return at


def _typed(rows: pl.DataFrame) -> pl.DataFrame:
    """Give rows the types of _COLUMNS, null where they lack one; texts may stand for numbers, lists and truths."""
    rows = rows.with_columns(plain_ids(rows[name]) for name in ("openalex_id", "source_id") if name in rows.columns)
    texts = {name for name, dtype in rows.schema.items() if dtype == pl.String()}
    whole = [name for name in texts if _COLUMNS[name].is_integer() and name != "source_id"]
    rows = rows.with_columns(pl.col(whole).str.replace(r"\.0+$", ""))  # pandas writes 13.0 where a value is missing
    if "concepts" in texts:
        rows = rows.with_columns(pl.col("concepts").str.split("|"))
    if "is_retracted" in texts:
        rows = rows.with_columns(read_flags(rows["is_retracted"]))
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in _COLUMNS.items() if name not in rows.columns]
    typed = rows.cast({name: _COLUMNS[name] for name in rows.columns if name != "source_id"})
    return typed.with_columns(absent).select(_COLUMNS.names())


def _without_missing(batch: pl.DataFrame, missing: Sequence[str], tally: Counter[str]) -> pl.DataFrame:
    """Put null for words of ``missing``, and count them; labels are checked by their own words."""
    texts = {name: without_missing(batch[name], missing) for name in batch.columns if name not in VOCABULARIES}
    rows = batch.with_columns(column for column, _ in texts.values())
    dois, is_changed = read_dois(rows["doi"])
    tally.update(missing_values=sum(n for _, n in texts.values()), changed_dois=int(is_changed.sum()))
    return rows.with_columns(dois)


def _numbered(batch: pl.DataFrame, file: Path, tally: Counter[str]) -> pl.DataFrame:
    floats = [pl.col(name).fill_nan(None) for name, dtype in EXAMPLE.items() if dtype == pl.Float64()]
    numbers = number_ids(batch["openalex_id"], tally=tally).alias("work_id"), number_ids(batch["source_id"], "S")
    rows = batch.with_columns(numbers[1]).select(numbers[0], pl.all()).with_columns(floats)
    if n_missing := rows["work_id"].null_count():
        n_rows = counted(n_missing, "row has", "rows have")
        raise WorkIdError(f"labelled input {printable_name(file)}: {n_rows} no openalex_id. Give each work an id.")
    return rows


def _check_vocabularies(rows: pl.LazyFrame) -> None:
    for name, words in VOCABULARIES.items():
        strange = rows.filter(~pl.col(name).is_in(words)).select("work_id", name).head(1).collect(engine="streaming")
        if strange.height:
            work_id, label = strange.row(0)
            raise LabelMismatchError(
                f"labelled files: {name} of W{work_id} is {label!r}, needs one of {', '.join(words)}, or null."
            )


def open_labelled(config: LabelledConfig, opening: Opening) -> Scores:
    """Take scores and labels from the files."""
    files = find_labelled_files(config.inputs)
    with progress_bar("read labelled works", sum(file.stat().st_size for file in files), unit="bytes") as advance:
        rows, columns, report = read_labelled_files(config, opening.cache_dir, advance, is_scored=opening.is_scored)
    if n_repeated := report.get("repeated_texts"):
        texts = counted(n_repeated, "repeated text")
        logger.warning("labelled files: %s; only the first of equal texts is read", texts)
    provenance = {"kind": "labelled", "labels": config.labels, "contradicting": {}, **report, "filters_left_out": []}

    def judged(novelty: NoveltyConfig | None, thresholds: LabelThresholds) -> pl.LazyFrame:
        absent = NOVELTY_COLUMNS if novelty is None else ()
        of_files = rows.with_columns(pl.lit(None, EXAMPLE[name]).alias(name) for name in absent)
        taken, provenance["contradicting"] = judge_labels(of_files, config.labels, thresholds)
        if contradicting := provenance["contradicting"]:
            found = ", ".join(f"{n:,} {name}" for name, n in contradicting.items())
            logger.warning("labels that contradict their scores, taken as they are: %s", found)
        return make_structure(taken)

    named = rows.with_columns(pl.col("openalex_id").alias(ORIGINAL_ID), pl.col("concepts").fill_null([]))
    works = complete_works(named)
    label_files = LabelFiles(files, IDS, partial(find_texts, config=config))
    lacks = dict.fromkeys([name for name in _COLUMNS if name not in columns], "")
    return Scores(judged, Facts(provenance, works, label_files, lacks, files="labelled files"), read_late(works))


def refuse_citations(_: LabelledConfig) -> LabelledConfig:
    """Raise a ConfigError where citations are needed."""
    raise ConfigError(
        "labelled files hold no citations, so they are no corpus. Use them with build, or name another source."
    )


def measure_labelled(config: LabelledConfig) -> ToRead:
    """Say how large the files are."""
    files = find_labelled_files(config.inputs)
    n_bytes = sum(file.stat().st_size for file in files)
    name = f"{counted(len(files), 'file')} of labelled works, {n_bytes:,} bytes"
    return ToRead(name, None, 0, n_bytes, describe_classes=_describe_classes)


def _describe_classes(_: LabelThresholds) -> str:
    return "classes: those of the files, which are read in a build"
