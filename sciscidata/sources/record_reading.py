"""One reading of a list of record files: each work once, and a count of everything that was skipped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sciscidata.errors import CorruptRecordError
from sciscidata.sources.record_files import printable_name, read_pieces, works_of
from sciscidata.works import PARSER_VERSION, Work

_LOG = logging.getLogger(__name__)
_KEPT_PROBLEMS = 20


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
    counts: list[_FileCounts] = field(default_factory=lambda: [])
    problems: list[dict[str, Any]] = field(default_factory=lambda: [])
    seen: set[int] = field(default_factory=lambda: set())
    data_date: str | None = None

    def works(self, advance: Callable[[float], None] | None = None) -> Iterator[Work]:
        """Read all files once, in order; ``advance`` is told the bytes read."""
        for file, digest in zip(self.files, self.hashes, strict=True):
            counts = _FileCounts(printable_name(file), file.stat().st_size, digest)
            self.counts.append(counts)
            for line, work in _numbered_works(file, counts, advance):
                if isinstance(work, CorruptRecordError):
                    self._note(counts, line, work)
                elif self._is_new(counts, work):
                    yield work

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

    def log(self) -> None:
        """Warn of what was skipped, and where; silent if nothing was."""
        report = self.report()
        skipped = {name: report[name] for name in ("corrupt", "duplicate_ids", "malformed_references")}
        if any(skipped.values()):
            _LOG.warning("records: skipped %s", ", ".join(f"{n:,} {name}" for name, n in skipped.items() if n))
        for problem in self.problems:
            _LOG.warning("%(file)s, line %(line)d: %(reason)s", problem)


def _numbered_works(
    file: Path, counts: _FileCounts, advance: Callable[[float], None] | None
) -> Iterator[tuple[int, Work | CorruptRecordError]]:
    try:
        for line, piece in read_pieces(file, advance):
            counts.lines += 1 + piece.count(b"\n")
            if piece.strip():
                yield from ((line, work) for work in works_of(piece))
            else:
                counts.empty_lines += 1
    except CorruptRecordError as damage:
        yield counts.lines + 1, damage
