"""Turn OpenAlex records into rows of WORKS and their references: the one place where a record becomes a row.

A row is made of columns, which come from one of three readers. ``leaves_of_batch`` takes them from Parquet.
``leaves_of_records`` takes them from records that ``json_record.py`` has read one by one, and defines the result. For
many lines a compiled loop checks the JSON of a block and notes where used values stand. It leaves odd lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import polars as pl
import pyarrow as pa

from sciscidata._kernels.arrays import BoolArray, Float64Array, Int64Array
from sciscidata._kernels.strings import is_text, is_utf8
from sciscidata.errors import CorruptRecordError
from sciscidata.records.abstracts import decode_inverted_indexes, decode_spans
from sciscidata.records.dois import BLANKS, CHANGED_DOIS, read_dois
from sciscidata.records.ids import MISSING, openalex_numbers
from sciscidata.records.json_record import TEXTS, PlainRecord, read_records
from sciscidata.records.plain_text import clean_text
from sciscidata.schemas import CITATIONS, DATES, WORKS

#: Raised by one whenever the same record gives another row, so that rows parsed before are not used again.
PARSER_VERSION: Final = 8
#: What a block of lines ends with for ``rows_of_lines``: a line end, and bytes that wide loads may read.
SPARE: Final = b"\n" + bytes(64)
#: The columns of WORKS, and what a source counts or makes dates and citations of. Texts are not clean yet.
ROWS: Final = pl.Schema(
    WORKS
    | {
        "publication_date": pl.String(),
        "is_xpac": pl.Boolean(),  # in the expansion corpus, which the API leaves out by default
        "changed_on": pl.String(),  # the later of updated_date and created_date, YYYY-MM-DD
        "references": pl.List(pl.Int64()),
        "malformed_references": pl.Int64(),
        "missing_values": pl.Int64(),  # words such as NA, which are null now
        CHANGED_DOIS: pl.Int64(),
    }
)
NO_ROWS: Final = pl.Schema({"row": pl.Int64(), **ROWS}).to_frame()
#: A line, and what is wrong with it.
Problem: TypeAlias = tuple[int, CorruptRecordError]
_MAX_CONCEPTS = 8
#: Words that are no value of these columns; DOIs are in lower case.
_MISSING_OF = dict.fromkeys(("title", "source_name", "language", "work_type"), MISSING) | {
    "doi": tuple(map(str.lower, MISSING))
}
_N_DATES = 3
_MOST_BYTES = 1 << 30  # places are 32 bits
_DATE = "^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_LEAST_ITEM = 24  # bytes of a reference, concept or topic: with the address and a short number it has 26
_OTHER_LEAVES = ("publication_year", "cited_by_count", "is_retracted", "is_xpac", "is_authors_truncated",
                 "primary_location.source", "abstract_inverted_index")  # fmt: skip
_ITEM_LEAVES = ("concepts.[].display_name", "topics.[].display_name", "topics.[].field.display_name",
                "concepts.[].score", "concepts.[].level", "referenced_works.[]")  # fmt: skip
#: Columns of the Parquet edition that are read where Arrow has them: long ones, and lists.
_READ_BY_ARROW = ("referenced_works", "abstract_inverted_index", "authorships", "concepts", "topics")
_TEXT, _WHOLE, _FLAG, _ENTRY = pl.String(), pl.Int64(), pl.Boolean(), "entry"
#: Values of a work, a concept and a topic, with their types.
_OF_WORK: Final = {
    **dict.fromkeys(TEXTS, _TEXT),
    **dict.fromkeys(("publication_year", "cited_by_count"), _WHOLE),
    **dict.fromkeys(("is_retracted", "is_xpac", "is_authors_truncated"), _FLAG),
}
_OF_CONCEPT: Final = {"entry.display_name": _TEXT, "entry.score": pl.Float64(), "entry.level": _WHOLE}
_OF_TOPIC: Final = {"entry.display_name": _TEXT, "entry.field.display_name": _TEXT}
#: The paths of all values that are used, ``[]`` for the entries of a list.
LEAVES: Final = (*TEXTS, *_OTHER_LEAVES, *_ITEM_LEAVES, "authorships.[].author_position")  # of authors, any short one


class Batch(NamedTuple):
    """Works, and lines that are none, in the order of the file."""

    rows: pl.DataFrame  # ROWS, and ``row``, the number of the line
    problems: list[Problem]  # by number of the line
    n_blank: int = 0  # lines

    @property
    def n_records(self) -> int:
        """The works and the lines that are none."""
        return self.rows.height + len(self.problems)

    def moved(self, n: int) -> Batch:
        """Add ``n`` to the number of every line."""
        rows = self.rows.with_columns(pl.col("row") + n)
        return self._replace(rows=rows, problems=[(row + n, error) for row, error in self.problems])


class Leaves(NamedTuple):
    """The used values of works: a Series with a value for each work, or each entry of its list."""

    texts: pl.Series  # String: TEXTS of all works, one after the other; names of concepts, topics; their fields; null
    publication_year: pl.Series
    cited_by_count: pl.Series
    is_retracted: pl.Series
    is_xpac: pl.Series
    n_authors: pl.Series
    has_source: pl.Series
    concept_firsts: Int64Array  # where the concepts of each work begin, with the end
    topic_firsts: Int64Array
    scores: Float64Array  # NaN for none
    levels: Int64Array
    references: pl.Series  # List(Int64)
    malformed_references: pl.Series


def rows_of_leaves(leaves: Leaves) -> pl.DataFrame:
    """Make ROWS without abstracts; ``work_id`` is null where the id has an odd form."""
    n, n_concepts, n_topics = len(leaves.is_xpac), int(leaves.concept_firsts[-1]), int(leaves.topic_firsts[-1])
    first_name = (len(TEXTS) - _N_DATES) * n
    stripped = leaves.texts.slice(_N_DATES * n).str.strip_chars(BLANKS)
    stripped = stripped.to_frame("").select(pl.when(pl.col("").str.len_bytes() > 0).then(""))[""]
    texts = {name: stripped.slice(place * n, n) for place, name in enumerate(TEXTS[_N_DATES:])}
    dates = {name: leaves.texts.slice(place * n, n) for place, name in enumerate(TEXTS[:_N_DATES])}
    concepts, broad = _best_concepts(leaves, stripped.slice(first_name, n_concepts + n_topics))
    has_topic = leaves.topic_firsts[1:] > leaves.topic_firsts[:-1]
    fields = first_name + n_concepts + n_topics + leaves.topic_firsts[:-1]
    dois, is_changed = read_dois(texts["doi"])
    columns = {
        "work_id": openalex_numbers(texts["id"], "W"),
        "year": leaves.publication_year,
        "cited_by_count": leaves.cited_by_count,
        "topic": texts["primary_topic.field.display_name"],
        "first_topic": stripped.gather(np.where(has_topic, fields, len(stripped) - 1)),  # the last text is null
        "broad": broad,
        "source": openalex_numbers(texts["primary_location.source.id"], "S", "V"),
        "source_name": texts["primary_location.source.display_name"],
        "venue": openalex_numbers(texts["host_venue.id"], "S", "V"),
        "venue_name": texts["host_venue.display_name"],
        "doi": dois,
        CHANGED_DOIS: is_changed,
        "has_source": leaves.has_source,
        "is_retracted": leaves.is_retracted,
        "is_xpac": leaves.is_xpac,
        "n_authors": leaves.n_authors,
        "concepts": concepts,
        "references": leaves.references,
        "malformed_references": leaves.malformed_references,
    } | {name: texts[name] for name in ("title", "display_name", "language", "type")}
    return pl.DataFrame(columns | dates).select(_columns()).with_columns(_without_missing())


@cache
def _columns() -> list[pl.Expr]:
    """Make the columns of ROWS of what is given; a number below zero stands for none."""
    year, source, venue = pl.col("year"), pl.col("source"), pl.col("venue")
    of_source = pl.col("has_source") & ((source >= 0) | (venue < 0))
    source_id = pl.when(of_source).then(source).otherwise(venue)
    made = {
        "work_id": pl.when(pl.col("work_id") >= 0).then("work_id"),
        "publication_year": pl.when(year.is_between(1, 9999)).then(year),
        "title": pl.coalesce("title", "display_name"),
        "abstract": pl.lit(None),
        "cited_by_count": pl.when(pl.col("cited_by_count") >= 0).then("cited_by_count"),
        "primary_field": pl.coalesce("topic", "first_topic", "broad"),
        "source_id": pl.when(source_id >= 0).then(source_id),
        "source_name": pl.when(of_source).then("source_name").otherwise("venue_name"),
        "work_type": pl.col("type"),
        "n_authors": pl.when(pl.col("n_authors") > 0).then("n_authors"),
        "missing_values": pl.lit(0),
        "changed_on": pl.max_horizontal(pl.col("updated_date", "created_date").str.extract(_DATE, 0)),
    }
    return [made.get(name, pl.col(name)).cast(dtype).alias(name) for name, dtype in ROWS.items()]


@cache
def _without_missing() -> list[pl.Expr]:
    is_word = {name: pl.col(name).is_in(words) for name, words in _MISSING_OF.items()}
    values = [pl.when(~is_one).then(name).alias(name) for name, is_one in is_word.items()]
    return [*values, pl.sum_horizontal(is_word.values()).cast(pl.Int64).alias("missing_values")]


def _best_concepts(leaves: Leaves, names: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Choose concepts of each row by score, then name, else its first topics; and its best concept of level 0."""
    n, n_topics = len(leaves.is_xpac), int(leaves.topic_firsts[-1])
    counts = [np.diff(firsts) for firsts in (leaves.concept_firsts, leaves.topic_firsts)]
    listed = pl.DataFrame(
        {
            "row": np.concatenate([np.repeat(np.arange(n), count) for count in counts]),
            # Topics get scores below zero, so that they come last, in their order.
            "score": np.append(np.where(leaves.scores > 0, leaves.scores, np.nan), -1.0 - np.arange(n_topics)),
            "is_broad": np.append(leaves.levels == 0, np.zeros(n_topics, np.bool_)),
            "name": names,
        }
    ).filter(pl.col("score").is_finite() & pl.col("name").is_not_null())
    listed = _sorted(listed)
    rows, is_concept = listed["row"].to_numpy(), listed["score"].to_numpy() > 0
    places = np.arange(len(rows))
    first = np.maximum.accumulate(np.where(np.append(True, rows[1:] != rows[:-1])[: len(rows)], places, 0))
    is_chosen = (places - first < _MAX_CONCEPTS) & (is_concept == is_concept[first])
    broad = listed.filter("is_broad").unique("row", keep="first", maintain_order=True)
    ends = np.searchsorted(rows[is_chosen], np.arange(n + 1))
    no_names = pl.repeat(None, n, dtype=pl.String(), eager=True)
    return _lists(listed["name"].filter(pl.Series(is_chosen)), ends), no_names.scatter(broad["row"], broad["name"])


