"""Import this after what is slow to import, so that garbage is looked for more rarely, and not among what was imported.

Each search through all modules takes half a second. Forks of the process keep these settings.
"""

import gc

gc.set_threshold(50_000, 20, 50)
gc.freeze()
gc.enable()
