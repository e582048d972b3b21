"""Labels for scientific impact, computed from the citation record at the scale of all science.

``scan_records(config)`` reads works and citations. ``compute_cd_index(works, citations)`` and
``compute_atypicality(works, citations)`` score the works, and ``compute_labels(scores)`` labels them.
``draw_split(labelled)`` draws train and test works. More data never moves them from one split to the other.
``build(config)`` does all of this and writes a release; ``read_release(folder)`` reads it.

``scan_*`` and ``compute_*`` are lazy: nothing runs before ``collect()``. Everything else runs when it is called.
"""

import lazy_loader

# Names are loaded on first use, so that the command answers Ctrl-C from its first line on; __init__.pyi lists them.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
#: Names that pages once taught, and what to write today.
_GONE = {
    "choose_source": "Hand the configuration of a source over: BuildConfig(source=...).",
    "ingest_corpus": "It is called sciscidata.ingest.",
    "write_cd_scores": "It is called sciscidata.write_cd_index.",
    "write_labelled": "sciscidata.export_labelled labels every work of a source.",
}


def __getattr__(name: str) -> object:
    if name in __all__:
        return _load(name)
    from sciscidata.options.did_you_mean import missing_name

    raise missing_name(__name__, name, gone=_GONE)


__version__ = "0.1.0"
