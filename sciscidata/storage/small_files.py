"""Small files that are read whole: settings, manifests, reports. What is no file, or is too large, is not read."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path
from typing import Any, Final

# ---------- JSON that somebody else may have written: a value, or one kind of error.


#: Of lists and objects in each other. Python reads a thousand, and fails where the next function goes through them.
MAX_DEPTH: Final = 100


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 (JSON)
    r"""Read one JSON value.

    Raises:
        ValueError: the text is no JSON, not UTF-8, nested deeper than MAX_DEPTH, or holds half of a surrogate
            pair, which no file could be written with.

    Example:
        >>> parse_json(b'{"step": 50}')
        {'step': 50}
        >>> for text in ("[" * 100_000, b"\xff\xfe", '"\\ud800"', ""):
        ...     try:
        ...         parse_json(text)
        ...     except ValueError as error:
        ...         print(error)
        nested too deep
        not UTF-8
        half of a surrogate pair
        Expecting value: line 1 column 1 (char 0)
    """
    try:
        whole = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(whole)
        is_text = r"\u" not in whole or _is_text(value)
        is_flat = _is_flat(value)
    except RecursionError:
        msg = "nested too deep"
        raise ValueError(msg) from None
    except UnicodeDecodeError:
        msg = "not UTF-8"
        raise ValueError(msg) from None
    if not is_text:
        msg = "half of a surrogate pair"
        raise ValueError(msg)
    if not is_flat:
        msg = "nested too deep"
        raise ValueError(msg)
    return value


def _is_flat(value: Any) -> bool:  # noqa: ANN401 (JSON)
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [one for one in level if isinstance(one, list | dict)]
        level = [part for one in inner for part in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return True
    return False


def _is_text(value: Any) -> bool:  # noqa: ANN401 (JSON)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


#: A file of settings has a few KB.
SETTINGS_BYTES: Final = 1 << 20
#: A manifest or a report; one line of a manifest has 200 bytes, so that this is a hundred times the whole snapshot's.
REPORT_BYTES: Final = 64 << 20


def read_whole(path: Path, most_bytes: int = REPORT_BYTES) -> bytes:
    """Read a file that has at most so many bytes.

    Raises:
        OSError: it cannot be read, is a pipe or a device, or is larger. ``strerror`` says which.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     file = Path(home, "settings.toml")
        ...     _ = file.write_text("seed = 0")
        ...     try:
        ...         read_whole(file), read_whole(file, 5)
        ...     except OSError as error:
        ...         print(error.strerror)
        it has more than 5 bytes, which no such file has
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening says of a folder what it is
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)  # whatever size it claims to have
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes, which no such file has", str(path))
    return content


def read_json(path: Path, most_bytes: int = REPORT_BYTES) -> Any:  # noqa: ANN401
    """Read a JSON file that has at most so many bytes.

    Raises:
        OSError: as ``read_whole``.
        ValueError: as ``parse_json``.
    """
    return parse_json(read_whole(path, most_bytes))


def is_special(path: Path) -> bool:
    """Whether something is there that is neither a file nor a folder: a pipe, a socket, a device, or a link to one.

    Example:
        >>> is_special(Path("no-such-file"))
        False
    """
    return path.exists() and not path.is_file() and not path.is_dir()
