"""What a build would read, which classes are likely, and what it takes: ``build --dry-run``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import polars as pl

from sciscidata.cli.summary import shown
from sciscidata.config import BuildConfig
from sciscidata.eligibility import chosen_names, remark_on_names
from sciscidata.sampling.balance import class_quotas
from sciscidata.sampling.split import balanced_columns, list_cells
from sciscidata.sources.id_files import read_ids
from sciscidata.sources.kinds import Ask, ToAsk, ToRead
from sciscidata.sources.openalex.estimate import published_shares
from sciscidata.sources.registry import find_source, open_source
from sciscidata.terminal.messages import counted
from sciscidata.terminal.shares import percent

#: Measured on two cores (benchmarks/README.md): compressed bytes parsed, and citations through graph and both measures.
_PARSED_PER_S: Final = 30e6
_CITATIONS_PER_S: Final = 1e6
_START_S: Final = 15  # imports, pictures
_ELSEWHERE: Final = "as in a corpus of 1.97 million works"


def describe_plan(config: BuildConfig) -> list[str]:
    """Describe a build without running it. The API gets two calls, for a count and a sample of a hundred works."""
    kind = find_source(config.source)
    listed = None if config.ids is None else read_ids(config.ids, config.id_column)
    config = replace(config, eligibility=replace(config.eligibility, listed=listed))
    if kind.sample:
        with open_source(config.source, config.cache_dir, config.api) as source:
            assert isinstance(source, Ask)
            asking = source.estimate(config.demand.quotas, config.measures)
        lines = _describe_asking(asking, config.api.rate, sum(config.split.sizes.values()))
    else:
        reading = kind.measure(config.source)
        of_list: list[str] = []
        if listed is not None:
            n_listed, of = listed.rows.height, "not looked up here; classes and time are those of all works"
            if reading.columns is not None:
                n_listed = int(listed.among(reading.columns).stated["works"])
                reading, of = reading._replace(works=n_listed), f"{counted(n_listed, 'work')} of the source"
            of_list = [f"from {counted(listed.rows.height, 'id')}: {of}"]
            if n_listed < (wanted := sum(config.split.sizes.values())):
                of_list.append(f"too few works in the list: {n_listed:,} at most, {wanted:,} wanted")
        n_chosen, remarks = _count_chosen(config, reading.columns)
        classes = _describe_classes(config, reading if n_chosen is None else reading._replace(works=n_chosen))
        lines = [f"would read: {reading.name}", *of_list, *remarks, *classes, f"time: {_describe_time(reading)}"]
    lines.insert(1, f"would draw: {_describe_draw(config)}")
    state = "which exists" if config.out.exists() else "which is new"
    return [*lines, f"would write: {shown(config.out)}, {state}; nothing was written"]


def _quotas(config: BuildConfig) -> dict[str, int]:
    """Return how many works of each class are drawn; of pairs of labels, both words."""
    split = config.split
    cells = list_cells(split, config.label) if balanced_columns(split, config.label) else []
    return {
        " and ".join(cell): sum(class_quotas(size, cells)[cell] for size in split.groups.values()) for cell in cells
    }


def _describe_draw(config: BuildConfig) -> str:
    quotas = _quotas(config)
    with_context = " with their references" if config.context else ""
    *first, last = [f"{size:,} {name}" for name, size in config.split.sizes.items()]
    return f"{', '.join(first)} and {last} works{with_context}{': ' * bool(quotas)}{_list_counts(quotas)}"


def _count_chosen(config: BuildConfig, columns: pl.LazyFrame | None) -> tuple[int | None, list[str]]:
    """Count the works of the chosen fields and venues, where their columns are read in seconds."""
    rules = config.eligibility
    names = " and ".join(option for option in ("fields", "venues") if getattr(rules, option))
    if not names:
        return None, []
    if columns is None:
        return None, [f"chosen {names}: not counted here; classes and time are those of all works"]
    is_chosen = pl.all_horizontal(chosen_names(rules)).sum()
    n_chosen = int(columns.select(is_chosen).collect(engine="streaming").item())
    remarks = [f"warning: {remark}" for remark in remark_on_names(columns, rules)]
    return n_chosen, [f"in the chosen {names}: {n_chosen:,} works", *remarks]


def _describe_classes(config: BuildConfig, found: ToRead) -> list[str]:
    """Say how many works each class is likely to give, before the filters; what the source knows counts first."""
    if found.describe_classes is not None:
        return [found.describe_classes(config.thresholds)]
    shares, where = found.shares or (published_shares(), _ELSEWHERE)
    if found.works is None:
        return [f"classes, before the filters, {where}: {_list_shares(shares)}"]
    likely, quotas = {label: round(found.works * share) for label, share in shares.items()}, _quotas(config)
    lines = [f"classes, about, before the filters, {where}: {_list_counts(likely)}"]
    short = [
        f"{label} (about {n:,}, {wanted:,} wanted)"
        for label, n in likely.items()
        if n < (wanted := quotas.get(label, 0))
    ]
    if config.split.cell_columns and likely.keys() == quotas.keys():
        n_most = min(likely.values()) * len(likely)
        lines.append(f"within field and years: {n_most:,} works at most, fewer if the rarest class varies by cell")
    return lines + ([f"too few, probably: {', '.join(short)}"] if short else [])


def _list_shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{label} {percent(share, 1)}" for label, share in shares.items())


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{label} {n:,}" for label, n in counts.items())


def _describe_time(found: ToRead) -> str:
    if found.time is not None:
        return found.time
    seconds = _START_S + found.parsed_bytes / _PARSED_PER_S
    if found.citations is not None:
        whole = _format_seconds(seconds + found.citations / _CITATIONS_PER_S)
        return f"about {whole} on two cores, sooner if the cache holds a part; no cost"
    return f"about {_format_seconds(seconds)} to read, and a second for each million citations; no cost"


def _format_seconds(seconds: float) -> str:
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"


def _describe_asking(found: ToAsk, rate: float, n_drawn: int) -> list[str]:
    per_year, (at_least, about, at_most), left = found.per_year, found.calls, found.left_usd
    low, cost, high = (f"${calls * found.call_usd:.2f}" for calls in found.calls)
    today = "" if left is None else f"; ${left:.2f} of today's budget are left"
    trust = (
        f"these numbers follow from the classes of the {found.judged:,} works judged so far"
        if found.judged
        else '"about" holds if the classes are those above; the bounds hold for any classes'
    )
    lines = [
        f"would sample: {sum(per_year.values()):,} works of {min(per_year)} to {max(per_year)} pass the filters",
        f"classes of candidates, {_ELSEWHERE}: {_list_shares(published_shares())}",
        f"calls: about {about:,.0f}, at {rate:g} a second {_format_seconds(about / rate)} or more; at least "
        f"{at_least:,.0f}, at most {at_most:,.0f}",
        f"cost: about {cost}; {found.days}; at least {low}, at most {high}{today}",
        trust,
    ]
    if found.novelty_labels is not None:
        fewest, most = found.novelty_labels
        why = "" if found.judged else "; that depends on the venues of references, which this look leaves out"
        known = f"{fewest:,.0f} to {most:,.0f} of the {n_drawn:,} works{why}"
        lines.append(f"novelty labels: {f'all {n_drawn:,} works have one' if fewest == n_drawn else known}")
    asked = f"this look took {counted(found.asked_calls, 'call')}, ${found.asked_usd:.4f}; the answers are kept"
    return [*lines, asked]
