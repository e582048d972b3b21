"""Seal a file: write its own SHA-256 into it, so that a change of any bit shows."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

_FIELD: Final = "sealed_sha256"
_DIGITS: Final = 64
_ZEROS: Final = "0" * _DIGITS
#: The field, as JSON, that a file has to hold before ``seal`` fills it in.
BLANK_SEAL: Final = {_FIELD: _ZEROS}
_SEAL: Final = re.compile(rb'"' + _FIELD.encode() + rb'": ?"([0-9a-f]{64})"')
_PARQUET_END: Final = b"PAR1"
_LONGEST: Final = 1 << 30  # most bytes to search: a damaged footer may claim any length


def seal(path: Path) -> None:
    """Fill in the seal, BLANK_SEAL in JSON or Parquet metadata: the SHA-256 of the file with zeros in its place."""
    with path.open("r+b") as file:
        _seal(file)


def _seal(file: IO[bytes]) -> None:
    at = _find_seal(file)
    if at is None:
        raise ValueError("no room for one seal")
    digest = _hash_blanked(file, at)
    file.seek(at)
    file.write(digest.encode())


def is_sealed(path: Path) -> bool:
    """Whether a file is unchanged since it was sealed. Reads all of it."""
    with path.open("rb") as file:
        return _is_sealed(file)


def _is_sealed(file: IO[bytes]) -> bool:
    at = _find_seal(file)
    if at is None:
        return False
    file.seek(at)
    stated = file.read(_DIGITS).decode()
    return _hash_blanked(file, at) == stated


def seal_json(facts: Mapping[str, Any], *, end: str = "\n", **options: Any) -> bytes:  # noqa: ANN401 (of json.dumps)
    """Return facts as sealed JSON, about to be written; the seal is the last of them."""
    file = io.BytesIO((json.dumps({**facts, **BLANK_SEAL}, **options) + end).encode())
    _seal(file)
    return file.getvalue()


def is_sealed_text(content: bytes) -> bool:
    """Whether the content of a sealed file is unchanged."""
    return _is_sealed(io.BytesIO(content))


def _find_seal(file: IO[bytes]) -> int | None:
    """Return where the 64 digits begin; None without a seal or with several. Of Parquet only the footer counts."""
    size = file.seek(0, 2)
    start = 0
    if size >= 8:
        file.seek(size - 8)
        tail = file.read(8)
        if tail[4:] == _PARQUET_END:
            start = max(size - 8 - int.from_bytes(tail[:4], "little"), 0)
    if size - start > _LONGEST:
        return None
    file.seek(start)
    seals = list(_SEAL.finditer(file.read()))
    return start + seals[0].start(1) if len(seals) == 1 else None


def _hash_blanked(file: IO[bytes], at: int) -> str:
    """Hash a file as if the seal were zeros."""
    digest = hashlib.sha256()
    file.seek(0)
    left = at
    while left > 0 and (block := file.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    digest.update(_ZEROS.encode())
    file.seek(at + _DIGITS)
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()
