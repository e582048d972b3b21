"""Bring the adapter of a checkpoint from a Tinker server onto this machine."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import httpx

from sciscirl.errors import SciSciRLError
from sciscirl.runs.folder import ADAPTER_FILES
from sciscirl.runs.server_checks import clear_errors, find_server, is_tinker

if TYPE_CHECKING:
    from tinker_cookbook.checkpoint_utils import CheckpointRecord

_SECONDS: Final = 300.0


def download_adapter(record: CheckpointRecord, folder: Path, base_url: str | None = None) -> str:
    """Fill ``folder`` with ``adapter_config.json`` and ``adapter_model.safetensors``; return the path on the server.

    Tinker exports the state of the checkpoint. SDK 0.38 has no request for an archive any more, but servers of one's
    own (SkyRL) have; they archive only what can be sampled from.
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
    asked = httpx.URL(f"{url}/api/v1/training_runs/{quote(model)}/checkpoints/{quote(name)}/archive")
    key = {"X-API-Key": os.environ.get("TINKER_API_KEY", "")}
    try:
        # A proxy has no way back to this machine.
        with httpx.Client(timeout=_SECONDS, trust_env=asked.scheme != "http") as client:
            answer = client.get(asked, headers=key)
            if answer.has_redirect_location:  # the key stays here
                answer = client.get(asked.join(answer.headers["Location"]), follow_redirects=True)
            answer.raise_for_status()
        with gzip.open(io.BytesIO(answer.content)) as unpacked:
            with tarfile.open(fileobj=unpacked, mode="r:") as packed:
                for member in filter(tarfile.TarInfo.isfile, packed):
                    file, kept = packed.extractfile(member), member.name.removeprefix("./")
                    if file is not None and kept in ADAPTER_FILES:
                        (folder / kept).write_bytes(file.read())
            unpacked.read()  # to the end, where the checksum is
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        said = f"it answered {error.response.status_code}" if isinstance(error, httpx.HTTPStatusError) else error
        raise SciSciRLError(
            f"{url} gives out no archive of {path} ({said}). Check TINKER_BASE_URL, that the server keeps this "
            "checkpoint, and that it serves archives as SkyRL does."
        ) from error
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise SciSciRLError(f"the archive of {path} from {url} is damaged ({error}). Download it again.") from error
