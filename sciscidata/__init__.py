"""Labels for scientific impact, computed from the citation record at the scale of all science.

``works, citations, _ = scan_records(...)`` reads a source; ``compute_cd_index(works, citations)`` and
``compute_atypicality(works, citations)`` score its works; ``compute_labels(scores)`` labels them; ``draw_split(labelled)``
draws a balanced split that more data never changes. ``build(BuildConfig(...))`` does all of it and writes a release;
``read_release(folder)`` reads one back.

``scan_*`` and ``compute_*`` are lazy: nothing runs before ``collect()``. Everything else runs when it is called.
"""

import lazy_loader

# Names are loaded on first use, so that the command answers Ctrl-C from its first line on; __init__.pyi lists them.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
