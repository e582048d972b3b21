"""Bring the adapter of a checkpoint from a Tinker server onto this machine."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import httpx

from sciscidata.errors import CorruptRecordError, HubError
from sciscidata.storage.decompression import decompress_gzip
from sciscidata.storage.paths import is_plain_name
from sciscirl.errors import SciSciRLError
from sciscirl.runs.folder import ADAPTER_FILES
from sciscirl.runs.server_checks import clear_errors, find_server, is_tinker

if TYPE_CHECKING:
    from tinker_cookbook.checkpoint_utils import CheckpointRecord

_SECONDS: Final = 300.0
_REDIRECTS: Final = 5
_MOST_BYTES: Final = 16 << 30  # of an archive; adapters of the largest models have a few GB
_MOST_TIMES: Final = 16  # weights shrink to a half at best
_SMALL_BYTES: Final = 1 << 20
_TOO_LARGE: Final = f"it unpacks to more than {_MOST_TIMES} times its size"


def download_adapter(record: CheckpointRecord, folder: Path, base_url: str | None = None) -> str:
    """Fill ``folder`` with ``adapter_config.json`` and ``adapter_model.safetensors``; return the path on the server.

    From Tinker, the state of the checkpoint is exported, encrypted, downloaded and the export deleted, as the cookbook
    does it. SDK 0.38 has no request for an archive any more, but servers of one's own (SkyRL) have. They archive only
    what can be sampled from.

    SciSciRLError if the checkpoint lacks that path, the server lacks the checkpoint, or it holds no adapter.
    """
    url = find_server(base_url)
    from_tinker = is_tinker(base_url)
    path = record.state_path if from_tinker else record.sampler_path
    if path is None or "://" not in path:
        kind = "state_path" if from_tinker else "sampler_path"
        raise SciSciRLError(
            f"checkpoint {record.name} has no {kind} on a server, which is what {url} gives out. Choose another step."
        )
    if from_tinker:
        _export(path, folder, base_url)
    else:
        with clear_errors(base_url):
            _download_archive(url, path, folder)
    if missing := [name for name in ADAPTER_FILES if not (folder / name).is_file()]:
        raise SciSciRLError(
            f"what {url} gave out as {path} has no {missing[0]}. Download it again, or choose another step."
        )
    return path


def _export(path: str, folder: Path, base_url: str | None) -> None:
    from tinker_cookbook.exceptions import WeightsDownloadError
    from tinker_cookbook.weights import download

    try:
        download(tinker_path=path, output_dir=str(folder), base_url=base_url)
    except WeightsDownloadError as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise SciSciRLError(
            f"{path} could not be downloaded: {reason}. Check the key and that Tinker still keeps this checkpoint."
        ) from error


def _download_archive(url: str, path: str, folder: Path) -> None:
    model, *_, name = path.removeprefix("tinker://").split("/")  # with sampler_weights between them, or not (SkyRL)
    asked = f"{url}/api/v1/training_runs/{quote(model)}/checkpoints/{quote(name)}/archive"
    key = {"X-API-Key": os.environ.get("TINKER_API_KEY", "")}
    with tempfile.TemporaryFile() as archive, tempfile.TemporaryFile() as unpacked:
        try:
            with _open_answer(asked, key) as answer:
                answer.raise_for_status()
                for part in _read_limited(answer, _MOST_BYTES):
                    archive.write(part)
            left = _MOST_TIMES * archive.tell() + _SMALL_BYTES
            archive.seek(0)
            for part in decompress_gzip(iter(partial(archive.read, _SMALL_BYTES), b"")):
                left -= len(part)
                if left < 0:
                    raise tarfile.ReadError(_TOO_LARGE)
                unpacked.write(part)
            unpacked.seek(0)
            with tarfile.open(fileobj=unpacked, mode="r:") as packed:
                for member in packed:
                    name = member.name.removeprefix("./")
                    if member.issparse():  # its holes take no room in the archive
                        raise tarfile.ReadError(_TOO_LARGE)
                    content = packed.extractfile(member) if member.isfile() and is_plain_name(name) else None
                    if content is None and not member.isdir():
                        raise tarfile.ReadError(f"{name!r} is no file inside a folder")
                    if content is not None and name in ADAPTER_FILES:
                        with (folder / name).open("wb") as out:
                            shutil.copyfileobj(content, out)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = f"it answered {error.response.status_code}" if isinstance(error, httpx.HTTPStatusError) else error
            raise SciSciRLError(
                f"{url} gives out no archive of {path} ({said}). Check TINKER_BASE_URL, that the server keeps this "
                "checkpoint, and that it serves archives as SkyRL does."
            ) from error
        except (tarfile.TarError, CorruptRecordError) as error:
            raise SciSciRLError(f"the archive of {path} from {url} is damaged ({error}). Download it again.") from error


@contextmanager
def _open_answer(url: str, key: Mapping[str, str]) -> Generator[httpx.Response]:
    """Open what lies at an address, or where it leads.

    ``key`` goes to the scheme, host and port of ``url`` alone.
    """
    at = home = httpx.URL(url)
    # A proxy has no way back to this machine.
    with httpx.Client(timeout=_SECONDS, trust_env=home.scheme != "http") as client:
        for _ in range(_REDIRECTS):
            secret = key if (at.scheme, at.netloc) == (home.scheme, home.netloc) else {}
            # Compressed once more, a small answer could be a large one.
            with client.stream("GET", at, headers={"Accept-Encoding": "identity", **secret}) as answer:
                if not answer.has_redirect_location:
                    yield answer
                    return
                at = at.join(answer.headers["Location"])
    raise HubError(f"{home.host} leads to more than {_REDIRECTS} other addresses")


def _read_limited(answer: httpx.Response, most_bytes: int) -> Generator[bytes]:
    """Give a body in pieces; a HubError as soon as it is longer than ``most_bytes``."""
    n_bytes = 0
    for piece in answer.iter_raw():
        n_bytes += len(piece)
        if n_bytes > most_bytes:
            where = f"{answer.url.host}{answer.url.path}"
            raise HubError(f"{where} sends more than the {most_bytes:,} bytes that it may have. Check the address.")
        yield piece
