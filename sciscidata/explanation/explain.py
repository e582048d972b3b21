"""explain: which papers made the CD index of one work, how sure it is, and what other choices would say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.label_prior import LabelPrior
from sciscidata.errors import ConfigError
from sciscidata.explanation import sentences
from sciscidata.explanation.by_api import cut_from_api
from sciscidata.explanation.classes import (
    Classes,
    classify,
    compare_conventions,
    count_outside,
    find_turns,
    is_over,
    no_turns,
    score,
)
from sciscidata.explanation.explanation import Explanation
from sciscidata.explanation.neighbourhood import is_open_in_field
from sciscidata.explanation.open_work import Opened, open_work
from sciscidata.explanation.pairs_of_work import PAIRS_OF_WORK, explain_pairs
from sciscidata.explanation.prior_of_corpus import find_own_prior
from sciscidata.explanation.released import explain_released, refuse_any_folder, refuse_with_release
from sciscidata.explanation.tables import (
    add_certainty,
    add_facts,
    count_years,
    list_references,
    list_works,
    mark_self_citations,
)
from sciscidata.frames import AnyFrame
from sciscidata.graph.graph import CitationGraph
from sciscidata.judged import WINDOW_COMPLETE
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.openalex_api.config import ApiConfig
from sciscidata.options.checks import check_value, checked_config
from sciscidata.release.read import read_release
from sciscidata.release.verify import kind_of
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.storage.user_cache import default_cache_dir

_STAGE: Final = "explain"
_Listed = Annotated[int, msgspec.Meta(ge=0)]


def explain(
    work: int | str,
    works: AnyFrame | CitationGraph | OpenAlexConfig | str | Path,
    citations: AnyFrame | None = None,
    config: CDConfig | None = None,
    *,
    thresholds: LabelThresholds | None = None,
    prior: LabelPrior | None = None,
    authors: AnyFrame | None = None,
    novelty: NoveltyConfig | None = None,
    background: str | Path | None = None,
    n_listed: int = 100,
    cache_dir: str | Path | None = None,
    api: ApiConfig | None = None,
) -> Explanation:
    """Explain the CD index of one work: the papers that made it, how sure it is, what other choices would say.

    Runs when it is called, and reads only what belongs to the work. Its counts are those of ``compute_cd_index``.

    Args:
        work: a work_id, the work's own id, an OpenAlex id or address, or a DOI in any form.
        works: WORKS. Or the folder of a corpus, of a graph or of a release, or a CitationGraph; then leave out
            ``citations``. A graph has no titles. A release has counts, and does not know the papers.
            ``OpenAlexConfig()`` asks the API for the work and all that cites it or a reference, which may cost money.
        citations: CITATIONS, in any order; repeats, and works that cite themselves, are ignored.
        config: which convention; ``CDConfig()`` when None.
        thresholds: ``LabelThresholds()`` when None.
        prior: of ``find_label_prior``, or ``LabelPrior.of_file`` of a file of `sciscidata cd`. None: that of the corpus in
            a folder of up to 5 million citations, else the shipped one.
        authors: one row per work and author, as ``scan_authors`` gives them: citers that share one are marked. None: those that
            a corpus on disk keeps.
        novelty: the null model of the venue pairs; None: they are left out. It reads all works of the same year.
        background: a file of ``write_background``, for the venue pairs, in place of all works of the year.
        n_listed: works of n_k to list; all are counted.
        cache_dir: for answers of the API; the user's cache folder when None.
        api: how to reach OpenAlex; from the environment when None.

    Returns:
        An Explanation: ``print`` shows its sentences, and its tables are frames.

    Raises:
        WorkIdError: the work is not there, or several works have the DOI.
        ConfigError: an option does not fit, or ``citations`` are given with a folder.
        SchemaMismatchError: a column is missing or has another type.
        InputNotFoundError: there is no corpus, graph or release in the folder.

    Example:
        >>> works = pl.DataFrame({"work_id": [1, 2, 3, 4, 5], "publication_year": [1990, 2000, 2001, 2002, 2003]},
        ...     schema_overrides={"publication_year": pl.Int32})
        >>> citations = pl.DataFrame({"citing_id": [2, 3, 4, 4, 5], "cited_id": [1, 2, 2, 1, 1]})
        >>> found = explain(2, works, citations)
        >>> print(found.text.splitlines()[1])
        2 later works cite it (window 2001 to 2005, data end in 2003); 1 does not cite its one reference, 1 cites that too; 1 work cites only its references, not it: CD 0, neutral.
        >>> found.citers.select("work_id", "class", "shared").rows()
        [(3, 'i', []), (4, 'j', [1])]
    """  # noqa: E501 (a printed line)
    config = checked_config(config, CDConfig, "window_years=10")
    cut = checked_config(thresholds, LabelThresholds, name="thresholds")
    check_value("prior", prior, LabelPrior | None)
    check_value("n_listed", n_listed, _Listed)
    if novelty is not None or background is not None:
        novelty = checked_config(novelty, NoveltyConfig, name="novelty")
    is_place = isinstance(works, CitationGraph | OpenAlexConfig | str | Path)
    if is_place and citations is not None:
        raise ConfigError(f"{_STAGE}: a folder, a graph or OpenAlex has its citations. Leave citations out.")
    if not is_place and citations is None:
        raise ConfigError(
            f"{_STAGE} needs works and citations. Give both frames, or the folder of a corpus or a graph."
        )
    if isinstance(works, str | Path) and kind_of(works) == "release":
        refuse_any_folder(Path(works))
        refuse_with_release(authors=authors, novelty=novelty, config=None if config == CDConfig() else config)
        return explain_released(work, read_release(works), thresholds, prior)
    if isinstance(works, OpenAlexConfig):
        home = default_cache_dir() if cache_dir is None else Path(cache_dir)
        opened = Opened(cut_from_api(work, home, api or ApiConfig.from_environment()))
    else:
        opened = open_work(work, works, citations, config)
    around, frames, kept, graph = opened
    if prior is None and graph is not None:
        prior = find_own_prior(graph, config)
    if novelty is not None and frames is None:
        what = "the API lists no venues" if isinstance(works, OpenAlexConfig) else "a graph knows no venues"
        raise ConfigError(f"{_STAGE}: {what}, which novelty needs. Name the corpus.")
    classes = {name: classify(around, config, window) for name, window in config.all_windows.items()}
    found = classes[""] or Classes.empty()
    scores = score(around, config, classes).with_columns(
        pl.lit(is_over(around, config, window), pl.Boolean).alias(WINDOW_COMPLETE + name)
        for name, window in config.all_windows.items()
    )
    if frames is not None:
        is_open = is_open_in_field(frames[0], around, config)
        scores = scores.with_columns(pl.lit(value=False).alias(name) for name in is_open)
    scores = add_certainty(add_facts(scores, around), around, cut, prior)
    row = scores.row(0, named=True)
    turns = no_turns() if row["disruption_label"] is None else find_turns(scores, around, cut)
    conventions = compare_conventions(around, config, cut)
    citers = list_works(found.citers, around)
    lines = [
        sentences.name_work(around),
        *sentences.describe_counts(row, config, cut, around.last_year),
        *sentences.describe_judged(row, around.last_year),
        *sentences.describe_outside({} if classes[""] is None else count_outside(around, config, found)),
        *sentences.describe_certainty(row, prior),
        *sentences.describe_turns(turns),
        *sentences.describe_conventions(conventions),
    ]
    authors = kept if authors is None else authors
    if authors is not None:
        citers, independent = mark_self_citations(citers, found, around, authors, config)
        scores = scores.hstack(independent)
        lines += sentences.describe_self_citations(independent.row(0, named=True))
    pairs = PAIRS_OF_WORK.to_frame()
    if novelty is not None and frames is not None:
        of_work, pairs = explain_pairs(around, *frames, novelty, background)
        scores = scores.hstack(of_work.drop("work_id"))
        lines += sentences.describe_pairs(of_work.row(0, named=True), pairs)
    return Explanation(
        text="\n".join(lines),
        scores=scores,
        citers=citers,
        references=list_references(around, found),
        citers_of_references=list_works(found.others, around, n_listed),
        by_year=count_years(around, found),
        conventions=conventions,
        turns=turns,
        venue_pairs=pairs,
    )
