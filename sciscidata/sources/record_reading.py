"""One reading of a list of record files: each work once, and a count of everything that was skipped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sciscidata.errors import CorruptRecordError
from sciscidata.sources.line_reading import DEFAULT_LIMITS, Gap, ReadLimits, count_lines, is_blank
from sciscidata.sources.record_files import printable_name, read_pieces, works_of
from sciscidata.works import PARSER_VERSION, Work

_LOG = logging.getLogger(__name__)
_KEPT_PROBLEMS = 20
_HEAVY_BYTES = 16 << 10  # 16,384 works that are just below it are what records.py holds together


@dataclass(slots=True)
class _FileCounts:
    name: str
    bytes: int
    sha256: str | None
    lines: int = 0
    works: int = 0
    corrupt: int = 0
    duplicate_ids: int = 0
    malformed_references: int = 0
    without_venue: int = 0
    empty_lines: int = 0


@dataclass(slots=True)
class Reading:
    r"""Hands out the works of all files, each id once, and counts what it skips.

    Args:
        files: in the order that decides which of two records with one id counts.
        hashes: the SHA-256 of each, for the report, or None.
        strict: raise at the first corrupt line.
        limits: how long a line may be, and how much of a file may hold no work.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     file = Path(home, "works.jsonl")
        ...     _ = file.write_text('{"id": "W1"}\n{"id": "W1"}\noops')
        ...     reading = Reading([file], [None])
        ...     [work.work_id for work in reading.works()]
        ...     reading.report()["duplicate_ids"], reading.report()["first_corrupt_lines"][0]["line"]
        [1]
        (1, 3)
    """

    files: Sequence[Path]
    hashes: Sequence[str | None]
    strict: bool = False
    limits: ReadLimits = DEFAULT_LIMITS
    counts: list[_FileCounts] = field(default_factory=lambda: [])
    problems: list[dict[str, Any]] = field(default_factory=lambda: [])
    seen: set[int] = field(default_factory=lambda: set())
    data_date: str | None = None
    n_read: int = 0  # bytes of text, decompressed
    heavy: dict[int, int] = field(default_factory=lambda: {})  # bytes of the works that are too large to be many

    def works(self, advance: Callable[[float], None] | None = None) -> Iterator[Work]:
        """Read all files once, in order; ``advance`` is told the bytes read."""
        for file, digest in zip(self.files, self.hashes, strict=True):
            counts = _FileCounts(printable_name(file), file.stat().st_size, digest)
            self.counts.append(counts)
            for line, work in self._numbered_works(file, counts, advance):
                if isinstance(work, CorruptRecordError):
                    self._note(counts, line, work)
                elif self._is_new(counts, work):
                    yield work

    def _numbered_works(
        self, file: Path, counts: _FileCounts, advance: Callable[[float], None] | None
    ) -> Iterator[tuple[int, Work | CorruptRecordError]]:
        gap = Gap(self.limits)
        try:
            for line, piece in read_pieces(file, advance, self.limits, gap):
                if isinstance(piece, CorruptRecordError):
                    counts.lines += 1
                    yield line, piece
                    gap.add(0, 1)
                    continue
                n_lines = count_lines(piece)
                counts.lines += n_lines
                if is_blank(piece):
                    counts.empty_lines += n_lines
                    gap.add(len(piece) + 1)
                    continue
                self.n_read += len(piece)
                has_work, n_lines = False, 1
                for work in works_of(piece):
                    if isinstance(work, Work):
                        has_work = True
                        gap.clear()
                        if len(piece) > _HEAVY_BYTES and (n_bytes := _text_bytes(work)) > _HEAVY_BYTES:
                            self.heavy[work.work_id] = n_bytes
                    yield line, work
                    if not isinstance(work, Work):
                        gap.add(0, 1)
                        n_lines = 0
                if not has_work:
                    gap.add(len(piece), n_lines)
        except CorruptRecordError as damage:
            yield counts.lines + 1, damage

    def _is_new(self, counts: _FileCounts, work: Work) -> bool:
        if work.work_id in self.seen:
            counts.duplicate_ids += 1
            return False
        self.seen.add(work.work_id)
        counts.works += 1
        counts.malformed_references += work.malformed_references
        counts.without_venue += work.source_id is None
        if work.changed_on:
            self.data_date = max(self.data_date or "", work.changed_on)
        return True

    def _note(self, counts: _FileCounts, line: int, error: CorruptRecordError) -> None:
        counts.corrupt += 1
        if self.strict:
            msg = (
                f"{counts.name}, line {line}: {error}. Mend the file or get it again, "
                "or read without strict, which skips and counts what is corrupt."
            )
            raise CorruptRecordError(msg) from error
        if len(self.problems) < _KEPT_PROBLEMS:
            self.problems.append({"file": counts.name, "line": line, "reason": str(error)})

    def report(self) -> dict[str, Any]:
        """Sum up the reading so far, in JSON types, with the files' base names."""
        names = ("lines", "works", "corrupt", "duplicate_ids", "malformed_references", "without_venue", "empty_lines")
        return {
            "kind": "records",
            "strict": self.strict,
            "parser_version": PARSER_VERSION,
            **{name: sum(getattr(counts, name) for counts in self.counts) for name in names},
            "data_date": self.data_date,
            "inputs": [asdict(counts) for counts in self.counts],
            "first_corrupt_lines": self.problems,
        }


def log_skipped(report: Mapping[str, Any]) -> None:
    """Warn of what a report of Reading says was skipped, and where; silent if nothing was."""
    skipped = {name: report[name] for name in ("corrupt", "duplicate_ids", "malformed_references")}
    if any(skipped.values()):
        _LOG.warning("records: skipped %s", ", ".join(f"{n:,} {name}" for name, n in skipped.items() if n))
    for problem in report["first_corrupt_lines"]:
        _LOG.warning("%(file)s, line %(line)d: %(reason)s", problem)


def _text_bytes(work: Work) -> int:
    texts = (work.title, work.abstract_index, work.source_name, work.doi, *work.concepts)
    return sum(len(text if text.isascii() else text.encode()) for text in texts if text) + 8 * len(work.references)
