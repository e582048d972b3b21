"""What a build would read, which classes are likely, and what it takes: ``build --dry-run``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import polars as pl

from sciscidata._support.terminal import counted
from sciscidata.cli.summary import shown
from sciscidata.config import BuildConfig
from sciscidata.corpus.folder import CorpusConfig, scan_corpus
from sciscidata.label_thresholds import compute_labels, count_labels
from sciscidata.openalex_api.client import OpenAlexClient
from sciscidata.openalex_api.request import CREDIT_USD
from sciscidata.openalex_api.store import ResponseStore
from sciscidata.sampling.eligibility import chosen_names, remark_on_names
from sciscidata.sampling.open_quotas import Demand
from sciscidata.sampling.split import balanced_columns, class_quotas, quota_cells
from sciscidata.sources.labelled import LabelledConfig, find_labelled_files
from sciscidata.sources.openalex.candidates import Candidates, OpenAlexConfig
from sciscidata.sources.openalex.source import describe_days, estimate_pull, published_shares
from sciscidata.sources.record_files import find_record_files
from sciscidata.sources.records import RecordsConfig
from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet
from sciscidata.sources.sciscinet.tables import reading
from sciscidata.sources.snapshot.source import SnapshotConfig, snapshot_bytes
from sciscidata.sources.synthetic.source import SyntheticConfig
from sciscidata.sources.tables.source import TablesConfig, find_table_files, table_bytes

#: Measured on two cores (benchmarks/README.md): compressed bytes parsed, and citations through graph and both measures.
_PARSED_PER_S: Final = 30e6
_CITATIONS_PER_S: Final = 1e6
#: Of real records: compressed bytes (plain ones take five times as many), and citations within all of science.
_BYTES_PER_WORK: Final = 2_400
_BYTES_PER_SNAPSHOT_WORK: Final = 1_300
_PLAIN: Final = 5
_REFERENCES_PER_WORK: Final = 11
_START_S: Final = 15  # imports, pictures
_SYNTHETIC: Final = {"disruptive": 0.3, "consolidating": 0.37, "neutral": 0.22}
_ELSEWHERE: Final = "as in a corpus of 1.97 million works"


class _Amount(NamedTuple):
    """What would be read: a line, the works as far as they are known, their citations, and bytes to parse."""

    line: str
    works: int | None = None
    citations: int | None = None
    parsed_bytes: float = 0


def describe_plan(config: BuildConfig) -> list[str]:
    r"""Describe a build without running it.

    From the OpenAlex API it asks two calls, a count and a sample of a hundred works; their answers are kept.

    Raises:
        SciSciDataError: the source cannot be found or opened.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as home:
        ...     world = SyntheticConfig(n_works=1_000_000)
        ...     print(*describe_plan(BuildConfig(source=world, out=Path(home) / "slice", cache_dir=home))[:2], sep="\n")
        would read: a synthetic world of 1,000,000 works
        would draw: 5,000 train and 500 test works: disruptive 1,834, consolidating 1,834, neutral 1,832
    """
    if isinstance(config.source, OpenAlexConfig):
        lines = _describe_pull(config, config.source)
    else:
        amount = _measure(config)
        n_chosen, remarks = _count_chosen(config)
        classes = _describe_classes(config, amount if n_chosen is None else amount._replace(works=n_chosen))
        lines = [f"would read: {amount.line}", *remarks, *classes, _describe_time(amount)]
    lines.insert(1, f"would draw: {_describe_draw(config)}")
    state = "which exists" if config.out.exists() else "which is new"
    return [*lines, f"would write: {shown(config.out)}, {state}; nothing was written"]


def _quotas(config: BuildConfig) -> dict[str, int]:
    """Return how many works of each class are drawn; of pairs of labels, both words."""
    split, columns = config.split, balanced_columns(config.split, config.label)
    cells = quota_cells(columns, config.label) if columns else []
    return {
        " and ".join(cell): sum(class_quotas(size, cells)[cell] for size in split.groups.values()) for cell in cells
    }


def _describe_draw(config: BuildConfig) -> str:
    quotas = _quotas(config)
    *first, last = [f"{size:,} {name}" for name, size in config.split.sizes.items()]
    return f"{', '.join(first)} and {last} works{': ' * bool(quotas)}{_list_counts(quotas)}"


def _measure(config: BuildConfig) -> _Amount:
    """Find out what there is to read, without reading it."""
    source = config.source
    if isinstance(source, SyntheticConfig):
        line = f"a synthetic world of {source.n_works:,} works"
        return _Amount(line, source.n_works, round(source.n_works * source.mean_references))
    if isinstance(source, CorpusConfig):
        facts = scan_corpus(source.folder).provenance
        works, citations = int(facts["works"]), int(facts["citations"])
        return _Amount(f"the corpus {source.folder}: {works:,} works, {citations:,} citations", works, citations)
    if isinstance(source, RecordsConfig):
        files = find_record_files(source.inputs)
        packed = sum(file.stat().st_size / (1 if file.suffix in (".gz", ".zst") else _PLAIN) for file in files)
        works, n_bytes = round(packed / _BYTES_PER_WORK), sum(file.stat().st_size for file in files)
        line = f"{counted(len(files), 'file')} of records, {n_bytes:,} bytes: about {works:,} works"
        return _Amount(line, works, works * _REFERENCES_PER_WORK, packed)
    if isinstance(source, LabelledConfig):
        files = find_labelled_files(source.inputs)
        n_bytes = sum(file.stat().st_size for file in files)
        line = f"{counted(len(files), 'file')} of labelled works, {n_bytes:,} bytes"
        return _Amount(line, None, 0, n_bytes)
    if isinstance(source, SnapshotConfig):
        n_bytes = snapshot_bytes(source)
        works = round(n_bytes / _BYTES_PER_SNAPSHOT_WORK)
        line = f"the snapshot {source.folder}, {n_bytes:,} bytes: about {works:,} works"
        return _Amount(line, works, works * _REFERENCES_PER_WORK, n_bytes)
    if isinstance(source, TablesConfig):
        n_bytes, n_files = table_bytes(source), sum(map(len, find_table_files(source).values()))
        return _Amount(f"{n_files:,} tables, {n_bytes:,} bytes", parsed_bytes=n_bytes)
    assert isinstance(source, SciSciNetConfig)
    tables = scan_sciscinet(source).tables
    return _Amount(f"SciSciNet, {len(tables)} tables of {source.folder}: {', '.join(tables)}")


def _count_chosen(config: BuildConfig) -> tuple[int | None, list[str]]:
    """Count the works of the chosen fields and venues in a corpus, whose columns are read in seconds."""
    rules, source = config.eligibility, config.source
    names = " and ".join(option for option in ("fields", "venues") if getattr(rules, option))
    if not names:
        return None, []
    if not isinstance(source, CorpusConfig):
        return None, [f"chosen {names}: not counted here; classes and time are those of all works"]
    works = scan_corpus(source.folder).works
    is_chosen = pl.all_horizontal(chosen_names(rules)).sum()
    n_chosen = int(works.select(is_chosen).collect(engine="streaming").item())
    remarks = [f"warning: {remark}" for remark in remark_on_names(works, rules)]
    return n_chosen, [f"of the chosen {names}: {n_chosen:,} works", *remarks]


def _describe_classes(config: BuildConfig, amount: _Amount) -> list[str]:
    """Say how many works each class is likely to give, before the filters: counted where scores are published."""
    source, quotas = config.source, _quotas(config)
    if isinstance(source, SciSciNetConfig) and not source.recompute and "://" not in str(source.folder):
        tables = scan_sciscinet(source)
        with reading(tables.tables):
            counts = count_labels(compute_labels(tables.structure.select("cd_index"), config.thresholds))
        return [f"classes, counted, before the filters: {_list_counts(counts)}"]
    is_synthetic = isinstance(source, SyntheticConfig)
    shares, where = (_SYNTHETIC, "as in a world of 5,000 works") if is_synthetic else (published_shares(), _ELSEWHERE)
    if isinstance(source, LabelledConfig):
        return ["classes: those of the files, which are read in a build"]
    if amount.works is None:
        return [f"classes, before the filters, {where}: {_list_shares(shares)}"]
    likely = {label: round(amount.works * share) for label, share in shares.items()}
    lines = [f"classes, about, before the filters, {where}: {_list_counts(likely)}"]
    short = [
        f"{label} (about {n:,}, {wanted:,} wanted)"
        for label, n in likely.items()
        if n < (wanted := quotas.get(label, 0))
    ]
    return lines + ([f"too few, probably: {', '.join(short)}"] if short else [])


def _list_shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{label} {share:.1%}" for label, share in shares.items())


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{label} {n:,}" for label, n in counts.items())


def _describe_time(amount: _Amount) -> str:
    if amount.citations is None and amount.parsed_bytes:
        seconds = _START_S + amount.parsed_bytes / _PARSED_PER_S
        return f"time: about {_format_seconds(seconds)} to read, and a second for each million citations; no cost"
    if amount.citations is None:
        return "time: minutes where scores are published; with recompute about one for each 60 million citations"
    seconds = _START_S + amount.parsed_bytes / _PARSED_PER_S + amount.citations / _CITATIONS_PER_S
    return f"time: about {_format_seconds(seconds)} on two cores, less where the cache holds a part; no cost"


def _format_seconds(seconds: float) -> str:
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"


def _describe_pull(config: BuildConfig, source: OpenAlexConfig) -> list[str]:
    """Ask OpenAlex how many candidates there are and what some look like, and estimate the rest."""
    with ResponseStore(config.cache_dir / "openalex") as store, OpenAlexClient(config.api, store) as client:
        candidates = Candidates.count(client, source, config.cd, config.eligibility)
        demand = Demand(config.thresholds, candidates.eligibility, config.split, config.cd.window_years)
        calls = estimate_pull(client, candidates, config.cd, demand, config.novelty)
        asked, paid, left = client.n_calls, client.cost_usd, client.remaining_usd
    per_year, cost, rate = candidates.per_year, calls * CREDIT_USD, config.api.rate
    today = "" if left is None else f"; ${left:.2f} of today's budget are left"
    return [
        f"would sample: {sum(per_year.values()):,} works of {min(per_year)} to {max(per_year)} pass the filters",
        f"classes of candidates, {_ELSEWHERE}: {_list_shares(published_shares())}",
        f"calls: about {calls:,.0f}, at {rate:g} a second {_format_seconds(calls / rate)} or more",
        f"cost: about ${cost:.2f}; {describe_days(cost, has_key=config.api.api_key is not None)}{today}",
        f"this look took {counted(asked, 'call')}, ${paid:.4f}; the answers are kept",
    ]
