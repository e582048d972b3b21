"""Say what was found of one work, in the words of a researcher."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from sciscidata.disruption.config import CDConfig
from sciscidata.disruption.label_prior import LabelPrior
from sciscidata.explanation.neighbourhood import YEAR, Neighbourhood
from sciscidata.judged import WINDOW_COMPLETE
from sciscidata.label_thresholds import LabelThresholds
from sciscidata.records.ids import ORIGINAL_ID
from sciscidata.terminal.messages import counted, printable

_OUTSIDE: Final = {
    "before": "before its window begins",
    "after": "after its window ends",
    "undated": "in no known year",
}
_OTHER_WORKS: Final = (
    "Both numbers may be far off, since that prior is of other works. Take that of your own: "
    "`sciscidata cd CORPUS --out cd.parquet`, then `--scores cd.parquet`; in Python prior=find_label_prior(all scores)."
)


def name_work(around: Neighbourhood) -> str:
    """Name a work: its id, its year, its title."""
    original, title, year = (around.fact(name) for name in (ORIGINAL_ID, "title", YEAR))
    name = str(original) if original is not None else f"W{around.work_id}"
    return f"{printable(name)}{f' ({year})' if year is not None else ''}{f': {printable(title)}' if title else ''}"


def describe_counts(
    row: dict[str, Any], config: CDConfig, cut: LabelThresholds, last_year: int | None = None
) -> list[str]:
    """Say which works are counted, and what index and label follow; or why there is none."""
    if row["n_i"] is None:
        return ["Its publication year is not known, so no citer can be counted and it has no CD index."]
    n_refs, years = int(row["n_refs"]), describe_window(row["publication_year"], config, last_year)
    n_i, n_j, n_k = (int(row[name]) for name in ("n_i", "n_j", "n_k"))
    n = n_i + n_j
    lines = [_describe_citers(n_i, n_j, n_k, n_refs, years)]
    if row["cd_index"] is not None:
        lines[0] = f"{lines[0][:-1]}: CD {row['cd_index']:.3g}{_comma(row['disruption_label'])}."
        if n:
            lines.append(f"CD = ({n_i:,} - {n_j:,}) / ({n_i:,} + {n_j:,} + {n_k:,}); {_describe_labels(cut)}.")
    elif n_refs == 0 and config.zero_references == "null":
        lines.append(
            "So the CD index is undefined: a list that is only missing would make it 1. "
            "CDConfig.zero_references='keep' computes it."
        )
    else:
        lines.append("So the CD index is undefined, and it is not judged: no later work cites it or its references.")
    return lines


def _describe_labels(cut: LabelThresholds) -> str:
    """Say where labels begin and end."""
    if cut.cells:
        return "labels are by rank within field and years"
    low, high = cut.consolidating_max, cut.disruptive_min
    if cut.inclusive:
        return f"disruptive from {high:g} on, consolidating up to {low:g}"
    return f"disruptive above {high:g}, consolidating below {low:g}"


def _describe_citers(n_i: int, n_j: int, n_k: int | None, n_refs: int | None, years: str = "") -> str:
    n = n_i + n_j
    none, some, do = "none of its references", "at least one of them", ("cites", "cite")
    if n_refs == 1:
        none, some = "its one reference", "it"
    elif n_refs is not None and n_refs > 1:
        none = f"none of its {n_refs:,} references"
    without = ("does not cite", "do not cite") if n_refs == 1 else do
    parts = f"; {counted(n_i, *without)} {none}, {counted(n_j, *do)} {some if n_refs != 1 else 'that too'}"
    if not (n_i and n_j):
        built = "its one reference" if n_refs == 1 else none.replace("none of", "at least one of")
        parts = f" and also {built}" if n_j else f" and {'not ' * (n_refs == 1)}{none}" if n_i else ""
    what = counted(n, "later work cites it", "later works cite it") if n else "No later work cites it"
    if n_refs == 0:
        return f"{what}{years}; it has no reference on record."
    others = f"; {counted(n_k, 'work cites', 'works cite')} only its references, not it" if n_k is not None else ""
    return f"{what}{years}{parts}{others}."


def describe_released(row: dict[str, Any]) -> list[str]:
    """Say what a release has of the counts of a work."""
    if row["n_i"] is None:
        return ["Its counts are not known here."]
    line = _describe_citers(row["n_i"], row["n_j"], row["n_k"], row["n_refs"])
    if row["cd_index"] is not None:
        line = f"{line[:-1]}: CD {row['cd_index']:.3g}{_comma(row['disruption_label'])}."
    return [line, *describe_judged(row, None)]


def _comma(label: str | None) -> str:
    return f", {label}" if label else ""


def describe_window(year: int | None, config: CDConfig, last_year: int | None = None) -> str:
    """Say in which years citers count, where one span holds for all of them, and whether the data end before."""
    if year is None or config.window_from != "focal" or config.time != "publication_year" or config.earlier_citers:
        return ""
    times = config.times_of_citers(year, config.window_years)
    if config.window_years is None:
        return f" since {times[0]}"
    if last_year is not None and last_year < times[-1]:
        span = f"{times[0]} to {times[-1]}" if len(times) > 1 else f"{times[0]}"
        return f" (window {span}, data end in {last_year})"
    return f" in {times[0]}" if len(times) == 1 else f" ({times[0]} to {times[-1]})"


def describe_outside(outside: dict[str, int]) -> list[str]:
    """Say how many citers do not count, and why."""
    if not outside:
        return []
    n = sum(outside.values())
    why = ", ".join(f"{f'{some:,} ' if some < n else ''}{_OUTSIDE[name]}" for name, some in outside.items())
    return [f"{counted(n, 'more work cites it and does', 'more works cite it and do')} not count: {why}."]


def describe_judged(row: dict[str, Any], last_year: int | None) -> list[str]:
    """Say that a work is not judged, and why; nothing of one that is."""
    if row["cd_index"] is None or row["is_judged"]:
        return []
    if row.get(WINDOW_COMPLETE) is False:
        end = f" before {last_year}, the last year of the data" if last_year is not None else ""
        return [f"Not judged: its window is not over{end}, so citers may still come."]
    return ["Not judged: no work cites it in the window, so this value says nothing about it."]


def describe_certainty(row: dict[str, Any], prior: LabelPrior | None) -> list[str]:
    """Say how often the label comes back, and where the index lies, if the work is cited anew."""
    if row["label_confidence"] is None or not row["is_judged"]:
        return []
    times = round(100 * row["label_confidence"])
    often = "over 99" if times == 100 else "under 1" if times == 0 else str(times)
    lines = [f"Cited anew, {often} of 100 works with these counts would be {row['disruption_label']} again"]
    if row["cd_low"] is not None:
        low, high = (f"{row[end] + 0.0:.2g}" for end in ("cd_low", "cd_high"))  # -0.0 is 0
        lines[0] += f"; 95 of 100 indices would lie between {low} and {high}"
    if prior is None:
        return [f"{lines[0]} (prior: the shipped one, of other works).", _OTHER_WORKS]
    return [f"{lines[0]} (prior: {counted(prior.works, 'work')} with one to eight citers)."]


def describe_turns(turns: pl.DataFrame) -> list[str]:
    """Say what is the least that would turn the label."""
    parts = [
        f"{row['n_citers']:,} {row['change'] if row['n_citers'] != 1 else row['change'].replace('citers', 'citer')} "
        f"would make it {row['to_label']}"
        for row in turns.unique("to_label", keep="first", maintain_order=True).iter_rows(named=True)
        if row["to_label"] is not None
    ]
    return [f"{'; '.join(parts)}."] if parts else []


def describe_conventions(rows: pl.DataFrame) -> list[str]:
    """Say which label the published conventions give, and what other windows say."""
    published = rows.filter(pl.col("convention") != "this")
    names: dict[str, list[str]] = {}
    for name, label in published.select("convention", "disruption_label").iter_rows():
        names.setdefault(label or "without a label", []).append(name)
    lines: list[str] = []
    if names:
        said = "; ".join(f"{label} by {', '.join(some)}" for label, some in names.items())
        lines.append(f"Published conventions, labelled by the same cut-offs: {said}.")
    own = rows.filter(pl.col("convention") == "this").drop_nulls("cd_index")[1:]
    if own.height:
        windows = ", ".join(
            f"{'all years so far' if window == 'all' else f'{window} years'}"
            f"{': not over yet' if is_over is False else f' {cd:.2g}'}"
            for window, cd, is_over in own.select("window", "cd_index", WINDOW_COMPLETE).iter_rows()
        )
        lines.append(f"Other windows: {windows}.")
    return lines


def describe_self_citations(row: dict[str, Any]) -> list[str]:
    """Say how many citers share an author with the work."""
    n = row.get("n_self_citers")
    if n is None:
        return ["No author of it is known, so citers of its own authors are not told apart."]
    if n == 0:
        return ["No citer shares a known author with it."]
    left = row["independent_cd_index"]
    without = f"CD {left:.3g} without works of its authors" if left is not None else "without them it has no index"
    return [f"{counted(n, 'citer shares', 'citers share')} an author with it; {without}."]


def describe_pairs(row: dict[str, Any], pairs: pl.DataFrame) -> list[str]:
    """Say which venue pairs made the two z of a work."""
    if pairs.is_empty() or row.get("z_median") is None:
        return [
            "Its atypicality is undefined. It takes two references with a known year and venue, and a pair of venues "
            "that could be cited together more or less often by chance."
        ]
    lines = [f"z of {counted(pairs.height, 'venue pair')}: 10th percentile {row['z_p10']:.3g}, "]
    lines[0] += f"median {row['z_median']:.3g}."
    for role in ("10th percentile", "median"):
        near = pairs.filter(pl.col("role").str.contains(role, literal=True)).head(1)
        for pair in near.iter_rows(named=True):
            a, b = (pair[f"source_name_{end}"] or f"S{pair[f'source_id_{end}']}" for end in "ab")
            expected = f"{pair['mean']:.3g}" if pair["mean"] is not None else "unknown"
            lines.append(
                f"Nearest to the {role}: {printable(a)} with {printable(b)}, cited together {pair['n_observed']:,} "
                f"times, {expected} expected (z {pair['z']:.3g})."
            )
    return lines
