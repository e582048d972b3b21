"""Fetch a release from the Hugging Face Hub: verified on arrival, and in its place whole or not at all."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import platformdirs

from sciscidata.errors import InputNotFoundError, ReleaseExistsError, VerificationError
from sciscidata.hubs.hugging_face import Hub, find_hub, read_hub_name
from sciscidata.release.manifest import DOCUMENTS, MANIFEST, describe_file, read_manifest
from sciscidata.release.verify import verify_release
from sciscidata.storage import note_finished, path_inside, real_path
from sciscidata.storage.cache import resumable_folder
from sciscidata.storage.paths import remove_folder

logger = logging.getLogger(__name__)

_CACHE: Final = "releases"


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
    hub = Hub(find_hub(needed=False))
    commit, listed = hub.find_commit(name, revision)
    if not is_pinned:
        logger.warning("hf:%s is at commit %s now. Pin it: hf:%s@%s", name, commit, name, commit)
    target = real_path(cached / _folder_name(name, commit) if out is None else Path(out).expanduser())
    if target.exists() and any(target.iterdir()):
        if out is None:
            return verify_release(target).folder
        raise ReleaseExistsError(f"{target} already exists. Choose another folder, or remove it yourself.")
    if MANIFEST not in listed:
        raise InputNotFoundError(
            f"hf:{name} at {commit} is not a release: it has no {MANIFEST}. Check the name and the revision."
        )
    with resumable_folder(target) as unfinished:
        hub.download(name, MANIFEST, commit, unfinished)
        manifest = read_manifest(unfinished)
        wanted = dict.fromkeys([*manifest["files"], *(extra for extra in DOCUMENTS if extra in listed)])
        stated_by = f"{MANIFEST} of hf:{name}"
        paths = {file: path_inside(unfinished, file, stated_by=stated_by) for file in wanted}
        for number, (file, path) in enumerate(paths.items(), 1):
            stated = None if file in DOCUMENTS else manifest["files"][file]
            if stated is None or not path.is_file() or describe_file(path) != stated:  # perhaps of another commit
                if file not in listed:
                    raise VerificationError(
                        f"hf:{name} at {commit} lacks {file}, which its {MANIFEST} lists. Ask its owner."
                    )
                path.unlink(missing_ok=True)
                hub.download(name, file, commit, unfinished)
                if stated is not None:  # documents may have been changed
                    _check_arrived(path, stated)
                    note_finished(unfinished, file, stated["sha256"])
            logger.info("file %d of %d: %s", number, len(paths), file)
        remove_folder(unfinished / ".cache")  # notes of huggingface_hub
        verify_release(unfinished)
    return target


def _check_arrived(path: Path, stated: object) -> None:
    """Refuse a damaged file by its name, before the others are fetched."""
    if describe_file(path) != stated:
        raise VerificationError(
            f"{path.name} arrived damaged: its size or SHA-256 is not the one that {MANIFEST} states. Fetch it again."
        )


def _folder_name(name: str, commit: str) -> str:
    return f"hf-{name.replace('/', '-')}-{commit}"
