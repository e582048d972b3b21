"""Read which papers of a release a file lists."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from sciscidata.records.ids import openalex_number
from sciscidata.storage.small_files import decode_text, read_whole
from sciscirl.errors import ReleaseError


def read_ids(path: Path, known: Set[str], release_folder: str | Path) -> set[str]:
    """Read ids, one a line (ReleaseError: the file cannot be read, or one is not among the ``known`` of a release)."""
    try:
        words = decode_text(read_whole(path)).split()
    except (OSError, ValueError) as error:
        raise ReleaseError(f"ids is {path}, which cannot be read: {error}. Give a file with an id a line.") from error
    if not words:
        raise ReleaseError(f"{path} has no ids. Write the ids of papers of the release, one a line.")
    numbers = {word: openalex_number(word, "W") for word in words if word not in known}  # of a URL, in any case
    listed = {word if numbers.get(word) is None else f"W{numbers[word]}" for word in words}
    strange = listed - known
    if strange:
        raise ReleaseError(
            f"of {len(listed):,} ids {path} names {len(strange):,} that {release_folder} does not have, first "
            f"{min(strange)}. Name works of the release, with ids as it has them."
        )
    return listed
