"""``sciscidata explain``: print the papers behind one number, and show them on one page of HTML."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from sciscidata.cli.summary import Part, print_lines, printed, shown
from sciscidata.config import BuildConfig
from sciscidata.disruption.config import CDConfig
from sciscidata.explanation.by_api import describe_cost
from sciscidata.explanation.explain import explain
from sciscidata.explanation.explanation import NOTES, Explanation, show, with_own_ids
from sciscidata.explanation.prior_of_corpus import read_prior
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.novelty.config import NoveltyConfig
from sciscidata.sources.openalex.candidates import OpenAlexConfig
from sciscidata.storage import check_file
from sciscidata.storage.user_cache import default_cache_dir
from sciscidata.terminal.messages import align_columns, shorten

_GENERATOR: Final = '<meta name="generator" content="sciscidata explain">'
_ROWS: Final = 12
_ROWS_ON_THE_PAGE: Final = 1_000
_LETTERS: Final = 60
_ONLY_ON_THE_PAGE: Final = ("shared", "doi", "source_id_a", "source_id_b", "std")


def explain_path(
    path: Path | None,
    work: str,
    config: BuildConfig,
    *,
    scores: Path | None = None,
    pairs: bool = False,
    html: Path | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    cache_dir: Path | None = None,
) -> None:
    """Print what made the CD index of a work, and write a page about it.

    Args:
        path: a corpus, a graph or a release. None: the API is asked.
        work: the work.
        config: convention, thresholds and background.
        scores: file of `sciscidata cd` of the same corpus, whose works say how sure the label is. None: the corpus
            itself, if it is small, else other works.
        pairs: explain atypicality too, by venue pairs. Without --background this reads all works of the same year.
        html: file of HTML to write, with a picture and up to 1,000 rows of every table. None: no page.
        overwrite: replace a file that is no page of this command.
        dry_run: say what the API would be asked, and what it costs.
        cache_dir: folder for answers of the API. None: the user's cache folder.
    """
    home = cache_dir or default_cache_dir()
    if dry_run:
        print_lines([f"would read: {path}; no cost"] if path else describe_cost(work, home, config.api))
        return
    check = None
    if html is not None:
        check = partial(check_file, html, _GENERATOR.encode(), "page of `explain`", overwrite=overwrite)
        check()
    found = explain(
        work,
        path or OpenAlexConfig(),
        config=None if config.cd == CDConfig() else config.cd,
        thresholds=None if config.thresholds == LabelThresholds() else config.thresholds,
        prior=None if scores is None else read_prior(scores, path or Path()),
        novelty=NoveltyConfig() if pairs or config.background is not None else None,
        background=config.background,
        cache_dir=home,
        api=config.api,
    )
    _print(found)
    if html is not None and check is not None:
        from sciscidata.cli.page import draw_into_page, write_page  # with all plots, it takes a while to import
        from sciscidata.plots.work import plot_work

        title = found.text.partition("\n")[0]
        drawn = draw_into_page(plot_work, found) if found.citers.height else ""
        write_page(html, title, found.to_html(_ROWS_ON_THE_PAGE, drawn), check, _GENERATOR)
        print_lines([f"page: {shown(html)} ({html.stat().st_size:,} bytes)"])


@printed
def _print(found: Explanation) -> Iterator[Part]:
    """Print the sentences, and the beginning of every table."""
    yield from found.text.splitlines()
    for name, heading, rows in found.tables():
        more = f", the first {_ROWS}" if rows.height > _ROWS else ""
        yield ""
        yield f"{heading} ({rows.height:,}{more}):"
        if name in NOTES:
            yield f"  {NOTES[name]}"
        some = with_own_ids(rows).drop(_ONLY_ON_THE_PAGE, strict=False)
        cells = [[shorten(show(cell), _LETTERS) for cell in row] for row in some.head(_ROWS).iter_rows()]
        yield from (f"  {line}" for line in align_columns([some.columns, *cells]))
