"""The prior of a corpus on disk, so that ``explain`` and ``score`` say the same of one work."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from sciscidata.corpus.folder import INDEX, read_report
from sciscidata.corpus.scores import hash_facts, read_score_facts
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import score_graph
from sciscidata.disruption.label_prior import SHIPPED, LabelPrior, choose_prior
from sciscidata.errors import StorageError
from sciscidata.graph.graph import CitationGraph, graph_folder
from sciscidata.storage import cached_folder, is_whole_folder

_LOG: Final = logging.getLogger(__name__)
_CHEAP: Final = 5_000_000  # citations, about a second
_FILE: Final = "label_prior.json"
_VERSION: Final = 1  # of how a prior is found


def find_own_prior(graph: CitationGraph, config: CDConfig) -> LabelPrior | None:
    """Score all works of a corpus by its graph on disk, and return their prior, which is kept beside the graph.

    A corpus that is too large or too small has None.
    """
    if graph.n_citations > _CHEAP:
        return None
    of_graph = graph_folder(graph)
    key = hash_facts({"version": _VERSION, "graph": of_graph.name, **config.stated()})[:32]
    place = of_graph.with_name(f"prior-{key}")
    with suppress(OSError):
        if is_whole_folder(place):
            return LabelPrior.from_json((place / _FILE).read_text("utf-8"))
    prior = choose_prior(score_graph(graph, config))
    if prior is SHIPPED:  # its warning is for the next call, too
        return None

    def write(new: Path) -> None:
        (new / _FILE).write_text(prior.to_json(), "utf-8")

    with suppress(StorageError):  # on a disk that cannot be written to, the next call finds it again
        cached_folder(place, write)
    return prior


def read_prior(scores: Path, folder: Path) -> LabelPrior:
    """Read the prior of a file of ``sciscidata cd``. Warn if the file is of another corpus than the one in a folder."""
    prior = LabelPrior.of_file(scores)
    stated = read_score_facts(scores)["corpus_sha256"]
    if (folder / INDEX).is_file() and stated is not None and stated != read_report(folder)[1]:
        _LOG.warning(
            "%s is of another corpus than %s, or of an older state of it, so its prior may not fit. Make it again: "
            "sciscidata cd %s --out cd.parquet",
            scores, folder, folder,
        )  # fmt: skip
    return prior
