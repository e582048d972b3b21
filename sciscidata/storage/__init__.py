"""Results on disk: whole or not at all, checked by SHA-256, with errors that name the remedy.

Nothing here knows about works or citations. Read first: ``atomic.py``.
"""

from __future__ import annotations

from sciscidata.storage.atomic import (
    atomic_file,
    atomic_folder,
    clear_leftovers,
    clear_unfinished,
    scratch_folder,
    whole_when_done,
)
from sciscidata.storage.cache import (
    cached_folder,
    file_checksum,
    is_whole_folder,
    note_finished,
    quick_checksum,
    resumable_folder,
)
from sciscidata.storage.checksums import BLANK_SEAL, is_sealed, is_sealed_text, seal, seal_text
from sciscidata.storage.disk_errors import about_os_error, storage_error
from sciscidata.storage.paths import expand_home, hash_file, path_inside, real_path, refuse_link

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
    "hash_file",
    "is_sealed",
    "is_sealed_text",
    "is_whole_folder",
    "note_finished",
    "path_inside",
    "quick_checksum",
    "real_path",
    "refuse_link",
    "resumable_folder",
    "scratch_folder",
    "seal",
    "seal_text",
    "storage_error",
    "whole_when_done",
]