def _sorted(listed: pl.DataFrame) -> pl.DataFrame:
    """Sort by row, score from the highest, and name. Most entries of a row are in this order already."""
    rows = listed["row"].to_numpy()
    if (rows[:-1] > rows[1:]).any():
        listed = listed[np.argsort(rows, kind="stable")]
        rows = listed["row"].to_numpy()
    scores = listed["score"].to_numpy()
    is_before = (rows[:-1] < rows[1:]) | (scores[:-1] > scores[1:])
    if is_before.all():
        return listed
    odd = np.flatnonzero(np.isin(rows, rows[:-1][~is_before]))
    order = np.arange(len(rows))
    sorted_ones = listed[odd].with_columns(at=odd).sort("row", "score", "name", descending=[False, True, False])
    order[odd] = sorted_ones["at"].to_numpy()
    return listed[order]


def _lists(values: pl.Series, ends: Int64Array) -> pl.Series:
    """Make lists of values: of each where it begins in them, with the end of the last."""
    array: Any = values.to_arrow(compat_level=pl.CompatLevel.newest())
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(ends), array))


def leaves_of_records(records: Sequence[PlainRecord]) -> Leaves:
    """Take the leaves of records that were read one by one."""
    concepts = [concept for record in records for concept in record.concepts]
    topics = [topic for record in records for topic in record.topics]
    texts = [record.texts[place] for place in range(len(TEXTS)) for record in records]
    texts += [concept[0] for concept in concepts] + [topic[0] for topic in topics] + [topic[1] for topic in topics]

    def column(name: str, dtype: pl.DataType) -> pl.Series:
        return pl.Series([getattr(record, name) for record in records], dtype=dtype)

    def firsts(name: str) -> Int64Array:
        return np.cumsum([0, *(len(getattr(record, name)) for record in records)])

    cited = pl.Series([cited for record in records for cited in record.references], dtype=pl.String)
    references, malformed = _number_references(cited, firsts("references"))
    return Leaves(
        texts=pl.Series([*texts, None], dtype=pl.String),
        publication_year=column("publication_year", pl.Int64()),
        cited_by_count=column("cited_by_count", pl.Int64()),
        is_retracted=column("is_retracted", pl.Boolean()),
        is_xpac=column("is_xpac", pl.Boolean()),
        n_authors=column("n_authors", pl.Int64()),
        has_source=column("has_source", pl.Boolean()),
        concept_firsts=firsts("concepts"),
        topic_firsts=firsts("topics"),
        scores=np.array([concept[1] for concept in concepts], np.float64),
        levels=np.array([concept[2] for concept in concepts], np.int64),
        references=references,
        malformed_references=malformed,
    )


