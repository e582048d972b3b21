"""Fetch a release from the Hugging Face Hub: verified on arrival, and in its place whole or not at all."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Final

import platformdirs

from sciscidata.errors import InputNotFoundError, ReleaseExistsError, VerificationError
from sciscidata.hubs.hugging_face import Hub, find_access, read_hub_name
from sciscidata.release.manifest import DOCUMENTS, MANIFEST, describe_file, read_manifest
from sciscidata.release.verify import verify_release
from sciscidata.storage import atomic_folder, path_inside, real_path

logger = logging.getLogger(__name__)

_CACHE: Final = "releases"


def fetch(source: str, *, out: str | Path | None = None) -> Path:
    """Fetch a release and verify it. A run that was stopped goes on with the files that arrived.

    Only the files that the manifest lists are fetched, and the documents, by way of the cache of huggingface_hub. A
    token for a private one comes from HF_TOKEN, another server from HF_ENDPOINT.

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
    if target.exists() and any(target.iterdir()):
        if out is None:
            return verify_release(target).folder
        raise ReleaseExistsError(f"{target} already exists. Choose another folder, or remove it yourself.")
    if MANIFEST not in listed:
        raise InputNotFoundError(
            f"hf:{name} at {commit} is not a release: it has no {MANIFEST}. Check the name and the revision."
        )
    with atomic_folder(target) as unfinished:
        shutil.copyfile(hub.download(name, MANIFEST, commit, anew=True), unfinished / MANIFEST)
        files = read_manifest(unfinished)["files"]
        stated_by = f"{MANIFEST} of hf:{name}"
        wanted = dict.fromkeys([*files, *(extra for extra in DOCUMENTS if extra in listed)])
        paths = {file: path_inside(unfinished, file, stated_by=stated_by) for file in wanted}
        for number, (file, path) in enumerate(paths.items(), 1):
            if file not in listed:
                raise VerificationError(
                    f"hf:{name} at {commit} lacks {file}, which its {MANIFEST} lists. Ask its owner."
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            is_document = file in DOCUMENTS  # which may have been changed
            shutil.copyfile(hub.download(name, file, commit, anew=is_document), path)
            if not is_document and describe_file(path) != files[file]:  # damaged in the cache, perhaps
                shutil.copyfile(hub.download(name, file, commit, anew=True), path)
                if describe_file(path) != files[file]:
                    raise VerificationError(
                        f"{file} arrived damaged: its size or SHA-256 is not the one that {MANIFEST} states. Fetch it "
                        "again."
                    )
            logger.info("file %d of %d: %s", number, len(paths), file)
        verify_release(unfinished)
    return target


def _folder_name(name: str, commit: str) -> str:
    return f"hf-{name.replace('/', '-')}-{commit}"
