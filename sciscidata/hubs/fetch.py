"""Fetch a release from the Hugging Face Hub: verified on arrival, and in its place whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import platformdirs

from sciscidata.errors import InputNotFoundError, UnsafeNameError, VerificationError
from sciscidata.hubs.hugging_face import Hub, find_access, read_hub_name
from sciscidata.release.manifest import DOCUMENTS, MANIFEST, describe_file, of_a_stranger
from sciscidata.release.read import read_manifest
from sciscidata.release.release import check_target
from sciscidata.release.verify import verify_release
from sciscidata.storage import note_finished, path_inside, real_path, resumable_folder
from sciscidata.storage.small_files import REPORT_BYTES

logger = logging.getLogger(__name__)

_CACHE: Final = "releases"
_DOCUMENT_BYTES: Final = 4 << 20  # of a card, which a hub or an author may have changed


def fetch(source: str, *, out: str | Path | None = None) -> Path:
    """Fetch a release and verify it. A run that was stopped goes on with the files that arrived.

    Only the files that the manifest lists are fetched, and the documents. A token for a private one comes from
    HF_TOKEN, another server from HF_ENDPOINT.

    Args:
        source: hf:OWNER/NAME, or hf:OWNER/NAME@REVISION with a branch, a tag or a commit. Without a commit, the same
            address may give another release tomorrow: a warning names the commit.
        out: the folder of the release; None: one of the user's cache, by name and commit, which is used again.
    """
    name, revision = read_hub_name(source)
    is_pinned = read_hub_name(source).is_pinned
    cached = platformdirs.user_cache_path("sciscidata") / _CACHE
    if out is None and is_pinned and (folder := cached / _folder_name(name, str(revision))).is_dir():
        return verify_release(folder).folder
    hub = Hub(find_access(needed=False))
    commit, listed = hub.find_commit(name, revision)
    if not is_pinned:
        logger.warning("hf:%s is at commit %s now. Pin it: hf:%s@%s", name, commit, name, commit)
    target = real_path(cached / _folder_name(name, commit) if out is None else Path(out).expanduser())
    if out is None and target.is_dir() and any(target.iterdir()):
        return verify_release(target).folder
    check_target(target, can_replace=False)
    if MANIFEST not in listed:
        raise InputNotFoundError(
            f"hf:{name} at {commit} is not a release: it has no {MANIFEST}. Check the name and the revision."
        )
    address = hub.address(name, commit)
    with resumable_folder(target) as unfinished, _errors_about(unfinished, address):
        hub.download(f"{address}/{MANIFEST}", unfinished / MANIFEST, REPORT_BYTES)
        files = read_manifest(unfinished)["files"]
        wanted = dict.fromkeys([*files, *(extra for extra in DOCUMENTS if extra in listed)])
        paths = {file: path_inside(unfinished, file, stated_by=f"{address}/{MANIFEST}") for file in wanted}
        for path in unfinished.rglob("*"):
            if path.is_file() and path not in (unfinished / MANIFEST, *paths.values()):
                path.unlink()  # of another commit, which was fetched before
        for number, (file, path) in enumerate(paths.items(), 1):
            if file not in listed:
                raise VerificationError(
                    f"hf:{name} at {commit} lacks {file}, which its {MANIFEST} lists. Ask its owner."
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            is_document = file in DOCUMENTS  # which may have been changed
            if not path.is_file() or describe_file(path) != files[file]:
                with of_a_stranger(unfinished):
                    most_bytes = _DOCUMENT_BYTES if is_document else int(files[file]["bytes"])
                path.unlink(missing_ok=True)
                hub.download(f"{address}/{quote(file)}", path, most_bytes)
                arrived = describe_file(path)
                if not is_document and arrived != files[file]:
                    raise VerificationError(
                        f"{file} arrived damaged: its size or SHA-256 is not the one that {MANIFEST} states. Fetch it "
                        "again."
                    )
                if not is_document:
                    note_finished(unfinished, file, arrived["sha256"])
            logger.info("file %d of %d: %s", number, len(paths), file)
        verify_release(unfinished)
    return target


@contextmanager
def _errors_about(folder: Path, address: str) -> Generator[None]:
    """Name the address of what was fetched, instead of the folder that it lies in until it is whole."""
    try:
        yield
    except (InputNotFoundError, UnsafeNameError, VerificationError) as error:
        raise type(error)(str(error).replace(str(folder), address)) from error


def _folder_name(name: str, commit: str) -> str:
    return f"hf-{name.replace('/', '-')}-{commit}"
