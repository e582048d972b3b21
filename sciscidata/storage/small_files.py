"""Read small files whole, as bytes or JSON (settings, manifests, reports); refuse pipes, devices and large files."""

from __future__ import annotations

import errno
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sciscidata.errors import ConfigError

#: What is wrong with a text in another encoding, by the name of it.
OTHER_ENCODING: Final = "{0} text, needs UTF-8: iconv -f {0} -t UTF-8"
#: Most levels of lists and objects. Python reads a thousand, and then fails in the next function that follows them.
MAX_DEPTH: Final = 100


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 (JSON)
    r"""Read JSON from an untrusted source; a ValueError if it is none, too deep, or half of a surrogate pair.

    Example:
        >>> for text in ("[" * 100_000, b"\xe9", '"\\ud800"', ""):
        ...     try:
        ...         parse_json(text)
        ...     except ValueError as error:
        ...         print(error)
        nested too deep
        not UTF-8
        half of a surrogate pair
        Expecting value: line 1 column 1 (char 0)
    """
    problem = ""
    try:
        whole = text if isinstance(text, str) else decode_text(text, "utf-8-sig")
        value = json.loads(whole)
        if r"\u" in whole:
            json.dumps(value, ensure_ascii=False).encode()
        if not _is_flat(value):
            raise RecursionError
    except RecursionError:
        problem = "nested too deep"
    except UnicodeDecodeError:
        problem = "not UTF-8"
    except UnicodeEncodeError:
        problem = "half of a surrogate pair"
    else:
        return value
    raise ValueError(problem)


def render_json(content: Mapping[str, Any], what: str) -> bytes:
    """Write an object as JSON: UTF-8, sorted keys, two spaces; a ConfigError names ``what`` is not JSON."""
    try:
        return f"{json.dumps(content, ensure_ascii=False, allow_nan=False, sort_keys=True, indent=2)}\n".encode()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the {what} cannot be written as JSON: {error}. Give JSON types only, undefined as None."
        ) from error


def name_encoding(beginning: bytes) -> str:
    r"""Name the encoding of a text by its first bytes (mark or zeros) if it is UTF-16 or UTF-32; else "".

    Example:
        >>> name_encoding("id,year".encode("utf-16")), name_encoding(b"id,year")
        ('UTF-16', '')
    """
    is_zero = [not byte for byte in beginning[:256]]  # in UTF-16 half of every sign of ASCII is zero
    if beginning[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff") or (len(is_zero) > 3 and sum(is_zero[:4]) == 3):
        return "UTF-32"
    is_little = beginning[:2] == b"\xff\xfe" and any(is_zero[3::2])
    is_big = beginning[:2] == b"\xfe\xff" and any(is_zero[2::2])
    return "UTF-16" if is_little or is_big or is_zero[:4] in ([False, True] * 2, [True, False] * 2) else ""


def decode_text(content: bytes, encoding: str = "utf-8") -> str:
    """Decode a text; a ValueError names another encoding, and is a UnicodeDecodeError where there is no name for it."""
    if other := name_encoding(content):
        raise ValueError(OTHER_ENCODING.format(other))
    return content.decode(encoding)


def _is_flat(value: Any) -> bool:  # noqa: ANN401 (JSON)
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [one for one in level if isinstance(one, list | dict)]
        level = [part for one in inner for part in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return True
    return False


#: Most bytes of a file of settings, which has a few KB.
SETTINGS_BYTES: Final = 1 << 20
#: Most bytes of a manifest or a report; a hundred times the manifest of the whole snapshot.
REPORT_BYTES: Final = 64 << 20


def read_whole(path: Path, most_bytes: int = REPORT_BYTES) -> bytes:
    """Read a file of at most ``most_bytes`` bytes; the ``strerror`` of an OSError says what else it is."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening says of a folder what it is
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)  # whatever size it claims to have
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes, too many for this kind of file", str(path))
    return content


def read_json(path: Path, most_bytes: int = REPORT_BYTES) -> Any:  # noqa: ANN401
    """Read a JSON file; errors are as in ``read_whole`` (OSError) and ``parse_json`` (ValueError)."""
    return parse_json(read_whole(path, most_bytes))


def is_special(path: Path) -> bool:
    """Whether a path is a pipe, a socket or a device, or a link to one."""
    return path.exists() and not path.is_file() and not path.is_dir()
