"""What a trainer's author does not need: own hardware, small models, sweeps, comparisons, reports, other harnesses.

The core never imports it; ``__init__.pyi`` lists what it calls by name. Read first: ``commands.py``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
