"""Results on disk: whole or not at all, checked by SHA-256, with errors that name the remedy.

Nothing here knows about works or citations. Read first: ``atomic.py``.
"""

import lazy_loader

# Who reads one file does not load what writes folders.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
