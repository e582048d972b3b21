"""Put a score file into an object store: check the place first, upload whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from sciscidata.corpus.scores import hash_facts
from sciscidata.errors import ConfigError, InputNotFoundError, ReleaseExistsError, StorageError
from sciscidata.options.checks import require_parquet_name
from sciscidata.remote.object_store import RETRIES, RETRIES_AT_FIRST, Access, Found, Store
from sciscidata.storage.paths import hash_file

logger = logging.getLogger(__name__)

#: The attributes of an object: what its facts and its bytes hash to. Azure allows letters only.
_FACTS: Final = "sciscidatafacts"
_BYTES: Final = "sciscidatasha256"


class StoredScores(NamedTuple):
    """Where scores go, and what is there now."""

    url: str
    facts: str
    found: Found | None


def find_place(url: str, facts: Mapping[str, Any], *, overwrite: bool) -> StoredScores | None:
    """Look at where scores go in a store, where only scores are replaced; return None if they are there already."""
    require_parquet_name(Path(url), "scores are")
    store = _open(url, RETRIES_AT_FIRST)
    if not store.folder or url.endswith("/"):
        raise ConfigError(f"out is {url}, needs the URL of a file, for example {store.bucket}/cd.parquet.")
    place = StoredScores(url, hash_facts(facts), store.find(store.folder))
    if place.found is None:
        store.check_writable(store.folder)
        return place
    stated = place.found.attributes
    if _FACTS not in stated:
        raise ReleaseExistsError(
            f"{url} is no file of scores that this package has uploaded, so it is not replaced. Choose another URL, "
            "or remove it."
        )
    if stated[_FACTS] == place.facts:
        logger.info("%s holds these scores already (sha256 %s)", url, stated.get(_BYTES))
        return None
    if not overwrite:
        raise ReleaseExistsError(f"{url} already exists. Choose another URL, or replace it: overwrite=True.")
    return place


def upload_scores(file: Path, place: StoredScores) -> None:
    """Upload a score file and remove it here. If that fails with a StorageError, it stays for the next run."""
    attributes = {_FACTS: place.facts, _BYTES: hash_file(file)}
    size = file.stat().st_size
    store = _open(place.url)
    try:
        if not store.upload(file, store.folder, attributes, place.found):
            raise StorageError(
                f"{place.url} has changed in the store meanwhile, so it is not replaced. Look at what is there."
            )
    except (InputNotFoundError, StorageError) as error:
        raise StorageError(f"{error} The scores are kept in {file}; the same call uploads them.") from None
    logger.info("uploaded %s: %s bytes, sha256 %s", place.url, f"{size:,}", attributes[_BYTES])
    file.unlink()


def _open(url: str, n_retries: int = RETRIES) -> Store:
    return Store(url, Access({}, "out", "the environment", n_retries))
