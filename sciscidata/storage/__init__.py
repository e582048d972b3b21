"""Results on disk: whole or not at all, and errors that say what to do. Knows nothing of what is stored."""

from __future__ import annotations

from sciscidata.storage.atomic import (
    atomic_file,
    atomic_folder,
    clear_leftovers,
    clear_unfinished,
    flush,
    open_lock,
    scratch_folder,
)
from sciscidata.storage.cache import (
    cached_folder,
    file_checksum,
    is_whole_folder,
    note_finished,
    quick_checksum,
    refuse_link,
    resumable_folder,
)
from sciscidata.storage.disk import about_os_error, expand_home, hash_file, real_path, storage_error
from sciscidata.storage.names import path_inside
from sciscidata.storage.seals import BLANK_SEAL, is_sealed, is_sealed_text, seal, seal_text

__all__ = [
    "BLANK_SEAL",
    "about_os_error",
    "atomic_file",
    "atomic_folder",
    "cached_folder",
    "clear_leftovers",
    "clear_unfinished",
    "expand_home",
    "file_checksum",
    "flush",
    "hash_file",
    "is_sealed",
    "is_sealed_text",
    "is_whole_folder",
    "note_finished",
    "open_lock",
    "path_inside",
    "quick_checksum",
    "real_path",
    "refuse_link",
    "resumable_folder",
    "scratch_folder",
    "seal",
    "seal_text",
    "storage_error",
]
