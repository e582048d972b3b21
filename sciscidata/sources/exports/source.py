"""Open exports of Web of Science and Scopus as works and citations."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import polars as pl

from sciscidata.corpus.folder import works_schema
from sciscidata.errors import SchemaMismatchError
from sciscidata.options.checks import Configuration, require_config
from sciscidata.records.ids import ORIGINAL_ID, refuse_shared_numbers
from sciscidata.schemas import CITATIONS, Corpus
from sciscidata.sources.exports.formats import read_export
from sciscidata.sources.exports.references import (
    CitedReferences,
    Form,
    match_references,
    number_references,
    number_works,
    split_references,
)
from sciscidata.sources.kinds import Citations, Opening, ToRead, open_large
from sciscidata.sources.lazy_batches import scan_batches
from sciscidata.sources.parsed_once import make_once, read_batches
from sciscidata.sources.record_files import find_files, printable_name, state_files
from sciscidata.sources.tables.columns import Tally, complete_works, describe_gaps, warn_of_gaps, work_rows
from sciscidata.terminal.messages import counted
from sciscidata.terminal.progress import progress_bar

logger = logging.getLogger(__name__)

_ROWS: Final = 1 << 15
#: A median number of references is implausible that is so many times the file's own, or larger than this.
_TIMES, _MANY = 2, 200
_EXAMPLE, _OPTION = "files=('savedrecs.txt',)", "ExportsConfig.files"
_ROLES: Final = {name: name for name in ("id", "year", "venue", "title", "abstract")} | {"field": "primary_field"}
_CODES: Final = {
    "chinese": "zh", "croatian": "hr", "czech": "cs", "dutch": "nl", "english": "en", "french": "fr", "german": "de",
    "greek": "el", "hungarian": "hu", "italian": "it", "japanese": "ja", "korean": "ko", "persian": "fa",
    "polish": "pl", "portuguese": "pt", "russian": "ru", "spanish": "es", "turkish": "tr", "ukrainian": "uk",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ExportsConfig(Configuration):
    """Files that Web of Science and Scopus export, with cited references.

    Attributes:
        files: exports of Web of Science or Scopus, or patterns of their names: plain or tab-delimited text, CSV, RIS or
            BibTeX.

    Raises:
        ConfigError: on construction, if a value does not fit its type.
    """

    files: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, title="FILE")]


def scan_exports(config: ExportsConfig) -> Corpus:
    r"""Scan exports of Web of Science and Scopus. The first collect of a session reads them all, for both frames.

    A cited reference is the work of the files that has its DOI, or one of its DOIs. Else it is the one with its author,
    year, volume, page and initial of the journal (of Scopus, or its title). Others have an id of their own, the same
    wherever they are equal. The log says which form of references each file has. If a work is there twice, by id or in
    both databases by DOI, the first counts. All records are held in memory, about 20 KB for each.

    Returns:
        WORKS with ``original_id``, in the order of work_id, and CITATIONS. The id is the accession number (WOS:... or
        2-s2.0-...), else the DOI, a key or the title. ``concepts`` are keywords.

    Raises:
        InputNotFoundError: when called; a file is missing.
        EmptyInputError, CorruptRecordError, SchemaMismatchError: at collect; a file holds no record, cannot be read or
            is something else, or no file has references.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> text = "PT J\nAU Poe, EA\nTI {}\nSO MAPS\nPY {}\nVL 7\nBP 1\n{}UT WOS:{}\nER\n\n"
        >>> with TemporaryDirectory() as home:
        ...     file = Path(home, "savedrecs.txt")
        ...     records = [("Dams", 1990, "", "A"), ("Weirs", 2001, "CR POE E, 1990, MAPS, V7, P1\n", "B")]
        ...     _ = file.write_text("".join(text.format(*record) for record in records))
        ...     corpus = scan_exports(ExportsConfig(files=(str(file),)))
        ...     ids = dict(corpus.works.select("work_id", "original_id").collect().rows())
        ...     [(ids[citing], ids[cited]) for citing, cited in corpus.citations.collect().rows()]
        [('WOS:B', 'WOS:A')]
    """
    files = find_files(require_config(config, ExportsConfig, _EXAMPLE).files, _OPTION)

    def scan(name: str, schema: pl.Schema) -> pl.LazyFrame:
        def read(columns: list[str]) -> Iterator[pl.DataFrame]:
            return read_batches(_read_once(files) / f"{name}.parquet", columns, _ROWS)

        return scan_batches(read, schema, "exports")

    facts = {
        "kind": "exports",
        "inputs": [{"name": printable_name(file), "bytes": file.stat().st_size} for file in files],
    }
    return Corpus(scan("works", works_schema("String")), scan("citations", CITATIONS), facts)


def scan_author_names(config: ExportsConfig) -> pl.LazyFrame:
    """Scan who wrote the works of ``scan_exports``: rows of AUTHORS, with text as ``author_id``."""
    files = find_files(require_config(config, ExportsConfig, _EXAMPLE).files, _OPTION)

    def read(columns: list[str]) -> Iterator[pl.DataFrame]:
        return read_batches(_read_once(files) / "authors.parquet", columns, _ROWS)

    return scan_batches(read, pl.Schema({"work_id": pl.Int64(), "author_id": pl.String()}), "authors of exports")


def _read_once(files: list[Path]) -> Path:
    key = ("exports", *((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files))
    return make_once(key, lambda folder: _read(files, folder))


def _read(files: list[Path], folder: Path) -> None:
    """Write works, citations and the counts of what was found."""
    tally = Tally()
    parts: list[tuple[pl.DataFrame, pl.DataFrame]] = []
    authors: list[pl.DataFrame] = []
    without: list[str] = []
    read: list[dict[str, Any]] = []
    n_rows = 0
    with progress_bar("read exports", sum(file.stat().st_size for file in files), unit="bytes") as advance:
        for file in files:
            name, export = printable_name(file), read_export(file)
            rows = export.rows.with_row_index("row", offset=n_rows)
            n_rows += rows.height
            if rows["references"].null_count() == rows.height:
                without.append(name)
            rows = rows.drop_nulls("id").with_columns(pl.col("year").str.extract(r"([0-9]{4})"))
            listed = rows.drop_nulls("references")
            lists = [*map(split_references, listed["references"])]
            read.append({"name": name, "format": export.format, "records": rows.height, **_describe(lists)})
            logger.info("exports: %s", _say(read[-1]))
            _warn_of_implausible(name, lists, listed["n_references"])
            cited = pl.DataFrame(
                {
                    "row": listed["row"],
                    "text": [one.texts for one in lists],
                    "of_wos": [one.form == Form.WOS for one in lists],
                },
                {"row": rows.schema["row"], "text": pl.List(pl.String()), "of_wos": pl.Boolean()},
            ).explode("text")
            works = pl.concat([rows.select("row"), _make_works(rows, tally), number_works(rows)], how="horizontal")
            authors.append(rows.select("row", "authors").drop_nulls())
            parts.append((works, cited.select("row").hstack(number_references(cited))))
            advance(file.stat().st_size)
    if len(without) == len(files):
        raise SchemaMismatchError(
            f"cited references are missing: {counted(n_rows, 'record')} in {counted(len(files), 'file')}. Export again "
            "with the record content 'Full Record and Cited References' (Web of Science), or with References ticked "
            "(Scopus). The library of a reference manager holds none: look its works up in a corpus by DOI "
            "(docs/coming_from.md, BibTeX)."
        )
    if without:
        logger.warning("exports: no record has cited references in %s: export again with them", ", ".join(without))
    named = pl.concat([part for part, _ in parts])
    works = _drop_repeated(named)
    of_row = works.select("row", citing_id="work_id")
    references = pl.concat([part for _, part in parts]).join(of_row, "row")
    citations, counts = match_references(works, references)
    names = pl.concat(authors).with_columns(author_id=pl.col("authors").str.split("\n")).explode("author_id")
    names = names.join(of_row, "row").select(work_id="citing_id", author_id="author_id").unique()
    names.sort("work_id", "author_id").write_parquet(folder / "authors.parquet")
    warn_of_gaps(tally, "exports")
    works = complete_works(works.lazy()).collect().sort("work_id")
    refuse_shared_numbers(works, "exports")
    works.write_parquet(folder / "works.parquet")
    citations.write_parquet(folder / "citations.parquet")
    facts = {"records": n_rows, "without_id": n_rows - named.height, "repeated": named.height - works.height}
    facts |= {"works": works.height, "citations": citations.height}
    facts |= {"files": read, **counts, **describe_gaps(tally)}
    (folder / "counts.json").write_text(json.dumps(facts), "utf-8")


def _describe(lists: list[CitedReferences]) -> dict[str, Any]:
    """Count the references of a file by form, and the pieces that were joined to make them."""
    counts = Counter[str]()
    for one in lists:
        counts[one.form] += len(one.texts)
    return {"references": dict(sorted(counts.items())), "joined": sum(one.n_joined for one in lists)}


def _say(read: dict[str, Any]) -> str:
    forms = "; ".join(f"{n:,} of the form '{form}'" for form, n in read["references"].items()) or "none"
    joined = f", after joining {counted(read['joined'], 'piece')}" if read["joined"] else ""
    return f"{read['name']} is {read['format']}, {counted(read['records'], 'record')}. References: {forms}{joined}"


def _warn_of_implausible(name: str, lists: list[CitedReferences], stated: pl.Series) -> None:
    """Warn if a file seems to have references of a form that is not known."""
    lengths = pl.Series([len(one.texts) for one in lists], dtype=pl.Int64)
    counts = stated.str.extract("([0-9]+)").cast(pl.Int64)
    is_stated = (counts > 0).fill_null(value=False)
    median, own = lengths.filter(is_stated).median(), counts.filter(is_stated).median()
    if isinstance(median, float) and isinstance(own, float):
        is_odd, than = not own / _TIMES <= median <= own * _TIMES, f"the file itself counts {own:g}"
    else:
        median = lengths.median()
        is_odd, than = isinstance(median, float) and median > _MANY, f"more than {_MANY} are unusual"
    if is_odd:
        logger.warning(
            "exports: records of %s have %g references each (median), where %s. They were read as '%s'. Look whether "
            "works outside the files are references, and not parts of such",
            name, median, than, Counter(one.form for one in lists).most_common(1)[0][0],
        )  # fmt: skip


def _make_works(rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Make rows of WORKS of records."""
    first = pl.col("work_type", "language", "primary_field").str.extract(r"^([^;\n]+)").str.strip_chars()
    line = pl.col("title", "abstract", "source_name").str.replace_all(r"\s*\n\s*", " ")
    table = rows.select(
        *("id", "year", "doi", "concepts", "n_authors"), line, first, pl.col("cited_by_count").str.extract("([0-9]+)")
    ).with_columns(
        pl.col("work_type").str.to_lowercase(),
        pl.col("language").str.to_lowercase().replace(_CODES),
        venue=pl.col("source_name").str.to_lowercase(),
        is_retracted=rows["work_type"].str.to_lowercase().str.contains("retracted").cast(pl.String),
    )
    keywords = pl.col("concepts").str.split("\n").list.eval(pl.element().str.strip_chars()).fill_null([])
    made = work_rows(table.drop("concepts"), _ROLES, tally)
    return made.with_columns(pl.col(ORIGINAL_ID).cast(pl.String)).hstack(table.select(keywords))


def _drop_repeated(works: pl.DataFrame) -> pl.DataFrame:
    """Keep the first row of each work: of an id, and of a DOI that two databases have."""
    works = works.unique(ORIGINAL_ID, keep="first", maintain_order=True)
    database = pl.col(ORIGINAL_ID).str.extract(r"^(\w+[:-])")
    is_again = pl.col("doi").is_not_null() & database.ne_missing(database.first().over("doi"))
    return works.filter(~is_again)


def open_exports(config: ExportsConfig, _: Opening) -> Citations:
    """Read the files, once in a session."""
    corpus, files = scan_exports(config), find_files(config.files, _OPTION)
    counts = json.loads((_read_once(files) / "counts.json").read_text("utf-8"))
    facts = {**corpus.provenance, "inputs": state_files(files), **counts}
    return open_large(Corpus(corpus.works, corpus.citations, facts))


def measure_exports(config: ExportsConfig) -> ToRead:
    """Say how large the files are."""
    files = find_files(config.files, _OPTION)
    n_bytes = sum(file.stat().st_size for file in files)
    return ToRead(f"{counted(len(files), 'export')}, {n_bytes:,} bytes", parsed_bytes=n_bytes)
