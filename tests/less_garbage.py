"""Spare the search for garbage: make it rarer, and leave out what is imported by now.

Import this last. One search through all modules takes half a second. Forks of the process keep these settings.
"""

import gc

from sciscidata._support.memory import collect_garbage_rarely

collect_garbage_rarely()
gc.freeze()
gc.enable()
