"""Results on disk: whole or not at all, and errors that say what to do. Knows nothing of what is stored."""

from __future__ import annotations

from sciscidata.storage.cached import cached_folder, is_whole_folder, resumable_folder
from sciscidata.storage.errors import storage_error
from sciscidata.storage.paths import expand_home, hash_file, real_path
from sciscidata.storage.whole import atomic_file, atomic_folder, flush, scratch_folder
from sciscidata.storage.workspaces import clear_leftovers, clear_unfinished

__all__ = [
    "atomic_file",
    "atomic_folder",
    "cached_folder",
    "clear_leftovers",
    "clear_unfinished",
    "expand_home",
    "flush",
    "hash_file",
    "is_whole_folder",
    "real_path",
    "resumable_folder",
    "scratch_folder",
    "storage_error",
]
