"""The prior of a corpus on disk, so that ``explain`` and ``score`` say the same of one work."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from sciscidata.corpus.folder import INDEX, find_corpus_graph, read_report
from sciscidata.corpus.scores import read_score_facts
from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.index import score_graph
from sciscidata.disruption.label_prior import SHIPPED, LabelPrior, choose_prior

_LOG: Final = logging.getLogger(__name__)
_CHEAP: Final = 5_000_000  # citations, about a second


def find_own_prior(folder: str | Path, config: CDConfig) -> LabelPrior | None:
    """Score all works of a corpus, and return their prior. A corpus that is too large or too small has None."""
    graph = find_corpus_graph(folder, time=config.time)
    if graph.n_citations > _CHEAP:
        return None
    prior = choose_prior(score_graph(graph, config))
    return None if prior is SHIPPED else prior


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
