"""Every flag of a build: which setting it stands for, and what argparse needs to know of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

from sciscidata.storage import expand_home

_YES_NO = {"action": argparse.BooleanOptionalAction}


class Flag(NamedTuple):
    """One flag.

    Attributes:
        group: the heading under which the help lists it.
        flag: as it is written.
        section: of the setting it stands for, as in the configuration file; "" is the top level.
        name: of that setting.
        details: for argparse.
    """

    group: str
    flag: str
    section: str
    name: str
    details: dict[str, Any]

    @property
    def key(self) -> str:
        """Where the parsed arguments keep its value."""
        return f"{self.section}.{self.name}"


def add_flags(parser: argparse.ArgumentParser, flags: Sequence[Flag]) -> None:
    """Add flags to a command under their headings, and that of the file of settings."""
    parser.add_argument("--config", type=_path, metavar="FILE", help="a TOML file of settings; flags go over it")
    groups: dict[str, Any] = {}
    for flag in flags:
        group = groups.setdefault(flag.group, parser.add_argument_group(flag.group))
        group.add_argument(flag.flag, dest=flag.key, **({"metavar": "N"} if _is_number(flag) else {}), **flag.details)


def _is_number(flag: Flag) -> bool:
    return flag.details.get("type") in (int, float) and "metavar" not in flag.details


def _path(text: str) -> Path:
    return Path(expand_home(text))


def _window(text: str) -> int | str:
    try:
        return "all" if text == "all" else int(text)
    except ValueError:
        msg = f"{text!r} is neither a whole number nor 'all'"
        raise argparse.ArgumentTypeError(msg) from None


def list_flags() -> list[Flag]:
    """List all flags of a build.

    Example:
        >>> next(flag.name for flag in list_flags() if flag.flag == "--seed")
        'seed'
    """
    from sciscidata.cli.settings import SOURCES
    from sciscidata.disruption.index import COMPAT
    from sciscidata.labels import NOVELTY_RULES, PRESETS
    from sciscidata.novelty.config import COMPAT as NOVELTY_COMPAT
    from sciscidata.novelty.config import NoveltyConfig
    from sciscidata.sampling.split import BALANCED

    of_novelty = {name: get_args(hint) for name, hint in get_type_hints(NoveltyConfig).items()}
    rows: list[tuple[str, str, str, str, dict[str, Any]]] = [
        ("what to read", "--source", "", "source", {
            "choices": SOURCES, "help": "openalex; or what --input, --sciscinet, --snapshot or --corpus name",
        }),
        ("what to read", "--input", "records", "inputs", {
            "nargs": "+", "metavar": "FILE",
            "help": "files, folders or patterns of OpenAlex works: JSON lines (.gz, .zst too), API pages, single works",
        }),
        ("what to read", "--strict", "records", "strict", {**_YES_NO, "help": "stop at the first corrupt line"}),
        ("what to read", "--max-line-mb", "records", "max_line_mb", {"type": int, "help": "longest line (256)"}),
        ("what to read", "--max-document-mb", "records", "max_document_mb", {
            "type": int, "help": "largest JSON document of many lines (1024)",
        }),
        ("what to read", "--max-gap-mb", "records", "max_gap_mb", {
            "type": int, "help": "most of a file in a row without a work (4096)",
        }),
        ("what to read", "--n-works", "synthetic", "n_works", {"type": int, "help": "size of the synthetic world"}),
        ("what to read", "--world-seed", "synthetic", "seed", {"type": int, "help": "seed of the synthetic world"}),
        ("what to read", "--corpus", "corpus", "folder", {
            "metavar": "FOLDER", "help": "what `sciscidata ingest` has made",
        }),
        ("OpenAlex snapshot", "--snapshot", "snapshot", "folder", {
            "metavar": "FOLDER", "help": "a copy of s3://openalex, or any folder of it down to works",
        }),
        ("OpenAlex snapshot", "--edition", "snapshot", "edition", {
            "choices": ["jsonl", "parquet"], "help": "(parquet where both are there)",
        }),
        ("OpenAlex snapshot", "--include-xpac", "snapshot", "include_xpac", {
            **_YES_NO, "help": "keep the expansion corpus (no)",
        }),
        ("OpenAlex snapshot", "--corrupt", "snapshot", "corrupt", {
            "choices": ["fail", "skip"], "help": "what to do about parts that are damaged or missing (fail)",
        }),
        ("OpenAlex snapshot", "--allow-missing-manifest", "snapshot", "allow_missing_manifest", {
            **_YES_NO, "help": "read what is there of an unfinished copy (no)",
        }),
        ("OpenAlex snapshot", "--n-workers", "snapshot", "n_workers", {
            "type": int, "help": "processes that read it (as many as Polars has threads)",
        }),
        ("OpenAlex snapshot", "--snapshot-max-line-mb", "snapshot", "max_line_mb", {
            "type": int, "help": "longest record (256)",
        }),
        ("OpenAlex snapshot", "--snapshot-max-gap-mb", "snapshot", "max_gap_mb", {
            "type": int, "help": "most of a part in a row without a work (4096)",
        }),
        ("SciSciNet", "--sciscinet", "sciscinet", "folder", {
            "metavar": "FOLDER", "help": "folder or URL of its tables",
        }),
        ("SciSciNet", "--sciscinet-texts", "sciscinet", "texts", {
            "metavar": "FOLDER", "help": "where titles and abstracts lie, if elsewhere",
        }),
        ("SciSciNet", "--sciscinet-version", "sciscinet", "version", {
            "choices": ["v2", "v1"], "help": "v2: Parquet; v1: tab-separated text (v2)",
        }),
        ("SciSciNet", "--recompute", "sciscinet", "recompute", {
            **_YES_NO, "help": "compute CD index and novelty from the references; else as published (no)",
        }),
        ("OpenAlex", "--email", "api", "email", {
            "metavar": "ADDRESS", "help": "told to OpenAlex as a courtesy; not kept",
        }),
        ("OpenAlex", "--api-key", "api", "api_key", {
            "metavar": "KEY", "help": "free at openalex.org/settings/api; better in OPENALEX_API_KEY",
        }),
        ("OpenAlex", "--base-url", "api", "base_url", {
            "metavar": "URL", "help": "another server; or OPENALEX_BASE_URL",
        }),
        ("OpenAlex", "--max-answer-mb", "api", "max_answer_mb", {"type": int, "help": "largest answer (32)"}),
        ("OpenAlex", "--max-cost-usd", "api", "max_cost_usd", {"type": float, "help": "stop before spending more"}),
        ("OpenAlex", "--offline", "api", "offline", {**_YES_NO, "help": "only what earlier runs have fetched"}),
        ("OpenAlex", "--from-year", "openalex", "from_year", {
            "type": int, "help": "candidates from this year on (1990)",
        }),
        ("OpenAlex", "--to-year", "openalex", "to_year", {"type": int, "help": "candidates up to this year (2018)"}),
        ("OpenAlex", "--sample-seed", "openalex", "seed", {"type": int, "help": "seed of the candidates' samples (0)"}),
        ("OpenAlex", "--max-references", "openalex", "max_references", {
            "type": int, "help": "pass over candidates with more; beyond 500 each costs many calls (500)",
        }),
        ("OpenAlex", "--venues", "openalex", "venues", {
            **_YES_NO, "help": "also fetch the venues of references, for novelty (yes)",
        }),
        ("what to draw", "--n-train", "split", "n_train", {"type": int, "help": "training works (5000)"}),
        ("what to draw", "--n-test", "split", "n_test", {"type": int, "help": "test works (500)"}),
        ("what to draw", "--seed", "split", "seed", {"type": int, "help": "seed of the draw (0)"}),
        ("what to draw", "--balance", "split", "balance", {
            "choices": list(BALANCED), "help": "which classes get equal numbers (disruption); none: natural prevalence",
        }),
        ("how to score", "--window-years", "cd", "window_years", {
            "type": _window, "metavar": "N|all", "help": "citers count up to so many years after (5)",
        }),
        ("how to score", "--compat", "cd", "compat", {
            "choices": list(COMPAT), "help": "the convention of another implementation; other flags go over it",
        }),
        ("how to score", "--same-year", "cd", "same_year", {**_YES_NO, "help": "count citers of the same year"}),
        ("how to score", "--zero-references", "cd", "zero_references", {
            "choices": ["null", "keep"], "help": "score of a work without references on record (null)",
        }),
        ("novelty", "--novelty", "", "novelty", {**_YES_NO, "help": "score atypical combinations of venues (yes)"}),
        ("novelty", "--null", "novelty", "null", {
            "choices": of_novelty["null"], "help": "expected pairs in closed form, or from shuffles (analytic)",
        }),
        ("novelty", "--n-shuffles", "novelty", "n_shuffles", {"type": int, "help": "with --null permutation (10)"}),
        ("novelty", "--novelty-seed", "novelty", "seed", {"type": int, "help": "seed of the shuffles (0)"}),
        ("novelty", "--score", "novelty", "score", {
            "choices": of_novelty["score"], "help": "from z to 0 .. 1: by itself, or by rank within the year (sigmoid)",
        }),
        ("novelty", "--novelty-compat", "novelty", "compat", {
            "choices": list(NOVELTY_COMPAT), "help": "the convention of another implementation; other flags go over it",
        }),
        ("novelty", "--background", "", "background", {
            "metavar": "FILE", "help": "take the null model from a table that `sciscidata background` wrote",
        }),
        ("how to label", "--preset", "thresholds", "preset", {
            "choices": list(PRESETS), "help": "a named set of thresholds; other flags go over it",
        }),
        ("how to label", "--disruptive-min", "thresholds", "disruptive_min", {"type": float, "help": "(0.001)"}),
        ("how to label", "--consolidating-max", "thresholds", "consolidating_max", {"type": float, "help": "(-0.001)"}),
        ("how to label", "--inclusive", "thresholds", "inclusive", {
            **_YES_NO, "help": "a score at a cut-off is not neutral any more (yes)",
        }),
        ("how to label", "--novelty-rule", "thresholds", "novelty_rule", {
            "choices": list(NOVELTY_RULES), "help": "by the distance of the two scores, or by z as in Uzzi (margin)",
        }),
        ("how to label", "--novelty-margin", "thresholds", "novelty_margin", {
            "type": float, "help": "with the rule margin: nearer scores are balanced (0.15)",
        }),
        ("which works may be drawn", "--min-references", "eligibility", "min_references", {"type": int, "help": "(1)"}),
        ("which works may be drawn", "--min-citations", "eligibility", "min_citations", {
            "type": int, "help": "citing works inside the window (1)",
        }),
        ("which works may be drawn", "--language", "eligibility", "languages", {
            "nargs": "*", "metavar": "CODE", "help": "OpenAlex language codes (en); none given: any",
        }),
        ("which works may be drawn", "--keep-unknown-language", "eligibility", "keep_unknown_language", {
            **_YES_NO, "help": "keep works without a language on record (yes)",
        }),
        ("which works may be drawn", "--work-type", "eligibility", "work_types", {
            "nargs": "*", "metavar": "TYPE", "help": "OpenAlex types (any)",
        }),
        ("which works may be drawn", "--min-year", "eligibility", "min_year", {"type": int, "help": "(none)"}),
        ("which works may be drawn", "--max-year", "eligibility", "max_year", {"type": int, "help": "(none)"}),
        ("which works may be drawn", "--last-year", "eligibility", "last_year", {
            "type": int, "help": "the last year; windows must end before it (found, whatever mistaken dates say)",
        }),
        ("which works may be drawn", "--complete-window", "eligibility", "complete_window", {
            **_YES_NO, "help": "ask for a complete citation window (yes)",
        }),
        ("which works may be drawn", "--require-title", "eligibility", "require_title", {**_YES_NO, "help": "(yes)"}),
        ("which works may be drawn", "--require-abstract", "eligibility", "require_abstract", {
            **_YES_NO, "help": "(yes)",
        }),
        ("which works may be drawn", "--exclude-retracted", "eligibility", "exclude_retracted", {
            **_YES_NO, "help": "(yes)",
        }),
        ("where it goes", "--out", "", "out", {"metavar": "FOLDER", "help": "the release (slices/SOURCE)"}),
        ("where it goes", "--cache-dir", "", "cache_dir", {
            "metavar": "FOLDER", "help": "what later runs can use again (the user's cache folder)",
        }),
        ("where it goes", "--overwrite", "", "overwrite", {
            **_YES_NO, "help": "replace what an earlier run left at --out",
        }),
    ]  # fmt: skip
    return [Flag(*row) for row in rows]