def rows_of_records(read: Iterable[tuple[int, PlainRecord | CorruptRecordError]]) -> Batch:
    """Make ROWS of records that were read one by one, each with the number of its line."""
    records: list[PlainRecord] = []
    places: list[int] = []
    problems: list[Problem] = []
    for row, record in read:
        if isinstance(record, CorruptRecordError):
            problems.append((row, record))
        else:
            places.append(row)
            records.append(record)
    if not records:  # as in most blocks; making rows of none takes as long as of a hundred
        return Batch(NO_ROWS, problems)
    indexes = pl.Series("abstract", [record.abstract_index for record in records], dtype=pl.String)
    rows = rows_of_leaves(leaves_of_records(records)).with_columns(decode_inverted_indexes(indexes))
    return Batch(rows.insert_column(0, pl.Series("row", places, pl.Int64)), problems)


def merge_rows(rows: pl.DataFrame, is_odd: BoolArray, odd: Batch) -> Batch:
    """Put ``odd``, the works of odd rows, in their places."""
    rows = rows.select(pl.Series("row", np.arange(rows.height)), pl.all())
    if is_odd.any():
        rows = pl.concat([rows.filter(~is_odd), odd.rows]).sort("row", maintain_order=True)
    return odd._replace(rows=rows)


def citations_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Make CITATIONS of ROWS, in the order of the records. Repeats, later years and the work itself stay."""
    lists: Any = rows["references"].to_arrow(compat_level=pl.CompatLevel.newest())
    lengths = lists.value_lengths().fill_null(0).to_numpy()
    citing, cited = rows["work_id"].to_numpy(), lists.flatten().to_numpy()
    return pl.DataFrame({"citing_id": np.repeat(citing, lengths), "cited_id": cited}, schema=CITATIONS)


def works_of(rows: pl.DataFrame, columns: Iterable[str] = tuple(WORKS)) -> pl.DataFrame:
    """Make WORKS, or other ``columns`` of WORKS and DATES, of ROWS, with clean title and abstract."""
    frame = rows.select(list(columns))
    for name in DATES.keys() & frame.columns:
        frame = frame.with_columns(pl.col(name).str.extract(_DATE, 0).str.to_date("%Y-%m-%d", strict=False))
    return frame.with_columns(clean_text(name) for name in ("title", "abstract") if name in frame.columns)


def rows_of_lines(block: bytes, n_rows: int, *, include_xpac: bool = True, pages: bool = False) -> Batch:
    """Read lines as ``read_records`` does; without ``include_xpac``, abstracts of the expansion corpus may be null."""
    if len(block) > _MOST_BYTES or not is_utf8(block):
        return _rows_one_by_one(dict(enumerate(block[: -len(SPARE)].split(b"\n"))), pages=pages)
    from sciscidata.records._scan_kernels import read_whole, scan_lines, take_texts

    data = np.frombuffer(block, np.uint8)
    begins, is_odd, spans, items, firsts = scan_lines(data, n_rows, len(block) // _LEAST_ITEM + 1, _tree())
    other = dict(zip(_OTHER_LEAVES, spans[len(TEXTS) :], strict=True))
    item = dict(zip(_ITEM_LEAVES, items, strict=True))
    concept_firsts, topic_firsts, cited_firsts, author_firsts = firsts
    concept, topic = slice(concept_firsts[-1]), slice(topic_firsts[-1])
    listed = [item[_ITEM_LEAVES[0]][concept], item[_ITEM_LEAVES[1]][topic], item[_ITEM_LEAVES[2]][topic]]
    cited = _texts(*take_texts(data, item["referenced_works.[]"][: cited_firsts[-1]]))
    references, malformed = _number_references(cited, cited_firsts)
    is_given = {name: spans[:, 1] > 0 for name, spans in other.items()}
    is_true = {
        name: is_given[name] & (data[other[name][:, 0]] == ord("t"))
        for name in ("is_retracted", "is_xpac", "is_authors_truncated")
    }
    leaves = Leaves(
        texts=_texts(*take_texts(data, np.concatenate([*spans[: len(TEXTS)], *listed, np.zeros((1, 2), np.int32)]))),
        publication_year=pl.Series(read_whole(data, other["publication_year"])),
        cited_by_count=pl.Series(read_whole(data, other["cited_by_count"])),
        is_retracted=pl.Series(is_true["is_retracted"]),
        is_xpac=pl.Series(is_true["is_xpac"]),
        n_authors=pl.Series(np.where(is_true["is_authors_truncated"], 0, np.diff(author_firsts))),
        has_source=pl.Series(is_given["primary_location.source"]),
        concept_firsts=concept_firsts,
        topic_firsts=topic_firsts,
        scores=_texts(*take_texts(data, item["concepts.[].score"][concept])).cast(pl.Float64).to_numpy(),
        levels=read_whole(data, item["concepts.[].level"][concept]),
        references=references,
        malformed_references=malformed,
    )
    rows = rows_of_leaves(leaves)
    is_odd |= rows["work_id"].is_null().to_numpy()
    starts, stops = other["abstract_inverted_index"].astype(np.int64).T
    unwanted = is_odd if include_xpac else is_odd | leaves.is_xpac.to_numpy()
    rows = rows.with_columns(decode_spans(data, starts, np.where(unwanted, starts, stops)).alias("abstract"))
    odd = {row: block[begins[row] : begins[row + 1] - 1] for row in np.flatnonzero(is_odd).tolist()}
    return merge_rows(rows, is_odd, _rows_one_by_one(odd, pages=pages))


def _rows_one_by_one(lines: dict[int, bytes], *, pages: bool) -> Batch:
    full = {row: line for row, line in lines.items() if line.strip()}
    batch = rows_of_records((row, record) for row, line in full.items() for record in read_records(line, pages=pages))
    return batch._replace(n_blank=len(lines) - len(full))


def leaves_of_batch(batch: Any) -> Leaves | None:  # noqa: ANN401 (of Arrow)
    """Take the leaves from columns of records, as Parquet holds them; None if a column has an unusual type."""
    lists: Any = batch.column("referenced_works")
    if not _is_list(lists.type) or not is_text(lists.type.value_type):
        return None
    (concepts, concept_firsts), (topics, topic_firsts) = _entries(batch, "concepts"), _entries(batch, "topics")
    works: Any = pl.from_arrow(batch.select([name for name in batch.schema.names if name not in _READ_BY_ARROW]))
    of_work, of_concept, of_topic = _leaves(works, _OF_WORK), _leaves(concepts, _OF_CONCEPT), _leaves(topics, _OF_TOPIC)
    if of_work is None or of_concept is None or of_topic is None or topics[_ENTRY].null_count():
        return None
    flags = of_work.select(
        pl.col("is_retracted", "is_xpac", "is_authors_truncated").fill_null(value=False),
        has_source=_find_leaf(works.schema, "primary_location.source")[0].is_not_null(),
    )
    references, malformed = _number_references(lists.flatten(), _firsts(lists))
    n_authors = np.diff(_firsts(_column(batch, "authorships")))
    names = (of_concept["entry.display_name"], of_topic["entry.display_name"], of_topic["entry.field.display_name"])
    return Leaves(
        texts=pl.concat([*(of_work[name] for name in TEXTS), *names, pl.Series([None], dtype=pl.String)]),
        publication_year=of_work["publication_year"],
        cited_by_count=of_work["cited_by_count"],
        is_retracted=flags["is_retracted"],
        is_xpac=flags["is_xpac"],
        n_authors=pl.Series(np.where(flags["is_authors_truncated"].to_numpy(), 0, n_authors)),
        has_source=flags["has_source"],
        concept_firsts=concept_firsts,
        topic_firsts=topic_firsts,
        scores=of_concept["entry.score"].to_numpy(),
        levels=of_concept["entry.level"].fill_null(-1).to_numpy(),
        references=references,
        malformed_references=malformed,
    )


def _number_references(cited: Any, firsts: Int64Array) -> tuple[pl.Series, pl.Series]:  # noqa: ANN401
    """Make a list of numbers of the ids of each row, and count what is no id of a work."""
    numbers = openalex_numbers(cited, "W")
    malformed = np.zeros_like(firsts)
    if numbers.min(initial=0) < 0:
        malformed = np.append(0, np.cumsum(numbers < 0))[firsts]
        numbers = numbers[numbers >= 0]
    return _lists(pl.Series(numbers), firsts - malformed), pl.Series(np.diff(malformed))


def _leaves(frame: pl.DataFrame, kinds: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    """Take values within structs, by their paths; null where there is none, None if one has an unusual type."""
    leaves: list[pl.Expr] = []
    schema = frame.schema
    for path, kind in kinds.items():
        leaf, dtype = _find_leaf(schema, path)
        is_date = path in TEXTS[:_N_DATES] and dtype.is_temporal()
        is_like = (kind == _WHOLE and dtype.is_integer()) or (kind.is_float() and dtype.is_float())
        if not (dtype in (kind, pl.Null()) or is_date or is_like):
            return None
        leaves.append(leaf.cast(kind, strict=False).alias(path))
    return frame.with_columns(leaves)


def _find_leaf(schema: pl.Schema, path: str) -> tuple[pl.Expr, pl.DataType]:
    """Return a value within structs, and its type: Null where there is none, Binary where there is no struct."""
    first, *steps = path.split(".")
    leaf, dtype = (pl.col(first), schema[first]) if first in schema else (pl.lit(None), pl.Null())
    for step in steps:
        fields = {field.name: field.dtype for field in dtype.fields} if isinstance(dtype, pl.Struct) else {}
        if step in fields:
            leaf, dtype = leaf.struct.field(step), cast("pl.DataType", fields[step])
        else:
            leaf, dtype = pl.lit(None), pl.Null() if isinstance(dtype, pl.Struct | pl.Null) else pl.Binary()
    return leaf, dtype


def _entries(batch: Any, name: str) -> tuple[pl.DataFrame, Int64Array]:  # noqa: ANN401
    """Return the entries of a column of lists, and where those of each row begin, with the end."""
    lists = _column(batch, name)
    dtype = pl.Null() if pa.types.is_null(lists.type) else pl.Binary()
    entries: Any = pl.from_arrow(lists.flatten()) if _is_list(lists.type) else pl.Series([], dtype=dtype)
    return pl.DataFrame({_ENTRY: entries}), _firsts(lists)


def _column(batch: Any, name: str) -> Any:  # noqa: ANN401
    return batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows)


def _is_list(kind: Any) -> bool:  # noqa: ANN401
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _firsts(lists: Any) -> Int64Array:  # noqa: ANN401
    lengths = lists.value_lengths().fill_null(0).to_numpy() if _is_list(lists.type) else np.zeros(len(lists), np.int64)
    return np.append(0, np.cumsum(lengths))


def _texts(text: Any, offsets: Int64Array) -> pl.Series:  # noqa: ANN401
    """Hold texts that follow each other as a Series; an empty one is null."""
    valid: Any = pa.array(offsets[1:] > offsets[:-1])
    buffers = [valid.buffers()[1], pa.py_buffer(offsets), pa.py_buffer(text)]
    return pl.Series(pa.LargeStringArray.from_buffers(len(valid), buffers[1], buffers[2], buffers[0]), dtype=pl.String)


class _Tree(NamedTuple):
    """Which values are used, for the compiled loop: a number for each object, list and value on a path."""

    counts: tuple[int, int, int]  # leaves outside of lists, leaves inside, lists
    allowed: Any  # (nodes): kinds of values, as bits
    leaf: Any  # (nodes): number of the leaf, outside or inside of lists; -1 for none
    is_score: Any  # (nodes): a number, perhaps as text
    is_whole: Any  # (nodes): passed over to its end
    list_of: Any  # (nodes): number of the list around it, or -1
    list_of_leaf: Any  # (leaves inside of lists): number of the list
    entry: Any  # (nodes): node of the entries of a list, or -1
    child: Any  # (nodes, 256): node by a hash of its key, or -1
    key_start: Any  # (nodes): where the key begins in keys
    key_length: Any  # (nodes)
    keys: Any  # bytes of all keys


@cache
def _tree() -> _Tree:
    from sciscidata.records import _scan_kernels as kinds

    kind_of = dict.fromkeys((*TEXTS, *_ITEM_LEAVES), kinds.TEXT) | {
        "publication_year": kinds.WHOLE, "cited_by_count": kinds.WHOLE, "is_retracted": kinds.BOOLEAN,
        "is_xpac": kinds.BOOLEAN, "is_authors_truncated": kinds.BOOLEAN, "authorships": kinds.LIST,
        "authorships.[]": -1, "primary_location.source": kinds.OBJECT, "referenced_works": kinds.LIST,
        "abstract_inverted_index": kinds.OBJECT, "concepts.[].level": kinds.WHOLE,
        "concepts.[].score": kinds.WHOLE | kinds.NUMBER | kinds.TEXT, "concepts.[]": kinds.OBJECT,
        "topics.[]": kinds.OBJECT, "concepts": kinds.LIST, "topics": kinds.LIST,
    }  # fmt: skip
    leaves = (*TEXTS, *_OTHER_LEAVES)
    lists = ("concepts", "topics", "referenced_works", "authorships")  # of authors only the number is used
    whole = ("abstract_inverted_index", "authorships.[]")
    paths = [""]
    for path in (*leaves, *_ITEM_LEAVES, "authorships.[]"):
        steps = path.split(".")
        paths += [part for n in range(len(steps)) if (part := ".".join(steps[: n + 1])) not in paths]
    keys = [path.rpartition(".")[2].encode() for path in paths]
    child = np.full((len(paths), 256), -1, np.int8)
    entry = np.full(len(paths), -1, np.int8)
    for node, path in enumerate(paths[1:], 1):
        parent, key = paths.index(path.rpartition(".")[0]), keys[node]
        if key == b"[]":
            entry[parent] = node
            continue
        place = key[0] + 3 * key[-1] + 3 * len(key) & 255
        assert child[parent, place] < 0, path
        child[parent, place] = node
    never_null = ("", "concepts.[]", "topics.[]")
    of_leaf = {path: place for group in (leaves, _ITEM_LEAVES) for place, path in enumerate(group)}
    list_of = [lists.index(top) if "." in path and (top := path.split(".")[0]) in lists else -1 for path in paths]
    kinds_of = [kind_of.get(path, kinds.OBJECT) | (0 if path in never_null else kinds.NULL) for path in paths]
    return _Tree(
        counts=(len(leaves), len(_ITEM_LEAVES), len(lists)),
        allowed=np.array(kinds_of, np.int64),
        leaf=np.array([of_leaf.get(path, -1) for path in paths]),
        is_whole=np.array([path in whole for path in paths]),
        is_score=np.array([path == "concepts.[].score" for path in paths]),
        list_of=np.array(list_of),
        list_of_leaf=np.array([lists.index(path.split(".")[0]) for path in _ITEM_LEAVES]),
        entry=entry,
        child=child,
        key_start=np.cumsum([0, *map(len, keys)])[:-1],
        key_length=np.array(list(map(len, keys))),
        keys=np.frombuffer(b"".join(keys), np.uint8),
    )
