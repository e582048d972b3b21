"""Send a release to a hub: the Hugging Face Hub, Zenodo, or a folder."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from sciscidata.errors import ConfigError, VerificationError
from sciscidata.hubs.hugging_face import Hub, find_hub, read_hub_name
from sciscidata.hubs.zenodo import Deposition, Zenodo, find_zenodo, md5_of
from sciscidata.options.did_you_mean import suggest
from sciscidata.release.documents import Publication, describe_publication, find_publication, render_documents
from sciscidata.release.manifest import CITATION, DOCUMENTS, MANIFEST
from sciscidata.release.release import Release, check_target
from sciscidata.release.verify import list_changed, verify_release
from sciscidata.storage import atomic_file, atomic_folder, path_inside, real_path
from sciscidata.storage.small_files import SETTINGS_BYTES, read_json

logger = logging.getLogger(__name__)

_ZENODO: Final = "zenodo"
#: Adds the documents, made for a place, to the files of a release: all by name.
_AddDocuments: TypeAlias = Callable[[Publication], dict[str, Path | bytes]]


class Published(NamedTuple):
    """What went where: a ``revision`` is of the Hugging Face Hub, a ``doi`` of Zenodo; a draft there is not final."""

    to: str
    files: Mapping[str, int]
    place: str
    doi: str | None = None
    revision: str | None = None
    is_final: bool = True


def publish(
    release: str | Path,
    *,
    to: str,
    creators: tuple[str, ...] = (),
    licence: str | None = None,
    private: bool = False,
    sandbox: bool = False,
    final: bool = False,
    dry_run: bool = False,
) -> Published:
    """Verify a release and send it to a hub, with its documents made for that place. Run it again after a failure.

    Documents that were edited are sent as they are; the others name the creators, the day, the address and the DOI. A
    DOI of an earlier publication stays, but on Zenodo, which gives a new one and links them. The release itself is not
    changed. Beside it, ``.NAME.published.json`` notes the day and the deposition: no token is in it. Tokens come from
    HF_TOKEN and ZENODO_TOKEN. HF_ENDPOINT and ZENODO_URL name other servers.

    Args:
        release: its folder.
        to: hf:OWNER/NAME, zenodo, or a folder.
        creators: who made the release, one or more, as "Family name, Given name"; none: those of an earlier
            publication. Zenodo needs one.
        licence: Zenodo's name of the licence, such as cc-by-4.0; None: cc-zero, if the card says CC0.
        private: make a new repository on the Hugging Face Hub that only you can see.
        sandbox: use Zenodo's sandbox.
        final: publish on Zenodo for good; else it stays a draft with a reserved DOI.
        dry_run: say what would go where, and send nothing.
    """
    _check_no_effect(to, creators, licence=licence, private=private, sandbox=sandbox, final=final)
    whole = verify_release(release)
    known = find_publication(whole.folder)
    as_made = render_documents(whole.manifest, known)
    known = known._replace(creators=creators or known.creators)
    changed = {name for name in list_changed(whole) if (whole.folder / name).read_bytes() != as_made[name]}
    if changed:
        logger.info("edited, and sent as they are: %s", ", ".join(sorted(changed)))
    own = {MANIFEST, *whole.manifest["files"], *DOCUMENTS}
    fixed = {name: path_inside(whole.folder, name, stated_by=MANIFEST) for name in own - {*DOCUMENTS} | changed}

    def add_documents(publication: Publication) -> dict[str, Path | bytes]:
        made = render_documents(whole.manifest, publication)
        return {name: fixed.get(name) or made[name] for name in sorted(own)}

    if to.startswith("hf:"):
        return _to_hugging_face(whole, to, add_documents, known, private=private, dry_run=dry_run)
    if to == _ZENODO:
        return _to_zenodo(whole, add_documents, known, licence, sandbox=sandbox, final=final, dry_run=dry_run)
    return _to_folder(to, add_documents(known._replace(date=known.date or _today())), dry_run=dry_run)


def _check_no_effect(to: str, creators: tuple[str, ...], *, licence: str | None, **switches: bool) -> None:
    """Refuse options that the chosen place does not read, and a name that no citation could have."""
    only = {"private": "hf:", "sandbox": _ZENODO, "final": _ZENODO, "licence": _ZENODO}
    idle = {name: "True" for name, is_on in switches.items() if is_on} | ({"licence": "..."} if licence else {})
    for name, value in idle.items():
        if not to.startswith(only[name]):
            place = "Zenodo" if only[name] == _ZENODO else "the Hugging Face Hub"
            raise ConfigError(
                f"{name}={value} has an effect on {place} only, and this release goes to {to}. Leave it out."
            )
    if not to.strip() or (":" in to and not to.startswith("hf:")):
        raise ConfigError(f"to={to!r} is no place for a release. Write hf:OWNER/NAME, zenodo, or a folder.")
    if to != _ZENODO and suggest(to.lower(), [_ZENODO]):  # it would become a folder, and look as if it had been sent
        raise ConfigError(f"to={to!r} is a folder. Did you mean zenodo? If not, write ./{to}.")
    if wrong := [name for name in creators if not name.strip() or not name.isprintable()]:
        raise ConfigError(f"creators=... has {wrong[0]!r}, needs a name: 'Family name, Given name'.")


def _show_plan(place: str, files: Mapping[str, Path | bytes]) -> dict[str, int]:
    """Log what goes where, and return the bytes of each file."""
    sizes = {name: len(file) if isinstance(file, bytes) else file.stat().st_size for name, file in files.items()}
    logger.info("to %s: %s files, %s bytes", place, f"{len(sizes):,}", f"{sum(sizes.values()):,}")
    for name, size in sizes.items():
        logger.info("  %s: %s bytes", name, f"{size:,}")
    return sizes


def _to_folder(to: str, files: Mapping[str, Path | bytes], *, dry_run: bool) -> Published:
    folder = real_path(Path(to).expanduser())
    check_target(folder, can_replace=False)
    sizes = _show_plan(str(folder), files)
    if not dry_run:
        with atomic_folder(folder) as unfinished:
            for name, file in files.items():
                _write(path_inside(unfinished, name, stated_by=MANIFEST), file)
            verify_release(unfinished)
    return Published(to, sizes, str(folder), is_final=not dry_run)


def _write(path: Path, file: Path | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file if isinstance(file, bytes) else file.read_bytes())


def _to_hugging_face(
    release: Release,
    to: str,
    add_documents: _AddDocuments,
    known: Publication,
    *,
    private: bool,
    dry_run: bool,
) -> Published:
    name, revision = read_hub_name(to)
    if revision is not None:
        raise ConfigError(f"{to} names a revision, and a release becomes a new one. Write hf:{name}.")
    access = find_hub(needed=not dry_run)
    page, state = f"{access.url}/datasets/{name}", _State(release, f"{access.url} {name}")
    files = add_documents(known._replace(date=state.date, url=page))
    sizes = _show_plan(page, files)
    if dry_run:
        return Published(to, sizes, page, is_final=False)
    state.write()
    title = f"Release {release.manifest['manifest_sha256'][:12]}"
    commit = Hub(access).send(name, files, title, private=private)
    logger.info("%s of %s files are there, in commit %s", f"{len(files):,}", f"{len(files):,}", commit)
    return Published(to, sizes, page, revision=commit)


def _to_zenodo(
    release: Release,
    add_documents: _AddDocuments,
    known: Publication,
    licence: str | None,
    *,
    sandbox: bool,
    final: bool,
    dry_run: bool,
) -> Published:
    about = describe_publication(release.manifest)
    licence = licence or about.zenodo_licence
    if licence is None:
        raise ConfigError(
            "the licence of this release is not known here. Give Zenodo's name of it, for example licence='cc-by-4.0'."
        )
    if not known.creators:
        raise ConfigError(
            "Zenodo needs to know who made the release. Name them by creators=..., each 'Family name, Given name'."
        )
    access = find_zenodo(sandbox=sandbox, needed=not dry_run)
    state = _State(release, access.url)
    if dry_run:
        sizes = _show_plan(access.url, add_documents(known._replace(date=state.date)))
        return Published(_ZENODO, sizes, access.url, is_final=False)
    with closing(Zenodo(access)) as zenodo:
        deposition = zenodo.find_or_create(state.deposition, f"sciscidata {release.manifest['manifest_sha256']}")
        state.deposition = deposition.number
        state.write()
        here = Publication(known.creators, state.date, deposition.doi, f"https://doi.org/{deposition.doi}")
        files = add_documents(here)
        _check_doi(files[CITATION], deposition)
        sizes = _show_plan(deposition.page, files)
        if deposition.is_submitted:
            logger.info("it is published already: %s", deposition.doi)
            return Published(_ZENODO, sizes, deposition.page, deposition.doi)
        # It refuses an unknown licence here, before a file is sent.
        zenodo.describe(
            deposition,
            {
                "title": about.title,
                "upload_type": "dataset",
                "description": about.summary,
                "creators": [{"name": name} for name in known.creators],
                "access_right": "open",
                "license": licence,
                "publication_date": state.date,
                "keywords": [*about.keywords],
                "related_identifiers": [
                    *({"identifier": doi, "relation": "cites"} for doi in about.dois),
                    *({"identifier": doi, "relation": "isIdenticalTo"} for doi in {known.doi} - {None, deposition.doi}),
                ],
                "version": release.manifest["manifest_sha256"][:12],
                "notes": f"sciscidata {release.manifest['manifest_sha256']}",
                "prereserve_doi": True,
            },
        )
        there = zenodo.list_files(deposition)
        for number, (name, file) in enumerate(files.items(), 1):
            if there.get(name) != md5_of(file):
                zenodo.upload(deposition, name, file)
            logger.info("file %d of %d: %s", number, len(files), name)
        there = zenodo.list_files(deposition)
        if there != {name: md5_of(file) for name, file in files.items()}:
            strange = ", ".join(sorted(there.keys() ^ files.keys())) or "other bytes"
            raise VerificationError(
                f"the deposition at {deposition.page} does not hold this release alone ({strange}). Remove what is "
                "strange there, and run again."
            )
        if final:
            zenodo.submit(deposition)
    return Published(_ZENODO, sizes, deposition.page, deposition.doi, is_final=final)


def _check_doi(citation: Path | bytes, deposition: Deposition) -> None:
    """Refuse a CITATION.cff, edited by hand, that cites this deposition by another DOI."""
    text = citation if isinstance(citation, bytes) else citation.read_bytes()
    stated = re.search(rb"""^doi: *["']?([^\s"']+)""", text, re.MULTILINE)
    if stated is not None and stated[1] != deposition.doi.encode():
        raise ConfigError(
            f"{CITATION} was edited and has the DOI {stated[1].decode('utf-8', 'replace')}, but Zenodo gives this "
            f"release {deposition.doi}. Write this one there, or take the line out."
        )


class _State:
    """What a stopped run leaves for the next one, beside the release: the day and the deposition, by place."""

    def __init__(self, release: Release, place: str) -> None:
        folder = real_path(release.folder)
        self._path = folder.with_name(f".{folder.name}.published.json")
        self._release, self._place = release.manifest["manifest_sha256"], place
        facts = self._read().get(self._key, {})
        self.date: str = facts.get("date") or _today()
        self.deposition: int | None = facts.get("deposition")

    @property
    def _key(self) -> str:
        return f"{self._place} {self._release}"

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            return dict(read_json(self._path, SETTINGS_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{self._path} notes what was published, and cannot be read ({error}). Mend or remove it."
            ) from error

    def write(self) -> None:
        """Note the day and the deposition."""
        noted = {"date": self.date} | ({} if self.deposition is None else {"deposition": self.deposition})
        with atomic_file(self._path) as path:
            path.write_text(json.dumps(self._read() | {self._key: noted}, indent=1, sort_keys=True) + "\n", "utf-8")


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
