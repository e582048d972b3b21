"""Send a release to the Hugging Face Hub, or to a folder, with documents that say who made it, and where it lies."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from sciscidata.errors import ConfigError
from sciscidata.hubs.hugging_face import Hub, find_access, read_hub_name
from sciscidata.release.documents import Publication, render_documents
from sciscidata.release.manifest import DOCUMENTS, MANIFEST, of_a_stranger
from sciscidata.release.read import Release
from sciscidata.release.record import describe_record
from sciscidata.release.release import check_target
from sciscidata.release.verify import list_changed, verify_release
from sciscidata.storage import atomic_folder, path_inside, real_path

logger = logging.getLogger(__name__)


class Published(NamedTuple):
    """What went where; ``revision`` is the commit on the Hugging Face Hub. A dry run is not final."""

    to: str
    files: Mapping[str, int]
    place: str
    revision: str | None = None
    is_final: bool = True


def publish(
    release: str | Path, *, to: str, creators: tuple[str, ...] = (), private: bool = False, dry_run: bool = False
) -> Published:
    """Verify a release and send it, with its documents made for that place. Run it again after a failure.

    The documents name the creators, the day and the address; edited ones are sent as they are. The release itself is
    not changed. The token comes from HF_TOKEN; HF_ENDPOINT names another server.

    Args:
        release: its folder.
        to: hf:OWNER/NAME, or a folder.
        creators: who made the release, one or more, as "Family name, Given name".
        private: make a new repository on the Hugging Face Hub that only you can see.
        dry_run: say what would go where, and send nothing.
    """
    if wrong := [name for name in creators if not name.strip() or not name.isprintable()]:
        raise ConfigError(f"creators=... has {wrong[0]!r}, needs a name: 'Family name, Given name'.")
    day = datetime.now(UTC).date().isoformat()
    if not to.startswith("hf:"):
        if not to.strip() or ":" in to or to == "zenodo":
            raise ConfigError(f"to={to!r} is no place for a release. Write hf:OWNER/NAME, or a folder to upload.")
        if private:
            raise ConfigError(
                f"private=True has an effect on the Hugging Face Hub only, and this release goes to {to}. Leave it out."
            )
        folder = real_path(Path(to).expanduser())
        check_target(folder, can_replace=False)
        files = _add_documents(verify_release(release), Publication(creators, day))
        sizes = _show_plan(str(folder), files)
        if not dry_run:
            with atomic_folder(folder) as unfinished:
                for name, file in files.items():
                    path = path_inside(unfinished, name, stated_by=MANIFEST)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(file if isinstance(file, bytes) else file.read_bytes())
                verify_release(unfinished)
        return Published(to, sizes, str(folder), is_final=not dry_run)
    name, revision = read_hub_name(to)
    if revision is not None:
        raise ConfigError(f"{to} names a revision, and a release becomes a new one. Write hf:{name}.")
    access = find_access(needed=not dry_run)
    whole, page = verify_release(release), f"{access.url}/datasets/{name}"
    files = _add_documents(whole, Publication(creators, day, page, name))
    sizes = _show_plan(page, files)
    if dry_run:
        return Published(to, sizes, page, is_final=False)
    title = f"Release {whole.manifest['manifest_sha256'][:12]}"
    commit = Hub(access).send(name, files, title, private=private)
    logger.info("all files are there, in commit %s", commit)
    return Published(to, sizes, page, revision=commit)


def _add_documents(release: Release, publication: Publication) -> dict[str, Path | bytes]:
    """List what is sent, by name: the files of a release, and documents made for the place, but those edited before."""
    edited = set(list_changed(release))
    if edited:
        logger.info("edited, and sent as they are: %s", ", ".join(sorted(edited)))
    with of_a_stranger(release.folder):
        made = render_documents(release.manifest, publication, describe_record(release))
    names = sorted({MANIFEST, *release.manifest["files"], *DOCUMENTS})
    return {
        name: made[name]
        if name in made and name not in edited
        else path_inside(release.folder, name, stated_by=MANIFEST)
        for name in names
    }


def _show_plan(place: str, files: Mapping[str, Path | bytes]) -> dict[str, int]:
    """Log what goes where, and return the bytes of each file."""
    sizes = {name: len(file) if isinstance(file, bytes) else file.stat().st_size for name, file in files.items()}
    logger.info("to %s: %s files, %s bytes", place, f"{len(sizes):,}", f"{sum(sizes.values()):,}")
    for name, size in sizes.items():
        logger.info("  %s: %s bytes", name, f"{size:,}")
    return sizes
