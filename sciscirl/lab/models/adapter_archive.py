"""Download the archive of an adapter from a server, and take the two files of the adapter out of it, within bounds."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

import httpx

from sciscidata.errors import CorruptRecordError
from sciscidata.remote.answers import AnswerError, ask, read_body
from sciscidata.storage.decompression import Chunks, decompress_gzip
from sciscidata.storage.paths import is_plain_name
from sciscidata.storage.small_files import SETTINGS_BYTES
from sciscirl.envs.models import ADAPTER_FILES
from sciscirl.errors import SciSciRLError

_PATIENCE_S: Final = 300.0  # until a server has packed an archive
_MOST_PACKED: Final = 64 << 30  # more than any adapter, so that a server which never ends does not fill a disk
#: Trained numbers hardly shrink; a fresh adapter has one half that is all zeros.
_MOST_TIMES: Final = 20
_ALWAYS_ALLOWED: Final = 16 << 20
_MOST_MEMBERS: Final = 1_000


def download_archive(url: str, path: str, folder: Path) -> None:
    """Fill ``folder`` with the files of an adapter (ADAPTER_FILES), as far as the archive of ``path`` has them."""
    model, *_, name = path.removeprefix("tinker://").split("/")  # with sampler_weights between them, or not (SkyRL)
    asked = f"{url}/api/v1/training_runs/{quote(model)}/checkpoints/{quote(name)}/archive"
    key = {"X-API-Key": os.environ.get("TINKER_API_KEY", "")}
    try:
        with tempfile.TemporaryFile() as packed:
            # A proxy has no way back to this machine.
            with ask(asked, key=key, trust_env=not asked.startswith("http:"), patience_s=_PATIENCE_S) as answer:
                answer.raise_for_status()
                packed.writelines(read_body(answer, _MOST_PACKED))
            _unpack(packed, folder)
    except (httpx.HTTPError, httpx.InvalidURL, AnswerError) as error:
        said = f"it answered {error.response.status_code}" if isinstance(error, httpx.HTTPStatusError) else error
        said = f"the answer {error}" if isinstance(error, AnswerError) else said
        raise SciSciRLError(
            f"{url} gives out no archive of {path} ({said}). Check TINKER_BASE_URL, that the server keeps this "
            "checkpoint, and that it serves archives as SkyRL does."
        ) from error
    except _NoAdapterError as error:
        raise SciSciRLError(f"the archive of {path} from {url} is not that of an adapter: {error}.") from error
    except (tarfile.TarError, CorruptRecordError) as error:
        raise SciSciRLError(f"the archive of {path} from {url} is damaged ({error}). Download it again.") from error


class _NoAdapterError(Exception):
    """An archive holds what no adapter needs."""


def _unpack(packed: IO[bytes], folder: Path) -> None:
    most_bytes = max(_MOST_TIMES * packed.tell(), _ALWAYS_ALLOWED)
    packed.seek(0)
    pieces = _bound(decompress_gzip(iter(partial(packed.read, 1 << 20), b"")), most_bytes)
    with tarfile.open(fileobj=Chunks(pieces), mode="r|") as archive:
        for number, member in enumerate(archive, 1):
            name = member.name.removeprefix("./")
            is_root = member.isdir() and name in ("", ".")  # as tar -C FOLDER . writes it
            # A sparse member is a few bytes that state any size.
            is_whole = member.isdir() or (member.isfile() and not member.issparse())
            if not is_root and not (is_whole and is_plain_name(name)):
                raise _NoAdapterError(f"it holds {member.name!r}, which is a link, a device, or no name inside it")
            if number > _MOST_MEMBERS:
                raise _NoAdapterError(f"it holds more than {_MOST_MEMBERS:,} files")
            if name == ADAPTER_FILES[0] and member.size > SETTINGS_BYTES:
                raise _NoAdapterError(f"{name} has {member.size:,} bytes, may have {SETTINGS_BYTES:,}")
            content = archive.extractfile(member)
            if name in ADAPTER_FILES and content is not None:
                with (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
    for _ in pieces:  # to the end, where the checksum is
        pass


def _bound(pieces: Iterator[bytes], most_bytes: int) -> Iterator[bytes]:
    n_bytes = 0
    for piece in pieces:
        n_bytes += len(piece)
        if n_bytes > most_bytes:
            raise _NoAdapterError(
                f"it unpacks to more than {most_bytes:,} bytes, {_MOST_TIMES} times its size, as no weights do"
            )
        yield piece
