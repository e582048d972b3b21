"""Results on disk: whole or not at all, and errors that say what to do. Knows nothing of what is stored."""

from __future__ import annotations

from sciscidata.storage.cached import cached_folder, is_whole_folder, resumable_folder
from sciscidata.storage.errors import about_os_error, storage_error
from sciscidata.storage.names import is_plain_name, path_inside
from sciscidata.storage.paths import expand_home, hash_file, real_path
from sciscidata.storage.whole import atomic_file, atomic_folder, flush, scratch_folder
from sciscidata.storage.workspaces import clear_leftovers, clear_unfinished

__all__ = [
    "about_os_error",
    "atomic_file",
    "atomic_folder",
    "cached_folder",
    "clear_leftovers",
    "clear_unfinished",
    "expand_home",
    "flush",
    "hash_file",
    "is_plain_name",
    "is_whole_folder",
    "path_inside",
    "real_path",
    "resumable_folder",
    "scratch_folder",
    "storage_error",
]
