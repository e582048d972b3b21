"""Record files that were parsed for a corpus, kept by their content: the next ingest parses only new and changed ones.

They lie in ``record-files`` of the cache folder: about half as many bytes as the compressed records. Authors lie
beside them, and take another 5%. What belongs to a file that has changed or is gone is removed by the next
ingest that finds no other one at work.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow.parquet as pq

from sciscidata.corpus.folder import WRITTEN_BY
from sciscidata.errors import CorruptRecordError
from sciscidata.records.authors_table import AUTHORS
from sciscidata.records.dois import CHANGED_DOIS
from sciscidata.records.work_columns import NO_ROWS, PARSER_VERSION, ROWS, Batch, works_of
from sciscidata.schemas import DATES, WORKS
from sciscidata.sources.record_files import ReadSoFar, describe_read, in_batches, read_json_batches
from sciscidata.sources.snapshot.authors import read_authors
from sciscidata.sources.snapshot.layout import Part
from sciscidata.storage import cached_folder, hash_file, is_sealed_text, is_whole_folder, real_path, seal_json
from sciscidata.storage.atomic import atomic_file
from sciscidata.storage.parquet import CHECKED, read_parquet, to_arrow, write_parquet
from sciscidata.storage.small_files import read_whole
from sciscidata.storage.use import Use

_LOG = logging.getLogger(__name__)
#: Raised by one whenever the same rows are kept in another form.
_FORMAT_VERSION: Final = 2
_INDEX: Final = "files.json"  # by path: bytes, time and SHA-256, so that a file is hashed once
_ROWS: Final = "rows.parquet"
_FACTS: Final = "facts.json"
_WORKS: Final = "works.parquet"  # beside rows of authors
_KEPT_PROBLEMS: Final = 20
#: WORKS and DATES as they are written, and what is counted or made of each work.
KEPT: Final = pl.Schema(
    WORKS
    | DATES
    | {
        name: ROWS[name]
        for name in ("changed_on", "references", "malformed_references", "missing_values", CHANGED_DOIS)
    }
)


def up_to_damage(file: Path, advance: Callable[[float], None] | None, so_far: ReadSoFar) -> Iterator[Batch]:
    """Read a file up to where it is damaged, which counts as a corrupt line."""
    try:
        yield from read_json_batches(file, advance, so_far)
    except CorruptRecordError as damage:
        yield Batch(NO_ROWS, [(so_far.n_lines + 1, damage)])


def authors_to_damage(file: Path, seen: set[int], columns: Collection[str]) -> Iterator[tuple[pl.DataFrame, list[int]]]:
    """Read the authors of a file up to where it is damaged, which was reported when works were read."""
    with suppress(CorruptRecordError):
        yield from read_authors(Part(file.name, str(file), "jsonl"), seen, columns)


@dataclass(slots=True)
class ParsedFiles:
    """The parsed content of some files.

    Attributes:
        home: where it is kept.
        files: in their order.
        sums: their SHA-256.
    """

    home: Path
    files: Sequence[Path]
    sums: list[str] = field(init=False)
    _compared: int = field(init=False, default=0)
    _index: dict[str, dict[str, Any]] = field(init=False)
    _begun: float = field(init=False, default_factory=time.monotonic)
    _use: Use = field(init=False)

    def __post_init__(self) -> None:
        self._use = Use(self.home)
        known, states = _read_index(self.home), [_state(file) for file in self.files]

        def find(file: Path, state: Mapping[str, Any]) -> tuple[str, bool]:
            before = known.get(str(real_path(file)), {})
            if state.items() <= before.items():
                return str(before["sha256"]), False
            return hash_file(file), before.get("bytes") == state["bytes"]

        with ThreadPoolExecutor(4) as pool:
            found = [*pool.map(find, self.files, states)]
        self.sums = [digest for digest, _ in found]
        self._compared = sum(is_compared for _, is_compared in found)
        here = {str(real_path(file)): state | {"sha256": digest}
                for file, state, digest in zip(self.files, states, self.sums, strict=True)}  # fmt: skip
        self._index = known | here

    def parse(self, advance: Callable[[float], None]) -> None:
        """Parse the files that are not kept, and log how many these were; forget what no file has any more."""
        sizes = [file.stat().st_size for file in self.files]
        whole = [is_whole_folder(self._place(digest)) for digest in self.sums]
        for file, digest, size, is_whole in zip(self.files, self.sums, sizes, whole, strict=True):
            if is_whole:
                advance(size)
                continue
            cached_folder(self._place(digest), lambda new, file=file: self._write(file, new, advance))
        self._tidy()
        read = [size for size, is_whole in zip(sizes, whole, strict=True) if not is_whole]
        told = describe_read("file", read, sizes, time.monotonic() - self._begun)
        if self._compared:
            told += f"; {self._compared:,} compared by SHA-256, since their time is another"
        _LOG.info("records: %s", told)

    def read(self, place: int, so_far: ReadSoFar) -> Iterator[Batch]:
        """Read what was parsed of one file: lines that are no work, the first twenty, then KEPT in its order."""
        folder = self._place(self.sums[place])
        facts = json.loads((folder / _FACTS).read_text("utf-8"))
        so_far.n_lines, so_far.n_blank, so_far.n_corrupt = facts["lines"], facts["blank"], facts["corrupt"]
        yield Batch(KEPT.to_frame(), [(line, CorruptRecordError(reason)) for line, reason in facts["problems"]])
        with pq.ParquetFile(folder / _ROWS, page_checksum_verification=True) as file:
            for group in range(file.metadata.num_row_groups):
                rows: Any = pl.from_arrow(file.read_row_group(group))
                yield Batch(rows, [])

    def read_authors(
        self, place: int, seen: set[int], columns: Collection[str]
    ) -> Iterator[tuple[pl.DataFrame, list[int]]]:
        """Read the authors of one file as ``read_authors`` of it does, which parses the file unless they are kept."""
        file, folder = self.files[place], self._place(self.sums[place])
        folder = folder.with_name(f"{folder.name}-{WRITTEN_BY}")
        if not is_whole_folder(folder):
            cached_folder(folder, lambda new: self._write_authors(file, new))
        works = read_parquet(folder / _WORKS)
        is_new = pl.Series([work not in seen for work in works["work_id"]], dtype=pl.Boolean())
        seen.update(works["work_id"])
        yield AUTHORS.to_frame(), works.filter(is_new & works["is_cut"])["work_id"].to_list()
        repeated = works["work_id"].filter(~is_new).implode()
        needed = [name for name in AUTHORS if name in {"work_id", "author_id", *columns}]
        with pq.ParquetFile(folder / _ROWS, page_checksum_verification=True) as kept:
            for group in range(kept.metadata.num_row_groups):
                rows: Any = pl.from_arrow(kept.read_row_group(group, needed))
                yield rows.filter(~pl.col("work_id").is_in(repeated)), []

    def _write_authors(self, file: Path, folder: Path) -> None:
        """Write AUTHORS of a file as if it were the only one, and all its works: some have no author."""
        works, all_cut = set[int](), set[int]()
        with pq.ParquetWriter(folder / _ROWS, to_arrow(AUTHORS.to_frame()).schema, **CHECKED) as writer:
            for rows, cut in authors_to_damage(file, works, AUTHORS):
                all_cut.update(cut)
                if rows.height:
                    writer.write_table(to_arrow(rows))
        ids = pl.Series("work_id", sorted(works), pl.Int64())
        is_cut = pl.Series("is_cut", [work in all_cut for work in ids], pl.Boolean())
        write_parquet(pl.DataFrame([ids, is_cut]), folder / _WORKS)
        self._check_unchanged(file)

    def _place(self, digest: str) -> Path:
        key = hashlib.sha256(json.dumps([digest, _FORMAT_VERSION, PARSER_VERSION]).encode()).hexdigest()
        return self.home / f"parsed-{key[:32]}"

    def _write(self, file: Path, folder: Path, advance: Callable[[float], None]) -> None:
        so_far, problems, n_corrupt = ReadSoFar(), list[tuple[int, str]](), 0
        with pq.ParquetWriter(folder / _ROWS, to_arrow(KEPT.to_frame()).schema, **CHECKED) as writer:
            for rows, wrong, _ in in_batches(up_to_damage(file, advance, so_far), so_far):
                n_corrupt += len(wrong)
                problems += [(line, str(error)) for line, error in wrong[: _KEPT_PROBLEMS - len(problems)]]
                if rows.height:
                    parsed = works_of(rows, [*WORKS, *DATES])
                    writer.write_table(
                        to_arrow(
                            parsed.hstack(rows.select(KEPT.keys() - WORKS.keys() - DATES.keys())).select(KEPT.names())
                        )
                    )
        facts = {"lines": so_far.n_lines, "blank": so_far.n_blank, "corrupt": n_corrupt, "problems": problems}
        (folder / _FACTS).write_text(json.dumps(facts, ensure_ascii=False) + "\n", "utf-8")
        self._check_unchanged(file)

    def _check_unchanged(self, file: Path) -> None:
        if not _is_as(file, self._index[str(real_path(file))]):
            raise CorruptRecordError(f"{file} changed while it was read. Run again when it is whole.")

    def _tidy(self) -> None:
        """Write the index of all files that are as they were, and remove what none of them needs."""
        index = _read_index(self.home) | self._index  # another run may have written meanwhile
        index = {path: facts for path, facts in index.items() if _is_as(Path(path), facts)}
        with atomic_file(self.home / _INDEX) as new:
            new.write_bytes(seal_json({"files": index}, ensure_ascii=False))
        needed = {self._place(facts["sha256"]).name for facts in index.values()}
        self._use.remove_others("parsed-*", needed | {f"{name}-{WRITTEN_BY}" for name in needed})


def _state(file: Path) -> dict[str, Any]:
    state = file.stat()
    return {"bytes": state.st_size, "modified_ns": state.st_mtime_ns}


def _is_as(file: Path, facts: Mapping[str, Any]) -> bool:
    try:
        return _state(file).items() <= facts.items()
    except OSError:
        return False


def _read_index(home: Path) -> dict[str, dict[str, Any]]:
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        content = read_whole(home / _INDEX)
        if is_sealed_text(content):
            return dict(json.loads(content)["files"])
    return {}
