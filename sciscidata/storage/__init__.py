"""Results on disk: whole or not at all, checked by SHA-256, with errors that name the remedy.

Nothing here knows about works or citations. Read first: ``atomic.py``.
"""

from sciscidata.storage.atomic import ABOUT_TMPDIR as ABOUT_TMPDIR
from sciscidata.storage.atomic import atomic_file as atomic_file
from sciscidata.storage.atomic import atomic_folder as atomic_folder
from sciscidata.storage.atomic import clear_leftovers as clear_leftovers
from sciscidata.storage.atomic import clear_unfinished as clear_unfinished
from sciscidata.storage.atomic import refuse_unwritable as refuse_unwritable
from sciscidata.storage.atomic import scratch_folder as scratch_folder
from sciscidata.storage.atomic import whole_when_done as whole_when_done
from sciscidata.storage.cache import cached_folder as cached_folder
from sciscidata.storage.cache import is_whole_folder as is_whole_folder
from sciscidata.storage.cache import note_finished as note_finished
from sciscidata.storage.cache import resumable_folder as resumable_folder
from sciscidata.storage.disk_errors import about_os_error as about_os_error
from sciscidata.storage.disk_errors import storage_error as storage_error
from sciscidata.storage.paths import expand_home as expand_home
from sciscidata.storage.paths import hash_file as hash_file
from sciscidata.storage.paths import path_inside as path_inside
from sciscidata.storage.paths import real_path as real_path
from sciscidata.storage.paths import refuse_link as refuse_link
from sciscidata.storage.seals import BLANK_SEAL as BLANK_SEAL
from sciscidata.storage.seals import is_sealed as is_sealed
from sciscidata.storage.seals import is_sealed_text as is_sealed_text
from sciscidata.storage.seals import seal as seal
from sciscidata.storage.seals import seal_json as seal_json
from sciscidata.storage.sums import SUMS as SUMS
from sciscidata.storage.sums import find_damaged as find_damaged
from sciscidata.storage.targets import check_file as check_file
from sciscidata.storage.targets import refuse_special as refuse_special
